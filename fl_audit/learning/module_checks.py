"""Checks that a model has per-example gradients, and that all parties compute the same outputs with it."""

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from fl_audit.errors import InputError, require
from fl_audit.learning.module_preparation import copied, exception_text, sharing_copy, without_hints

PROBE_EXAMPLES = 3  # number of examples on which a model is tested
_MODE_EXAMPLES, _MODE_DRAWS = 16, 4
"""Number of examples and of draws; with these, dropout with a probability of a few percent is noticed."""
_SMALL_STEP = 0.01  # step that moves weights that are all zero


def check_module(module: nn.Module) -> None:
    """Raise `InputError` if a module's layers mix examples or draw random numbers, or its parameters are unusable."""
    _check_layers(module)
    named = dict(module.named_parameters())
    require(bool(named), "the model has no parameters: accepted is a model that can learn")
    for name, parameter in named.items():
        _check_parameter(name, parameter)
    trained = any(parameter.requires_grad for parameter in named.values())
    require(trained, "all parameters of the model are frozen: accepted is a model some of whose parameters are trained")


def _check_layers(module: nn.Module) -> None:
    for name, layer in module.named_modules():
        found = f"layer {name!r} is a {type(layer).__name__}"
        mixes = isinstance(layer, (nn.modules.batchnorm._BatchNorm, nn.SyncBatchNorm))
        why = "which mixes the examples of a batch, so one record has no gradient of its own"
        require(not mixes, f"{found}, {why}: use torch.nn.GroupNorm or torch.nn.LayerNorm instead")
        draws = isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0
        hint = _dropout_settings(module) if draws else ""
        require(not draws, f"{found}, whose random masks no party could recompute: remove it or set p = 0{hint}")
        is_quantised = type(layer).__module__.startswith("torch.ao.nn.quantized")
        why = "which has no gradient and scales by all examples of a batch"
        require(not is_quantised, f"{found} of torch.ao.quantization, {why}: use the layer of torch.nn in its place")
        found = f"layer {name!r} tracks running statistics over batches"
        tracks = isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats
        require(not tracks, f"{found}: use track_running_stats=False")


def _check_parameter(name: str, parameter: nn.Parameter) -> None:
    is_lazy, found = isinstance(parameter, UninitializedParameter), f"parameter {name!r} belongs to a lazy layer"
    remedy = "name the number of inputs, as torch.nn.Linear(inputs, outputs) does"
    require(not is_lazy, f"{found}, which has no shape until it first runs: {remedy}")
    kind = f"parameter {name!r} is of type {str(parameter.dtype).removeprefix('torch.')}"
    # Frozen parameters may take less memory, as in 16 bits or in whole numbers.
    is_single = parameter.dtype is torch.float32 or not parameter.requires_grad
    require(is_single, f"{kind}: accepted is float32, which module.float() makes of it")
    place = f"parameter {name!r} is on device {parameter.device}"
    on_cpu = parameter.device.type == "cpu"
    require(on_cpu, f"{place}: accepted is cpu; device in [run] says where clients compute")


def _dropout_settings(module: nn.Module) -> str:
    """Return the dropout settings in a library model's configuration, as the end of a message; "" if none."""
    config = getattr(module, "config", None)
    values = config.to_dict() if callable(getattr(config, "to_dict", None)) else {}  # type: ignore[union-attr]
    named = [name for name, value in values.items() if "drop" in name and isinstance(value, float) and value > 0]
    return f"; the configuration of the model has {', '.join(f'{name}=0' for name in named)} for it" if named else ""


def check_outputs(
    module: nn.Module, feature_shape: tuple[int, ...], classes: int, records: Tensor | None = None
) -> None:
    """Raise `InputError` unless a module returns one number per class for each example, whatever its mode.

    Shapes: `records` (n, *shape).
    """
    source = torch.Generator().manual_seed(1)
    features = torch.rand(PROBE_EXAMPLES, *feature_shape, generator=source)
    more = torch.rand(_MODE_EXAMPLES, *feature_shape, generator=source)
    if records is not None:
        features, more = records[:PROBE_EXAMPLES], records[:_MODE_EXAMPLES]
    _check_outputs(module, features, classes)
    _refuse_another_in_training(module, more)
    _refuse_another_after_a_step(module, more, source)


def _check_outputs(module: nn.Module, features: Tensor, classes: int) -> None:
    together, alone = _outputs_together_and_alone(sharing_copy(module).eval(), features)
    require(
        together.dim() == 2 and _alike(together, alone),
        f"the model gives outputs of shape {tuple(together.shape)} for {len(features)} examples, or mixes examples"
        f"{_mixing_layer(module, features)}: accepted are outputs of shape ({len(features)}, {classes}), of which each "
        "row depends on one example",
    )
    hint = (
        "; one number for two classes, as a sigmoid reads it, becomes two" if together.shape[1] + 1 == classes else ""
    )
    found = f"the model has {together.shape[1]} outputs and the data has {classes} classes"
    require(together.shape[1] == classes, f"{found}: accepted is one output for each class{hint}")


