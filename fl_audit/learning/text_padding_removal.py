"""Evaluation of texts without most of their padding.

Texts are padded to one number of tokens, and a model computes as much for padding as for words. If a model's outputs do
not depend on padding, texts of about the same length are evaluated together. Tokens at the end that are padding in all
these texts are cut off.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from fl_audit.learning.named_inputs import MASK, NamedInput, width_of

_STEPS = 16
"""Lengths are rounded up to multiples of the padded length divided by this number."""
_WORTH = 2**20
"""Smallest number of stored scalars for which texts of one length form a group; smaller groups would cost time."""


def shortened(inputs: tuple[NamedInput, ...], width: int) -> tuple[NamedInput, ...]:
    """Return the layout of rows (names and shapes of arrays) after tokens at the end were cut off.

    Parameters
    ----------
    inputs
        Named arrays of a whole row, each with one number per token; returned unchanged if nothing was cut.
    width
        Number of values of a row after cutting, over all arrays.
    """
    if width == width_of(inputs):
        return inputs
    return tuple(replace(one, shape=(width // len(inputs),)) for one in inputs)


def is_padded(inputs: tuple[NamedInput, ...]) -> bool:
    """Return whether every named array has one number per token, and one of the arrays is an attention mask."""
    names, shapes = [one.name for one in inputs], {one.shape for one in inputs}
    return MASK in names and len(shapes) == 1 and len(inputs[0].shape) == 1


def lengths(features: Tensor, inputs: tuple[NamedInput, ...]) -> Tensor:
    """Return the number of tokens of each text up to its last token that is not padding, int64 (n,).

    A text of padding alone gets the padded length, because attention without any valid token reads all tokens.

    Parameters
    ----------
    features
        Rows of numbers, one for each text, (n, width).
    inputs
        Named arrays that a row consists of; `is_padded` must hold for them.
    """
    tokens, place = inputs[0].width, [one.name for one in inputs].index(MASK)
    mask = features[:, place * tokens : (place + 1) * tokens] != 0
    last = (mask * torch.arange(1, tokens + 1, device=features.device)).amax(1)
    return torch.where(last == 0, tokens, last)


def by_length(
    features: Tensor, inputs: tuple[NamedInput, ...], activations: int, worth: int = _WORTH
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield groups of texts of about the same length: their indices (m,), and their rows without shared padding.

    Parameters
    ----------
    features
        Rows of numbers, one for each text, (n, width).
    inputs
        Named arrays that a row consists of; `is_padded` must hold for them.
    activations
        Number of scalars that a pass stores for one text.
    worth
        Smallest number of stored scalars of a group; a smaller group joins the texts of the next length. By default,
        a group of this size saves time.
    """
    tokens = inputs[0].width
    step = -(-tokens // _STEPS)
    rounded = (-(-lengths(features, inputs) // step) * step).clamp(max=tokens)
    order = torch.argsort(rounded, stable=True)
    sizes = torch.bincount(rounded, minlength=tokens + 1).tolist()
    first = last = 0
    for length in (one for one, size in enumerate(sizes) if size):
        last += sizes[length]
        if (last - first) * activations >= worth or last == len(features):
            chosen = order[first:last]
            parts = features[chosen].reshape(len(chosen), len(inputs), tokens)
            yield chosen, parts[..., :length].flatten(1)
            first = last
