"""Tell noised sums from what a server makes of them: whether its release follows from the sum and the claimed noise.

A strategy of somebody else may round, clamp or project the noised sums. No guarantee is weakened by that, as long as
what is done follows from the noised sum alone. This is asked by replay, to the last bit: a copy of the server takes the
same step with the noised sums in place of the sums, and without noise. If the release follows from the noised sum
alone, it comes out again; with less noise, or with a change of the sum before the noise, it does not. In a second copy
the trials change places, so that noised sums of D stand where those of D' stood. If what is done afterwards depends on
the secret, or on anything else of a trial, other releases come out.

A release that does not follow from the noised sums may have noise that the server draws elsewhere. Then copies take the
step with sums that are moved by known amounts. If the release moves by the same amounts and its values lie on no grid,
it is a sum with noise, which can be tested as it is; otherwise its noise is not known. The noise need not be the same
in every step, so a server may draw it from a source that nobody else can repeat.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fl_audit.array_types import Floats, Integers
from fl_audit.mechanisms.noise_draws import add_noise
from fl_audit.mechanisms.noises.mechanism_noise import Normals, ServerNoiseDraws
from fl_audit.randomness import Purpose, generator
from fl_audit.trial_batches import TrialBatch

_FEWEST_OF_A_SIDE = 16  # trials with D, and with D', from which a rule that follows the secret is told from others
_FAR = 1000.0  # standard deviations of the noise by which sums are moved at least, at random in either direction
_NOISE = 30.0  # standard deviations of the claimed noise that the noise of one value never exceeds
_VALUES, _MOST_STEPS = 1024, 32  # values of a trial that are searched for equal ones, and steps that are made for them
_EQUAL = 0.02  # largest share of values that may be equal to another one; of 32-bit numbers about one in 10,000 is
_FEW_DIGITS = 0.5  # largest share of values that may have zeros at the end; of random numbers 1 in 256 has


class NoisingServer(Protocol):
    """Protocol of a server that adds the noise to sums, as `TrialBatchStrategy` does."""

    parameters: int  # number of parameters of a model
    noise_draws: dict[str, ServerNoiseDraws]  # draws of the noise, by name of a batch

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
        """Return the release of a round, float32 (trials, parameters)."""

    def post_process_sums(self, batch: TrialBatch, server_round: int, noised: Tensor) -> Tensor:
        """Return what is released of noised sums, float32 (trials, parameters)."""

    def post_process_models(self, batch: TrialBatch, server_round: int, models: Tensor) -> Tensor:
        """Return what is released of models, float32 (trials, parameters)."""


Change = Callable[[NoisingServer, Tensor], Tensor]
"""Function from a server and an order of the trials to what the server makes of their values in this order."""
ReorderedCopy = tuple[NoisingServer, Tensor]
"""A copy of a server, and the trial that stands in each of its places, (trials,)."""


class ReleaseOrigin(StrEnum):
    """Origin of a server's release: the values that it follows from.

    NOISED_SUM: it is the sum with the claimed noise. POST_PROCESSED: it follows from the noised sum alone, by a
    rule that is the same for trials with other secrets. ONE_SECRET: the same, but all trials of the batch have one
    secret, so that the rule may depend on it. FOLLOWS_SECRET: it follows from the noised sum by a rule that is the
    same for all trials with D, the same for all with D', and another for one than for the other. OWN_RULE: it follows
    from the noised sum by a rule that differs from trial to trial or draws random numbers, so that the rule may depend
    on the secret. UNKNOWN: it does not follow from the noised sum, but it is a sum with noise. NOT_A_SUM: neither.
    """

    NOISED_SUM = "noised-sum"
    POST_PROCESSED = "post-processed"
    ONE_SECRET = "one-secret"
    FOLLOWS_SECRET = "follows-secret"
    OWN_RULE = "own-rule"
    UNKNOWN = "unknown"
    NOT_A_SUM = "not-a-sum"


_OF_NOISED_SUMS = (ReleaseOrigin.POST_PROCESSED, ReleaseOrigin.ONE_SECRET, ReleaseOrigin.OWN_RULE)
"""Origins of releases that follow from noised sums which the tests may look at."""


@dataclass(frozen=True)
class NoisedSums:
    """The release of a round, and the noised sums that it follows from; both float32 (trials, parameters)."""

    release: Tensor
    noised: Tensor | None  # None if the release does not follow from the noised sums
    origin: ReleaseOrigin
    changed: int = 0  # number of trials whose release is not the noised sum

    @property
    def before_changes(self) -> Tensor:
        """The noised sums, or the release if it does not follow from them."""
        return self.release if self.noised is None else self.noised


@dataclass
class RecordedDraws:
    """Draws of the server's noise, which are remembered."""

    draws: ServerNoiseDraws
    drawn: list[Tensor] = field(default_factory=list)
    deviations: list[Floats] = field(default_factory=list)  # standard deviations of the noise made of the draws

    def __call__(self, normals: Normals, server_round: int) -> Tensor:
        """Return the next draws, and remember them."""
        self.drawn.append(self.draws(normals, server_round))
        return self.drawn[-1]


