"""The columns that the tables of every run have, each declared once: its name, its table and its meaning.

A table has further columns where a run measures more; what is declared here is always there, and NaN where it was not
computed. Batches of trials, the check of tables that are read, sweeps and the page about run directories use this list.
"""

from dataclasses import dataclass
from enum import StrEnum


class ResultTable(StrEnum):
    """Table of results that every run has."""

    TRIALS = "trials"  # a row for each trial
    ROUNDS = "rounds"  # a row for each trial and round
    RELEASES = "releases"  # a row for each trial and evaluated release


@dataclass(frozen=True)
class ResultColumn:
    """A column that a table of every run has."""

    name: str
    table: ResultTable
    meaning: str  # meaning in plain words, with the range or unit
    is_required: bool = False  # whether a report cannot be made without it
    is_of_model: bool = True  # whether it describes the trained model, so that sweeps show it


_TRIALS, _ROUNDS, _RELEASES = ResultTable

RESULT_COLUMNS: tuple[ResultColumn, ...] = (
    ResultColumn("log_odds", _TRIALS, "final log-odds of D against D'", is_required=True, is_of_model=False),
    ResultColumn("test_accuracy", _TRIALS, "accuracy of the final model on test records, 0 to 1", is_required=True),
    ResultColumn("epsilon_star", _TRIALS, "Epsilon* of the final model"),
    ResultColumn("membership_advantage", _TRIALS, "advantage of the attack on losses, -1 to 1"),
    ResultColumn(
        "record_membership_guess", _TRIALS, "guess of that attack for the differing record", is_of_model=False
    ),
    ResultColumn("record_score", _TRIALS, "score of that attack for the differing record", is_of_model=False),
    ResultColumn("test_auroc", _TRIALS, "area under the ROC curve on test records, of two classes, 0 to 1"),
    ResultColumn(
        "sigma", _ROUNDS, "scale of the claimed noise: of Gaussian noise its standard deviation", is_required=True
    ),
    ResultColumn(
        "local_sensitivity", _ROUNDS, "how far D and D' move the sum, in the norm of the clipping", is_required=True
    ),
    ResultColumn("log_odds", _ROUNDS, "log-odds of D against D' after the round", is_required=True),
    ResultColumn("increment", _ROUNDS, "what the round adds to the log-odds"),
    ResultColumn("measured_sigma", _ROUNDS, "scale of the noise as the insider measured it"),
    ResultColumn("test_accuracy", _RELEASES, "accuracy on test records, 0 to 1", is_required=True),
    ResultColumn("epsilon_star", _RELEASES, "Epsilon* of the release"),
)


def columns_of(table: ResultTable, *, required: bool = False) -> tuple[str, ...]:
    """Return the names of the columns that a table always has, or of those without which no report can be made."""
    return tuple(
        result_column.name
        for result_column in RESULT_COLUMNS
        if result_column.table is table and (result_column.is_required or not required)
    )
