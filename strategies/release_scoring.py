"""Queries that send each release to adversaries among the clients, and collect their scores.

There are two kinds of adversaries. An insider computes how likely a release is under D and under D'. The observer of
canaries looks for canaries: artificial contributions in known directions, each inserted only if a coin says so. For
comparison, the observer also scores decoys, which are directions that are never inserted.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Message

from fl_audit.array_packing import pack
from fl_audit.array_types import Floats, Integers
from fl_audit.audits.canaries.canary_contributions import directions_read, expected_scores
from fl_audit.federation.federation import Federation
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.local_dpsgd import private_steps
from fl_audit.federation.observed_rounds import part_seen_by_clients
from fl_audit.federation.result_columns import TrialBatchColumns
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.message_keys import Key, NonTrainingQuery
from fl_audit.strategies.queries import TRAIN, BatchTrainingState, More, RunQueries, WriteMessage
from fl_audit.strategies.reply_checks import ReplyIdentity, read_array
from fl_audit.strategies.secret_draws import SeededChallenger
from fl_audit.trial_batches import TrialBatch
from fl_audit.verdict.log_odds_innovations import SMALLEST_SIGNAL
from fl_audit.verdict.noise_statistics import NoiseStatistics, NoiseStatisticsLayout

_OBSERVE = f"query.{NonTrainingQuery.OBSERVE}"


@dataclass
class ReleaseScoringQueries(RunQueries):
    """Base class of queries that send release i to the insider, a client that acts as the adversary, after round i.

    Release i is sent in exchange i + 1, together with the messages of round i + 1.
    """

    public: Federation  # public facts of the federation, with the insider's view of a round
    insider: int  # number of the client that is the insider
    noise_seeds: Sequence[int]  # noise seeds that the insider knows
    batches: Sequence[TrialBatch]  # batches of trials; all are trained at once
    # Answers, one array (trials, ...) per round, keyed by the name of the batch and of the array.
    _answers: dict[tuple[str, Key], list[Floats]] = field(init=False, default_factory=lambda: defaultdict(list))
    # Adaptive clipping norms, one array (trials,) per round, keyed by the name of the batch.
    _norms: dict[str, list[Floats]] = field(init=False, default_factory=lambda: defaultdict(list))

    @property
    def last_exchange(self) -> int:
        """Number of the exchange of messages that sends the last release: the number of rounds plus 1."""
        return self.public.rounds + 1

    @property
    def expected(self) -> Mapping[Key, tuple[tuple[int, ...], bool]]:
        """Expected form of an answer by key: (shape per trial, whether all its numbers must be finite)."""
        raise NotImplementedError

    def messages(
        self,
        exchange: int,
        transcripts: Mapping[str, BatchTrainingState],
        to_observer: WriteMessage,
        to_owner: WriteMessage,
    ) -> list[Message]:
        """Return the messages that send the insider what it sees of the latest round, one for each batch of trials.

        `exchange`: The result is empty in the first, which no release precedes.
        """
        written = []
        for batch in self._asked(exchange):
            server_round = transcripts[batch.name].latest_round
            assert server_round is not None, "an exchange from the second on follows a release"
            if server_round.side.norms is not None:
                self._norms[batch.name].append(server_round.side.norms.numpy())
            if len(self.noise_seeds):
                seeds = torch.tensor(list(self.noise_seeds), dtype=torch.int64)
                server_round = replace(server_round, side=replace(server_round.side, noise_seeds=seeds))
            tensors = part_seen_by_clients(self.public.view, self.public.mechanism, server_round).tensors()
            arrays = ArrayRecord({name: Array(*pack(value.numpy())) for name, value in tensors.items()})
            written.append(to_observer(self.insider, _OBSERVE, batch, exchange - 1, arrays, self._told(batch)))
        return written

    def _told(self, batch: TrialBatch) -> More:
        """Return the settings that a message to an adversary has in addition to the release; by default none."""
        return {}

    def answers(self, exchange: int) -> list[ReplyIdentity]:
        """Return the keys of the answers that an exchange must bring: one for each batch of trials."""
        return [ReplyIdentity(self.insider, _OBSERVE, batch.name) for batch in self._asked(exchange)]

    def read_answers(self, exchange: int, messages: Mapping[ReplyIdentity, Message]) -> None:
        """Check and store the insider's answers in an exchange; raises `FederationError` if one is malformed."""
        for batch in self._asked(exchange):
            reply = messages[ReplyIdentity(self.insider, _OBSERVE, batch.name)]
            arrays_by_key = {
                key: read_array(reply, key, (batch.count, *shape), np.float64, self.insider, exchange - 1, finite)
                for key, (shape, finite) in self.expected.items()
            }
            self._keep(batch, arrays_by_key)

    def _keep(self, batch: TrialBatch, arrays_by_key: Mapping[Key, Floats]) -> None:
        for key, values in arrays_by_key.items():
            self._answers[batch.name, key].append(values.copy())

    def _asked(self, exchange: int) -> Sequence[TrialBatch]:
        """Return the trial batches for which the insider is asked about a release in an exchange of messages.

        No batch is returned for the first exchange, before any release, nor after the last exchange. In all other
        exchanges these are all batches.
        """
        return self.batches if 1 < exchange <= self.last_exchange else ()

    def _by_round(self, batch: TrialBatch, key: Key) -> Floats:
        """Return the array `key` of the insider's answers for all rounds, (trials, rounds, ...)."""
        return np.stack(self._answers[batch.name, key], axis=1)


