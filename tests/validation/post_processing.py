"""Servers that change noised sums or models after the noise, and others that look like it and break the guarantee.

A rule takes the noised sums of a round, float32 (trials, parameters), and the claimed standard deviation of the noise,
(trials, 1). Whatever it returns, epsilon is unchanged.
"""

from collections.abc import Callable, Mapping

import numpy as np
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

    With a share of 1 the guarantee is kept.
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
        remainders = vars(self).setdefault("left", {})
        noised = super().noise(batch, server_round, total, sigma) + remainders.get(batch.name, 0.0)
        rounded = _on_a_grid(0.01)(noised, _column(sigma))
        remainders[batch.name] = noised - rounded
        return rounded


class DitheredByTrial(TrialBatchStrategy):
    """A server that rounds each trial by a public offset of its own, which no secret decides."""

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
        """Add the claimed noise, and round to a hundredth of it, shifted by an offset that follows from the trial."""
        offsets = torch.tensor([number * 0.618 % 1 for number in batch.trials])[:, None]
        step = 0.01 * _column(sigma)
        return (torch.round(super().noise(batch, server_round, total, sigma) / step + offsets) - offsets) * step


def _scale_of(strategy: TrialBatchStrategy) -> Tensor:
    """Return a public length beside which the noise of a round is small, (1, 1)."""
    mechanism = strategy.federation.mechanism
    return torch.tensor([[mechanism.clipping_norm * max(mechanism.noise_multiplier, 0.1)]])


def changing_sums(rule: Rule, base: type[TrialBatchStrategy] = TrialBatchStrategy) -> type[TrialBatchStrategy]:
    """Return a server that changes the noised sums by a rule in `post_process_sums`.

    `base` is the server that makes the noised sums.
    """

    class ChangingSums(base):  # type: ignore[misc, valid-type]
        def post_process_sums(self, batch: TrialBatch, server_round: int, noised: Tensor) -> Tensor:
            return rule(noised, _scale_of(self))

    return ChangingSums


def changing_models(
    rule: Callable[[Tensor], Tensor], base: type[TrialBatchStrategy] = TrialBatchStrategy
) -> type[TrialBatchStrategy]:
    """Return a server that changes the models after the optimizer's step by a rule in `post_process_models`.

    `base` is the server that makes the noised sums; models are float32, (trials, parameters).
    """

    class ChangingModels(base):  # type: ignore[misc, valid-type]
        def post_process_models(self, batch: TrialBatch, server_round: int, models: Tensor) -> Tensor:
            return rule(models)

    return ChangingModels


MODEL_RULES: dict[str, Callable[[Tensor], Tensor]] = {
    "bfloat16": lambda models: models.bfloat16().float(),
    "rounded": lambda models: torch.round(models * 100) / 100,
    "clamped": lambda models: models.clamp(-0.5, 0.5),
    "shrunk": lambda models: 0.9 * models,
}
"""The changes of models after the optimizer's step that are played."""

Source = Callable[[TrialBatchStrategy, TrialBatch, int, Tensor], Tensor]
"""Function from a server, a batch, a round and the sums to standard normal noise of the sums' shape."""
_MODULE = np.random.default_rng(5)


def _keyed(strategy: TrialBatchStrategy, batch: TrialBatch, number: int, total: Tensor) -> Tensor:
    normals = [
        np.random.default_rng((strategy.challenger.seed, 77, trial, number)).standard_normal(total.shape[1])
        for trial in batch.trials
    ]
    return torch.from_numpy(np.stack(normals)).float()


def _attribute(strategy: TrialBatchStrategy, batch: TrialBatch, number: int, total: Tensor) -> Tensor:
    source = vars(strategy).setdefault("source", torch.Generator().manual_seed(strategy.challenger.seed % 2**62))
    return torch.randn(total.shape, generator=source)


