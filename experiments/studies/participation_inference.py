"""Study of inference about FEMNIST's clients: who took part, and which classes they hold, from public messages.

    python -m fl_audit.experiments.studies.participation_inference [--data-dir DIR] [--trials N]

Every writer is a client, and the claim protects whole clients.

Participation: in each trial every writer takes part with probability 1/2. The attacks `loss`, `lira` and `rmia` see
only final models, and distinguish writers that took part from writers that did not. The attacker `insider` sees the
models of all rounds, knows the records of all writers except one, and decides about that writer. Each AUC is printed
with the largest AUC that the guarantee allows.

Classes: exactly one writer takes part. The insider, who has the records of all writers, identifies this writer. It also
infers for each digit whether its share in the writer's records is above the median over writers. Both success rates are
printed with the success rate of guessing and with the bound from the guarantee.

Intervals over trials have confidence 99.9 %. The exit status is 1 if an interval lies above its bound; for the 18
intervals with a bound this happens by chance in at most 1 % of all executions.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Console
from scipy.special import softmax

from fl_audit.array_types import Flags
from fl_audit.audits.membership.findings_attacks import AllAttacksFinding
from fl_audit.audits.reconstruction.sections_reconstruction import CandidateRanksFinding, TopGuessRate
from fl_audit.experiments.studies.study_commands import exit_with, parser_of, table_of
from fl_audit.experiments.studies.study_runs import results_of_run
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.runs.attacks import by_target
from fl_audit.runs.config import parse_config
from fl_audit.runs.expected_errors import guarded
from fl_audit.runs.planning import plan_run
from fl_audit.runs.progress import progress_bar
from fl_audit.statistics.advantage import mean_interval

EPSILONS = (None, 32.0, 8.0, 2.0)
"""Claimed epsilons of clients at delta .001; None is no guarantee, and no noise."""
FEMNIST: dict[str, Any] = {"name": "femnist", "partition": "natural", "records": 2400, "test-records": 500}
_CONFIDENCE = 0.999


def plan_of(data: Mapping[str, Any], epsilon: float | None, audit: Mapping[str, Any]) -> RunPlan:
    """Return the plan of a table row."""
    guarantee = {"private": False} if epsilon is None else {"epsilon": epsilon, "delta": 1e-3, "clipping-norm": 1.0}
    local = {"local-epochs": 1, "local-batch": 20, "local-learning-rate": 0.1}
    values = {
        "data": data,
        "model": {"name": "logistic"},
        "training": {"strategy": "dp-fedavg", "rounds": 10} | local,
        "privacy": guarantee | {"adjacency": "add-remove-client"},
        "audit": {"epsilon-star": False, "view": "model", "confidence": _CONFIDENCE} | dict(audit),
        "run": {"trials-per-batch": 50, "seed": 0},
    }
    return plan_run(parse_config(values))


def _who_took_part(data: Mapping[str, Any], epsilon: float | None, trials: int) -> AllAttacksFinding:
    """Carry out a membership audit, and return how well each attack infers which clients took part."""
    audit = {"kind": "membership", "trials": trials, "attacks": ["loss", "lira", "rmia"]}
    finding = results_of_run(plan_of(data, epsilon, audit), progress=progress_bar).find(AllAttacksFinding)
    assert finding is not None, "the membership audit has its numbers"
    return finding


def _client_and_class_guess_rates(
    data: Mapping[str, Any], epsilon: float, trials: int
) -> tuple[TopGuessRate, TopGuessRate]:
    """Return how often the adversary guesses right: the client that took part, and the classes that this client holds.

    A client holds a class if `is_share_above_median` says so.
    """
    plan = plan_of(data, epsilon, {"kind": "reconstruction", "trials": trials})
    contents = results_of_run(plan, progress=progress_bar)
    guarantee = plan.guarantee
    numbers = contents.find(CandidateRanksFinding)
    targets = contents.run.tables.targets
    assert guarantee is not None, "an epsilon is claimed"
    assert numbers is not None, "the reconstruction audit has its numbers"
    assert targets is not None, "candidates have a table"
    has_many = is_share_above_median(load_federation(plan.federation))
    belief = softmax(by_target(targets, "log_odds"), axis=1)
    is_in = by_target(targets, "is_in").argmax(axis=1)
    right = mean_interval(((belief @ has_many > 0.5) == has_many[is_in]).mean(axis=1), _CONFIDENCE)
    chances = np.maximum(has_many.mean(axis=0), 1 - has_many.mean(axis=0))
    bound = float(np.mean([guarantee.reconstruction_bound(float(chance)) or 1.0 for chance in chances]))
    return numbers.first, TopGuessRate(1, right.value, right.low, right.high, float(chances.mean()), bound)


def is_share_above_median(federation: LoadedFederation) -> Flags:
    """Return, for each client and class, whether the client has more of the class than the median client.

    What is compared is the fraction of a client's records that are of the class. Shape (clients, classes).
    """
    labels = federation.training.labels.cpu().numpy()
    counts = [
        np.bincount(labels[federation.shards[target]], minlength=federation.classes) for target in federation.targets
    ]
    shares = np.stack([count / count.sum() for count in counts])
    is_many: Flags = shares > np.median(shares, axis=0)
    return is_many


def _interval(value: float, low: float, high: float) -> str:
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def main() -> None:
    """Print both tables; exit with status 1 if an interval lies above its bound, else with status 0."""
    parser = parser_of(__doc__)
    parser.add_argument("--data-dir", help="where femnist/ lies; left out, FL_AUDIT_DATA")
    parser.add_argument("--trials", type=int, default=400, help="trainings for each line (%(default)s)")
    options = parser.parse_args()
    console = Console(width=140)
    problems = list[str]()
    data = FEMNIST if options.data_dir is None else FEMNIST | {"data-dir": options.data_dir}
    attacks = ("epsilon", "attack", "AUC", "allowed")
    questions = ("epsilon", "question", "right", "chance", "allowed")
    table = table_of(attacks, words=attacks)
    for epsilon in EPSILONS:
        finding = _who_took_part(data, epsilon, options.trials)
        for name, attack_results in finding.achieved.items():
            auc = attack_results.rates.auc
            largest = finding.largest_auc_of(name)
            allowed = "" if largest is None else f"{largest:.3f}"
            table.add_row(str(epsilon), name, _interval(auc.value, auc.low, auc.high), allowed)
            if largest is not None and auc.low > largest:
                problems.append(f"{name} has more than the largest AUC at epsilon {epsilon}")
    console.print(table)
    table = table_of(questions, words=questions)
    for epsilon in filter(None, EPSILONS):
        answers = _client_and_class_guess_rates(data, epsilon, options.trials)
        for question, answer in zip(("who", "which classes"), answers, strict=True):
            right = _interval(answer.share, answer.low, answer.high)
            table.add_row(str(epsilon), question, right, f"{answer.chance:.3f}", f"{answer.bound:.3f}")
            if answer.low > answer.bound:
                problems.append(f"{question} is answered more often than is allowed at epsilon {epsilon}")
    console.print(table)
    exit_with(problems, "as it should be")


if __name__ == "__main__":
    guarded(main)
