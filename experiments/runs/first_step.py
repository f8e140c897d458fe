"""What the first step of a training would do, found out before the run: numbers that 32 bits cannot hold are refused.

Models, gradients and noise are 32-bit floating-point numbers. A norm or a rate far from any useful value leaves their
range only once clients have begun to train, where all that can be said is that a model is not finite.
"""

from collections.abc import Iterator, Sequence
from math import inf, isfinite, log10, sqrt
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from experiments.runs.config import PrivacySection, RunConfig, TrainingSection
from fl_audit.errors import InputError, require
from fl_audit.game.contributing import Moment, contributed, private_steps
from fl_audit.game.examples import Examples
from fl_audit.game.game import Game
from fl_audit.game.seen import View, refuse_blurred
from fl_audit.learning.optimizers import OptimizerKind, OptimizerState, inversion_error, step
from fl_audit.learning.private_training import private_updates
from fl_audit.learning.stacking import ParameterLayout
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.noise import InsideTraining

_LARGEST = float(torch.finfo(torch.float32).max)
_SMALLEST = float(torch.finfo(torch.float32).tiny) * 2**24
"""Under it the difference of two numbers of this size loses digits."""
_LARGEST_DRAW = 10.0  # no standard normal draw of any run is larger
_PROBED = 16
_USUAL_LOCAL_RATE = 0.1  # what a configuration has that leaves it out


def require_finite_steps(config: RunConfig, game: Game) -> None:
    """Refuse settings under which noise, model or gradients leave the range of 32-bit floating-point numbers.

    Parameters
    ----------
    config
        The configuration, whose keys the message names.
    game
        The game with its data and model; one step is made on a few records, on a model that is thrown away.

    Raises
    ------
    InputError
        If a number overflows or vanishes.
    """
    least, most = _noise_scales(game)
    if most > 0:
        levers = list(_noise_levers(config, game))
        said = "the standard deviation of the noise would be"
        require(most * _LARGEST_DRAW < _LARGEST, _too_large(f"{said} {most:.2g}", levers))
        require(least > _SMALLEST, _too_small(f"{said} {least:.2g}", levers))
    _check_sizes(config, game, most)
    _check_a_step(config, game, most)
    if game.public.view is View.MODEL and (game.public.with_insider or game.public.canaries):
        _check_inversion(game, most)


def _noise_scales(game: Game) -> tuple[float, float]:
    """Return the smallest and the largest standard deviation of the noise; of both 0 without noise."""
    law = game.public.law
    if not law.adds_noise:
        return 0.0, 0.0
    if isinstance(law.noise, InsideTraining):
        # A server adds none: what the steps of the clients add up to, of the fewest and of the most of them.
        sizes, steps = [len(shard) for shard in game.shards], private_steps(law)
        spread = [sqrt(steps.update_variance(records)) for records in sizes]
        return min(spread), sqrt(sum(one**2 for one in spread))
    with np.errstate(over="ignore"):
        least, most = law.server_scale(np.array([0.0, law.global_sensitivity]))
    return float(least), float(most)


def _check_sizes(config: RunConfig, game: Game, noise: float) -> None:
    law, rate = game.public.law, config.training.learning_rate
    require(
        _SMALLEST < rate < _LARGEST,
        f"learning-rate is {rate:.6g}: accepted are {_SMALLEST:.1e} to {_LARGEST:.1e}, the range of 32-bit numbers",
    )
    levers = list(_step_levers(config, game))
    if config.training.optimizer is OptimizerKind.ADAM:
        gradient = noise * _LARGEST_DRAW / law.denominator
        said = f"Adam would square a noised mean gradient of about {gradient:.2g}"
        require(gradient < sqrt(_LARGEST), _too_large(said, levers[1:] or levers))
        return
    moved = rate * noise * _LARGEST_DRAW / law.denominator * _growth(game)
    said = f"noise would move a weight by up to {moved:.2g} in {game.public.rounds} rounds"
    require(moved < _LARGEST, _too_large(said, levers))


def _check_a_step(config: RunConfig, game: Game, noise: float) -> None:
    """Make one step as the server would, and see whether gradients and model are finite before and after it."""
    law, examples = game.public.law, _largest_examples(game)
    template = game.model.template
    models = ParameterLayout.of(template).flatten(dict(template.named_parameters())).unsqueeze(0)
    models = models.to(examples.features.device)
    total = _contribution(game, models, examples)
    if not _is_finite(game, models, examples, total):
        largest = float(examples.features.abs().max())
        raise InputError(
            f"the gradients of the model are not finite before any training; the largest feature is {largest:.3g}: "
            "accepted are features and models that 32-bit floating-point numbers can hold, so scale the features"
        )
    source = torch.Generator().manual_seed(0)
    draws = torch.randn(models.shape, generator=source).to(models.device)
    moved, _ = step(law.optimizer, models, total + noise * draws, OptimizerState(), law.denominator)
    size = float((moved - models).abs().max())
    for steps, when in ((1.0, "the first step"), (_growth(game), f"{game.public.rounds} steps like the first")):
        there = models + steps * (moved - models)
        said = f"{when} would move a weight by {steps * size:.2g}, where losses or gradients overflow"
        is_finite = _is_finite(game, there, examples, _contribution(game, there, examples))
        require(is_finite, _too_large(said, list(_step_levers(config, game))))


