"""Advice on models that cannot be used: what was seen of a model, and what its author should do.

`ADVICE` is the table of all advice. `advise` returns the text of the first row that applies to a fault.
"""

from collections.abc import Callable, Mapping
from math import isqrt, prod
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from fl_audit.errors import InputError
from fl_audit.learning.model_faults import (
    ModelCheck,
    ModelFault,
    convolution_axes,
    fault_values,
    input_channels,
    shape_of,
    sum_to_one,
)


class Advice(NamedTuple):
    """One row of the table: when it applies, what was seen, and what to do, as templates of `fault_values`."""

    applies: Callable[[ModelFault], bool]
    seen: str
    remedy: str


def _always(fault: ModelFault) -> bool:
    return True


def _says(*words: str) -> Callable[[ModelFault], bool]:
    """Return a rule that applies if the message of the exception contains one of some words."""
    return lambda fault: any(word in str(fault.error) for word in words)


def _is(*kinds: type[nn.Module]) -> Callable[[ModelFault], bool]:
    """Return a rule that applies if the layer has one of some types and was given a tensor."""
    return lambda fault: isinstance(fault.layer, kinds) and fault.inputs is not None


def _is_dropout(fault: ModelFault) -> bool:
    return isinstance(fault.layer, nn.modules.dropout._DropoutNd) and fault.layer.p > 0


def _is_trained_in_another_type(fault: ModelFault) -> bool:
    # Frozen parameters may take less memory, as in 16 bits or in whole numbers.
    parameter = fault.parameter
    return parameter is not None and parameter.requires_grad and parameter.dtype is not torch.float32


def _looks_up_floats(fault: ModelFault) -> bool:
    return _is(nn.Embedding, nn.EmbeddingBag)(fault) and fault.inputs is not None and fault.inputs.is_floating_point()


def _looks_up_negative(fault: ModelFault) -> bool:
    return _is(nn.Embedding, nn.EmbeddingBag)(fault) and fault.inputs is not None and int(fault.inputs.min()) < 0


def _has_no_channels(fault: ModelFault) -> bool:
    axes = convolution_axes(fault.layer)
    return axes is not None and input_channels(fault.layer) == 1 and len(fault.input_shape) == len(axes)


