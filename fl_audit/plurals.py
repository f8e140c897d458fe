"""Counts with their nouns in the singular or plural, such as "2 trials"."""


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun, such as "1 trial" or "2,000 trials".

    `count`: The noun is singular if it is 1.
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
