"""The crafted record: how much of what a record may change it changes, and what it has in common with the others."""

from dataclasses import dataclass
from typing import Any

from fl_audit.evidence.findings.found import Findings
from fl_audit.evidence.finished_run import FinishedRun
from fl_audit.game.crafted import CraftedMeasures


@dataclass(frozen=True)
class CraftedNumbers:
    """What the crafted record came to."""

    initial: CraftedMeasures  # at the initial weights
    # `first`, `mean`: local sensitivity over the global one, mean over worlds: in the first round, and over all rounds.
    # None where no insider measured it.
    first: float | None
    mean: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the entry `crafted`."""
        return {
            "crafted": {
                "label": self.initial.label,
                "clipped_gradient_norm": self.initial.length,
                "shortest_clipped_gradient_norm": self.initial.shortest,
                "cosine_to_others": self.initial.cosine,
                "initial_sensitivity": self.initial.sensitivity,
                "weights_looked_at": self.initial.models,
                "first_round_sensitivity": self.first,
                "mean_sensitivity": self.mean,
            }
        }


def measure_crafted(run: FinishedRun, _: Findings) -> CraftedNumbers | None:
    """Return what the crafted record came to; None where none was crafted."""
    facts = run.facts
    if facts.crafted is None:
        return None
    if not run.has_insider or not facts.game.law.weighs_exactly:
        return CraftedNumbers(facts.crafted, None, None)
    share = run.by_world("local_sensitivity") / facts.global_sensitivity
    return CraftedNumbers(facts.crafted, float(share[:, 0].mean()), float(share.mean()))
