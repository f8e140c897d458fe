"""Comparison of two starts of an app in fresh processes: noise that is the same in both is public.

A start is played as it is, with all generators in the states in which the app starts its strategy or loads its clients,
and once more with new states. What both processes release alike, and what is something else with new states, is
randomness that repeats.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict, UserConfig
from flwr.clientapp.mod import LocalDpMod

from fl_audit.app_audits.black_box.audited_system import AuditedSystem, Mod, StrategyStartCall, with_mods
from fl_audit.app_audits.black_box.trial_messages import arrays_of, record_of
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.console_output import no_news_from_flower
from fl_audit.app_audits.review.app_loading import StubImportFinder, read_app
from fl_audit.app_audits.review.claims import StatedAppClaim
from fl_audit.app_audits.review.client_mods import client_mods_alone
from fl_audit.app_audits.review.recorded_training import (
    Release,
    generators_with,
    in_new_working_copy,
    recorded_training,
)
from fl_audit.generator_states import GeneratorStates
from fl_audit.strategies.flower_grids import make_messages_for
from fl_audit.strategies.simulated_grid import FIRST_NODE, RUN_ID
from fl_audit.words import capital

_ROUNDS = 2  # largest number of rounds that are compared
_Releases = dict[str, str]  # digests of released arrays, keyed by round and name


@dataclass(frozen=True)
class StartTrace:
    """Digests of what one start of an app released in a fresh process, to be compared with another start's."""

    releases: Mapping[str, str] = field(default_factory=dict)  # with the app's own generators, keyed by round and name
    renewed: Mapping[str, str] = field(default_factory=dict)  # with new states of all generators
    generators: Mapping[str, str] = field(default_factory=dict)  # states of the global generators, keyed by name
    failure: str = ""  # why the start could not be played; empty if it could
    # Whether the claim is about noise that clients add, so that starts of clients are to be compared in its place.
    awaits_clients: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the trace as JSON values, keyed by field name."""
        return asdict(self)


def repeated_noise(trace: StartTrace, second: StartTrace) -> str:
    """Return a phrase on randomness that two fresh starts share; empty if there is none."""
    random = [name for name, digest in trace.releases.items() if digest != trace.renewed.get(name)]
    alike = [name for name in random if trace.releases[name] == second.releases.get(name)]
    if not alike:
        return ""
    same = [name for name, digest in trace.generators.items() if digest == second.generators.get(name)]
    cause = "a generator of the app is seeded with a fixed number"
    if same:
        cause = f"{' and '.join(same)} {'is' if len(same) == 1 else 'are'} in the same state in both"
    return (
        f"its noise is the same whenever it is started anew, and so is public: of two starts in fresh processes, "
        f"{len(alike)} of {len(random)} arrays with noise were released alike to the last bit ({cause}); seed no "
        "generator of noise, or take the seed from the operating system"
    )


@dataclass(frozen=True)
class ComparedStarts:
    """Result of the comparison of two starts of an app in fresh processes."""

    words: str  # the result as a sentence
    repeats: str = ""  # phrase on noise that repeats; empty if none does
    unseen: tuple[str, ...] = ()  # why starts that should have been compared could not be


_GUESSED = "a seed that differs from start to start and can be guessed, such as the time, is not seen"
NOT_COMPARED = ComparedStarts("Starts in fresh processes were not compared: whether the noise repeats is not seen.")


def compared_starts(app_claim: StatedAppClaim, traces: Sequence[StartTrace]) -> ComparedStarts:
    """Return the comparison of two traces of an app's start; with other numbers of traces, nothing is compared."""
    if app_claim.claim is None:
        return ComparedStarts("No noise is claimed, so starts in fresh processes were not compared.")
    if len(traces) != 2:
        return NOT_COMPARED
    failure = next((trace.failure for trace in traces if trace.failure), "")
    if failure:
        why = f"whether its noise repeats in a fresh start is not seen: {failure}"
        return ComparedStarts(f"{capital(why)}.", unseen=(why,))
    repeats = repeated_noise(*traces)
    if repeats:
        return ComparedStarts(f"{capital(repeats)}.", repeats)
    if traces[0].releases == traces[0].renewed:
        return ComparedStarts("Nothing that two starts released was random: trials say what that tells.")
    return ComparedStarts(f"Two starts in fresh processes released other noise; {_GUESSED}.")


def trace_of_server(
    start: StrategyStartCall,
    states: GeneratorStates,
    nodes: int,
    system: AuditedSystem,
    claim: StatedClaim,
    rounds: int,
) -> StartTrace:
    """Play the start of a strategy with its own generators and with new ones, and return what was released."""

    def played(states: GeneratorStates | None) -> _Releases:
        return _digests(recorded_training(start, nodes, system, claim, min(max(rounds, 1), _ROUNDS), states))

    return _trace(played, states)


def trace_of_clients(directory: Path) -> StartTrace:
    """Load the client app alone, apply its mods with local noise to fixed replies, and return what they send.

    Must be called in a fresh process: what a server seeds says nothing of clients, which run elsewhere.
    """
    mods = client_mods_alone(read_app(directory), StubImportFinder(directory))
    states = GeneratorStates.current()
    noisy = [mod.mod for mod in mods if isinstance(mod.mod, LocalDpMod)]

    def played(states: GeneratorStates | None) -> _Releases:
        with generators_with(states):
            return _digests(_reply_of(noisy) for _ in range(_ROUNDS))

    with no_news_from_flower():
        return _trace(played, states)


def _trace(played: Callable[[GeneratorStates | None], _Releases], states: GeneratorStates) -> StartTrace:
    """Play a start with the states in which the app left the generators and with new ones, and return its trace."""
    try:
        with in_new_working_copy():
            # The app's own generators first: those in its modules go on from play to play.
            releases = played(states)
            return StartTrace(releases, played(None), states.digests())
    except Exception as error:  # other people's code may raise anything
        return StartTrace(generators=states.digests(), failure=f"a start could not be played ({error})")


def _reply_of(mods: Sequence[Mod]) -> Release:
    """Return the arrays of a client's reply after its mods: a model of 100 zeros, to which the client adds 0.01."""
    make_messages_for(RUN_ID, 1)
    message = Message(RecordDict({"arrays": record_of({"weight": np.zeros(100, np.float32)})}), FIRST_NODE, "train")
    context = Context(
        run_id=RUN_ID, node_id=FIRST_NODE, node_config=UserConfig(), state=RecordDict(), run_config=UserConfig()
    )

    def train(inner: Message, _: Context) -> Message:
        content = RecordDict({"arrays": record_of({"weight": np.full(100, 0.01, np.float32)})})
        return Message(content, reply_to=inner)

    reply = with_mods(mods, train)(message, context)
    return next(iter(reply.content.array_records.values()))


def _digests(log: Iterable[Release]) -> _Releases:
    releases = _Releases()
    for index, record in enumerate(log):
        for name, value in arrays_of(record).items():
            array = np.ascontiguousarray(value)
            releases[f"{index}: {name}"] = sha256(f"{array.dtype} {array.shape}".encode() + array.tobytes()).hexdigest()
    return releases
