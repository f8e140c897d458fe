"""Read values from Opacus and torch objects: samplers, accountants, layers, and the noise of a step."""

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from operator import index
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer
from opacus.utils.batch_memory_manager import BatchSplittingSampler
from opacus.utils.uniform_sampler import DistributedUniformWithReplacementSampler, UniformWithReplacementSampler
from torch import Tensor, nn
from torch.utils.data import BatchSampler

from fl_audit.app_audits.local_training.training_facts import BatchSamplingKind, History, MakePrivateCall, Noise
from fl_audit.array_types import Floats
from fl_audit.learning.stacked_layers import ParameterLayout
from fl_audit.mechanisms.likelihood_ratio import ReleaseUnderHypotheses
from fl_audit.mechanisms.noise_draws import number_of_directions, orthonormal_directions
from fl_audit.mechanisms.noises.registry import STANDARD_GAUSSIAN
from fl_audit.privacy.gaussian import combined_multiplier
from fl_audit.verdict.noise_measurement import NoiseMeasurer
from fl_audit.verdict.noise_statistics import NoiseStatistics

HEAD = 8
"""Number of coordinates of noise, from the first, that are kept to find copies."""
SAMPLE = 512
"""Number of coordinates of noise, from the first, that are kept to test their distribution."""
_FEW_SEEDS = 2**32  # seeds that somebody who sees a release can try one by one
_BEFORE_WORDS, _WORDS = 24, 624  # bytes of a generator's state before its words, and number of these
_MOST_BLOCKS = 5000  # of 624 draws each, after which a state is searched
_PROBED = 64  # records of the batches for which an adaptive norm is asked how it follows a count
_MOST_ROWS = 5_000_000  # most numbers of per-record gradients that are stored of a step
_COUPLED = (nn.modules.batchnorm._BatchNorm,)


def named_tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Return pairs of name and tensor for the parameters and buffers of a module."""
    return [*module.named_parameters(), *module.named_buffers()]


def are_same(tensors: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    """Return True if every tensor of `tensors` is in `right` under the same name and with equal values."""
    return all(
        name in right and torch.equal(value.to(right[name].dtype), right[name]) for name, value in tensors.items()
    )


def digest(value: Tensor) -> bytes:
    """Return the SHA-256 digest of a tensor's values."""
    return sha256(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data).digest()


def count_of(dataset: Any) -> int:
    """Return the number of records of a data set; 0 if it has no length."""
    return len(dataset) if hasattr(dataset, "__len__") else 0


def inner_sampler(sampler: Any) -> Any:
    """Return the sampler that draws whole mini-batches.

    It is `sampler` itself, unless Opacus's `BatchMemoryManager` has wrapped another sampler to split its mini-batches.
    """
    return inner_sampler(sampler.sampler) if isinstance(sampler, BatchSplittingSampler) else sampler


def is_part(sampler: Any) -> bool:
    """Return True if `BatchMemoryManager` has just drawn a part of a mini-batch, and further parts will follow."""
    if not isinstance(sampler, BatchSplittingSampler):
        return False
    return bool(sampler.optimizer._step_skip_queue and sampler.optimizer._step_skip_queue[-1])


def sampling_of(sampler: Any) -> BatchSamplingKind:
    """Return how a sampler draws mini-batches: Poisson samples, fixed sizes, or unknown (OTHER)."""
    match inner_sampler(sampler):
        case UniformWithReplacementSampler() | DistributedUniformWithReplacementSampler():
            return BatchSamplingKind.POISSON
        case BatchSampler():
            return BatchSamplingKind.FIXED
        case _:
            return BatchSamplingKind.OTHER


def history_of(accountant: Any) -> History:
    """Return the history of an accountant, (noise multiplier, sampling rate, steps) per entry; () if it has none."""
    entries = getattr(accountant, "history", None) or ()
    return tuple((float(noise), float(rate), int(steps)) for noise, rate, steps in entries)


def coupled_layers(module: nn.Module) -> tuple[str, ...]:
    """Return the names and types of the layers that mix the records of a mini-batch in their present mode.

    They are the batch normalisation layers, except those with fixed statistics, e.g. a frozen layer in evaluation mode.
    """
    inner = module._module if isinstance(module, GradSampleModule) else module
    return tuple(
        f"{name} ({type(layer).__name__})"
        for name, layer in inner.named_modules()
        if isinstance(layer, _COUPLED) and (layer.training or layer.running_mean is None)
    )


