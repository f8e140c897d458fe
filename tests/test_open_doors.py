"""Parts that users may replace, by `package.module:name`: attacks, loaders, dissimilarities, report sections.

A module of one's own that does what ours does must find what ours finds.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

from fl_audit.audits.membership.attacks import ModelOutputs
from fl_audit.audits.membership.attacks.registry import attack_named
from fl_audit.audits.sections import own_section
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.dissimilarity import Dissimilarity
from fl_audit.data.dissimilarity_ranking import ranked_pairs, ranked_records
from fl_audit.data.records import Records
from fl_audit.federation.target_membership import TargetMembership
from tests.builders.refusals import assert_refused
from tests.builders.runs import small_plan

MODULE = """
from pathlib import Path
import numpy as np
from fl_audit.data.builtin import load_breast_cancer
from fl_audit.report.report_elements import Section
from fl_audit.audits.common.sections_provenance import ORIGIN

seen = []

def loss(model, shadows, is_in):
    seen.append((model, shadows, is_in))
    return model.log_probability[0]

def short(model, shadows, is_in):
    return np.zeros(1)

def unknown(model, shadows, is_in):
    return np.full(is_in.shape[1], np.nan)

def failing(*_):
    raise KeyError("weight")

def l1(left, right):
    return np.abs(left[:, None] - right).sum(axis=2)

def one(left, right):
    return np.zeros(3)

def records():
    return load_breast_cancer()

def sized(*, classes: int, path: Path | None = None, grey: bool = False, drop: tuple[str, ...] = ()):
    seen.append((classes, path, grey, drop))
    return load_breast_cancer()

def rows():
    return [1, 2]

class Own:
    pass

