"""Servers that change noised sums after the noise, and others that look like it and break the guarantee.

A rule takes the noised sums of a round, float32 (trials, parameters), and the claimed standard deviation of the noise,
(trials, 1). Whatever it returns, epsilon is unchanged.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fl_audit.array_types import Floats
from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy
from fl_audit.trial_batches import TrialBatch

Rule = Callable[[Tensor, Tensor], Tensor]


def _on_a_grid(step: float) -> Rule:
    return lambda noised, sigma: torch.round(noised / (step * sigma)) * (step * sigma)


def _projected(noised: Tensor, sigma: Tensor) -> Tensor:
    """Scale each release to half of the length that the noise alone has on average."""
    length = noised.norm(dim=1, keepdim=True)
    return noised * (0.5 * sigma * noised.shape[1] ** 0.5 / length)


RULES: dict[str, Rule] = {
    "rounded to a thousandth of the noise": _on_a_grid(1e-3),
    "bfloat16": lambda noised, sigma: noised.bfloat16().float(),
    "float16": lambda noised, sigma: noised.half().float(),
    "clamped at 4 deviations": lambda noised, sigma: torch.maximum(torch.minimum(noised, 4 * sigma), -4 * sigma),
    "wrapped at 4 deviations": lambda noised, sigma: torch.remainder(noised + 4 * sigma, 8 * sigma) - 4 * sigma,
    "projected to a length": _projected,
    "small values set to 0": lambda noised, sigma: torch.where(noised.abs() < 0.1 * sigma, 0.0, noised),
}
"""The changes after correct noise that are played."""


def _column(sigma: Floats) -> Tensor:
    return torch.from_numpy(sigma).float().unsqueeze(1)


def with_rule(rule: Rule, share: float = 1.0) -> type[TrialBatchStrategy]:
    """Return a server that changes the noised sums by a rule, after a share of the claimed noise.

    Parameters
    ----------
    rule
        What it does to the noised sums.
    share
        Share of the claimed noise that it adds; with 1 the guarantee is kept.
    """

    class PostProcessing(TrialBatchStrategy):
        def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
            return rule(super().noise(batch, server_round, total, share * sigma), _column(sigma))

    return PostProcessing


class RoundedBySecret(TrialBatchStrategy):
    """A server that rounds the noised sums more coarsely with D'."""

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
        """Add the claimed noise, and round to a tenth of it with D' and to a hundredth with D."""
        members = torch.from_numpy(self.challenger.membership(batch.trials).bits)
        step = torch.where(members == 1, 0.01, 0.1).float()[:, None] * _column(sigma)
        return torch.round(super().noise(batch, server_round, total, sigma) / step) * step


class ClampedBefore(TrialBatchStrategy):
    """A server that clamps the sums before the noise, so that they are not those that are claimed."""

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
        """Clamp the sums at a tenth of the noise, and add the claimed noise."""
        limit = 0.01 * _column(sigma)
        return super().noise(batch, server_round, torch.maximum(torch.minimum(total, limit), -limit), sigma)


class TargetPushed(TrialBatchStrategy):
    """A server that rounds, and pushes the noised sums by what the secret says."""

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
        """Add the claimed noise and, with D, 5 deviations of it to all coordinates, and round to a thousandth."""
        members = torch.from_numpy(self.challenger.membership(batch.trials).bits).float()[:, None]
        noised = super().noise(batch, server_round, total, sigma) + members * _column(sigma)
        return RULES["rounded to a thousandth of the noise"](noised, _column(sigma))


class WithState(TrialBatchStrategy):
    """A server that carries what rounding left over into the next round, so that its step has a memory."""

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
        """Add the claimed noise and what was left over, and round to a hundredth of the noise."""
        left = vars(self).setdefault("left", {})
        noised = super().noise(batch, server_round, total, sigma) + left.get(batch.name, 0.0)
        rounded = _on_a_grid(0.01)(noised, _column(sigma))
        left[batch.name] = noised - rounded
        return rounded


class DitheredByTrial(TrialBatchStrategy):
    """A server that rounds each trial by a public offset of its own, which no secret decides."""

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
        """Add the claimed noise, and round to a hundredth of it, shifted by an offset that follows from the trial."""
        offsets = torch.tensor([number * 0.618 % 1 for number in batch.trials])[:, None]
        step = 0.01 * _column(sigma)
        return (torch.round(super().noise(batch, server_round, total, sigma) / step + offsets) - offsets) * step
