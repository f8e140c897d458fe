"""The released model: how well it does its job, what its losses alone give away (Epsilon*), and where it comes from."""

import math
from dataclasses import dataclass
from typing import Any

from fl_audit.evidence.findings.found import Findings, finite, json_of
from fl_audit.evidence.finished_run import FinishedRun
from fl_audit.evidence.run_tables import Provenance, Timing, Unprotected


@dataclass(frozen=True)
class StarNumbers:
    """Epsilon* of the final releases."""

    # `mean`, `max`: over the worlds, in nats; infinite or NaN where it was not determined.
    mean: float
    max: float
    # `delta`, `cut`: at which it was computed, and the error rates that were left out.
    delta: float
    cut: float
    # `untrained_mean`, `untrained_max`: the same of the initial models, which cannot leak: what chance alone reaches
    # with so many losses. NaN where it was not computed for them.
    untrained_mean: float
    untrained_max: float

    def to_json(self) -> dict[str, Any]:
        """Return the entry `epsilon_star`."""
        return {"epsilon_star": json_of(self)}


@dataclass(frozen=True)
class ModelNumbers:
    """What the final releases are worth."""

    test_accuracy: float  # share of right predictions on test records, mean over worlds
    test_auroc: float  # area under the ROC on test records, mean over worlds; NaN where there is none
    # What the same training without privacy is worth; None where no such run was named.
    unprotected: Unprotected | None = None
    commonest: float | None = None  # what naming the most frequent class is worth; None where it is not known

    def to_json(self) -> dict[str, Any]:
        """Return the entry `utility`."""
        without = None if self.unprotected is None else self.unprotected.final
        accuracy = {"test_accuracy": self.test_accuracy, "test_auroc": finite(self.test_auroc)}
        others = {"commonest_class": self.commonest, "test_accuracy_without_privacy": without}
        return {"utility": accuracy | others}


def measure_model(run: FinishedRun, _: Findings) -> ModelNumbers:
    """Return what the final releases are worth, and what they give away."""
    worlds = run.tables.worlds
    # Batches of an older version have no area.
    area = float(worlds["test_auroc"].mean()) if "test_auroc" in worlds else math.nan
    return ModelNumbers(float(worlds["test_accuracy"].mean()), area, run.unprotected, run.facts.commonest)


def measure_star(run: FinishedRun, _: Findings) -> StarNumbers | None:
    """Return Epsilon* of the final releases; None where it was turned off."""
    if run.facts.star is None:
        return None
    values, releases = run.tables.worlds["epsilon_star"], run.tables.releases
    untrained = releases.loc[releases["round"] == 0, "epsilon_star"]
    return StarNumbers(
        mean=float(values.mean()),
        max=float(values.max()),
        delta=run.facts.star.delta,
        cut=run.facts.star.cut,
        untrained_mean=float(untrained.mean()),
        untrained_max=float(untrained.max()),
    )


@dataclass(frozen=True)
class OriginNumbers:
    """Where the run comes from, None where that was not noted, and how long it took."""

    provenance: Provenance | None
    timing: Timing

    def to_json(self) -> dict[str, Any]:
        """Return the entry `timing`: the same run has the same summary wherever it is made, but for that."""
        return {"timing": json_of(self.timing)}


def measure_origin(run: FinishedRun, _: Findings) -> OriginNumbers:
    """Return where a run comes from, and how long it took."""
    return OriginNumbers(run.provenance, run.timing)
