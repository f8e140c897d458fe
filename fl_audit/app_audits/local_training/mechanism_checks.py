"""Check the mechanism of the steps: the sensitivity to one record, and the scale, distribution and draws of the noise.

The tests of a run's verdict are among the checks: a training is a trial, and a step a round.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np
from scipy.stats import chi2, kstest

from fl_audit.app_audits.local_training.leave_one_out_replay import NOISE_TOLERANCE
from fl_audit.app_audits.local_training.pitfalls import LEVEL, Pitfall
from fl_audit.app_audits.local_training.recorded_trainings import MeasuredSteps, RecordedTrainings
from fl_audit.app_audits.local_training.sampling_checks import batch_clipping
from fl_audit.app_audits.local_training.training_facts import Noise, PrivateStep, RecordedTraining
from fl_audit.array_types import Floats
from fl_audit.mechanisms.noises.registry import STANDARD_GAUSSIAN
from fl_audit.verdict.declared_tests import TestName, TestResult
from fl_audit.verdict.judging import run_family
from fl_audit.verdict.noise_copies import equal_pairs
from fl_audit.verdict.noise_statistics import NoiseStatistics, join
from fl_audit.verdict.run_measurements import NoiseMeasurements
from fl_audit.words import plural


def _batch_norm(trainings: RecordedTrainings) -> str:
    for training in trainings.private_trainings:
        if training.coupled:
            return f"the private model has {', '.join(training.coupled[:3])}"
    return ""


def _coupled(trainings: RecordedTrainings) -> str:
    for replay in trainings.replays:
        # A record that acts on steps for which it was not drawn, by steps before, changes the effect of no other one.
        is_of_itself = trainings.measured is not None and replay.gradient_change_of_others is None
        if replay.is_coupled and not is_of_itself:
            change = (
                replay.gradient_change_of_others
                if replay.gradient_change_of_others is not None
                else replay.moved_absent
            )
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


_LEAST_NOISE = 1e-3  # below this value over the claimed scale, noise may be missing: that is no copy
_OF_SIZE = (TestName.NOISE_TOTAL, TestName.NOISE_TENSOR, TestName.NOISE_ROUND)
_OF_COPIES = (TestName.REPEATED_NOISE, TestName.CORRELATED_NOISE)
_FEWEST = 3  # values of noise that have to be equal before they say anything


def _claimed(step: PrivateStep) -> float:
    return step.gradient_multiplier * step.norm


def _is_bare(step: PrivateStep) -> bool:
    """Return True if a step added no noise, or so little that it can be the rounding error of sums."""
    return step.noise is None or step.noise.scale <= 1e-4 * step.norm


def _no_noise(trainings: RecordedTrainings) -> str:
    if trainings.measured is not None:
        return _bare_tensors(trainings.measured)
    for training in trainings.private_trainings:
        bare = sum(map(_is_bare, training.noised))
        if bare:
            return f"{bare} of {len(training.noised)} steps added no noise"
    return ""


def _bare_tensors(measured: MeasuredSteps) -> str:
    """Describe steps with tensors that follow the records and do not change when the generators are drawn anew."""
    if not measured.bare:
        return ""
    tensors = sorted({tensor + 1 for step in measured.bare for tensor in step.bare_tensors})
    tensor_names = ", ".join(map(str, tensors[:5]))
    return (
        f"{len(measured.bare)} of {len(measured.steps)} steps added no noise that the generators draw to "
        f"{plural(len(tensors), 'tensor')} (number {tensor_names} of {len(measured.bare[0].shapes)})"
    )


def _small_noise(trainings: RecordedTrainings) -> str:
    # Of measured steps no noise multiplier is stated: the epsilon that they give is held against the claim.
    if _no_noise(trainings) or trainings.measured is not None:
        return ""
    for training in trainings.private_trainings:
        smallest, requested = training.multipliers
        # A schedule of the noise is honest if the epsilon that is named counts it, which other checks compare.
        if trainings.claimed is None and smallest < requested * (1 - 1e-6):
            return (
                f"steps have noise multiplier {smallest:.4g}, make_private was given {requested:.4g}, and no "
                "epsilon is named"
            )
        steps = [step for step in training.noised if step.noise is not None and _claimed(step) > 0]
        squares = sum(step.noise.squares / _claimed(step) ** 2 for step in steps if step.noise is not None)
        count = sum(step.noise.count for step in steps if step.noise is not None)
        if count and chi2.cdf(squares, count) < LEVEL:
            return f"the noise has {np.sqrt(squares / count):.3g} times the scale that is claimed"
    if (test_result := _rejected(trainings, _OF_SIZE, LEVEL)) is not None:
        where = f" in {test_result.place}" if test_result.place else ""
        return f"the noise has {test_result.measured:.3g} times the scale that is claimed{where}"
    return ""


def _noise_distribution(trainings: RecordedTrainings) -> str:
    if _no_noise(trainings) or trainings.has_dependent_noise:
        return ""
    for training in trainings.private_trainings:
        standardised = [step.noise.sample / step.noise.scale for step in training.noised if step.noise is not None]
        if not standardised:
            continue
        values = np.concatenate(standardised)
        if len(values) >= 50 and float(kstest(values, "norm").pvalue) < LEVEL:
            return f"{len(values)} recorded values of noise are not normal"
    return ""


def _heads(training: RecordedTraining) -> list[tuple[float, ...]]:
    """Return the first noise values of each step that added noise, so that repeated draws can be found.

    A step with fewer than three values is left out, because so few could be equal by chance.
    """
    return [
        step.noise.head
        for step in training.noised
        if step.noise is not None and not _is_bare(step) and len(step.noise.head) >= _FEWEST
    ]


def _is_alike(training: RecordedTraining, other_training: RecordedTraining) -> bool:
    """Return True if some step of one training has the same noise as some step of the other."""
    return bool(set(_heads(training)) & set(_heads(other_training)))


def _seeded(trainings: RecordedTrainings) -> str:
    for training in (*trainings.private_trainings, *trainings.repeated):
        for step in training.noised:
            if step.noise is not None and step.noise.is_predictable and not _is_bare(step):
                return f"the generator of the noise had the seed {step.noise.seed}, which others can try"
    for trainings_of_client in (trainings.repeated, *trainings.by_client.values()):
        for first, second in combinations(trainings_of_client, 2):
            if _is_alike(first, second):
                return "a client that trained again drew the same noise again"
    return ""


def _shared(trainings: RecordedTrainings) -> str:
    for first, second in combinations(trainings.by_client.values(), 2):
        if any(_is_alike(training, right) for training in first for right in second if training.round == right.round):
            return "two clients drew the same noise in the same round"
    return ""


def _repeated(trainings: RecordedTrainings) -> str:
    for training in trainings.private_trainings:
        copies = max(Counter(_heads(training)).values(), default=0)
        if copies > 1:
            return f"{copies} steps of a training added the same noise"
    if _seeded(trainings) or _shared(trainings) or _no_noise(trainings):
        return ""
    if _has_equal_values(trainings, LEVEL):
        return "values of the noise are used again, at other places or with another sign"
    if trainings.has_dependent_noise:
        return ""
    test_result = None if _small_noise(trainings) else _rejected(trainings, _OF_COPIES, LEVEL)
    return (
        ""
        if test_result is None
        else f"the noise is not independent: {test_result.name}{test_result.place and f', {test_result.place}'}"
    )


def _follows(trainings: RecordedTrainings) -> str:
    for replay in trainings.replays:
        if replay.noise_moved is not None and replay.noise_moved > NOISE_TOLERANCE:
            return (
                f"{replay.record} changed what a step adds to its sum by {replay.noise_moved:.3g} times the scale of "
                "the noise, with the same random numbers"
            )
    return ""


def _measured_noise(trainings: RecordedTrainings) -> NoiseMeasurements | None:
    """Return the noise of all trainings with as many steps as the shortest has; None if it cannot be compared."""
    all_trainings = (*trainings.private_trainings, *trainings.repeated)
    unique_trainings = {id(training): training for training in all_trainings}.values()
    steps = [[step for step in training.noised if _is_usable(step)] for training in unique_trainings]
    rounds = min(map(len, steps), default=0)
    noises = [
        [step.noise for step in steps_of_training[:rounds] if step.noise is not None] for steps_of_training in steps
    ]
    shapes = {noise.shapes for noises_of_training in noises for noise in noises_of_training}
    if not rounds or len(shapes) != 1:
        return None
    statistics = join(
        [join([_statistics(noise) for noise in noises_of_training], axis=1) for noises_of_training in noises], axis=0
    )
    sigma = np.array(
        [[step.gradient_multiplier * step.norm for step in steps_of_training[:rounds]] for steps_of_training in steps]
    )
    nothing = np.zeros(sigma.shape)
    members = np.zeros(len(sigma), dtype=np.bool_)
    return NoiseMeasurements(
        members, nothing, nothing, sigma, float(sigma.max()), _over(statistics, sigma), noise_kind=STANDARD_GAUSSIAN
    )


def _is_usable(step: PrivateStep) -> bool:
    noise = step.noise
    return noise is not None and noise.statistics is not None and step.gradient_multiplier * step.norm > 0


def _statistics(noise: Noise) -> NoiseStatistics:
    assert noise.statistics is not None, "only steps with statistics are usable"
    return noise.statistics


def _over(statistics: NoiseStatistics, sigma: Floats) -> NoiseStatistics:
    """Return statistics that were measured with a width of 1 as if they had been with the claimed width."""
    wide = sigma[..., None, None]
    return replace(
        statistics,
        grain=statistics.grain / sigma,
        signal=statistics.signal / wide,
        strides=statistics.strides / wide**2,
        sample=statistics.sample / wide,
    )


def _rejected(trainings: RecordedTrainings, names: tuple[TestName, ...], level: float) -> TestResult | None:
    """Return the first of some tests of the noise that has a smaller p-value than `level`; None if none has."""
    measured = _measured_noise(trainings)
    if measured is None:
        return None
    test_results, _ = run_family(measured, names)
    return next((test_result for test_result in test_results if test_result.p_value < level), None)


def _has_equal_values(trainings: RecordedTrainings, level: float) -> bool:
    """Return True if more sampled values of the noise are equal, but for their signs, than chance explains."""
    measured = _measured_noise(trainings)
    if measured is None or not measured.sampled_trials.any():
        return False
    values = measured.sample[np.abs(measured.sample) > _LEAST_NOISE]
    return equal_pairs(values, float(np.max(measured.noise.grain))).p_value < level


MECHANISM_CHECKS: dict[Pitfall, Callable[[RecordedTrainings], str]] = {
    Pitfall.BATCH_NORM: _batch_norm,
    Pitfall.COUPLED: _coupled,
    Pitfall.OVER_NORM: _over_norm,
    Pitfall.LAYER_CLIPPING: _layer_clipping,
    Pitfall.NO_NOISE: _no_noise,
    Pitfall.SMALL_NOISE: _small_noise,
    Pitfall.NOISE_DISTRIBUTION: _noise_distribution,
    Pitfall.SEEDED_NOISE: _seeded,
    Pitfall.NOISE_FOLLOWS: _follows,
    Pitfall.SHARED_NOISE: _shared,
    Pitfall.REPEATED_NOISE: _repeated,
}
"""The checks of this module."""
