"""Define the values that the challenger reveals after a run: samples, shares of the noise, quantile bits and steps.

The challenger draws these values in secret during the run. Once they are revealed, there is an exact test for most
faults that do not concern the noise of the sum. Only counts are kept, never a sample or a share itself. So the size of
the tables does not grow with the number of trials times the number of units.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.errors import require
from fl_audit.privacy.claim import Claim
from fl_audit.statistics.exact_counts import BinomialHistogram

if TYPE_CHECKING:
    import pandas as pd

# Kinds of rows in the table of tallies.
TURNS = "turns"
CROWD = "crowd"
UNIT = "unit"
SHARE = "share"
SHARE_DRAWS = "share-draws"
SHARE_KNOWN = "share-known"
RESIDUAL = -1
"""Client number that stands for the remaining noise in the table of products of shares."""


@dataclass(frozen=True, eq=False)
class OpenedParticipation:
    """Counts of the units that took part in the rounds of each trial, revealed after the run.

    Raises
    ------
    InputError
        If shapes disagree.
    """

    rate: float  # the claimed probability with which a unit takes part in a round, above 0 and below 1
    units: int  # number of units from which samples are drawn, not counting the target
    sizes: Integers  # number of participants, (trials, rounds)
    overlaps: Integers  # number of participants in this round and the previous one, (trials, rounds); 0 in the first
    digests: Floats  # a hash of the sample, equal for equal samples, (trials, rounds)
    target: Flags | None  # whether the target took part, (trials, rounds); None where there are many targets
    # Number of participations of each unit, (units, 4): under D with the target and without it, under D' with and
    # without. Without a target everything is in the first column.
    of_units: Integers
    numbers: Integers  # the number of each unit, (units,)
    turns: BinomialHistogram  # histogram, over units and trials, of the number of rounds with the unit
    # Histograms over units and rounds of the number of trials in which the unit took part, among the trials that were
    # trained together; one histogram for each number of such trials.
    crowds: tuple[BinomialHistogram, ...]

    def __post_init__(self) -> None:
        shape = self.sizes.shape
        for name, field_shape in (("overlaps", self.overlaps.shape), ("digests", self.digests.shape)):
            require(
                field_shape == shape,
                f"{name} of samples have shape {field_shape}: accepted is {shape}, that of the sizes",
            )


@dataclass(frozen=True, eq=False)
class NoiseShareProducts:
    """Inner product of every two clients' shares of the noise, summed over coordinates, rounds and trials."""

    clients: Integers  # owners of the shares, (shares,); `RESIDUAL` is the noise without shares known to the insider
    products: Floats  # sums of products of draws of N(0, 1), (shares, shares)
    draws: int  # number of draws in each product, over coordinates, rounds and trials
    known: tuple[int, ...]  # clients whose shares are not contained in `RESIDUAL`


@dataclass(frozen=True, eq=False)
class OpenedSecrets:
    """Secret values that the challenger reveals for the tests after a run, such as who took part.

    A field is None if the run has no such value, or if the value was not kept.
    """

    members: Flags  # whether a trial used D, (trials,)
    claim: Claim | None = None  # claim of the run; epsilon under the real participation is computed from it
    is_kept: bool = False  # whether any value was revealed
    is_sampled: bool = False  # whether the mechanism samples units
    has_shares: bool = False  # whether clients add shares of the noise
    is_adaptive: bool = False  # whether quantile bits are released
    samples: OpenedParticipation | None = None
    shares: NoiseShareProducts | None = None
    bits: Floats | None = None  # noise of quantile bits over the claimed noise, (trials, rounds)
    # Number of coordinates in which the model after a round differs from the public step applied to the release,
    # (trials, rounds).
    wrong_steps: Floats | None = None
    wrong_norms: Floats | None = None  # 1 where the clipping norm differs from the public rule, else 0
    # Share of 1 among the last bits of a release, as a standardised deviation from 1/2, (trials, rounds).
    odd: Floats | None = None


OPENED_COLUMNS = ("size", "target", "overlap", "digest", "bit_noise", "wrong_steps", "wrong_norms", "odd")
"""Columns of the table of opened values, one row per trial and round; a column is NaN where a run lacks it."""


def _summed(table: "pd.DataFrame", kind: str) -> "pd.DataFrame":
    rows = table[table["kind"] == kind]
    return rows.groupby(["first", "second", "third"], sort=True)["number"].sum().reset_index()


def samples_of(
    opened: "pd.DataFrame", tallies: "pd.DataFrame", trials: int, rate: float, has_target: bool, turns: Flags | None
) -> OpenedParticipation | None:
    """Return the participation samples stored in the tables of a run, or None if they contain none.

    Shapes: `turns` (rounds,).
    """
    grid = {name: opened[name].to_numpy().reshape(trials, -1) for name in ("size", "overlap", "digest", "target")}
    if turns is not None:
        # Where units take turns, the samples of the first group are opened, in the rounds that are theirs.
        grid = {name: values[:, turns] for name, values in grid.items()}
    if np.isnan(grid["size"]).any():
        return None
    units, often, crowds = (_summed(tallies, kind) for kind in (UNIT, TURNS, CROWD))
    numbers = np.unique(units["first"].to_numpy(dtype=np.int64))
    of_units = np.zeros((numbers.size, 4), dtype=np.int64)
    of_units[np.searchsorted(numbers, units["first"]), units["second"]] = units["number"]
    of_turns = _counted(often, rate)
    of_crowds = _counted(crowds, rate)
    return OpenedParticipation(
        rate,
        numbers.size,
        grid["size"].astype(np.int64),
        grid["overlap"].astype(np.int64),
        grid["digest"],
        grid["target"] == 1 if has_target else None,
        of_units,
        numbers,
        of_turns[0],
        of_crowds,
    )


def _counted(table: "pd.DataFrame", rate: float) -> tuple[BinomialHistogram, ...]:
    """Return one histogram of binomial counts for each number of binomial trials in a table.

    Column "first" of the table is the number of binomial trials, "second" the count of successes, and "number" how
    often this count occurred. `rate` is the claimed probability of success.
    """
    trials, values, numbers = (table[name].to_numpy(dtype=np.int64) for name in ("first", "second", "number"))
    histograms = []
    for trial in np.unique(trials).tolist():
        often = np.zeros(trial + 1, dtype=np.int64)
        rows = trials == trial
        often[values[rows]] = numbers[rows]
        histograms.append(BinomialHistogram(trial, rate, often))
    return tuple(histograms)


def shares_of(tallies: "pd.DataFrame") -> NoiseShareProducts | None:
    """Return the inner products of the clients' shares of the noise; None if the table of tallies has none."""
    rows = _summed(tallies, SHARE)
    if rows.empty:
        return None
    clients = np.unique(rows["first"].to_numpy(dtype=np.int64))
    first_client, second_client = (np.searchsorted(clients, rows[name]) for name in ("first", "second"))
    products = np.zeros((clients.size, clients.size))
    products[first_client, second_client] = products[second_client, first_client] = rows["number"]
    known_clients = tuple(_summed(tallies, SHARE_KNOWN)["first"].astype(int).tolist())
    return NoiseShareProducts(clients, products, int(_summed(tallies, SHARE_DRAWS)["number"].sum()), known_clients)
