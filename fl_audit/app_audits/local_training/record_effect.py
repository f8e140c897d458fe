"""Effect of a record on the gradients of a training: how far its values can move them, and whether others matter."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fl_audit.app_audits.local_training.edited_datasets import (
    crafted_record,
    label_of,
    length_of,
    record_at,
    with_label,
)
from fl_audit.app_audits.local_training.gradient_statistics import ROUNDING, is_moved, smallest_ball_radius
from fl_audit.app_audits.local_training.leave_one_out_replay import KEPT_STEPS, NOISE_TOLERANCE
from fl_audit.app_audits.local_training.record_versions import (
    ABSENT,
    FACTORS,
    RecordVersion,
    located,
    record_versions,
    version_without_effect,
)
from fl_audit.app_audits.local_training.recorded_trainings import RecordEffect
from fl_audit.array_types import Floats, Floats32

Points = dict[RecordVersion, Floats32]
"""Gradients of one step, (parameters,), by the version of a record."""
GradientsOfSteps = Callable[[Sequence[int], Mapping[int, Any], int | None, int | None], dict[int, Floats32]]
"""A function that trains on a data set with other records, and returns the gradients of steps, (parameters,).

It takes the numbers of the steps, the other records by their positions, the position of a record that is left out of
every mini-batch or None, and the number of a redraw of the noise or None for the noise of the first training. Gradients
are keyed by the number of the step; those that are not finite are left out.
"""


_MOST_RECORDS = 3  # records that are tried for values without an effect
_MOST_BETWEEN = 3  # records of a mini-batch that are compared beside its first and last one
_MOST_VERSIONS = 3  # versions of each of these
_REDRAWS = 12  # redraws of the noise with and without a record: so many that signs do not differ by a factor by chance


@dataclass(frozen=True)
class _StepEffect:
    """Effect of a record on one step."""

    step: int
    over_noise: float  # in units of the noise: mu; infinite without noise
    length: float
    has_absence: bool  # whether it was compared with a version that has no effect
    version: RecordVersion
    reference: RecordVersion
    difference: Floats  # a difference of gradients that has this effect, (parameters,)

    @property
    def order(self) -> tuple[float, float]:
        return self.over_noise, self.length


@dataclass(frozen=True)
class RecordEffectSearch:
    """Search for the largest effect of a record on the steps of a training that have the same tensors."""

    gradients_of: GradientsOfSteps
    dataset: Any
    unchanged: Mapping[int, Floats32]  # gradients with the data set as it is, (parameters,), by the number of the step
    scales: Mapping[int, Floats]  # noise scale of each coordinate, (parameters,), by the number of the step
    positions: Mapping[int, Sequence[int]]  # positions of the records of each step; () where they are not known
    can_leave_out: bool  # whether a record can be left out of mini-batches without a change beside

    @cached_property
    def steps(self) -> list[int]:
        """Numbers of the steps, in order."""
        return sorted(self.unchanged)

    def effect(self) -> RecordEffect | None:
        """Return the effect of a record; None if no record is found whose values move a step.

        It is that of the first record with values that have no effect, or of the one with the largest effect.
        """
        effects = list[RecordEffect]()
        for index, step in enumerate(self.steps[:KEPT_STEPS]):
            indices = self._by_effect(step)
            effect = self._effect_of(indices, self.steps[index : index + KEPT_STEPS]) if indices else None
            effects += [] if effect is None else [effect]
            if len(effects) == _MOST_RECORDS or any(effect.has_absence for effect in effects):
                break
        return max(effects, key=lambda effect: (effect.has_absence, max(effect.over_noise)), default=None)

    def _gradients(
        self, steps: Sequence[int], items: Mapping[int, Any], without: int | None = None, redraw: int | None = None
    ) -> dict[int, Floats32]:
        gradients = self.gradients_of(steps, items, without, redraw)
        return {step: values for step, values in gradients.items() if values.shape == self.unchanged[step].shape}

    def _by_effect(self, step: int) -> list[int]:
        """Return positions of some records of a step, those with the largest effect first.

        The first and the last record of the mini-batch are among them: a loop over records may leave the last gradient.
        """
        positions = [index for index in self.positions.get(step, ()) if index < length_of(self.dataset)]
        between = np.random.default_rng().permutation(positions[1:-1])[:_MOST_BETWEEN].tolist()
        effects = self._effects_of_records(step, dict.fromkeys([*positions[:1], *positions[-1:], *between]))
        if not effects:  # positions of the loader are not those of the data set, or no loader drew
            everything = range(length_of(self.dataset))
            ends = (self._located(step, everything), self._located(step, everything[::-1]))
            effects = self._effects_of_records(step, dict.fromkeys(index for index in ends if index is not None))
        return sorted(effects, key=lambda index: effects[index].order, reverse=True)

    def _effects_of_records(self, step: int, indices: Iterable[int]) -> dict[int, _StepEffect]:
        """Return the effects of records on a step, by their positions, with some of their versions."""
        effects = dict[int, _StepEffect]()
        for index in indices:
            versions = [version for version in record_versions(self.dataset, index) if version.factor == FACTORS[1]]
            chosen = [version for version in versions if not version.is_jittered][:_MOST_VERSIONS]
            points = self._points(index, [step], [*chosen, *([ABSENT] if self.can_leave_out else [])])
            effect = self._step_effect(step, points[step])
            if effect is not None:
                effects[index] = effect
        return effects

    def _located(self, step: int, positions: Sequence[int]) -> int | None:
        """Return a position, one of the first, whose record's values move a step; None if there is none."""
        count = length_of(self.dataset)

        def has_effect(chosen: Sequence[int]) -> bool:
            items = {}
            for index in chosen:
                next_label = label_of(record_at(self.dataset, (index + 1) % count))
                items[index] = with_label(crafted_record(record_at(self.dataset, index)), next_label)
            changed = self._gradients([step], items)
            return step in changed and is_moved(self.unchanged[step], changed[step])

        return located(has_effect, positions)

    def _effect_of(self, indices: Sequence[int], window: Sequence[int]) -> RecordEffect | None:
        """Return the effect of the first of some records; the others are looked at for its effect on theirs."""
        index = indices[0]
        versions = record_versions(self.dataset, index)
        points = self._points(index, window, [*versions, *([ABSENT] if self.can_leave_out else [])])
        effects = [effect for step in window if (effect := self._step_effect(step, points[step])) is not None]
        if not effects:
            return None
        best = max(effects, key=lambda effect: effect.order)
        everywhere = self._everywhere(index, best, versions)
        over_noise, smallest_over_noise = self._over_noise(best, everywhere)
        noise_moved, is_sum, is_followed_later = self._noise_behaviour(index, best)
        return RecordEffect(
            index,
            over_noise,
            smallest_over_noise,
            best.length,
            self._growth(points),
            self._coupling(indices, best),
            best.has_absence,
            noise_moved if is_sum else None,
            len(self.steps),
            len(everywhere),
            is_sum,
            is_followed_later,
            self._undrawn(index, everywhere),
        )

    def _points(self, index: int, steps: Sequence[int], versions: Sequence[RecordVersion]) -> dict[int, Points]:
        """Return the gradients of steps with versions of a record, as far as they are finite."""
        points_by_step: dict[int, Points] = {step: {} for step in steps}
        for version in versions:
            is_absent = version is ABSENT
            items = {} if is_absent else {index: version.item}
            for step, values in self._gradients(steps, items, index if is_absent else None).items():
                points_by_step[step][version] = values
        return points_by_step

    def _step_effect(self, step: int, points: Points) -> _StepEffect | None:
        """Return the largest effect of versions of a record on a step; None if it does not differ between them."""
        reference = version_without_effect(points)
        versions = [version for version in points if not version.is_jittered and version is not reference]
        pairs = [
            (version, other_version)
            for version in versions
            for other_version in (versions if reference is None else [reference])
            if is_moved(points[version], points[other_version])
        ]
        if not pairs:
            return None
        effects = {pair: self._over_noise_of(step, points[pair[0]], points[pair[1]]) for pair in pairs}
        version, other_version = max(pairs, key=lambda pair: effects[pair])
        difference = points[version].astype(np.float64) - points[other_version]
        if reference is not None:
            return _StepEffect(step, *effects[version, other_version], True, version, other_version, difference)
        # All versions are in a ball around the gradient without the record: its radius is the effect of the record.
        values = np.array([points[version] for version in versions], dtype=np.float64)
        scales = self.scales[step]
        noisy = scales > 0
        mu, length = effects[version, other_version][0] / 2, smallest_ball_radius(values)
        if math.isfinite(mu):
            mu = max(mu, smallest_ball_radius(values[:, noisy] / scales[noisy]))
        return _StepEffect(step, mu, length, False, version, other_version, difference / 2)

    def _over_noise_of(self, step: int, first_gradient: Floats32, second_gradient: Floats32) -> tuple[float, float]:
        """Return the length of a difference of gradients in units of the noise, and the length itself."""
        difference = first_gradient.astype(np.float64) - second_gradient
        rounding = ROUNDING * float(np.abs(first_gradient).max(initial=0.0))
        return _over_noise(difference, self.scales[step], rounding), float(np.linalg.norm(difference))

    def _growth(self, points: Mapping[int, Points]) -> float:
        """Return by which factor the longest effect grows where values are 100 times as large."""
        longest = list[float]()
        for factor in FACTORS[-2:]:
            lengths = [0.0]
            for step, versions in points.items():
                limited = {version: values for version, values in versions.items() if version.factor <= factor}
                effect = self._step_effect(step, limited)
                lengths += [] if effect is None else [effect.length]
            longest.append(max(lengths))
        return longest[1] / longest[0] if longest[0] > 0 else 1.0

    def _everywhere(self, index: int, best: _StepEffect, versions: Sequence[RecordVersion]) -> dict[int, _StepEffect]:
        """Return the effect on each step that the record moves, by the versions that told most of the best step."""
        if best.reference is ABSENT:
            chosen = [best.version, ABSENT]
        elif best.has_absence:
            steady, another = (
                best.reference,
                next(version for version in versions if version.label != best.reference.label),
            )
            labels = (steady.label, another.label)
            chosen = [
                best.version,
                *(version for version in versions if version.factor == steady.factor and version.label in labels),
            ]
            chosen = list(dict.fromkeys(chosen))
        else:
            chosen = [
                version for version in versions if version.factor == best.version.factor and not version.is_jittered
            ]
            chosen += [] if best.reference in chosen else [best.reference]
        points = self._points(index, self.steps, chosen)
        effects = {step: self._step_effect(step, points[step]) for step in self.steps}
        return {step: effect for step, effect in effects.items() if effect is not None}

    def _over_noise(
        self, effect: _StepEffect, everywhere: Mapping[int, _StepEffect]
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the effect on each step in units of its noise, and the least that it may be.

        Of a step that the record was not in, the effect is taken to be that of other steps: in units of the noise, or
        at least of the same length where that is less.
        """
        compared = [
            step_effect.over_noise
            for step_effect in everywhere.values()
            if step_effect.has_absence is effect.has_absence
        ]
        usual = float(np.median(compared)) if compared else effect.over_noise
        effects, smallest_effects = list[float](), list[float]()
        for step in self.steps:
            effect_on_step = everywhere.get(step)
            mu = 0.0 if effect_on_step is None else effect_on_step.over_noise
            is_known = effect_on_step is not None and effect_on_step.has_absence
            same = _over_noise(effect.difference, self.scales[step], 0.0)
            effects.append(_rounded(mu if is_known else max(mu, usual)))
            smallest_effects.append(_rounded(mu if is_known else max(mu, min(usual, same))))
        return tuple(effects), tuple(smallest_effects)

    def _undrawn(self, index: int, everywhere: Mapping[int, _StepEffect]) -> float:
        """Return the largest effect of the record, over its length, on a step whose mini-batch does not contain it."""
        lengths = {step: effect.length for step, effect in everywhere.items()}
        undrawn = [
            length for step, length in lengths.items() if self.positions.get(step) and index not in self.positions[step]
        ]
        return max(undrawn, default=0.0) / max(lengths.values(), default=1.0)

    def _noise_changes(
        self, index: int, effect: _StepEffect, steps: Sequence[int]
    ) -> dict[int, tuple[Floats, Floats, Floats]]:
        """Return changes of steps by other noise, with and without the record, and what rounding explains of them.

        They are in units of the noise's scale. Steps without noise, or of trainings that failed, are left out.

        Shapes: (redraws, coordinates with noise) twice, and (coordinates with noise,).
        """
        trainings: dict[RecordVersion, list[dict[int, Floats32]]] = {}
        for version in (effect.version, effect.reference):
            is_absent = version is ABSENT
            items = {} if is_absent else {index: version.item}
            without = index if is_absent else None
            trainings[version] = [self._gradients(steps, items, without, redraw) for redraw in (None, *range(_REDRAWS))]
        changes = dict[int, tuple[Floats, Floats, Floats]]()
        for step in steps:
            scales = self.scales[step]
            noisy = scales > 0
            is_known = all(step in gradients for redraws in trainings.values() for gradients in redraws)
            if not is_known or not noisy.any():
                continue
            values = [
                np.array([gradients[step].astype(np.float64) for gradients in redraws])
                for redraws in trainings.values()
            ]
            first, second = (value[1:, noisy] - value[0, noisy] for value in values)
            rounding = 4 * ROUNDING * max(float(np.abs(value).max(initial=0.0)) for value in values)
            changes[step] = first / scales[noisy], second / scales[noisy], rounding / scales[noisy]
        return changes

    def _noise_behaviour(self, index: int, effect: _StepEffect) -> tuple[float | None, bool, bool]:
        """Return how far the record changes the noise of its first step, over its scale, and two further facts.

        These are whether that step is a sum of a record's effect and of noise that may follow the records by a factor,
        and whether the noise of a later step follows the record. The change is None if it was not compared.
        """
        own_steps = [step for step in self.steps if index in self.positions.get(step, ())] or [effect.step]
        first_step, *later_steps = [step for step in self.steps if step >= own_steps[0]][:KEPT_STEPS]
        changes = self._noise_changes(index, effect, [first_step, *later_steps])
        if first_step not in changes:
            return None, True, False
        first, second, rounding = changes[first_step]
        is_sum = _beyond(_change_without_factor(first, second), rounding) <= NOISE_TOLERANCE
        is_followed_later = any(
            _beyond(changes[step][0] - changes[step][1], changes[step][2]) > NOISE_TOLERANCE
            for step in later_steps
            if step in changes
        )
        return _beyond(first - second, rounding), is_sum, is_followed_later

    def _coupling(self, indices: Sequence[int], effect: _StepEffect) -> float | None:
        """Return the part of its effect by which the record changes that of another one; None if none is found."""
        index, step = indices[0], effect.step
        for other_record in self._other_records_in(step, indices):
            for version in record_versions(self.dataset, other_record):
                if version.factor != FACTORS[1] or version.is_jittered:
                    continue
                corners = [
                    self._points_with(index, step, version, beside)
                    for beside in ({}, {other_record: version.item})
                    for version in (effect.reference, effect.version)
                ]
                interaction = _interaction([corner for corner in corners if corner is not None])
                if interaction is not None:
                    return interaction
        return None

    def _other_records_in(self, step: int, indices: Sequence[int]) -> Iterator[int]:
        """Yield positions of records that may be in a step, beside the first of `indices`."""
        index, sample = indices[0], self.positions.get(step, ())
        count = length_of(self.dataset)
        yield from (index for index in indices[1:] if index in sample or not sample)
        yield from [position for position in sample if position != index and position < count][:_MOST_BETWEEN]
        if not sample:
            located = self._located(step, [position for position in range(count) if position != index])
            yield from () if located is None else (located,)

    def _points_with(self, index: int, step: int, version: RecordVersion, beside: Mapping[int, Any]) -> Floats32 | None:
        is_absent = version is ABSENT
        items = dict(beside) if is_absent else {index: version.item, **beside}
        return self._gradients([step], items, index if is_absent else None).get(step)


def _over_noise(difference: Floats, scales: Floats, rounding: float) -> float:
    """Return the length of a difference of gradients in units of the noise; infinite if one without noise differs."""
    bare = scales <= 0
    if float(np.abs(difference[bare]).max(initial=0.0)) > rounding:
        return math.inf
    return float(np.linalg.norm(difference[~bare] / scales[~bare]))


def _beyond(change: Floats, rounding: Floats) -> float:
    """Return the largest change beyond what rounding explains, (redraws, coordinates) and (coordinates,)."""
    return float(np.maximum(np.abs(change) - rounding, 0.0).max(initial=0.0))


def _change_without_factor(first_noise: Floats, second_noise: Floats) -> Floats:
    """Return what is left of the smaller noise at each coordinate without its multiple of the larger one.

    It is zero where they differ by a factor that is the same for all redraws. Shapes: (redraws, coordinates).
    """
    is_first_larger = (first_noise**2).sum(axis=0) > (second_noise**2).sum(axis=0)
    larger = np.where(is_first_larger, first_noise, second_noise)
    smaller = np.where(is_first_larger, second_noise, first_noise)
    squares = (larger**2).sum(axis=0)
    factors = (larger * smaller).sum(axis=0) / np.where(squares > 0, squares, 1.0)
    return np.asarray(smaller - factors * larger)


def _rounded(mu: float) -> float:
    """Return an effect to three digits: steps with equal ones are composed together."""
    return float(f"{mu:.3g}")


def _interaction(corners: Sequence[Floats32]) -> float | None:
    """Return how far the joint effect of two records is from the sum of their effects, over the smaller effect.

    `corners`: Gradients with neither, the first, the second and both of the records changed.
    """
    if len(corners) < 4:
        return None
    neither, first, second, both_changed = (corner.astype(np.float64) for corner in corners)
    effects = [float(np.linalg.norm(changed - neither)) for changed in (first, second)]
    rounding = 4 * ROUNDING * max(float(np.abs(corner).max(initial=0.0)) for corner in corners) * len(neither) ** 0.5
    if min(effects) <= rounding:
        return None
    gap = float(np.linalg.norm(both_changed - first - second + neither))
    return 0.0 if gap <= rounding else gap / min(effects)
