"""Checks that a model has per-example gradients, that all parties compute the same with it, and that it gives logits.

They decide whether a model can be used; what its author should do otherwise says `fl_audit.learning.model_advice`.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from fl_audit.errors import InputError, require
from fl_audit.learning.model_advice import advise
from fl_audit.learning.model_failures import explained, raised_at
from fl_audit.learning.model_faults import ModelCheck, ModelFault
from fl_audit.learning.module_preparation import NARROW, copied, exception_text, sharing_copy, without_hints

PROBE_EXAMPLES = 3  # number of examples on which a model is tested
_MODE_EXAMPLES = 16
_MODE_DRAWS = 4
"""Number of examples and of draws; with these, dropout with a probability of a few percent is noticed."""
_SMALL_STEP = 0.01  # step that moves weights that are all zero
_RECORDS_PER_PASS = 8
"""Number of records in one pass; it is small, because tensors saved for a backward pass take memory."""


@dataclass(frozen=True, eq=False)
class ModelCheckRecords:
    """Records of the data set on which a user's model is tested, each with a name for error messages."""

    features: Tensor  # features of the records, float32 (n, *shape)
    names: tuple[str, ...]  # name of each record for messages


def _require_no_advice(check: ModelCheck, fault: ModelFault) -> None:
    """Raise `InputError` if there is advice on a fault."""
    advice = advise(check, fault)
    if advice is not None:
        raise InputError(advice)


def check_module(module: nn.Module) -> None:
    """Raise `InputError` if a module's layers mix examples or draw random numbers, or its parameters are unusable."""
    for path, layer in module.named_modules():
        _require_no_advice(ModelCheck.LAYER, ModelFault(layer, path, model=module))
    parameters = dict(module.named_parameters())
    require(bool(parameters), "the model has no parameters: accepted is a model that can learn")
    for path, parameter in parameters.items():
        _require_no_advice(ModelCheck.PARAMETER, ModelFault(module, path, parameter=parameter))
    trained = any(parameter.requires_grad for parameter in parameters.values())
    require(trained, "all parameters of the model are frozen: accepted is a model some of whose parameters are trained")


def check_logits(module: nn.Module, classes: int, records: ModelCheckRecords) -> tuple[str, ...]:
    """Raise `InputError` unless a model returns one row of logits per record; return one-line warnings for its
    author."""
    subject = sharing_copy(module).eval()
    leaves = list[nn.Module]()
    narrow_types = list[str]()
    for layer in subject.modules():
        if not any(True for _ in layer.children()):
            layer.register_forward_hook(lambda layer, inputs, outputs: leaves.append(layer))

    def note(saved: Tensor) -> Tensor:
        narrow_types.extend([str(saved.dtype).removeprefix("torch.")] if saved.dtype in NARROW else [])
        return saved.detach()  # a result that the graph kept as it is would keep the graph, for ever

    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), without_hints(), saved_tensors_hooks(note, note):
            single_output = subject(records.features[:1])
            outputs = subject(records.features[:_RECORDS_PER_PASS])
            later_records = records.features[_RECORDS_PER_PASS:]
            later_outputs = map(subject, torch.split(later_records, _RECORDS_PER_PASS) if len(later_records) else ())
            later_tensors = [output.detach() for output in later_outputs if isinstance(output, Tensor)]
    except (Exception, SystemExit) as error:
        parameters = dict(module.named_parameters())
        explanation = explained(error, module, parameters, records.features, records.names)
        message = f"the model fails on records of the data: it raised {raised_at(error)}"
        raise explanation or InputError(message) from error
    count = len(records.features[:_RECORDS_PER_PASS])
    fault = ModelFault(subject, outputs=outputs, single_output=single_output, count=count, classes=classes)
    _require_no_advice(ModelCheck.OUTPUTS, replace(fault, detail="".join(narrow_types[:1])))
    assert isinstance(outputs, Tensor), "other objects are refused"
    # A single record at the end may come as another shape; `check_outputs` and the trials refuse that where it matters.
    tensors = [outputs.detach(), *(tensor for tensor in later_tensors if tensor.shape[1:] == outputs.shape[1:])]
    last_layer = leaves[-1] if leaves else subject
    caution = advise(ModelCheck.PROBABILITIES, ModelFault(last_layer, outputs=torch.cat(tensors)))
    return () if caution is None else (caution,)