@dataclass
class InsiderLogOddsCollector(ReleaseScoringQueries):
    """Sends releases to the insider, which answers with its log-odds of D against D' and measurements of the noise."""

    layout: NoiseStatisticsLayout  # names and order of the numbers that measure the noise
    # Function that returns which hypothesis was true in each round, (trials, rounds), as `challenger.true_side` does.
    true_side: Callable[[TrialBatch], Integers]
    # Function that returns the products of clients' noise shares with the residuals; None if clients add no noise.
    open_shares: Callable[[TrialBatch, NoiseStatistics], TrialBatchColumns] | None = None

    @property
    def expected(self) -> Mapping[Key, tuple[tuple[int, ...], bool]]:
        """Expected form of an answer by key: shape of each array, and whether its numbers must be finite.

        The arrays are the log-odds, the local sensitivity, two scores of the noise, and noise statistics.
        """
        measured = {Key.NOISE_SCORES: ((2,), False), Key.RESIDUALS: ((len(self.layout.names),), False)}
        return {Key.LOG_ODDS: ((), True), Key.LOCAL_SENSITIVITY: ((), True), **measured}

    def columns(self, batch: TrialBatch) -> TrialBatchColumns:
        """Return the insider's log-odds and noise measurements for all rounds of a batch of trials.

        The noise is measured on the release minus the sum of contributions under the data set that was used.
        """
        mechanism = self.public.mechanism
        norms = self._norms[batch.name]
        increments = self._by_round(batch, Key.LOG_ODDS)
        sensitivity = self._by_round(batch, Key.LOCAL_SENSITIVITY)
        statistics = NoiseStatistics.of_array(self._by_round(batch, Key.RESIDUALS), self.layout)
        used = np.stack(norms, axis=1) if norms else None
        log_odds = increments.cumsum(axis=1)
        sigma = mechanism.noise_scale(sensitivity, self.public.threat_model, used)
        residuals = statistics.of_true_hypothesis(self.true_side(batch))
        if not mechanism.noise.has_gaussian_llr:
            residuals = residuals.with_sums_of_classes(sigma)
        rounds = {"sigma": sigma, "local_sensitivity": sensitivity, "log_odds": log_odds}
        rounds |= {"increment": increments, "measured_sigma": residuals.sigma}
        if mechanism.is_sampled or mechanism.is_adaptive or not mechanism.noise.has_gaussian_llr:
            # Otherwise the scores follow from increments and sensitivities.
            scores = self._by_round(batch, Key.NOISE_SCORES)
            rounds |= {"score_present": scores[..., 0], "score_absent": scores[..., 1]}
        if used is not None:
            rounds["clipping_norm"] = used
        final = {"log_odds": log_odds[:, -1]}
        columns = TrialBatchColumns(trials=final, rounds=rounds, residuals=residuals.columns())
        return columns if self.open_shares is None else columns | self.open_shares(batch, residuals)


@dataclass
class InsiderScoreCollector(ReleaseScoringQueries):
    """Sends releases to an insider that cannot compute a likelihood ratio; it answers with one score per round."""

    @property
    def expected(self) -> Mapping[Key, tuple[tuple[int, ...], bool]]:
        """Expected form of an answer by key: one finite score per trial."""
        return {Key.SCORE: ((), True)}

    def columns(self, batch: TrialBatch) -> TrialBatchColumns:
        """Return the insider's score in each round, (trials, rounds), and its total, (trials,), for one batch."""
        scores = self._by_round(batch, Key.SCORE)
        return TrialBatchColumns(trials={"score": scores.sum(axis=1)}, rounds={"score": scores})


