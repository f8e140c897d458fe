"""Find the likely cause of a leak: why the recorded trials with D differ from those with D'.

A transcript has all values that a recorder observed in one trial.
"""

import itertools
from typing import NamedTuple

import numpy as np

from fl_audit.app_audits.claim_audit.features import COARSE, LOW_BITS, projections
from fl_audit.app_audits.claim_audit.transcript import FORM, Transcripts
from fl_audit.array_types import Flags, Floats
from fl_audit.report.template_files import template_texts

_CLEAR = 5.0  # number of standard errors beyond which a difference counts as clear; it does not affect the verdict
_REPEATED = 0.5  # correlation of the noise of two rounds above which the noise counts as repeated
_LINES = 4  # largest number of lines that `telling_lines` returns


class LeakCause(NamedTuple):
    """A likely cause why trials with D and with D' can be distinguished, and a fix for it."""

    words: str  # the cause, as a sentence
    fix: str  # the fix, as a sentence


def _cause(name: str, tensors: str = "", number: str = "", ratio: float = 1.0) -> LeakCause:
    """Return a cause with its texts from the template `leak_causes.md`."""
    texts = template_texts("leak_causes.md", cause=name, tensors=tensors, number=number, ratio=ratio)
    return LeakCause(texts["words"], texts["fix"])


def cause_of(transcripts: Transcripts, present: Flags, group: str) -> LeakCause | None:
    """Return a probable cause by which trials with D and with D' can be distinguished.

    The result is None if no cause is found.

    Shapes: `present` (trials,).
    """
    refused = transcripts.refused[present].mean() - transcripts.refused[~present].mean()
    if abs(refused) > 0.5:
        return _cause("refused")
    released = transcripts.has_release[present].mean() - transcripts.has_release[~present].mean()
    if abs(released) > 0.5:
        return _cause("not released")
    form = _changed_form(transcripts, present, group)
    if form is not None:
        return form
    if transcripts.is_beside_model(group):
        return _cause("beside model", number=group)
    constant, telling = _without_noise(transcripts, present)
    if telling and len(constant) == len(transcripts.tensors):
        return _cause("no noise")
    if telling:
        return _cause("bare tensors", tensors=", ".join(telling))
    if group in LOW_BITS or group == COARSE:
        return _cause("rounded")
    # Each function looks for a cause that the earlier ones do not explain.
    causes = (look(transcripts, present) for look in (_over_rounds, _by_size, _where))
    return next((cause for cause in causes if cause is not None), None)


def _changed_form(transcripts: Transcripts, present: Flags, group: str) -> LeakCause | None:
    """Return a cause if arrays of another form, or values that are not finite, tell D from D'; else None."""

    def differs(values: Floats) -> bool:
        shares = np.isfinite(values).reshape(len(transcripts), -1).mean(axis=1)
        return bool(abs(shares[present].mean() - shares[~present].mean()) > 0.5)

    tensors = [name for name, coordinates in transcripts.tensors if differs(transcripts.steps[:, :, coordinates])]
    is_form = group.startswith(f"{FORM}: ") or any(
        name.startswith(f"{FORM}: ") and differs(transcripts.numbers[:, column])
        for column, name in enumerate(transcripts.names)
    )
    if is_form:
        return _cause("form", tensors=", ".join(tensors))
    return _cause("not finite", tensors=", ".join(tensors)) if tensors else None


def _without_noise(transcripts: Transcripts, present: Flags) -> tuple[list[str], list[str]]:
    """Return names of tensors that hardly vary from trial to trial: all of them, and those that tell D from D'.

    The first list has the tensors all of whose values hardly vary under D and under D'. The second list has those with
    a value that hardly varies and differs between D and D'.
    """
    steps = np.nan_to_num(transcripts.steps)
    gaps = np.abs(steps[present].mean(axis=0) - steps[~present].mean(axis=0))
    spreads = np.maximum(steps[present].std(axis=0), steps[~present].std(axis=0))
    largest = float(np.max(gaps, initial=0.0))
    constant = [name for name, coordinates in transcripts.tensors if np.all(spreads[:, coordinates] <= 1e-6 * largest)]
    # One value without noise is enough.
    is_bare = (gaps > 1e-9) & (spreads < 1e-6 * gaps)
    return constant, [name for name, coordinates in transcripts.tensors if np.any(is_bare[:, coordinates])]


def _over_rounds(transcripts: Transcripts, present: Flags) -> LeakCause | None:
    """Return the cause of a leak that shows only in a comparison of rounds; None if there is none.

    Possible causes are noise that is repeated, a contribution that stays in later releases, and noise that shrinks.
    """
    along = projections(transcripts)
    if along.shape[1] < 2:
        return None
    ones, zeros = along[present], along[~present]
    shifts = ones.mean(axis=0) - zeros.mean(axis=0)
    noise = np.concatenate([ones - ones.mean(axis=0), zeros - zeros.mean(axis=0)])
    spreads = noise.std(axis=0)
    errors = spreads * np.sqrt(1 / max(len(ones), 1) + 1 / max(len(zeros), 1))
    correlation = np.corrcoef(noise[:, 0], noise[:, 1])[0, 1] if np.all(spreads > 0) else 0.0
    if correlation > _REPEATED:
        return _cause("repeated")
    if shifts[-1] - shifts[0] > _CLEAR * np.hypot(errors[0], errors[-1]):
        return _cause("memory")
    if not (spreads[-1] < 0.9 * spreads[0] and _is_clear(spreads[0], spreads[-1], len(noise))):
        return None
    return _cause("shrinking", ratio=float(spreads[0] / max(spreads[-1], 1e-300)))


