"""The challenger's log of each round's secrets, from which the verdict's tests are computed after the run.

The secrets are samples of units, quantile bits (of adaptive clipping), optimizer steps and shares of the noise. For
finished batches of trials the log stores only counts: a few numbers per trial and round. It stores complete samples
only for the batch that is being trained. So its size does not grow with the product of trials and units.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.federation.federation import Federation
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.observed_rounds import ServerRound
from fl_audit.federation.result_columns import TrialBatchColumns
from fl_audit.learning.optimizers import OptimizerState, step
from fl_audit.learning.stacked_layers import cached_rows
from fl_audit.mechanisms.contribution import AdaptiveClipping
from fl_audit.mechanisms.noise_draws import noise_share
from fl_audit.mechanisms.threat_model import Adversary
from fl_audit.strategies.aggregation import BatchAggregation
from fl_audit.strategies.exact_checks import ExactChecks
from fl_audit.strategies.secret_draws import SeededChallenger
from fl_audit.trial_batches import TrialBatch
from fl_audit.verdict.noise_statistics import NoiseStatistics
from fl_audit.verdict.opened_secrets import (
    CROWD,
    OPENED_COLUMNS,
    RESIDUAL,
    SHARE,
    SHARE_DRAWS,
    SHARE_KNOWN,
    TURNS,
    UNIT,
)

_DIGEST_BITS = 53  # bits of a sample's digest; a 64-bit float represents as many exactly
_MOST_LAST_BITS = 2**14  # largest number of a model's coordinates whose last bits are counted
_SHARE_TRIALS, _SHARE_CLIENTS, _SHARE_COORDINATES = 16, 24, 32

_Tally = tuple[str, int, int, int, float]


@dataclass
class _BatchLog:
    """Log of the secrets of one batch of trials.

    The log also holds the state after the previous round. The model and the clipping norm of the next round are checked
    against this state.
    """

    # For each name of a logged value, one array (trials,) per round.
    columns: dict[str, list[Floats]] = field(default_factory=lambda: defaultdict(list))
    turns: Integers | None = None  # number of rounds whose sample contained a unit, (trials, units)
    # Number of samples that contained a unit, (units, 4), by the target's case: in the data and in the sample (0), in
    # the data only (1), not in the data but drawn (2), neither (3).
    units: Integers | None = None
    crowds: Integers | None = None  # entry i counts pairs of unit and round with i trials that sampled the unit
    sample: Flags | None = None  # sample of the previous round, bool (trials, units)
    model: Tensor | None = None  # models after the previous round, (trials, parameters)
    state: OptimizerState = field(default_factory=OptimizerState)  # state of the optimizer after the previous round
    # Flower strategies like those of the server, which make the models again from the releases; None without them.
    aggregation: BatchAggregation | None = None
    norms: Tensor | None = None  # clipping norms of the next round, computed from the public bits, (trials,)
    rounds: int = 0  # number of logged rounds
    opened: int = 0  # number of rounds whose samples are logged


@dataclass
class RoundSecretsLog:
    """The challenger's log of the secrets of a run, kept for each batch of trials."""

    federation: Federation  # public facts of the federation: clients, training and mechanism
    challenger: SeededChallenger  # challenger, which knows whether a trial uses D or D'
    target: int | None  # number of the target among the units that are sampled; None if there are many targets
    exact: ExactChecks | None = None  # what is recomputed and compared; None if nothing is
    _logs: dict[str, _BatchLog] = field(init=False, default_factory=lambda: defaultdict(_BatchLog))  # by batch name

    def log_round(
        self, batch: TrialBatch, server_round: ServerRound, taking_part: Tensor | None, centred_bits: Tensor | None
    ) -> None:
        """Log the secrets of one round for one batch of trials.

        Shapes: `taking_part` (trials, units), `centred_bits` (trials,).
        """
        batch_log, members = self._logs[batch.name], self.challenger.membership(batch.trials).is_in[:, 0]
        if self.federation.aggregation is not None and batch_log.aggregation is None:
            federation = load_federation(self.federation)
            batch_log.aggregation = BatchAggregation(federation, list(batch.trials), self.challenger.seed)
        values_by_column = {name: np.full(batch.count, np.nan) for name in OPENED_COLUMNS}
        if taking_part is not None and self._is_opened(server_round.number):
            values_by_column |= self._sampled(batch_log, taking_part.numpy(), members)
        values_by_column["wrong_steps"] = self._stepped(batch_log, server_round)
        if centred_bits is not None and server_round.side.bits is not None:
            values_by_column["bit_noise"] = (
                (server_round.side.bits - centred_bits) / self.federation.mechanism.bit_sigma
            ).numpy()
            values_by_column["wrong_norms"] = self._moved(batch_log, server_round)
        values_by_column["odd"] = _last_bits(server_round.noised)
        batch_log.rounds += 1
        for name, values in values_by_column.items():
            batch_log.columns[name].append(values)

    def _is_opened(self, server_round: int) -> bool:
        """Return whether the secret sample of a round is logged.

        With cyclic cohorts, only the rounds in which the first cohort takes part are logged.
        """
        turn = self.federation.eligible_units(server_round)
        return self._group is None or (turn is not None and np.array_equal(self._group, turn))

    @property
    def _group(self) -> Integers | None:
        """Ascending numbers of the units that can take part in round 1; only samples of such units are logged.

        None if all units can take part in every round.
        """
        return self.federation.eligible_units(1)

    @property
    def _target_index(self) -> int | None:
        """Index of the target among the units that a logged sample may contain; None if there are many targets."""
        group = self._group
        return self.target if self.target is None or group is None else int(np.searchsorted(group, self.target))

    def _sampled(self, batch_log: _BatchLog, taking_part: Flags, members: Flags) -> dict[str, Floats]:
        """Log a round's secret sample of units, bool (trials, units), and return four numbers on it for each trial.

        They are the sample's size and its overlap with the previous sample, both without the target, a hash of the
        sample, and whether the target is in it.
        """
        group, target_index = self._group, self._target_index
        taking_part = taking_part if group is None else taking_part[:, group]
        others_taking_part = taking_part if target_index is None else np.delete(taking_part, target_index, axis=1)
        if batch_log.turns is None or batch_log.units is None or batch_log.crowds is None:
            batch_log.turns = np.zeros(others_taking_part.shape, dtype=np.int32)
            batch_log.units = np.zeros((others_taking_part.shape[1], 4), dtype=np.int64)
            batch_log.crowds = np.zeros(len(others_taking_part) + 1, dtype=np.int64)
        batch_log.turns += others_taking_part
        batch_log.opened += 1
        batch_log.crowds += np.bincount(others_taking_part.sum(axis=0), minlength=len(others_taking_part) + 1)
        column, target = np.zeros(len(others_taking_part), dtype=np.int64), np.full(len(others_taking_part), np.nan)
        if target_index is not None:
            target = taking_part[:, target_index].astype(np.float64)
            column = np.where(members, 0, 2) + np.where(taking_part[:, target_index], 0, 1)
        for index in range(4):
            batch_log.units[:, index] += others_taking_part[column == index].sum(axis=0)
        overlap = (
            np.zeros(len(others_taking_part))
            if batch_log.sample is None
            else (others_taking_part & batch_log.sample).sum(axis=1)
        )
        batch_log.sample = others_taking_part
        digests = np.array([_digest(row) for row in np.packbits(others_taking_part, axis=1)])
        return {"size": others_taking_part.sum(axis=1), "target": target, "overlap": overlap, "digest": digests}

    def _stepped(self, batch_log: _BatchLog, server_round: ServerRound) -> Floats:
        """Return in how many coordinates the server's new model differs from the correct one, (trials,).

        The correct model is computed from the previous model and the release with the public optimizer step.
        """
        mechanism = self.federation.mechanism
        before = server_round.models[-2] if batch_log.model is None else batch_log.model
        after = server_round.models[-1]
        stepped = after if server_round.stepped is None else server_round.stepped
        if batch_log.aggregation is not None:
            expected = batch_log.aggregation.of_mean(
                server_round.number, before, server_round.release / mechanism.denominator
            )
            batch_log.model = after
            return np.asarray((expected != stepped).sum(dim=1).numpy(), dtype=np.float64)
        wrong, states = np.zeros(len(before)), list[OptimizerState]()
        for rows in cached_rows(*before.shape):
            state = OptimizerState(batch_log.state.steps, tuple(moment[rows] for moment in batch_log.state.moments))
            expected, later = step(
                mechanism.optimizer, before[rows], server_round.release[rows], state, mechanism.denominator
            )
            if not torch.equal(expected, stepped[rows]):  # counting takes several times as long
                wrong[rows] = (expected != stepped[rows]).sum(dim=1).numpy()
            states.append(later)
        moments = zip(*(state.moments for state in states), strict=True)
        batch_log.state = OptimizerState(states[-1].steps, tuple(torch.cat(moment) for moment in moments))
        # The next round starts from the server's model, so that a wrong step is counted only once.
        batch_log.model = after
        return wrong

    def _moved(self, batch_log: _BatchLog, server_round: ServerRound) -> Floats:
        """Return 1 for each trial with a wrong clipping norm, else 0.

        The right norm follows from the norm and the published quantile bits of the previous round.
        """
        clipping, side = self.federation.mechanism.clipping, server_round.side
        assert isinstance(clipping, AdaptiveClipping)
        assert side.norms is not None
        assert side.bits is not None
        expected = torch.full_like(side.norms, clipping.norm) if batch_log.norms is None else batch_log.norms
        batch_log.norms = clipping.next_norms(side.norms, side.bits / self.federation.mechanism.denominator + 0.5)
        return (expected != side.norms).double().numpy()

    def columns(self, batch: TrialBatch) -> TrialBatchColumns:
        """Return the logged values of a batch, NaN for rounds that were not run, and delete them from the log."""
        batch_log = self._logs.pop(batch.name, _BatchLog())
        missing = [np.full(batch.count, np.nan)] * (self.federation.rounds - batch_log.rounds)
        opened = {name: np.stack([*batch_log.columns[name], *missing], axis=1) for name in OPENED_COLUMNS}
        return TrialBatchColumns(opened=opened, tallies=_table(self._tallies(batch_log, batch)))

    def _tallies(self, batch_log: _BatchLog, batch: TrialBatch) -> list[_Tally]:
        tallies: list[_Tally] = []
        if batch_log.turns is not None and batch_log.units is not None and batch_log.crowds is not None:
            tallies += _histogram(
                TURNS, batch_log.opened, np.bincount(batch_log.turns.reshape(-1), minlength=batch_log.opened + 1)
            )
            tallies += _histogram(CROWD, batch.count, batch_log.crowds)
            group = np.arange(len(batch_log.units) + (self.target is not None)) if self._group is None else self._group
            numbers = [unit for unit in group.tolist() if unit != self.target]
            tallies += [
                (UNIT, number, at, 0, float(count))
                for number, row in zip(numbers, batch_log.units.tolist(), strict=True)
                for at, count in enumerate(row)
            ]
        if self.exact is not None:
            tallies += [(str(row.kind), row.trial, row.number, row.where, row.value) for row in self.exact.rows(batch)]
        return tallies


