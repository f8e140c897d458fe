"""All cases of the corpus, by name."""

from collections.abc import Callable, Iterator

from tests.validation.corpus import federated, hand_written, made_up, trainings
from tests.validation.corpus.case import Case

_FAMILIES: dict[str, tuple[Callable[[], list[str]], Callable[[str], Case]]] = {
    federated.FAMILY: (federated.names, federated.case),
    made_up.FAMILY: (made_up.names, made_up.case),
    hand_written.FAMILY: (hand_written.names, hand_written.case),
    trainings.FAMILY: (trainings.names, trainings.case),
}


def names(only: str = "") -> list[str]:
    """Return the names of all cases that hold some text."""
    return [name for of_family, _ in _FAMILIES.values() for name in of_family() if only in name]


def case(name: str) -> Case:
    """Return a case by its name."""
    _, case_function = _FAMILIES[name.split("/", maxsplit=1)[0]]
    return case_function(name)


def cases(only: str = "") -> Iterator[Case]:
    """Give all cases whose names hold some text."""
    return map(case, names(only))