def _mixing_layer(module: nn.Module, features: Tensor) -> str:
    """Return a hint that names a layer which treats the examples of a mini-batch as time steps; "" if there is none."""
    kinds = (nn.RNNBase, nn.MultiheadAttention)
    for path, layer in module.named_modules():
        if isinstance(layer, kinds) and not layer.batch_first:
            where = (
                "its transformer layer" if path.endswith("self_attn") else f"layer {path!r} ({type(layer).__name__})"
            )
            return f", for {where} takes the first axis for steps of time: give it batch_first=True"
        if isinstance(layer, kinds) and features.dim() == 2:
            name = type(layer).__name__
            return f", for layer {path!r} ({name}) takes two axes for one sequence: give it records of (steps, numbers)"
    return ""


def _outputs_together_and_alone(module: nn.Module, features: Tensor) -> tuple[Tensor, Tensor]:
    """Return a module's outputs for all examples together, and for one example at a time, each (n, ...).

    Outputs that differ are computed again in float64, because a network that sorts enlarges rounding errors.
    """

    def outputs(one: nn.Module, asked: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad(), without_hints():
            return one(asked), torch.cat([one(example.unsqueeze(0)) for example in asked])

    found = outputs(module, features)
    if _alike(*found):  # the copy in double precision of a large model is large
        return found
    try:
        return outputs(copied(module).double(), features.double())
    except (RuntimeError, TypeError):
        return found


def _refuse_another_in_training(module: nn.Module, features: Tensor) -> None:
    """Raise `InputError` if a module's outputs differ between training mode and evaluation mode."""
    # Layers can be recognised by their types, but functions such as `torch.nn.functional.dropout` only by their effect.
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad(), without_hints():
            evaluated = sharing_copy(module).eval()(features)
            trained = [sharing_copy(module).train()(features) for _ in range(_MODE_DRAWS)]
    except (Exception, SystemExit) as error:
        raise InputError(
            f"the model cannot be run in training mode ({exception_text(error)}): "
            "accepted is one that runs in both modes"
        ) from error
    is_random = not all(_alike(found, trained[0]) for found in trained)
    require(
        not is_random and _alike(trained[0], evaluated),
        f"the model {'draws random numbers' if is_random else 'gives other outputs'} in training mode, as dropout "
        "does, and no party could recompute that: accepted is one that computes the same in training and in evaluation "
        f"mode, so remove the dropout or set its probability to 0{_dropout_settings(module)}{_remedy_of_norm(module)}",
    )


def _refuse_another_after_a_step(module: nn.Module, features: Tensor, source: torch.Generator) -> None:
    """Raise `InputError` if, after a step, training mode or the buffers that it changes make outputs different."""
    # Spectral normalisation is alike in both modes at first: its buffers, which training mode moves, fit the first
    # weights, and not those after a step.
    subject = sharing_copy(module).train()
    try:
        still, trained, after, moved = _after_a_step(subject, features, source)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"the model cannot be run once its weights have moved ({exception_text(error)}): "
            "accepted is one that runs with any"
        ) from error
    because = f", because training moves its buffer {moved[0]!r}" if moved else ""
    require(
        _alike(still, trained) and _alike(still, after),
        f"the model gives other outputs in training than in evaluation mode once its weights have moved{because}, and "
        "all parties compute in evaluation mode with buffers as they are: accepted is one that computes the same in "
        f"both modes{_remedy_of_norm(module)}",
    )


def _after_a_step(
    subject: nn.Module, features: Tensor, source: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, list[str]]:
    """Change a module's weights by random numbers, and compute its outputs; return three outputs and a list of buffers.

    The outputs are those in evaluation mode, then in training mode, then in evaluation mode again. The list names the
    buffers that the computation in training mode changed.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad(), without_hints():
        for parameter in subject.parameters():
            if parameter.requires_grad:
                scale = float(parameter.square().mean().sqrt()) + _SMALL_STEP
                parameter.add_(scale * torch.randn(parameter.shape, generator=source))
        before = {name: value.clone() for name, value in subject.named_buffers()}
        still = sharing_copy(subject).eval()(features)
        trained = subject(features)
        moved = [name for name, value in subject.named_buffers() if not torch.equal(value, before.get(name, value))]
        after = subject.eval()(features)
    return still, trained, after, moved


def _remedy_of_norm(module: nn.Module) -> str:
    """Return a substitute for spectral normalisation, as the end of a message; "" if the module does not use it."""
    hooks = (hook for layer in module.modules() for hook in (layer, *layer._forward_pre_hooks.values()))
    if not any("spectral" in type(one).__name__.lower() for one in hooks):
        return ""
    return "; in place of spectral_norm, torch.nn.utils.parametrizations.weight_norm"


def _alike(left: Tensor, right: Tensor) -> bool:
    """Return whether two outputs have the same shape and are equal up to rounding; NaN equals NaN."""
    is_one_shape = isinstance(left, Tensor) and left.shape == right.shape
    return is_one_shape and torch.allclose(left, right, rtol=1e-4, atol=1e-5, equal_nan=True)
