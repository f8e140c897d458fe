"""Audit of a strategy for `fl-audit strategy`: a subprocess makes the strategy and carries out trials.

The calling process reports the results. The subprocess calls the function of `isolated_strategy_audit`.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.launchers.isolated_process import run_command_isolated
from fl_audit.errors import InputError
from fl_audit.privacy.accounting_enums import MultiplierReference
from fl_audit.value_checks import choice, require_number

_AUDIT = "fl_audit.app_audits.launchers.isolated_strategy_audit:audit_users_strategy"
_START = 60.0  # seconds beyond the time for the trials in which a process may start and end, at most


@dataclass(frozen=True)
class StrategyOptions:
    """Options of the audit of a strategy, as given on the command line."""

    factory: str  # makes the strategy or system, as `package.module:name`
    adjacency: str  # between which neighbours the claim holds
    epsilon: float | None = None  # the claimed epsilon
    delta: float = 1e-5  # delta of the claimed epsilon
    noise_multiplier: float | None = None  # the claimed noise, in its place
    noise_over: str = "sensitivity"  # quantity that the claimed noise multiplies
    rounds: int | None = None  # rounds that the claim is for; None for one, with a look at later rounds
    clients: int | None = None  # clients in a trial; None for the number that the strategy names, or 4
    norm: float | None = None  # norm that the claim refers to; None for the strategy's
    is_clipped: bool = True  # whether anything but the clients' own code clips
    observer: str = "client"  # position of the adversary
    exclude: tuple[str, ...] = ()  # scenarios that are left out
    include: tuple[str, ...] | None = None  # scenarios that are played; None for all
    confidence: float = 0.95  # as of `audit_system`
    is_quick: bool = False  # whether fewer trials are played
    processes: int = 2  # as of `audit_system`
    seconds: float | None = None  # time for the trials; None for as long as they take
    seed: int = 0  # as of `audit_system`

    def claim(self) -> StatedClaim | None:
        """Return the claim that the options state; None if it is left to the strategy.

        Raises `InputError` if the options state no valid claim.
        """
        between = choice(Adjacency, "--adjacency", self.adjacency)
        over = choice(MultiplierReference, "noise-over", self.noise_over)
        require_number("rounds are", self.claimed_rounds, "whole numbers from 1")
        if self.clients is not None:
            require_number("clients are", self.clients, "whole numbers from 2")
        if self.epsilon is None and self.noise_multiplier is None:
            return None
        return StatedClaim(between, self.epsilon, self.delta, self.noise_multiplier, self.claimed_rounds, over)

    @property
    def claimed_rounds(self) -> int:
        """Number of rounds that the claim is for."""
        return 1 if self.rounds is None else self.rounds


def audit_in_subprocess(options: StrategyOptions, out: Path | None = None) -> dict[str, Any]:
    """Audit a strategy in a subprocess, and return the result as JSON values, with the path of a page as `report`."""
    seconds = math.inf if options.seconds is None else 2 * options.seconds + _START
    answer_values, ended, _ = run_command_isolated(_AUDIT, options, out, seconds, is_quiet=False)
    if answer_values is None:
        raise InputError(
            f"the process that plays trials against {options.factory} {ended}, before any trial was judged: "
            "accepted is "
            "a strategy that raises an exception where it cannot go on, and whose trials end"
        )
    if ended:
        page = "" if out is None else ", and no page was written"
        early = f"the process that plays trials {ended}: this is what it had judged until then{page}"
        answer_values["stopped_early"] = early
        answer_values["lines"].append(["Stopped early", f"{early}."])
    return answer_values