def multiplier_of(optimizer: DPOptimizer) -> float:
    """Return the noise multiplier of everything that a step of the optimizer releases together.

    With adaptive clipping, a step releases a sum of gradients and a count of gradients within the clipping norm. Before
    Opacus's pull request 807, `optimizer.noise_multiplier` is that of the sum alone. Since then it is meant for the
    whole step, and `add_noise` derives the noise of the sum from it. This derivation assumes that a record changes the
    count by one half (Andrew et al. 2021, theorem 1).
    """
    multiplier, of_count = float(optimizer.noise_multiplier), count_multiplier_of(optimizer)
    if of_count is None or multiplier <= 0:
        return multiplier
    if of_count <= 0:
        return 0.0
    if "noise_multiplier" in type(optimizer).add_noise.__code__.co_names:
        multiplier = (multiplier**-2 - (2 * float(optimizer.unclipped_num_std)) ** -2) ** -0.5
    return combined_multiplier(multiplier, of_count)


def count_multiplier_of(optimizer: DPOptimizer) -> float | None:
    """Return the noise multiplier of the count that adaptive clipping releases; None if clipping is not adaptive."""
    if not isinstance(optimizer, AdaClipDPOptimizer):
        return None
    return float(optimizer.unclipped_num_std) / _moved_count(optimizer)


def _moved_count(optimizer: AdaClipDPOptimizer) -> float:
    """Return the sensitivity of the count of gradients within the norm, which adaptive clipping releases.

    The sensitivity is at least one half. If Opacus divides the count by the size of the sample, the sensitivity can be
    larger, because one record changes this size, too.
    """

    def told(count: int, size: int) -> float:
        probe = SimpleNamespace(**vars(optimizer))
        probe.max_grad_norm, probe.min_clipbound, probe.max_clipbound = 1.0, 0.0, math.inf
        probe.unclipped_num, probe.sample_size = torch.tensor(float(count), dtype=torch.float64), size
        type(optimizer).update_max_grad_norm(probe)
        return math.log(float(probe.max_grad_norm))

    size, half = _PROBED, 0.5
    # The noise on the count reaches the norm by this factor.
    unit = abs(told(1, size) - told(0, size))
    if unit == 0:  # a norm that does not follow the count tells nothing of it
        return half
    is_within, is_clipped = told(1, size) - told(0, size - 1), told(size - 1, size) - told(size - 1, size - 1)
    return max(half, abs(is_within) / unit, abs(is_clipped) / unit)


def noise_of(optimizer: DPOptimizer, start_seed: int = 0) -> tuple[Noise | None, Any, tuple[int, ...]]:
    """Read the noise of an optimizer's last step; return it with the sum of clipped gradients and the sizes of tensors.

    `start_seed` is the seed of torch's generator before the training.
    The sum, float64 (parameters,), does not contain the noise. The size of a tensor is its number of entries. The
    result is (None, None, ()) if there is no gradient.
    """
    segments, sums, shapes = [], [], list[tuple[int, ...]]()
    share = 1.0
    if optimizer.loss_reduction == "mean" and optimizer.expected_batch_size:
        share = float(optimizer.expected_batch_size * optimizer.accumulated_iterations)
    for param in optimizer.params:
        if getattr(param, "summed_grad", None) is None or param.grad is None:
            continue
        total = param.summed_grad.detach().double().reshape(-1)
        segments.append(param.grad.detach().double().reshape(-1) * share - total)
        sums.append(total)
        shapes.append(tuple(param.shape))
    if not segments:
        return None, None, ()
    noise = torch.cat(segments).cpu().numpy()
    source = torch.default_generator if optimizer.generator is None else optimizer.generator
    seed = source.initial_seed()
    # The noise is rounded in units of the claimed scale. Otherwise small noise, as for a tiny norm, would round to 0.
    scale = float(optimizer.noise_multiplier * optimizer.max_grad_norm) or 1.0
    head = tuple(np.round(noise[:HEAD] / scale, 5).tolist())
    whole = torch.cat(sums).cpu().numpy()
    shapes_of_tensors = tuple(shapes)
    recorded_noise = Noise(
        noise.size,
        float((noise**2).sum()),
        head,
        noise[:SAMPLE].copy(),
        int(seed),
        seed != start_seed and is_predictable(source),
        shapes_of_tensors,
        statistics_of(noise, whole, shapes_of_tensors),
    )
    return recorded_noise, whole, tuple(sum_values.numel() for sum_values in sums)