def _by_size(transcripts: Transcripts, present: Flags) -> LeakCause | None:
    """Return a cause if the scale of the noise differs between D and D'; None if it does not."""
    steps = [transcripts.steps[which] for which in (present, ~present)]
    noises = (np.nan_to_num(noises_of_side - np.nan_to_num(noises_of_side).mean(axis=0)) for noises_of_side in steps)
    ones, zeros = (float(np.sqrt(np.mean(noise**2))) for noise in noises)
    if not _is_clear(ones, zeros, steps[0].size):
        return None
    return _cause("size", ratio=max(ones, zeros) / min(ones, zeros))


def _where(transcripts: Transcripts, present: Flags) -> LeakCause | None:
    """Return a cause that names one tensor, if this tensor distinguishes D from D' far better than all others do.

    Otherwise the result is None.
    """
    steps = np.nan_to_num(transcripts.steps)
    effects = list[tuple[float, str]]()
    for name, coordinates in transcripts.tensors:
        is_elsewhere = np.ones(steps.shape[2], dtype=bool)
        is_elsewhere[coordinates] = False
        inside, outside = (
            _strength(steps, transcripts.direction, where, present) for where in (coordinates, is_elsewhere)
        )
        if inside is None or outside is None:
            continue
        # A longer part of the difference shows more under the same noise, so shifts are compared per length.
        error = _CLEAR / np.sqrt(len(transcripts))
        smallest, largest = (inside[0] - error) / inside[1], (outside[0] + error) / outside[1]
        if smallest > 3 * largest:
            effects.append((smallest, name))
    return _cause("one tensor", tensors=max(effects)[1]) if effects else None


def _strength(steps: Floats, direction: Floats, where: slice | Flags, present: Flags) -> tuple[float, float] | None:
    """Return how clearly D and D' differ in the coordinates `where`: a shift, and the norm of the contribution there.

    Model changes are projected on `direction`, the contribution under D minus that under D'. The shift is the
    difference of the mean projections with D and with D', in standard deviations. None if the projections do not vary,
    or if the contribution is 0 in these coordinates.
    """
    along = np.sum(steps[:, :, where] * direction[:, :, where], axis=(1, 2))
    ones, zeros = along[present], along[~present]
    spread = np.sqrt((ones.var() + zeros.var()) / 2)
    length = np.sqrt(np.mean(np.sum(direction[:, :, where] ** 2, axis=2)))
    if not (spread > 0 and length > 0):
        return None
    return float(abs(ones.mean() - zeros.mean()) / spread), float(length)


def _is_clear(ones: float, zeros: float, count: int) -> bool:
    """Return whether two standard deviations, each of `count` normal values, differ significantly."""
    return min(ones, zeros) > 0 and bool(abs(np.log(ones / zeros)) > _CLEAR / np.sqrt(max(count, 1)))


def telling_lines(transcripts: Transcripts, present: Flags, group: str) -> tuple[str, ...]:
    """Return up to four lines of text, one for each of the values that differ most between D and D'.

    A line gives the mean and the standard deviation of the value under D and under D'.

    Shapes: `present` (trials,).
    """
    columns = [
        *_released(transcripts),
        *((name, transcripts.numbers[:, index]) for index, name in enumerate(transcripts.names)),
    ]
    ranked = sorted(columns, key=lambda column: (column[0] != group, -_distance(column[1], present)))
    telling = [column for column in ranked if _distance(column[1], present) > 0]
    return tuple(
        f"{name}: {_distribution(values[present])} under D, {_distribution(values[~present])} under D'"
        for name, values in telling[:_LINES]
    )


def _released(transcripts: Transcripts) -> list[tuple[str, Floats]]:
    """Return pairs of a name and values: the released change of one parameter in one round, in each trial."""
    names = [
        f"{name}[{index}]"
        for name, coordinates in transcripts.tensors
        for index in range(coordinates.stop - coordinates.start)
    ]
    combinations = itertools.product(range(transcripts.steps.shape[1]), enumerate(names))
    return [
        (f"round {at + 1}, step of {name}", transcripts.steps[:, at, column]) for at, (column, name) in combinations
    ]


def _distance(values: Floats, present: Flags) -> float:
    """Return the difference of a value's means under D and D', in standard deviations; missing values are left out.

    The result is infinite if the share of missing values differs by more than 1/2 between D and D'. Otherwise, it is 0
    if all values under D, or all values under D', are missing.
    """
    there = np.isfinite(values)
    shares = there[present].mean() - there[~present].mean()
    if abs(shares) > 0.5:
        return float("inf")
    ones, zeros = values[present & there], values[~present & there]
    if not (ones.size and zeros.size):
        return 0.0
    gap = abs(float(ones.mean() - zeros.mean()))
    spread = float(np.sqrt((ones.var() + zeros.var()) / 2))
    # Means of equal values differ by rounding if their numbers differ.
    is_rounding = gap <= 1e-12 * float(np.max(np.abs(ones)))
    return 0.0 if is_rounding else gap / max(spread, 1e-9 * gap)


def _distribution(values: Floats) -> str:
    there = values[np.isfinite(values)]
    if not there.size:
        return "no value"
    share = "" if there.size == values.size else f" in {there.size / values.size:.0%} of trials"
    spread = float(there.std())
    around = f"{there.mean():.4g}" if spread == 0 else f"{there.mean():.4g} ± {spread:.2g}"
    return around + share
