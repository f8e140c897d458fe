"""The guarantees of Flower's own differential privacy in use: `python -m tests.validation flower_mechanisms`.

Every wrapper is held to what its documentation says, first in the use for which the guarantee holds by its own words,
then in uses that are common and not covered. A row that is `violated` in the second part is no defect of the wrapper
alone: it says what a user has to take care of. The trials are those of `fl-audit strategy`.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from math import log, sqrt
from typing import NamedTuple

from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp import strategy
from flwr.serverapp.strategy import FedAvg, Strategy
from rich.console import Console

from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.black_box import AuditedSystem, Observer
from fl_audit.app_audits.black_box.audited_system import Mod
from fl_audit.app_audits.black_box.system_audit import audit_system
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_results import QUICK, ClaimAudit
from fl_audit.experiments.studies.study_commands import parser_of, table_of

CLIENTS = 4
_ORDINARY = ("removed", "huge", "huge in every tensor", "tiny", "alternating", "once")
_WEIGHTS = ("many examples", "more examples than true", "nothing")
_FORMS = ("parameter without axes", "parameter of whole numbers")
_REPLACED = ("opposite", "replaced", "huge and opposite")
_ZERO = ("zero", "all zero")
_BROKEN_REPLIES = ("missing reply", "not a number", "permuted keys")
_LOCAL_DELTA = 1e-5


class Use(NamedTuple):
    """One use of a mechanism, and the guarantee that a user would expect."""

    mechanism: str  # name of the wrapper or modifier
    use: str  # in words
    is_claimed: bool  # whether the documentation covers this use
    system: AuditedSystem  # the system
    claim: StatedClaim  # the guarantee
    only: tuple[str, ...]  # scenarios that make up this use


def _fed_avg() -> FedAvg:
    return FedAvg(fraction_evaluate=0.0)


def _fixed_around(wrapper: Callable[..., Strategy]) -> Strategy:
    return wrapper(_fed_avg(), 1.0, 1.0, CLIENTS)


def _adaptive_around(wrapper: Callable[..., Strategy], rate: float) -> Strategy:
    return wrapper(_fed_avg(), 1.0, CLIENTS, initial_clipping_norm=1.0, clip_norm_lr=rate, clipped_count_stddev=1.0)


_REMOVE, _REPLACE = Adjacency.ADD_REMOVE_CLIENT, Adjacency.REPLACE_CLIENT
_ONE, _FIVE = (StatedClaim(_REMOVE, noise_multiplier=1.0, rounds=rounds) for rounds in (1, 5))
_ONE_REPLACED = StatedClaim(_REPLACE, noise_multiplier=1.0)


def _fixed(name: str, wrapper: Callable[..., Strategy], *mods: Mod) -> tuple[Use, ...]:
    system = AuditedSystem(partial(_fixed_around, wrapper), mods, clients=CLIENTS)
    return (
        Use(name, "a client's update is left out, equal weights", True, system, _ONE, _ORDINARY),
        Use(name, "the same over 5 rounds, composed", True, system, _FIVE, _ORDINARY),
        Use(name, "a client is exchanged for another one", False, system, _ONE_REPLACED, _REPLACED),
        Use(name, "weights by numbers of examples", False, system, _ONE, _WEIGHTS),
        Use(name, "parameters without axes, or of whole numbers", False, system, _ONE, _FORMS),
        Use(name, "an update of exactly zero", False, system, _ONE, _ZERO),
        Use(name, "missing, non-finite or reordered replies", False, system, _ONE, _BROKEN_REPLIES),
        Use(name, "clients report a loss, which is part of what is released", False,
            replace(system, metrics=("loss",)), _ONE, ("metrics",)),
    )  # fmt: skip


def _adaptive(name: str, wrapper: Callable[..., Strategy], *mods: Mod) -> tuple[Use, ...]:
    # The wrapper spends its noise multiplier on both releases together: the guarantee is that of one with z = 1.
    usual, fast = (
        AuditedSystem(partial(_adaptive_around, wrapper, rate), mods, clients=CLIENTS) for rate in (0.2, 1.0)
    )
    return (
        Use(name, "one round, rate .2 of the norm", True, usual, _ONE, _ORDINARY),
        Use(name, "5 rounds, rate .2 of the norm", True, usual, _FIVE, _ORDINARY),
        Use(name, "5 rounds, rate 1 of the norm", True, fast, _FIVE, _ORDINARY),
        Use(name, "a client is exchanged for another one", False, usual, _ONE_REPLACED, _REPLACED),
        Use(name, "weights by numbers of examples", False, usual, _ONE, _WEIGHTS),
    )


def _local() -> tuple[Use, ...]:
    """Return the uses of `LocalDpMod`: noise for epsilon 1 a message, whose sensitivity the user names."""
    norm, twice = (
        AuditedSystem(_fed_avg, (LocalDpMod(1.0, sensitivity, 1.0, _LOCAL_DELTA),), clients=2, observer=Observer.SERVER)
        for sensitivity in (1.0, 2.0)
    )
    one, hundred = (StatedClaim(_REPLACE, 1.0, _LOCAL_DELTA, rounds=rounds) for rounds in (1, 100))
    noise = StatedClaim(_REPLACE, noise_multiplier=sqrt(2 * log(1.25 / _LOCAL_DELTA)))
    name, kinds = "LocalDpMod, seen by the server", ("opposite", "huge and opposite")
    return (
        Use(name, "one message, sensitivity twice the norm", True, twice, one, kinds),
        Use(name, "one message, sensitivity the norm, one client for another", False, norm, noise, kinds),
        Use(name, "100 messages under the epsilon of one", False, twice, hundred, ("opposite",)),
    )


def main() -> None:
    parser = parser_of(__doc__, "fewer trials")
    parser.add_argument("--only", metavar="WORDS", default="", help="only mechanisms whose name contains this")
    parser.add_argument("--processes", type=int, default=2, help="trials played at the same time")
    options, console = parser.parse_args(), Console(width=200)
    columns = ("mechanism", "use", "documented", "claim", "verdict", "told by", "epsilon at least", "right", "s")
    table, budget = table_of(columns, words=columns), QUICK if options.quick else None
    uses = (
        *_fixed("fixed clipping, server side", strategy.DifferentialPrivacyServerSideFixedClipping),
        *_fixed("fixed clipping, client side", strategy.DifferentialPrivacyClientSideFixedClipping, fixedclipping_mod),
        *_adaptive("adaptive clipping, server side", strategy.DifferentialPrivacyServerSideAdaptiveClipping),
        *_adaptive("adaptive clipping, client side", strategy.DifferentialPrivacyClientSideAdaptiveClipping,
                   adaptiveclipping_mod),
        *_local(),
    )  # fmt: skip
    for use in (use for use in uses if options.only in use.mechanism):
        start = time.monotonic()
        result = audit_system(use.system, use.claim, budget=budget, processes=options.processes, include=use.only)
        table.add_row(*_row(use, result), f"{time.monotonic() - start:.0f}")
        console.print(f"{use.mechanism}: {use.use}: {result.verdict}", style="dim")
    console.print(f"Differential privacy of Flower {version('flwr')}, {CLIENTS} clients, norm 1")
    console.print(table)


def _row(use: Use, result: ClaimAudit) -> tuple[str, ...]:
    said = (use.mechanism, use.use, "yes" if use.is_claimed else "no", use.claim.words, str(result.verdict))
    if result.worst is None:
        return (*said, "nothing could be played", "", "")
    worst, distinguisher = result.worst, result.worst.distinguisher
    bound = f"{worst.bound:.2f} of {distinguisher.limit.epsilon:.2f} (delta {distinguisher.limit.delta:.2g})"
    return (
        *said,
        f"{distinguisher.kind}: {distinguisher.group}",
        bound,
        f"{worst.right / worst.trials:.1%} of {use.claim.success:.1%}",
    )
