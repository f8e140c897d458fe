"""Measure the noise of a private step by the statistics of a run's releases."""

from functools import lru_cache

import numpy as np
import torch

from fl_audit.array_types import Floats
from fl_audit.learning.stacked_layers import ParameterLayout
from fl_audit.mechanisms.likelihood_ratio import ReleaseUnderHypotheses
from fl_audit.mechanisms.noise_draws import number_of_directions, orthonormal_directions
from fl_audit.mechanisms.noises.registry import STANDARD_GAUSSIAN
from fl_audit.verdict.noise_measurement import NoiseMeasurer
from fl_audit.verdict.noise_statistics import NoiseStatistics

_COORDINATES = 4096  # most coordinates that directions live on


def statistics_of(noise: Floats, total: Floats, shapes: tuple[tuple[int, ...], ...]) -> NoiseStatistics:
    """Return the noise statistics of one step, whose noise and sum of clipped gradients are both (parameters,)."""
    whole, shared = (torch.from_numpy(values).unsqueeze(0) for values in (noise + total, total))
    nothing, width = torch.zeros_like(shared), torch.ones(1, dtype=torch.float64)
    hypotheses = ReleaseUnderHypotheses(slice(0, 1), whole, shared, nothing, nothing)
    return _measurer(shapes).measure(hypotheses, width, 0 * width).of_true_hypothesis(np.zeros(1, dtype=np.int64))


@lru_cache(maxsize=8)
def _measurer(shapes: tuple[tuple[int, ...], ...]) -> NoiseMeasurer:
    layout = ParameterLayout(tuple(f"tensor {number}" for number in range(len(shapes))), shapes)
    size = min(layout.size, _COORDINATES)
    directions = orthonormal_directions(0, size, number_of_directions(layout.size))
    return NoiseMeasurer(layout, directions, STANDARD_GAUSSIAN)
