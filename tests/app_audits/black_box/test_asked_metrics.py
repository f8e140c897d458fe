"""Numbers beside the model: what only clients of the trials report refutes nothing, what is asked for does."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import MetricRecord
from flwr.serverapp.strategy import FedAvg, Strategy
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords

from fl_audit.app_audits.black_box.asked_metrics import LookupTrial, find_asked_metrics
from fl_audit.app_audits.black_box.audited_system import AuditedSystem, LocalReply, clipped_sum
from fl_audit.app_audits.black_box.black_box_trial import BlackBoxTrial
from fl_audit.app_audits.black_box.scenario_texts import scenario_texts
from fl_audit.app_audits.black_box.scenarios import BY_NAME
from fl_audit.app_audits.black_box.system_audit import audit_system
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit, TrialBudget, numbers_of_trials
from fl_audit.app_audits.claim_audit.trial_results import findings, strategy_result
from fl_audit.array_types import Floats
from fl_audit.randomness import Purpose, generator
from fl_audit.verdict.verdict import Verdict
from tests.builders.strategies import NoisyMean

pytestmark = pytest.mark.usefixtures("small_working_directory")
CLAIM = StatedClaim("add-remove-client", noise_multiplier=1.0)
FEW = TrialBudget(
    pilot=40, stages=(120,), shares=(1.0,), fewest_tests=1, most_tests=2, deep=1, scout=40, passing_scenarios=2
)

Aggregate = Callable[[list[Any], str], MetricRecord]


def drop_all(_replies: list[Any], _weight: str) -> MetricRecord:
    return MetricRecord({})


def mean_of_accuracy(replies: list[Any], _weight: str) -> MetricRecord:
    return MetricRecord({"score": sum(float(reply["metrics"]["accuracy"]) for reply in replies) / len(replies)})


def mean_of_loss(replies: list[Any], _weight: str) -> MetricRecord:
    return MetricRecord({"loss": sum(float(reply["metrics"]["loss"]) for reply in replies) / len(replies)})


def total_of_everything(replies: list[Any], _weight: str) -> MetricRecord:
    """Sum every number that clients report, by names of its own; it looks up none by its name."""
    totals = dict[str, Any]()
    for reply in replies:
        for name, value in dict(reply["metrics"]).items():
            totals[f"total {name}"] = totals.get(f"total {name}", 0.0) + float(value)
    return MetricRecord(totals)


def total_of_same_names(replies: list[Any], _weight: str) -> MetricRecord:
    """Sum every number that clients report, by their names."""
    totals = Counter[str]()
    for reply in replies:
        totals.update(dict(reply["metrics"].items()))
    return MetricRecord(dict(totals))


def _audit(aggregate: Aggregate | None, *kinds: str, **settings: Any) -> ClaimAudit:
    def strategy() -> Strategy:
        return NoisyMean(aggregate)

    return audit_system(AuditedSystem(strategy, **settings), CLAIM, budget=FEW, include=kinds)


@pytest.mark.parametrize("aggregate", [None, total_of_everything])
def test_a_loss_that_only_clients_of_the_trials_report_leaves_the_claim_open(aggregate: Aggregate | None) -> None:
    """FedAvg's default averages whatever clients report; others pass it on by names of their own."""
    audit = _audit(aggregate, "metrics")
    assert audit.verdict is Verdict.INCONCLUSIVE
    (number,) = numbers_of_trials(audit.tests)
    assert number == ("metrics: loss" if aggregate is None else "metrics: total loss")
    test = next(test for test in audit.tests if test.is_of_trials_alone)
    assert test.right == test.trials
    shown = strategy_result("mine", audit, findings(audit, scenario_texts()))
    assert shown.headline.startswith(f"Inconclusive: {number} told")
    remedy = dict(shown.lines)["Numbers of clients"]
    assert re.search(r"train_metrics_aggr_fn .*empty MetricRecord.*metrics=\(\"loss\",\)", remedy)
    assert not any(finding["broken"] for finding in shown.numbers["findings"])


def test_the_remedies_that_the_message_offers_decide_it() -> None:
    assert _audit(drop_all, "metrics").verdict is Verdict.CONSISTENT
    assert _audit(None, "metrics", metrics=()).verdict is Verdict.CONSISTENT
    assert _audit(None, "metrics", metrics=("loss",)).verdict is Verdict.VIOLATED


def test_what_the_strategy_asks_for_is_tested_before_a_loss_that_tells_as_much() -> None:
    """FedAvg's default passes on both, and the strategy looks up one of them."""

    def means_with_training_loss(replies: list[Any], weight: str) -> MetricRecord:
        assert all(float(reply["metrics"]["train_loss"]) >= 0 for reply in replies)
        return aggregate_metricrecords(replies, weight)

    audit = _audit(means_with_training_loss, "metrics")
    assert audit.verdict is Verdict.VIOLATED
    assert {test.distinguisher.group for test in audit.tests if test.refutes_claim} == {"metrics: train_loss"}


