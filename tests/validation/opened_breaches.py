"""Breaches of participation, shares, quantile bits and steps, which a challenger opens and finds.

Each has a synthetic form, which changes honest draws, and a real form where one of our federations can be made to break
so.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from flwr.app import Array
from torch import Tensor

from fl_audit.array_packing import pack
from fl_audit.array_types import Flags, Floats
from fl_audit.federation.observed_rounds import SideInformation
from fl_audit.mechanisms.contribution import AdaptiveClipping
from fl_audit.randomness import Purpose, generator
from fl_audit.runs.run import ClientAppAndStrategy
from fl_audit.strategies.received_contributions import UnnoisedRoundSum
from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy
from fl_audit.trial_batches import TrialBatch
from fl_audit.verdict.declared_tests import TestName as T
from fl_audit.verdict.run_measurements import NoiseMeasurements
from tests.validation.engine_runs import breach_plan, measured_run
from tests.validation.synthetic_noise import NoiseSetting, play
from tests.validation.synthetic_opened import OpenedDraws, OpenedSetting, draw, opened_of

Change = Callable[[OpenedDraws], None]
_SMALL = NoiseSetting((("weight", 60), ("bias", 4)), trials=40, rounds=30)


@dataclass(frozen=True)
class OpenedBreach:
    """A federation that breaks its guarantee in draws or releases beside the noise of the sum."""

    name: str  # its description, in plain English
    tests: tuple[T, ...]  # the tests that are to find it, any of them
    change: Change  # its change of honest draws
    strategy: type[TrialBatchStrategy] | None = None  # its form on a real server; None where no real run is played
    mechanism: dict[str, dict[str, Any]] = field(default_factory=dict)  # changes of `breach_plan` of a real run
    below: str = ""  # why it may pass, where it is smaller than a limit of detection; empty elsewhere
    setting: OpenedSetting = field(default_factory=OpenedSetting)

    def made_up(self, number: int) -> NoiseMeasurements:
        """Play a synthetic run."""
        measured, honest = _draws(number, self.setting)
        draws = copy.deepcopy(honest)
        self.change(draws)
        return replace(measured, opened=opened_of(draws))

    def real(self, number: int) -> NoiseMeasurements:
        """Play a real run."""
        assert self.strategy is not None, "not every breach has a real form"
        return measured_run(breach_plan(number + 1, **self.mechanism), ClientAppAndStrategy(strategy=self.strategy))


def measured_of(
    rng: np.random.Generator, setting: OpenedSetting, change: Change = lambda draws: None
) -> NoiseMeasurements:
    """Return a synthetic run of honest noise, and its opened values.

    `change` alters the draws as a breach does; by default nothing is broken.
    """
    measured = play(rng, replace(_SMALL, trials=setting.trials, rounds=setting.rounds))
    draws = draw(rng, setting)
    draws.members = measured.members
    change(draws)
    return replace(measured, opened=opened_of(draws))


@lru_cache(maxsize=1)
def _draws(number: int, setting: OpenedSetting) -> tuple[NoiseMeasurements, OpenedDraws]:
    """Return the honest noise and draws of a run, which all kinds share."""
    rng = np.random.default_rng((2, number))
    noise = replace(_SMALL, trials=setting.trials, rounds=setting.rounds)
    measured = play(rng, noise)
    draws = draw(rng, setting)
    draws.members = measured.members
    return measured, draws


SAMPLED: dict[str, dict[str, Any]] = {"training": {"sampling-rate": 0.3}, "privacy": {"accountant": "pld"}}
"""A real mechanism under which records are sampled."""
DISTRIBUTED: dict[str, dict[str, Any]] = {"privacy": {"noise": "distributed"}}
ADAPTIVE: dict[str, dict[str, Any]] = {
    "training": {
        "strategy": "dp-fedavg",
        "learning-rate": 1.0,
        "local-steps": 1,
        "local-batch": 10,
        "local-learning-rate": 0.1,
    },
    "privacy": {"adjacency": "add-remove-client", "clipping": "adaptive"},
}


def _fixed(draws: OpenedDraws) -> None:
    """Draw the same number of units in every round."""
    order = draws.rng.random(draws.taken.shape).argsort(axis=2).argsort(axis=2)
    draws.taken = order < round(draws.setting.rate * draws.setting.units)


def _shuffled(draws: OpenedDraws) -> None:
    """Walk through all units in an order that is drawn anew for every pass."""
    setting = draws.setting
    steps = round(1 / draws.setting.rate)
    for trial in range(setting.trials):
        for number in range(setting.rounds):
            if number % steps == 0:
                batches = np.array_split(draws.rng.permutation(setting.units), steps)
            draws.taken[trial, number] = np.isin(np.arange(setting.units), batches[number % steps])


def _target(rate: float, only_with: bool | None = None) -> Change:
    """Draw the target at a multiple of the rate, under both secrets or one."""

    def change(draws: OpenedDraws) -> None:
        is_drawn = draws.rng.random(draws.taken.shape[:2]) < min(1.0, rate * draws.setting.rate)
        rows = slice(None) if only_with is None else draws.members == only_with
        draws.taken[rows, :, 0] = is_drawn[rows]

    return change


def _set(where: Any, values: Callable[[OpenedDraws], Any]) -> Change:
    def change(draws: OpenedDraws) -> None:
        draws.taken[where] = values(draws)

    return change


def _by_size(draws: OpenedDraws) -> None:
    """Let the target take part where many others do."""
    sizes = draws.taken[:, :, 1:].sum(axis=2)
    draws.taken[:, :, 0] = sizes > np.quantile(sizes, 1 - draws.setting.rate)


def _with_more(draws: OpenedDraws) -> None:
    """Draw others more often with D."""
    is_drawn = draws.rng.random(draws.taken.shape) < 1.2 * draws.setting.rate
    draws.taken[draws.members, :, 1:] = is_drawn[draws.members, :, 1:]


def _sevenths(draws: OpenedDraws) -> None:
    draws.taken[:, 6::7] = draws.taken[:, 5:-1:7][:, : draws.taken[:, 6::7].shape[1]]


def _seed(first: int, other_clients: tuple[int, ...], share: float = 1.0) -> Change:
    """Let clients draw from the seed of another, or share a part of its draws."""

    def change(draws: OpenedDraws) -> None:
        for client in other_clients:
            fresh = np.sqrt(1 - share**2) * draws.shares[client]
            draws.shares[client] = share * draws.shares[first] + fresh

    return change


def _bits(new: Callable[[OpenedDraws], Floats]) -> Change:
    def change(draws: OpenedDraws) -> None:
        draws.bits = new(draws)

    return change


def _bits_by_side(draws: OpenedDraws) -> Floats:
    return draws.bits * np.where(draws.members, 1.0, 1.5)[:, None]


def _last_bit(draws: OpenedDraws) -> None:
    draws.last_bits[:, :, 3] = draws.members[:, None]


def _step_by_secret(draws: OpenedDraws) -> None:
    draws.wrong_steps = np.where(draws.members, 50.0, 0.0)[:, None] * np.ones(draws.setting.rounds)


def _norm_of_true_bits(draws: OpenedDraws) -> None:
    draws.wrong_norms[:, 1:] = 1.0


class _Sampling(TrialBatchStrategy):
    """Puts another sampler in the challenger's place."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.challenger.participation = self.sampled  # type: ignore[method-assign]

    def sampled(
        self, trials: Sequence[int], server_round: int, client: int, records: int, sampling_rate: float
    ) -> Flags:
        """Return the participation of records, (trials, records)."""
        return np.stack([self.drawn(trial, server_round, client, records, sampling_rate) for trial in trials])

    def drawn(self, trial: int, server_round: int, client: int, records: int, rate: float) -> Flags:
        """Return the participation of records in a trial."""
        source = generator(
            self.challenger.seed, Purpose.RECORD_SAMPLING, trial=trial, round=server_round, client=client
        )
        return source.random(records) < rate

    def place(self, client: int) -> int | None:
        """Return the place of the target among a client's records."""
        positions = np.flatnonzero(self.roster.shards[client] == self.federation.pair.index)
        return int(positions[0]) if positions.size else None


