"""A new rule of participation is one file and one line; cyclic Poisson sampling is such a rule, held to its theory."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from scipy.stats import norm
from small_audits import MakePlan
from torch import Tensor
from toy_participation.two_halves import TwoHalves

from fl_audit.array_types import Floats
from fl_audit.errors import InputError
from fl_audit.federation.federation import Federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.mechanisms.participations.cyclic_poisson import CyclicPoisson
from fl_audit.mechanisms.participations.participation import restricted_to_eligible
from fl_audit.mechanisms.participations.registry import PARTICIPATIONS, REFUSED
from fl_audit.mechanisms.threat_model import CLIENT_ALONE
from fl_audit.privacy.events import SampledGaussianRelease
from fl_audit.runs.config.settings_reference import settings
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.run import ClientAppAndStrategy, run_audit
from fl_audit.strategies.secret_draws import SeededChallenger
from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy
from fl_audit.trial_batches import TrialBatch

_CLIENTS = {
    "strategy": "dp-fedavg", "local-learning-rate": 0.1, "local-batch": 10, "client-sampling-rate": 0.5, "cycle": 2
}  # fmt: skip
_HALVES: dict[str, dict[str, object]] = {
    "data": {"clients": 6},
    "training": {"strategy": "dp-fedavg", "local-learning-rate": 0.1, "local-batch": 10, "sampling": "two-halves"},
    "privacy": {"adjacency": "add-remove-client"},
}


def _plan(small_plan: MakePlan, **sections: dict[str, object]) -> RunPlan:
    stated = {"belief": None, "sensitivity": None, "noise-multiplier": 1.5, "accountant": None}
    usual: dict[str, dict[str, object]] = {
        "privacy": {"adjacency": "add-remove-record"},
        "audit": {"trials": 12, "epsilon-star": False},
        "run": {"trials-per-batch": 12},
    }
    merged = {name: usual.get(name, {}) | sections.get(name, {}) for name in usual | sections}
    return small_plan(**(merged | {"privacy": stated | merged["privacy"]}))


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the line to the registry, and take it away after the test."""
    monkeypatch.setitem(PARTICIPATIONS, "two-halves", TwoHalves)


@pytest.mark.usefixtures("registered")
def test_a_new_rule_is_configured_played_judged_and_reported(small_plan: MakePlan, tmp_path: Path) -> None:
    plan = _plan(small_plan, **_HALVES)
    pair = plan.federation.pair.index
    assert plan.federation.mechanism.participation == TwoHalves(6, pair)
    assert Federation.from_json(plan.federation.to_json()) == plan.federation
    run_audit(plan, tmp_path / "run", Engine.LOCAL)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    # Two rounds of four: the guarantee is that of two, and the insider weighs no more.
    expected = 2 * norm.cdf(math.sqrt(2) / 1.5 / 2) - 1
    assert summary["guarantee"]["advantage_bound_exact"] == pytest.approx(expected, rel=1e-9)
    assert summary["verdict"] in ("consistent", "inconclusive")
    assert re.search("halves [^.<]*take turns", (tmp_path / "run" / "report.html").read_text())
    (sampling,) = settings("training.sampling")
    assert sampling.choices == tuple(PARTICIPATIONS)
    with pytest.raises(InputError, match=r"sampling is 'two-halves' .*'dp-fedsgd', .*records"):
        _plan(small_plan, training={"sampling": "two-halves"})


@pytest.mark.parametrize("name", REFUSED)
def test_a_rule_of_other_libraries_is_refused_by_name_with_the_reason(name: str, small_plan: MakePlan) -> None:
    with pytest.raises(InputError, match=f"'{name}': .*; .*cyclic-poisson, everybody") as caught:
        _plan(small_plan, training={"sampling": name})
    assert "\n" not in str(caught.value)