def _contribution(game: Game, models: Tensor, examples: Examples) -> Tensor:
    if not game.public.law.weighs_exactly:
        return _trained(game, models, examples)
    return contributed(game, game.victim, examples, models, Moment(1, _norms(game, models))).total


def _trained(game: Game, models: Tensor, examples: Examples) -> Tensor:
    """Return what private training on a few records leads to, with draws that are thrown away."""
    steps, source = private_steps(game.public.law), np.random.default_rng(0)
    return private_updates(game.model, models, examples.features, examples.labels, steps, [source]).updates


def _norms(game: Game, models: Tensor) -> Tensor | None:
    law = game.public.law
    return torch.full((len(models),), law.clipping_norm, dtype=torch.float64) if law.is_adaptive else None


def _growth(game: Game) -> float:
    """Return how many times farther than by the first step a model may get in all rounds."""
    optimizer = game.public.law.optimizer
    kept = optimizer.momentum if optimizer.kind is OptimizerKind.MOMENTUM else 0.0
    return game.public.rounds / (1 - kept)


def _largest_examples(game: Game) -> Examples:
    """Return the few examples with the largest features: where they overflow nothing, none does."""
    sizes = game.training.features.abs().flatten(1).amax(1)
    chosen = sizes.topk(min(_PROBED, len(sizes))).indices.cpu().numpy()
    return game.training.take(chosen)


def _is_finite(game: Game, models: Tensor, examples: Examples, total: Tensor) -> bool:
    return bool(torch.isfinite(total).all()) and bool(np.isfinite(game.losses(models, examples)).all())


def _check_inversion(game: Game, noise: float) -> None:
    """Refuse a view of models whose rounding hides the release even where the noise is largest."""
    law, template = game.public.law, game.model.template
    models = ParameterLayout.of(template).flatten(dict(template.named_parameters())).unsqueeze(0)
    if isinstance(law.noise, InsideTraining):
        return
    # The insider, who knows the noise of every round, refuses by the same rule.
    refuse_blurred(inversion_error(law.optimizer, models, law.denominator).numpy() / noise)


class _Lever(NamedTuple):
    """A setting on which a size depends: what to call it, its value, and its orders of magnitude from the usual one."""

    name: str
    value: float
    orders: float


def _too_large(said: str, levers: Sequence[_Lever]) -> str:
    name, value, _ = max(levers, key=lambda lever: lever.orders)
    return (
        f"{said}, and 32-bit floating-point numbers end at {_LARGEST:.1e}: accepted for {name}, which is {value:.6g}, "
        "are smaller numbers"
    )


def _too_small(said: str, levers: Sequence[_Lever]) -> str:
    name, value, _ = min(levers, key=lambda lever: lever.orders)
    return (
        f"{said}, and 32-bit floating-point numbers have all their digits only from {_SMALLEST:.1e}: accepted for "
        f"{name}, which is {value:.6g}, are larger numbers"
    )


def _step_levers(config: RunConfig, game: Game) -> Iterator[_Lever]:
    """Yield what decides how far a step goes."""
    usual = float(TrainingSection.model_fields["learning_rate"].default)
    rate = config.training.learning_rate
    yield _Lever("learning-rate in [training]", rate, _orders(rate / usual))
    yield from _noise_levers(config, game)


def _noise_levers(config: RunConfig, game: Game) -> Iterator[_Lever]:
    """Yield what decides how large the noise is: the clipping norm, and what the noise multiplier follows from."""
    privacy, noise = config.privacy, game.public.law.noise_multiplier
    if not privacy.private:
        return
    usual = float(PrivacySection.model_fields["clipping_norm"].default)
    if isinstance(game.public.law.contribution, PrivateTraining):
        local = game.public.law.contribution.schedule.learning_rate
        yield _Lever("local-learning-rate in [training]", local, _orders(local / _USUAL_LOCAL_RATE))
    yield _Lever("clipping-norm in [privacy]", privacy.clipping_norm, _orders(privacy.clipping_norm / usual))
    if privacy.noise_multiplier is None:
        yield _Lever("the noise multiplier that the promise in [privacy] asks for", noise, _orders(noise))
    else:
        yield _Lever("noise-multiplier in [privacy]", noise, _orders(noise))


def _orders(ratio: float) -> float:
    if not isfinite(ratio):
        return inf
    return -inf if ratio == 0 else log10(ratio)