def check_outputs(
    module: nn.Module, feature_shape: tuple[int, ...], classes: int, records: Tensor | None = None
) -> None:
    """Raise `InputError` unless a module returns one number per class for each example, whatever its mode.

    Shapes: `records` (n, *shape).
    """
    source = torch.Generator().manual_seed(1)
    features = torch.rand(PROBE_EXAMPLES, *feature_shape, generator=source)
    mode_features = torch.rand(_MODE_EXAMPLES, *feature_shape, generator=source)
    if records is not None:
        features = records[:PROBE_EXAMPLES]
        mode_features = records[:_MODE_EXAMPLES]
    _check_outputs(module, features, classes)
    _refuse_another_in_training(module, mode_features)
    _refuse_another_after_a_step(module, mode_features, source)


def _check_outputs(module: nn.Module, features: Tensor, classes: int) -> None:
    together, alone = _outputs_together_and_alone(sharing_copy(module).eval(), features)
    fault = ModelFault(module, outputs=together, count=len(features), classes=classes)
    if together.dim() != 2 or not _alike(together, alone):
        path, layer = _mixing_layer(module, features)
        shape = tuple(features.shape[1:])
        _require_no_advice(ModelCheck.MIXING, replace(fault, layer=layer, path=path, feature_shape=shape))
    if together.shape[1] != classes:
        _require_no_advice(ModelCheck.CLASSES, fault)


def _mixing_layer(module: nn.Module, features: Tensor) -> tuple[str, nn.Module]:
    """Return name and layer of the first layer that takes examples for steps of time; the module if there is none."""
    for path, layer in module.named_modules():
        is_sequential = isinstance(layer, (nn.RNNBase, nn.MultiheadAttention))
        if is_sequential and (not layer.batch_first or features.dim() == 2):
            return path, layer
    return "", module


def _outputs_together_and_alone(module: nn.Module, features: Tensor) -> tuple[Tensor, Tensor]:
    """Return a module's outputs for all examples together, and for one example at a time, each (n, ...).

    Outputs that differ are computed again in float64, because a network that sorts enlarges rounding errors.
    """

    def outputs(network: nn.Module, examples: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad(), without_hints():
            return network(examples), torch.cat([network(example.unsqueeze(0)) for example in examples])

    single_precision = outputs(module, features)
    if _alike(*single_precision):  # the copy in double precision of a large model is large
        return single_precision
    try:
        return outputs(copied(module).double(), features.double())
    except (RuntimeError, TypeError):
        return single_precision


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
    if not all(_alike(outputs, trained[0]) for outputs in trained):
        _require_no_advice(ModelCheck.RANDOM, ModelFault(module))
    if not _alike(trained[0], evaluated):
        _require_no_advice(ModelCheck.TRAINING_MODE, ModelFault(module))


def _refuse_another_after_a_step(module: nn.Module, features: Tensor, source: torch.Generator) -> None:
    """Raise `InputError` if, after a step, training mode or the buffers that it changes make outputs different."""
    # Spectral normalisation is alike in both modes at first: its buffers, which training mode moves, fit the first
    # weights, and not those after a step.
    subject = sharing_copy(module).train()
    try:
        still, trained, after, moved_buffers = _after_a_step(subject, features, source)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"the model cannot be run once its weights have moved ({exception_text(error)}): "
            "accepted is one that runs with any"
        ) from error
    if not (_alike(still, trained) and _alike(still, after)):
        _require_no_advice(ModelCheck.MOVED_WEIGHTS, ModelFault(module, detail="".join(moved_buffers[:1])))


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


def _alike(outputs: Tensor, other_outputs: Tensor) -> bool:
    """Return whether two outputs have the same shape and are equal up to rounding; NaN equals NaN."""
    is_one_shape = isinstance(outputs, Tensor) and outputs.shape == other_outputs.shape
    return is_one_shape and torch.allclose(outputs, other_outputs, rtol=1e-4, atol=1e-5, equal_nan=True)
