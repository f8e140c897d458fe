"""Preparation of a user's module: copies, frozen parameters, zero states of recurrent layers, and quiet calls."""

import copy
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from fl_audit.errors import first_line
from fl_audit.learning.model_advice import refusal
from fl_audit.learning.model_faults import ModelCheck, ModelFault

NARROW = (torch.bfloat16, torch.float16)
"""Types of 16 bits, in which gradients have relative errors of about 1e-3."""
_ASIDE = "_set_aside"  # attribute of a layer with its former frozen parameters, keyed by name


def set_aside_frozen(module: nn.Module) -> None:
    """Replace a module's frozen parameters by plain tensors, so that `parameters()` yields only trained ones."""
    tensors = dict[int, Tensor]()  # a parameter that stands at two places stays one tensor
    for layer in module.modules():
        for name, parameter in list(layer.named_parameters(recurse=False)):
            if not parameter.requires_grad:
                delattr(layer, name)
                aside = tensors.setdefault(id(parameter), parameter.detach())
                setattr(layer, name, aside)
                vars(layer).setdefault(_ASIDE, {})[name] = aside


def widen(module: nn.Module) -> None:
    """Convert a module's frozen parameters and buffers from 16-bit floats to float32, in place.

    With 16-bit floats, results would depend on how many records are computed together, with differences of about 1e-3.
    """
    wide = dict[int, nn.Parameter]()
    for layer in module.modules():
        for name, value in layer._parameters.items():
            if value is not None and value.dtype in NARROW and not value.requires_grad:
                wide_parameter = wide.setdefault(id(value), nn.Parameter(value.detach().float(), requires_grad=False))
                layer._parameters[name] = wide_parameter
        for name, buffer in layer._buffers.items():
            if buffer is not None and buffer.dtype in NARROW:
                layer._buffers[name] = buffer.float()


def constants_of(module: nn.Module) -> Iterator[Tensor]:
    """Yield the tensors that a module's layers hold as plain attributes, that is, neither as parameters nor as buffers.

    `set_aside_frozen` turns frozen parameters into such tensors.
    """
    for layer in module.modules():
        yield from (value for value in vars(layer).values() if isinstance(value, Tensor))


def sharing_copy(module: nn.Module) -> nn.Module:
    """Return a copy of a module that shares its frozen parameters, which must not be changed.

    Raises `InputError` if the module holds an object that cannot be copied.
    """
    frozen = [
        value
        for value in module.parameters()
        if not value.requires_grad and not isinstance(value, UninitializedParameter)
    ]
    aside = [value for layer in module.modules() for value in vars(layer).get(_ASIDE, {}).values()]
    return copied(module, (*frozen, *aside))


def copied(module: nn.Module, shared: Iterable[Tensor] = ()) -> nn.Module:
    """Return a deep copy of a module, except for some tensors that the copy shares with it."""
    try:
        return copy.deepcopy(module, {id(tensor): tensor for tensor in shared})
    except Exception as error:
        raise refusal(ModelCheck.COPY, ModelFault(module, error=error)) from error


def start_from_zeros(module: nn.Module) -> None:
    """Make recurrent layers of a module begin with a zero state that supports `torch.func.vmap`.

    By default, the zero state is one tensor for all examples. Under vmap, only `torch.nn.LSTM` can write to such a
    tensor.
    """
    for layer in module.modules():
        is_lstm = isinstance(layer, nn.LSTM) and not layer.proj_size
        if isinstance(layer, (nn.RNNBase, nn.RNNCellBase)) and not is_lstm:
            layer.register_forward_pre_hook(_begin_with_zeros, with_kwargs=True)


def _begin_with_zeros(
    layer: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Forward pre-hook that adds a zero state to the arguments of a recurrent layer, unless a state is given."""
    states = arguments[1] if len(arguments) > 1 else keywords.get("hx")
    inputs = arguments[0] if arguments else keywords.get("input")
    if states is not None or not isinstance(inputs, Tensor):
        return None
    if isinstance(layer, nn.RNNBase):
        rows = layer.num_layers * (2 if layer.bidirectional else 1)
        batch = (inputs.shape[0 if layer.batch_first else 1],) if inputs.dim() == 3 else ()
        widths = (layer.proj_size or layer.hidden_size, layer.hidden_size)
        shapes = [(rows, *batch, width) for width in widths]
    else:
        assert isinstance(layer, nn.RNNCellBase)
        shapes = [(*inputs.shape[:-1], layer.hidden_size)] * 2
    zeros = tuple(inputs.new_zeros(shape) for shape in shapes)
    is_pair = isinstance(layer, (nn.LSTM, nn.LSTMCell))
    return (inputs, zeros if is_pair else zeros[0]), {}


def exception_text(error: BaseException) -> str:
    """Return the first line of an exception's message; for `SystemExit`, or an empty message, the name of its type."""
    return type(error).__name__ if isinstance(error, SystemExit) else first_line(error)


_hints = threading.Lock()
_inside: "list[warnings.catch_warnings[None]]" = []
_threads_inside = 0


@contextmanager
def without_hints() -> Iterator[None]:
    """Suppress all warnings within a `with` block, such as torch's hints on how a module is written.

    All threads share the filter: the first thread that enters sets it, and the last one that leaves removes it.
    """
    global _threads_inside
    with _hints:
        if _threads_inside == 0:
            _inside.append(warnings.catch_warnings())
            _inside[0].__enter__()
            warnings.simplefilter("ignore")
        _threads_inside += 1
    try:
        yield
    finally:
        with _hints:
            _threads_inside -= 1
            if _threads_inside == 0:
                _inside.pop().__exit__(None, None, None)
