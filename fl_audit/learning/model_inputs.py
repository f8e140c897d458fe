"""Calls of a model: arrays are given by name, attention runs example by example, and logits are the only output.

Models of the libraries, such as transformers and peft, are taken as they are: nothing of the libraries is changed, and
nothing here knows an architecture. What is added to a module are hooks of torch, and a choice that the library offers.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap

from fl_audit.learning.module_checks import widen
from fl_audit.learning.named_inputs import MASK, NamedInput

_CHOOSES = "set_attn_implementation"  # method of the modules of transformers, and of no others


@dataclass(frozen=True)
class _Named:
    """Gives a module the named arrays of records, of which the batch that it is called with is made."""

    inputs: tuple[NamedInput, ...]

    def __call__(
        self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (), dict(unpacked(given[0], self.inputs))


def unpacked(features: Tensor, inputs: tuple[NamedInput, ...]) -> Iterator[tuple[str, Tensor]]:
    """Yield the named arrays of records and their names, whole numbers as int64.

    Parameters
    ----------
    features
        Rows of numbers, shape (n, width).
    inputs
        Named arrays that the rows consist of.
    """
    for one, part in zip(inputs, torch.split(features, [one.width for one in inputs], dim=1), strict=True):
        shaped = part.reshape(len(features), *one.shape)
        yield one.name, shaped.long() if one.is_whole else shaped


def prepare(module: nn.Module, inputs: tuple[NamedInput, ...]) -> None:
    """Have a module that its factory has made run example by example, on rows of numbers.

    Parameters
    ----------
    module
        The module, to which hooks are added.
    inputs
        The named arrays of a row; empty where the module takes whole rows.
    """
    widen(module)
    with_plain_attention(module)
    give_named(module, inputs)


def give_named(module: nn.Module, inputs: tuple[NamedInput, ...]) -> None:
    """Have a module that is called with rows of numbers read them as named arrays.

    Where it has a padding mask that it cannot read example by example, its attention is given a mask of
    floating-point numbers in four axes.

    Parameters
    ----------
    module
        The module, which is given hooks.
    inputs
        Named arrays that the rows consist of; if empty, nothing is done.
    """
    if not inputs:
        return
    module.register_forward_pre_hook(_Named(inputs), with_kwargs=True)
    readers = [part for part in _choosers(module) if not any(True for _ in _choosers(part, itself=False))]
    if not readers or not any(one.name == MASK for one in inputs) or _runs_by_example(module, inputs):
        return
    tried = _padded_rows(inputs)
    expected = _outputs(module, tried)
    handles = [part.register_forward_pre_hook(_as_floats, with_kwargs=True) for part in readers]
    found = _outputs(module, tried) if expected is not None else None
    # A mask that does not do what the model's own does, as of one that looks back alone, is no mask for it.
    if expected is None or found is None or not torch.allclose(expected, found, rtol=1e-4, atol=1e-5):
        for handle in handles:
            handle.remove()


def inputs_of(module: nn.Module) -> tuple[NamedInput, ...]:
    """Return the named arrays that a module is given by `give_named`; none where it is not."""
    found = (hook.inputs for hook in module._forward_pre_hooks.values() if isinstance(hook, _Named))
    return next(found, ())


def with_plain_attention(module: nn.Module) -> None:
    """Have attention be computed by plain products of padded tensors, which run example by example.

    Other forms of it have no rule for `torch.func.vmap`, which then runs one example after the other, or not at all.

    Parameters
    ----------
    module
        The module, in which nothing but that choice of the libraries is changed.
    """
    for part in _choosers(module):
        getattr(part, _CHOOSES)("eager")
    for layer in module.modules():
        if isinstance(layer, nn.TransformerEncoder):
            layer.enable_nested_tensor = layer.use_nested_tensor = False


def read_logits(module: nn.Module) -> None:
    """Have a module that returns its logits among other things return them alone.

    Parameters
    ----------
    module
        The module, which is given a hook.
    """
    module.register_forward_hook(_logits_of)


def _logits_of(module: nn.Module, given: tuple[Any, ...], outputs: Any) -> Any:
    if isinstance(outputs, Tensor):
        return outputs
    found = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)
    return found if isinstance(found, Tensor) else outputs


def _choosers(module: nn.Module, itself: bool = True) -> Iterator[nn.Module]:
    """Yield the modules of transformers in a module; peft answers in the name of what it wraps, and is none."""
    for part in module.modules():
        if hasattr(type(part), _CHOOSES) and (itself or part is not module):
            yield part


def _as_floats(
    module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Turn a padding mask, (n, tokens), into what is added to the scores of attention, (n, 1, tokens, tokens)."""
    mask = named.get(MASK)
    if not isinstance(mask, Tensor) or mask.dim() != 2:
        return given, named
    number = next((one.dtype for one in module.parameters() if one.is_floating_point()), torch.float32)
    added = (1 - mask.to(number)) * torch.finfo(number).min
    return given, named | {MASK: added[:, None, None, :].expand(-1, 1, mask.shape[1], -1)}


def _padded_rows(inputs: tuple[NamedInput, ...]) -> Tensor:
    """Return two records of the lowest ids, one of which has padding behind its first half."""
    parts = []
    for one in inputs:
        part = torch.ones(2, max(1, one.width))
        part[:, ::2] = 1.0 if one.name == MASK else 0.0
        if one.name == MASK:
            part[1, (one.width + 1) // 2 :] = 0.0
        parts.append(part[:, : one.width])
    return torch.cat(parts, dim=1)


def _runs_by_example(module: nn.Module, inputs: tuple[NamedInput, ...]) -> bool:
    """Return whether a module runs one example after the other by `torch.func.vmap`."""
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            vmap(lambda row: module(row.unsqueeze(0)))(_padded_rows(inputs))
    except (Exception, SystemExit):
        return False
    return True


def _outputs(module: nn.Module, rows: Tensor) -> Tensor | None:
    was_training = module.training
    with suppress(Exception, SystemExit), torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            found = module.eval()(rows)
        finally:
            module.train(was_training)
        return found if isinstance(found, Tensor) else None
    return None
