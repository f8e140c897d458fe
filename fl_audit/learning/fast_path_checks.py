"""Tests of a model before its use: whether the fast way computes its gradients rightly."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fl_audit.learning.microbatching import ClippedSumPass, Microbatch
from fl_audit.learning.model_advice import refusal
from fl_audit.learning.model_checks import PROBE_EXAMPLES
from fl_audit.learning.model_failures import vmap_refusal
from fl_audit.learning.model_faults import ModelCheck, ModelFault
from fl_audit.learning.model_passes import ModelPasses
from fl_audit.learning.module_preparation import constants_of, without_hints
from fl_audit.learning.stacked_layers import backward_sums, is_plain, parameter_owners

_PROBE_TRIALS = 2
_ROUGHLY = 0.05
"""Largest relative distance of float32 sums at which a test in double precision decides about stacked layers."""
_BYTES = 4  # bytes of a scalar


def stacked_layers_agree(passes: ModelPasses, records: Tensor | None) -> bool:
    """Return whether stacked layers, which compute all trials at once, give the clipped sums of per-example gradients.

    Shapes: `records` (n, *shape).

    `passes`: If the result is False, its attribute `activations`, the number of scalars stored per example, is set.
    """
    source = seeded()
    models = _random_models(passes, _PROBE_TRIALS, source)
    features = torch.rand(PROBE_EXAMPLES, *passes.feature_shape, generator=source)
    microbatch = Microbatch(features, torch.zeros(PROBE_EXAMPLES, dtype=torch.int64))
    # The first call of `torch.func` imports torch's compiler: seconds in every process, for the same gradients.
    if is_plain(passes.template):
        with suppress(Exception), without_hints():
            if _agrees(
                passes, models, microbatch, backward_sums(passes.layout, models, microbatch, passes.summed_loss)
            ):
                return True
    if records is not None:
        # Random numbers show little of a model that looks up tokens: all of them would be the token 0.
        microbatch = Microbatch(records[:PROBE_EXAMPLES], microbatch.labels[: len(records)])
    expected = _generic_sums(passes, models, microbatch)
    if records is not None and not bool(expected.any()):
        raise refusal(ModelCheck.NO_GRADIENT, ModelFault(passes.template))
    if _agrees(passes, models, microbatch, expected) or _agrees_in_double(passes, models, microbatch, expected):
        return True
    passes.activations = _measured_activations(passes, microbatch)
    return False


def _random_models(passes: ModelPasses, trials: int, source: torch.Generator) -> Tensor:
    """Return the model's initial parameters plus random numbers, float32 (trials, parameters)."""
    flat = passes.layout.flatten(dict(passes.template.named_parameters()))
    return flat + 0.1 * torch.randn(trials, len(flat), generator=source)


def _measured_activations(passes: ModelPasses, microbatch: Microbatch) -> int:
    """Return the number of scalars that a pass through `torch.func` stores per example.

    It is at least the number of parameters, because the pass forms the gradient of each example.
    """
    example = microbatch.features[:1]
    label = microbatch.labels[:1]
    saved = saved_scalars(passes.template, lambda values: passes.summed_loss(values, example, label))
    return max(passes.layout.size, saved)


def _generic_sums(passes: ModelPasses, models: Tensor, microbatch: Microbatch) -> Tensor:
    """Return each trial's sum of gradients clipped to norm 1, by `torch.func`; raises `InputError` if this fails."""
    sums = torch.empty_like(models)
    try:
        passes.clipped_sum_generic(ClippedSumPass(models, microbatch, 1.0), sums)
    except (Exception, SystemExit) as error:
        raise vmap_refusal(error, passes.template, passes.feature_shape) from error
    return sums


def _agrees(passes: ModelPasses, models: Tensor, microbatch: Microbatch, expected: Tensor) -> bool:
    """Return whether stacked layers exist and reproduce the expected sums of gradients clipped to norm 1."""
    sums = _stacked_sums(passes, models, microbatch)
    return sums is not None and torch.allclose(sums, expected, rtol=1e-4, atol=1e-5)