def test_groups_part_the_units_and_no_group_follows_from_the_other_units() -> None:
    rule = CyclicPoisson(0.3, 4, 1000)
    groups = [rule.eligible_units(7, number) for number in range(1, 5)]
    assert sorted(np.concatenate(groups)) == list(range(1000))
    assert np.array_equal(rule.eligible_units(7, 5), groups[0])
    # Independent groups of about 250: jax_privacy's `PartitionType.INDEPENDENT`, which add and remove need.
    assert all(150 < len(group) < 350 for group in groups)
    first = rule.with_first(13)
    assert 13 in first.eligible_units(7, 1)
    others = np.delete(np.arange(1000), 13)
    assert np.array_equal(np.setdiff1d(first.eligible_units(7, 1), [13]), np.intersect1d(groups[0], others))


def test_only_units_whose_turn_it_is_are_drawn_at_the_rate_of_their_turn() -> None:
    rule, challenger = CyclicPoisson(0.3, 4, 400), SeededChallenger(3)
    turn = rule.eligible_units(7, 2)
    drawn = challenger.participation(range(200), 2, 0, 400, rule.rate)
    kept = restricted_to_eligible(drawn, turn, np.arange(400))
    assert not np.delete(kept, turn, axis=1).any()
    assert np.array_equal(kept[:, turn], drawn[:, turn])
    share, spread = kept[:, turn].mean(), math.sqrt(0.3 * 0.7 / (200 * len(turn)))
    assert share == pytest.approx(0.3, abs=5 * spread)


@pytest.mark.parametrize(("rounds", "turns"), [(9, 3), (10, 4), (2, 1)])
def test_a_guarantee_is_that_of_poisson_sampling_over_the_turns_of_one_group(
    rounds: int, turns: int, small_plan: MakePlan
) -> None:
    training = {"rounds": rounds, "sampling-rate": 0.3, "cycle": 3}
    plan = _plan(small_plan, training=training, privacy={"accountant": "pld"})
    (event,) = plan.federation.mechanism.events(rounds, CLIENT_ALONE)
    assert event == SampledGaussianRelease(1.5, 0.3, turns)
    # As `amplified_bandmf_event` of jax_privacy has it for bands of one round.
    theirs = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    theirs.compose(SelfComposedDpEvent(PoissonSampledDpEvent(0.3, GaussianDpEvent(1.5)), turns))
    assert plan.guarantee is not None
    assert plan.guarantee.epsilon == pytest.approx(theirs.get_epsilon(0.01), rel=2e-3)
    # A mean batch is that of one group, and so is the denominator.
    assert plan.federation.mechanism.denominator == pytest.approx(60 * 0.3 / 3)


def test_an_expected_batch_is_that_of_a_group(small_plan: MakePlan) -> None:
    plan = _plan(small_plan, training={"rounds": None, "epochs": 2, "expected-batch": 5, "cycle": 3})
    assert plan.federation.mechanism.sampling_rate == pytest.approx(0.25)
    assert (plan.federation.rounds, plan.federation.mechanism.denominator) == (24, 5.0)
    with pytest.raises(InputError, match=r"expected-batch is 21 of 60 records, .* 3 .* 1 to 20"):
        _plan(small_plan, training={"expected-batch": 21, "cycle": 3})


@pytest.mark.parametrize(
    ("training", "privacy", "said"),
    [
        ({"cycle": 3}, {}, "rate of 1, .*everybody of a group"),
        ({"sampling": "cyclic-poisson", "sampling-rate": 0.5}, {}, "cycle .*left out: .*number of"),
        ({"sampling": "poisson", "sampling-rate": 0.5, "cycle": 3}, {}, "cycle = 3 .*sampling = cyclic-poisson"),
        ({"sampling-rate": 0.5, "cycle": 61}, {}, "cycle is 61 of 60 units: accepted are 2 to 60"),
        ({"sampling-rate": 0.5, "cycle": 3}, {"noise": "banded"}, "correlated over rounds"),
        ({"sampling-rate": 0.5, "cycle": 3}, {"noise": "distributed"}, "'distributed'.*: .*everybody takes part"),
        ({"sampling": "everybody", "sampling-rate": 0.5}, {}, "'everybody' .*rate of 0.5"),
    ],
)
def test_what_does_not_go_together_is_refused(
    training: dict[str, object], privacy: dict[str, object], said: str, small_plan: MakePlan
) -> None:
    with pytest.raises(InputError, match=said) as caught:
        _plan(small_plan, training=training, privacy={"adjacency": "add-remove-record"} | privacy)
    assert "\n" not in str(caught.value)


