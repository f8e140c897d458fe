"""Values read from Opacus and torch objects: samplers, accountants, layers, and the noise of a step."""

import math
from collections.abc import Mapping
from hashlib import sha256
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

from fl_audit.local_training.training_facts import History, Noise, Sampling
from fl_audit.privacy.gaussian import combined_multiplier

_HEAD, _SAMPLE = 8, 512  # coordinates of noise that are kept: to find copies, and to test their distribution
_PROBED = 64  # records of the batches for which an adaptive norm is asked how it follows a count
_COUPLED = (nn.modules.batchnorm._BatchNorm,)


def named_tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Return the parameters and buffers of a module with their names."""
    return [*module.named_parameters(), *module.named_buffers()]


def are_same(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    """Return whether all tensors of `left` are in `right` with the same values.

    Parameters
    ----------
    left
        Tensors by name.
    right
        Tensors by name, which may contain further ones.
    """
    return all(name in right and torch.equal(value.to(right[name].dtype), right[name]) for name, value in left.items())


def digest(value: Tensor) -> bytes:
    """Return the SHA-256 digest of a tensor's values."""
    return sha256(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data).digest()


def count_of(dataset: Any) -> int:
    """Return the number of records of a data set; 0 if it is unknown."""
    return len(dataset) if hasattr(dataset, "__len__") else 0


def inner_sampler(sampler: Any) -> Any:
    """Return the sampler of whole mini-batches, which `BatchMemoryManager` may have wrapped."""
    return inner_sampler(sampler.sampler) if isinstance(sampler, BatchSplittingSampler) else sampler


def is_part(sampler: Any) -> bool:
    """Return whether the microbatch that was just drawn is followed by others of the same mini-batch."""
    if not isinstance(sampler, BatchSplittingSampler):
        return False
    return bool(sampler.optimizer._step_skip_queue and sampler.optimizer._step_skip_queue[-1])


def sampling_of(sampler: Any) -> Sampling:
    """Return the kind of sampling of a sampler."""
    match inner_sampler(sampler):
        case UniformWithReplacementSampler() | DistributedUniformWithReplacementSampler():
            return Sampling.POISSON
        case BatchSampler():
            return Sampling.FIXED
        case _:
            return Sampling.OTHER


def history_of(accountant: Any) -> History:
    """Return the history of an accountant: (noise multiplier, sampling rate, steps) per entry; empty if it has none."""
    entries = getattr(accountant, "history", None) or ()
    return tuple((float(noise), float(rate), int(steps)) for noise, rate, steps in entries)


def coupled_layers(module: nn.Module) -> tuple[str, ...]:
    """Return the layers of a model that mix the records of a mini-batch in their present mode.

    Batch normalisation with fixed statistics, e.g. of a frozen layer in evaluation mode, does not.
    """
    inner = module._module if isinstance(module, GradSampleModule) else module
    return tuple(
        f"{name} ({type(one).__name__})"
        for name, one in inner.named_modules()
        if isinstance(one, _COUPLED) and (one.training or one.running_mean is None)
    )


def multiplier_of(optimizer: DPOptimizer) -> float:
    """Return the effective noise multiplier of everything that a step releases.

    With adaptive clipping, a step releases the sum of gradients and a count. In `AdaClipDPOptimizer`, before Opacus's
    pull request 807, `optimizer.noise_multiplier`, which the accountant counts, is that of the sum alone. Since then
    `add_noise` derives the noise of the sum from it, as if a record changed the count by one half (Andrew et al. 2021,
    theorem 1).
    """
    told, of_count = float(optimizer.noise_multiplier), count_multiplier_of(optimizer)
    if of_count is None or told <= 0:
        return told
    if of_count <= 0:
        return 0.0
    if "noise_multiplier" in type(optimizer).add_noise.__code__.co_names:
        told = (told**-2 - (2 * float(optimizer.unclipped_num_std)) ** -2) ** -0.5
    return combined_multiplier(told, of_count)


def count_multiplier_of(optimizer: DPOptimizer) -> float | None:
    """Return the noise multiplier of the count behind adaptive clipping; None if clipping is not adaptive."""
    if not isinstance(optimizer, AdaClipDPOptimizer):
        return None
    return float(optimizer.unclipped_num_std) / _moved_count(optimizer)


def _moved_count(optimizer: AdaClipDPOptimizer) -> float:
    """Return the sensitivity of the count behind adaptive clipping: the largest change by one record.

    The optimizer is called with counts of mini-batches with and without one record. If bits minus one half are divided
    by a public number, the sensitivity is one half. Opacus divides by the size of the sample, which the record changes:
    for B of n gradients within the norm, the count changes by (n - B) / (n - 1) or B / (n - 1), which is up to 1.
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


def noise_of(optimizer: DPOptimizer) -> tuple[Noise | None, Any, tuple[int, ...]]:
    """Return the noise of the last step, the sum of clipped gradients without it, and the sizes of the tensors."""
    parts, sums = [], []
    share = 1.0
    if optimizer.loss_reduction == "mean" and optimizer.expected_batch_size:
        share = float(optimizer.expected_batch_size * optimizer.accumulated_iterations)
    for one in optimizer.params:
        if getattr(one, "summed_grad", None) is None or one.grad is None:
            continue
        total = one.summed_grad.detach().double().reshape(-1)
        parts.append(one.grad.detach().double().reshape(-1) * share - total)
        sums.append(total)
    if not parts:
        return None, None, ()
    noise, seed = torch.cat(parts).cpu().numpy(), torch.initial_seed()
    if optimizer.generator is not None:
        seed = optimizer.generator.initial_seed()
    # In units of the claimed scale: noise for a tiny clipping norm is not equal because it is small.
    scale = float(optimizer.noise_multiplier * optimizer.max_grad_norm) or 1.0
    head = tuple(np.round(noise[:_HEAD] / scale, 5).tolist())
    found = Noise(noise.size, float((noise**2).sum()), head, noise[:_SAMPLE].copy(), int(seed))
    return found, torch.cat(sums).cpu().numpy(), tuple(one.numel() for one in sums)
