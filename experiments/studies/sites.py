"""Which site took part in a training, and which classes it holds, from what everybody is sent: FEMNIST's writers.

    python -m experiments.studies.sites [--data-dir DIR] [--worlds N]

Every writer is a client and is protected as a whole. The upper table asks who took part: in each world every writer
does by the toss of a coin, and attackers see final models alone (`loss`, `lira`, `rmia`), or, where something is
promised, the models of all rounds with all others' records at hand (`insider`). Each AUC has its interval over worlds,
beside the largest that the promise about clients allows. In the lower table exactly one writer takes part, and the
insider names the class that it has most of, by its beliefs in the writers: the share of worlds with its Clopper-Pearson
interval, beside chance and bound. The exit status is 1 where an interval lies above its bound.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import softmax

from experiments.cli.main import guarded
from experiments.runs.attacks import by_target
from experiments.runs.config import parse_config
from experiments.runs.engines import Engine
from experiments.runs.plan import AuditPlan, resolve
from experiments.runs.run import run_audit
from fl_audit.evidence.belief.advantage import clopper_pearson
from fl_audit.game.game import load_game
from fl_audit.report.finding import RunContents

EPSILONS = (None, 32.0, 8.0, 2.0)
"""What is promised about clients; None is no promise, and no noise."""
CONFIDENCE = 0.999
_TRAINING = {"strategy": "dp-fedavg", "rounds": 10, "local-epochs": 1, "local-batch": 20, "local-learning-rate": 0.1}


def plan_of(epsilon: float | None, audit: Mapping[str, Any], directory: str | None) -> AuditPlan:
    """Return the plan of a line.

    Parameters
    ----------
    epsilon, audit, directory
        The promise at delta .001, the game, and where femnist/ lies; None is FL_AUDIT_DATA.
    """
    promise = {"private": False} if epsilon is None else {"epsilon": epsilon, "delta": 1e-3, "clipping-norm": 1.0}
    data: dict[str, Any] = {"name": "femnist", "partition": "natural", "records": 2400, "test-records": 500}
    values = {
        "data": data if directory is None else data | {"data-dir": directory},
        "model": {"name": "logistic"},
        "training": _TRAINING,
        "privacy": promise | {"adjacency": "add-remove-client"},
        "audit": {"epsilon-star": False, "view": "model", "confidence": CONFIDENCE} | dict(audit),
        "run": {"worlds-per-batch": 50, "seed": 0},
    }
    return resolve(parse_config(values))


def _played(plan: AuditPlan) -> RunContents:
    with tempfile.TemporaryDirectory() as scratch:
        return run_audit(plan, Path(scratch) / "run", Engine.LOCAL, with_report=False)


def who_took_part(worlds: int, directory: str | None) -> tuple[Table, list[str]]:
    """Return the upper table, and what contradicts the promises in it.

    Parameters
    ----------
    worlds, directory
        How many trainings for each line, and where femnist/ lies.
    """
    table, problems = Table("epsilon", "attack", "AUC", "true positives at 1 % false ones", "allowed AUC"), list[str]()
    for epsilon in EPSILONS:
        audit = {"game": "membership", "worlds": worlds, "attacks": ["loss", "lira", "rmia"]}
        found = _played(plan_of(epsilon, audit, directory)).summary["attacks"]
        largest = found["largest_auc"]
        for name, one in found["by_name"].items():
            rates = [_interval(**one[key]) for key in ("auc", "tpr_at_fpr_001")]
            table.add_row(str(epsilon), name, *rates, "1" if largest is None else f"{largest:.3f}")
            if largest is not None and one["auc"]["low"] > largest:
                problems.append(f"{name} has more than the largest AUC at epsilon {epsilon}")
    return table, problems


def class_held(worlds: int, directory: str | None) -> tuple[Table, list[str]]:
    """Return the lower table, and what contradicts the promises in it.

    Parameters
    ----------
    worlds, directory
        As for `who_took_part`.
    """
    table, problems = Table("epsilon", "writer named", "its largest class named", "chance", "allowed"), list[str]()
    for epsilon in EPSILONS[1:]:
        plan = plan_of(epsilon, {"game": "reconstruction", "worlds": worlds}, directory)
        game, targets = load_game(plan.public), _played(plan).run.tables.targets
        assert targets is not None, "candidates have a table"
        belief, is_in = softmax(by_target(targets, "log_odds"), axis=1), by_target(targets, "is_in").argmax(axis=1)
        labels = game.training.labels.cpu().numpy()
        largest = np.array(
            [np.bincount(labels[game.shards[one]], minlength=game.classes).argmax() for one in game.targets]
        )
        by_class = belief @ np.eye(game.classes)[largest]
        hits = int(np.sum(by_class.argmax(axis=1) == largest[is_in]))
        chance = float(np.bincount(largest).max() / len(largest))
        assert plan.guarantee is not None, "an epsilon is promised"
        bound = plan.guarantee.reconstruction_bound(chance)
        assert bound is not None, "noise is scaled to everybody"
        low, high = clopper_pearson(hits, worlds, CONFIDENCE)
        named = float(np.mean(belief.argmax(axis=1) == is_in))
        table.add_row(
            str(epsilon), f"{named:.3f}", _interval(hits / worlds, low, high), f"{chance:.3f}", f"{bound:.3f}"
        )
        if low > bound:
            problems.append(f"the largest class is named more often than is allowed at epsilon {epsilon}")
    return table, problems


def _interval(value: float, low: float, high: float) -> str:
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study, and return its exit status.

    Parameters
    ----------
    arguments
        Of the command line; None takes those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="where femnist/ lies; left out, FL_AUDIT_DATA")
    parser.add_argument("--worlds", type=int, default=200, help="trainings for each line (%(default)s)")
    asked, console, problems = parser.parse_args(arguments), Console(width=140), list[str]()
    for part in (who_took_part, class_held):
        table, more = part(asked.worlds, asked.data_dir)
        console.print(table)
        problems += more
    console.print("\n".join(problems) or f"as it should be, at {CONFIDENCE:.1%} confidence")
    return 1 if problems else 0


if __name__ == "__main__":
    guarded(lambda: sys.exit(main()))