_ORIGINAL = SeededChallenger.participation


class _Doubled(SeededChallenger):
    """A challenger that draws units twice as often as it claims."""

    def participation(self, trials, server_round, client, records, sampling_rate):  # type: ignore[no-untyped-def]
        return _ORIGINAL(self, trials, server_round, client, records, 2 * sampling_rate)


@pytest.mark.long
def test_the_samples_of_a_group_are_opened_and_a_wrong_rate_is_found(
    small_plan: MakePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = _plan(small_plan, training={"rounds": 9, "sampling-rate": 0.3, "cycle": 3}, audit={"trials": 60})
    honest = run_audit(plan, tmp_path / "honest", Engine.LOCAL, with_report=False)
    assert honest.summary["verdict"] in ("consistent", "inconclusive")
    opened = honest.run.tables.opened
    assert opened is not None
    # Every third round is the turn of the target's group, and its sizes are those of a Poisson sample.
    assert opened.groupby("round")["size"].count().tolist() == [60, 0, 0] * 3
    monkeypatch.setattr(SeededChallenger, "participation", _Doubled.participation)
    doubled = run_audit(plan, tmp_path / "doubled", Engine.LOCAL, with_report=False)
    assert doubled.summary["verdict"] == "violated"


@pytest.mark.long
@pytest.mark.parametrize(
    "sections",
    [
        {"audit": {"participation": "seen", "trials": 12}},
        {"privacy": {"adjacency": "replace-record", "accountant": "pld"}},
        {"audit": {"kind": "membership", "targets": 60, "trials": 24, "epsilon-star": None}},
        {"audit": {"kind": "reconstruction", "candidates": 10, "trials": 20}},
        {"audit": {"kind": "canaries", "canaries": 4, "trials": 1}, "run": {"trials-per-batch": None}},
        {"training": _CLIENTS, "privacy": {"adjacency": "add-remove-client"}, "data": {"clients": 8}},
    ],
    ids=["seen", "replaced", "membership", "reconstruction", "canaries", "clients"],
)
def test_every_audit_plays_with_groups_that_take_turns(
    sections: dict[str, dict[str, object]], small_plan: MakePlan, tmp_path: Path
) -> None:
    of_records = {"rounds": 6, "sampling-rate": 0.3, "cycle": 3}
    plan = _plan(small_plan, **({"training": of_records} | sections))
    assert isinstance(plan.federation.mechanism.participation, CyclicPoisson)
    assert run_audit(plan, tmp_path / "run", Engine.LOCAL, with_report=False).summary["verdict"] == "inconclusive"


class _HalfOfTheNoise(TrialBatchStrategy):
    """A server that adds half of the noise that it claims."""

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
        return super().noise(batch, server_round, total, 0.5 * sigma)


@pytest.mark.long
def test_half_of_the_noise_is_found_where_groups_take_turns(small_plan: MakePlan, tmp_path: Path) -> None:
    plan = _plan(small_plan, training={"rounds": 6, "sampling-rate": 0.3, "cycle": 3}, audit={"trials": 30})
    halved = ClientAppAndStrategy(strategy=_HalfOfTheNoise)
    found = run_audit(plan, tmp_path / "run", Engine.LOCAL, parties=halved, with_report=False)
    assert found.summary["verdict"] == "violated"