def is_predictable(source: torch.Generator) -> bool:
    """Return True if a generator's state comes from a seed that others can try, within its first three million draws.

    The seed alone does not tell, since the state may have been set afterwards.
    """
    seed = source.initial_seed()
    if seed >= _FEW_SEEDS and seed != torch.Generator().initial_seed():
        return False
    if source.device.type != "cpu":
        return True
    again, block = torch.Generator().manual_seed(seed), torch.empty(_WORDS, dtype=torch.int32)
    words = _words_of(source)
    for _ in range(_MOST_BLOCKS):
        if torch.equal(_words_of(again), words):
            return True
        block.random_(generator=again)
    return False


def _words_of(source: torch.Generator) -> Tensor:
    """Return the words of a Mersenne Twister's state, which change once in 624 draws."""
    return source.get_state()[_BEFORE_WORDS : _BEFORE_WORDS + 8 * _WORDS].clone()


def put_release(optimizer: DPOptimizer, number: int, norm: float) -> None:
    """Put public random numbers in the place of the gradients that a step releases, and of an adaptive norm."""
    source = torch.Generator().manual_seed(number)
    expected = (optimizer.expected_batch_size or 1) * optimizer.accumulated_iterations
    scale = norm * (float(optimizer.noise_multiplier) or 1.0) / expected
    for param in optimizer.params:
        param.grad = (scale * torch.randn(param.shape, generator=source)).to(param)
    if isinstance(optimizer, AdaClipDPOptimizer):
        optimizer.max_grad_norm = norm


def record_gradients_of(optimizer: DPOptimizer, is_kept: bool) -> tuple[int | None, Any]:
    """Return the number of per-record gradients of an optimizer's next step, and the gradients before clipping.

    The number is None if Opacus has no per-record gradients. The gradients, float64 (rows, parameters), are None if
    they are not wanted, or if there are more than five million numbers.
    """
    with suppress(Exception):  # modes without gradients of single records
        tensors = [value.detach() for value in optimizer.grad_samples]
        rows = len(tensors[0])
        if not is_kept or sum(value.numel() for value in tensors) > _MOST_ROWS:
            return rows, None
        flat = torch.cat([value.reshape(rows, -1) for value in tensors], dim=1)
        return rows, flat.double().cpu().numpy().copy()
    return None, None


def positions_of(indices: Any) -> list[int] | None:
    """Return the positions in the data set that a sampler drew; None if it drew no integers, e.g. for a stream."""
    if not isinstance(indices, Iterable) or isinstance(indices, Mapping):
        return None
    try:
        return [index(record_index) for record_index in indices]
    except TypeError:
        return None


def make_private_call(
    engine: Any, request: Mapping[str, Any], returned: tuple[Any, ...], target: tuple[float, float] | None
) -> MakePrivateCall:
    """Return the facts of a call of Opacus's `PrivacyEngine.make_private`."""
    loader, optimizer, loader_given, norms = returned[-1], returned[1], request["data_loader"], request["max_grad_norm"]
    sampler = getattr(loader, "batch_sampler", None) or getattr(loader, "sampler", None)
    return MakePrivateCall(
        float(optimizer.noise_multiplier),
        tuple(map(float, norms)) if isinstance(norms, (list, tuple)) else (float(norms),),
        str(request.get("clipping", "flat")),
        bool(request.get("poisson_sampling", True)),
        sampling_of(sampler),
        type(inner_sampler(sampler)).__name__,
        1 / max(len(loader), 1),
        optimizer.expected_batch_size,
        len(loader.dataset),
        len(loader),
        loader_given.batch_size,
        bool(loader_given.drop_last),
        str(engine.accountant.mechanism()),
        history_of(engine.accountant),
        target,
    )


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