class _FixedSize(_Sampling):
    def drawn(self, trial: int, server_round: int, client: int, records: int, rate: float) -> Flags:
        source = generator(
            self.challenger.seed, Purpose.RECORD_SAMPLING, trial=trial, round=server_round, client=client
        )
        return source.permutation(records) < round(rate * records)


class _Shuffled(_Sampling):
    def drawn(self, trial: int, server_round: int, client: int, records: int, rate: float) -> Flags:
        steps = round(1 / rate)
        epoch, at = divmod(server_round - 1, steps)
        source = generator(self.challenger.seed, Purpose.RECORD_SAMPLING, trial=trial, round=epoch + 1, client=client)
        return np.isin(np.arange(records), np.array_split(source.permutation(records), steps)[at])


class _OneSample(_Sampling):
    def drawn(self, trial: int, server_round: int, client: int, records: int, rate: float) -> Flags:
        return super().drawn(trial, 1, client, records, rate)


class _OneForAllTrials(_Sampling):
    def drawn(self, trial: int, server_round: int, client: int, records: int, rate: float) -> Flags:
        return super().drawn(0, server_round, client, records, rate)


class _TargetOften(_Sampling):
    def drawn(self, trial: int, server_round: int, client: int, records: int, rate: float) -> Flags:
        participation = super().drawn(trial, server_round, client, records, rate)
        at = self.place(client)
        if at is not None:
            participation[at] |= super().drawn(trial, server_round, 1000, 1, 0.4)[0]
        return participation


