"""Counts with their nouns."""


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return the count with its noun, which is singular if the count is 1.

    Parameters
    ----------
    count
        Number of things, at least 0.
    one
        Noun in the singular.
    many
        Noun in the plural; None adds an s to `one`.
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
