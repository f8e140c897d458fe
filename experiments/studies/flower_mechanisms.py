"""What Flower's own differential privacy holds of its promise: `python -m experiments.studies.flower_mechanisms`.

Every wrapper is held to what its documentation says, first in the use for which the promise holds by its own words,
then in uses that are common and not covered. A row that is `violated` in the second part is no defect of the wrapper
alone: it says what a user has to take care of. The games are those of `fl-audit strategy`.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from math import log, sqrt

from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Strategy,
)
from rich.console import Console
from rich.table import Table

from fl_audit.adjacency import Adjacency
from fl_audit.laboratory.claim import StatedClaim
from fl_audit.laboratory.trial import QUICK, Budget, Trial
from strategies.games import Observer, Subject
from strategies.games.campaign import hold_to_claim

CLIENTS = 4
_ORDINARY = ("removed", "huge", "huge in every tensor", "tiny", "alternating", "once")
_WEIGHTS = ("many examples", "more examples than true", "nothing")
_FORMS = ("parameter without axes", "parameter of whole numbers")
_REPLACED = ("opposite", "replaced", "huge and opposite")
_ZERO = ("zero", "all zero")
_BROKEN_REPLIES = ("missing reply", "not a number", "permuted keys")
_LOCAL_EPSILON, _LOCAL_DELTA = 1.0, 1e-5


@dataclass(frozen=True)
class Use:
    """One way to use a mechanism, and the promise that somebody would expect to have."""

    mechanism: str  # name of the wrapper or modifier
    use: str  # in words
    is_promised: bool  # whether the documentation covers this use
    subject: Subject  # what is played
    claim: StatedClaim  # the promise
    only: tuple[str, ...]  # kinds of games that make up this use


def _fed_avg() -> FedAvg:
    return FedAvg(fraction_evaluate=0.0)


def _server_fixed() -> Strategy:
    return DifferentialPrivacyServerSideFixedClipping(_fed_avg(), 1.0, 1.0, CLIENTS)


def _client_fixed() -> Strategy:
    return DifferentialPrivacyClientSideFixedClipping(_fed_avg(), 1.0, 1.0, CLIENTS)


def _server_adaptive(rate: float) -> Strategy:
    return DifferentialPrivacyServerSideAdaptiveClipping(
        _fed_avg(), 1.0, CLIENTS, initial_clipping_norm=1.0, clip_norm_lr=rate, clipped_count_stddev=1.0
    )


def _client_adaptive(rate: float) -> Strategy:
    return DifferentialPrivacyClientSideAdaptiveClipping(
        _fed_avg(), 1.0, CLIENTS, initial_clipping_norm=1.0, clip_norm_lr=rate, clipped_count_stddev=1.0
    )


def uses() -> tuple[Use, ...]:
    """Return every use that is tried."""
    return (
        *_fixed("fixed clipping, server side", _server_fixed, ()),
        *_fixed("fixed clipping, client side", _client_fixed, (fixedclipping_mod,)),
        *_adaptive("adaptive clipping, server side", _server_adaptive, ()),
        *_adaptive("adaptive clipping, client side", _client_adaptive, (adaptiveclipping_mod,)),
        *_local(),
    )


def _fixed(name: str, strategy: Callable[[], Strategy], mods: tuple[Callable[..., object], ...]) -> tuple[Use, ...]:
    subject = Subject(strategy, mods, clients=CLIENTS)  # type: ignore[arg-type]
    remove = StatedClaim(Adjacency.ADD_REMOVE_CLIENT, noise_multiplier=1.0)
    rounds = StatedClaim(Adjacency.ADD_REMOVE_CLIENT, noise_multiplier=1.0, rounds=5)
    replace = StatedClaim(Adjacency.REPLACE_CLIENT, noise_multiplier=1.0)
    return (
        Use(name, "a client's update is left out, equal weights", True, subject, remove, _ORDINARY),
        Use(name, "the same over 5 rounds, composed", True, subject, rounds, _ORDINARY),
        Use(name, "a client is exchanged for another one", False, subject, replace, _REPLACED),
        Use(name, "weights by numbers of examples", False, subject, remove, _WEIGHTS),
        Use(name, "parameters without axes, or of whole numbers", False, subject, remove, _FORMS),
        Use(name, "an update of exactly zero", False, subject, remove, _ZERO),
        Use(name, "missing, non-finite or reordered replies", False, subject, remove, _BROKEN_REPLIES),
        Use(name, "metrics are part of what is released", False, subject, remove, ("metrics",)),
    )


def _adaptive(
    name: str, strategy: Callable[[float], Strategy], mods: tuple[Callable[..., object], ...]
) -> tuple[Use, ...]:
    # The wrapper spends its noise multiplier on both releases together: the promise is that of one with z = 1.
    usual = Subject(partial(strategy, 0.2), mods, clients=CLIENTS)  # type: ignore[arg-type]
    fast = Subject(partial(strategy, 1.0), mods, clients=CLIENTS)  # type: ignore[arg-type]
    one = StatedClaim(Adjacency.ADD_REMOVE_CLIENT, noise_multiplier=1.0)
    five = StatedClaim(Adjacency.ADD_REMOVE_CLIENT, noise_multiplier=1.0, rounds=5)
    return (
        Use(name, "one round, rate .2 of the norm", True, usual, one, _ORDINARY),
        Use(name, "5 rounds, rate .2 of the norm", True, usual, five, _ORDINARY),
        Use(name, "5 rounds, rate 1 of the norm", True, fast, five, _ORDINARY),
        Use(name, "a client is exchanged for another one", False, usual, StatedClaim(
            Adjacency.REPLACE_CLIENT, noise_multiplier=1.0), _REPLACED),
        Use(name, "weights by numbers of examples", False, usual, one, _WEIGHTS),
    )  # fmt: skip


def _local() -> tuple[Use, ...]:
    """Return the uses of `LocalDpMod`: noise for epsilon 1 a message, whose sensitivity the user names."""

    def subject(sensitivity: float) -> Subject:
        mod = LocalDpMod(1.0, sensitivity, _LOCAL_EPSILON, _LOCAL_DELTA)
        return Subject(_fed_avg, (mod,), clients=2, observer=Observer.SERVER)

    def claim(adjacency: Adjacency, rounds: int) -> StatedClaim:
        return StatedClaim(adjacency, _LOCAL_EPSILON, _LOCAL_DELTA, rounds=rounds)

    name = "LocalDpMod, seen by the server"
    noise = sqrt(2 * log(1.25 / _LOCAL_DELTA)) / _LOCAL_EPSILON
    return (
        Use(name, "one message, sensitivity twice the norm", True, subject(2.0), claim(Adjacency.REPLACE_CLIENT, 1),
            ("opposite", "huge and opposite")),
        Use(name, "one message, sensitivity the norm, one client for another", False, subject(1.0),
            StatedClaim(Adjacency.REPLACE_CLIENT, noise_multiplier=noise), ("opposite", "huge and opposite")),
        Use(name, "100 messages under the epsilon of one", False, subject(2.0), claim(Adjacency.REPLACE_CLIENT, 100),
            ("opposite",)),
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Play every use and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer games")
    parser.add_argument("--only", metavar="WORDS", default="", help="only mechanisms whose name contains this")
    parser.add_argument("--processes", type=int, default=2, help="games played at the same time")
    options = parser.parse_args(arguments)
    table = Table("mechanism", "use", "documented", "claim", "verdict", "told by", "epsilon at least", "right", "s")
    console = Console(width=200)
    for use in (use for use in uses() if options.only in use.mechanism):
        start = time.monotonic()
        trial = play(use, QUICK if options.quick else None, options.processes)
        table.add_row(*_row(use, trial), f"{time.monotonic() - start:.0f}")
        console.print(f"{use.mechanism}: {use.use}: {trial.verdict}", style="dim")
    console.print(f"Differential privacy of Flower {version('flwr')}, {CLIENTS} clients, norm 1")
    console.print(table)


def play(use: Use, budget: Budget | None, processes: int) -> Trial:
    """Hold a use to its promise.

    Parameters
    ----------
    use
        What is played.
    budget
        How many games; None for as many as usual.
    processes
        On how many processes.
    """
    return hold_to_claim(use.subject, use.claim, budget=budget, processes=processes, only=use.only)


def _row(use: Use, trial: Trial) -> tuple[str, ...]:
    worst = trial.worst
    promised = "yes" if use.is_promised else "no"
    if worst is None:
        return use.mechanism, use.use, promised, use.claim.words, str(trial.verdict), "nothing could be played", "", ""
    limit = worst.lead.limit
    return (
        use.mechanism,
        use.use,
        promised,
        use.claim.words,
        str(trial.verdict),
        f"{worst.lead.kind}: {worst.lead.group}",
        f"{worst.bound:.2f} of {limit.epsilon:.2f} (delta {limit.delta:.2g})",
        f"{worst.right / worst.games:.1%} of {use.claim.success:.1%}",
    )


if __name__ == "__main__":
    main()
