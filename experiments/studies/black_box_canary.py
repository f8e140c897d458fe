"""How much of epsilon an observer of the final model alone can prove: initial weights, and one unusual record.

    python -m experiments.studies.black_box_canary [--quick] [--data-dir DIR]

DP-SGD on 1,000 records of MNIST at epsilon 10, delta 1e-5, from weights that are drawn for every world or pretrained in
public; the record in which D and D' differ is ordinary, blank or crafted. All worlds of a line train together. What is
scored is the loss of that record on the final model, and nothing else; the bounds ask how well it tells the worlds
that had the record from those that had not.

Beside it stands what Annamalai & De Cristofaro 2024 report of a convolutional network on as many records: 7.21 of 10,
from worst-case initial weights. Settings differ: the network and the number of steps are smaller here (the promise is
the same, for the noise follows it), and so may be the number of models. Their number, as far as is known here, takes a
Gaussian trade-off for granted, as `gdp` does; the other two bounds assume nothing, and with so many worlds no attack
whatever could lift them above the ceiling in the table.
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
from torch import Tensor, nn

from experiments.cli.main import guarded
from experiments.runs.config import RunConfig, parse_config
from experiments.runs.engines import Engine
from experiments.runs.pairs import looked_at
from experiments.runs.plan import AuditPlan, resolve
from experiments.runs.progress import progress_bar
from experiments.runs.run import run_audit
from fl_audit.adjacency import NeighbourPair
from fl_audit.data.crafted import told_record
from fl_audit.data.files import data_directory
from fl_audit.evidence.bounds.area import area_under_curve
from fl_audit.evidence.bounds.lower_bounds import LowerBound, epsilon_lower_bound
from fl_audit.evidence.bounds.methods import BoundMethod
from fl_audit.game.game import Game, load_game
from fl_audit.game.initial_weights import InitialWeights, starting_models
from fl_audit.learning.record_gradients import gradient_norms

EPSILON, DELTA, CONFIDENCE = 10.0, 1e-5, 0.95
PUBLISHED = 7.21
CANARIES = ("ordinary", "blank", "crafted")
METHODS = (BoundMethod.CLOPPER_PEARSON, BoundMethod.ORDER_STATISTIC, BoundMethod.GDP)
CNN = "experiments.studies.black_box_canary:small_cnn"
_MODEL_SEED = 0


def small_cnn(classes: int) -> nn.Module:
    """Two convolutions of 8 and 16 channels with strides, and a dense layer: 2,914 parameters on MNIST."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 6, stride=3), nn.Tanh(), nn.Conv2d(8, 16, 3, stride=2), nn.Tanh(), nn.Flatten(),
        nn.Linear(144, classes),
    )  # fmt: skip


@dataclass(frozen=True)
class BlackBoxSetting:
    """What is trained.

    Parameters
    ----------
    model
        Name of the model.
    data
        Name of the data set.
    records
        Number of records of D.
    rounds
        Number of rounds, each on all of D.
    worlds
        Number of worlds.
    learning_rate
        Learning rate of the server, on the mean clipped gradient.
    """

    model: str
    rounds: int
    worlds: int
    learning_rate: float
    data: str = "mnist"
    records: int = 1000


FULL = (BlackBoxSetting("logistic", 10, 1000, 2.0), BlackBoxSetting(CNN, 5, 400, 4.0))
QUICK = (BlackBoxSetting("logistic", 10, 120, 2.0),)


@dataclass(frozen=True)
class BlackBoxLine:
    """One line of the table."""

    # `setting`, `start`, `canary`: what was played.
    setting: BlackBoxSetting
    start: InitialWeights
    canary: str
    # Mean norm of the gradients of ordinary records at the initial weights, over the clipping norm, before clipping.
    ordinary_norm: float
    length: float  # norm of the clipped gradient of the canary there, over the clipping norm
    accuracy: float  # mean test accuracy of the final models
    area: float  # area under the curve of the losses of the canary
    bounds: tuple[LowerBound, ...]  # lower bounds on epsilon, one for each of `METHODS`


def config_of(setting: BlackBoxSetting, start: InitialWeights, neighbour: str, data_dir: str | None) -> RunConfig:
    """Return the configuration of a line.

    Parameters
    ----------
    setting
        What is trained.
    start
        Initial weights.
    neighbour
        Which record differs, `random` or `crafted`.
    data_dir
        Directory of published data files; None looks where FL_AUDIT_DATA says.
    """
    values: dict[str, dict[str, Any]] = {
        "data": {"name": setting.data, "records": setting.records, "clients": 2, "population-records": 300},
        "model": {"name": setting.model, "initial": str(start), "seed": _MODEL_SEED},
        "training": {"rounds": setting.rounds, "learning-rate": setting.learning_rate},
        "privacy": {"epsilon": EPSILON, "delta": DELTA, "clipping-norm": 1.0, "accountant": "gdp",
                    "adjacency": "add-remove-record"},
        # Nobody looks at the rounds: whoever sees the final model alone is the adversary.
        "audit": {"worlds": setting.worlds, "insider": False, "epsilon-star": False, "neighbour": neighbour,
                  "evaluate-every": setting.rounds},
        "run": {"seed": 1, "keep-releases": 0, "keep-final-models": False, "actors": 2},
    }  # fmt: skip
    if data_dir is not None:
        values["data"]["data-dir"] = data_dir
    return parse_config(values)


