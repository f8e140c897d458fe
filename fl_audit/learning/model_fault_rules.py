"""Rules that say to which faults of a model a row of advice applies."""

from collections.abc import Callable
from math import isqrt, prod

import torch
from torch import Tensor, nn

from fl_audit.learning.model_faults import ModelFault, convolution_axes, input_channels, shape_of, sum_to_one


def applies_always(fault: ModelFault) -> bool:
    """Return True for every fault."""
    return True


def says_any_of(*words: str) -> Callable[[ModelFault], bool]:
    """Return a rule that applies if the message of the exception contains one of some words."""
    return lambda fault: any(word in str(fault.error) for word in words)


def is_layer_of(*kinds: type[nn.Module]) -> Callable[[ModelFault], bool]:
    """Return a rule that applies if the layer has one of some types and was given a tensor."""
    return lambda fault: isinstance(fault.layer, kinds) and fault.inputs is not None


def is_dropout(fault: ModelFault) -> bool:
    """Return whether the layer draws dropout masks."""
    return isinstance(fault.layer, nn.modules.dropout._DropoutNd) and fault.layer.p > 0


def is_trained_in_another_type(fault: ModelFault) -> bool:
    """Return whether a parameter that is trained is not in 32-bit floats."""
    # Frozen parameters may take less memory, as in 16 bits or in whole numbers.
    parameter = fault.parameter
    return parameter is not None and parameter.requires_grad and parameter.dtype is not torch.float32


def looks_up_floats(fault: ModelFault) -> bool:
    """Return whether an embedding was given numbers with fractions."""
    return (
        is_layer_of(nn.Embedding, nn.EmbeddingBag)(fault)
        and fault.inputs is not None
        and fault.inputs.is_floating_point()
    )


def looks_up_negative(fault: ModelFault) -> bool:
    """Return whether an embedding was asked for a negative row."""
    return (
        is_layer_of(nn.Embedding, nn.EmbeddingBag)(fault) and fault.inputs is not None and int(fault.inputs.min()) < 0
    )


def has_no_channels(fault: ModelFault) -> bool:
    """Return whether a convolution of one channel was given records without an axis of channels."""
    axes = convolution_axes(fault.layer)
    return axes is not None and input_channels(fault.layer) == 1 and len(fault.input_shape) == len(axes)


def is_flat_picture(fault: ModelFault) -> bool:
    """Return whether a convolution was given a square picture as one row of numbers."""
    layer = fault.layer
    shape = fault.input_shape
    if not isinstance(layer, nn.Conv2d) or len(shape) != 1:
        return False
    return layer.in_channels * isqrt(prod(shape) // layer.in_channels) ** 2 == prod(shape)


def is_picture_of_steps(fault: ModelFault) -> bool:
    """Return whether a layer of sequences was given them as a picture of one channel."""
    layer = fault.layer
    shape = fault.input_shape
    if isinstance(layer, nn.Conv1d):
        return len(shape) == 3 and shape[:2] == (1, layer.in_channels)
    return isinstance(layer, nn.RNNBase) and len(shape) == 3 and shape[0] == 1 and shape[2] == layer.input_size


def has_channels_last(fault: ModelFault) -> bool:
    """Return whether a convolution was given the axis of channels last."""
    axes = convolution_axes(fault.layer)
    shape = fault.input_shape
    return axes is not None and len(shape) == len(axes) + 1 and shape[-1] == input_channels(fault.layer)


def is_unflattened(fault: ModelFault) -> bool:
    """Return whether a dense layer was given the numbers that it takes in several axes."""
    layer = fault.layer
    shape = fault.input_shape
    return isinstance(layer, nn.Linear) and len(shape) > 1 and prod(shape) == layer.in_features


def is_steps_of_numbers(fault: ModelFault) -> bool:
    """Return whether a recurrent layer of one number a step was given one row of numbers."""
    return isinstance(fault.layer, nn.RNNBase) and len(fault.input_shape) == 1 and fault.layer.input_size == 1


def is_single_step(fault: ModelFault) -> bool:
    """Return whether a recurrent layer was given one step without an axis of steps."""
    layer = fault.layer
    return isinstance(layer, nn.RNNBase) and fault.input_shape == (layer.input_size,)


def names_arguments(fault: ModelFault) -> bool:
    """Return whether the model does not take the names of the inputs that the data has."""
    return bool(fault.named_inputs) and isinstance(fault.error, TypeError) and says_any_of("unexpected keyword")(fault)


def asks_for_more(fault: ModelFault) -> bool:
    """Return whether the model takes more, or fewer, arguments than it was given."""
    return isinstance(fault.error, TypeError) and says_any_of("positional argument")(fault)


def has_further_axes(fault: ModelFault) -> bool:
    """Return whether the outputs have more axes than records and classes."""
    outputs = fault.outputs
    return isinstance(outputs, Tensor) and outputs.dim() > 2 and outputs.shape[0] == fault.count


def has_no_axis_of_classes(fault: ModelFault) -> bool:
    """Return whether the outputs have further axes and none of them is as long as there are classes."""
    return has_further_axes(fault) and fault.classes not in shape_of(fault.outputs)[1:]


def squeezes_single_record(fault: ModelFault) -> bool:
    """Return whether the axis of records is missing in the output for a single record."""
    return isinstance(fault.single_output, Tensor) and len(shape_of(fault.single_output)) < len(shape_of(fault.outputs))


def is_no_matrix(fault: ModelFault) -> bool:
    """Return whether the outputs are not one row for each record."""
    shape = shape_of(fault.outputs)
    return len(shape) != 2 or shape[0] != fault.count


def is_no_float(fault: ModelFault) -> bool:
    """Return whether the outputs are integers or truth values."""
    return isinstance(fault.outputs, Tensor) and not fault.outputs.dtype.is_floating_point


def is_detached(fault: ModelFault) -> bool:
    """Return whether the outputs have no gradient."""
    return isinstance(fault.outputs, Tensor) and not fault.outputs.requires_grad


def are_probabilities(fault: ModelFault) -> bool:
    """Return whether all outputs are in [0, 1], and they sum to 1 or come out of a softmax or sigmoid."""
    outputs = fault.outputs
    if not isinstance(outputs, Tensor) or not bool(((outputs >= 0) & (outputs <= 1)).all()):
        return False
    return sum_to_one(outputs) or isinstance(fault.layer, (nn.Softmax, nn.Sigmoid))


def takes_first_axis_for_time(fault: ModelFault) -> bool:
    """Return whether a layer of sequences takes the axis of records for the axis of steps."""
    return isinstance(fault.layer, (nn.RNNBase, nn.MultiheadAttention)) and not fault.layer.batch_first


def takes_records_for_a_sequence(fault: ModelFault) -> bool:
    """Return whether a layer of sequences was given flat records, and takes all of them for one sequence."""
    return isinstance(fault.layer, (nn.RNNBase, nn.MultiheadAttention)) and len(fault.feature_shape) == 1
