"""How a report speaks of what is protected: a record or a client, which is there or not, or is replaced by another."""

from dataclasses import dataclass, replace

from fl_audit.adjacency import Adjacency, Relation, Unit


@dataclass(frozen=True)
class UnitWords:
    """The nouns and phrases of one neighbouring relation, used wherever a report names the unit."""

    # `one`, `many`: the unit in singular and plural.
    one: str
    many: str
    differing: str  # the unit in which D and D' differ, as captions and tables call it
    sum: str  # what a round adds up
    measure: str  # in which units that sum is measured
    others: str  # what the other units contribute
    whether: str  # the secret of the game, as a question that begins with `whether`
    that: str  # the same as a statement that begins with `that`, of which somebody may be sure
    that_short: str  # how it is repeated, after `sure that`
    not_that: str  # how that statement is denied, after `sure that`
    # `there`, `not_there`: how a training is told from the other it is compared with: `with the record`, `without it`.
    there: str
    not_there: str
    secret_rounds: str  # what is not told to others where rounds are sampled


def unit_words(adjacency: Adjacency) -> UnitWords:
    """Return how a report speaks of the unit of a neighbouring relation."""
    return _WORDS[adjacency.unit, adjacency.relation]


_RECORD = UnitWords(
    one="record",
    many="records",
    differing="the differing record",
    sum="sum of clipped gradients",
    measure="gradient units",
    others="the gradients of the other records",
    whether="whether one particular record was used",
    that="one particular record was used",
    that_short="it was",
    not_that="it was not",
    there="with the record",
    not_there="without it",
    secret_rounds="whose records each step used",
)
_CLIENT = UnitWords(
    one="client",
    many="clients",
    differing="the differing client",
    sum="sum of clipped updates",
    measure="units of the model's parameters",
    others="the updates of the other clients",
    whether="whether one particular client took part",
    that="one particular client took part",
    that_short="it did",
    not_that="it did not",
    there="with the client",
    not_there="without it",
    secret_rounds="which clients each round used",
)
_WORDS = {
    (Unit.RECORD, Relation.ADD_REMOVE): _RECORD,
    (Unit.RECORD, Relation.REPLACE): replace(
        _RECORD,
        whether="whether one particular record, or another in its place, was used",
        not_there="with the other in its place",
    ),
    (Unit.CLIENT, Relation.ADD_REMOVE): _CLIENT,
    (Unit.CLIENT, Relation.REPLACE): replace(
        _CLIENT,
        whether="whether one particular client's records or those of a stand-in were used",
        that="the records of one particular client were used",
        that_short="they were",
        not_that="those of a stand-in were",
        not_there="with a stand-in",
    ),
}
