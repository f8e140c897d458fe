"""Tell whether a server's step adds noise to sums, by steps with sums that are moved by known amounts.

A step that adds noise moves its releases as the sums move, whatever noise it draws, and its values lie on no grid. One
that rounds, clamps, scales or projects the noised sums does not. The noise need not be the same in every step, so a
server may draw it from a source that nobody else can repeat.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fl_audit.array_types import Floats
from fl_audit.randomness import Purpose, generator
from fl_audit.trial_batches import TrialBatch

_FAR = 1000.0  # standard deviations of the noise by which sums are moved at least, at random in either direction
_NOISE = 30.0  # standard deviations of the claimed noise that the noise of one value never exceeds
_VALUES, _MOST_STEPS = 1024, 32  # values of a trial that are searched for equal ones, and steps that are made for them
_EQUAL = 0.02  # largest share of values that may be equal to another one; of 32-bit numbers about one in 10,000 is
_FEW_DIGITS = 0.5  # largest share of values that may have zeros at the end; of random numbers 1 in 256 has


def is_sum_with_noise(
    step: Callable[[Tensor], Tensor], batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats
) -> bool:
    """Return whether a step adds noise to sums, and does nothing else to them that can be seen.

    Parameters
    ----------
    step
        The server's step from sums to releases, both float32 (trials, parameters). It is called several times.
    batch
        Batch of trials.
    server_round
        Number of the round, from 1.
    total
        Sums before noise, float32 (trials, parameters).
    sigma
        Claimed standard deviation of the noise, (trials,).
    """
    draw = generator(0, Purpose.EXACT_CHECKS, trial=batch.first, round=server_round)
    scale = torch.from_numpy(sigma).double().unsqueeze(1)

    def uniform() -> Tensor:
        return torch.from_numpy(draw.uniform(0.0, 1.0, tuple(total.shape)))

    signs = torch.where(uniform() < 0.5, -1.0, 1.0)
    far = signs * (1 + uniform()) * _FAR * scale
    steps = max(1, min(_MOST_STEPS, math.ceil(_VALUES / total.shape[1])))
    try:
        moved = step((total + far).float()).double() - total
        near = torch.cat([step(((2 * uniform() - 1) * scale).float()) for _ in range(steps)], dim=1)
    except Exception:  # a step of somebody else may refuse sums that were not sent
        return False
    factor = float((moved * far).sum() / far.square().sum())
    allowed = _NOISE / (_FAR * math.sqrt(far.numel())) + 1e-5
    is_moved = abs(factor - 1) <= allowed and bool(((moved - far).abs() <= _NOISE * scale).all())
    # Steps with the same noise give equal values in one place if the sums themselves are rounded before the noise.
    tensor = torch.arange(total.numel()).reshape(total.shape).repeat(1, steps)
    in_trials = _share_of_equal(near[:, :_VALUES], tensor[:, :_VALUES])
    is_fine = max(in_trials, _share_of_equal(near.reshape(1, -1), tensor.reshape(1, -1))) <= _EQUAL
    return is_moved and is_fine and not _has_few_digits(near)


def _share_of_equal(values: Tensor, tensor: Tensor) -> float:
    """Return the share of values that are equal to the next larger one of their row, in another place.

    Shapes: `values` and `tensor` (rows, values).
    """
    if values.shape[1] > 8 * _VALUES:
        columns_tried = slice(None, None, -(-values.shape[1] // (8 * _VALUES)))
        values, tensor = values[:, columns_tried], tensor[:, columns_tried]
    if values.shape[1] < 2:
        return 0.0
    ordered = values.sort(dim=1)
    at = tensor.gather(1, ordered.indices)
    is_equal = (ordered.values[:, 1:] == ordered.values[:, :-1]) & (at[:, 1:] != at[:, :-1])
    return float(is_equal.double().mean())


def _has_few_digits(values: Tensor) -> bool:
    """Return whether most values have zeros in the last 8 of the 23 bits of their mantissa, as 16-bit numbers have."""
    return float(((values.float().view(torch.int32) & 0xFF) == 0).double().mean()) > _FEW_DIGITS
