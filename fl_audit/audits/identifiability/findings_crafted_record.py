"""Findings on the crafted record, which is made to have a large effect on the training."""

from dataclasses import dataclass
from typing import Any

from fl_audit.federation.crafted_records import CraftedMeasures
from fl_audit.federation.findings import Findings
from fl_audit.federation.finished_run import FinishedRun


@dataclass(frozen=True)
class CraftedRecordInfluence:
    """The clipped gradient norm and the local sensitivity of a record that was crafted to have a large effect."""

    initial: CraftedMeasures  # measures at the initial weights
    first: float | None  # local over global sensitivity in round 1, mean over trials; None if not measured
    mean: float | None  # local over global sensitivity, mean over trials and rounds; None if not measured

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `crafted`, for `summary.json`."""
        initial = self.initial
        return {
            "crafted": {
                "label": initial.label,
                "clipped_gradient_norm": initial.length,
                "shortest_clipped_gradient_norm": initial.shortest,
                "cosine_to_others": initial.cosine,
                "initial_sensitivity": initial.sensitivity,
                "weights_looked_at": initial.models,
                "first_round_sensitivity": self.first,
                "mean_sensitivity": self.mean,
            }
        }


def measure_crafted(run: FinishedRun, _: Findings) -> CraftedRecordInfluence | None:
    """Return the gradient norm and the local sensitivity of the run's crafted record; None if the run has none."""
    if run.crafted is None:
        return None
    if not run.has_insider or not run.plan.federation.mechanism.knows_llr:
        return CraftedRecordInfluence(run.crafted, None, None)
    share = run.by_trial("local_sensitivity") / run.plan.global_sensitivity
    return CraftedRecordInfluence(run.crafted, float(share[:, 0].mean()), float(share.mean()))
