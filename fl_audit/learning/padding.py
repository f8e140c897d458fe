"""Evaluation of texts without most of their padding.

Texts are padded to one number of tokens, and a model computes as much for padding as for words. Where a model's outputs
do not depend on padding, texts of about the same length are evaluated together, without the tokens at the end that are
padding in all of them.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from fl_audit.learning.named_inputs import MASK, NamedInput

_STEPS = 16
"""Lengths are rounded up to a multiple of a sixteenth of the padded length."""
_WORTH = 2**20
"""Scalars of activations from which texts of one length are evaluated on their own: below, calls of torch cost more."""


def shortened(inputs: tuple[NamedInput, ...], width: int) -> tuple[NamedInput, ...]:
    """Return the named arrays of rows from which tokens at the end were cut; those of whole rows stay as they are.

    Parameters
    ----------
    inputs
        Named arrays of whole rows.
    width
        Number of values of a row that is given.
    """
    if width == sum(one.width for one in inputs):
        return inputs
    return tuple(replace(one, shape=(width // len(inputs),)) for one in inputs)


def is_padded(inputs: tuple[NamedInput, ...]) -> bool:
    """Return whether rows consist of one number per token in each array, with an attention mask among the arrays."""
    names, shapes = [one.name for one in inputs], {one.shape for one in inputs}
    return MASK in names and len(shapes) == 1 and len(inputs[0].shape) == 1


def lengths(features: Tensor, inputs: tuple[NamedInput, ...]) -> Tensor:
    """Return the number of tokens of each text up to its last one that is no padding, int64 (n,).

    A text of padding alone has the padded length: attention, which has nothing to look at, looks at all of it.

    Parameters
    ----------
    features
        Rows of the texts, (n, width).
    inputs
        Named arrays of the rows, for which `is_padded` holds.
    """
    tokens, place = inputs[0].width, [one.name for one in inputs].index(MASK)
    mask = features[:, place * tokens : (place + 1) * tokens] != 0
    last = (mask * torch.arange(1, tokens + 1, device=features.device)).amax(1)
    return torch.where(last == 0, tokens, last)


def by_length(
    features: Tensor, inputs: tuple[NamedInput, ...], activations: int, worth: int | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield groups of texts of about the same length: their numbers, and their rows without shared padding.

    Parameters
    ----------
    features
        Rows of the texts, (n, width).
    inputs
        Named arrays of the rows, for which `is_padded` holds.
    activations
        Scalars of activations of a text.
    worth
        Scalars of activations that each group but the last has at least; smaller groups join the next longer one. None
        takes the number from which a group is worth its calls of torch.
    """
    least, tokens = _WORTH if worth is None else worth, inputs[0].width
    step = -(-tokens // _STEPS)
    rounded = (-(-lengths(features, inputs) // step) * step).clamp(max=tokens)
    order = torch.argsort(rounded, stable=True)
    sizes = torch.bincount(rounded, minlength=tokens + 1).tolist()
    first = last = 0
    for length in (one for one, size in enumerate(sizes) if size):
        last += sizes[length]
        if (last - first) * activations >= least or last == len(features):
            chosen = order[first:last]
            parts = features[chosen].reshape(len(chosen), len(inputs), tokens)
            yield chosen, parts[..., :length].flatten(1)
            first = last
