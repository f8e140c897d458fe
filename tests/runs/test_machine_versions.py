"""Tests of the comparison of versions between this process and the machines of a Ray cluster."""

import pytest

from fl_audit.runs.cluster.nodes import differing_versions, own_versions


def test_equal_versions_and_builds_of_them_do_not_differ() -> None:
    own = dict(own_versions())
    minor, _, patch = own["Python"].rpartition(".")
    assert differing_versions(own) == ""
    assert differing_versions(own | {"Python": f"{minor}.{int(patch) + 1}"}) == ""
    assert differing_versions(own | {"torch": f"{own['torch'].partition('+')[0]}+cu130"}) == ""


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"Python": "3.99.1"}, "Python 3.99.1"),
        ({"numpy": "9.9.9"}, "numpy 9.9.9"),
        ({"numpy": "9.9.9", "torch": ""}, "numpy 9.9.9 and no torch"),
    ],
)
def test_a_difference_is_named(other: dict[str, str], words: str) -> None:
    assert differing_versions(dict(own_versions()) | other) == words
