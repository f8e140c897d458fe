"""Tests of a model before it is used: which way of computing its gradients is right, and what may be left out."""

from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor

from fl_audit.errors import InputError
from fl_audit.learning.frozen_prefix import frozen_prefix
from fl_audit.learning.microbatching import MicrobatchExamples
from fl_audit.learning.model_faults import refusal
from fl_audit.learning.model_passes import ModelPasses
from fl_audit.learning.model_properties import saved_scalars
from fl_audit.learning.module_checks import PROBE_EXAMPLES
from fl_audit.learning.named_inputs import NamedInput
from fl_audit.learning.output_checks import NO_GRADIENT
from fl_audit.learning.padding import by_length, is_padded, lengths
from fl_audit.learning.stacked_layers import backward_sums, is_plain, parameter_owners

_PROBE_TRIALS = 2
_TRIED_TEXTS = 16
"""Records on which it is tried whether outputs depend on padding."""
_ROUGHLY = 0.05
"""Relative distance of float32 sums up to which double precision decides whether stacked layers are right."""


def split_off_prefix(passes: ModelPasses, records: Tensor | None, is_tried: bool) -> None:
    """Let passes evaluate the frozen prefix of the module once per record, if a test gives the same results.

    Parameters
    ----------
    passes
        Passes of the module, whose `prefix`, `fast` and `activations` are set.
    records
        Records of the data, (n, *shape), on which the results are compared; None for random examples.
    is_tried
        Whether another process has compared the results already.
    """
    prefix = frozen_prefix(passes.template, passes.feature_shape)
    if prefix is None:
        return
    if is_tried:
        passes.prefix, passes.fast = prefix, False
        return
    source, flat = seeded(), passes.layout.flatten(dict(passes.template.named_parameters()))
    models = flat + 0.1 * torch.randn(_PROBE_TRIALS, len(flat), generator=source)
    tried = torch.rand(PROBE_EXAMPLES, *passes.feature_shape, generator=source) if records is None else records
    portion = MicrobatchExamples(tried[:PROBE_EXAMPLES], torch.zeros(len(tried[:PROBE_EXAMPLES]), dtype=torch.int64))
    found = list[tuple[Tensor, Tensor]]()
    fast, passes.fast = passes.fast, False
    for passes.prefix in (None, prefix):
        try:
            gradients = passes.example_gradients(models, portion)
            found.append((gradients, passes.logits_pass(models, portion.features)))
        except (Exception, SystemExit):
            break
    passes.prefix, passes.fast = None, fast
    if len(found) == 2 and all(_is_same(*pair) for pair in zip(*found, strict=True)):
        passes.prefix, passes.fast = prefix, False
        one, label = prefix.rows(portion.features[:1]), portion.labels[:1]
        held = saved_scalars(passes.behind, lambda values: passes.summed_loss(values, one, label))
        passes.activations = max(passes.layout.size, held)


