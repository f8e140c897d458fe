"""What the final models answer to the records of the targets: what attacks that see a model alone begin from."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fl_audit.adversaries.membership.confidence import label_log_probability, scaled_confidence
from fl_audit.adversaries.membership.queries import Queries
from fl_audit.adversaries.membership.white_box_features import WhiteBoxFeatures, white_box_features
from fl_audit.arrays import Floats, Integers
from fl_audit.data.attributes import Attribute
from fl_audit.game.columns import Columns
from fl_audit.game.game import Game
from fl_audit.worlds import WorldBatch
from server.evaluator import EvaluatedRelease

LOGITS, POPULATION = "logits", "population"
"""Names of what is kept of a batch: logits of the targets' records, and log p_y of the population sample."""
WHITE_BOX = ("signals", "inputs", "log_probabilities", "losses")
"""Names of what a white-box attacker sees, see `WhiteBoxFeatures`."""
UNDER_ASCENT = "loss_under_ascent"  # column of the table of targets
QUERIES, VALUES = "queries", "values"
"""Names of the confidences of all queries about the targets, and of the losses with each value of an attribute."""


@dataclass(frozen=True)
class MoreQuestions:
    """What final models are asked about the targets beside their records."""

    queries: int = 1  # how many ways of asking about each target; 1 is its records alone
    ways: Queries | None = None  # which ways these are; None with one
    attribute: Attribute | None = None  # the attribute whose values are tried; None if none are


@dataclass
class TargetOutputs:
    """Keeps what models answer about the records of the targets.

    Of the final models these are the outputs on them, and on the population sample.
    """

    evaluated: Sequence[int]  # numbers of the releases that are shown
    sees_weights: bool = False  # whether what a white-box attacker sees is kept, of three releases, the last among them
    is_active: bool = False  # whether the losses of all releases are, because an insider pushes them up
    more: MoreQuestions = field(default_factory=MoreQuestions)  # what else is asked
    _outputs: dict[str, dict[str, Tensor]] = field(init=False, default_factory=dict)
    _seen: dict[str, list[WhiteBoxFeatures]] = field(init=False, default_factory=lambda: defaultdict(list))
    _losses: dict[str, list[Floats]] = field(init=False, default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        places = [len(self.evaluated) * third // 3 - 1 for third in (1, 2, 3)] if self.sees_weights else []
        self._looked_at = {self.evaluated[place] for place in places}

    def __call__(self, release: EvaluatedRelease) -> Columns:
        """Ask a release; of the last one return log p_y and scaled confidence of every target, (worlds, targets).

        Of clients these are means over records.
        """
        game, records, name = release.game, release.game.differing, release.batch.name
        if release.number in self._looked_at:
            found = white_box_features(game.model, release.models, records.features, records.labels)
            self._seen[name].append(found)
        if self.is_active and release.number > 0:
            self._losses[name].append(release.differing_losses)
        return self._of_last(release) if release.is_last else Columns()

    def _of_last(self, release: EvaluatedRelease) -> Columns:
        game, records, name = release.game, release.game.differing, release.batch.name
        logits = game.model.logits(release.models, records.features).cpu()
        wide, labels = logits.double().numpy(), records.labels.cpu().numpy()
        told = {
            "log_probability": _by_target(label_log_probability(wide, labels), game.target_of_records),
            "confidence": _by_target(scaled_confidence(wide, labels), game.target_of_records),
        }
        if self.is_active:
            told[UNDER_ASCENT] = _by_target(np.mean(self._losses.pop(name), axis=0), game.target_of_records)
        population = torch.from_numpy(-release.population_losses).float()
        self._outputs[name] = {LOGITS: logits, POPULATION: population, **self._answers(game, release.models)}
        if self._seen:
            found = WhiteBoxFeatures.over_releases(self._seen.pop(name))
            for part in WHITE_BOX:
                self._outputs[name][part] = torch.from_numpy(getattr(found, part)).float()
        return Columns(targets=told)

    def _answers(self, game: Game, models: Tensor) -> dict[str, Tensor]:
        """Return what the models say to everything else that they are asked."""
        found, records, more = dict[str, Tensor](), game.differing, self.more
        labels = records.labels.cpu().numpy()
        if more.ways is not None:
            asked = (
                scaled_confidence(_logits(game, models, features), labels)
                for features in more.ways.asked(records.features, more.queries)
            )
            confidences = [torch.from_numpy(_by_target(one, game.target_of_records)).float() for one in asked]
            found[QUERIES] = torch.stack(confidences, dim=2)
        if more.attribute is not None:
            place, losses = more.attribute.column.places, list[Tensor]()
            for value in torch.from_numpy(more.attribute.values):
                features = records.features.clone()
                features[:, place] = value.to(features.device)
                losses.append(torch.from_numpy(-label_log_probability(_logits(game, models, features), labels)).float())
            found[VALUES] = torch.stack(losses, dim=2)
        return found

    def outputs(self, batch: WorldBatch) -> dict[str, Tensor]:
        """Return logits (worlds, records, classes), log p_y of the population (worlds, p), and what else was asked."""
        return self._outputs[batch.name]


def _logits(game: Game, models: Tensor, features: Tensor) -> Floats:
    """Return logits (worlds, records, classes) in float64."""
    return np.asarray(game.model.logits(models, features).cpu().double().numpy(), dtype=np.float64)


def _by_target(values: Floats, target_of_records: Integers) -> Floats:
    """Return the mean over the records of each target, (worlds, targets)."""
    counts = np.bincount(target_of_records)
    sums = np.add.reduceat(values, np.append(0, np.cumsum(counts)[:-1]), axis=1)
    return np.asarray(sums / counts, dtype=np.float64)