@dataclass(frozen=True)
class StepReplay:
    """Copies of a server that repeat its steps for a batch of trials with noised sums in place of sums, without noise.

    They begin in the state of the server, and go on by their own steps. So what a server keeps between rounds of the
    noised sums, such as what rounding left over, is there too.
    """

    plain: NoisingServer  # copy whose trials are those of the server
    exchanged: ReorderedCopy | None = None  # its trials stand in places of other secrets; None for no such copy
    within: ReorderedCopy | None = None  # its trials stand in places of the same secret; None for no such copy
    has_secrets: bool = False  # whether a trial stands in the place of one with another secret

    @staticmethod
    def of(server: NoisingServer, batch: TrialBatch, secrets: Integers | None) -> "StepReplay":
        """Return copies of a strategy in its present state.

        Parameters
        ----------
        server
            The strategy.
        batch
            Batch of trials.
        secrets
            Secrets of the trials, int (trials, secrets); None for no replay with exchanged trials.
        """

        def silent(normals: Normals, server_round: int) -> Tensor:
            return torch.zeros((batch.count, server.parameters))

        if secrets is None:
            return StepReplay(copy_of(server, batch, silent))
        plain, exchanged, within = (copy_of(server, batch, silent) for _ in range(3))
        order, has_secrets = _exchanged(secrets)
        order_within = _moved_within(secrets)
        copy_within = None if order_within is None else (within, order_within)
        return StepReplay(plain, (exchanged, order), copy_within, has_secrets)

    def origin(self, change: Change, release: Tensor) -> ReleaseOrigin:
        """Return what a release follows from, to the last bit; every copy takes the step `change`.

        UNKNOWN means that the copy whose trials are those of the server makes another release.
        """

        def comes_out(reordered: ReorderedCopy) -> bool:
            server, order = reordered
            return torch.equal(change(server, order), release[order])

        as_it_is = comes_out((self.plain, torch.arange(len(release))))
        in_other_places = self.exchanged is None or comes_out(self.exchanged)
        in_own_places = self.within is not None and comes_out(self.within)
        if not as_it_is:
            return ReleaseOrigin.UNKNOWN
        if in_other_places:
            return ReleaseOrigin.POST_PROCESSED if self.has_secrets else ReleaseOrigin.ONE_SECRET
        return ReleaseOrigin.FOLLOWS_SECRET if in_own_places else ReleaseOrigin.OWN_RULE

    def origin_of_change(self, change: Change, release: Tensor) -> ReleaseOrigin:
        """Return what a change follows from that sees nothing but noised values: it is OWN_RULE if nobody can tell."""
        try:
            origin = self.origin(change, release)
        except Exception:  # a change of somebody else may need anything that a replay lacks
            origin = ReleaseOrigin.UNKNOWN
        return ReleaseOrigin.OWN_RULE if origin is ReleaseOrigin.UNKNOWN else origin


