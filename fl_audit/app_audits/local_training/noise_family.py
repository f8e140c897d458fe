"""Test the noise of private steps by the tests of a run's verdict: a training is a trial, and a step a round."""

from dataclasses import replace

import numpy as np

from fl_audit.app_audits.local_training.recorded_trainings import RecordedTrainings
from fl_audit.app_audits.local_training.training_facts import Noise, PrivateStep
from fl_audit.array_types import Floats
from fl_audit.verdict.declared_tests import TestName, TestResult
from fl_audit.verdict.judging import run_family
from fl_audit.verdict.noise_copies import equal_pairs
from fl_audit.verdict.noise_statistics import NoiseStatistics, join
from fl_audit.verdict.run_measurements import NoiseMeasurements

_BARE = 1e-3  # below this value over the claimed scale, noise may be missing: that is no copy
OF_SIZE = (TestName.NOISE_TOTAL, TestName.NOISE_TENSOR, TestName.NOISE_ROUND)
OF_COPIES = (TestName.REPEATED_NOISE, TestName.CORRELATED_NOISE)


def measured_noise(evidence: RecordedTrainings) -> NoiseMeasurements | None:
    """Return the noise of all trainings with as many steps as the shortest has; None if it cannot be compared."""
    trainings = {id(training): training for training in (*evidence.private_trainings, *evidence.repeated)}.values()
    steps = [[step for step in training.noised if _is_usable(step)] for training in trainings]
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
    return NoiseMeasurements(members, nothing, nothing, sigma, float(sigma.max()), _over(statistics, sigma))


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


def rejected(trainings: RecordedTrainings, names: tuple[TestName, ...], level: float) -> TestResult | None:
    """Return the first of some tests of the noise that has a smaller p-value than `level`; None if none has."""
    measured = measured_noise(trainings)
    if measured is None:
        return None
    test_results, _ = run_family(measured, names)
    return next((test_result for test_result in test_results if test_result.p_value < level), None)


def has_equal_values(trainings: RecordedTrainings, level: float) -> bool:
    """Return True if more sampled values of the noise are equal, but for their signs, than chance explains."""
    measured = measured_noise(trainings)
    if measured is None or not measured.sampled_trials.any():
        return False
    values = measured.sample[np.abs(measured.sample) > _BARE]
    return equal_pairs(values, float(np.max(measured.noise.grain))).p_value < level
