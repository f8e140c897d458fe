"""Compute the epsilon of a client's recorded DP-SGD steps together, independently of what its accountant reported."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.local_training.training_facts import BatchSamplingKind, PrivateStep, RecordedTraining
from fl_audit.errors import InputError
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.gaussian import combined_multiplier
from fl_audit.value_checks import require_number


@dataclass(frozen=True)
class ComposedPrivacy:
    """Privacy loss of one client's DP-SGD steps together, over a number of rounds.

    Raises
    ------
    InputError
        If `claim` is read and a number is out of range.
    """

    epsilon: float  # composed epsilon; infinite if steps had no noise
    delta: float
    rounds: int  # number of rounds that epsilon covers
    # Noise multiplier over the clipping norm, sampling rate (1 for none) and number of steps of all rounds.
    steps: tuple[tuple[float, float, int], ...]
    records_per_user: int = 1  # number of records of one person that epsilon protects
    is_least: bool = False  # True if epsilon is at least this: the effect of a record was measured, and has no bound

    @property
    def claim(self) -> Claim | None:
        """Claim of the steps' releases, with the exact accountant; None without steps, or if epsilon is infinite."""
        is_bounded = bool(self.steps) and math.isfinite(self.epsilon)
        return _claim(self.steps, self.delta, self.records_per_user) if is_bounded else None


def composed(
    trainings: Sequence[RecordedTraining],
    delta: float,
    rounds: int | None = None,
    factor: float = 1.0,
    records_per_user: int = 1,
    is_amplified: bool = True,
) -> ComposedPrivacy:
    """Compose the recorded DP-SGD steps of one client and return their privacy loss at delta, by the exact accountant.

    Only Poisson sampling amplifies privacy. Under any other sampling, the record that was used most often determines
    the number of steps. Several steps on one mini-batch count as a single release of its sample with less noise. The
    adjacency is add-remove-record, or add-remove-user if a user has several records.

    `rounds`: None to count only recorded rounds.

    `factor`: The noise is divided by this factor.

    `is_amplified`: False if a record acts on steps for which it was not drawn.
    """
    require_number("delta is", delta, "numbers above 0 and below 1")
    require_number("effect of a record is", factor, "numbers from 1")
    require_number("records of a user are", records_per_user, "whole numbers from 1")
    total, share = rounds or len(trainings), (rounds or len(trainings)) / max(len(trainings), 1)
    counts: Counter[tuple[float, float]] = Counter()
    for training in trainings:
        counts.update(dict(_events(training, factor, records_per_user, is_amplified)))
    steps = tuple((noise, rate, math.ceil(count * share)) for (noise, rate), count in sorted(counts.items()))
    bare = any(not step.noise_multiplier or step.noise is None for training in trainings for step in training.noised)
    bare = bare or any(_has_unnoised_step(training) for training in trainings)
    epsilon = math.inf if bare else _epsilon(steps, delta, records_per_user)
    return ComposedPrivacy(epsilon, delta, total, steps, records_per_user)


def _has_unnoised_step(training: RecordedTraining) -> bool:
    """Return True if weights of a model that Opacus makes private were also changed by a step without noise."""
    return any(step.tensors and (step.is_wrapped or not step.is_before) for step in training.outside)


def _claim(steps: Sequence[tuple[float, float, int]], delta: float, records_per_user: int) -> Claim:
    """Return the claim that a client's DP-SGD steps imply, with exact accounting.

    A step is (noise multiplier, sampling rate, number of such steps). The claim protects a record, or a user if a user
    has several records.
    """
    events = [event for noise, rate, count in steps for event in gaussian_rounds(noise, count, rate)]
    unit = Adjacency.ADD_REMOVE_RECORD if records_per_user == 1 else Adjacency.ADD_REMOVE_USER
    return Claim(unit, events, delta)


def _epsilon(steps: Sequence[tuple[float, float, int]], delta: float, records_per_user: int) -> float:
    """Return epsilon at delta of all steps; 0 without steps, infinite if their noise is too small.

    A step is (noise multiplier, sampling rate, number of such steps).
    """
    try:
        return _claim(steps, delta, records_per_user).profile.epsilon(delta) if steps else 0.0
    except InputError:  # noise so small that no distribution of it can be computed
        return math.inf


def _events(
    training: RecordedTraining, factor: float, of_user: int, is_amplified: bool
) -> Iterator[tuple[tuple[float, float], int]]:
    """Yield each kind of step of a training as ((noise multiplier, sampling rate), number of steps).

    The multiplier is relative to the effect of a user with `of_user` records. Each record is taken to have `factor`
    times its claimed effect. Of steps without amplification, those of the record on which they spend most are yielded.
    """
    sampled: Counter[tuple[float, float]] = Counter()
    steps_of_record: defaultdict[int, Counter[float]] = defaultdict(Counter)
    unseen: Counter[float] = Counter()  # steps that any record may be in
    for group in _by_batches(training):
        batches = training.batches_of(group[0])
        noise = real_noise(group[0]) / factor / math.sqrt(len(group)) / max(of_user, 1)
        logical = sum(batch.is_whole and bool(batch.indices) for batch in batches) or 1
        rates = [batch.rate for batch in batches if batch.sampling is BatchSamplingKind.POISSON]
        is_poisson = bool(batches) and len(rates) == len(batches) and rates[0] is not None
        if is_poisson and is_amplified and rates[0] is not None:
            most_draws = logical * of_user
            rate = -math.expm1(most_draws * math.log1p(-min(rates[0], 1 - 1e-15)))
            sampled[noise / logical, rate] += 1
        elif is_poisson or not batches:
            unseen[noise / logical] += 1
        else:
            for index, times in Counter(index for batch in batches for index in batch.indices).items():
                steps_of_record[index][noise / times] += 1
    fixed = unseen + max(steps_of_record.values(), key=_spent, default=Counter())
    yield from sampled.items()
    yield from (((noise, 1.0), count) for noise, count in fixed.items())


def _spent(steps: Mapping[float, int]) -> float:
    """Return what Gaussian steps spend together, the square of their mu; infinite if one has no noise."""
    return sum(count / noise**2 if noise > 0 else math.inf for noise, count in steps.items())


def real_noise(step: PrivateStep) -> float:
    """Return the noise multiplier of a step: the claimed one, or the observed one if it is significantly smaller."""
    if step.largest_multiplier is not None:
        return step.noise_multiplier
    if step.noise is None or step.norm <= 0:
        return 0.0
    measured_multiplier = step.noise.scale / step.norm
    # The scale that is seen varies by chance; three parts in root of the coordinates are no difference.
    if measured_multiplier > step.gradient_multiplier * _lowest(step.noise.count):
        return step.noise_multiplier
    return (
        measured_multiplier
        if step.count_multiplier is None or measured_multiplier <= 0
        else combined_multiplier(measured_multiplier, step.count_multiplier)
    )


def _lowest(count: int) -> float:
    """Return a lower limit for the ratio of measured to claimed noise scale, measured at `count` coordinates.

    Correct noise hardly ever has a smaller ratio.
    """
    return max(0.0, 1 - 6 / math.sqrt(2 * count))


def _by_batches(training: RecordedTraining) -> list[list[PrivateStep]]:
    """Return the noised steps of a training, grouped by the mini-batches on which they were taken."""
    groups: list[list[PrivateStep]] = []
    batches: list[int] = []
    for step in training.steps:
        if step.is_fresh:
            batches += step.batches
        if not step.is_noised:
            continue
        if batches or not groups or not step.batches:
            groups.append([replace(step, batches=tuple(batches))])
        else:
            groups[-1].append(step)
        batches = []
    return groups
