"""The option `--set NAME=VALUE` of commands with rarer settings."""

from dataclasses import dataclass

import pytest

from fl_audit.cli.black_box_commands import RareSettings, RareStrategySettings, setting_names, settings_of
from fl_audit.errors import InputError


@dataclass(frozen=True)
class Settings:
    number: int = 2
    share: float | None = None
    is_on: bool = False
    word: str = "a"


def test_values_have_the_types_of_their_settings_and_the_last_one_counts() -> None:
    found = settings_of(Settings, ["number=3", "share=.5", "is-on=true", "word=b = c", "number=4"])
    assert found == Settings(4, 0.5, True, "b = c")
    assert settings_of(Settings, []) == Settings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("number=x", "number=x: accepted are whole numbers"),
        ("share=x", "share=x: accepted are numbers"),
        ("is-on=yes", "is-on=yes: accepted are true and false"),
        ("numbr=3", "'numbr=3': nearest is number=VALUE, accepted are number, share, is-on and word"),
        ("number", "'number': nearest is number=VALUE"),
    ],
)
def test_what_is_no_setting_is_refused_in_a_line(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        settings_of(Settings, [text])


@pytest.mark.parametrize("group", [RareSettings, RareStrategySettings])
def test_every_rare_setting_reaches_the_trials(group: type[RareSettings]) -> None:
    words = {"noise-over": "clipping-norm", "trust-client-clipping": "true", "observer": "server"}
    usual = settings_of(group, [])
    for name in setting_names(group):
        changed = settings_of(group, [f"{name}={words.get(name, '3')}"])
        if name != "noise-over":  # it goes with the claim
            assert changed.as_keywords() != usual.as_keywords(), name
