"""Arrays that the forward of a model takes by name, such as the token ids of a text and their padding mask.

Records are rows of 32-bit floating-point numbers in every place where they are chosen, divided, sent and counted. Such
a number holds whole numbers up to 2^24 exactly, so the named arrays of a record stand one after the other in its row,
and a model is given them in their own shapes, whole numbers as int64.
"""

from dataclasses import dataclass
from math import prod

LARGEST_WHOLE = 2**24
"""Largest whole number of a named array: a 32-bit floating-point number holds all up to it exactly."""
TOKENS, MASK = "input_ids", "attention_mask"
"""The names that models of text have for the ids of tokens, and for which of them are no padding."""


@dataclass(frozen=True)
class NamedInput:
    """An array that a model is given by its name."""

    name: str  # name of the argument of the model's forward
    shape: tuple[int, ...]  # of one record; empty for a single number
    is_whole: bool  # whether its numbers are whole, and the model is given int64
    count: int | None = None  # number of ids, 0 to count - 1, if a public vocabulary determines it

    @property
    def width(self) -> int:
        """Count of the numbers that this array has for one record: the product of `shape`."""
        return prod(self.shape)


def width_of(inputs: tuple[NamedInput, ...]) -> int:
    """Return the count of numbers that all named arrays together have for one record."""
    return sum(one.width for one in inputs)


def vocabulary_size(inputs: tuple[NamedInput, ...]) -> int | None:
    """Return the number of ids that the tokens of a text can have; None where no public vocabulary determines it.

    Examples
    --------
    >>> vocabulary_size((NamedInput("input_ids", (8,), True, 30_522), NamedInput("attention_mask", (8,), True)))
    30522
    """
    return next((one.count for one in inputs if one.name == TOKENS), None)
