"""Check before a run that its settings do not make 32-bit floating-point numbers overflow or underflow.

Models, gradients and noise are 32-bit floating-point numbers. The check makes one training step. Without it, an absurd
clipping norm or learning rate would stop the run later, with a message that names no setting.
"""

from collections.abc import Sequence
from math import inf, isfinite, log10, sqrt
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fl_audit.audits.audit import ReleaseQueryKind
from fl_audit.audits.registry import audit_of
from fl_audit.errors import InputError, require
from fl_audit.federation.contributions import RoundContext, contributed
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.local_dpsgd_likelihoods import rounding_of_update
from fl_audit.federation.local_dpsgd_updates import private_steps
from fl_audit.federation.observed_rounds import InsiderView, refuse_blurred, refuse_blurred_updates
from fl_audit.federation.record_tensors import Examples
from fl_audit.learning.optimizers import OptimizerState, ServerOptimizerKind, inversion_error, step
from fl_audit.learning.private_training import private_updates
from fl_audit.learning.stacked_layers import ParameterLayout
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin
from fl_audit.plurals import plural
from fl_audit.runs.config import PrivacySection, RunConfig, TrainingSection

_LARGEST = float(torch.finfo(torch.float32).max)
_SMALLEST = float(torch.finfo(torch.float32).tiny) * 2**24
"""Under it the difference of two numbers of this size loses digits."""
_LARGEST_DRAW = 10.0  # no standard normal draw of any run is larger
_PROBED = 16
_USUAL_LOCAL_RATE = 0.1  # default of a configuration that leaves it out


def require_finite_steps(config: RunConfig, federation: LoadedFederation) -> None:
    """Raise `InputError` if noise, models or gradients would overflow or underflow 32-bit floating-point numbers.

    The function makes one step on a few records, on a model that is discarded. It also raises `InputError` if rounding
    errors of the models would hide the noise and the contributions from an insider that sees only models.
    """
    public, (least, most) = federation.public, _noise_scales(federation)
    if most > 0:
        levers = _noise_levers(config, federation)
        said = "the standard deviation of the noise would be"
        require(most * _LARGEST_DRAW < _LARGEST, _too_large(f"{said} {most:.2g}", levers))
        name, value, _ = min(levers, key=lambda lever: lever.orders)
        require(
            least > _SMALLEST,
            f"{said} {least:.2g}, and 32-bit floating-point numbers have all their digits only from {_SMALLEST:.1e}: "
            f"accepted for {name}, which is {value:.6g}, are larger numbers",
        )
    _check_sizes(config, federation, most)
    template, device = federation.model.template, federation.training.features.device
    models = ParameterLayout.of(template).flatten(dict(template.named_parameters())).unsqueeze(0)
    _check_a_step(config, federation, most, models.to(device))
    # Refused is a view of models whose rounding hides the release even where the noise is largest. The insider, who
    # knows the noise of every round, refuses by the same rule.
    query = audit_of(public).query(public)
    is_told = public.view is InsiderView.MODEL and query is not ReleaseQueryKind.NOTHING
    if query is ReleaseQueryKind.LOG_ODDS and public.mechanism.noise.origin is NoiseOrigin.TRAINING:
        refuse_blurred_updates(rounding_of_update(models).numpy() / least)
    if is_told and public.mechanism.has_exact_llr:
        refuse_blurred(inversion_error(public.mechanism.optimizer, models, public.mechanism.denominator).numpy() / most)


def _noise_scales(federation: LoadedFederation) -> tuple[float, float]:
    """Return the smallest and largest standard deviation of the noise in a round; 0 without noise."""
    mechanism = federation.public.mechanism
    if not mechanism.adds_noise:
        return 0.0, 0.0
    if mechanism.noise.origin is NoiseOrigin.TRAINING:
        # A server adds none: what the steps of the clients add up to, of the fewest and of the most of them.
        sizes, steps = [len(shard) for shard in federation.shards], private_steps(mechanism)
        spread = [sqrt(steps.update_variance(records)) for records in sizes]
        return min(spread), sqrt(sum(one**2 for one in spread))
    with np.errstate(over="ignore"):
        least, most = mechanism.server_scale(np.array([0.0, mechanism.global_sensitivity]))
    return float(least), float(most)


def _check_sizes(config: RunConfig, federation: LoadedFederation, noise: float) -> None:
    mechanism, rate = federation.public.mechanism, config.training.learning_rate
    accepted = f"accepted are {_SMALLEST:.1e} to {_LARGEST:.1e}, the range of 32-bit numbers"
    require(_SMALLEST < rate < _LARGEST, f"learning-rate is {rate:.6g}: {accepted}")
    levers = _step_settings(config, federation)
    if config.training.optimizer is ServerOptimizerKind.ADAM:
        gradient = noise * _LARGEST_DRAW / mechanism.denominator
        said = f"Adam would square a noised mean gradient of about {gradient:.2g}"
        require(gradient < sqrt(_LARGEST), _too_large(said, levers[1:] or levers))
        return
    moved = rate * noise * _LARGEST_DRAW / mechanism.denominator * _growth(federation)
    said = f"noise would move a weight by up to {moved:.2g} in {plural(federation.public.rounds, 'round')}"
    require(moved < _LARGEST, _too_large(said, levers))


