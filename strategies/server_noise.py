"""The noise that the server adds to a sum, fresh in every round or correlated over rounds."""

from collections import deque
from dataclasses import dataclass, field

from torch import Tensor

from fl_audit.arrays import Floats
from fl_audit.mechanisms.noise import CorrelatedGaussian
from fl_audit.privacy.matrices import strategy_matrix


@dataclass
class CorrelatedDraws:
    """Draws w_t = (z_t - sum over s < t of C_ts w_s) / C_tt, so that C w = z: the rows of C^-1 z, one a round.

    The server alone keeps what it drew before; nobody else could undo it.
    """

    noise: CorrelatedGaussian  # which matrix C
    _matrix: Floats = field(init=False)
    _drawn: deque[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self._matrix = strategy_matrix(self.noise.matrix, self.noise.rounds, self.noise.bands)
        self._drawn = deque(maxlen=self.noise.rounds_needed - 1)

    def next(self, standard_normals: Tensor, server_round: int) -> Tensor:
        """Return the draws of a round, in the memory of its standard normals.

        Parameters
        ----------
        standard_normals
            z_t, float32 (worlds, parameters).
        server_round
            t, from 1; rounds come in order.
        """
        row = self._matrix[server_round - 1]
        first = server_round - 1 - len(self._drawn)
        for place, earlier in enumerate(self._drawn, start=first):
            if row[place] != 0:
                standard_normals.sub_(earlier, alpha=float(row[place]))
        standard_normals.div_(float(row[server_round - 1]))
        self._drawn.append(standard_normals.clone())
        return standard_normals
