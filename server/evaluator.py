"""The observer of releases: test accuracy and Epsilon* of every released model, membership attacks on the final one.

It works from outputs and losses alone. Where members' losses stay with their owners, `strategies.loss_queries` finds
Epsilon* and only the population is evaluated here; membership attacks, which need single losses, still pool members'.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from flwr.app import MetricRecord
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.adversaries.loss_threshold import membership_attack, record_membership_guess
from fl_audit.errors import require
from fl_audit.evidence.star.empirical_star import threshold_counts
from fl_audit.evidence.star.epsilon_star import StarSettings, parametric_epsilon_star
from fl_audit.evidence.star.loss_attacks import area_under_roc
from fl_audit.game import Game
from fl_audit.packing import copy_to_tensor
from fl_audit.worlds import WorldBatch
from server.challenger import SeededChallenger


def require_evaluable(game: Game, epsilon_star: bool, membership: bool) -> None:
    """Refuse before the run what Epsilon* or the membership attacks could not be computed from.

    Raises
    ------
    InputError
        If D' or the population has fewer than two records.
    """
    wanted = [(epsilon_star, "Epsilon*", "epsilon-star"), (membership, "the membership attack", "membership")]
    for name, count in (("D'", len(game.training.labels) - 1), ("the population sample", len(game.population.labels))):
        for is_on, what, key in wanted:
            enough = not is_on or count >= 2
            require(enough, f"{what} needs 2 records in {name}, there are {count}: use more, or {key} = false")


@dataclass(frozen=True)
class MembershipFindings:
    """What the membership adversary found in the final models of a batch.

    Parameters
    ----------
    advantage
        TPR - FPR over the members and the population sample, per world (worlds,).
    record_guess
        Whether it says of x that it was used (worlds,).
    """

    advantage: NDArray[np.float64]
    record_guess: NDArray[np.bool_]


@dataclass(frozen=True)
class _Losses:
    """Losses (worlds, records) of one release: on what D and D' share, on x, on x', on the population sample."""

    common: NDArray[np.float64]
    differing: NDArray[np.float64]
    replacement: NDArray[np.float64]
    population: NDArray[np.float64]

    def by_bit(
        self, bits: NDArray[np.bool_]
    ) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.float64], NDArray[np.float64]]]:
        """Yield worlds, their losses on the members of the data set that they used, and on the population."""
        for bit, own in ((True, self.differing), (False, self.replacement)):
            rows = bits == bit
            if rows.any():
                yield rows, np.concatenate([self.common[rows], own[rows]], axis=1), self.population[rows]


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
    star
        delta and cut of Epsilon*; None leaves Epsilon* out.
    membership
        Whether the final release is attacked by the membership adversary.
    releases
        Numbers of the releases that are evaluated, in order.
    federated
        Whether members' losses stay with their owners: then Epsilon* is not computed here, and losses on the
        population sample are kept until they are taken.
    """

    def __init__(
        self,
        game: Game,
        challenger: SeededChallenger,
        batches: tuple[WorldBatch, ...],
        star: StarSettings | None,
        membership: bool,
        releases: tuple[int, ...],
        federated: bool = False,
    ) -> None:
        self._game = game
        self._challenger = challenger
        self._batches = batches
        self._star = None if federated else star
        self._federated = federated
        self._population: dict[tuple[str, int], NDArray[np.float64]] = {}
        self._membership = membership
        self.releases = releases
        self.accuracy: dict[str, list[NDArray[np.float64]]] = {batch.name: [] for batch in batches}
        self.epsilon_star: dict[str, list[NDArray[np.float64]]] = {batch.name: [] for batch in batches}
        self.membership: dict[str, MembershipFindings] = {}
        self.auroc: dict[str, NDArray[np.float64]] = {}

    def __call__(self, server_round: int, arrays: Mapping[str, NDArray[np.float32]]) -> MetricRecord:
        """Evaluate the models of one release and return their means over worlds."""
        is_last = server_round == self._game.public.rounds
        attacked = self._membership and is_last
        for batch in self._batches:
            models = copy_to_tensor(arrays[batch.name]).to(self._game.public.device)
            logits = self._game.model.logits(models, self._game.test.features)
            self.accuracy[batch.name].append(_accuracies(logits, self._game.test.labels))
            if is_last and (area := _areas(logits, self._game.test.labels)) is not None:
                self.auroc[batch.name] = area
            if self._federated:
                self._population[batch.name, server_round] = self._game.losses(models, self._game.population)
            if self._star is None and not attacked:
                continue
            losses, bits = self._losses(models), self._challenger.bits(batch.worlds)
            if self._star is not None:
                self.epsilon_star[batch.name].append(_epsilon_stars(losses, bits, self._star))
            if attacked:
                self.membership[batch.name] = _membership(losses, bits)
        record = MetricRecord({"test-accuracy": self._newest_mean(self.accuracy)})
        if self._star is not None:
            record["epsilon-star"] = self._newest_mean(self.epsilon_star)
        return record

    def take_population(self, batch: WorldBatch, release: int) -> NDArray[np.float64]:
        """Return the losses (worlds, p) on the population sample of an evaluated release, and forget them."""
        return self._population.pop((batch.name, release))

    def _newest_mean(self, values: dict[str, list[NDArray[np.float64]]]) -> float:
        return float(np.concatenate([values[batch.name][-1] for batch in self._batches]).mean())

    def _losses(self, models: Tensor) -> _Losses:
        game = self._game
        parts = (game.common, game.differing, game.replacement, game.population)
        return _Losses(*(game.losses(models, examples) for examples in parts))


def _accuracies(logits: Tensor, labels: Tensor) -> NDArray[np.float64]:
    right = (logits.argmax(dim=2) == labels).sum(dim=1)
    shares: NDArray[np.float64] = (right.double() / len(labels)).cpu().numpy()
    return shares


def _areas(logits: Tensor, labels: Tensor) -> NDArray[np.float64] | None:
    """Return the area under the ROC (worlds,) of the second of two classes; None with other classes, or one alone."""
    positive = labels == 1
    if logits.shape[2] != 2 or bool(positive.all()) or not bool(positive.any()):
        return None
    # A large margin says the second class, and what is counted first must be small.
    falling = (logits[..., 0] - logits[..., 1]).double()
    return area_under_roc(threshold_counts(falling[:, positive].cpu().numpy(), falling[:, ~positive].cpu().numpy()))


def _epsilon_stars(losses: _Losses, bits: NDArray[np.bool_], star: StarSettings) -> NDArray[np.float64]:
    result = np.empty(len(bits))
    for rows, members, population in losses.by_bit(bits):
        result[rows] = parametric_epsilon_star(members, population, star.delta, cut=star.cut)
    return result


def _membership(losses: _Losses, bits: NDArray[np.bool_]) -> MembershipFindings:
    advantage = np.empty(len(bits))
    for rows, members, population in losses.by_bit(bits):
        advantage[rows] = membership_attack(members, population).advantage
    return MembershipFindings(advantage, record_membership_guess(losses.differing[:, 0], losses.common))
