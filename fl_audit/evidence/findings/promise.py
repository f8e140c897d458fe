"""The promise: the epsilon, delta and noise that it stands for."""

from dataclasses import dataclass
from typing import Any

from fl_audit.evidence.findings.found import Findings
from fl_audit.evidence.finished_run import FinishedRun
from fl_audit.privacy.guarantee import Guarantee

_PROMISED = (
    "epsilon",
    "delta",
    "noise_multiplier",
    "belief_bound",
    "belief_bound_fixed",
    "advantage_bound",
    "advantage_bound_exact",
)


@dataclass(frozen=True)
class PromiseNumbers:
    """What was promised."""

    guarantee: Guarantee | None  # the promise; None where nothing was promised
    rounds: int  # k, number of releases after the initial model
    # Probability with which a unit takes part in a round, or a record in a step of its client's private training.
    sampling_rate: float

    def to_json(self) -> dict[str, Any]:
        """Return the entry `guarantee`; what was not promised is None."""
        promise = self.guarantee
        promised = {name: None if promise is None else getattr(promise, name) for name in _PROMISED}
        rest = {
            "accountant": None if promise is None else str(promise.accountant),
            "adjacency": None if promise is None else str(promise.adjacency),
            "rounds": self.rounds,
            "sampling_rate": self.sampling_rate,
        }
        return {"guarantee": promised | rest}


def measure_promise(run: FinishedRun, _: Findings) -> PromiseNumbers:
    """Return what was promised."""
    promise = run.facts.guarantee
    rate = run.facts.sampling_rate if promise is None else promise.sampling_rate
    return PromiseNumbers(promise, run.facts.game.rounds, rate)
