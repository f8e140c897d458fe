"""Values of a configuration are taken as they are written, and what is wrong is said with what is accepted."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_audit.errors import InputError
from fl_audit.runs.config import RunConfig, parse_config
from fl_audit.runs.config_errors import shortened_toml
from fl_audit.runs.config_file import load_config
from tests.builders.refusals import assert_refused
from tests.builders.settings import changed_settings, small_settings
from tests.few_examples import examples

FIELDS = [
    (section, str(field.alias), field)
    for section, model in (
        (str(section_field.alias), section_field.annotation)
        for section_field in RunConfig.model_fields.values()
        if section_field.alias is not None
    )
    for field in model.model_fields.values()  # type: ignore[union-attr]
]


@pytest.mark.few_cases(4)
@pytest.mark.parametrize(
    ("section", "key", "value", "expected_message"),
    [
        ("audit", "trials", True, "audit.trials is true: .*whole numbers from 1"),
        ("training", "rounds", "2", "training.rounds is '2': .*whole numbers from 1"),
        ("training", "rounds", 2.0, "training.rounds is 2.0: .*whole numbers"),
        ("training", "learning-rate", "0.1", "training.learning-rate is '0.1': .*finite .*from 1e-20"),
        ("training", "learning-rate", float("inf"), "training.learning-rate is inf: .*finite .*from 1e-20"),
        ("training", "sampling-rate", 1e-320, "training.sampling-rate is 1e-320: .*finite .*from 1e-20 to 1"),
        ("privacy", "delta", 1, "privacy.delta is 1: .*above 0 and below 1"),
        ("privacy", "belief", 90, "belief is 90: .*above 0 and below 1; 90 % is 0.9"),
        ("privacy", "private", 1, "privacy.private is 1: .*true and false"),
        ("privacy", "accountant", "moments", "privacy.accountant is 'moments': .* 'pld' and 'gdp'"),
        ("audit", "epsilon-star", "no", "audit.epsilon-star is 'no': .*true and false"),
        ("data", "name", 3, "data.name is 3: .* text in quotation"),
        ("data", "drop", [1], "data.drop is 1: .*lists of text"),
        ("data", "drop", "id", "data.drop is 'id': .*lists of text"),
        ("data", "partition-parameters", 3, r"partition-parameters is 3: .*section .*\[data\.part"),
        ("data", "seed", 2**64, "data.seed is 18446744073709551616: .*below 18446744073709551616"),
        pytest.param("audit", "trials", 2**20000, "audit.trials is .*6021 digits", id="huge"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_accepted(
    section: str, key: str, value: Any, expected_message: str
) -> None:
    values = changed_settings(small_settings(), {section: {key: value}})
    assert len(str(assert_refused(expected_message, parse_config, values))) < 400


@pytest.mark.few_cases(8)
@pytest.mark.parametrize(("section", "key"), [(section, key) for section, key, _ in FIELDS])
def test_no_key_takes_a_value_of_another_kind(section: str, key: str) -> None:
    accepted = []
    for value in (True, "2", 2):
        values = changed_settings(small_settings(), {section: {key: value}})
        try:
            section_config = getattr(parse_config(values), section)
        except InputError:
            continue
        parsed_value = getattr(section_config, key.replace("-", "_"))
        assert type(parsed_value) is type(value) or (type(value) is int and parsed_value == 2.0)
        accepted.append(value)
    # One kind each: a number, a text or a truth value.
    assert len(accepted) <= 1


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5))
@settings(max_examples=examples(30), derandomize=True)
def test_any_value_is_shown_in_one_short_line(value: object) -> None:
    assert len(shortened_toml(value)) <= 60
    assert shortened_toml(value).isprintable()


@pytest.mark.parametrize(
    ("text", "expected_message"),
    [
        ("[data]\nrecords = " + "9" * 5000, "no valid TOML: Exceeds"),
        ("[data]\nrecords = 0x" + "f" * 5000, "data.records is .*6021 digits"),
        ("x = " + "[" * 5000, "no valid TOML: "),
        ("[data\n", "no valid TOML: "),
    ],
)
def test_monstrous_files_get_one_line(text: str, expected_message: str, tmp_path: Path) -> None:
    path = tmp_path / "audit.toml"
    path.write_text(text + "\n[privacy]\nadjacency = 'replace-record'\nbelief = 0.9\n")
    error = assert_refused(expected_message, load_config, path)
    assert "set_int_max_str_digits" not in str(error)


def test_a_number_of_thousands_of_digits_in_an_override_gets_one_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.toml"
    path.write_text("[privacy]\nadjacency = 'replace-record'\nbelief = 0.9\n")
    assert_refused(r"--set 'audit\.trials=9+.*no valid TOML", load_config, path, ["audit.trials=" + "9" * 5000])


def test_a_byte_order_mark_is_read_over(tmp_path: Path) -> None:
    path = tmp_path / "audit.toml"
    path.write_bytes(b"\xef\xbb\xbf[privacy]\nadjacency = 'replace-record'\nbelief = 0.9\n")
    assert load_config(path).privacy.belief == 0.9
