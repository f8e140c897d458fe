"""A target of the claim that is set on the command line takes the place of the one in the file."""

from fl_audit.runs.config import parse_config
from fl_audit.runs.config_file import apply_overrides

FILE = {"privacy": {"adjacency": "replace-record", "reconstruction": 0.5, "candidates": 10, "delta": 0.01}}


def changed(*overrides: str) -> dict[str, dict[str, object]]:
    values = {section: dict(keys) for section, keys in FILE.items()}
    apply_overrides(values, overrides)
    return values


def test_a_target_replaces_the_one_of_the_file_and_what_belongs_to_it() -> None:
    privacy = changed("privacy.epsilon=2", "audit.trials=3")["privacy"]
    assert privacy == {"adjacency": "replace-record", "epsilon": 2, "delta": 0.01}
    assert parse_config({"privacy": privacy}).privacy.epsilon == 2


def test_other_overrides_leave_the_target_as_it_is() -> None:
    assert changed("privacy.delta=0.1")["privacy"] == FILE["privacy"] | {"delta": 0.1}
    assert changed("privacy.candidates=20")["privacy"] == FILE["privacy"] | {"candidates": 20}
    assert "reconstruction" not in changed("privacy.reconstruction=")["privacy"]
