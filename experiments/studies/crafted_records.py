"""What a crafted record shows that the most dissimilar record of the data does not.

    python -m experiments.studies.crafted_records [--quick]

Noise scaled to the global sensitivity is made for the worst record there could be. The insider learns as much as the
promise allows only where the record that makes the difference uses all of that sensitivity, in every round: the upper
table sets the local sensitivity over the global one, and mu = sqrt(sum of (sensitivity / sigma)^2) over its bound. The
lower table asks an insider who sees only averages of privately trained models (`dp-sgd-clients`), whose score is no
likelihood ratio: the area under the curve of its scores, with its interval.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from experiments.cli.main import guarded
from experiments.runs.config import parse_config
from experiments.runs.engines import Engine
from experiments.runs.plan import resolve
from experiments.runs.progress import progress_bar
from experiments.runs.run import run_audit
from fl_audit.report.finding import RunContents

NEIGHBOURS = ("most-dissimilar", "random", "crafted")
_NORM, _PRIVATE_NORM = 6.0, 10.0
"""Longer than most gradients of digits: noise made for it hides an ordinary record better than it has to."""


@dataclass(frozen=True)
class CraftedLine:
    """One line of a table."""

    # `adjacency`, `neighbour`: what was played.
    adjacency: str
    neighbour: str
    contents: RunContents  # what came out

    @property
    def shares(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Local over global sensitivity, (worlds, rounds)."""
        run = self.contents.run
        return run.by_world("local_sensitivity") / run.facts.global_sensitivity


def play(adjacency: str, neighbour: str, worlds: int, trains_privately: bool = False) -> CraftedLine:
    """Play the worlds of a line.

    Parameters
    ----------
    adjacency
        Neighbouring relation, as in a configuration.
    neighbour
        Which record differs, as in a configuration.
    worlds
        How many.
    trains_privately
        Whether clients train privately by themselves, and the server averages.
    """
    training: dict[str, Any] = {"rounds": 20, "learning-rate": 2.0}
    privacy: dict[str, Any] = {"noise-multiplier": 4.0, "delta": 0.001, "clipping-norm": _NORM, "adjacency": adjacency,
                               "accountant": "gdp"}  # fmt: skip
    if trains_privately:
        training = {"strategy": "dp-sgd-clients", "rounds": 4, "local-learning-rate": 0.05, "local-batch": 10}
        privacy |= {"noise-multiplier": 0.5, "clipping-norm": _PRIVATE_NORM, "accountant": "rdp"}
    values: dict[str, dict[str, Any]] = {
        "data": {"name": "digits", "records": 60 if trains_privately else 200, "clients": 3},
        "training": training,
        "privacy": privacy,
        "audit": {"worlds": worlds, "neighbour": neighbour, "epsilon-star": False, "membership": False,
                  "evaluate-every": 20},
        "run": {"seed": 1, "keep-releases": 0, "keep-final-models": False},
    }  # fmt: skip
    plan = resolve(parse_config(values))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "run"
        return CraftedLine(
            adjacency, neighbour, run_audit(plan, path, Engine.LOCAL, progress=progress_bar, with_report=False)
        )


def sensitivities_table(lines: Sequence[CraftedLine]) -> Table:
    """Return the table of insiders with the exact likelihood ratio."""
    table = Table(title="Noise for the global sensitivity: how much of it a record uses (digits, logistic regression)")
    for name in ("adjacency", "record x", "first round", "all rounds", "mu / its bound", "insider's advantage"):
        table.add_column(name, justify="left" if name in ("adjacency", "record x") else "right")
    for line in lines:
        run, pair = line.contents.run, line.contents.summary["pair"]["advantage"]
        mu = float(np.linalg.norm(run.signal, axis=1).mean()) / run.facts.mu
        found = f"{pair['value']:.3f} ({pair['low']:.3f} to {pair['high']:.3f})"
        shares = line.shares
        table.add_row(
            line.adjacency, line.neighbour, f"{shares[:, 0].mean():.3f}", f"{shares.mean():.3f}", f"{mu:.3f}", found
        )
    return table


def scores_table(lines: Sequence[CraftedLine]) -> Table:
    """Return the table of insiders who have scores and no likelihood ratio."""
    table = Table(title="Averages of privately trained models: what the insider's scores tell (digits)")
    for name in ("record x", "clipped gradient / C", "AUC", "its interval"):
        table.add_column(name, justify="left" if name == "record x" else "right")
    for line in lines:
        scores, crafted = line.contents.summary["scores"], line.contents.summary["crafted"]
        length = "" if crafted is None else f"{crafted['clipped_gradient_norm']:.3f}"
        interval = f"{scores['low']:.3f} to {scores['high']:.3f}"
        table.add_row(line.neighbour, length, f"{scores['area']:.3f}", interval)
    return table


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few worlds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    worlds, private_worlds = (40, 40) if options.quick else (400, 300)
    played = [("add-remove-record", one) for one in NEIGHBOURS]
    played += [("replace-record", one) for one in (*NEIGHBOURS, "crafted-opposite")]
    console = Console(width=120)
    console.print(sensitivities_table([play(adjacency, one, worlds) for adjacency, one in played]))
    console.print(scores_table([play("add-remove-record", one, private_worlds, True) for one in NEIGHBOURS]))


if __name__ == "__main__":
    guarded(main)
