"""Checks that every record has a gradient of its own under a module, and that all parties compute the same gradient."""

import copy
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from fl_audit.errors import InputError, first_line, require

PROBE_EXAMPLES = 3
_MODE_EXAMPLES, _MODE_DRAWS = 16, 4
"""So many examples and draws that dropout with a probability of a few percent is noticed."""


def check_module(module: nn.Module) -> None:
    """Refuse layers that mix examples or draw random numbers, and parameters that cannot be used.

    Raises
    ------
    InputError
        If the module has batch normalisation, instance normalisation with running statistics, or dropout; if it has no
        parameters, or only frozen ones; or if a parameter has no shape yet, is not on the CPU or not in float32. The
        message says what to use instead.
    """
    for name, layer in module.named_modules():
        found = f"layer {name!r} is a {type(layer).__name__}"
        mixes = isinstance(layer, (nn.modules.batchnorm._BatchNorm, nn.SyncBatchNorm))
        why = "which mixes the examples of a batch, so one record has no gradient of its own"
        require(not mixes, f"{found}, {why}: use torch.nn.GroupNorm or torch.nn.LayerNorm instead")
        draws = isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0
        require(not draws, f"{found}, whose random masks no party could recompute: remove it or set p = 0")
        found = f"layer {name!r} tracks running statistics over batches"
        tracks = isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats
        require(not tracks, f"{found}: use track_running_stats=False")
    named = dict(module.named_parameters())
    require(bool(named), "the model has no parameters: accepted is a model that can learn")
    for name, parameter in named.items():
        is_lazy, found = isinstance(parameter, UninitializedParameter), f"parameter {name!r} belongs to a lazy layer"
        remedy = "name the number of inputs, as torch.nn.Linear(inputs, outputs) does"
        require(not is_lazy, f"{found}, which has no shape until it first runs: {remedy}")
        kind = f"parameter {name!r} is of type {str(parameter.dtype).removeprefix('torch.')}"
        is_single = parameter.dtype is torch.float32
        require(is_single, f"{kind}: accepted is float32, which module.float() makes of it")
        place = f"parameter {name!r} is on device {parameter.device}"
        on_cpu = parameter.device.type == "cpu"
        require(on_cpu, f"{place}: accepted is cpu; device in [run] says where clients compute")
    trained = any(parameter.requires_grad for parameter in named.values())
    require(trained, "all parameters of the model are frozen: accepted is a model some of whose parameters are trained")


def set_aside_frozen(module: nn.Module) -> dict[str, Tensor]:
    """Make plain tensors of a module's frozen parameters, so that those that are left are the ones that are trained.

    Return copies of all tensors that are not trained, by name: these constants, and the module's buffers.
    """
    constants = dict(module.named_buffers())
    for path, layer in module.named_modules():
        for name, parameter in list(layer.named_parameters(recurse=False)):
            if not parameter.requires_grad:
                delattr(layer, name)
                setattr(layer, name, parameter.detach())
                constants[f"{path}.{name}"] = parameter
    return {name: value.detach().clone() for name, value in constants.items()}


def check_outputs(module: nn.Module, feature_shape: tuple[int, ...], classes: int) -> None:
    """Refuse a module whose outputs are not one number for each class, mix examples, or depend on the mode.

    Parameters
    ----------
    module, feature_shape, classes
        The module, which is called on a few random examples; shape of one example, and number of classes.
    """
    source = torch.Generator().manual_seed(1)
    features = torch.rand(PROBE_EXAMPLES, *feature_shape, generator=source)
    together, alone = _outputs_together_and_alone(copy.deepcopy(module).eval(), features)
    require(
        together.dim() == 2 and _alike(together, alone),
        f"the model gives outputs of shape {tuple(together.shape)} for {PROBE_EXAMPLES} examples, or mixes examples: "
        f"accepted are outputs of shape ({PROBE_EXAMPLES}, {classes}), of which each row depends on one example",
    )
    found = f"the model has {together.shape[1]} outputs and the data has {classes} classes"
    require(together.shape[1] == classes, f"{found}: accepted is one output for each class")
    _refuse_another_in_training(module, torch.rand(_MODE_EXAMPLES, *feature_shape, generator=source))


def _outputs_together_and_alone(module: nn.Module, features: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outputs for all examples at once, and those for one after the other.

    In double precision where the module can: sums that run in another order move a network that sorts, such as DGCNN,
    by more than any tolerance where two keys are equal but for rounding.
    """

    def outputs(one: nn.Module, asked: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad(), without_hints():
            return one(asked), torch.cat([one(example.unsqueeze(0)) for example in asked])

    try:
        return outputs(copy.deepcopy(module).double(), features.double())
    except (RuntimeError, TypeError):
        return outputs(module, features)


def _refuse_another_in_training(module: nn.Module, features: Tensor) -> None:
    """Refuse a module that gives other outputs in training mode than in evaluation mode, in which parties compute."""
    # Layers can be recognised by their types, but functions such as `torch.nn.functional.dropout` only by their effect.
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad(), without_hints():
            evaluated = copy.deepcopy(module).eval()(features)
            trained = [copy.deepcopy(module).train()(features) for _ in range(_MODE_DRAWS)]
    except (Exception, SystemExit) as error:
        raise InputError(
            f"the model cannot be run in training mode ({said(error)}): accepted is one that runs in both modes"
        ) from error
    is_random = not all(_alike(found, trained[0]) for found in trained)
    require(
        not is_random and _alike(trained[0], evaluated),
        f"the model {'draws random numbers' if is_random else 'gives other outputs'} in training mode, as dropout "
        "does, and no party could recompute that: accepted is one that computes the same in training and in evaluation "
        "mode, so remove the dropout or set its probability to 0",
    )


def _alike(left: Tensor, right: Tensor) -> bool:
    return isinstance(left, Tensor) and left.shape == right.shape and torch.allclose(left, right, rtol=1e-4, atol=1e-5)


def said(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its type where the message is empty."""
    return type(error).__name__ if isinstance(error, SystemExit) else first_line(error)


_hints = threading.Lock()
_inside: "list[warnings.catch_warnings[None]]" = []
_threads_inside = 0


@contextmanager
def without_hints() -> Iterator[None]:
    """Suppress torch's warnings about how a module is written, since whoever runs an audit cannot act on them.

    Python's filters of warnings belong to all threads together, so the first thread that enters sets the filter, and
    the last one that leaves removes it.
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