def plan_of(setting: BlackBoxSetting, start: InitialWeights, canary: str, data_dir: str | None = None) -> AuditPlan:
    """Return what is played for a line; all canaries of a setting stand in the place of the same record.

    Parameters
    ----------
    setting, start, data_dir
        As for `config_of`.
    canary
        One of `CANARIES`: an ordinary record, a record that is 0 throughout, with the label that the initial weights
        find least likely, or a crafted one.
    """
    neighbour = "crafted" if canary == "crafted" else "random"
    plan = resolve(config_of(setting, start, neighbour, data_dir))
    if canary != "blank":
        return plan
    game = load_game(plan.public)
    blank = torch.zeros(1, *game.model.feature_shape)
    logits = game.model.logits(_initial(game, start), blank)
    label = int(logits.mean(dim=0)[0].argmin())
    pair = NeighbourPair(plan.public.pair.index, None, told_record(blank[0].numpy(), label))
    return resolve(plan.config, pair)


def _initial(game: Game, start: InitialWeights) -> Tensor:
    return starting_models(game, start, _MODEL_SEED, looked_at(start))


def play(setting: BlackBoxSetting, start: InitialWeights, canary: str, data_dir: str | None = None) -> BlackBoxLine:
    """Play all worlds of a line, and return what the losses of its canary prove.

    Parameters
    ----------
    setting, start, canary, data_dir
        As for `plan_of`.
    """
    plan = plan_of(setting, start, canary, data_dir)
    game = load_game(plan.public)
    models, norm = _initial(game, start), plan.public.law.clipping_norm
    ordinary = gradient_norms(game.model, models, game.common.features, game.common.labels)
    own = game.model.clipped_sum(models, game.differing.features, game.differing.labels, norm)
    with tempfile.TemporaryDirectory() as directory:
        contents = run_audit(plan, Path(directory) / "run", Engine.LOCAL, progress=progress_bar, with_report=False)
    scores = contents.worlds["record_score"].to_numpy(dtype=np.float64)
    members, others = scores[contents.run.bits], scores[~contents.run.bits]
    return BlackBoxLine(
        setting=setting,
        start=start,
        canary=canary,
        ordinary_norm=float(ordinary.mean()) / norm,
        length=float(own.norm(dim=1).mean()) / norm,
        accuracy=float(contents.worlds["test_accuracy"].mean()),
        area=area_under_curve(members, others, CONFIDENCE).area,
        bounds=tuple(epsilon_lower_bound(members, others, DELTA, CONFIDENCE, method) for method in METHODS),
    )


def lines_table(lines: Sequence[BlackBoxLine]) -> Table:
    """Return the table of all lines."""
    table = Table(
        title=f"The final model alone: lower bounds on epsilon {EPSILON:g} (delta {DELTA:g}) at {CONFIDENCE:.0%}"
    )
    names = ("model", "rounds", "worlds", "weights", "others' gradients / C", "record", "its gradient / C", "accuracy",
             "AUC", "clopper-pearson", "order-statistic", "gdp *", "ceiling")  # fmt: skip
    for name in names:
        table.add_column(name, justify="left" if name in ("model", "weights", "record") else "right")
    for line in lines:
        setting = line.setting
        table.add_row(
            setting.model.rpartition(":")[2], str(setting.rounds), str(setting.worlds), str(line.start),
            f"{line.ordinary_norm:.3f}", line.canary, f"{line.length:.3f}", f"{line.accuracy:.1%}", f"{line.area:.3f}",
            *(f"{bound.epsilon:.2f}" for bound in line.bounds), f"{line.bounds[1].limit_of_detection:.2f}",
        )  # fmt: skip
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="logistic regression alone, few worlds")
    parser.add_argument("--data-dir", help="directory of published data files; FL_AUDIT_DATA unless given")
    options = parser.parse_args()
    torch.set_num_threads(1)
    directory = data_directory(options.data_dir)
    data_dir = None if directory is None else str(directory)
    settings = QUICK if options.quick else FULL
    wanted = [(one, start, canary) for one in settings for start in InitialWeights for canary in CANARIES]
    lines = []
    for number, (setting, start, canary) in enumerate(wanted, start=1):
        Console(stderr=True).print(f"{number} of {len(wanted)}: {setting.model}, {start} weights, {canary} record")
        lines.append(play(setting, start, canary, data_dir))
        found = ", ".join(f"{bound.method} {bound.epsilon:.2f}" for bound in lines[-1].bounds)
        Console(stderr=True).print(f"AUC {lines[-1].area:.3f}, {found}")
    console = Console(width=170)
    console.print(lines_table(lines))
    console.print(
        f"* {BoundMethod.GDP.assumption}\n"
        f"Annamalai & De Cristofaro 2024 report {PUBLISHED} of {EPSILON:g}: a convolutional network, 1,000 records of "
        "MNIST, worst-case initial weights, the final model alone. See the head of this study for what differs.\n"
        f"The ceiling is that of {METHODS[1]}: perfect guesses in so many worlds would prove no more."
    )


if __name__ == "__main__":
    guarded(main)
