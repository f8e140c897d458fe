"""Evidence for the checks: recorded trainings of an app's clients or of a training function, and their claim.

Where a training does without Opacus, the evidence has the measured noise of its steps and the effects of records.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from fl_audit.app_audits.local_training.composition import ComposedPrivacy, composed
from fl_audit.app_audits.local_training.leave_one_out_replay import NOISE_TOLERANCE, LeaveOneOutEffect
from fl_audit.app_audits.local_training.output_tracing import OutputTrace
from fl_audit.app_audits.local_training.training_facts import BatchSamplingKind, RecordedTraining, ReportedEpsilon
from fl_audit.array_types import Floats

_MOST_GROWTH = 10.0  # factor by which effects of records 100 times as large may differ where they are clipped
_LEAST_COUPLING = 1e-3  # part of its effect by which a record may act on the effect of another one by rounding
_MOST_OVER_NOISE = 10.0  # effect in units of the noise, above which growth without an end is a breach


@dataclass(frozen=True)
class MeasuredStep:
    """Noise and effect of a record in one step that follows the records."""

    number: int  # from 0, among all steps of the training
    multiplier: float  # noise over the effect of a record; 0 without noise
    largest_multiplier: float  # largest one that chance leaves possible
    effect: float  # length by which a record can move the gradient
    bare_tensors: tuple[int, ...]  # numbers, from 0, of the tensors that follow the records and have no noise
    shapes: tuple[tuple[int, ...], ...]  # shapes of the tensors
    samples: tuple[Floats, ...]  # independent samples of the noise, (parameters,), in units of its scale
    # Numbers, from 0, of the tensors whose noise is not independent at the coordinates: its size along the effect of a
    # record is not known.
    dependent_tensors: tuple[int, ...] = ()


@dataclass(frozen=True)
class RecordEffect:
    """Effect of the values of one record on the gradients of some steps, which have the same tensors."""

    index: int  # position of the record in the data set, from 0
    over_noise: tuple[float, ...]  # effect in each step in units of the noise: mu; infinite without noise
    least_over_noise: tuple[float, ...]  # least effect in each step that what was seen leaves possible
    length: float  # longest difference of two gradients that differ by having the record
    growth: float  # longest difference for values 1,000,000 times as large, over that for 10,000 times as large
    coupling: float | None  # part by which the record changes the effect of another one; None if not compared
    # Whether the record was compared with its absence, or with values of it that have no effect. If not, the radius of
    # the smallest ball that holds the gradients with all compared values is the least effect that one of them has.
    has_absence: bool
    noise_moved: float | None  # change of the noise, over its scale, where it is left out; None if it was not left out
    compared: int  # number of steps that were compared
    taking: int  # number of these that the record moved
    # Whether a step adds noise to what the record has an effect on. False where what is applied is a function of such a
    # sum, as a sign or a clipped noised sum is: then noise and effect cannot be measured apart.
    is_sum: bool = True
    is_later_noise_moved: bool = False  # whether the noise of steps after the record's first one follows the record
    undrawn: float = 0.0  # longest effect on a step for which the record was not drawn, over the longest effect

    @property
    def is_growing(self) -> bool:
        """Whether larger values of the record go on to have a larger effect, as they do without clipping."""
        return self.growth > _MOST_GROWTH

    @property
    def is_unbounded(self) -> bool:
        """Whether no clipping bounds the effect of the record to what the noise covers."""
        return self.is_growing and max(self.over_noise, default=0.0) > _MOST_OVER_NOISE

    @property
    def is_coupled(self) -> bool:
        """Whether the record changes the effect of another one, as it does where a batch is clipped as a whole."""
        # Where a step is divided by the size of its sample, leaving a record out changes all effects. A clipping norm
        # that follows a count in earlier steps does so too.
        follows_scale = self.is_noise_moved or self.is_later_noise_moved
        return self.coupling is not None and self.coupling > _LEAST_COUPLING and not follows_scale

    @property
    def is_noise_moved(self) -> bool:
        """Whether the noise changes where the record is left out."""
        return self.noise_moved is not None and self.noise_moved > NOISE_TOLERANCE


@dataclass(frozen=True)
class MeasuredSteps:
    """Measured steps of a training that follow the records, and the effects of records on them."""

    steps: Sequence[MeasuredStep] = ()
    effects: tuple[RecordEffect, ...] = field(default=())  # one for each set of tensors that steps have
    # Whether the noise of each step is normal, independent of that of other steps, and of a scale that no record moves.
    # If not, epsilon does not follow from the noise multipliers of the steps.
    is_composable: bool = True

    @property
    def bare(self) -> tuple[MeasuredStep, ...]:
        """Steps in which a tensor that follows the records has no noise."""
        return tuple(step for step in self.steps if step.bare_tensors)

    @property
    def has_dependent_noise(self) -> bool:
        """Whether epsilon does not follow from noise multipliers, since noise is no independent normal noise."""
        return not self.is_composable or any(step.dependent_tensors for step in self.steps)

    @property
    def has_bound(self) -> bool:
        """Whether the effect of a record is known: it is bounded, and was compared with the absence of the record."""
        return all(
            effect.has_absence and not (effect.is_growing or effect.is_coupled or effect.is_noise_moved)
            for effect in self.effects
        )


_CLOSE = 0.01  # by what share a claimed epsilon may lie under the composed one: accountants differ by that much


@dataclass(frozen=True)
class RecordedTrainings:
    """Recorded trainings, their repetitions and replays, and the claim about them."""

    trainings: tuple[RecordedTraining, ...]  # trainings of all clients and rounds that were run
    rounds: int  # number of rounds of the whole training
    repeated: tuple[RecordedTraining, ...] = ()  # repetitions of a round from the same start; empty if there are none
    replays: tuple[LeaveOneOutEffect, ...] = ()
    trace: OutputTrace | None = None  # what leaves the training, traced to its private steps; None if not traced
    measured: MeasuredSteps | None = None  # steps of a training without Opacus; None where Opacus takes the steps
    delta: float | None = None  # claimed delta; None to use the reported one
    epsilon: float | None = None  # epsilon claimed over all rounds; None to use the reported one
    records_per_user: int = 1

    @cached_property
    def by_client(self) -> Mapping[int, tuple[RecordedTraining, ...]]:
        """The trainings of each client with private steps, in the order of rounds, keyed by the client's number."""
        trainings: defaultdict[int, list[RecordedTraining]] = defaultdict(list)
        for training in sorted(self.trainings, key=lambda training: training.round):
            if training.noised or training.engines:
                trainings[training.client].append(training)
        return {client: tuple(trainings) for client, trainings in trainings.items()}

    @cached_property
    def private_trainings(self) -> tuple[RecordedTraining, ...]:
        """Trainings of all clients that took private steps, client by client, each in the order of rounds."""
        return tuple(training for trainings in self.by_client.values() for training in trainings)

    @property
    def is_private(self) -> bool:
        """Whether Opacus was used in any training, or steps without it are audited."""
        return bool(self.by_client) or self.measured is not None

    @cached_property
    def unseen_sampling(self) -> tuple[str, ...]:
        """Descriptions of noised steps whose sampling of records was not observed; () if there are none."""
        steps = [
            (step, training.batches_of(step))
            for training in self.private_trainings
            for step in training.whole_steps
            if step.is_noised
        ]
        unseen = []
        # Of a batch that was drawn before, code of the training may draw records by itself.
        hidden = sum(
            not fed or (not step.is_fresh and not step.has_gradient_of_each_record(fed)) for step, fed in steps
        )
        if hidden:
            unseen.append(f"how {hidden} of {len(steps)} steps drew their records: no DataLoader of torch gave them")
        drawn_and_clipped = [
            (records, step.rows)
            for step, fed in steps
            if step.is_fresh and step.rows is not None and (records := sum(len(batch.indices) for batch in fed))
        ]
        surplus = [(records, rows) for records, rows in drawn_and_clipped if rows > records]
        if surplus:
            records, rows = surplus[0]
            unseen.append(
                f"which records have several gradients in {len(surplus)} of {len(steps)} steps: a loader drew "
                f"{records} records, and {rows} gradients were clipped"
            )
        other_samplers = sorted(
            {batch.sampler for _, fed in steps for batch in fed if batch.sampling is BatchSamplingKind.OTHER}
        )
        if other_samplers:
            unseen.append(f"whether {' and '.join(other_samplers)} draws every record by itself, as accounted")
        return tuple(unseen)

    @cached_property
    def unseen(self) -> tuple[str, ...]:
        """Descriptions of facts, such as the sampling, that determine privacy and were not observed; () if none."""
        is_counted = self.epsilon is not None and self.measured is not None  # by the user, who names epsilon
        uncounted = (
            any(training.noised and not training.is_accountant_seen for training in self.private_trainings)
            and not is_counted
        )
        looks = 0 if self.trace else max((len(training.measures) for training in self.private_trainings), default=0)
        unseen = [
            *self.unseen_sampling,
            *(["what counts the steps: no accountant of Opacus does"] if uncounted else ()),
        ]
        if looks:
            text = f"{looks} times, and with it the learning rate"
            unseen.append(f"whether the measure that ReduceLROnPlateau was given {text}, follows private records")
        if self.trace and self.trace.unstable:
            names = ", ".join(self.trace.unstable[:3])
            unseen.append(f"whether {names} follow the records: they differ when the training is repeated unchanged")
        return tuple(unseen)

    @cached_property
    def largest_reported_epsilon(self) -> ReportedEpsilon | None:
        """The largest epsilon, with its delta, among the values that the clients' accountants reported last.

        None if no epsilon was reported.
        """
        last = [trainings[-1].answers[-1] for trainings in self.by_client.values() if trainings[-1].answers]
        return max(last, key=lambda epsilon: epsilon.epsilon, default=None)

    @cached_property
    def used_delta(self) -> float:
        """Delta at which epsilon is computed, from the first of three sources that states one; 1e-5 if none does.

        The sources are the user, the last report of an accountant, and the target delta that Opacus's `PrivacyEngine`
        was given.
        """
        target = next(
            (engine.target for training in self.trainings for engine in training.engines if engine.target), None
        )
        if self.delta is not None:
            return self.delta
        if self.largest_reported_epsilon is not None:
            return self.largest_reported_epsilon.delta
        return target[1] if target is not None else 1e-5

    @cached_property
    def claimed(self) -> float | None:
        """Claimed epsilon, from the first of three sources that states an epsilon; None if no source does.

        The sources are the user, the last report of an accountant, and the target epsilon that Opacus's `PrivacyEngine`
        was given.
        """
        targets = [engine.target[0] for training in self.trainings for engine in training.engines if engine.target]
        if self.epsilon is not None:
            return self.epsilon
        if self.largest_reported_epsilon is not None:
            return self.largest_reported_epsilon.epsilon
        return max(targets, default=None)

    @cached_property
    def fresh_accountant(self) -> str:
        """Sentence on steps that were taken before an accountant began and that it forgot; "" if there are none."""
        for trainings in self.by_client.values():
            applied = 0
            for number, training in enumerate(trainings):
                applied += len(training.noised)
                answered = (answer.steps for answer in training.answers)
                steps_counted = max(answered, default=sum(count for _, _, count in training.history))
                steps_of_training = training.counted
                if (
                    (number or len(training.engines) > 1)
                    and steps_of_training
                    and steps_counted < applied
                    and steps_counted <= steps_of_training
                ):
                    where = f"round {training.round}" if number else "an engine that was made anew"
                    return f"after {applied} steps the accountant of {where} knows of {steps_counted}"
        return ""

    @cached_property
    def claimed_rounds(self) -> int:
        """Number of rounds that the claimed epsilon covers.

        The user's epsilon covers all rounds. An accountant's covers the rounds that were run, or as many as it counted
        the steps of; one that begins anew in each round is taken to claim that its epsilon is that of all rounds.
        """
        if self.epsilon is not None or self.fresh_accountant:
            return self.rounds
        ran = max((len(trainings) for trainings in self.by_client.values()), default=1)
        steps = max((len(training.noised) for training in self.private_trainings), default=0)
        steps_counted = self.largest_reported_epsilon.steps if self.largest_reported_epsilon else 0
        return min(max(ran, steps_counted // steps if steps else 0), max(self.rounds, ran))

    @cached_property
    def excess(self) -> ComposedPrivacy | None:
        """Privacy loss of the rounds that the claim covers, if it exceeds the claimed epsilon; None otherwise."""
        privacy = self.composed_of(self.claimed_rounds, is_least=True)
        if privacy is None or self.claimed is None or privacy.epsilon <= self.claimed * (1 + _CLOSE) + 1e-3:
            return None
        return privacy

    @cached_property
    def factor(self) -> float:
        """Largest ratio, at least 1, of the observed to the claimed effect of one record on a sum of clipped gradients.

        An effect that is smaller than the claimed one says nothing of other records, which may have all of it.
        """
        return max([1.0, *(replay.moved / replay.claimed for replay in self.replays if not replay.is_kept)])

    @cached_property
    def has_bound(self) -> bool:
        """Whether the effect of a record on the sums of clipped gradients has a known bound."""
        is_coupled = any(replay.is_coupled for replay in self.replays) or any(
            training.coupled for training in self.private_trainings
        )
        is_measured = self.measured is None or self.measured.has_bound
        return is_measured and not is_coupled and all(replay.is_kept for replay in self.replays)

    @property
    def has_dependent_noise(self) -> bool:
        """Whether noise was measured that is no independent normal noise, so that epsilon is not known."""
        return self.measured is not None and self.measured.has_dependent_noise

    @cached_property
    def has_bare_output(self) -> bool:
        """Whether arrays leave that follow the records without any noise.

        A choice among the weights of several steps is not meant.
        """
        is_choice = any(training.left.earlier for training in self.private_trainings)
        return self.trace is not None and bool(self.trace.arrays) and not is_choice

    def composed_of(
        self, rounds: int | None = None, of_user: bool = False, is_least: bool = False, factor: float = 1.0
    ) -> ComposedPrivacy | None:
        """Return the privacy loss of the client with the largest composed epsilon.

        None if no client took noised steps, or if the size of the noise is not known.

        `is_least`: True for the least loss that chance leaves possible where noise was measured.

        `factor`: A record is taken to have `factor` times the effect that it has.
        """
        if self.has_dependent_noise and self.measured is not None and not self.measured.bare:
            return None
        unit = self.records_per_user if of_user else 1
        is_amplified = not any(replay.acts_undrawn for replay in self.replays)
        epsilons = []
        for trainings in self.by_client.values():
            if not any(training.noised for training in trainings):
                continue
            trainings_counted = [_with_largest_noise(training) for training in trainings] if is_least else trainings
            effect = factor * self.factor
            epsilons.append(
                composed(trainings_counted, self.used_delta, rounds or self.rounds, effect, unit, is_amplified)
            )
        largest = max(epsilons, key=lambda composed: composed.epsilon, default=None)
        if largest is None:
            return None
        epsilon = math.inf if self.has_bare_output else largest.epsilon
        return replace(largest, epsilon=epsilon, is_least=not self.has_bound)


def _with_largest_noise(training: RecordedTraining) -> RecordedTraining:
    """Return a training whose measured steps have the largest noise multiplier that chance leaves possible."""
    steps = (
        step if step.largest_multiplier is None else replace(step, noise_multiplier=step.largest_multiplier)
        for step in training.steps
    )
    return replace(training, steps=tuple(steps))
