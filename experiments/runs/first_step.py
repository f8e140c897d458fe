"""What the first step of a training would do, found out before the run: numbers that 32 bits cannot hold are refused.

Models, gradients and noise are 32-bit floating-point numbers. A norm or a rate far from any useful value leaves their
range only once clients have begun to train, where all that can be said is that a model is not finite.
"""

from collections.abc import Iterator
from math import inf, isfinite, log10, sqrt

import numpy as np
import torch
from torch import Tensor

from experiments.runs.config import PrivacySection, RunConfig, TrainingSection
from fl_audit.errors import InputError, require
from fl_audit.game import Examples, Game
from fl_audit.learning.layout import ParameterLayout
from fl_audit.learning.optimizers import OptimizerKind, OptimizerState, step

_LARGEST = float(torch.finfo(torch.float32).max)
_SMALLEST = float(torch.finfo(torch.float32).tiny) * 2**24
"""Under it the difference of two numbers of this size loses digits."""
_LARGEST_DRAW = 10.0
"""No standard normal draw of any run is larger."""
_PROBED = 16


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
        deviation = f"noise has a standard deviation of {most:.2g}"
        require(most * _LARGEST_DRAW < _LARGEST, _too_large(config, deviation))
        require(least > _SMALLEST, _too_small(config, f"noise has a standard deviation of {least:.2g}"))
    _check_sizes(config, game, most)
    _check_a_step(config, game, most)


def _noise_scales(game: Game) -> tuple[float, float]:
    """Return the smallest and the largest standard deviation of the noise; of both 0 without noise."""
    law = game.public.law
    if not law.has_noise:
        return 0.0, 0.0
    with np.errstate(over="ignore"):
        least, most = law.noise_scale(np.array([0.0, law.global_sensitivity]))
    return float(least), float(most)


def _check_sizes(config: RunConfig, game: Game, noise: float) -> None:
    law, rate = game.public.law, config.training.learning_rate
    for value, wrong in ((rate > _LARGEST, _too_large), (rate < _SMALLEST, _too_small)):
        require(not value, wrong(config, f"learning-rate is {rate:.2g}"))
    moved = rate * noise * _LARGEST_DRAW / law.denominator
    require(moved < _LARGEST, _too_large(config, f"the first step moves a weight by about {moved:.2g}"))
    if config.training.optimizer is OptimizerKind.ADAM:
        gradient = noise * _LARGEST_DRAW / law.denominator
        said = f"Adam squares a noised mean gradient of about {gradient:.2g}"
        require(gradient < sqrt(_LARGEST), _too_large(config, said))


def _check_a_step(config: RunConfig, game: Game, noise: float) -> None:
    """Make one step as the server would, and see whether gradients and model are finite before and after it."""
    law, examples = game.public.law, _largest_examples(game)
    template = game.model.template
    models = ParameterLayout.of(template).flatten(dict(template.named_parameters())).unsqueeze(0)
    models = models.to(examples.features.device)
    total = game.clipped_sum(models, examples)
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
    said = f"the first step moves a weight by about {size:.2g}, after which the model has no finite losses or gradients"
    require(_is_finite(game, moved, examples, game.clipped_sum(moved, examples)), _too_large(config, said))


def _largest_examples(game: Game) -> Examples:
    """Return the few examples with the largest features: where they overflow nothing, none does."""
    sizes = game.training.features.abs().flatten(1).amax(1)
    chosen = sizes.topk(min(_PROBED, len(sizes))).indices.cpu().numpy()
    return game.training.take(chosen)


def _is_finite(game: Game, models: Tensor, examples: Examples, total: Tensor) -> bool:
    return bool(torch.isfinite(total).all()) and bool(np.isfinite(game.losses(models, examples)).all())


def _too_large(config: RunConfig, said: str) -> str:
    name, value = max(_levers(config), key=lambda lever: lever[2])[:2]
    return (
        f"{said}, which 32-bit floating-point numbers up to {_LARGEST:.1e} cannot hold: accepted for {name}, which is "
        f"{value:.6g}, are smaller numbers"
    )


def _too_small(config: RunConfig, said: str) -> str:
    name, value = min(_levers(config), key=lambda lever: lever[2])[:2]
    return (
        f"{said}, which 32-bit floating-point numbers hold with all their digits only from {_SMALLEST:.1e}: accepted "
        f"for {name}, which is {value:.6g}, are larger numbers"
    )


def _levers(config: RunConfig) -> Iterator[tuple[str, float, float]]:
    """Yield the settings on which the size of a step depends: key, value, and orders of magnitude from the default."""
    usual_rate = float(TrainingSection.model_fields["learning_rate"].default)
    rate = config.training.learning_rate
    yield "learning-rate in [training]", rate, _orders(rate / usual_rate)
    if config.privacy.private:
        norm, usual_norm = config.privacy.clipping_norm, float(PrivacySection.model_fields["clipping_norm"].default)
        yield "clipping-norm in [privacy]", norm, _orders(norm / usual_norm)
    if config.privacy.noise_multiplier is not None:
        noise = config.privacy.noise_multiplier
        yield "noise-multiplier in [privacy]", noise, _orders(noise)


def _orders(ratio: float) -> float:
    if not isfinite(ratio):
        return inf
    return -inf if ratio == 0 else log10(ratio)
