"""The observer of releases: what is found in released models, from outputs and losses alone.

Each finding is a small class that is shown the releases and gives columns of the run's tables. Where members' losses
stay with their owners, `strategies.loss_queries` finds Epsilon*, and only the population is evaluated here. Membership
attacks need single losses and pool members' all the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from flwr.app import MetricRecord
from torch import Tensor

from fl_audit.adversaries.membership.loss import membership_attack, record_membership_guess
from fl_audit.arrays import Flags, Floats, Floats32
from fl_audit.errors import require
from fl_audit.evidence.star.empirical_star import area_under_roc, threshold_counts
from fl_audit.evidence.star.epsilon_star import StarSettings, parametric_epsilon_star
from fl_audit.game.columns import Columns
from fl_audit.game.game import Game
from fl_audit.game.membership import Membership
from fl_audit.packing import copy_to_tensor
from fl_audit.worlds import WorldBatch
from server.early_stopping import EarlyStopping
from strategies.contributors import Challenger

_SURELY_TWO = 40  # of so many fair coins fewer than two fall on one side once in 2.7e10 times


def require_evaluable(game: Game, epsilon_star: bool, membership: bool) -> None:
    """Refuse before the run what Epsilon* or the membership attacks could not be computed from.

    Parameters
    ----------
    game
        The game.
    epsilon_star
        Whether Epsilon* of its models shall be computed.
    membership
        Whether its models shall be attacked for membership.

    Raises
    ------
    InputError
        If D' or the population has fewer than two records.
    """
    if game.public.plays_membership:
        sure = len(game.common.labels) >= 2 or not epsilon_star or len(game.targets) >= _SURELY_TWO
        require(
            sure,
            f"Epsilon* needs 2 members, and of {len(game.targets)} targets, in or out by chance, fewer may be in: "
            f"use {_SURELY_TWO} targets, fewer targets than there are records, or epsilon-star = false",
        )
        return
    wanted = [(epsilon_star, "Epsilon*", "epsilon-star"), (membership, "the membership attack", "membership")]
    for name, count in (("D'", len(game.common.labels)), ("the population sample", len(game.population.labels))):
        for is_on, what, key in wanted:
            enough = not is_on or count >= 2
            require(enough, f"{what} needs 2 records in {name}, there are {count}: use more, or {key} = false")


@dataclass(frozen=True)
class EvaluatedRelease:
    """One released model of every world of a batch, as findings look at it; what they share is worked out once."""

    game: Game  # the game with its data
    batch: WorldBatch  # the worlds
    number: int  # which release, 0 being the initial models
    models: Tensor  # stacked models (worlds, parameters)
    membership: Membership  # which targets were in

    @property
    def is_last(self) -> bool:
        """Whether it is that of the last round."""
        return self.number == self.game.public.rounds

    def again(self, number: int) -> "EvaluatedRelease":
        """Return the same models as a later release, with what is worked out already."""
        later = copy(self)
        vars(later).update(number=number)
        return later

    @cached_property
    def logits(self) -> Tensor:
        """Logits (worlds, n, classes) on the test records."""
        return self.game.model.logits(self.models, self.game.test.features)

    @cached_property
    def population_losses(self) -> Floats:
        """Losses (worlds, p) on the population sample."""
        return self.game.losses(self.models, self.game.population)

    @cached_property
    def common_losses(self) -> Floats:
        """Losses on what D and D' share, (worlds, n - 1), or (worlds, records of all clients but the victim)."""
        return self.game.losses(self.models, self.game.common)

    @cached_property
    def differing_losses(self) -> Floats:
        """Losses on x, (worlds, 1), on the records of the victim, or on those of all targets."""
        return self.game.losses(self.models, self.game.differing)

    @cached_property
    def replacement_losses(self) -> Floats:
        """Losses on what stands in the place of the differing unit under D'; (worlds, 0) where nothing does."""
        return self.game.losses(self.models, self.game.replacement)

    def members_and_population(self) -> Iterator[tuple[Flags, Floats, Floats]]:
        """Yield worlds, their losses on the members of the data set that they used, and on the population."""
        if self.game.public.plays_membership:
            yield from self._members_of_each()
            return
        bits = self.membership.bits
        for bit, own in ((True, self.differing_losses), (False, self.replacement_losses)):
            rows = bits == bit
            if rows.any():
                yield rows, np.concatenate([self.common_losses[rows], own[rows]], axis=1), self.population_losses[rows]

    def _members_of_each(self) -> Iterator[tuple[Flags, Floats, Floats]]:
        """Yield the worlds one by one: with many targets each has other members, and another number of them."""
        is_in = self.membership.is_in[:, self.game.target_of_records]
        for world, held in enumerate(is_in):
            members = np.concatenate([self.common_losses[world], self.differing_losses[world, held]])
            rows = np.zeros(len(is_in), dtype=np.bool_)
            rows[world] = True
            yield rows, members[np.newaxis], self.population_losses[rows]


