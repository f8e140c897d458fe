"""Find out by single trials which metrics a strategy looks up in the replies of clients."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from fl_audit.app_audits.black_box.audited_system import AuditedSystem

_MOST_NAMES = 30  # largest number of trials for the names that a strategy looks up
_UNKNOWN = "fl-audit-examples"  # name of the number of examples in replies, if a strategy shall not find it


class LookupTrial(NamedTuple):
    """The metrics that a strategy looks up, as a single trial shows them."""

    names: tuple[str, ...]  # names that were looked up, whether clients reported them or not
    refusal: str | None  # the error with which the strategy ended the trial; None without one


class MetricLookups(NamedTuple):
    """Names of the metrics that a strategy looks up in replies, the number of examples among them."""

    names: tuple[str, ...]  # names under which clients of trials can report numbers
    unoffered: tuple[str, ...] = ()  # names under which they cannot, because the strategy then fails


def reporting(system: AuditedSystem, names: Sequence[str]) -> AuditedSystem:
    """Return the system with clients that report the metrics `names`, and no number of examples unless it is one."""
    metrics = tuple(name for name in names if name != system.weight)
    return replace(system, metrics=metrics, weight=system.weight if system.weight in names else _UNKNOWN)


def find_asked_metrics(weight: str, play: Callable[[tuple[str, ...]], LookupTrial]) -> MetricLookups:
    """Return the metrics that a strategy looks up by their names.

    A strategy that passes on whatever clients report looks up nothing. So clients report nothing at first, and then
    more and more of what is looked up.

    `weight` is the name of the number of examples. `play` runs a trial whose clients report the given metrics alone.
    """
    offered: tuple[str, ...] = ()
    unoffered: tuple[str, ...] = ()
    for _ in range(_MOST_NAMES):
        trial = play(offered)
        # Those come first without which the strategy fails.
        missing = re.fullmatch(r"KeyError: '([^']+)'", trial.refusal or "")
        names = missing.groups() if missing else trial.names
        known_names = (*offered, *unoffered, _UNKNOWN)
        wanted_names = tuple(dict.fromkeys(name for name in names if name not in known_names))
        if not wanted_names and trial.refusal is not None and weight not in offered:
            wanted_names = (weight,)
        if weight in wanted_names:
            wanted_names = (weight,)  # by itself, so that no other name keeps clients from reporting it
        if not wanted_names:
            break
        if trial.refusal is None and play((*offered, *wanted_names)).refusal is not None:
            unoffered += wanted_names
        else:
            offered += wanted_names
    return MetricLookups(offered, unoffered)
