"""The trained models of Negoescu et al. 2023, section 4.1: two classification tasks, each as the settings of a sweep.

We keep what the paper states: the splits; stochastic gradient descent with momentum 0.9 and learning rate 0.01;
baselines without DP that differ in their epochs; models with DP at epsilon 1, 3, 10 and 100 by an RDP accountant, with
several clipping norms and batch sizes; and five repetitions on fixed data. We choose what its published text lacks:
delta, the epochs of training with DP, the batch size of baselines, and the layers of the network for Adult. Gradients
are clipped per record; the paper also tries 1 and 32 microbatches.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, assert_never

from fl_audit.experiments.papers.papers import ComputeExtent
from fl_audit.released_model.star_methods import PARAMETRIC_CUT
from fl_audit.runs.sweeps.grid import Axis, Point, baselines, grid

LEARNING_RATE = 0.01
MOMENTUM = 0.9
CLIENTS = 2  # the paper trains in one place; this is the smallest number of clients that a federation may have


class EpsilonStarTask(StrEnum):
    """The two classification tasks of the paper, by the paper's names."""

    PURCHASE = "Purchase-100"
    ADULT = "Adult"


@dataclass(frozen=True)
class EpsilonStarTaskSettings:
    """A classification task with its data set, its network and the grid of its training settings."""

    task: EpsilonStarTask  # the paper's task that it is, or stands in for
    title: str  # name as shown, which says so if the data set stands in for another
    data: str  # name in the catalogue of data sets
    model: str  # name of the network
    records: int  # number of records of the training set
    test_records: int  # number of records of the test set
    population_records: int  # number of records of the population sample
    batches: tuple[int, ...]  # expected batch sizes of private training; baselines use the first of them
    baseline_epochs: tuple[int, ...]  # epochs of the models without privacy
    private_epochs: int  # epochs of the private models
    delta: float  # delta of the guarantee and of Epsilon*, less than one over the number of records
    epsilons: tuple[float, ...] = (1.0, 3.0, 10.0, 100.0)  # claimed epsilons of private training
    clipping_norms: tuple[float, ...] = (1.0, 10.0, 30.0)  # clipping norms of private training
    repetitions: int = 5  # number of models of each setting

    @property
    def is_substitute(self) -> bool:
        """Whether the data set is a substitute for the one that the paper uses."""
        return "in place of" in self.title

    @property
    def key(self) -> str:
        """Name of the directory that holds the models of this study."""
        return f"landscape-{self.data}"

    @property
    def training_description(self) -> str:
        """Description of the training in sentences, for the page of results."""
        private = len(self.epsilons) * len(self.clipping_norms) * len(self.batches)
        return (
            f"{self.model} on {self.records:,} records of {self.title} at {CLIENTS} clients, {self.test_records:,} "
            f"test records, SGD with momentum {MOMENTUM:g} and learning rate {LEARNING_RATE:g}. Without privacy: "
            f"{', '.join(map(str, self.baseline_epochs))} epochs, batches of {self.batches[0]} on average. Private: "
            f"{private} settings, {self.private_epochs} epochs each, RDP accountant, add-or-remove, "
            f"delta {self.delta:g}. Every setting {self.repetitions} times."
        )

    def in_form(self, extent: ComputeExtent) -> "EpsilonStarTaskSettings":
        """Return the study itself for the full form, or a quick form with fewer records, settings and repetitions."""
        if extent is ComputeExtent.FULL:
            return self
        few = replace(
            self, epsilons=(self.epsilons[0], self.epsilons[-1]), clipping_norms=self.clipping_norms[:1],
            batches=self.batches[-1:], repetitions=3, delta=1e-4,
        )  # fmt: skip
        match self.task:
            case EpsilonStarTask.ADULT:
                return replace(
                    few, records=4000, test_records=2000, population_records=2000, baseline_epochs=(1, 5, 20),
                    private_epochs=5,
                )  # fmt: skip
            case EpsilonStarTask.PURCHASE:
                return replace(
                    few, records=min(self.records, 3340), test_records=670, population_records=1000,
                    baseline_epochs=(10, 100), private_epochs=20,
                )  # fmt: skip
            case _:
                assert_never(self.task)

    def baselines(self, data_dir: Path | None) -> tuple[Point, ...]:
        """Return the settings of the models without DP, as points of a sweep in ascending order of their epochs."""
        return baselines(self.values(data_dir), [Axis("training.epochs", self.baseline_epochs)])

    def private(self, data_dir: Path | None) -> tuple[Point, ...]:
        """Return the settings of the models with DP, as sweep points over epsilons, clipping norms and batch sizes."""
        axes = (
            Axis("privacy.epsilon", self.epsilons),
            Axis("privacy.clipping-norm", self.clipping_norms),
            Axis("training.expected-batch", self.batches),
        )
        return grid(self.values(data_dir), axes)

    def points(self, data_dir: Path | None) -> tuple[Point, ...]:
        """Return the settings of all models, as points of a sweep: first those without DP, then those with DP."""
        return self.baselines(data_dir) + self.private(data_dir)

    def values(self, data_dir: Path | None) -> dict[str, Any]:
        """Return the configuration that all models share; `data_dir` is None for the default directory."""
        place = {} if data_dir is None else {"data-dir": str(data_dir.absolute())}
        return {
            "data": {
                "name": self.data,
                "records": self.records,
                "test-records": self.test_records,
                "population-records": self.population_records,
                "clients": CLIENTS,
                **place,
            },
            "model": {"name": self.model},
            "run": {"seed": 0},
            "training": {
                "epochs": self.private_epochs,
                "expected-batch": self.batches[0],
                "learning-rate": LEARNING_RATE,
                "optimizer": "momentum",
                "momentum": MOMENTUM,
            },
            "privacy": {
                "delta": self.delta,
                "accountant": "rdp",
                "adjacency": "add-remove-record",
                "epsilon": self.epsilons[0],
            },
            "audit": {
                "trials": self.repetitions,
                "insider": False,
                "neighbour": "random",
                "evaluate-every": 1_000_000,
                "epsilon-star-cut": PARAMETRIC_CUT,
            },
        }


ADULT = EpsilonStarTaskSettings(
    EpsilonStarTask.ADULT, "Adult", "adult-all", "dense-128", 32_561, 16_280, 16_280, (64, 512), (1, 5, 10, 20), 5, 1e-5
)  # fmt: skip
"""Records with missing values are kept, so that the numbers of records are those of the paper."""
PURCHASE = EpsilonStarTaskSettings(
    EpsilonStarTask.PURCHASE, "Purchase-100", "purchase100", "dense-3x100", 131_550, 30_000, 30_000, (256, 1024),
    (10, 50, 100), 20, 1e-6,
)  # fmt: skip
"""Two thirds of the published 197,324 records are training records; the paper had 311,540 records."""
LOCATION = EpsilonStarTaskSettings(
    EpsilonStarTask.PURCHASE, "Location-30 in place of Purchase-100", "location30", "dense-3x100", 3_340, 670, 1_000,
    (256, 1024), (10, 50, 100), 50, 1e-4,
)  # fmt: skip
"""Two thirds of the records are training records, as in the paper; the others are test set and population sample."""

CANDIDATES = {EpsilonStarTask.PURCHASE: (PURCHASE, LOCATION), EpsilonStarTask.ADULT: (ADULT,)}
"""The studies that may be used for each task; that on the paper's own data set comes first."""
