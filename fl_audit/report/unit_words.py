"""Names of the units of a claim in the sentences of a report."""

from dataclasses import dataclass, replace

from fl_audit.adjacency import Adjacency


@dataclass(frozen=True)
class UnitWords:
    """The nouns and phrases by which a report names the privacy unit of an adjacency."""

    one: str  # the unit in the singular, e.g. `record`
    many: str  # the unit in the plural, e.g. `records`
    differing: str  # the unit in which D and D' differ, e.g. `the differing record`
    sum: str  # the sum that a round releases, e.g. `sum of clipped gradients`
    measure: str  # the unit of measurement of this sum, e.g. `gradient units`
    others: str  # the contributions of the other units, e.g. `the gradients of the other records`
    whether: str  # the secret as a question, e.g. `whether one particular record was used`
    that: str  # the secret as a statement, after `sure that`, e.g. `one particular record was used`
    that_short: str  # repetition of this statement, after `sure that`, e.g. `it was`
    not_that: str  # denial of this statement, after `sure that`, e.g. `it was not`
    there: str  # the training on D, e.g. `with the record`
    not_there: str  # the training on D', e.g. `without it`
    secret_rounds: str  # the secret of sampled rounds, e.g. `whose records each step used`


def unit_words(adjacency: Adjacency) -> UnitWords:
    """Return the nouns and phrases by which a report names the privacy unit of an adjacency."""
    return _WORDS[adjacency]


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
_USER = replace(
    _RECORD,
    one="user",
    many="users",
    differing="the differing user",
    sum="sum of clipped gradients of users",
    others="the gradients of the other users",
    whether="whether the records of one particular user were used",
    that="the records of one particular user were used",
    that_short="they were",
    not_that="they were not",
    there="with the user",
)
_WORDS = {
    Adjacency.ADD_REMOVE_RECORD: _RECORD,
    Adjacency.REPLACE_RECORD: replace(
        _RECORD,
        whether="whether one particular record, or another in its place, was used",
        not_there="with the other in its place",
    ),
    Adjacency.ADD_REMOVE_USER: _USER,
    Adjacency.REPLACE_USER: replace(
        _USER,
        whether="whether the records of one particular user, or of another in its place, were used",
        not_that="those of another were",
        not_there="with another in its place",
    ),
    Adjacency.ADD_REMOVE_CLIENT: _CLIENT,
    Adjacency.REPLACE_CLIENT: replace(
        _CLIENT,
        whether="whether one particular client's records or those of a stand-in were used",
        that="the records of one particular client were used",
        that_short="they were",
        not_that="those of a stand-in were",
        not_there="with a stand-in",
    ),
}
