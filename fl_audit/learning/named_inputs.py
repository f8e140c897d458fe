"""Arrays that a model's `forward` takes by name, such as token ids and their attention mask.

Records are stored, selected and sent as rows of float32 numbers, which represent integers up to 2^24 exactly. A row is
the concatenation of a record's named arrays. A model gets the arrays in their own shapes, integers as int64.
"""

from dataclasses import dataclass
from math import prod

LARGEST_WHOLE = 2**24
"""Largest integer in a named array; float32 represents all integers up to it exactly."""
TOKENS = "input_ids"
MASK = "attention_mask"
"""Names of two arguments of text models: the token ids, and the mask that is 1 for tokens and 0 for padding."""


@dataclass(frozen=True)
class NamedInput:
    """An array that a model's `forward` takes by name: its name, its shape, and whether it holds integers."""

    name: str  # name of the argument of the model's forward
    shape: tuple[int, ...]  # shape for one record; empty for a single number
    is_whole: bool  # whether the values are integers, which the model gets as int64
    count: int | None = None  # number of possible ids, 0 to count - 1; None if no public vocabulary determines it

    @property
    def width(self) -> int:
        """Number of values of the array per record, which is the product of `shape`."""
        return prod(self.shape)


def width_of(inputs: tuple[NamedInput, ...]) -> int:
    """Return the number of values per record of all the given named arrays together."""
    return sum(array.width for array in inputs)


def vocabulary_size(inputs: tuple[NamedInput, ...]) -> int | None:
    """Return the number of possible token ids in the array `input_ids`; None if no public vocabulary determines it.

    Examples
    --------
    >>> vocabulary_size((NamedInput("input_ids", (8,), True, 30_522), NamedInput("attention_mask", (8,), True)))
    30522
    """
    return next((array.count for array in inputs if array.name == TOKENS), None)
