"""Advice on models that cannot be used: what was seen of a model, and what its author should do.

`ADVICE` is the table of all advice. `advise` returns the text of the first row that applies to a fault.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from fl_audit.errors import InputError
from fl_audit.learning.model_fault_rules import (
    applies_always,
    are_probabilities,
    asks_for_more,
    has_channels_last,
    has_further_axes,
    has_no_axis_of_classes,
    has_no_channels,
    is_detached,
    is_dropout,
    is_flat_picture,
    is_layer_of,
    is_no_float,
    is_no_matrix,
    is_picture_of_steps,
    is_single_step,
    is_steps_of_numbers,
    is_trained_in_another_type,
    is_unflattened,
    looks_up_floats,
    looks_up_negative,
    names_arguments,
    says_any_of,
    squeezes_single_record,
    takes_first_axis_for_time,
    takes_records_for_a_sequence,
)
from fl_audit.learning.model_faults import ModelCheck, ModelFault, convolution_axes, fault_values, shape_of


class Advice(NamedTuple):
    """One row of the table: when it applies, what was seen, and what to do, as templates of `fault_values`."""

    applies: Callable[[ModelFault], bool]
    seen: str
    remedy: str


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
            is_dropout,
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
            is_trained_in_another_type,
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
            says_any_of("torch.nn.utils.weight_norm"),
            "the model cannot be copied ({error})",
            "accepted is torch.nn.utils.parametrizations.weight_norm in its place",
        ),
        Advice(applies_always, "the model cannot be copied ({error})", "accepted is a module of tensors and layers"),
    ),
    ModelCheck.FORWARD: (
        Advice(
            says_any_of("must have the same dtype", "expected scalar type"),
            "records arrive as float32, and so are its weights",
            "call .float() on what the layer is given",
        ),
        Advice(
            looks_up_floats,
            "records arrive as float32, and it looks up whole numbers",
            "call .long() on what the layer is given",
        ),
        Advice(looks_up_negative, _LOOKUP + " {smallest}", "accepted are numbers from 0"),
        Advice(
            is_layer_of(nn.Embedding, nn.EmbeddingBag),
            _LOOKUP + " {largest}",
            "accepted is a larger one, such as {kind}({needed_rows}, {layer.embedding_dim})",
        ),
        Advice(has_no_channels, _CONVOLUTION, "put torch.nn.Unflatten(1, (1, {first_side})) before it"),
        Advice(is_flat_picture, _CONVOLUTION, "put torch.nn.Unflatten(1, ({channels}, {side}, {side})) before it"),
        Advice(
            lambda fault: isinstance(fault.layer, nn.Conv1d) and is_picture_of_steps(fault), _CONVOLUTION, _SEQUENCE
        ),
        Advice(has_channels_last, _CONVOLUTION, "move the last axis to the front, by .movedim(-1, 1)"),
        Advice(
            lambda fault: convolution_axes(fault.layer) is not None,
            _CONVOLUTION,
            "accepted are inputs of that shape, so reshape them or change C",
        ),
        Advice(is_unflattened, _DENSE, "put torch.nn.Flatten() before it"),
        Advice(
            is_layer_of(nn.Linear),
            _DENSE + "; a record has shape {feature_shape}",
            "accepted is torch.nn.Linear({numbers}, {layer.out_features}){behind_flatten}",
        ),
        Advice(is_picture_of_steps, _RECURRENT, _SEQUENCE),
        Advice(is_steps_of_numbers, _RECURRENT, "call .unsqueeze(2) on what it is given"),
        Advice(is_single_step, _RECURRENT, "call .unsqueeze(1) on what it is given"),
        Advice(
            is_layer_of(nn.RNNBase),
            _RECURRENT,
            "accepted is {kind}({last_side}, {layer.hidden_size}, batch_first=True)",
        ),
        Advice(
            says_any_of("index tensor", "indices must be", "used as indices", "'indices'"),
            "records arrive as float32",
            "call .long() on what is looked up",
        ),
        Advice(
            says_any_of("no padding token"),
            "its configuration has no id of padding",
            "give it one, such as pad_token_id=0",
        ),
        Advice(
            names_arguments,
            "its forward is given {named_inputs} by name",
            "name its arguments so, and add **others for what it does not read",
        ),
        Advice(
            asks_for_more,
            "forward is called with one tensor, the batch of records",
            "give its other arguments defaults",
        ),
    ),
    ModelCheck.VMAP: (
        Advice(
            says_any_of("_nested_", "nested tensor"),
            "it makes nested tensors, which torch.func.vmap cannot run",
            "accepted are padded tensors and their mask, and enable_nested_tensor=False where a layer has it",
        ),
        Advice(
            says_any_of("stack expects each tensor to be equal size", "pack_padded", "support dynamic shape"),
            _SIZES,
            "accepted are tensors of one size, so run the padded steps, and take the output of the last token by "
            "torch.take_along_dim(h, last[:, None, None], 1).squeeze(1)",
        ),
        Advice(says_any_of("random"), "it draws random numbers, which no party could recompute", "remove the draw"),
        Advice(
            lambda fault: fault.detail == "transformers" and says_any_of(".item()", "data-dependent")(fault),
            "the library asks for a number of Python in its own code, as for the padding mask of some models, which "
            "torch.func.vmap cannot do",
            "accepted are models whose attention takes a mask of four axes, such as BERT, DistilBERT, RoBERTa, "
            "ELECTRA, GPT-2, Llama and the encoder of T5",
        ),
        Advice(
            says_any_of(".item()", "data-dependent"),
            "it asks a tensor for a number of Python, by .item(), float() or if, which torch.func.vmap cannot do",
            "accepted are tensors throughout, such as torch.where(condition, one, other) in place of if, and no "
            ".item()",
        ),
        Advice(
            says_any_of("Cannot access data pointer"),
            "it leaves torch, as .numpy() does",
            "accepted are operations of torch throughout",
        ),
        Advice(
            says_any_of("inplace", "in-place", "match the broadcast shape"),
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
            has_no_axis_of_classes,
            _SHAPE + ", none of whose axes has {classes} classes",
            _ROWS + ", by a head of {classes} outputs, such as ...ForSequenceClassification of a library has",
        ),
        Advice(
            has_further_axes,
            _SHAPE + ", which has further axes, as a map of pixels or steps has",
            _ROWS + ", such as the mean over the others, .mean({other_axes})",
        ),
        Advice(
            squeezes_single_record,
            "the model returns shape {single_shape} for a single record",
            "accepted is (1, {classes}), so name the axis that .squeeze() takes away, or leave it out",
        ),
        Advice(is_no_matrix, _SHAPE + ", or mixes examples", _ROWS),
        Advice(
            is_no_float,
            "the model returns {output_type}, as argmax does",
            "accepted are logits, before a class is chosen",
        ),
        Advice(
            is_detached,
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
            applies_always,
            "no trained parameter of the model has a gradient on records of the data, as within torch.no_grad(), "
            "behind .detach() or behind argmax, so nothing would be learned",
            "accepted are trained layers whose outputs reach the logits, so leave out what cuts them off",
        ),
    ),
    ModelCheck.PROBABILITIES: (
        Advice(
            are_probabilities,
            "the model's outputs are probabilities, as after a {last_function}, and the loss, cross-entropy, takes "
            "logits",
            "it learns more without the {last_function}",
        ),
    ),
    ModelCheck.MIXING: (
        Advice(
            takes_first_axis_for_time,
            _MIXES + ", for {words} takes the first axis for steps of time",
            "give it batch_first=True",
        ),
        Advice(
            takes_records_for_a_sequence,
            _MIXES + ", for {words} takes two axes for one sequence",
            "give it records of (steps, numbers)",
        ),
        Advice(
            applies_always,
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
            applies_always,
            "the model has {outputs} outputs and the data has {classes} classes",
            "accepted is one output for each class",
        ),
    ),
    ModelCheck.RANDOM: (
        Advice(
            applies_always,
            "the model draws random numbers in training mode, as dropout does, and no party could recompute that",
            _BOTH_MODES,
        ),
    ),
    ModelCheck.TRAINING_MODE: (
        Advice(
            applies_always,
            "the model gives other outputs in training mode, as dropout does, and no party could recompute that",
            _BOTH_MODES,
        ),
    ),
    ModelCheck.MOVED_WEIGHTS: (
        Advice(
            applies_always,
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
            applies_always,
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