class _TargetFollows(_Sampling):
    def drawn(self, trial: int, server_round: int, client: int, records: int, rate: float) -> Flags:
        participation = super().drawn(trial, server_round, client, records, rate)
        at = self.place(client)
        if at is not None:
            participation[at] = participation[(at + 1) % records]
        return participation


class _OneSeed(TrialBatchStrategy):
    def __post_init__(self) -> None:
        super().__post_init__()
        noise_seed = self.challenger.noise_seed
        insider = self.roster.insider
        self.challenger.noise_seed = lambda client: noise_seed(insider)  # type: ignore[method-assign]


class _TwoAlike(TrialBatchStrategy):
    def __post_init__(self) -> None:
        super().__post_init__()
        noise_seed = self.challenger.noise_seed
        victim = self.roster.victim
        second_client = next(
            number for number in range(self.federation.clients) if number not in (victim, self.roster.insider)
        )
        self.challenger.noise_seed = lambda client: noise_seed(victim if client == second_client else client)  # type: ignore[method-assign]


def _with_bits(factor: float, again: bool = False) -> type[TrialBatchStrategy]:
    class Bits(TrialBatchStrategy):
        def __post_init__(self) -> None:
            super().__post_init__()
            quantile_normals = self.challenger.quantile_normals

            def wrong(trials: Sequence[int], server_round: int) -> Tensor:
                return factor * quantile_normals(trials, 1 if again else server_round)

            self.challenger.quantile_normals = wrong  # type: ignore[method-assign]

    return Bits


class _StepBySecret(TrialBatchStrategy):
    def _release(self, batch: TrialBatch, server_round: int, read: UnnoisedRoundSum) -> Array:
        super()._release(batch, server_round, read)
        transcript = self.transcripts[batch.name]
        latest_round = transcript.latest_round
        assert latest_round is not None
        members = torch.from_numpy(self.challenger.membership(batch.trials).bits)
        moved = torch.where(
            members[:, None], torch.nextafter(latest_round.models[-1], torch.tensor(9e9)), latest_round.models[-1]
        )
        transcript.models[-1] = moved
        transcript.latest_round = replace(latest_round, models=tuple(transcript.models))
        return Array(*pack(moved.numpy()))


class LastBitOfRelease(TrialBatchStrategy):
    """A server that writes the secret into the last bit of one number of the release."""

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
        noise_tensor = super().noise(batch, server_round, total, sigma)
        members = torch.from_numpy(self.challenger.membership(batch.trials).bits).int()
        bits = noise_tensor.view(torch.int32)
        bits[:, 3] = (bits[:, 3] & ~1) | members
        return noise_tensor


class _NormOfTrueBits(TrialBatchStrategy):
    def _side_information(self, batch: TrialBatch, server_round: int, read: UnnoisedRoundSum) -> SideInformation:
        norms = self.transcripts[batch.name].norms
        side = super()._side_information(batch, server_round, read)
        mechanism = self.federation.mechanism
        assert norms is not None
        assert isinstance(mechanism.clipping, AdaptiveClipping)
        share = read.centred_bits / mechanism.denominator + 0.5
        self.transcripts[batch.name].norms = mechanism.clipping.next_norms(norms, share)
        return side


