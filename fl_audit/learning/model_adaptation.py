"""Adapt a user's model, so that it reads named arrays, runs under `torch.func.vmap`, and returns only logits.

Models of libraries such as transformers and peft are used unchanged and without knowledge of their architecture. A
module only gets hooks of torch, and an implementation of attention that its library offers.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap

from fl_audit.learning.module_preparation import widen
from fl_audit.learning.named_inputs import MASK, NamedInput

_CHOOSES = "set_attn_implementation"  # method that only modules of the library transformers have


@dataclass(frozen=True)
class _NamedInputHook:
    """Forward pre-hook that splits rows of numbers into named arrays, and passes these to the module by name."""

    inputs: tuple[NamedInput, ...]  # named arrays that a row consists of, in order

    def __call__(
        self, module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (), dict(unpacked(arguments[0], self.inputs))


def unpacked(features: Tensor, inputs: tuple[NamedInput, ...]) -> Iterator[tuple[str, Tensor]]:
    """Split rows of numbers into the named arrays of a model's input; yield each as (name, array (n, *shape)).

    Integer arrays are converted to int64.

    Shapes: `features` (n, width).
    """
    for array, columns in zip(inputs, torch.split(features, [array.width for array in inputs], dim=1), strict=True):
        shaped = columns.reshape(len(features), *array.shape)
        yield array.name, shaped.long() if array.is_whole else shaped


def prepare(module: nn.Module, inputs: tuple[NamedInput, ...]) -> None:
    """Adapt a user's module so that it can be run on single examples, each given as a row of numbers."""
    widen(module)
    _use_plain_attention(module)
    _give_named(module, inputs)


def _give_named(module: nn.Module, inputs: tuple[NamedInput, ...]) -> None:
    """Add a hook to a module that splits its input, rows of numbers, into named arrays.

    Some modules cannot use a padding mask under `torch.func.vmap`. Their attention layers get an additive mask with
    four axes instead, if the outputs stay the same.
    """
    if not inputs:
        return
    module.register_forward_pre_hook(_NamedInputHook(inputs), with_kwargs=True)
    readers = [
        module_part
        for module_part in _attention_modules(module)
        if not any(True for _ in _attention_modules(module_part, itself=False))
    ]
    if not readers or not any(array.name == MASK for array in inputs) or _runs_by_example(module, inputs):
        return
    rows = _padded_rows(inputs)
    expected = _outputs(module, rows)
    handles = [module_part.register_forward_pre_hook(_as_floats, with_kwargs=True) for module_part in readers]
    outputs = _outputs(module, rows) if expected is not None else None
    # A mask that does not do what the model's own does, as of one that looks back alone, is no mask for it.
    if expected is None or outputs is None or not torch.allclose(expected, outputs, rtol=1e-4, atol=1e-5):
        for handle in handles:
            handle.remove()


def inputs_of(module: nn.Module) -> tuple[NamedInput, ...]:
    """Return the named arrays into which a module splits its input; empty unless `prepare` has set them."""
    inputs = (hook.inputs for hook in module._forward_pre_hooks.values() if isinstance(hook, _NamedInputHook))
    return next(inputs, ())


def _use_plain_attention(module: nn.Module) -> None:
    """Switch the attention layers of a module to an implementation that `torch.func.vmap` can batch.

    With other implementations, torch loops over the examples or fails.
    """
    for attention in _attention_modules(module):
        getattr(attention, _CHOOSES)("eager")
    for layer in module.modules():
        if isinstance(layer, nn.TransformerEncoder):
            layer.enable_nested_tensor = layer.use_nested_tensor = False


def read_logits(module: nn.Module) -> None:
    """Make a module return only its tensor `logits` if it returns several outputs.

    Outputs without such a tensor stay unchanged.
    """
    module.register_forward_hook(_logits_of)


def _logits_of(module: nn.Module, arguments: tuple[Any, ...], outputs: Any) -> Any:
    if isinstance(outputs, Tensor):
        return outputs
    logits = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)
    return logits if isinstance(logits, Tensor) else outputs


def _attention_modules(module: nn.Module, itself: bool = True) -> Iterator[nn.Module]:
    """Yield the parts of a module whose attention implementation can be set; only the library transformers has them.

    The module itself is included only if `itself` is true.
    """
    for submodule in module.modules():
        if hasattr(type(submodule), _CHOOSES) and (itself or submodule is not module):
            yield submodule


def _as_floats(
    module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Forward pre-hook that turns a padding mask (n, tokens) into an additive mask (n, 1, tokens, tokens)."""
    mask = keywords.get(MASK)
    if not isinstance(mask, Tensor) or mask.dim() != 2:
        return arguments, keywords
    number = next(
        (parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()), torch.float32
    )
    added = (1 - mask.to(number)) * torch.finfo(number).min
    return arguments, keywords | {MASK: added[:, None, None, :].expand(-1, 1, mask.shape[1], -1)}


def _padded_rows(inputs: tuple[NamedInput, ...]) -> Tensor:
    """Return two rows of token ids for a test, shape (2, width); ids alternate between 0 and 1.

    In the mask of the second row, the second half is padding.
    """
    arrays = []
    for array in inputs:
        values = torch.ones(2, max(1, array.width))
        values[:, ::2] = 1.0 if array.name == MASK else 0.0
        if array.name == MASK:
            values[1, (array.width + 1) // 2 :] = 0.0
        arrays.append(values[:, : array.width])
    return torch.cat(arrays, dim=1)


def _runs_by_example(module: nn.Module, inputs: tuple[NamedInput, ...]) -> bool:
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
            outputs = module.eval()(rows)
        finally:
            module.train(was_training)
        return outputs if isinstance(outputs, Tensor) else None
    return None