def _check_a_step(config: RunConfig, federation: LoadedFederation, noise: float, models: Tensor) -> None:
    """Raise `InputError` if gradients or losses overflow at the initial models, after one step, or after all steps."""
    mechanism, sizes = federation.public.mechanism, federation.training.features.abs().flatten(1).amax(1)
    # If the few examples with the largest features do not overflow, none does.
    examples = federation.training.take(sizes.topk(min(_PROBED, len(sizes))).indices.cpu().numpy())
    total = _contribution(federation, models, examples)
    if not _is_finite(federation, models, examples, total):
        largest = float(examples.features.abs().max())
        raise InputError(
            f"the gradients of the model are not finite before any training; the largest feature is {largest:.3g}: "
            "accepted are features and models that 32-bit floating-point numbers can hold, so scale the features"
        )
    source = torch.Generator().manual_seed(0)
    draws = torch.randn(models.shape, generator=source).to(models.device)
    moved, _ = step(mechanism.optimizer, models, total + noise * draws, OptimizerState(), mechanism.denominator)
    size = float((moved - models).abs().max())
    for steps, when in (
        (1.0, "the first step"),
        (_growth(federation), f"{plural(federation.public.rounds, 'step')} like the first"),
    ):
        there = models + steps * (moved - models)
        said = f"{when} would move a weight by {steps * size:.2g}, where losses or gradients overflow"
        is_finite = _is_finite(federation, there, examples, _contribution(federation, there, examples))
        require(is_finite, _too_large(said, _step_settings(config, federation)))


def _contribution(federation: LoadedFederation, models: Tensor, examples: Examples) -> Tensor:
    mechanism = federation.public.mechanism
    if isinstance(mechanism.contribution, PrivateTraining):
        # Private training on a few records, with draws that are thrown away.
        steps, source = private_steps(mechanism), np.random.default_rng(0)
        return private_updates(federation.model, models, examples.features, examples.labels, steps, [source]).updates
    norms = None
    if mechanism.is_adaptive:
        norms = torch.full((len(models),), mechanism.clipping_norm, dtype=torch.float64, device=models.device)
    return contributed(federation, federation.victim, examples, models, RoundContext(1, norms)).total


def _growth(federation: LoadedFederation) -> float:
    """Return a bound on the length of a model's path over all rounds, as a multiple of the first round's step."""
    optimizer = federation.public.mechanism.optimizer
    kept = optimizer.momentum if optimizer.kind is ServerOptimizerKind.MOMENTUM else 0.0
    return federation.public.rounds / (1 - kept)


def _is_finite(federation: LoadedFederation, models: Tensor, examples: Examples, total: Tensor) -> bool:
    return bool(torch.isfinite(total).all()) and bool(np.isfinite(federation.losses(models, examples)).all())


class _SuspectSetting(NamedTuple):
    """A setting that affects the size of steps or noise: its name in messages, its value, and a usual value."""

    name: str
    value: float
    usual: float = 1.0

    @property
    def orders(self) -> float:
        """By how many powers of ten the value exceeds the usual value: log10(value / usual), possibly infinite."""
        ratio = self.value / self.usual
        return inf if not isfinite(ratio) else -inf if ratio == 0 else log10(ratio)


def _too_large(said: str, levers: Sequence[_SuspectSetting]) -> str:
    name, value, _ = max(levers, key=lambda lever: lever.orders)
    return (
        f"{said}, and 32-bit floating-point numbers end at {_LARGEST:.1e}: accepted for {name}, which is {value:.6g}, "
        "are smaller numbers"
    )


def _step_settings(config: RunConfig, federation: LoadedFederation) -> list[_SuspectSetting]:
    """Return the settings that determine the length of a server step: learning rate, and settings of the noise."""
    usual = float(TrainingSection.model_fields["learning_rate"].default)
    rate = _SuspectSetting("learning-rate in [training]", config.training.learning_rate, usual)
    return [rate, *_noise_levers(config, federation)]


def _noise_levers(config: RunConfig, federation: LoadedFederation) -> list[_SuspectSetting]:
    """Return the settings that determine the noise; an empty list without a claim."""
    privacy, mechanism = config.privacy, federation.public.mechanism
    if not privacy.private:
        return []
    usual = float(PrivacySection.model_fields["clipping_norm"].default)
    asked = "the noise multiplier that the guarantee in [privacy] asks for"
    named = asked if privacy.noise_multiplier is None else "noise-multiplier in [privacy]"
    noise = _SuspectSetting(named, mechanism.noise_multiplier)
    found = [_SuspectSetting("clipping-norm in [privacy]", privacy.clipping_norm, usual), noise]
    if isinstance(mechanism.contribution, PrivateTraining):
        rate = mechanism.contribution.schedule.learning_rate
        found = [_SuspectSetting("local-learning-rate in [training]", rate, _USUAL_LOCAL_RATE), *found]
    return found
