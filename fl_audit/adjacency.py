"""Define adjacency: the unit of privacy, the relation between neighbours D and D', and a pair of neighbours."""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never


class Unit(StrEnum):
    """Unit of privacy: D and D' differ by the data of one record, user or client."""

    RECORD = "record"
    USER = "user"  # a person with all of their records
    CLIENT = "client"


class Relation(StrEnum):
    """Relation between D and D': a unit is added or removed, or it is replaced by another one."""

    ADD_REMOVE = "add-remove"
    REPLACE = "replace"


class Adjacency(StrEnum):
    """Unit of privacy and relation between neighbours; each value is its name in configurations and reports."""

    ADD_REMOVE_RECORD = "add-remove-record"
    REPLACE_RECORD = "replace-record"
    ADD_REMOVE_USER = "add-remove-user"
    REPLACE_USER = "replace-user"
    ADD_REMOVE_CLIENT = "add-remove-client"
    REPLACE_CLIENT = "replace-client"

    @property
    def unit(self) -> Unit:
        """Unit of privacy."""
        return Unit(self.rpartition("-")[2])

    @property
    def relation(self) -> Relation:
        """Whether neighbours differ by adding or removing a unit, or by replacing one."""
        return Relation(self.rpartition("-")[0])

    def sensitivity_of_sum(self, norm: float) -> float:
        """Return the L2 sensitivity of a sum of contributions clipped to `norm`: `norm`, or twice that for replacement.

        Examples
        --------
        >>> Adjacency.REPLACE_RECORD.sensitivity_of_sum(3.0)
        6.0
        """
        match self.relation:
            case Relation.ADD_REMOVE:
                return norm
            case Relation.REPLACE:
                return 2 * norm
            case _:
                assert_never(self.relation)

    @property
    def sensitivity_words(self) -> str:
        """The L2 sensitivity of a sum of clipped contributions, as a phrase such as "the clipping norm"."""
        match self.relation:
            case Relation.ADD_REMOVE:
                return "the clipping norm"
            case Relation.REPLACE:
                return f"2 x clipping norm, since a {self.unit} is replaced"
            case _:
                assert_never(self.relation)


@dataclass(frozen=True)
class CraftedRecord:
    """A record that was generated for an audit and is in no data set; all parties get the same one."""

    features: str  # float32 in little-endian and C order, base64-encoded
    label: int  # class of the record, from 0


@dataclass(frozen=True)
class NeighbourPair:
    """The unit in which D and D' differ, and its replacement if there is one."""

    index: int  # position in D of the differing record x, or number of the differing user or client
    # Position in the outside pool of the record x' that replaces x, number of the user outside D who replaces the user,
    # or number of the shard that replaces the client's; None if the unit is removed.
    replacement: int | None
    crafted: CraftedRecord | None = None  # crafted record that takes the place of x in D; None keeps the data's record
    opposite: CraftedRecord | None = None  # crafted record that replaces x in D'; None if it is not crafted
