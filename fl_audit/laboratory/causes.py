"""Why games were told: the cause of a leak and the lines of the transcript that tell, read off what was seen."""

import itertools

import numpy as np

from fl_audit.arrays import Flags, Floats
from fl_audit.laboratory.features import COARSE, LOW_BITS, projections
from fl_audit.laboratory.seen import Games

_CLEAR = 5.0  # standard errors from which a difference counts as seen: causes explain a verdict, and decide nothing
_REPEATED = 0.5  # correlation of the noise of two rounds from which it counts as the same
_LINES = 4  # most lines that are shown of a kind of game


def cause_of(games: Games, present: Flags, group: str) -> str:
    """Return what explains that games were told, as a sentence; empty where nothing of the known causes is seen.

    Parameters
    ----------
    games, present, group
        Games of one kind; whether D was played, shape (games,); the group of features that told.
    """
    refused = games.refused[present].mean() - games.refused[~present].mean()
    if abs(refused) > 0.5:
        return "Whether the mechanism goes on or ends with an error tells who took part."
    if group in games.names:
        return f"A number beside the model follows from what the client sent: {group}."
    tensors = _without_noise(games, present)
    if len(tensors) == len(games.tensors):
        return "The release is the same in every game: there is no noise, or it comes from a fixed seed."
    if tensors:
        return f"What is released of {', '.join(tensors)} is the same in every game: no noise is added there."
    if group in LOW_BITS or group == COARSE:
        return "The noise is rounded before or after it is added: the last bits of the release tell what it covers."
    return _over_rounds(games, present) or _by_size(games, present) or _where(games, present)


def _without_noise(games: Games, present: Flags) -> list[str]:
    """Return the tensors that differ between D and D', and hardly between games of the same truth."""
    found = []
    for name, part in games.tensors:
        steps = np.nan_to_num(games.steps[:, :, part]).reshape(len(games), -1)
        gap = np.abs(steps[present].mean(axis=0) - steps[~present].mean(axis=0))
        spread = np.maximum(steps[present].std(axis=0), steps[~present].std(axis=0))
        # A tensor of which only some values have no noise counts too.
        if np.any((gap > 1e-9) & (spread < 1e-6 * gap)):
            found.append(name)
    return found


def _over_rounds(games: Games, present: Flags) -> str:
    """Return what differs between rounds: shifts that stay, noise that repeats, noise that becomes smaller."""
    along = projections(games)
    if along.shape[1] < 2:
        return ""
    one, zero = along[present], along[~present]
    shifts = one.mean(axis=0) - zero.mean(axis=0)
    noise = np.concatenate([one - one.mean(axis=0), zero - zero.mean(axis=0)])
    spreads = noise.std(axis=0)
    errors = spreads * np.sqrt(1 / max(len(one), 1) + 1 / max(len(zero), 1))
    correlation = np.corrcoef(noise[:, 0], noise[:, 1])[0, 1] if np.all(spreads > 0) else 0.0
    if correlation > _REPEATED:
        return "The same noise is used in several rounds: the difference of two releases has little of it."
    if shifts[-1] - shifts[0] > _CLEAR * np.hypot(errors[0], errors[-1]):
        return (
            "What one client adds stays in the sum for several rounds, as with momentum before the noise: each round "
            "shows it again, and the noise is for once."
        )
    if not (spreads[-1] < 0.9 * spreads[0] and _is_clear(spreads[0], spreads[-1], len(noise))):
        return ""
    ratio = spreads[0] / max(spreads[-1], 1e-300)
    return f"The noise becomes smaller from round to round: in the first it is {ratio:.1f} times that of the last."


def _by_size(games: Games, present: Flags) -> str:
    """Return whether the size of the noise follows from who took part."""
    parts = [games.steps[which] for which in (present, ~present)]
    noises = (np.nan_to_num(part - np.nan_to_num(part).mean(axis=0)) for part in parts)
    one, zero = (float(np.sqrt(np.mean(noise**2))) for noise in noises)
    if not _is_clear(one, zero, parts[0].size):
        return ""
    ratio = max(one, zero) / min(one, zero)
    return f"The size of the noise follows from who took part: one way it is {ratio:.2f} times the other."


def _where(games: Games, present: Flags) -> str:
    """Return in which tensor the difference shows, if it is much plainer there than in all others."""
    ratios = dict[str, float]()
    for name, part in games.tensors:
        along = np.nan_to_num(np.sum(games.steps[:, :, part] * games.direction[:, :, part], axis=(1, 2)))
        one, zero = along[present], along[~present]
        spread = float(np.sqrt((one.var() + zero.var()) / 2))
        if spread > 0:
            ratios[name] = abs(float(one.mean() - zero.mean())) / spread
    first, second = (sorted(ratios.items(), key=lambda entry: -entry[1]) + [("", 0.0)] * 2)[:2]
    is_plain = second[0] and first[1] > 3 * second[1] and first[1] > _CLEAR / np.sqrt(len(games))
    return f"It shows in {first[0]} above all: what is there is not covered as the rest is." if is_plain else ""


def _is_clear(one: float, zero: float, count: int) -> bool:
    """Return whether two spreads of normal numbers differ by more than chance."""
    return min(one, zero) > 0 and bool(abs(np.log(one / zero)) > _CLEAR / np.sqrt(max(count, 1)))


def telling_lines(games: Games, present: Flags, group: str) -> tuple[str, ...]:
    """Return the values that differ most between D and D', in spreads, as one line each.

    Parameters
    ----------
    games, present, group
        As for `cause_of`: a number of the group's name comes first.
    """
    columns = [*_released(games), *((name, games.numbers[:, place]) for place, name in enumerate(games.names))]
    ranked = sorted(columns, key=lambda column: (column[0] != group, -_distance(column[1], present)))
    told = [column for column in ranked if _distance(column[1], present) > 0]
    return tuple(
        f"{name}: {_law(values[present])} under D, {_law(values[~present])} under D'" for name, values in told[:_LINES]
    )


def _released(games: Games) -> list[tuple[str, Floats]]:
    """Return every released step by name: its round, tensor and place."""
    names = [f"{name}[{place}]" for name, part in games.tensors for place in range(part.stop - part.start)]
    places = itertools.product(range(games.steps.shape[1]), enumerate(names))
    return [(f"round {at + 1}, step of {name}", games.steps[:, at, column]) for at, (column, name) in places]


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


def _law(values: Floats) -> str:
    there = values[np.isfinite(values)]
    if not there.size:
        return "no value"
    share = "" if there.size == values.size else f" in {there.size / values.size:.0%} of games"
    spread = float(there.std())
    around = f"{there.mean():.4g}" if spread == 0 else f"{there.mean():.4g} ± {spread:.2g}"
    return around + share
