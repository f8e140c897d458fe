"""Counts with their nouns in the singular or plural, such as "2 trials"."""


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun, such as "1 trial" or "2,000 trials".

    Parameters
    ----------
    count
        Number of things, at least 0. The noun is singular if it is 1.
    one
        Noun in the singular.
    many
        Noun in the plural; None adds an s to `one`.
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