def copy_of(server: NoisingServer, batch: TrialBatch, draws: ServerNoiseDraws) -> NoisingServer:
    """Return a copy of a strategy with other draws of noise; what its class adds to ours is copied deeply."""
    twin = copy.copy(server)
    copy_of_server: Any = server
    ours = {field.name for field in fields(copy_of_server)}
    for name, value in vars(server).items():
        if name not in ours:
            setattr(twin, name, _copied(value))
    twin.noise_draws = {**server.noise_draws, batch.name: draws}
    return twin


def _copied(value: Any) -> Any:
    """Return a deep copy of a value, or the value itself if it cannot be copied, such as a lock."""
    try:
        return copy.deepcopy(value)
    except Exception:  # a class of somebody else may refuse in any way
        return value


def noised_sums(
    server: NoisingServer, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats, replay: StepReplay
) -> NoisedSums:
    """Make the release of a round by a strategy's own step `noise`, and tell what it follows from.

    Parameters
    ----------
    server
        The strategy, whose method `noise` is not that of `TrialBatchStrategy`.
    batch
        Batch of trials.
    server_round
        Number of the round, from 1.
    total
        Sums before noise, float32 (trials, parameters).
    sigma
        Claimed standard deviation of the noise, (trials,).
    replay
        Copies of the strategy in the state that it was in before the round.
    """
    before = copy.deepcopy(server.noise_draws[batch.name])
    recorded = RecordedDraws(server.noise_draws[batch.name])
    server.noise_draws[batch.name] = recorded
    try:
        release = server.noise(batch, server_round, total.clone(), sigma)
    finally:
        server.noise_draws[batch.name] = recorded.draws
    noised, origin = None, ReleaseOrigin.UNKNOWN
    if len(recorded.drawn) == 1:
        noised = add_noise(total.clone(), recorded.drawn[0], sigma)
        changed = int((release != noised).any(dim=1).sum())
        origin = _origin(replay, batch, server_round, noised, sigma, release)
        if changed == 0:
            return NoisedSums(release, noised, ReleaseOrigin.NOISED_SUM)
        if origin in _OF_NOISED_SUMS:
            return NoisedSums(release, noised, origin, changed)
        if origin is ReleaseOrigin.FOLLOWS_SECRET:
            return NoisedSums(release, None, origin, changed)
    has_less_noise = any(bool((deviation < sigma).any()) for deviation in recorded.deviations)

    def step(moved: Tensor) -> Tensor:
        return copy_of(server, batch, copy.deepcopy(before)).noise(batch, server_round, moved, sigma)

    if not has_less_noise and not is_sum_with_noise(step, batch, server_round, total, sigma):
        origin = ReleaseOrigin.NOT_A_SUM
    return NoisedSums(release, None, origin, batch.count)


def _origin(
    replay: StepReplay, batch: TrialBatch, server_round: int, noised: Tensor, sigma: Floats, release: Tensor
) -> ReleaseOrigin:
    """Return what a release follows from whose noised sum is known; UNKNOWN if a copy cannot repeat the step."""

    def change(server: NoisingServer, order: Tensor) -> Tensor:
        return server.noise(batch, server_round, noised[order].clone(), sigma[order.numpy()])

    try:
        return replay.origin(change, release)
    except Exception:  # a step of somebody else may need anything that a replay lacks
        return ReleaseOrigin.UNKNOWN


