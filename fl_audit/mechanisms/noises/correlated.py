"""Noise of the server that is correlated over rounds: later rounds take back a part of that of earlier ones."""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self, assert_never

from fl_audit.array_types import Floats
from fl_audit.errors import InputError, require
from fl_audit.mechanisms.noises.base import (
    AccountedRounds,
    MechanismNoise,
    NoiseOrigin,
    NoiseSettings,
    Normals,
    ServerDraws,
)
from fl_audit.plurals import plural
from fl_audit.privacy import lazy_imports as late_privacy
from fl_audit.privacy.events import GaussianRelease, ReleaseEvent
from fl_audit.privacy.gaussian import require_positive
from fl_audit.privacy.names import StrategyMatrixKind

if TYPE_CHECKING:
    from torch import Tensor

    from fl_audit.mechanisms.participations.participation import Participation


@dataclass(frozen=True)
class CorrelatedGaussian(MechanismNoise):
    """The server adds noise that is correlated over rounds: r_t = g_t + sum over s <= t of (C^-1)_ts z_s.

    The z_s are N(0, sigma^2 I) with sigma = z Delta, Delta the largest change of one round's sum, and C a
    lower-triangular matrix, so that the noise of later rounds takes back a part of that of earlier ones.

    Source: Kairouz et al. 2021, "Practical and private (deep) learning without sampling or shuffling";
    Choquette-Choo et al. 2023, "(Amplified) banded matrix factorization".
    """

    multiplier: float  # z, standard deviation of the z_s in units of Delta; positive and finite
    matrix: StrategyMatrixKind  # kind of the matrix C
    rounds: int  # k, its size, at least 1
    bands: int = 1  # bands of a banded C, from 1 (independent noise) to k; not used by the tree
    kind: Literal["correlated"] = "correlated"
    names: ClassVar = (str(StrategyMatrixKind.BANDED), str(StrategyMatrixKind.TREE))
    origin: ClassVar = NoiseOrigin.SERVER
    own_settings: ClassVar = {"bands": str(StrategyMatrixKind.BANDED)}

    def __post_init__(self) -> None:
        require_positive(noise_multiplier=self.multiplier)
        require(1 <= self.bands <= self.rounds, f"bands is {self.bands}: accepted are 1 to {self.rounds}, the rounds")

    @classmethod
    def of_settings(cls, settings: NoiseSettings) -> Self:
        """Return the noise of a configuration, whose name is that of the matrix.

        A banded matrix has, where a configuration leaves its bands out, as many as rounds lie from one of a client's to
        its next where cohorts take part, and as many as there are rounds elsewhere.
        """
        matrix, rounds, bands = StrategyMatrixKind(settings.name), settings.rounds, settings.own["bands"]
        match matrix:
            case StrategyMatrixKind.TREE:
                return cls(settings.multiplier, matrix, rounds)
            case StrategyMatrixKind.BANDED:
                return cls(settings.multiplier, matrix, rounds, bands or min(rounds, settings.separation or rounds))
            case _:
                assert_never(matrix)

    @property
    def name(self) -> str:
        """The name of the noise in a configuration, which is that of its matrix."""
        return str(self.matrix)

    @property
    def _strategy(self) -> Floats:
        """C, (rounds, rounds)."""
        return late_privacy.strategy_matrices.strategy_matrix(self.matrix, self.rounds, self.bands)

    def server_draws(self) -> ServerDraws:
        """Return draws that remember those of earlier rounds."""
        return _CorrelatedDraws(self._strategy, self.rounds_needed)

    def round_multiplier(self, multiplier: float, participation: "Participation") -> float:
        """Return the effective noise multiplier of all rounds together.

        It is the noise over the L2 norm of the difference of all releases after whitening by C: round t then shows the
        sum of its own contribution and of earlier ones s, each times C_ts.
        """
        return self._event(multiplier, self.rounds, participation).noise_multiplier

    def events_of_each(self, rounds: AccountedRounds) -> tuple[tuple[ReleaseEvent, ...], ...]:
        """Return all rounds as one release."""
        return ((self._event(rounds.multiplier, rounds.count, rounds.participation),),)

    def joint_sensitivity(self, participation: "Participation") -> float:
        """Return the sensitivity of the strategy matrix C to one unit over all rounds."""
        return self._event(self.multiplier, self.rounds, participation).sensitivity

    def _event(self, multiplier: float, rounds: int, participation: "Participation") -> GaussianRelease:
        often, apart = participation.participations(rounds), participation.separation
        return late_privacy.strategy_matrices.correlated_event(
            multiplier, self.matrix, rounds, self.bands, apart, often
        )

    @property
    def rounds_needed(self) -> int:
        """Number of rounds that a row of C reaches back, the newest one included."""
        match self.matrix:
            case StrategyMatrixKind.BANDED:
                return self.bands
            case StrategyMatrixKind.TREE:
                return self.rounds
            case _:
                assert_never(self.matrix)

    def whitening(self, server_round: int) -> Floats:
        """Return the row of C of a round: C r = C g + z, whose noise is independent again."""
        return self._strategy[server_round - 1, :server_round]

    def require_participation(self, participation: "Participation") -> None:
        """Refuse samples; cohorts come in a known order."""
        sampled = f"noise is correlated over rounds at sampling rate {participation.rate}"
        unknown = "and no amplification by sampling is known for it"
        require(participation.rate == 1, f"{sampled}, {unknown}: accepted are cohorts, or that everybody takes part")

    def require_adaptive_clipping(self) -> None:
        """Refuse it: all rounds are accounted together, for one norm."""
        correlated = "noise that is correlated over rounds, which is accounted for one norm in all rounds"
        raise InputError(f"clipping is 'adaptive' with {correlated}: accepted with it is 'fixed'")

    def require_rounds(self, rounds: int) -> None:
        """Refuse rounds for which C is too small or too large."""
        found = f"the noise is correlated over {self.rounds} rounds and rounds is {rounds}"
        require(self.rounds == rounds, f"{found}: accepted is the same")

    def source_words(self) -> str:
        """Return words for the party that adds the noise, and for the matrix of its correlation."""
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
    def multiplied_words(self) -> str:
        """All rounds' difference."""
        return "the largest difference of all rounds together"

    def mu_words(self, rounds: str) -> str:
        """Return that all rounds are one release."""
        return "1 over z"


class _CorrelatedDraws:
    """Draws w_t = (z_t - sum over s < t of C_ts w_s) / C_tt, so that C w = z: the rows of C^-1 z, one a round.

    The server alone keeps what it drew before; nobody else could undo it.
    """

    def __init__(self, strategy: Floats, rounds_needed: int) -> None:
        self._matrix = strategy
        self._drawn = deque["Tensor"](maxlen=rounds_needed - 1)

    def next(self, normals: Normals, server_round: int) -> "Tensor":
        """Return the draws of round t, which come in order, in the memory of z_t."""
        row, draws = self._matrix[server_round - 1], normals(0)
        first = server_round - 1 - len(self._drawn)
        for place, earlier in enumerate(self._drawn, start=first):
            if row[place] != 0:
                draws.sub_(earlier, alpha=float(row[place]))
        draws.div_(float(row[server_round - 1]))
        self._drawn.append(draws.clone())
        return draws