def _is_flat_picture(fault: ModelFault) -> bool:
    layer = fault.layer
    shape = fault.input_shape
    if not isinstance(layer, nn.Conv2d) or len(shape) != 1:
        return False
    return layer.in_channels * isqrt(prod(shape) // layer.in_channels) ** 2 == prod(shape)


def _is_picture_of_steps(fault: ModelFault) -> bool:
    layer = fault.layer
    shape = fault.input_shape
    if isinstance(layer, nn.Conv1d):
        return len(shape) == 3 and shape[:2] == (1, layer.in_channels)
    return isinstance(layer, nn.RNNBase) and len(shape) == 3 and shape[0] == 1 and shape[2] == layer.input_size


def _has_channels_last(fault: ModelFault) -> bool:
    axes = convolution_axes(fault.layer)
    shape = fault.input_shape
    return axes is not None and len(shape) == len(axes) + 1 and shape[-1] == input_channels(fault.layer)


def _is_unflattened(fault: ModelFault) -> bool:
    layer = fault.layer
    shape = fault.input_shape
    return isinstance(layer, nn.Linear) and len(shape) > 1 and prod(shape) == layer.in_features


def _is_steps_of_numbers(fault: ModelFault) -> bool:
    return isinstance(fault.layer, nn.RNNBase) and len(fault.input_shape) == 1 and fault.layer.input_size == 1


def _is_single_step(fault: ModelFault) -> bool:
    layer = fault.layer
    return isinstance(layer, nn.RNNBase) and fault.input_shape == (layer.input_size,)


def _names_arguments(fault: ModelFault) -> bool:
    return bool(fault.named_inputs) and isinstance(fault.error, TypeError) and _says("unexpected keyword")(fault)


def _asks_for_more(fault: ModelFault) -> bool:
    return isinstance(fault.error, TypeError) and _says("positional argument")(fault)


def _has_further_axes(fault: ModelFault) -> bool:
    outputs = fault.outputs
    return isinstance(outputs, Tensor) and outputs.dim() > 2 and outputs.shape[0] == fault.count


def _has_no_axis_of_classes(fault: ModelFault) -> bool:
    return _has_further_axes(fault) and fault.classes not in shape_of(fault.outputs)[1:]


def _squeezes_single_record(fault: ModelFault) -> bool:
    return isinstance(fault.single_output, Tensor) and len(shape_of(fault.single_output)) < len(shape_of(fault.outputs))


def _is_no_matrix(fault: ModelFault) -> bool:
    shape = shape_of(fault.outputs)
    return len(shape) != 2 or shape[0] != fault.count


def _is_no_float(fault: ModelFault) -> bool:
    return isinstance(fault.outputs, Tensor) and not fault.outputs.dtype.is_floating_point


def _is_detached(fault: ModelFault) -> bool:
    return isinstance(fault.outputs, Tensor) and not fault.outputs.requires_grad


def _are_probabilities(fault: ModelFault) -> bool:
    """Return whether all outputs are in [0, 1], and they sum to 1 or come out of a softmax or sigmoid."""
    outputs = fault.outputs
    if not isinstance(outputs, Tensor) or not bool(((outputs >= 0) & (outputs <= 1)).all()):
        return False
    return sum_to_one(outputs) or isinstance(fault.layer, (nn.Softmax, nn.Sigmoid))


def _takes_first_axis_for_time(fault: ModelFault) -> bool:
    return isinstance(fault.layer, (nn.RNNBase, nn.MultiheadAttention)) and not fault.layer.batch_first


def _takes_records_for_a_sequence(fault: ModelFault) -> bool:
    return isinstance(fault.layer, (nn.RNNBase, nn.MultiheadAttention)) and len(fault.feature_shape) == 1


_SEQUENCE = (
    'records of two axes are taken for pictures of one channel: axes = "sequence" in [data] of an archive leaves that '
    "axis out, or call .squeeze(1)"
)
_SIZES = (
    "it makes tensors whose size depends on the record, as torch.nn.utils.rnn.pack_padded_sequence does, which "
    "torch.func.vmap cannot do"
)
_CONVOLUTION = "it reads records of shape ({axes}) with C = {channels}, and is given {input_shape}"
_DENSE = "it takes {layer.in_features} numbers and is given {last_side}"
_LOOKUP = "it holds {layer.num_embeddings} rows, 0 to {last_row}, and is asked for"
_RECURRENT = "it reads records of shape (steps, {layer.input_size}), and is given {input_shape}"
_SHAPE = "the model returns shape {output_shape} for {count} records"
_ROWS = "accepted is ({count}, {classes}), one row of logits for each record"
_MIXES = "the model gives outputs of shape {output_shape} for {count} examples, or mixes examples"
_BOTH_MODES = (
    "accepted is one that computes the same in training and in evaluation mode, so remove the dropout or set its "
    "probability to 0{dropout_settings}{weight_norm}"
)
_OPACUS = (
    "accepted with strategy 'dp-sgd-clients' are models that train it no more, by .requires_grad_(False); strategy "
    "'dp-fedsgd' has no such limit"
)

ADVICE: Mapping[ModelCheck, tuple[Advice, ...]] = {
    ModelCheck.LAYER: (
        Advice(
            lambda fault: isinstance(fault.layer, (nn.modules.batchnorm._BatchNorm, nn.SyncBatchNorm)),
            "layer {path!r} is a {kind}, which mixes the examples of a batch, so one record has no gradient of its own",
            "use torch.nn.GroupNorm or torch.nn.LayerNorm instead",
        ),
        Advice(
            _is_dropout,
            "layer {path!r} is a {kind}, whose random masks no party could recompute",
            "remove it or set p = 0{dropout_settings}",
        ),
        Advice(
            lambda fault: type(fault.layer).__module__.startswith("torch.ao.nn.quantized"),
            "layer {path!r} is a {kind} of torch.ao.quantization, which has no gradient and scales by all examples of "
            "a batch",
            "use the layer of torch.nn in its place",
        ),
        Advice(
            lambda fault: (
                isinstance(fault.layer, nn.modules.instancenorm._InstanceNorm) and fault.layer.track_running_stats
            ),
            "layer {path!r} tracks running statistics over batches",
            "use track_running_stats=False",
        ),
    ),
    ModelCheck.PARAMETER: (
        Advice(
            lambda fault: isinstance(fault.parameter, UninitializedParameter),
            "parameter {path!r} belongs to a lazy layer, which has no shape until it first runs",
            "name the number of inputs, as torch.nn.Linear(inputs, outputs) does",
        ),
        Advice(
            _is_trained_in_another_type,
            "parameter {path!r} is of type {parameter_type}",
            "accepted is float32, which module.float() makes of it",
        ),
        Advice(
            lambda fault: fault.parameter is not None and fault.parameter.device.type != "cpu",
            "parameter {path!r} is on device {device}",
            "accepted is cpu; device in [run] says where clients compute",
        ),
    ),
    ModelCheck.COPY: (
        Advice(
            _says("torch.nn.utils.weight_norm"),
            "the model cannot be copied ({error})",
            "accepted is torch.nn.utils.parametrizations.weight_norm in its place",
        ),
        Advice(_always, "the model cannot be copied ({error})", "accepted is a module of tensors and layers"),
    ),
    ModelCheck.FORWARD: (
        Advice(
            _says("must have the same dtype", "expected scalar type"),
            "records arrive as float32, and so are its weights",
            "call .float() on what the layer is given",
        ),
        Advice(
            _looks_up_floats,
            "records arrive as float32, and it looks up whole numbers",
            "call .long() on what the layer is given",
        ),
        Advice(_looks_up_negative, _LOOKUP + " {smallest}", "accepted are numbers from 0"),
        Advice(
            _is(nn.Embedding, nn.EmbeddingBag),
            _LOOKUP + " {largest}",
            "accepted is a larger one, such as {kind}({needed_rows}, {layer.embedding_dim})",
        ),
        Advice(_has_no_channels, _CONVOLUTION, "put torch.nn.Unflatten(1, (1, {first_side})) before it"),
        Advice(_is_flat_picture, _CONVOLUTION, "put torch.nn.Unflatten(1, ({channels}, {side}, {side})) before it"),
        Advice(
            lambda fault: isinstance(fault.layer, nn.Conv1d) and _is_picture_of_steps(fault), _CONVOLUTION, _SEQUENCE
        ),
        Advice(_has_channels_last, _CONVOLUTION, "move the last axis to the front, by .movedim(-1, 1)"),
        Advice(
            lambda fault: convolution_axes(fault.layer) is not None,
            _CONVOLUTION,
            "accepted are inputs of that shape, so reshape them or change C",
        ),
        Advice(_is_unflattened, _DENSE, "put torch.nn.Flatten() before it"),
        Advice(
            _is(nn.Linear),
            _DENSE + "; a record has shape {feature_shape}",
            "accepted is torch.nn.Linear({numbers}, {layer.out_features}){behind_flatten}",
        ),
        Advice(_is_picture_of_steps, _RECURRENT, _SEQUENCE),
        Advice(_is_steps_of_numbers, _RECURRENT, "call .unsqueeze(2) on what it is given"),
        Advice(_is_single_step, _RECURRENT, "call .unsqueeze(1) on what it is given"),
        Advice(_is(nn.RNNBase), _RECURRENT, "accepted is {kind}({last_side}, {layer.hidden_size}, batch_first=True)"),
        Advice(
            _says("index tensor", "indices must be", "used as indices", "'indices'"),
            "records arrive as float32",
            "call .long() on what is looked up",
        ),
        Advice(
            _says("no padding token"), "its configuration has no id of padding", "give it one, such as pad_token_id=0"
        ),
        Advice(
            _names_arguments,
            "its forward is given {named_inputs} by name",
            "name its arguments so, and add **others for what it does not read",
        ),
        Advice(
            _asks_for_more,
            "forward is called with one tensor, the batch of records",
            "give its other arguments defaults",
        ),
    ),
    ModelCheck.VMAP: (
        Advice(
            _says("_nested_", "nested tensor"),
            "it makes nested tensors, which torch.func.vmap cannot run",
            "accepted are padded tensors and their mask, and enable_nested_tensor=False where a layer has it",
        ),
        Advice(
            _says("stack expects each tensor to be equal size", "pack_padded", "support dynamic shape"),
            _SIZES,
            "accepted are tensors of one size, so run the padded steps, and take the output of the last token by "
            "torch.take_along_dim(h, last[:, None, None], 1).squeeze(1)",
        ),
        Advice(_says("random"), "it draws random numbers, which no party could recompute", "remove the draw"),
        Advice(
            lambda fault: fault.detail == "transformers" and _says(".item()", "data-dependent")(fault),
            "the library asks for a number of Python in its own code, as for the padding mask of some models, which "
            "torch.func.vmap cannot do",
            "accepted are models whose attention takes a mask of four axes, such as BERT, DistilBERT, RoBERTa, "
            "ELECTRA, GPT-2, Llama and the encoder of T5",
        ),
        Advice(
            _says(".item()", "data-dependent"),
            "it asks a tensor for a number of Python, by .item(), float() or if, which torch.func.vmap cannot do",
            "accepted are tensors throughout, such as torch.where(condition, one, other) in place of if, and no "
            ".item()",
        ),
        Advice(
            _says("Cannot access data pointer"),
            "it leaves torch, as .numpy() does",
            "accepted are operations of torch throughout",
        ),
        Advice(
            _says("inplace", "in-place", "match the broadcast shape"),
            "it writes into a tensor in place, which torch.func.vmap cannot do for many records at once",
            "accepted is h = h + x in place of h += x, and torch.stack(parts) in place of filling a tensor part by "
            "part",
        ),
    ),
    ModelCheck.OUTPUTS: (
        Advice(
            lambda fault: hasattr(fault.outputs, "last_hidden_state"),
            "the model returns a {output_kind}, which has hidden states and no logits",
            "accepted is the form of the library with a head, such as ...ForSequenceClassification with "
            "num_labels={classes}",
        ),
        Advice(
            lambda fault: not isinstance(fault.outputs, Tensor),
            "the model returns {article} {output_kind}",
            "return the logits alone, as a class does of these two lines: 'class Logits({kind}):' and "
            "'    def forward(self, *given, **named): return super().forward(*given, **named){logits_within}'",
        ),
        Advice(
            _has_no_axis_of_classes,
            _SHAPE + ", none of whose axes has {classes} classes",
            _ROWS + ", by a head of {classes} outputs, such as ...ForSequenceClassification of a library has",
        ),
        Advice(
            _has_further_axes,
            _SHAPE + ", which has further axes, as a map of pixels or steps has",
            _ROWS + ", such as the mean over the others, .mean({other_axes})",
        ),
        Advice(
            _squeezes_single_record,
            "the model returns shape {single_shape} for a single record",
            "accepted is (1, {classes}), so name the axis that .squeeze() takes away, or leave it out",
        ),
        Advice(_is_no_matrix, _SHAPE + ", or mixes examples", _ROWS),
        Advice(
            _is_no_float,
            "the model returns {output_type}, as argmax does",
            "accepted are logits, before a class is chosen",
        ),
        Advice(
            _is_detached,
            "the model's outputs have no gradient, as after .detach() or within torch.no_grad(), so nothing would be "
            "learned",
            "accepted are outputs that follow its trained parameters, so leave that out",
        ),
        Advice(
            lambda fault: bool(fault.detail),
            "the model computes in {detail}, so its gradients are off by 1e-3",
            "accepted is float32 throughout, so leave out torch.autocast, .half() and .bfloat16()",
        ),
    ),
    ModelCheck.NO_GRADIENT: (
        Advice(
            _always,
            "no trained parameter of the model has a gradient on records of the data, as within torch.no_grad(), "
            "behind .detach() or behind argmax, so nothing would be learned",
            "accepted are trained layers whose outputs reach the logits, so leave out what cuts them off",
        ),
    ),
    ModelCheck.PROBABILITIES: (
        Advice(
            _are_probabilities,
            "the model's outputs are probabilities, as after a {last_function}, and the loss, cross-entropy, takes "
            "logits",
            "it learns more without the {last_function}",
        ),
    ),
    ModelCheck.MIXING: (
        Advice(
            _takes_first_axis_for_time,
            _MIXES + ", for {words} takes the first axis for steps of time",
            "give it batch_first=True",
        ),
        Advice(
            _takes_records_for_a_sequence,
            _MIXES + ", for {words} takes two axes for one sequence",
            "give it records of (steps, numbers)",
        ),
        Advice(
            _always,
            _MIXES,
            "accepted are outputs of shape ({count}, {classes}), of which each row depends on one example",
        ),
    ),
    ModelCheck.CLASSES: (
        Advice(
            lambda fault: shape_of(fault.outputs)[1] + 1 == fault.classes == 2,
            "the model has 1 output and the data has 2 classes",
            "accepted is one output for each class; one number for two classes, as a sigmoid reads it, becomes two",
        ),
        Advice(
            _always,
            "the model has {outputs} outputs and the data has {classes} classes",
            "accepted is one output for each class",
        ),
    ),
    ModelCheck.RANDOM: (
        Advice(
            _always,
            "the model draws random numbers in training mode, as dropout does, and no party could recompute that",
            _BOTH_MODES,
        ),
    ),
    ModelCheck.TRAINING_MODE: (
        Advice(
            _always,
            "the model gives other outputs in training mode, as dropout does, and no party could recompute that",
            _BOTH_MODES,
        ),
    ),
    ModelCheck.MOVED_WEIGHTS: (
        Advice(
            _always,
            "the model gives other outputs in training than in evaluation mode once its weights have moved"
            "{moved_buffer}, and all parties compute in evaluation mode with buffers as they are",
            "accepted is one that computes the same in both modes{weight_norm}",
        ),
    ),
    ModelCheck.OPACUS: (
        Advice(
            lambda fault: fault.count == 0,
            "Opacus has no gradient of single records for parameter {path!r}, which is used outside of the layer that "
            "holds it",
            _OPACUS,
        ),
        Advice(
            _always,
            "Opacus forms {detail} gradients of parameter {path!r} for {count} records, which share it",
            _OPACUS,
        ),
    ),
}
"""All advice; of the rows of a check, the first one that applies counts."""


def advise(check: ModelCheck, fault: ModelFault) -> str | None:
    """Return what was seen and what to do, as one line, by the first row of a check that applies; None if none does."""
    for advice in ADVICE[check]:
        if advice.applies(fault):
            return f"{advice.seen}: {advice.remedy}".format_map(fault_values(fault))
    return None


def refusal(check: ModelCheck, fault: ModelFault) -> InputError:
    """Return the error for a fault on which a check always has advice."""
    advice = advise(check, fault)
    assert advice is not None, "the last row of the check applies to all faults"
    return InputError(advice)
