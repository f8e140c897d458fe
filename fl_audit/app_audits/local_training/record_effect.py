"""Effect of a record on the gradients of a training: how far its values can move them, and whether others matter."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from fl_audit.app_audits.local_training.edited_datasets import (
    crafted_record,
    label_of,
    length_of,
    record_at,
    with_label,
)
from fl_audit.app_audits.local_training.gradient_statistics import ROUNDING, effect_over_noise, is_moved, lengths
from fl_audit.app_audits.local_training.leave_one_out_replay import KEPT_STEPS
from fl_audit.app_audits.local_training.measured_steps import RecordEffect
from fl_audit.app_audits.local_training.record_versions import FACTORS, RecordVersion, located, record_versions
from fl_audit.array_types import Floats, Floats32


class GradientsOfSteps(Protocol):
    """A function that trains on a data set with other records, and returns the gradients of steps, (parameters,)."""

    def __call__(self, steps: Sequence[int], items: Mapping[int, Any]) -> dict[int, Floats32]:
        """Return the gradients of steps by their numbers; those that are not finite are left out.

        `items`: Other records, by their positions.
        """


@dataclass(frozen=True)
class _Comparison:
    """Difference of the gradients of one step between two versions of a record."""

    step: int
    version: RecordVersion
    reference: RecordVersion
    moved: Floats  # lengths of the difference in each tensor, of which the record has at least this effect
    is_absence: bool  # whether the reference has no effect
    over_noise: float

    @property
    def length(self) -> float:
        return float(np.linalg.norm(self.moved))

    @property
    def order(self) -> tuple[float, float]:
        return self.over_noise, self.length


@dataclass(frozen=True)
class RecordEffectSearch:
    """Search for the largest effect of a record on the steps of a training that have the same tensors."""

    gradients_of: GradientsOfSteps
    dataset: Any
    own: Mapping[int, Floats32]  # gradients with the own records, (parameters,), by the number of the step
    scales: Mapping[int, Floats]  # noise scale of each tensor, (tensors,), by the number of the step
    sizes: Sequence[int]  # number of coordinates of each tensor

    @cached_property
    def steps(self) -> list[int]:
        """Numbers of the steps, in order."""
        return sorted(self.own)

    def _gradients(self, steps: Sequence[int], items: Mapping[int, Any]) -> dict[int, Floats32]:
        found = self.gradients_of(steps, items)
        return {step: values for step, values in found.items() if len(values) == sum(self.sizes)}

    def effect(self) -> RecordEffect | None:
        """Return the effect of a record; None if no record is found whose values move a step."""
        for place, step in enumerate(self.steps[:KEPT_STEPS]):
            index = self._located(step, range(length_of(self.dataset)))
            if index is not None:
                return self._effect_of(index, self.steps[place : place + KEPT_STEPS])
        return None

    def _located(self, step: int, places: Sequence[int]) -> int | None:
        """Return the position of a record whose values move a step; None if there is none."""
        count = length_of(self.dataset)

        def has_effect(chosen: Sequence[int]) -> bool:
            items = {}
            for place in chosen:
                other = label_of(record_at(self.dataset, (place + 1) % count))
                items[place] = with_label(crafted_record(record_at(self.dataset, place)), other)
            changed = self._gradients([step], items)
            return step in changed and is_moved(self.own[step], changed[step])

        return located(has_effect, list(places))

    def _effect_of(self, index: int, window: Sequence[int]) -> RecordEffect | None:
        versions = record_versions(self.dataset, index)
        gradients = [self._gradients(window, {index: version.item}) for version in versions]
        found = [one for step in window for one in self._comparisons(step, versions, gradients)]
        if not found:
            return None
        best = max(found, key=lambda one: one.order)
        longest = [
            max((one.length for one in found if one.version.factor == factor), default=0.0) for factor in FACTORS
        ]
        growth = longest[-1] / longest[-2] if longest[-2] > 0 else 1.0
        everywhere = self._everywhere(index, best)
        return RecordEffect(
            index, tuple(self._over_noise(best, everywhere)), best.length, growth, self._coupling(index, best),
            best.is_absence, len(self.steps), len(everywhere),
        )  # fmt: skip

    def _comparisons(
        self, step: int, versions: Sequence[RecordVersion], gradients: Sequence[Mapping[int, Floats32]]
    ) -> list[_Comparison]:
        """Return the comparison of each version of a record with the one that tells most of its effect on a step."""
        plain = {version: values[step] for version, values in zip(versions, gradients, strict=True) if step in values}
        absent = _without_effect(plain)
        found = list[_Comparison]()
        for version, values in plain.items():
            if version.is_jittered:
                continue
            if absent is not None:
                references = [absent]
            else:
                references = [other for other in plain if other.factor <= version.factor and not other.is_jittered]
            compared = [
                self._comparison(step, version, other, values, plain[other], absent is not None) for other in references
            ]
            found += [one for one in compared if one is not None]
        return found

    def _comparison(
        self,
        step: int,
        version: RecordVersion,
        reference: RecordVersion,
        values: Floats32,
        other: Floats32,
        is_absence: bool,
    ) -> _Comparison | None:
        if not is_moved(values, other):
            return None
        # One of two values has at least half of their difference as its effect.
        moved = lengths(values.astype(np.float64) - other, self.sizes) / (1 if is_absence else 2)
        mu = effect_over_noise(moved, self.scales[step], self._rounding(values))
        return _Comparison(step, version, reference, moved, is_absence, mu)

    def _rounding(self, values: Floats32) -> float:
        return ROUNDING * float(np.abs(values).max(initial=0.0)) * math.sqrt(len(values))

    def _everywhere(self, index: int, best: _Comparison) -> dict[int, _Comparison]:
        """Return the comparison of the two versions that tell most in each step that the record moves."""
        first, second = (self._gradients(self.steps, {index: one.item}) for one in (best.version, best.reference))
        again = dict[int, Floats32]()
        if best.is_absence:
            jittered = next(
                one for one in record_versions(self.dataset, index)
                if one.is_jittered and one.label == best.reference.label
            )  # fmt: skip
            again = self._gradients(self.steps, {index: jittered.item})
        found = dict[int, _Comparison]()
        for step in self.steps:
            if step not in first or step not in second:
                continue
            is_absence = step in again and not is_moved(second[step], again[step])
            one = self._comparison(step, best.version, best.reference, first[step], second[step], is_absence)
            if one is not None:
                found[step] = one
        return found

    def _over_noise(self, best: _Comparison, everywhere: Mapping[int, _Comparison]) -> list[float]:
        """Return the effect on each step in units of its noise; that of other steps where the record was not in it."""
        compared = [one.over_noise for one in everywhere.values() if one.is_absence is best.is_absence]
        usual = float(np.median(compared)) if compared else best.over_noise
        found = list[float]()
        for step in self.steps:
            own = everywhere.get(step)
            expected = min(usual, effect_over_noise(best.moved, self.scales[step], 0.0))
            known = 0.0 if own is None else own.over_noise
            mu = known if own is not None and own.is_absence else max(known, expected)
            # Equal steps are composed together.
            found.append(float(f"{mu:.3g}"))
        return found

    def _coupling(self, index: int, best: _Comparison) -> float | None:
        """Return the part of its effect by which the record changes that of another one; None if none is found."""
        step = best.step
        other = self._located(step, [place for place in range(length_of(self.dataset)) if place != index])
        if other is None:
            return None
        for version in record_versions(self.dataset, other):
            if version.factor != FACTORS[1] or version.is_jittered:
                continue
            corners = [
                self._gradients([step], {index: one.item} | beside).get(step)
                for beside in ({}, {other: version.item})
                for one in (best.reference, best.version)
            ]
            found = self._interaction(corners)
            if found is not None:
                return found
        return None

    def _interaction(self, corners: Sequence[Floats32 | None]) -> float | None:
        """Return how far the joint effect of two records is from the sum of their effects, over the smaller effect.

        `corners`: Gradients with neither, the first, the second and both of the records changed.
        """
        known = [corner.astype(np.float64) for corner in corners if corner is not None]
        if len(known) < 4:
            return None
        neither, first, second, both = known
        effects = [float(np.linalg.norm(one - neither)) for one in (first, second)]
        rounding = 4 * max(self._rounding(corner) for corner in corners if corner is not None)
        if min(effects) <= rounding:
            return None
        gap = float(np.linalg.norm(both - first - second + neither))
        return 0.0 if gap <= rounding else gap / min(effects)


def _without_effect(plain: Mapping[RecordVersion, Floats32]) -> RecordVersion | None:
    """Return a version of a record whose features do not matter, as if the record were absent; None without one.

    Where a loss is saturated, the gradient of a record with the label that is predicted is zero, whatever its features.
    """
    steady, has_moved = list[RecordVersion](), False
    for version, values in plain.items():
        if version.factor != FACTORS[1] or version.is_jittered:
            continue
        again = next((one for one in plain if one.is_jittered and one.label == version.label), None)
        if again is None:
            continue
        if is_moved(values, plain[again]):
            has_moved = True
        else:
            steady.append(version)
    return steady[0] if steady and has_moved else None
