"""The corpus: every case plays, its truth stands on which side of the claim it should, and auditors are scored."""

import math
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant

from fl_audit.generator_states import GeneratorStates
from tests.builders.refusals import assert_refused
from tests.validation.corpus import scores, truth
from tests.validation.corpus.auditors import Auditor, Finding, _installed, baseline, black_box, conformance
from tests.validation.corpus.case import VERSION, Case, Store, played
from tests.validation.corpus.catalogue import case, names
from tests.validation.corpus.scoring import by_case, merged, read, score, summary, write

_ALL = names()
_GROSS, _HONEST = "made-up/noise-missing-on-the-smallest-tensor", "made-up/honest"
_TABLES = Path(__file__).with_name("corpus") / "scores.md"


def test_names_are_unique_and_begin_with_their_family() -> None:
    assert len(set(_ALL)) == len(_ALL) > 150
    assert {name.split("/")[0] for name in _ALL} == {"federated", "hand-written", "made-up", "training"}
    assert names("made-up/hon") == [_HONEST]


@pytest.mark.few_cases(10)
@pytest.mark.parametrize("name", _ALL)
def test_a_case_plays_and_its_truth_fits_its_claim(name: str) -> None:
    audit_case = case(name)
    assert audit_case.name == name
    released, present = played(audit_case, 2, np.random.default_rng(1))
    assert released.shape == (2, audit_case.layout.size)
    assert np.isfinite(released).all()
    assert present.tolist() == [True, False]
    assert (
        audit_case.claim.epsilon,
        audit_case.claim.delta,
    ) in audit_case.claim.limits or audit_case.claim.mu is not None
    assert audit_case.difference is None or audit_case.difference.shape == (audit_case.layout.size,)
    if audit_case.is_honest:
        assert audit_case.twin == ""
        assert audit_case.true_epsilon is None or audit_case.true_epsilon <= audit_case.claim.epsilon * (1 + 1e-9)
    else:
        assert audit_case.twin in _ALL
        # To make a case of a training takes trainings.
        assert audit_case.twin == "training/honest-plain" or case(audit_case.twin).is_honest
        assert audit_case.true_epsilon is None or audit_case.true_epsilon > audit_case.claim.epsilon


def test_a_trial_follows_from_its_generator_and_leaves_the_shared_ones_alone() -> None:
    audit_case = case("federated/wrong-denominator")
    before = GeneratorStates.current()
    first, second = (audit_case.play(np.random.default_rng(3), True) for _ in range(2))
    assert np.array_equal(first, second)
    assert GeneratorStates.current().is_same(before)


@pytest.mark.long
def test_truths_are_those_of_dp_accounting() -> None:
    one_release = PLDAccountant().compose(GaussianDpEvent(0.5)).get_epsilon(0.01)
    assert truth.gaussian(2.0, 0.01) == pytest.approx(one_release, abs=2e-3)
    sampled = SelfComposedDpEvent(PoissonSampledDpEvent(0.2, GaussianDpEvent(0.5)), 5)
    assert truth.sampled(0.5, 5, 0.2, 1e-3) == pytest.approx(
        PLDAccountant().compose(sampled).get_epsilon(1e-3), rel=1e-3
    )


def test_truths_are_those_of_closed_forms() -> None:
    assert truth.mixed(1.0, 3.0, 1.0, 0.01) == pytest.approx(truth.gaussian(3.0, 0.01), abs=1e-3)
    # Of one number with Laplace noise, delta is 1 - exp((epsilon - shift / scale) / 2).
    assert truth.laplace(1.0, 1.0, 1, 0.01) == pytest.approx(1 + 2 * math.log(0.99), abs=1e-3)
    assert truth.correlated(1.5, np.eye(3), np.ones(3)) == pytest.approx(1.5)
    with pytest.raises(ValueError, match="overlap too much"):
        truth.outside(0.01, 1e-6, 100)


def test_the_made_up_honest_case_is_the_gaussian_release_that_it_claims() -> None:
    audit_case = case(_HONEST)
    assert audit_case.difference is not None
    released, present = played(audit_case, 800, np.random.default_rng(4))
    along = released @ audit_case.difference
    spread = math.sqrt((np.var(along[present]) + np.var(along[~present])) / 2)
    # The standard error of the shift is .07.
    assert (np.mean(along[present]) - np.mean(along[~present])) / spread == pytest.approx(1.0, abs=0.3)


@pytest.mark.parametrize("auditor", [baseline, pytest.param(black_box, marks=pytest.mark.long)])
def test_an_auditor_finds_the_grossest_breach_and_not_its_twin(auditor: Auditor) -> None:
    finding, cleared = (auditor(case(name), 400, np.random.default_rng(5)) for name in (_GROSS, _HONEST))
    assert finding is not None
    assert cleared is not None
    assert finding.is_found
    assert not cleared.is_found
    assert cleared.epsilon < case(_HONEST).claim.epsilon


@pytest.mark.long
def test_a_training_is_looked_into_and_nothing_else_is() -> None:
    generator = np.random.default_rng(6)
    pair = ("training/too-little-noise", "training/honest-plain")
    broken, honest = (conformance(case(name), 0, generator) for name in pair)
    assert broken is not None
    assert broken.is_found
    assert honest is not None
    assert not honest.is_found
    assert conformance(case(_HONEST), 0, generator) is None


def test_all_auditors_see_the_same_trials() -> None:
    store = Store(case(_HONEST), np.random.default_rng(7))
    first, second = (played(store.case(), 6, np.random.default_rng(number))[0] for number in range(2))
    assert np.array_equal(first, second)
    assert len({values.tobytes() for values in first}) == 6


def test_held_out_scores_show_a_leak_that_no_difference_of_means_has_in_advance() -> None:
    came = scores.scores_of(case("federated/bare-bias"), 80, np.random.default_rng(8))
    assert came.present.min() > came.absent.max()
    assert came.present.size == came.absent.size == 20


def test_a_package_that_is_not_installed_is_named_in_one_line() -> None:
    assert_refused(r"^nobody-has-it is not installed", _installed, "no_such_module_at_all", "nobody-has-it")


def _accuser(audit_case: Case, _trials: int, _generator: np.random.Generator) -> Finding:
    return Finding(True, 9.0, audit_case.claim.delta)


def test_rows_are_kept_counted_and_replaced(tmp_path: Path) -> None:
    rows = [row for name in (_GROSS, _HONEST) for row in score(case(name), {"accuser": _accuser}, 100)]
    write(rows, tmp_path / "tables.md")
    assert read(tmp_path / "tables.csv") == rows
    assert summary(rows)[-1] == "| made-up | 100 | accuser | 1 of 1 | 0 | 0 | 1 of 1 |"
    assert merged(rows, rows) == rows
    assert len(by_case(rows)) == 4


def test_the_published_tables_are_of_this_version_and_name_every_case() -> None:
    rows = read(_TABLES.with_suffix(".csv"))
    assert {row.case for row in rows} == set(_ALL)
    assert {row.version.split(".")[0] for row in rows} == {VERSION.split(".")[0]}
    text = _TABLES.read_text(encoding="utf-8")
    assert all(line in text for line in (*summary(rows), *by_case(rows)))