def _exchanged(secrets: Integers) -> tuple[Tensor, bool]:
    """Return an order of the trials that gives them places of trials with other secrets, and whether it gives any.

    Trials are sorted by their secrets and moved by half of their number, so that as many as possible change.
    """
    ranked = np.lexsort(secrets.T[::-1])
    order = np.empty(len(ranked), dtype=np.int64)
    order[ranked] = np.roll(ranked, len(ranked) // 2)
    return torch.from_numpy(order), bool((secrets[order] != secrets).any())


def _moved_within(secrets: Integers) -> Tensor | None:
    """Return an order of the trials that gives each the place of another one with the same secret.

    None if the secret is not one bit, or if a rule that anybody may know could agree with it by chance: with 16 trials
    of either side the probability is 1 in 600 million at most.
    """
    sides = [np.flatnonzero(secrets[:, 0] == side) for side in (0, 1)]
    if secrets.shape[1] != 1 or min(map(len, sides)) < _FEWEST_OF_A_SIDE:
        return None
    order = np.empty(len(secrets), dtype=np.int64)
    for rows in sides:
        order[rows] = np.roll(rows, 1)
    return torch.from_numpy(order)


def is_sum_with_noise(
    step: Callable[[Tensor], Tensor], batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats
) -> bool:
    """Return whether a step adds noise to sums, and does nothing else to them that can be seen.

    Parameters
    ----------
    step
        The server's step from sums to releases, both float32 (trials, parameters). It is called several times.
    batch
        Batch of trials.
    server_round
        Number of the round, from 1.
    total
        Sums before noise, float32 (trials, parameters).
    sigma
        Claimed standard deviation of the noise, (trials,).
    """
    draw = generator(0, Purpose.EXACT_CHECKS, trial=batch.first, round=server_round)
    scale = torch.from_numpy(sigma).double().unsqueeze(1)

    def uniform() -> Tensor:
        return torch.from_numpy(draw.uniform(0.0, 1.0, tuple(total.shape)))

    signs = torch.where(uniform() < 0.5, -1.0, 1.0)
    far = signs * (1 + uniform()) * _FAR * scale
    steps = max(1, min(_MOST_STEPS, math.ceil(_VALUES / total.shape[1])))
    try:
        moved = step((total + far).float()).double() - total
        near = torch.cat([step(((2 * uniform() - 1) * scale).float()) for _ in range(steps)], dim=1)
    except Exception:  # a step of somebody else may refuse sums that were not sent
        return False
    factor = float((moved * far).sum() / far.square().sum())
    allowed = _NOISE / (_FAR * math.sqrt(far.numel())) + 1e-5
    is_moved = abs(factor - 1) <= allowed and bool(((moved - far).abs() <= _NOISE * scale).all())
    # Steps with the same noise give equal values in one place if the sums themselves are rounded before the noise.
    tensor = torch.arange(total.numel()).reshape(total.shape).repeat(1, steps)
    in_trials = _share_of_equal(near[:, :_VALUES], tensor[:, :_VALUES])
    is_fine = max(in_trials, _share_of_equal(near.reshape(1, -1), tensor.reshape(1, -1))) <= _EQUAL
    return is_moved and is_fine and not _has_few_digits(near)


def _share_of_equal(values: Tensor, tensor: Tensor) -> float:
    """Return the share of values that are equal to the next larger one of their row, in another place.

    Shapes: `values` and `tensor` (rows, values).
    """
    if values.shape[1] > 8 * _VALUES:
        columns_tried = slice(None, None, -(-values.shape[1] // (8 * _VALUES)))
        values, tensor = values[:, columns_tried], tensor[:, columns_tried]
    if values.shape[1] < 2:
        return 0.0
    ordered = values.sort(dim=1)
    at = tensor.gather(1, ordered.indices)
    is_equal = (ordered.values[:, 1:] == ordered.values[:, :-1]) & (at[:, 1:] != at[:, :-1])
    return float(is_equal.double().mean())


def _has_few_digits(values: Tensor) -> bool:
    """Return whether most values have zeros in the last 8 of the 23 bits of their mantissa, as 16-bit numbers have."""
    return float(((values.float().view(torch.int32) & 0xFF) == 0).double().mean()) > _FEW_DIGITS
