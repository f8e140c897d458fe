"""The runs of Negoescu et al. 2023, section 4.1: two classification tasks, with models with and without DP.

We keep what the paper states: the splits; stochastic gradient descent with momentum 0.9 and learning rate 0.01;
baselines without DP that differ in their epochs; models with DP at epsilon 1, 3, 10 and 100 by an RDP accountant, with
several clipping norms and batch sizes; and five repetitions on fixed data. We choose what its published text lacks:
delta, the epochs of training with DP, the batch size of baselines, and the layers of the network for Adult. Gradients
are clipped per record; the paper also tries 1 and 32 microbatches.
"""

from collections.abc import Mapping
from typing import Any

from fl_audit.experiments.papers.claims import read_claims
from fl_audit.experiments.papers.papers import PaperDataset, PaperRun, PrintedNumbers, Settings, nested
from fl_audit.runs.sweeps.grid import Axis, Point, baselines, grid, without_privacy
from fl_audit.words import plural

PRINTED = PrintedNumbers(__file__)
CLAIMS = read_claims(__file__)
BASE: Settings = {
    "data.clients": 2,  # the paper trains in one place; this is the smallest number that a federation may have
    "training.learning-rate": 0.01,
    "training.optimizer": "momentum",
    "training.momentum": 0.9,
    "privacy.accountant": "rdp",
    "privacy.adjacency": "add-remove-record",
    "audit.insider": False,
    "audit.neighbour": "random",
    "audit.evaluate-every": 1_000_000,
    "run.seed": 0,
}
"""Settings of every run."""

# Facts of a data set: "epsilons", "clipping-norms" and "batches" of the models with DP, of which the first batch is
# that of the baselines, and "baseline-epochs". Delta is less than one over the number of records.
ADULT = PaperDataset(
    "Adult",
    "Adult",
    {
        "data.name": "adult-all",  # records with missing values are kept, as the paper has as many
        "data.records": 32_561,
        "data.test-records": 16_280,
        "data.population-records": 16_280,
        "model.name": "dense-128",
        "training.epochs": 5,
        "privacy.delta": 1e-5,
        "audit.trials": 5,
        "epsilons": (1.0, 3.0, 10.0, 100.0),
        "clipping-norms": (1.0, 10.0, 30.0),
        "batches": (64, 512),
        "baseline-epochs": (1, 5, 10, 20),
    },
    {
        "data.records": 4000,
        "data.test-records": 2000,
        "data.population-records": 2000,
        "privacy.delta": 1e-4,
        "audit.trials": 3,
        "epsilons": (1.0, 100.0),
        "clipping-norms": (1.0,),
        "batches": (512,),
        "baseline-epochs": (1, 5, 20),
    },
)
_QUICK_MANY: Settings = {
    "data.records": 3340,
    "data.test-records": 670,
    "data.population-records": 1000,
    "training.epochs": 20,
    "privacy.delta": 1e-4,
    "audit.trials": 3,
    "epsilons": (1.0, 100.0),
    "clipping-norms": (1.0,),
    "batches": (1024,),
    "baseline-epochs": (10, 100),
}
PURCHASE = PaperDataset(
    "Purchase-100",
    "Purchase-100",
    {
        "data.name": "purchase100",
        # Two thirds of the published 197,324 records are training records; the paper had 311,540 records.
        "data.records": 131_550,
        "data.test-records": 30_000,
        "data.population-records": 30_000,
        "model.name": "dense-3x100",
        "training.epochs": 20,
        "privacy.delta": 1e-6,
        "audit.trials": 5,
        "epsilons": (1.0, 3.0, 10.0, 100.0),
        "clipping-norms": (1.0, 10.0, 30.0),
        "batches": (256, 1024),
        "baseline-epochs": (10, 50, 100),
    },
    _QUICK_MANY,
)
LOCATION = PaperDataset(
    "Purchase-100",
    "Location-30 in place of Purchase-100",
    {
        **PURCHASE.settings,
        "data.name": "location30",
        # Two thirds of the records are training records, as in the paper; others are test set and population sample.
        "data.records": 3340,
        "data.test-records": 670,
        "data.population-records": 1000,
        "training.epochs": 50,
        "privacy.delta": 1e-4,
    },
    _QUICK_MANY,
    stands_in=True,
)
CANDIDATES = {PURCHASE.study: ((PURCHASE,), (LOCATION,)), ADULT.study: ((ADULT,),)}


def baseline_runs(dataset: PaperDataset) -> tuple[PaperRun, ...]:
    """Return the runs without DP in ascending order of their epochs."""
    values = _values(dataset)
    points = baselines(values, [Axis("training.epochs", dataset["baseline-epochs"])])
    return tuple(_run(dataset, without_privacy(values), point) for point in points)


def private_runs(dataset: PaperDataset) -> tuple[PaperRun, ...]:
    """Return the runs with DP: every combination of epsilons, clipping norms and batch sizes."""
    values = _values(dataset)
    axes = (
        Axis("privacy.epsilon", dataset["epsilons"]),
        Axis("privacy.clipping-norm", dataset["clipping-norms"]),
        Axis("training.expected-batch", dataset["batches"]),
    )
    return tuple(_run(dataset, values, point) for point in grid(values, axes))


def all_runs(dataset: PaperDataset) -> tuple[PaperRun, ...]:
    """Return all runs on a data set: first those without DP, then those with DP."""
    return baseline_runs(dataset) + private_runs(dataset)


def extreme_runs(dataset: PaperDataset) -> tuple[PaperRun, ...]:
    """Return four runs: fewest and most epochs without DP, and least and largest epsilon with DP."""
    plain = baseline_runs(dataset)
    settings = dataset["clipping-norms"][0], dataset["batches"][-1]
    runs_by_epsilon = [
        run
        for run in private_runs(dataset)
        if (run["privacy.clipping-norm"], run["training.expected-batch"]) == settings
    ]
    return plain[0], plain[-1], runs_by_epsilon[0], runs_by_epsilon[-1]


def point_of(run: PaperRun) -> Point:
    """Return a run as the point of a sweep over the runs on its data set."""
    point: Point = run["point"]
    return point


def _values(dataset: PaperDataset) -> dict[str, dict[str, Any]]:
    """Return the configuration that all runs on a data set share."""
    first = {"privacy.epsilon": dataset["epsilons"][0], "training.expected-batch": dataset["batches"][0]}
    return nested({**BASE, **dataset.settings, **first})


def _run(dataset: PaperDataset, values: Mapping[str, Mapping[str, Any]], point: Point) -> PaperRun:
    shared = {
        f"{section}.{key}": value
        for section, settings_of_section in values.items()
        for key, value in settings_of_section.items()
    }
    settings = {**shared, **dict(point.settings), "point": point}
    is_private = settings.get("privacy.private", True)
    label = (
        f"epsilon = {settings['privacy.epsilon']:g}"
        if is_private
        else f"no privacy, {plural(settings['training.epochs'], 'epoch')}"
    )
    return PaperRun(dataset, f"landscape-{dataset.name}/{point.name}", label, settings)