OWN = Section("own", "Own", Own, lambda run, found: None, ("own",))
TAKEN = Section("own", "Own", Own, lambda run, found: None, ("verdict",))
"""


@pytest.fixture(autouse=True)
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "doors.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "doors", raising=False)


def answers_of(trials: int, targets: int) -> tuple[ModelOutputs, TargetMembership]:
    draw = np.random.default_rng(3)
    log_probabilities = draw.normal(-1, 0.3, (trials, targets))
    answers = ModelOutputs(log_probabilities, log_probabilities, None, None, draw.normal(-1, 0.3, (trials, 5)))
    return answers, TargetMembership(draw.random((trials, targets)) < 0.5)


@pytest.mark.parametrize("apart", [False, True])
def test_an_attack_of_ones_own_scores_as_ours_and_never_sees_the_coins_of_its_trial(apart: bool) -> None:
    answers, membership = answers_of(6, 4)
    shadows = np.arange(6) < 3 if apart else None
    expected = attack_named("loss").scores(answers, membership, None)
    scores = attack_named("doors:loss").scores(answers, membership, shadows)
    played = [3, 4, 5] if apart else list(range(6))
    assert np.array_equal(scores[played], expected[played])
    assert np.isnan(scores[:3]).all() == apart
    for trial, (model, other_outputs, is_in) in zip(played, sys.modules["doors"].seen, strict=True):
        other_trials = [index for index in (range(3) if apart else range(6)) if index != trial]
        assert np.array_equal(model.log_probability, answers.log_probability[[trial]])
        assert np.array_equal(other_outputs.population, answers.population[other_trials])
        assert np.array_equal(is_in, membership.is_in[other_trials])


@pytest.mark.parametrize(
    ("name", "expected_message"),
    [
        ("doors:short", r"'doors:short' .*float64 .* \(1,\): .*finite .* 4 targets"),
        ("doors:unknown", "'doors:unknown' .*: .*finite .* 4 targets"),
        ("doors:failing", "'doors:failing' raised KeyError: 'weight'"),
        ("doors:absent", "attack 'doors:absent' .*be imported"),
        ("doors:OWN", "'doors:OWN' .*Section: .*function"),
        ("nowhere:loss", "no module 'nowhere'"),
    ],
)
def test_an_attack_that_is_none_is_named(name: str, expected_message: str) -> None:
    assert_refused(expected_message, lambda: attack_named(name).scores(*answers_of(3, 4), None))


def test_a_dissimilarity_of_ones_own_ranks_as_ours() -> None:
    draw = np.random.default_rng(5)
    inside, outside = (Records(draw.normal(size=(n, 2, 3)), np.arange(n) % 2, 2) for n in (12, 9))
    for farthest in (True, False):
        for ours, yours in (
            (
                ranked_pairs(inside, outside, Dissimilarity.MANHATTAN, 7, farthest),
                ranked_pairs(inside, outside, "doors:l1", 7, farthest),
            ),
            (
                ranked_records(inside, Dissimilarity.MANHATTAN, 7, farthest),
                ranked_records(inside, "doors:l1", 7, farthest),
            ),
        ):
            assert ours == yours
    assert_refused(r"'doors:one' returned float64 of shape \(3,\)", ranked_records, inside, "doors:one", 1)


def test_a_loader_of_ones_own_is_a_data_set() -> None:
    custom_dataset, ours = (load_source(DataSpec(name)) for name in ("doors:records", "breast-cancer"))
    assert (custom_dataset.name, custom_dataset.description) == ("doors:records", ours.description)
    assert np.array_equal(custom_dataset.pool.features, ours.pool.features)
    named = r"returned a list: .* fl_audit\.data\.loaded_dataset\.LoadedDataset"
    assert_refused(named, load_source, DataSpec("doors:rows"))
    assert_refused("takes no label", load_source, DataSpec("doors:records", options=(("label", "y"),)))
    assert (DataSpec("doors:records").title, DataSpec("hf:owner/name").title) == ("records", "hf:owner/name")


def test_settings_are_what_the_annotations_of_a_loader_ask_for() -> None:
    option_values = (("classes", 2), ("path", "a.bin"), ("grey", True), ("drop", ("x", "y")))
    load_source(DataSpec("doors:sized", options=option_values))
    assert sys.modules["doors"].seen[-1] == (2, Path("a.bin"), True, ("x", "y"))


@pytest.mark.parametrize(
    ("option", "value", "accepted"),
    [
        ("classes", "2", "int"),
        ("classes", True, "int"),
        ("path", 3, r"pathlib\.Path \| None"),
        ("grey", 1, "bool"),
        ("drop", "x", r"tuple\[str, \.\.\.\]"),
    ],
)
def test_settings_of_another_type_are_refused_before_the_loader_has_them(
    option: str, value: str | int, accepted: str
) -> None:
    words = rf"^{option} is {value!r} in \[data\]: .*'doors:sized' is {accepted}$"
    assert_refused(
        words, lambda: load_source(DataSpec("doors:sized", options=tuple({"classes": 2, option: value}.items())))
    )
    assert not sys.modules["doors"].seen


def test_a_plan_with_ones_own_data_and_measure_is_that_with_ours() -> None:
    custom_plan, ours = (
        small_plan(data={"name": name}, audit={"dissimilarity": measure})
        for name, measure in (("doors:records", "doors:l1"), ("breast-cancer", "manhattan"))
    )
    assert custom_plan.federation.pair == ours.federation.pair
    assert custom_plan.guarantee == ours.guarantee


def test_a_section_of_ones_own_stands_in_the_appendix_and_takes_nothing_of_ours() -> None:
    assert not own_section("doors:OWN").on_page
    assert_refused(r"doors:TAKEN.* name or key verdict", own_section, "doors:TAKEN")
    assert_refused(r"is a type: .* fl_audit\.report\.report_elements\.Section", own_section, "doors:Own")


@pytest.mark.parametrize(
    ("audit", "expected_message"),
    [
        ({"kind": "membership", "attacks": ["doors:absent"], "trials": 24}, "attack 'doors:absent' .*be imported"),
        ({"sections": ["doors:TAKEN"]}, "doors:TAKEN.* name or key verdict"),
        ({"kind": "membership", "attacks": ["loss", "doors:loss"], "trials": 6}, "too few .*shadow models"),
        ({"dissimilarity": "nowhere:l1"}, "audit.dissimilarity is 'nowhere:l1': .*no module 'nowhere'"),
        ({"attacks": ["los"]}, "configuration audit.attacks is 'los': .*'loss', .* or 'package.module:name'"),
    ],
)
def test_what_cannot_be_had_is_refused_before_anything_is_trained(
    audit: dict[str, object], expected_message: str
) -> None:
    targets = {"targets": 20} if audit.get("kind") == "membership" else {}
    privacy = {"adjacency": "add-remove-record", "sensitivity": None}
    assert_refused(expected_message, small_plan, audit=audit | targets, privacy=privacy)