class ReleaseFinding(Protocol):
    """Something that is found in releases."""

    def look(self, release: EvaluatedRelease) -> None:
        """Take note of a release; they come in order."""

    def columns(self, batch: WorldBatch) -> Columns:
        """Return what was found in a batch."""


class UtilityMeter:
    """Test accuracy of every evaluated release; of two classes also the area under the ROC of the last one."""

    def __init__(self) -> None:
        self.accuracy: dict[str, list[Floats]] = {}
        self._area: dict[str, Floats] = {}

    def look(self, release: EvaluatedRelease) -> None:
        """Take note of a release."""
        labels = release.game.test.labels
        right = (release.logits.argmax(dim=2) == labels).sum(dim=1)
        shares: Floats = (right.double() / len(labels)).cpu().numpy()
        self.accuracy.setdefault(release.batch.name, []).append(shares)
        if release.is_last and (area := _areas(release.logits, labels)) is not None:
            self._area[release.batch.name] = area

    def columns(self, batch: WorldBatch) -> Columns:
        """Return accuracy and area."""
        accuracy = np.stack(self.accuracy[batch.name], axis=1)
        area = {"test_auroc": self._area[batch.name]} if batch.name in self._area else {}
        return Columns(worlds={"test_accuracy": accuracy[:, -1], **area}, releases={"test_accuracy": accuracy})


class ReleasedRisk:
    """Epsilon* of every evaluated release, from pooled losses.

    Parameters
    ----------
    star
        delta and cut of Epsilon*.
    """

    def __init__(self, star: StarSettings) -> None:
        self._star = star
        self.found: dict[str, list[Floats]] = {}

    def look(self, release: EvaluatedRelease) -> None:
        """Take note of a release."""
        result = np.empty(release.batch.count)
        for rows, members, population in release.members_and_population():
            result[rows] = parametric_epsilon_star(members, population, self._star.delta, cut=self._star.cut)
        self.found.setdefault(release.batch.name, []).append(result)

    def columns(self, batch: WorldBatch) -> Columns:
        """Return Epsilon*."""
        star = np.stack(self.found[batch.name], axis=1)
        return Columns(worlds={"epsilon_star": star[:, -1]}, releases={"epsilon_star": star})


class LossThresholdFinding:
    """What the membership adversary of Yeom et al. 2018 finds in the final models."""

    def __init__(self) -> None:
        self._found: dict[str, Columns] = {}

    def look(self, release: EvaluatedRelease) -> None:
        """Attack the last release."""
        if not release.is_last:
            return
        advantage = np.empty(release.batch.count)
        for rows, members, population in release.members_and_population():
            advantage[rows] = membership_attack(members, population).advantage
        own = release.differing_losses.mean(axis=1)
        guess = record_membership_guess(own, release.common_losses)
        # Higher where x rather was in: the smaller its loss, and where another stood in for it, the larger that one's.
        stand_in = release.replacement_losses.mean(axis=1) if release.replacement_losses.shape[1] else 0.0
        self._found[release.batch.name] = Columns(
            worlds={
                "membership_advantage": advantage,
                "record_membership_guess": guess.astype(np.float64),
                "record_score": stand_in - own,
            }
        )

    def columns(self, batch: WorldBatch) -> Columns:
        """Return the advantage over members, the guess about x, and the score that its loss gives it."""
        return self._found[batch.name]


