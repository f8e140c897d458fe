"""Early stopping on a public rule: every world keeps the release that did best on records of nobody's training set."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fl_audit.arrays import Flags, Floats, Integers
from fl_audit.game.columns import Columns
from fl_audit.worlds import WorldBatch


@dataclass
class EarlyStopping:
    """Chooses the release of every world after which the loss on the population sample fell no more.

    The rule reads releases and public records alone, so it is part of no promise: whatever is chosen among releases
    follows from them.
    """

    patience: int  # so many evaluated releases without a smaller loss end the training of a world, from 1
    _best: dict[str, Floats] = field(init=False, default_factory=dict)
    _chosen: dict[str, Integers] = field(init=False, default_factory=dict)
    _waited: dict[str, Integers] = field(init=False, default_factory=dict)
    _models: dict[str, Tensor] = field(init=False, default_factory=dict)

    def look(self, batch: WorldBatch, number: int, models: Tensor, losses: Callable[[], Floats]) -> None:
        """Take note of an evaluated release; they come in order, 0 being the initial models.

        Parameters
        ----------
        batch, number, models, losses
            The release (worlds, parameters), and what returns its losses on the population sample, (worlds, p).
        """
        if batch.name not in self._best:
            self._best[batch.name] = np.full(batch.count, np.inf)
            self._chosen[batch.name], self._waited[batch.name] = (np.zeros(batch.count, np.int64) for _ in range(2))
            self._models[batch.name] = models.clone()
        if self.is_over(batch):
            return
        mean, best, waited = losses().mean(axis=1), self._best[batch.name], self._waited[batch.name]
        runs = ~self.ended(batch)
        better = runs & (mean < best)
        waited[runs & ~better] += 1
        waited[better] = 0
        best[better], self._chosen[batch.name][better] = mean[better], number
        rows = torch.from_numpy(better).to(models.device)
        self._models[batch.name][rows] = models[rows]

    def is_over(self, batch: WorldBatch) -> bool:
        """Whether no world of a batch trains on."""
        return bool(self.ended(batch).all())

    def ended(self, batch: WorldBatch) -> Flags:
        """Return which worlds of a batch train no more, (worlds,)."""
        waited = self._waited.get(batch.name)
        return np.zeros(batch.count, np.bool_) if waited is None else np.asarray(waited >= self.patience)

    def models(self, batch: WorldBatch) -> Tensor:
        """Return the chosen models (worlds, parameters)."""
        return self._models[batch.name]

    def columns(self, batch: WorldBatch) -> Columns:
        """Return the number of the chosen release of every world."""
        return Columns(worlds={"chosen_release": self._chosen[batch.name].astype(np.float64)})
