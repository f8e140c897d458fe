"""The observer of releases: test accuracy and Epsilon* of every released model, from outputs and losses alone."""

import numpy as np
import torch
from flwr.app import ArrayRecord, MetricRecord
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.errors import require
from fl_audit.evidence.epsilon_star import parametric_epsilon_star, require_star_delta
from fl_audit.game import Examples, Game
from fl_audit.worlds import WorldBatch
from server.challenger import SeededChallenger


def require_evaluable(game: Game, delta: float | None) -> None:
    """Refuse before the run what Epsilon* could not be computed from.

    Raises
    ------
    InputError
        If delta is out of Epsilon*'s range, or D' or the population has fewer than two records.
    """
    if delta is None:
        return
    require_star_delta(delta)
    for name, count in (("D'", len(game.common.labels)), ("the population sample", len(game.population.labels))):
        require(count >= 2, f"Epsilon* needs 2 records in {name}, there are {count}: use more, or epsilon-star = false")


class ReleaseEvaluator:
    """Evaluates each release of some batches; Flower calls it with the released models of every round, 0 included.

    Parameters
    ----------
    game
        The game with its data. The losses of members are those of the records each world was really trained on.
    challenger
        Tells which those are.
    batches
        The batches that travel together.
    delta
        delta of Epsilon*; None leaves Epsilon* out.
    """

    def __init__(
        self, game: Game, challenger: SeededChallenger, batches: tuple[WorldBatch, ...], delta: float | None
    ) -> None:
        self._game = game
        self._challenger = challenger
        self._batches = batches
        self._delta = delta
        self.accuracy: dict[str, list[NDArray[np.float64]]] = {batch.name: [] for batch in batches}
        self.epsilon_star: dict[str, list[NDArray[np.float64]]] = {batch.name: [] for batch in batches}

    def __call__(self, server_round: int, arrays: ArrayRecord) -> MetricRecord:
        """Evaluate the models of one release and return their means over worlds."""
        for batch in self._batches:
            models = torch.from_numpy(arrays[batch.name].numpy())
            self.accuracy[batch.name].append(self._accuracies(models))
            if self._delta is not None:
                bits = self._challenger.bits(batch.worlds)
                self.epsilon_star[batch.name].append(self._epsilon_stars(models, bits, self._delta))
        record = MetricRecord({"test-accuracy": self._newest_mean(self.accuracy)})
        if self._delta is not None:
            record["epsilon-star"] = self._newest_mean(self.epsilon_star)
        return record

    def _newest_mean(self, values: dict[str, list[NDArray[np.float64]]]) -> float:
        return float(np.concatenate([values[batch.name][-1] for batch in self._batches]).mean())

    def _accuracies(self, models: Tensor) -> NDArray[np.float64]:
        test = self._game.test
        guesses = self._game.model.logits(models, test.features).argmax(dim=2)
        shares: NDArray[np.float64] = (guesses == test.labels).double().mean(dim=1).numpy()
        return shares

    def _epsilon_stars(self, models: Tensor, bits: NDArray[np.bool_], delta: float) -> NDArray[np.float64]:
        shared, population = self._losses(models, self._game.common), self._losses(models, self._game.population)
        result = np.empty(len(models))
        for bit, differing in ((True, self._game.differing), (False, self._game.replacement)):
            rows = bits == bit
            if not rows.any():
                continue
            members = shared[rows]
            if differing is not None:
                own = self._losses(models[torch.from_numpy(rows)], differing)
                members = np.concatenate([members, own], axis=1)
            result[rows] = parametric_epsilon_star(members, population[rows], delta)
        return result

    def _losses(self, models: Tensor, examples: Examples) -> NDArray[np.float64]:
        losses: NDArray[np.float64] = (
            self._game.model.losses(models, examples.features, examples.labels).double().numpy()
        )
        return losses
