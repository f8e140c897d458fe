"""The process of `fl-audit strategy`: the factory and the games run in one of their own, and this one tells of them.

This module is the program of that process, too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl_audit.errors import InputError, choice
from fl_audit.experiments.trials.apart import answer, wished_apart
from fl_audit.user_modules import search_last

if TYPE_CHECKING:
    from fl_audit.audits.black_box.findings import Finding
    from fl_audit.audits.black_box.trial import Trial

_START = 60.0  # seconds beyond the time for the games in which a process may start and end, at most


@dataclass(frozen=True)
class StrategyOptions:
    """What a user asks of a strategy; see the command."""

    factory: str  # makes the strategy or subject, as `package.module:name`
    adjacency: str  # between which neighbours the claim holds
    epsilon: float | None = None  # the claimed epsilon
    delta: float = 1e-5  # delta of the claimed epsilon
    noise_multiplier: float | None = None  # the claimed noise, in its place
    noise_over: str = "sensitivity"  # what the claimed noise multiplies
    rounds: int = 1  # rounds that the claim is for
    clients: int = 4  # clients in a game
    norm: float | None = None  # norm that the claim refers to; None for the strategy's
    is_clipped: bool = True  # whether anything but the clients' own code clips
    mods: tuple[str, ...] = ()  # modifiers of the client app, as `package.module:name`
    observer: str = "client"  # who looks
    without: tuple[str, ...] = ()  # kinds of games that are left out
    only: tuple[str, ...] | None = None  # kinds of games that are played; None for all
    confidence: float = 0.95  # as of `hold_to_claim`
    is_quick: bool = False  # whether fewer games are played
    processes: int = 2  # as of `hold_to_claim`
    seconds: float | None = None  # time for the games; None for as long as they take
    seed: int = 0  # as of `hold_to_claim`


def held_apart(wishes: StrategyOptions, out: Path | None = None) -> dict[str, Any]:
    """Hold a strategy to its claim in a process of its own; return JSON values, lines for the console, and the page.

    Parameters
    ----------
    wishes, out
        What is asked, and where `report.html` and `summary.json` are written; None for nowhere.

    Raises
    ------
    InputError
        If the input is wrong, or the process ended without a word.
    """
    seconds = math.inf if wishes.seconds is None else 2 * wishes.seconds + _START
    found, ended, _ = wished_apart(__name__, wishes, out, seconds, is_quiet=False)
    if found is None:
        raise InputError(
            f"the process that plays games against {wishes.factory} {ended}, before any game was judged: accepted is "
            "a strategy that raises an exception where it cannot go on, and whose games end"
        )
    if ended:
        page = "" if out is None else ", and no page was written"
        early = f"the process that plays games {ended}: this is what it had judged until then{page}"
        found["trial"]["stopped_early"] = early
        found["lines"].append(f"* Stopped early: {early}.")
    return found


def held(asked: dict[str, Any], tell: Callable[[dict[str, Any]], None] = lambda _: None) -> dict[str, Any]:
    """Hold a strategy to its claim here, and return what `held_apart` does.

    Parameters
    ----------
    asked, tell
        What `held_apart` asks; and what takes the answer so far.
    """
    from fl_audit.adjacency import Adjacency
    from fl_audit.audits.black_box.claim import StatedClaim
    from fl_audit.audits.black_box.findings import findings, trial_json
    from fl_audit.audits.black_box.trial import QUICK
    from fl_audit.privacy.names import NoiseOver
    from fl_audit.strategies.games.campaign import hold_to_claim
    from fl_audit.strategies.games.kinds import MENDS, PROVISOS, WORDS
    from fl_audit.strategies.games.subject import subject_of

    wishes = StrategyOptions(**asked["wishes"])
    neighbours = choice(Adjacency, "--adjacency", wishes.adjacency)
    over = choice(NoiseOver, "--noise-over", wishes.noise_over)
    claim = StatedClaim(neighbours, wishes.epsilon, wishes.delta, wishes.noise_multiplier, wishes.rounds, over)
    subject = subject_of(
        wishes.factory, wishes.mods, wishes.clients, wishes.norm, wishes.is_clipped, wishes.observer
    )  # fmt: skip

    def values(trial: "Trial", out: str | None = None) -> dict[str, Any]:
        found, path = findings(trial, WORDS, MENDS, PROVISOS), None
        if out is not None:
            from fl_audit.experiments.trials.page import write_trial

            path = str(write_trial(trial, found, wishes.factory, Path(out)))
        return {"trial": trial_json(trial, found), "lines": _lines(trial, found), "report": path}

    trial = hold_to_claim(
        subject,
        claim,
        budget=QUICK if wishes.is_quick else None,
        confidence=wishes.confidence,
        seed=wishes.seed,
        processes=wishes.processes,
        without=wishes.without,
        only=wishes.only,
        seconds=math.inf if wishes.seconds is None else wishes.seconds,
        keep=lambda so_far: tell(values(so_far)),
    )
    return values(trial, asked["out"])


def _lines(trial: "Trial", found: "tuple[Finding, ...]") -> list[str]:
    """Return what the console shows."""
    from fl_audit.audits.black_box.findings import opening, refusal_words

    lines = [opening(trial)]
    for finding in found:
        if finding.attempt.is_broken:
            lines.append(f"* {finding.cause}")
        lines.append(f"* {finding.sentence}")
        if finding.noise is not None:
            lines.append(f"    {finding.noise.words}")
        if finding.attempt.is_broken:
            lines += [f"    {line}" for line in (*finding.attempt.lines, f"Usual mend: {finding.mend}")]
    return lines + [f"* {said}" for said in refusal_words(trial.refusals)]


if __name__ == "__main__":
    # A strategy of one's own is looked for where the user stands.
    search_last(Path.cwd())
    answer(held)
