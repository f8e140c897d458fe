"""Write lists of names and phrases for sentences."""

from collections.abc import Iterable


def phrase_list(phrases: Iterable[str], last: str = "and") -> str:
    """Return phrases as a list in a sentence, such as "a, b and c"."""
    *first, end = [*phrases] or [""]
    return f"{', '.join(first)} {last} {end}" if first else end


def name_list(names: Iterable[object], last: str = "and") -> str:
    """Return names as a list in a sentence; all are quoted if one of them has a space or a comma.

    Examples
    --------
    >>> name_list(["rdp", "pld", "gdp"])
    'rdp, pld and gdp'
    >>> name_list(["own", "own, rounded"], "or")
    "'own' or 'own, rounded'"
    """
    told = [str(name) for name in names]
    is_clear = not any(mark in name for name in told for mark in (" ", ","))
    return phrase_list(told if is_clear else [f"'{name}'" for name in told], last)
