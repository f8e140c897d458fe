"""What a report is made of: the tables, the summary and the law of one audit run."""

from dataclasses import dataclass
from numbers import Real
from typing import Any

import pandas as pd

from fl_audit.errors import require
from fl_audit.report.theory import bound_in_other

WORLD_COLUMNS = ("world", "bit", "log_odds", "belief", "won")
ROUND_COLUMNS = ("world", "round", "sigma", "local_sensitivity", "log_odds")
RELEASE_COLUMNS = ("world", "round", "test_accuracy")
DEFAULT_VIOLATION_LEVEL = 0.001


@dataclass(frozen=True)
class LawFacts:
    """What was promised and under which law, in the words and numbers that a report shows.

    Parameters
    ----------
    mu
        Promised Gaussian-DP parameter, sqrt(k) / z; infinite where nothing is promised. With sampling it is that of an
        insider who sees who takes part.
    exact_final_law
        Whether the final log-odds are exactly N(+-mu^2/2, mu^2), as under local scaling.
    scaling
        What the noise is scaled to: `local` or `global`.
    relation
        How the two training sets differ, for example `replace-record`.
    clipping_norm
        C, largest L2 norm of one record's gradient; infinite without clipping.
    global_sensitivity
        Largest L2 change of the clipped sum between neighbours; infinite without clipping.
    rounds
        k, number of releases after the initial model.
    prior
        The insider's belief in D before the first release.
    is_private_release
        Whether there is noise, and it is independent of the data, as a private release needs.
    optimizer
        How the model follows from the release.
    data_name
        Name of the data set.
    records
        Number of training records.
    clients
        Number of clients, the insider included.
    model
        Name of the model.
    view
        What the clients see of a round: `update` or `model`.
    partition
        How the records are spread over the clients.
    sampling_rate
        Probability with which a record takes part in a round.
    has_noise
        Whether there is any noise, and with it a promise.
    """

    mu: float
    exact_final_law: bool
    scaling: str
    relation: str
    clipping_norm: float
    global_sensitivity: float
    rounds: int
    prior: float
    is_private_release: bool
    optimizer: str
    data_name: str
    records: int
    clients: int
    model: str
    view: str
    partition: str
    sampling_rate: float = 1.0
    has_noise: bool = True


@dataclass(frozen=True)
class RunContents:
    """Everything that the report of one run is drawn from.

    Parameters
    ----------
    summary
        The content of `summary.json`, schema 1; single values may be missing or None.
    worlds
        One row a world: world, bit, log_odds, belief (in the dataset that was really used), won, test_accuracy,
        epsilon_star; since membership is attacked also membership_advantage, record_membership_guess.
    rounds
        One row a world and round from 1: world, round, sigma, local_sensitivity, log_odds (cumulative, D against D').
    releases
        One row a world and release from 0, the initial model: world, round, test_accuracy, epsilon_star.
    configuration
        The resolved configuration, nested by section.
    law
        What was promised and under which law.

    Raises
    ------
    InputError
        If a table lacks a column or has no rows.
    """

    summary: dict[str, Any]
    worlds: pd.DataFrame
    rounds: pd.DataFrame
    releases: pd.DataFrame
    configuration: dict[str, Any]
    law: LawFacts

    def __post_init__(self) -> None:
        _require_table("worlds", self.worlds, WORLD_COLUMNS)
        _require_table("rounds", self.rounds, ROUND_COLUMNS)
        _require_table("releases", self.releases, RELEASE_COLUMNS)

    @property
    def has_insider(self) -> bool:
        """Whether the insider was asked about the releases."""
        return bool(self.worlds["log_odds"].notna().any())

    @property
    def has_epsilon_star(self) -> bool:
        """Whether Epsilon* was computed for the releases."""
        if self.value("epsilon_star") is None or "epsilon_star" not in self.releases:
            return False
        return bool(self.releases["epsilon_star"].notna().any())

    @property
    def has_membership(self) -> bool:
        """Whether the final models were attacked by the membership adversary."""
        return self.value("membership") is not None

    @property
    def has_client_epsilon_star(self) -> bool:
        """Whether clients told Epsilon* of their own shards."""
        return bool(self.value("client_epsilon_star"))

    def belief_bounds(self) -> dict[int, float]:
        """Return the belief bound by bit: for D where D was used (1), for D' where it was not (0); empty if unknown."""
        bound = self.number("guarantee", "belief_bound")
        return {} if bound is None else {1: bound, 0: bound_in_other(bound, self.law.prior)}

    def beyond_bound(self) -> int | None:
        """Return the number of worlds whose final belief in the truth lies beyond its bound, None without a bound."""
        bounds = self.belief_bounds()
        if not bounds:
            return None
        beyond = self.worlds["belief"] > self.worlds["bit"].astype(int).map(bounds)
        return int(beyond.sum())

    @property
    def violation_level(self) -> float:
        """Probability with which a kept promise may be called violated: 0.001 unless the summary says otherwise."""
        stated = self.number("empirical_epsilon", "violation_level")
        return DEFAULT_VIOLATION_LEVEL if stated is None else stated

    def value(self, *keys: str) -> Any:
        """Return one entry of the summary, or None where it, or a section on the way to it, is missing."""
        entry: Any = self.summary
        for key in keys:
            entry = entry.get(key) if isinstance(entry, dict) else None
        return entry

    def number(self, *keys: str) -> float | None:
        """Return one number of the summary, or None where it is missing or is no number."""
        entry = self.value(*keys)
        return float(entry) if isinstance(entry, Real) and entry == entry else None


def _require_table(name: str, table: pd.DataFrame, columns: tuple[str, ...]) -> None:
    missing = [column for column in columns if column not in table]
    require(not missing, f"the table {name} lacks {', '.join(missing)}: a report needs {', '.join(columns)}")
    require(len(table) > 0, f"the table {name} is empty: a report needs at least one finished world")
