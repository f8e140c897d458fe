"""Counts with their nouns."""


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return the count with its noun, in the singular for one.

    Parameters
    ----------
    count, one, many
        The count; the noun in the singular, and in the plural, where None adds an s to `one`.
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
