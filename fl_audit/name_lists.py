"""Write lists of names."""

from collections.abc import Iterable


def name_list(names: Iterable[str], last: str = "and") -> str:
    """Return names as a list in a sentence; all are quoted if one of them has a space or a comma.

    Parameters
    ----------
    names
        The names, in their order.
    last
        Word before the last name.

    Examples
    --------
    >>> name_list(["rdp", "pld", "gdp"])
    'rdp, pld and gdp'
    >>> name_list(["own", "own, rounded"], "or")
    "'own' or 'own, rounded'"
    """
    items = list(map(str, names))
    if any(mark in item for item in items for mark in (" ", ",")):
        items = [f"'{item}'" for item in items]
    *first, end = items or [""]
    return f"{', '.join(first)} {last} {end}" if first else end
