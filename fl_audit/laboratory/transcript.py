"""The lines of a game's transcript that tell D from D': what was seen, as means and spreads of both."""

import numpy as np

from fl_audit.arrays import Flags, Floats
from fl_audit.laboratory.seen import Games

_LINES = 4  # most lines that are shown of a kind of game


def telling_lines(games: Games, present: Flags, group: str) -> tuple[str, ...]:
    """Return the values that differ most between D and D', in spreads, as one line each.

    Parameters
    ----------
    games
        Games of one kind.
    present
        Whether D was played, shape (games,).
    group
        The group of features that told: a number of this name comes first.
    """
    columns = [*_released(games), *((name, games.numbers[:, place]) for place, name in enumerate(games.names))]
    ranked = sorted(columns, key=lambda column: (column[0] != group, -_distance(column[1], present)))
    told = [column for column in ranked if _distance(column[1], present) > 0]
    return tuple(_line(name, values, present) for name, values in told[:_LINES])


def _released(games: Games) -> list[tuple[str, Floats]]:
    """Return every released step by name: its round, tensor and place."""
    names = [f"{name}[{place}]" for name, part in games.tensors for place in range(part.stop - part.start)]
    return [
        (f"round {round + 1}, step of {name}", games.steps[:, round, column])
        for round in range(games.steps.shape[1])
        for column, name in enumerate(names)
    ]


def _distance(values: Floats, present: Flags) -> float:
    """Return by how many spreads D and D' differ; infinite where one of them alone has no value."""
    there = np.isfinite(values)
    shares = there[present].mean() - there[~present].mean()
    if abs(shares) > 0.5:
        return float("inf")
    one, zero = values[present & there], values[~present & there]
    if not (one.size and zero.size):
        return 0.0
    gap = abs(float(one.mean() - zero.mean()))
    spread = float(np.sqrt((one.var() + zero.var()) / 2))
    # Means of equal numbers differ by rounding, if there are more of them under D than under D'.
    is_rounding = gap <= 1e-12 * float(np.max(np.abs(one)))
    return 0.0 if is_rounding else gap / max(spread, 1e-9 * gap)


def _line(name: str, values: Floats, present: Flags) -> str:
    return f"{name}: {_law(values[present])} under D, {_law(values[~present])} under D'"


def _law(values: Floats) -> str:
    there = values[np.isfinite(values)]
    if not there.size:
        return "no value"
    share = "" if there.size == values.size else f" in {there.size / values.size:.0%} of games"
    spread = float(there.std())
    around = f"{there.mean():.4g}" if spread == 0 else f"{there.mean():.4g} ± {spread:.2g}"
    return around + share
