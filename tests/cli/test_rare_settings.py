"""The option `--set NAME=VALUE` of commands with rarer settings."""

from dataclasses import dataclass
from typing import Any

import pytest

from fl_audit.app_audits.trial_options import ReviewOptions, StrategyOptions
from fl_audit.cli.black_box_commands import _REVIEW_SETTINGS, _STRATEGY_SETTINGS, settings_of
from fl_audit.errors import InputError


@dataclass(frozen=True)
class Settings:
    number: int = 2
    share: float | None = None
    is_on: bool = False
    word: str = "a"


NAMES = ("number", "share", "is-on", "word")


def test_values_have_the_types_of_their_settings_and_the_last_one_counts() -> None:
    found = settings_of(Settings, NAMES, ["number=3", "share=.5", "is-on=true", "word=b = c", "number=4"])
    assert found == {"number": 4, "share": 0.5, "is_on": True, "word": "b = c"}
    assert settings_of(Settings, NAMES, []) == {}


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
        settings_of(Settings, NAMES, [text])


@pytest.mark.parametrize(
    ("options", "names", "positional"),
    [(ReviewOptions, _REVIEW_SETTINGS, ()), (StrategyOptions, _STRATEGY_SETTINGS, ("a:b", "replace-client"))],
)
def test_every_rare_setting_is_an_option_of_the_trials(
    options: type[Any], names: tuple[str, ...], positional: tuple[str, ...]
) -> None:
    words = {"noise-over": "clipping-norm", "trust-client-clipping": "true", "observer": "server"}
    for name in names:
        values = settings_of(options, names, [f"{name}={words.get(name, '3')}"])
        assert options(*positional, **values) != options(*positional), name
