"""Correlated noise of the server (matrix mechanism, DP-FTRL): later noise cancels part of earlier noise."""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self, assert_never

from fl_audit.array_types import Floats
from fl_audit.errors import InputError, require
from fl_audit.mechanisms.noises.gaussian_noise import GaussianNoise
from fl_audit.mechanisms.noises.mechanism_noise import (
    AccountedRounds,
    NoiseOrigin,
    NoiseSettings,
    Normals,
    ServerNoiseDraws,
)
from fl_audit.privacy.accounting_enums import StrategyMatrixKind
from fl_audit.privacy.events import GaussianRelease, ReleaseEvent
from fl_audit.privacy.gaussian import require_positive
from fl_audit.words import plural

if TYPE_CHECKING:
    from torch import Tensor

    from fl_audit.mechanisms.participations.participation import Participation


@dataclass(frozen=True)
class CorrelatedGaussian(GaussianNoise):
    """Noise of the server that is correlated over rounds: r_t = g_t + sum over s <= t of (C^-1)_ts z_s.

    r_t is the release of round t and g_t its sum of contributions. The z_s are N(0, sigma^2 I) with sigma = z Delta,
    where z is the noise multiplier and Delta the global sensitivity of one round's sum. The strategy matrix C is lower
    triangular; through C, the noise of later rounds cancels part of the noise of earlier rounds.

    Source: Kairouz et al. 2021, "Practical and private (deep) learning without sampling or shuffling"; Choquette-Choo
    et al. 2023, "(Amplified) banded matrix factorization".
    """

    multiplier: float  # z, standard deviation of the z_s in units of Delta; positive and finite
    matrix: StrategyMatrixKind  # kind of the matrix C
    rounds: int  # k, number of rounds and of rows of C, at least 1
    bands: int = 1  # number of bands of a banded C, from 1 (independent noise) to k; ignored by the tree
    kind: Literal["correlated"] = "correlated"
    names: ClassVar = (str(StrategyMatrixKind.BANDED), str(StrategyMatrixKind.TREE))
    origin: ClassVar = NoiseOrigin.SERVER

    def __post_init__(self) -> None:
        require_positive(noise_multiplier=self.multiplier)
        require(1 <= self.bands <= self.rounds, f"bands is {self.bands}: accepted are 1 to {self.rounds}, the rounds")

    @classmethod
    def of_settings(cls, settings: NoiseSettings) -> Self:
        """Build the noise from the settings of a configuration; `settings.name` is the kind of the strategy matrix.

        If clients participate in every round, a banded matrix has as many bands as rounds. If cohorts take turns, it
        has as many bands as there are rounds from one turn of a cohort to its next, which gives about the smallest
        error of sums over rounds, but no more than the run has rounds.
        """
        matrix = StrategyMatrixKind(settings.name)
        rounds = settings.rounds
        match matrix:
            case StrategyMatrixKind.TREE:
                return cls(settings.multiplier, matrix, rounds)
            case StrategyMatrixKind.BANDED:
                return cls(settings.multiplier, matrix, rounds, min(rounds, settings.separation or rounds))
            case _:
                assert_never(matrix)

    @property
    def name(self) -> str:
        """Name of the noise in a configuration, which is the name of its matrix."""
        return str(self.matrix)

    @property
    def _strategy(self) -> Floats:
        """Strategy matrix C, float64 (rounds, rounds)."""
        from fl_audit.privacy.strategy_matrices import strategy_matrix  # noqa: PLC0415

        return strategy_matrix(self.matrix, self.rounds, self.bands)

    def server_draws(self) -> ServerNoiseDraws:
        """Return a function that draws the server's correlated noise of each round.

        The noise of a round is made from new normal draws and the draws of earlier rounds, which the function keeps.
        """
        return _correlated_draws(self._strategy, self.rounds_needed)

    def round_multiplier(self, multiplier: float, participation: "Participation") -> float:
        """Return the noise multiplier of the single Gaussian release that represents all rounds.

        It is `multiplier` divided by `joint_sensitivity`, the largest L2 norm of C g in units of a single contribution.
        C is the strategy matrix, and g has one row per round: the difference between the round's sums under D and D'.
        """
        return self._event(multiplier, self.rounds, participation).noise_multiplier

    def events_of_each(self, rounds: AccountedRounds) -> tuple[tuple[ReleaseEvent, ...], ...]:
        """Return one Gaussian release that represents the first `rounds.count` rounds together.

        It stands in a tuple of its own, since there is one kind of client: the server adds the noise. Raises
        `InputError` if there are more rounds than the matrix has.
        """
        problem = f"rounds is {rounds.count}, and the noise is correlated over {plural(self.rounds, 'round')}"
        require(rounds.count <= self.rounds, f"{problem}: accepted are 1 to {self.rounds}")
        return ((self._event(rounds.multiplier, rounds.count, rounds.participation),),)

    def joint_sensitivity(self, participation: "Participation") -> float:
        """Return the largest change by one unit over all rounds together, divided by that of a single contribution.

        All rounds together are one release of C g, where C is the strategy matrix and row t of g is the sum of round t.
        """
        return self._event(self.multiplier, self.rounds, participation).sensitivity

    def _event(self, multiplier: float, rounds: int, participation: "Participation") -> GaussianRelease:

        often = participation.participations(rounds)
        apart = participation.separation

        from fl_audit.privacy.strategy_matrices import correlated_event  # noqa: PLC0415

        return correlated_event(multiplier, self._strategy[:rounds, :rounds], apart, often)

    @property
    def rounds_needed(self) -> int:
        """Number of latest rounds that a row of the strategy matrix C combines at most, including the current one.

        It is the number of bands of a banded matrix, and the number of all rounds of a tree matrix.
        """
        match self.matrix:
            case StrategyMatrixKind.BANDED:
                return self.bands
            case StrategyMatrixKind.TREE:
                return self.rounds
            case _:
                assert_never(self.matrix)

    def whitening(self, server_round: int) -> Floats:
        """Return the weights that whiten the releases of rounds 1 to `server_round`, float64 (server_round,).

        They are row `server_round` of the strategy matrix C: for releases r and sums g, C r = C g + z, where the noise
        z is independent between rounds.
        """
        return self._strategy[server_round - 1, :server_round]

    def require_participation(self, participation: "Participation") -> None:
        """Raise `InputError` if units are sampled.

        Cohorts of clients that take turns are accepted, because their order is public.
        """
        sampled = f"noise is correlated over rounds at sampling rate {participation.rate}"
        unknown = "and no amplification by sampling is known for it"
        require(participation.rate == 1, f"{sampled}, {unknown}: accepted are cohorts, or that everybody takes part")

    def require_adaptive_clipping(self) -> None:
        """Raise `InputError` in every case: correlated noise is accounted for one clipping norm in all rounds."""
        correlated = "noise that is correlated over rounds, which is accounted for one norm in all rounds"
        raise InputError(f"clipping is 'adaptive' with {correlated}: accepted with it is 'fixed'")

    def require_rounds(self, rounds: int) -> None:
        """Raise `InputError` if the number of rounds differs from the size of the strategy matrix C."""
        problem = f"the noise is correlated over {self.rounds} rounds and rounds is {rounds}"
        require(self.rounds == rounds, f"{problem}: accepted is the same")

    def source_words(self) -> str:
        """Return a phrase for reports which says that the server adds the noise, and which matrix correlates it."""
        rounds = plural(self.rounds, "round")
        match self.matrix:
            case StrategyMatrixKind.TREE:
                matrix = f"by the binary tree over {rounds}"
            case StrategyMatrixKind.BANDED:
                matrix = f"by a banded matrix with {plural(self.bands, 'band')} over {rounds}"
            case _:
                assert_never(self.matrix)
        return f"correlated over rounds: the server adds it, {matrix}"

    @property
    def multiplied_quantity_words(self) -> str:
        """Phrase for reports that names the factor of the noise multiplier: a difference over all rounds together."""
        return "the largest difference of all rounds together"

    def mu_words(self, rounds: str) -> str:
        """Return the formula of the claimed Gaussian-DP parameter mu in words, "1 over z"; `rounds` is not used.

        All rounds are one release, so their number does not matter.
        """
        return "1 over z"


def _correlated_draws(strategy: Floats, rounds_needed: int) -> ServerNoiseDraws:
    """Return a function that draws w_t = (z_t - sum over s < t of C_ts w_s) / C_tt, so that C w = z.

    w_t is the noise of round t in units of its standard deviation, and z_t are standard normal draws. Rounds must be
    drawn in order, from 1. Only the server keeps earlier noise, so nobody else can subtract it.
    """
    earlier_draws = deque["Tensor"](maxlen=rounds_needed - 1)

    def draw(normals: Normals, server_round: int) -> "Tensor":
        row = strategy[server_round - 1]
        draws = normals(0)
        first = server_round - 1 - len(earlier_draws)
        for position, earlier in enumerate(earlier_draws, start=first):
            if row[position] != 0:
                draws.sub_(earlier, alpha=float(row[position]))
        draws.div_(float(row[server_round - 1]))
        earlier_draws.append(draws.clone())
        return draws

    return draw