def test_what_the_local_training_of_an_app_reports_of_its_records_is_of_the_app() -> None:
    def local(gradients: Floats, round: int, random: np.random.Generator) -> LocalReply:
        return replace(clipped_sum(1.0)(gradients, round, random), metrics={"records": float(len(gradients))})

    system = AuditedSystem(lambda: NoisyMean(total_of_same_names), local=local)
    claim = StatedClaim("add-remove-record", noise_multiplier=1.0)
    audit = audit_system(system, claim, budget=FEW, include=["removed"])
    assert audit.verdict is Verdict.VIOLATED
    assert not any(test.is_of_trials_alone for test in audit.tests)


@pytest.mark.parametrize("aggregate", [mean_of_accuracy, mean_of_loss])
def test_a_number_that_the_strategy_asks_for_and_releases_violates(aggregate: Aggregate) -> None:
    assert _audit(aggregate, "metrics").verdict is Verdict.VIOLATED


def test_what_only_the_trials_report_does_not_hide_what_violates() -> None:
    """The model has a twentieth of the claimed noise, beside a loss that is passed on."""
    claim = StatedClaim("add-remove-client", noise_multiplier=20.0)
    budget = TrialBudget(
        pilot=60, stages=(300,), shares=(1.0,), fewest_tests=2, most_tests=2, deep=1, until_broken=True
    )
    system = AuditedSystem(lambda: NoisyMean())
    audit = audit_system(system, claim, budget=budget, include=["metrics", "removed"])
    assert audit.verdict is Verdict.VIOLATED
    assert {test.distinguisher.kind for test in audit.tests if test.refutes_claim} == {"removed"}


class _Counting(NoisyMean):
    """Releases the sum of all numbers; whether it looks up the number of examples is a setting."""

    def __init__(self, weight: str | None) -> None:
        super().__init__(total_of_everything)
        self.weight = weight

    def validated(self, replies: list[Any]) -> None:
        if self.weight is not None:
            assert all(self.weight in reply.content["metrics"] for reply in replies)


@pytest.mark.parametrize(("weight", "verdict"), [(None, Verdict.INCONCLUSIVE), ("num-examples", Verdict.VIOLATED)])
def test_examples_that_nobody_asks_for_leave_the_claim_open(weight: str | None, verdict: Verdict) -> None:
    audit = audit_system(
        AuditedSystem(lambda: _Counting(weight)), CLAIM, budget=FEW, include=["more examples than true"]
    )
    assert audit.verdict is verdict


def test_clients_report_nothing_that_is_not_asked_for_where_another_thing_differs() -> None:
    """A sum of losses tells how many clients took part, if all report one."""
    for kind, names in (("metrics", {"total loss", "total num-examples"}), ("missing reply", {"total num-examples"})):
        system = AuditedSystem(lambda: NoisyMean(total_of_everything))
        trial = BlackBoxTrial(system, CLAIM, BY_NAME[kind], True, generator(0, Purpose.BLACK_BOX)).play()
        assert {name.removeprefix("metrics: ") for name in trial.numbers if name.startswith("metrics: ")} == names


def test_names_are_found_whether_the_strategy_looks_or_fails() -> None:
    def play(names: tuple[str, ...]) -> LookupTrial:
        if "num-examples" not in names:
            return LookupTrial(("num-examples",), "a reply lacks its weight")
        if "a" not in names:
            return LookupTrial(("num-examples",), "KeyError: 'a'")
        if "sorted" in names:
            return LookupTrial((), "TypeError: a number cannot be sorted")
        return LookupTrial(("num-examples", "a", "sorted"), None)

    assert find_asked_metrics("num-examples", play) == (("num-examples", "a"), ("sorted",))
    # One that says nothing of what it lacks gets the number of examples, which Flower's strategies need.
    silent = find_asked_metrics("w", lambda names: LookupTrial((), None if "w" in names else "division by zero"))
    assert silent.names == ("w",)
    assert find_asked_metrics("w", lambda _: LookupTrial((), None)).names == ()
    # A name that makes the strategy fail does not keep clients from reporting the number of examples.
    fails = find_asked_metrics(
        "w", lambda names: LookupTrial(("bad", "w"), "TypeError: no" if "bad" in names else None)
    )
    assert fails == (("w",), ("bad",))


def test_flowers_strategies_look_up_the_number_of_examples_alone() -> None:
    audit = audit_system(
        AuditedSystem(lambda: FedAvg(fraction_evaluate=0.0)), CLAIM, budget=FEW, include=["more examples than true"]
    )
    assert not numbers_of_trials(audit.tests)