def _last_bits(release: Tensor) -> Floats:
    """Return z-scores, (trials,), of the number of released values whose last mantissa bit is 1, 1/2 if it is fair."""
    bits = release.contiguous().view(torch.int32)
    tensor = bits[:, :: -(-bits.shape[1] // _MOST_LAST_BITS)]
    counts = (tensor & 1).sum(dim=1).numpy()
    return np.asarray((2 * counts - tensor.shape[1]) / np.sqrt(tensor.shape[1]), dtype=np.float64)


def _digest(packed: np.ndarray) -> float:
    number = int.from_bytes(blake2b(packed.tobytes(), digest_size=8).digest(), "big")
    return float(number >> (64 - _DIGEST_BITS))


def _histogram(kind: str, trials: int, often: Integers) -> list[_Tally]:
    return [(kind, trials, value, 0, float(count)) for value, count in enumerate(often.tolist()) if count]


def _table(tallies: Sequence[_Tally]) -> dict[str, np.ndarray]:
    columns = list(zip(*tallies, strict=True)) or [(), (), (), (), ()]
    columns_by_name = dict(zip(("first", "second", "third"), columns[1:4], strict=True))
    arrays = {name: np.array(values, dtype=np.int64) for name, values in columns_by_name.items()}
    return {"kind": np.array(columns[0], dtype=object), **arrays, "number": np.array(columns[4], dtype=np.float64)}


def open_shares(
    federation: LoadedFederation, challenger: SeededChallenger, batch: TrialBatch, statistics: NoiseStatistics
) -> TrialBatchColumns:
    """Return inner products of clients' noise shares, with each other and with the residual noise of the sum.

    The residual noise is the part that the insider could not subtract. The shares are drawn again from the clients'
    seeds, for the first trials, clients and coordinates. The result is empty if the residuals lack these coordinates.

    Shapes: `statistics` (trials, rounds, ...).
    """
    at = [index for index, (number, _) in enumerate(statistics.places) if number < _SHARE_COORDINATES]
    size, looked_at = len(at), min(batch.count, _SHARE_TRIALS)
    if [statistics.places[index][0] for index in at] != list(range(size)) or np.isnan(statistics.sample).any():
        return TrialBatchColumns()
    trials = list(batch.trials)[:looked_at]
    first = sorted({federation.insider, *federation.colluders, federation.victim})
    other_clients = [index for index in range(federation.public.clients) if index not in first]
    clients = sorted([*first, *other_clients][:_SHARE_CLIENTS])
    rows = [statistics.sample[:looked_at, :, 0, at].reshape(-1)]
    for client in clients:
        seed, rounds = challenger.noise_seed(client), range(1, federation.public.rounds + 1)
        tensor = torch.stack([noise_share(seed, trials, round, size) for round in rounds], dim=1)
        rows.append(tensor.double().numpy().reshape(-1))
    products = np.stack(rows) @ np.stack(rows).T
    numbers, tallies = [RESIDUAL, *clients], list[_Tally]()
    for index, first_client in enumerate(numbers):
        pairs = zip(numbers[index:], products[index, index:].tolist(), strict=True)
        tallies += [(SHARE, first_client, other_client, 0, value) for other_client, value in pairs]
    tallies.append((SHARE_DRAWS, 0, 0, 0, float(rows[0].size)))
    if federation.public.threat_model.adversary is Adversary.CLIENT:
        tallies += [(SHARE_KNOWN, index, 0, 0, 1.0) for index in (federation.insider, *federation.colluders)]
    return TrialBatchColumns(tallies=_table(tallies))
