"""Check the sensitivity: how far one record moves a sum of clipped gradients, and whether it moves those of others."""

import math
from collections.abc import Callable

from fl_audit.app_audits.local_training.measured_steps import MeasuredSteps
from fl_audit.app_audits.local_training.pitfalls import Pitfall
from fl_audit.app_audits.local_training.recorded_trainings import RecordedTrainings
from fl_audit.app_audits.local_training.sampling_checks import batch_clipping


def _batch_norm(trainings: RecordedTrainings) -> str:
    for training in trainings.private_trainings:
        if training.coupled:
            return f"the private model has {', '.join(training.coupled[:3])}"
    return ""


def _coupled(trainings: RecordedTrainings) -> str:
    for replay in trainings.replays:
        if replay.is_coupled:
            change = replay.others if replay.others is not None else replay.moved_absent
            if trainings.measured is not None:
                return f"{replay.record} changed the effect of another one by {change:.2g} of that"
            return f"{replay.record} changed the gradients of others by {change:.2g} of the largest"
    return ""


def _unclipped(measured: MeasuredSteps) -> str:
    """Describe an effect of a record that grows with its values, and that no noise covers; "" if there is none."""
    for effect in measured.effects:
        if effect.is_unbounded:
            return (
                f"a record with values 100 times as large moved a step {effect.growth:.3g} times as far: "
                "no clipping bounds it"
            )
    return ""


def _over_norm(trainings: RecordedTrainings) -> str:
    if trainings.measured is not None:
        return _unclipped(trainings.measured)
    if _coupled(trainings) or batch_clipping(trainings) or _layer_clipping(trainings):
        return ""
    for replay in trainings.replays:
        if not replay.is_kept:
            return (
                f"{replay.record} moved a sum by {replay.moved:.3g} times the clipping norm, "
                f"and {replay.claimed:g} is claimed"
            )
    return ""


def _layer_clipping(trainings: RecordedTrainings) -> str:
    for replay in trainings.replays:
        if replay.is_coupled or replay.is_kept or not replay.tensors:
            continue
        over = replay.moved / replay.claimed
        longest = max(replay.tensors)
        if longest <= replay.claimed * (1 + 1e-4) and over <= math.sqrt(len(replay.tensors)) * (1 + 1e-4):
            return (
                f"{replay.record} moved no tensor by more than the clipping norm, "
                f"and all of them together by {replay.moved:.3g} times that"
            )
    return ""


SENSITIVITY_CHECKS: dict[Pitfall, Callable[[RecordedTrainings], str]] = {
    Pitfall.BATCH_NORM: _batch_norm,
    Pitfall.COUPLED: _coupled,
    Pitfall.OVER_NORM: _over_norm,
    Pitfall.LAYER_CLIPPING: _layer_clipping,
}
"""The checks of this module."""
