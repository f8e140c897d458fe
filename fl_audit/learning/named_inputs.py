"""Arrays that a model's `forward` takes by name, such as token ids and their attention mask.

Records are stored, selected and sent as rows of float32 numbers. These hold integers up to 2^24 exactly, so the named
arrays of a record are concatenated in its row; a model gets them in their own shapes, integers as int64.
"""

from dataclasses import dataclass
from math import prod

LARGEST_WHOLE = 2**24
"""Largest whole number of a named array: a 32-bit floating-point number holds all up to it exactly."""
TOKENS, MASK = "input_ids", "attention_mask"
"""The names that models of text have for the ids of tokens, and for which of them are no padding."""


@dataclass(frozen=True)
class NamedInput:
    """An array that a model takes by name."""

    name: str  # name of the argument of the model's forward
    shape: tuple[int, ...]  # of one record; empty for a single number
    is_whole: bool  # whether its numbers are whole, and the model is given int64
    count: int | None = None  # number of ids, 0 to count - 1, if a public vocabulary determines it

    @property
    def width(self) -> int:
        """Number of values of this array per record, the product of `shape`."""
        return prod(self.shape)


def width_of(inputs: tuple[NamedInput, ...]) -> int:
    """Return the number of values of all named arrays together per record."""
    return sum(one.width for one in inputs)


def vocabulary_size(inputs: tuple[NamedInput, ...]) -> int | None:
    """Return the number of possible token ids; None if no public vocabulary determines it.

    Examples
    --------
    >>> vocabulary_size((NamedInput("input_ids", (8,), True, 30_522), NamedInput("attention_mask", (8,), True)))
    30522
    """
    return next((one.count for one in inputs if one.name == TOKENS), None)