def ignores_padding(
    passes: ModelPasses, inputs: tuple[NamedInput, ...], records: Tensor, logits: Callable[[Tensor, Tensor], Tensor]
) -> bool:
    """Return whether records of texts, some of them padded, get the same outputs without their shared padding.

    Parameters
    ----------
    passes
        Passes of the module.
    inputs
        The named arrays that a record is made of.
    records
        Records of the data, (n, *shape).
    logits
        Function that maps models (trials, parameters) and records to logits.
    """
    if passes.fast or passes.prefix is not None or not is_padded(inputs):
        return False
    # The shortest texts lose the most padding, and the longest set the width of the others.
    ordered = records[lengths(records, inputs).argsort(stable=True)]
    tried = torch.cat([ordered[: _TRIED_TEXTS // 2], ordered[_TRIED_TEXTS // 2 :][-_TRIED_TEXTS // 2 :]])
    if bool((lengths(tried, inputs) == inputs[0].width).all()):
        return False
    flat = passes.layout.flatten(dict(passes.template.named_parameters()))
    models = flat + 0.1 * torch.randn(1, len(flat), generator=seeded())
    try:
        whole = logits(models, tried)
        for numbers, rows in by_length(tried, inputs, 1, worth=1):
            if not _is_same(logits(models, rows), whole[:, numbers]):
                return False
    except (Exception, SystemExit):  # the model asks for all tokens
        return False
    return True


def stacked_layers_agree(passes: ModelPasses, records: Tensor | None) -> bool:
    """Return whether stacked layers give the same clipped sums on a few examples as per-example gradients do.

    Parameters
    ----------
    passes
        Passes of the module, whose `activations` are set.
    records
        Records of the data, (n, *shape), on which a module with code of its own is tested; None for random examples.

    Raises
    ------
    InputError
        If the module cannot be run example by example, or no record has a gradient.
    """
    source = seeded()
    flat = passes.layout.flatten(dict(passes.template.named_parameters()))
    models = flat + 0.1 * torch.randn(_PROBE_TRIALS, len(flat), generator=source)
    features = torch.rand(PROBE_EXAMPLES, *passes.feature_shape, generator=source)
    portion = MicrobatchExamples(features, torch.zeros(PROBE_EXAMPLES, dtype=torch.int64))
    # The first call of `torch.func` imports torch's compiler: seconds in every process, for the same gradients.
    if is_plain(passes.template):
        with suppress(Exception):
            if _agrees(passes, models, portion, backward_sums(passes.layout, models, portion, passes.summed_loss)):
                return True
    if records is not None:
        # Random numbers show little of a model that looks up tokens: all of them would be the token 0.
        portion = MicrobatchExamples(records[:PROBE_EXAMPLES], portion.labels[: len(records)])
    expected = _generic_sums(passes, models, portion)
    if records is not None and not bool(expected.any()):
        raise InputError(NO_GRADIENT)
    if _agrees(passes, models, portion, expected) or _agrees_in_double(passes, models, portion, expected):
        return True
    one, label = portion.features[:1], portion.labels[:1]
    held = saved_scalars(passes.template, lambda values: passes.summed_loss(values, one, label))
    passes.activations = max(passes.layout.size, held)
    return False


def _generic_sums(passes: ModelPasses, models: Tensor, portion: MicrobatchExamples) -> Tensor:
    """Return sums of gradients clipped to norm 1, computed by `torch.func`; raises `InputError` if that fails."""
    found = torch.empty_like(models)
    try:
        passes.clipped_sum_generic(models, portion, 1.0, found)
    except (Exception, SystemExit) as error:
        raise refusal(error, passes.feature_shape) from error
    return found


def _agrees(passes: ModelPasses, models: Tensor, portion: MicrobatchExamples, expected: Tensor) -> bool:
    """Return whether stacked layers exist and give the expected sums; if so, set `activations`."""
    found = _stacked_sums(passes, models, portion)
    return found is not None and torch.allclose(found, expected, rtol=1e-4, atol=1e-5)


def _agrees_in_double(passes: ModelPasses, models: Tensor, portion: MicrobatchExamples, expected: Tensor) -> bool:
    """Return whether stacked layers give the expected sums roughly, and those of `torch.func` in double precision.

    A ReLU whose input is zero up to rounding passes the gradient in one computation and not in the other, so that
    float32 sums may differ by 1e-2 although both are right.
    """
    found = _stacked_sums(passes, models, portion)
    if found is None or not float((found - expected).norm()) <= _ROUGHLY * float(expected.norm()):
        return False
    wide, read = models.double(), MicrobatchExamples(portion.features.double(), portion.labels)
    exact = torch.empty_like(wide)
    try:
        passes.clipped_sum_generic(wide, read, 1.0, exact)
    except (Exception, SystemExit):  # parts of the model that are frozen or cast stay in float32
        return False
    again = _stacked_sums(passes, wide, read)
    return again is not None and torch.allclose(again, exact, rtol=1e-8, atol=1e-10)


def _stacked_sums(passes: ModelPasses, models: Tensor, portion: MicrobatchExamples) -> Tensor | None:
    """Return sums of gradients clipped to norm 1, computed by stacked layers, and set `activations`.

    None if there are no stacked layers, or if they are not each called exactly once.
    """
    if passes.parts.stacked is None:
        return None
    try:
        found = torch.empty_like(models)
        passes.clipped_sum_fast(models, portion, 1.0, found)
    except Exception:  # the template's own code may do what stacked layers are not made for
        return None
    _, frame = passes.run_stacked(passes.layout.views(models), portion.features, portion.examples, recording=True)
    visited, frame.tape = frame.tape, []
    visits = [visit.layer.prefix for visit in visited]
    if not len(set(visits)) == len(visits) == sum(1 for _ in parameter_owners(passes.template)):
        return None
    passes.activations = sum(visit.outputs[0].numel() for visit in visited)
    return found


def _is_same(left: Tensor, right: Tensor) -> bool:
    return torch.allclose(left, right, rtol=1e-4, atol=1e-6 * float(left.abs().max()))


def seeded() -> torch.Generator:
    """Return the generator of random examples and models, the same in every process."""
    return torch.Generator().manual_seed(0)
