"""The list of settings holds for every key, and options take the place of what the file says."""

import json
import re
from typing import Any

from fl_audit.errors import InputError
from fl_audit.runs.config import RunConfig, parse_config
from fl_audit.runs.config.settings_reference import settings
from fl_audit.runs.config_file import apply_overrides
from tests.builders.commands import printed_by


def test_every_key_is_explained_in_one_line() -> None:
    all_settings = settings()
    keys = {
        f"{section}.{field.alias}"
        for section, section_model in RunConfig.model_fields.items()
        for field in section_model.annotation.model_fields.values()  # type: ignore[union-attr]
    }
    assert {setting.key for setting in all_settings} == keys
    assert len(keys) > 90
    for setting in all_settings:
        assert setting.explanation.endswith("."), setting.key
        assert "\n" not in setting.explanation, setting.key
        assert setting.accepted, setting.key


def test_a_setting_that_is_refused_when_left_out_has_no_default() -> None:
    [adjacency] = settings("privacy.adjacency")
    assert adjacency.default is None
    assert "claimed" in str(adjacency.required)
    output = printed_by("settings", "privacy.adjacency")
    assert f"required {adjacency.required}" in " ".join(output.split())
    assert [setting.key for setting in settings() if setting.required] == ["privacy.adjacency"]


def test_every_word_that_is_offered_is_accepted_and_another_one_is_not() -> None:
    for setting in settings():
        section, _, key = setting.key.partition(".")
        for word in setting.choices or ():
            problem = _problem(section, key, word)
            assert problem is None or f"configuration {setting.key} is" not in problem, problem
        if setting.choices is not None:
            assert setting.accepted in str(_problem(section, key, "loud"))


def _problem(section: str, key: str, value: Any) -> str | None:
    """Return what is said of a configuration with one setting; `value` may still not go with others."""
    values: dict[str, dict[str, Any]] = {"privacy": {"epsilon": 1.0, "adjacency": "replace-record"}}
    values.setdefault(section, {})[key] = value
    try:
        parse_config(values)
    except InputError as error:
        return str(error)
    return None


def test_defaults_are_those_of_a_configuration_that_leaves_all_out() -> None:
    left_out = parse_config({"privacy": {"epsilon": 1.0, "adjacency": "replace-record"}}).as_dict()
    for setting in settings():
        section, _, key = setting.key.partition(".")
        if setting.default is not None and setting.key != "privacy.epsilon":
            assert left_out[section][key] == setting.default, setting.key


def test_the_command_lists_all_a_section_or_one_key() -> None:
    whole = json.loads(printed_by("settings", "--json"))["settings"]
    section = json.loads(printed_by("settings", "privacy", "--json"))["settings"]
    assert section == [setting for setting in whole if setting["key"].startswith("privacy.")]
    output = printed_by("settings", "privacy.noise")
    assert "Party that adds" in output
    assert "'banded'" in output
    assert "clipping" not in output


def test_a_key_alone_is_found_in_whatever_sections_have_it() -> None:
    assert [setting.key for setting in settings("belief")] == ["privacy.belief"]
    assert [setting.key for setting in settings("seed")] == ["data.seed", "model.seed", "run.seed"]


def test_thirty_settings_stand_before_the_advanced_ones() -> None:
    usual = [setting.key for setting in settings() if not setting.advanced]
    assert len(usual) == 30
    output = printed_by("settings")
    before, heading, after = output.partition("# advanced")
    assert heading
    for setting in settings():
        name = re.compile(rf"^{re.escape(setting.key.partition('.')[2])}  \(", re.MULTILINE)
        assert name.search(after if setting.advanced else before), setting.key


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
