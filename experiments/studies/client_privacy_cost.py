"""Study of the accuracy cost of client-level privacy: DP-FedAvg, FedAdam, adaptive clipping and DP-FTRL in one figure.

    python -m fl_audit.experiments.studies.client_privacy_cost [--quick] [--data-dir DIR] [--out DIR]

There are two federations: FEMNIST digits with 12 natural clients, who all take part in every round, and 1000 clients
made from MNIST, 100 of whom take part in a round. At each epsilon the noise of every method is calibrated by the
accountant `pld` to the guarantee for adding or removing a client, with delta = 1 / clients^1.1. The result is the test
accuracy of the final model, over several trials.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console

from fl_audit.atomic_files import atomic_file, write_bytes
from fl_audit.data.data_files import data_directory
from fl_audit.experiments.studies.study_commands import parser_of, table_of
from fl_audit.experiments.studies.study_runs import results_of_run
from fl_audit.report.figure_style import finish_axes, new_figure, to_png
from fl_audit.runs.config import parse_config
from fl_audit.runs.planning import plan_run

EPSILONS = (1.0, 3.0, 10.0, 30.0, 100.0)
_QUICK_EPSILONS = (3.0, 30.0)

Values = dict[str, dict[str, Any]]


class TrainingMethod(NamedTuple):
    """A training method with client-level privacy, with its settings and its look in the figure."""

    name: str  # name of the method
    training: dict[str, Any]  # settings that the method adds to the section [training]
    privacy: dict[str, Any]  # settings that the method adds to the section [privacy]
    line: str  # line style of the method in the figure


class ClientFederation(NamedTuple):
    """A federation of the study: its data, its clients' participation and its delta."""

    name: str  # name of its column in the table and of its panel
    values: Values  # settings that all ways share
    sampled: dict[str, Any]  # settings of the clients' participation under noise that is fresh in every round
    cohorts: dict[str, Any]  # settings of the clients' participation under correlated noise, which needs cohorts
    delta: float  # of the guarantee


WAYS = (
    TrainingMethod("DP-FedAvg", {}, {}, "o-"),
    TrainingMethod("DP-FedAdam", {"optimizer": "adam", "learning-rate": 0.02}, {}, "s--"),
    TrainingMethod("DP-FedAvg, adaptive clipping", {}, {"clipping": "adaptive", "clipping-norm": 1.0}, "^-."),
    TrainingMethod("DP-FTRL, tree", {}, {"noise": "tree"}, "v:"),
    TrainingMethod("DP-FTRL, banded", {}, {"noise": "banded"}, "D:"),
)