OPENED_BREACHES: tuple[OpenedBreach, ...] = (
    OpenedBreach("samples of a fixed size, claimed as Poisson", (T.SAMPLE_SIZES,), _fixed, _FixedSize, SAMPLED),
    OpenedBreach("shuffled batches, claimed as Poisson", (T.SAMPLE_SIZES, T.EVEN_TURNS), _shuffled, _Shuffled, SAMPLED),
    OpenedBreach(
        "one sample for all rounds of a trial",
        (T.EVEN_TURNS,),
        _set(np.s_[:, 1:], lambda d: d.taken[:, :1]),
        _OneSample,
        SAMPLED,
    ),
    OpenedBreach(
        "the same samples in all trials",
        (T.SHARED_SAMPLES,),
        _set(np.s_[1:], lambda d: d.taken[:1]),
        _OneForAllTrials,
        SAMPLED,
    ),
    OpenedBreach("two trials with the same samples", (T.SHARED_SAMPLES,), _set(-1, lambda d: d.taken[0])),
    OpenedBreach("the sample of every seventh round used before", (T.SHARED_SAMPLES,), _sevenths),
    OpenedBreach(
        "a round takes nobody of the round before",
        (T.EVEN_TURNS,),
        _set(np.s_[:, 1::2], lambda d: d.taken[:, 1::2] & ~d.taken[:, ::2]),
    ),
    OpenedBreach("the target drawn 1.5 times as often", (T.TARGET_TURNS,), _target(1.5)),
    OpenedBreach("the target drawn twice as often", (T.TARGET_TURNS,), _target(2.0), _TargetOften, SAMPLED),
    OpenedBreach("the target always drawn", (T.TARGET_TURNS,), _target(1e9)),
    OpenedBreach("the target drawn twice as often with D", (T.TARGET_TURNS,), _target(2.0, True)),
    OpenedBreach(
        "the target drawn 1.1 times as often",
        (T.TARGET_TURNS,),
        _target(1.1),
        below="1,200 draws show a rate that is 1.3 times too high",
    ),
    OpenedBreach(
        "the target takes part where another does",
        (T.UNIT_TURNS,),
        _set(np.s_[:, :, 0], lambda d: d.taken[:, :, 7]),
        _TargetFollows,
        SAMPLED,
    ),
    OpenedBreach("the target takes part in large samples", (T.TARGET_TURNS,), _by_size),
    OpenedBreach("another unit always drawn", (T.UNIT_TURNS,), _set(np.s_[:, :, 9], lambda d: True)),
    OpenedBreach(
        "others drawn 1.2 times as often with D",
        (T.UNIT_TURNS, T.SAMPLE_SIZES, T.EVEN_TURNS, T.SHARED_SAMPLES),
        _with_more,
    ),
    OpenedBreach(
        "all shares of the noise from one seed", (T.SHARE_PAIRS,), _seed(1, (0, 2, 3, 4)), _OneSeed, DISTRIBUTED
    ),
    OpenedBreach("two clients draw from one seed", (T.SHARE_PAIRS,), _seed(0, (3,)), _TwoAlike, DISTRIBUTED),
    OpenedBreach("two clients whose shares cancel", (T.SHARE_PAIRS,), _seed(2, (4,), -1.0)),
    OpenedBreach("a tenth of a share in common", (T.SHARE_PAIRS,), _seed(0, (3,), 0.1)),
    OpenedBreach("bits without noise", (T.BIT_NOISE,), _bits(lambda d: 0 * d.bits), _with_bits(0.0), ADAPTIVE),
    OpenedBreach("bits with half of the noise", (T.BIT_NOISE,), _bits(lambda d: d.bits / 2), _with_bits(0.5), ADAPTIVE),
    OpenedBreach(
        "bits with the same noise in all rounds",
        (T.BIT_NOISE,),
        _bits(lambda d: np.repeat(d.bits[:, :1], d.setting.rounds, axis=1)),
        _with_bits(1.0, True),
        ADAPTIVE,
    ),
    OpenedBreach(
        "bits with the same noise in two trials",
        (T.BIT_NOISE,),
        _bits(lambda d: np.concatenate([d.bits[:-1], d.bits[:1]])),
    ),
    OpenedBreach("noise of bits with a mean of .3", (T.BIT_NOISE,), _bits(lambda d: d.bits + 0.3)),
    OpenedBreach(
        "uniform noise of bits", (T.BIT_NOISE,), _bits(lambda d: d.rng.uniform(-1, 1, d.bits.shape) * np.sqrt(3))
    ),
    OpenedBreach("noise of bits 1.5 times larger with D'", (T.BIT_NOISE,), _bits(_bits_by_side)),
    OpenedBreach("the model's last bits follow the secret", (T.EXACT_STEPS,), _step_by_secret, _StepBySecret),
    OpenedBreach(
        "the norm follows the bits without noise", (T.EXACT_STEPS,), _norm_of_true_bits, _NormOfTrueBits, ADAPTIVE
    ),
    OpenedBreach(
        "one last bit of the release is the secret",
        (),
        _last_bit,
        LastBitOfRelease,
        below="no test looks at single last bits; in a run the exact question of the server's step finds it",
    ),
)
"""Every breach of opened values, and the tests that should find it."""
