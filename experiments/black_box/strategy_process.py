"""The process of `fl-audit strategy`: the factory and the trials run in one of their own, and this one tells of them.

This module is the program of that process, too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl_audit.errors import InputError, choice
from fl_audit.experiments.black_box.isolated_process import answer, wished_apart
from fl_audit.user_modules import search_last

if TYPE_CHECKING:
    from fl_audit.audits.black_box.claim_audit import ClaimAudit
    from fl_audit.audits.black_box.findings import Finding

_START = 60.0  # seconds beyond the time for the trials in which a process may start and end, at most


@dataclass(frozen=True)
class StrategyOptions:
    """What a user asks of a strategy; see the command."""

    factory: str  # makes the strategy or system, as `package.module:name`
    adjacency: str  # between which neighbours the claim holds
    epsilon: float | None = None  # the claimed epsilon
    delta: float = 1e-5  # delta of the claimed epsilon
    noise_multiplier: float | None = None  # the claimed noise, in its place
    noise_over: str = "sensitivity"  # what the claimed noise multiplies
    rounds: int = 1  # rounds that the claim is for
    clients: int = 4  # clients in a trial
    norm: float | None = None  # norm that the claim refers to; None for the strategy's
    is_clipped: bool = True  # whether anything but the clients' own code clips
    mods: tuple[str, ...] = ()  # modifiers of the client app, as `package.module:name`
    observer: str = "client"  # where the adversary sits
    exclude: tuple[str, ...] = ()  # scenarios that are left out
    include: tuple[str, ...] | None = None  # scenarios that are played; None for all
    confidence: float = 0.95  # as of `audit_system`
    is_quick: bool = False  # whether fewer trials are played
    processes: int = 2  # as of `audit_system`
    seconds: float | None = None  # time for the trials; None for as long as they take
    seed: int = 0  # as of `audit_system`


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
            f"the process that plays trials against {wishes.factory} {ended}, before any trial was judged: accepted is "
            "a strategy that raises an exception where it cannot go on, and whose trials end"
        )
    if ended:
        page = "" if out is None else ", and no page was written"
        early = f"the process that plays trials {ended}: this is what it had judged until then{page}"
        found["result"]["stopped_early"] = early
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
    from fl_audit.audits.black_box.claim_audit import QUICK
    from fl_audit.audits.black_box.findings import findings, result_json
    from fl_audit.privacy.names import NoiseOver
    from fl_audit.strategies.black_box.audited_system import system_of
    from fl_audit.strategies.black_box.scenarios import FIXES, PROVISOS, WORDS
    from fl_audit.strategies.black_box.trial_runner import audit_system

    wishes = StrategyOptions(**asked["wishes"])
    neighbours = choice(Adjacency, "--adjacency", wishes.adjacency)
    over = choice(NoiseOver, "--noise-over", wishes.noise_over)
    claim = StatedClaim(neighbours, wishes.epsilon, wishes.delta, wishes.noise_multiplier, wishes.rounds, over)
    system = system_of(
        wishes.factory, wishes.mods, wishes.clients, wishes.norm, wishes.is_clipped, wishes.observer
    )  # fmt: skip

    def values(result: "ClaimAudit", out: str | None = None) -> dict[str, Any]:
        found, path = findings(result, WORDS, FIXES, PROVISOS), None
        if out is not None:
            from fl_audit.experiments.black_box.page import write_result

            path = str(write_result(result, found, wishes.factory, Path(out)))
        return {"result": result_json(result, found), "lines": _lines(result, found), "report": path}

    result = audit_system(
        system,
        claim,
        budget=QUICK if wishes.is_quick else None,
        confidence=wishes.confidence,
        seed=wishes.seed,
        processes=wishes.processes,
        exclude=wishes.exclude,
        include=wishes.include,
        seconds=math.inf if wishes.seconds is None else wishes.seconds,
        keep=lambda so_far: tell(values(so_far)),
    )
    return values(result, asked["out"])


def _lines(result: "ClaimAudit", found: "tuple[Finding, ...]") -> list[str]:
    """Return what the console shows."""
    from fl_audit.audits.black_box.findings import opening, refusal_words

    lines = [opening(result)]
    for finding in found:
        if finding.attempt.is_broken:
            lines.append(f"* {finding.cause}")
        lines.append(f"* {finding.sentence}")
        if finding.noise is not None:
            lines.append(f"    {finding.noise.words}")
        if finding.attempt.is_broken:
            lines += [f"    {line}" for line in (*finding.attempt.lines, f"Usual fix: {finding.fix}")]
    return lines + [f"* {said}" for said in refusal_words(result.refusals)]


if __name__ == "__main__":
    # A strategy of one's own is looked for where the user stands.
    search_last(Path.cwd())
    answer(held)