def federations(data_dir: Path, quick: bool) -> tuple[ClientFederation, ...]:
    """Return the two federations of the study."""
    local = {"local-epochs": 1, "local-batch": 10, "local-learning-rate": 0.05, "strategy": "dp-fedavg"}
    clients, rounds = (100, 8) if quick else (1000, 60)
    natural = {"name": "femnist", "data-dir": str(data_dir), "partition": "natural", "records": 4800}
    femnist: Values = {"data": natural, "training": local | {"rounds": 8 if quick else 30}}
    sizes = {"clients": clients, "records": 50 * clients, "test-records": 2000}
    data = {"name": "mnist", "data-dir": str(data_dir)} | sizes
    mnist: Values = {"data": data, "training": local | {"rounds": rounds}}
    sampled = {"sampling-rate": 0.1}
    cohorts = {"cohort": clients // 10}
    delta = float(clients) ** -1.1
    return (
        ClientFederation("FEMNIST, 12 natural clients", femnist, {}, {}, 12**-1.1),
        ClientFederation(f"MNIST, {clients} clients", mnist, sampled, cohorts, delta),
    )


def settings(federation: ClientFederation, method: TrainingMethod, epsilon: float | None, trials: int) -> Values:
    """Return the configuration of one point of the study: a federation, a training method and an epsilon."""
    take_part = federation.cohorts if "noise" in method.privacy else federation.sampled
    guarantee = {"clipping-norm": 1.0, "delta": federation.delta, "epsilon": epsilon, "accountant": "pld"}
    guarantee |= {"adjacency": "add-remove-client"} | method.privacy
    audit = {"trials": trials, "insider": False, "epsilon-star": False}
    return {
        "data": federation.values["data"],
        "model": {"name": "logistic"},
        "training": federation.values["training"] | take_part | method.training,
        "privacy": guarantee if epsilon is not None else {"private": False, "delta": federation.delta},
        "audit": audit | {"membership": False, "evaluate-every": 1000},
        "run": {"seed": 1},
    }


def _measured(
    federation: ClientFederation, method: TrainingMethod, epsilon: float | None, trials: int
) -> dict[str, Any]:
    """Train one point of the study, and return its table row as a dict; an epsilon of None means no privacy."""
    plan = plan_run(parse_config(settings(federation, method, epsilon, trials)))
    accuracy = results_of_run(plan).run.tables.trials["test_accuracy"].to_numpy(dtype=np.float64)
    return {
        "federation": federation.name,
        "way": method.name,
        "epsilon": np.inf if epsilon is None else epsilon,
        "noise_multiplier": plan.federation.mechanism.noise_multiplier,
        "accuracy": float(accuracy.mean()),
        "error": float(accuracy.std(ddof=1) / np.sqrt(trials)) if trials > 1 else np.nan,
    }


def _points(data_dir: Path, quick: bool, trials: int) -> Iterator[dict[str, Any]]:
    """Train all points of the study, and yield a table row for each, as a dict from column to value.

    Without privacy only the first two methods are trained, because the other methods would be equal to the first one.
    """
    private = list(product(WAYS, _QUICK_EPSILONS if quick else EPSILONS))
    for federation in federations(data_dir, quick):
        for method, epsilon in [*product(WAYS[:2], [None]), *private]:
            yield _measured(federation, method, epsilon, trials)


def accuracy_figure(table: pd.DataFrame) -> Figure:
    """Return the figure of test accuracy over epsilon, one panel per federation, with standard errors over trials."""
    figure = new_figure(height=4.6)
    figure.clear()
    names = list(dict.fromkeys(table["federation"]))
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        rows = table[table["federation"] == name]
        is_private = np.isfinite(rows["epsilon"])
        for shade, method in zip(np.linspace(0.0, 0.65, len(WAYS)), WAYS, strict=True):
            curve = rows[(rows["way"] == method.name) & is_private]
            look = {"color": str(round(float(shade), 2)), "markersize": 5, "capsize": 2, "label": method.name}
            axes.errorbar(curve["epsilon"], curve["accuracy"], yerr=curve["error"], fmt=method.line, **look)
        best = rows.loc[~is_private, "accuracy"].max()
        axes.axhline(best, color="black", linewidth=1, linestyle=(0, (6, 2)), label="best without privacy")
        axes.axhline(0.1, color="grey", linewidth=1, linestyle=(0, (1, 2)), label="guessing")
        axes.set_xscale("log")
        epsilons = sorted(rows.loc[is_private, "epsilon"].unique())
        axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        axes.minorticks_off()
        axes.set_ylim(0, 1)
        finish_axes(axes, name, "epsilon for a client (nats, log scale)", "test accuracy (share)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def conclusions(table: pd.DataFrame) -> list[str]:
    """Return one sentence per federation on the smallest epsilon at which little accuracy is lost.

    Little means that the accuracy is at most 0.1 below the accuracy without privacy. If no epsilon achieves this
    accuracy, the sentence says so. `table` has the rows of `_points`.
    """
    sentences = []
    for name, frame in table.groupby("federation", sort=False):
        is_private = np.isfinite(frame["epsilon"])
        best = frame.loc[~is_private, "accuracy"].max()
        private = frame[is_private]
        near = f"within 0.1 of the accuracy without privacy, {best:.3f}"
        good = private[private["accuracy"] >= best - 0.1]
        if good.empty:
            sentences.append(f"{name}: no guarantee up to epsilon {private['epsilon'].max():g} comes {near}.")
        else:
            first = good.loc[good["epsilon"].idxmin()]
            at = f"from epsilon {first['epsilon']:g} on ({first['way']}, {first['accuracy']:.3f})"
            sentences.append(f"{name}: {near}, {at}.")
    return sentences


def main() -> None:
    parser = parser_of(__doc__, "100 clients, 8 rounds and two values of epsilon")
    parser.add_argument("--trials", type=int, default=3, help="trials at each point (default 3)")
    parser.add_argument("--data-dir", help="data directory (default: FL_AUDIT_DATA)")
    parser.add_argument("--out", type=Path, default=Path("runs/client-accuracy"), help="where table and figure go")
    arguments = parser.parse_args()
    directory = data_directory(arguments.data_dir)
    console = Console()
    rows = []
    if directory is None:
        parser.error("no data directory: name one by --data-dir, or set FL_AUDIT_DATA")
    for row in _points(directory, arguments.quick, arguments.trials):
        rows.append(row)
        console.print(f"{row['federation']}: {row['way']} at epsilon {row['epsilon']:g}: {row['accuracy']:.3f}")
    table = pd.DataFrame(rows)
    accuracy_table = table_of(list(table.columns), "Accuracy under client-level privacy", ("federation", "way"))
    for row in rows:
        accuracy_table.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()))
    console.print(accuracy_table)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with atomic_file(arguments.out / "accuracy.csv") as path:
        table.to_csv(path, index=False)
    write_bytes(arguments.out / "accuracy.png", to_png(accuracy_figure(table)))
    for sentence in conclusions(table):
        console.print(sentence)


if __name__ == "__main__":
    main()
