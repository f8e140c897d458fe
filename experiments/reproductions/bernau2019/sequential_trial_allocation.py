"""Planning of trials: a first portion for every setting, then more for undecided claims, within a limit of time."""

from collections.abc import Mapping, Sequence
from math import ceil, isfinite
from pathlib import Path

import numpy as np

from fl_audit.array_types import Floats
from fl_audit.atomic_files import write_json
from fl_audit.errors import require
from fl_audit.experiments.reproductions.bernau2019.claim_premises import LOOKS
from fl_audit.experiments.reproductions.bernau2019.claims import claims_of
from fl_audit.experiments.reproductions.bernau2019.runs import DataSetRuns, played_of, run_and_join_parts
from fl_audit.experiments.reproductions.bernau2019.settings import (
    MembershipDatasetRecipe,
    MembershipSetting,
    SettingRun,
    settings_of,
)
from fl_audit.experiments.reproductions.claims import ClaimVerdict, PaperClaim
from fl_audit.experiments.reproductions.papers import ComputeExtent, ReproductionOptions
from fl_audit.experiments.reproductions.run_scheduling import parallel_runs, seconds_of
from fl_audit.run_files import read_json

PLAN = "plan.json"
ROOM = 1.25
"""Factor on the trials that a claim seems to need, because its number moves as trials are added."""
MOST_OPEN, SPARE = 8, 2
"""Number of open claims up to which no trials are added. With more, this many further claims are planned to be decided,
because some stay open with the trials that they seem to need.
"""
Parts = dict[str, int]  # number of parts of each setting, by its name


def play(data: Sequence[MembershipDatasetRecipe], context: ReproductionOptions, adding: bool) -> list[DataSetRuns]:
    """Carry out the runs of all settings, add runs for undecided claims if wanted, and return all runs by data set.

    A setting is a data set with a kind of privacy and a noise level; its runs are called parts. First, one part of
    every setting is run. In the full form, undecided claims then get more parts, the cheapest claims first, until at
    most `MOST_OPEN` claims are undecided. Parts are added twice: first within half of the remaining time, then within
    all time that is left. An interrupted reproduction continues with the plans in `plan.json`. Finished runs are read
    and not repeated.

    Parameters
    ----------
    data
        The data sets of the paper that are available.
    context
        Directory of the runs, full or quick form, and limit of time in minutes.
    adding
        Whether runs are added for undecided claims. Runs that were added earlier are always included.

    Raises
    ------
    InputError
        If a setting cannot be run, its directory holds something else, or the plan is damaged.
    FederationError
        If a federation had to stop; finished runs are kept.
    """
    settings = [setting for one in data for setting in settings_of(one, context.extent)]
    plans = _read(context.runs / PLAN) or [{setting.name: 1 for setting in settings}]
    adding = adding and context.extent is ComputeExtent.FULL and bool(settings)
    played = _played(data, plans[0] if adding else plans[-1], context)
    for look in range(1, LOOKS if adding else 1):
        if look == len(plans):
            before = {setting.name: plans[-1].get(setting.name, 1) for setting in settings}
            each = _seconds_of_first_runs(context, settings)
            spent = sum(each[name] * count for name, count in before.items())
            left = max(0.0, 60 * context.minutes * parallel_runs() - spent) * (1.0 if look == LOOKS - 1 else 0.5)
            plans.append(_planned(claims_of(played), before, each, left))
            write_json(context.runs / PLAN, plans)
        played = _played(data, plans[look], context)
    return played


def _planned(claims: Sequence[PaperClaim], before: Parts, seconds: Mapping[str, float], budget: float) -> Parts:
    """Plan how many runs each setting needs; the undecided claims that are cheapest to decide come first.

    The new runs cost at most `budget` core-seconds.
    """
    parts = dict(before)
    left = sum(claim.verdict is ClaimVerdict.OPEN for claim in claims)
    if left <= MOST_OPEN:
        return parts
    wanted = [need for claim in claims if (need := _wanted(claim, before, seconds))]

    while wanted and left > MOST_OPEN - SPARE:
        cheapest = min(wanted, key=lambda need: _price(need, parts, seconds))
        if (cost := _price(cheapest, parts, seconds)) > budget:
            break
        budget -= cost
        left -= 1
        wanted.remove(cheapest)
        parts |= {run: max(count, parts[run]) for run, count in cheapest.items()}
    return parts


def _wanted(claim: PaperClaim, before: Parts, seconds: Mapping[str, float]) -> Parts:
    """Return how many runs of each setting are needed to decide an undecided claim in the least time.

    Refuting a premise of the claim also decides the claim. The result is empty if the needed numbers are unknown.
    """
    ways = [_narrowed(one, before, seconds) for one in (claim, *claim.premises)
            if one is claim or one.found.value < one.lowest] if claim.verdict is ClaimVerdict.OPEN else []  # fmt: skip
    return min(filter(None, ways), key=lambda need: _price(need, before, seconds), default={})


def _price(need: Parts, parts: Parts, seconds: Mapping[str, float]) -> float:
    return sum(max(0, count - parts[run]) * seconds[run] for run, count in need.items())


def _narrowed(claim: PaperClaim, before: Parts, seconds: Mapping[str, float]) -> Parts:
    """Return how many runs of each setting would decide a claim at the least cost; empty if the numbers are unknown.

    `before` holds the numbers of runs so far, and `seconds` the duration of a run, both by setting. A setting
    contributes a share s to the squared width of the claim's interval. With m times as many trials, the share is s / m.
    The cost is least if m is proportional to sqrt(s / seconds) (Neyman allocation).
    """
    more = claim.trials_to_decide
    if more is None or not claim.runs:
        return {}
    left = claim.trials / (ROOM * more)
    shares = np.array(claim.shares or [1 / len(claim.runs)] * len(claim.runs))
    own = np.array([before[run] for run in claim.runs], dtype=np.float64)
    worth = np.sqrt(shares / (own * np.array([max(seconds[run], 1.0) for run in claim.runs])))

    def times(scale: float) -> Floats:
        return np.maximum(1.0, scale * worth)

    low, high = 0.0, float(1 / (left * worth[worth > 0].min()))
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.sum(shares / times(middle)) > left else (low, middle)
    return {run: ceil(count - 1e-9) for run, count in zip(claim.runs, own * times(high), strict=True)}


def _played(data: Sequence[MembershipDatasetRecipe], plan: Parts, context: ReproductionOptions) -> list[DataSetRuns]:
    settings = [setting for one in data for setting in settings_of(one, context.extent)]
    parts = [SettingRun(one, number) for one in settings for number in range(plan.get(one.name, 1))]
    runs = run_and_join_parts(parts, context)
    return [played_of(one, runs) for one in data]


def _seconds_of_first_runs(context: ReproductionOptions, settings: Sequence[MembershipSetting]) -> dict[str, float]:
    """Return the seconds that the first run of each setting took, by the setting's name; 0 if it has not run yet."""
    found = {one.name: seconds_of(context.runs / SettingRun(one).name) for one in settings}
    return {name: seconds if isfinite(seconds) else 0.0 for name, seconds in found.items()}


def _read(path: Path) -> list[Parts]:
    if not path.exists():
        return []
    plans: list[Parts] = read_json(path)
    whole = isinstance(plans, list) and all(isinstance(count, int) for one in plans for count in one.values())
    require(whole and len(plans) <= LOOKS, f"{path} is no plan of trials: accepted is what was written there")
    return plans