class PopulationLosses:
    """Losses on the population sample, kept until they are taken, where those of members stay with their owners."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], Floats] = {}

    def look(self, release: EvaluatedRelease) -> None:
        """Keep the losses on a release."""
        self._kept[release.batch.name, release.number] = release.population_losses

    def take(self, batch: WorldBatch, release: int) -> Floats:
        """Return the losses (worlds, p) of an evaluated release, and forget them.

        Parameters
        ----------
        batch
            The worlds.
        release
            Number of the release.
        """
        return self._kept.pop((batch.name, release))

    def columns(self, batch: WorldBatch) -> Columns:
        """Return nothing: others make something of the losses."""
        return Columns()


class ReleaseEvaluator:
    """Shows each release of some batches to the findings; Flower calls it with the models of every round, 0 included.

    Parameters
    ----------
    game
        The game with its data. The losses of members are those of the records each world was really trained on.
    challenger
        Tells which those are.
    batches
        The batches that travel together.
    findings
        What looks at the releases.
    stopping
        Chooses a release of every world; None takes the last one. What is looked at last are the chosen models.
    """

    def __init__(
        self,
        game: Game,
        challenger: Challenger,
        batches: Sequence[WorldBatch],
        findings: Sequence[ReleaseFinding],
        stopping: EarlyStopping | None = None,
    ) -> None:
        self._stopping = stopping
        self._last: dict[str, EvaluatedRelease] = {}
        self._game = game
        self._challenger = challenger
        self._batches = batches
        self._findings = findings

    def __call__(self, server_round: int, arrays: Mapping[str, Floats32]) -> MetricRecord | None:
        """Show the models of one release to all findings."""
        for batch in self._batches:
            release = self._release(batch, server_round, arrays[batch.name])
            for finding in self._findings:
                finding.look(release)
            if self._stopping is not None:
                self._last[batch.name] = release  # shown again where no world trains on; it holds models and outputs
        return None

    def _release(self, batch: WorldBatch, number: int, array: Floats32) -> EvaluatedRelease:
        """Return what the findings look at: after the last round, or where no world trains on, the chosen models."""
        membership, stopping = self._challenger.membership(batch.worlds), self._stopping
        if stopping is not None and stopping.is_over(batch) and number < self._game.public.rounds:
            return self._last[batch.name].again(number)
        models = copy_to_tensor(array).to(self._game.public.device)
        if stopping is not None and (ended := stopping.ended(batch)).any():
            # What is seen of a world does not hang on how long others of its batch train.
            rows = torch.from_numpy(ended).to(models.device)
            models[rows] = self._last[batch.name].models[rows]
        release = EvaluatedRelease(self._game, batch, number, models, membership)
        if stopping is None:
            return release
        stopping.look(batch, number, models, lambda: release.population_losses)
        if number < self._game.public.rounds:
            return release
        return EvaluatedRelease(self._game, batch, number, stopping.models(batch), membership)


def _areas(logits: Tensor, labels: Tensor) -> Floats | None:
    """Return the area under the ROC (worlds,) of the second of two classes; None with other classes, or one alone."""
    positive = labels == 1
    if logits.shape[2] != 2 or bool(positive.all()) or not bool(positive.any()):
        return None
    # A large margin says the second class, and what is counted first must be small.
    falling = (logits[..., 0] - logits[..., 1]).double()
    return area_under_roc(threshold_counts(falling[:, positive].cpu().numpy(), falling[:, ~positive].cpu().numpy()))