def _agrees_in_double(passes: ModelPasses, models: Tensor, microbatch: Microbatch, expected: Tensor) -> bool:
    """Return whether stacked layers reproduce the expected sums roughly in float32, and up to rounding in float64.

    A ReLU with an input of zero up to rounding may pass the gradient or not, so float32 sums may differ by 1e-2.
    """
    sums = _stacked_sums(passes, models, microbatch)
    if sums is None or not float((sums - expected).norm()) <= _ROUGHLY * float(expected.norm()):
        return False
    wide = models.double()
    wide_microbatch = Microbatch(microbatch.features.double(), microbatch.labels)
    exact = torch.empty_like(wide)
    try:
        passes.clipped_sum_generic(ClippedSumPass(wide, wide_microbatch, 1.0), exact)
    except (Exception, SystemExit):  # parts of the model that are frozen or cast stay in float32
        return False
    wide_sums = _stacked_sums(passes, wide, wide_microbatch)
    return wide_sums is not None and torch.allclose(wide_sums, exact, rtol=1e-8, atol=1e-10)


def _stacked_sums(passes: ModelPasses, models: Tensor, microbatch: Microbatch) -> Tensor | None:
    """Return each trial's sum of gradients clipped to norm 1, computed by stacked layers, for a test of these layers.

    The result is None if the model has no stacked layers, if they fail, or if one is not called exactly once. The
    function also sets `passes.activations`.
    """
    if passes.parts.stacked is None:
        return None
    try:
        sums = torch.empty_like(models)
        passes.clipped_sum_fast(ClippedSumPass(models, microbatch, 1.0), sums)
    except Exception:  # the template's own code may do what stacked layers are not made for
        return None
    _, frame = passes.run_stacked(passes.layout.views(models), microbatch.features, microbatch.examples, recording=True)
    visited = frame.tape
    frame.tape = []
    visits = [call.layer.prefix for call in visited]
    if not len(set(visits)) == len(visits) == sum(1 for _ in parameter_owners(passes.template)):
        return None
    passes.activations = sum(call.outputs[0].numel() for call in visited)
    return sums


def seeded() -> torch.Generator:
    """Return a new random generator with a fixed seed, for random examples and models of tests."""
    return torch.Generator().manual_seed(0)


@dataclass(frozen=True)
class ModelExecutionProfile:
    """Properties of a model, such as the memory per example, for processes that have no data to measure them."""

    fast: bool  # whether the model runs on stacked layers, which compute all trials at once
    activations: int  # number of scalars that a pass stores for one example
    has_backbone: bool = False  # whether records pass through a frozen backbone before they reach the model


def saved_scalars(module: nn.Module, run: Callable[[dict[str, Tensor]], Tensor]) -> int:
    """Return the number of scalars that autograd saves for a computation, besides parameters and constants."""
    parameters = {name: value.detach().requires_grad_() for name, value in module.named_parameters()}
    known_addresses = {_address(value) for value in (*parameters.values(), *module.buffers(), *constants_of(module))}
    tensors = list[Tensor]()
    sizes = dict[int, int]()

    def note(saved: Tensor) -> Tensor:
        address = _address(saved)
        if address is not None and address not in known_addresses:
            # Tensors are kept alive here: several that took one address in turn would be counted as one.
            tensors.append(saved.detach())
            sizes[address] = saved.untyped_storage().nbytes() // _BYTES
        return saved.detach()  # a result that the graph kept as it is would keep the graph, for ever

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved), without_hints():
        run(parameters)
    return sum(sizes.values())


def _address(value: Tensor) -> int | None:
    """Return the address of a tensor's memory; None if the tensor has no memory of its own, as within `torch.func`."""
    try:
        return value.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return None