@dataclass
class TargetLogOddsCollector(ReleaseScoringQueries):
    """Sends releases to one client, which answers for each target with the log-odds that it is in the data.

    In the membership audit each target has an insider who knows which others are in. One client acts as all of them, so
    it is told the membership of all targets. In the reconstruction audit one insider compares all candidates, and is
    told nothing.
    """

    challenger: SeededChallenger  # challenger, which knows the membership of the targets
    knows_others: bool  # whether a target's insider knows which other targets are in the data
    # Sums over rounds, (trials, targets), keyed by the name of the batch and of the number.
    _sums: dict[tuple[str, str], Floats] = field(init=False, default_factory=dict)

    @property
    def expected(self) -> Mapping[Key, tuple[tuple[int, ...], bool]]:
        """Expected form of each array in an answer: its shape per trial, and whether all its values must be finite.

        The arrays, each of shape (targets,), are the log-odds, the signal, and the noise along the target's
        contribution. The signal is the norm of this contribution divided by the standard deviation of the noise.
        """
        shape = (self.public.targets,)
        return {Key.LOG_ODDS: (shape, True), Key.LOCAL_SENSITIVITY: (shape, True), Key.NOISE_SCORES: (shape, False)}

    def _told(self, batch: TrialBatch) -> More:
        if not self.knows_others:
            return {}  # the one insider has to find out which candidate is in
        return {Key.MEMBERSHIP: self.challenger.membership(batch.trials).pack()}

    def _keep(self, batch: TrialBatch, arrays_by_key: Mapping[Key, Floats]) -> None:
        signal, noise = arrays_by_key[Key.LOCAL_SENSITIVITY], arrays_by_key[Key.NOISE_SCORES]
        # A target without signal in this round needs no noise.
        hides = (signal >= SMALLEST_SIGNAL) & ~np.isnan(noise)
        if not self.knows_others:  # an insider of candidates knows only the noise along the one that is in
            hides &= self.challenger.membership(batch.trials).is_in
        added = {"log_odds": arrays_by_key[Key.LOG_ODDS], "mu": signal**2}
        added |= {"noise_squares": np.where(hides, noise**2, 0.0), "noise_rounds": hides.astype(np.float64)}
        added |= {"noise_sum": np.where(hides, noise, 0.0), "signal_sum": np.where(hides, signal, 0.0)}
        for name, values in added.items():
            self._sums[batch.name, name] = self._sums.get((batch.name, name), np.zeros(values.shape)) + values

    def columns(self, batch: TrialBatch) -> TrialBatchColumns:
        """Return the results of each target for one batch, as columns of shape (trials, targets).

        `log_odds` holds the final log-odds. The signal of a round is the norm of the target's contribution, divided by
        the standard deviation of the noise. `mu` is the root of the sum of squared signals over all rounds.

        The other columns count only rounds with known noise and a signal that is not negligible. `noise_rounds` is the
        number of these rounds, and `signal_sum` the sum of their signals. `noise_sum` and `noise_squares` are the sums
        of the noise along the contribution and of its square. In the reconstruction audit, these columns are 0 for
        every candidate that is not in the data.
        """
        sums = {name: values for (of, name), values in self._sums.items() if of == batch.name}
        return TrialBatchColumns(targets=sums | {"mu": np.sqrt(sums["mu"])})


@dataclass
class CanaryScoreCollector(ReleaseScoringQueries):
    """Sends releases to one observer, which answers with a score for each canary and decoy."""

    federation: LoadedFederation  # federation with canaries and its data
    challenger: SeededChallenger  # challenger, which knows the canaries' coins; the observer does not
    # Number of times that each canary is contributed if its coin inserts it, one array (trials, canaries) per round,
    # keyed by the name of the batch.
    _times: dict[str, list[Floats]] = field(init=False, default_factory=lambda: defaultdict(list))

    @property
    def expected(self) -> Mapping[Key, tuple[tuple[int, ...], bool]]:
        """Expected form of an answer by key: a finite score for each canary and each decoy."""
        return {Key.CANARIES: ((directions_read(self.public),), True)}

    def _told(self, batch: TrialBatch) -> More:
        return {Key.TRIALS: list(batch.trials)}

    @property
    def _trains_privately(self) -> bool:
        return isinstance(self.public.mechanism.contribution, PrivateTraining)

    def read_answers(self, exchange: int, messages: Mapping[ReplyIdentity, Message]) -> None:
        """Store the scores that the observer sent.

        With local DP-SGD, also store how many local steps sampled each canary; the victim sends these numbers.

        `exchange`: In exchange k clients train round k, and the observer sends the scores of the release of round k -
        1.
        """
        for batch in self.batches if exchange <= self.public.rounds else ():
            # Number of times that each canary is in the round's contribution if it is in, (trials, canaries).
            times, victim = np.ones((batch.count, self.public.canaries)), self.federation.victim
            if self._trains_privately:
                sent = messages[ReplyIdentity(victim, TRAIN, batch.name)]
                times = read_array(sent, Key.TIMES, times.shape, np.float64, victim, exchange).copy()
            self._times[batch.name].append(times)
        super().read_answers(exchange, messages)

    def columns(self, batch: TrialBatch) -> TrialBatchColumns:
        """Return three columns for one batch, (trials, rounds, directions), canaries before decoys.

        `is_in` says whether the canary was inserted. `part` is the share of an inserted canary that the release
        contains; it is below 1 if only some DP-SGD steps sampled the canary. Both are 0 for decoys. `score` is the
        score along the direction.
        """
        public, steps = self.public, 1
        if self._trains_privately:
            steps = private_steps(public.mechanism).count(len(self.federation.shards[self.federation.victim]))
        rounds, decoys = range(1, public.rounds + 1), directions_read(public) - public.canaries
        coins = np.stack([self.challenger.coins(batch.trials, round, public.canaries) for round in rounds], axis=1)
        expected = expected_scores(public, steps, np.stack(self._times[batch.name], axis=1))
        padding = ((0, 0), (0, 0), (0, decoys))
        scores = self._by_round(batch, Key.CANARIES)
        return TrialBatchColumns(
            canaries={"is_in": np.pad(coins, padding), "part": np.pad(expected, padding), "score": scores}
        )