SOURCES: dict[str, Source] = {
    "keyed by the secret seed": _keyed,
    "a generator of the server": _attribute,
    "a generator of the module": lambda strategy, batch, number, total: torch.from_numpy(
        _MODULE.standard_normal(tuple(total.shape), dtype=np.float32)
    ),
    "new generators": lambda strategy, batch, number, total: torch.from_numpy(
        np.random.default_rng().standard_normal(tuple(total.shape), dtype=np.float32)
    ),
    "the generator of torch": lambda strategy, batch, number, total: torch.randn(total.shape),
}
"""Source of the noise of a server that does not call our `noise`."""


def with_noise_of(source: Source, share: float = 1.0, rule: Rule | None = None) -> type[TrialBatchStrategy]:
    """Return a server that draws the noise elsewhere, and changes the noised sums in the same step.

    It adds that share of the claimed noise; with 1 the guarantee is kept. Without a rule the sums stay.
    """

    class NoiseOfItsOwn(TrialBatchStrategy):
        def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
            noised = total + share * _column(sigma) * source(self, batch, server_round, total)
            return noised if rule is None else rule(noised, _column(sigma))

    return NoiseOfItsOwn


def _at_random(noised: Tensor, step: Tensor, uniforms: Tensor) -> Tensor:
    """Round each value up or down at random, so that its mean stays."""
    return torch.floor(noised / step + uniforms) * step


def rounding_at_random(rounding_kind: str, share: float = 1.0) -> type[TrialBatchStrategy]:
    """Return a server that rounds the noised sums up or down at random, to a hundredth of the noise.

    `place` is a key of `RANDOM_ROUNDING`: where it rounds, and where its random numbers come from. It adds that share
    of the claimed noise; with 1 the guarantee is kept.
    """
    return RANDOM_ROUNDING[rounding_kind](share)


def _rounding_in_noise(share: float, is_repeatable: bool) -> type[TrialBatchStrategy]:
    class RoundingInNoise(TrialBatchStrategy):
        def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
            shared_source = vars(self).setdefault("source", np.random.default_rng(self.challenger.seed))
            source = shared_source if is_repeatable else np.random.default_rng()
            noised = super().noise(batch, server_round, total, share * sigma)
            uniforms = torch.from_numpy(source.random(tuple(total.shape), dtype=np.float32))
            return _at_random(noised, 0.01 * _column(sigma), uniforms)

    return RoundingInNoise


def _rounding_afterwards(share: float) -> type[TrialBatchStrategy]:
    def rule(noised: Tensor, scale: Tensor) -> Tensor:
        uniforms = np.random.default_rng().random(tuple(noised.shape), dtype=np.float32)
        return _at_random(noised, 0.01 * scale, torch.from_numpy(uniforms))

    return changing_sums(rule, with_rule(lambda noised, sigma: noised, share))


RANDOM_ROUNDING: Mapping[str, Callable[[float], type[TrialBatchStrategy]]] = {
    "after our noise, by a generator of the server": lambda share: _rounding_in_noise(share, True),
    "after our noise, by new generators": lambda share: _rounding_in_noise(share, False),
    "in post_process_sums": _rounding_afterwards,
}
"""Places in which a server rounds at random."""


class ModelsOfTheSecret(TrialBatchStrategy):
    """A server that rounds the models more coarsely with D'."""

    def post_process_models(self, batch: TrialBatch, server_round: int, models: Tensor) -> Tensor:
        """Round to a hundredth with D' and to a thousandth with D."""
        members = torch.from_numpy(self.challenger.membership(batch.trials).bits)
        step = torch.where(members == 1, 0.001, 0.01).float()[:, None]
        return torch.round(models / step) * step


class SumsOfTheSecret(TrialBatchStrategy):
    """A server that rounds the sums that have noise more coarsely with D', whoever added it."""

    def post_process_sums(self, batch: TrialBatch, server_round: int, noised: Tensor) -> Tensor:
        """Round to a tenth of the noise with D' and to a hundredth with D."""
        members = torch.from_numpy(self.challenger.membership(batch.trials).bits)
        step = torch.where(members == 1, 0.01, 0.1).float()[:, None] * _scale_of(self)
        return torch.round(noised / step) * step
