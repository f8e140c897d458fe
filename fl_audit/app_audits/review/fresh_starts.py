"""Comparison of two starts of an app in fresh processes: noise that is the same in both is public.

A start is played as it is, with all generators in the states in which the app starts its strategy or loads its clients,
and once more with new states. What both processes release alike, and what is something else with new states, is
randomness that repeats.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict, UserConfig
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fl_audit.adjacency import Relation
from fl_audit.app_audits.black_box.audited_system import (
    AuditedSystem,
    Mod,
    StrategyStartCall,
    seed_generators,
    spared_generators,
    with_mods,
)
from fl_audit.app_audits.black_box.black_box_trial import BlackBoxTrial
from fl_audit.app_audits.black_box.message_tensors import arrays_of, record_of
from fl_audit.app_audits.black_box.scenarios import BY_NAME
from fl_audit.app_audits.black_box.trials_after_training import no_news_from_flower
from fl_audit.app_audits.black_box.working_copy import WorkingCopy, in_working_copy
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.review.app_loading import StubImportFinder, read_app
from fl_audit.app_audits.review.claims import StatedAppClaim
from fl_audit.app_audits.review.generator_states import GeneratorStates
from fl_audit.app_audits.review.strategy_capture import client_mods_alone
from fl_audit.app_audits.review.virtual_clients import TrialStrategyFactory, VirtualClientGrid
from fl_audit.randomness import Purpose, generator
from fl_audit.report.formatting import capital
from fl_audit.strategies.flower_grids import make_messages_for
from fl_audit.strategies.simulated_grid import FIRST_NODE, RUN_ID

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


def repeated_noise(first: StartTrace, second: StartTrace) -> str:
    """Return a phrase on randomness that two fresh starts share; empty if there is none."""
    random = [name for name, digest in first.releases.items() if digest != first.renewed.get(name)]
    alike = [name for name in random if first.releases[name] == second.releases.get(name)]
    if not alike:
        return ""
    same = [name for name, digest in first.generators.items() if digest == second.generators.get(name)]
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


def compared_starts(stated: StatedAppClaim, traces: Sequence[StartTrace]) -> ComparedStarts:
    """Return the comparison of two traces of an app's start; with other numbers of traces, nothing is compared."""
    if stated.claim is None:
        return ComparedStarts("No noise is claimed, so starts in fresh processes were not compared.")
    if len(traces) != 2:
        return NOT_COMPARED
    failure = next((one.failure for one in traces if one.failure), "")
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
    mods = tuple(with_fixed_generators(mod) for mod in system.mods)

    def played(renews: bool) -> _Releases:
        log = list[Mapping[str, Any]]()
        factory = RecordingFactory(start, nodes, system.clients, log=log, renews=renews)
        plain = "removed" if claim.neighbours.relation is Relation.ADD_REMOVE else "opposite"
        kind = BY_NAME[plain if system.model is None else f"{plain}, own model"]
        once = replace(claim, rounds=min(max(rounds, 1), _ROUNDS))
        own = replace(system, strategy=factory.new_strategy, mods=mods)
        with spared_generators():
            if renews:
                seed_generators(np.random.default_rng())
            else:
                states.restore()
            seen = BlackBoxTrial(own, once, kind, True, generator(0, Purpose.BLACK_BOX)).play()
        if seen.refusal is not None:
            raise RuntimeError(seen.refusal)
        return _digests(log)

    return _trace(played, states)


def trace_of_clients(directory: Path) -> StartTrace:
    """Load the client app alone, apply its mods with local noise to fixed replies, and return what they send.

    Must be called in a fresh process: what a server seeds says nothing of clients, which run elsewhere.
    """
    mods = client_mods_alone(read_app(directory), StubImportFinder(directory))
    states = GeneratorStates.current()
    noisy = [mod.mod for mod in mods if isinstance(mod.mod, LocalDpMod)]

    def played(renews: bool) -> _Releases:
        log = list[Mapping[str, Any]]()
        with spared_generators():
            if renews:
                seed_generators(np.random.default_rng())
            else:
                states.restore()
            for _ in range(_ROUNDS):
                log.append(_reply_of(noisy))
        return _digests(log)

    with no_news_from_flower():
        return _trace(played, states)


def _trace(played: Any, states: GeneratorStates) -> StartTrace:
    copy = WorkingCopy(Path.cwd())
    try:
        with in_working_copy(copy, thoroughly=False):
            # The app's own generators first: those in its modules go on from play to play.
            own = played(False)
            return StartTrace(own, played(True), states.digests())
    except Exception as error:  # other people's code may raise anything
        return StartTrace(generators=states.digests(), failure=f"a start could not be played ({error})")
    finally:
        copy.remove()


def _reply_of(mods: Sequence[Mod]) -> Mapping[str, Any]:
    """Return the arrays of a client's reply after its mods: a model of 100 zeros, to which the client adds ones."""
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


def with_fixed_generators(mod: Mod) -> Mod:
    """Return a mod that always draws the same, so that what the server draws can be compared.

    A client runs in another process than the server, whose seeds say nothing of its noise.
    """

    def fixed(message: Message, context: Context, call_next: Any) -> Message:
        with spared_generators():
            seed_generators(generator(0, Purpose.BLACK_BOX))
            return mod(message, context, call_next)

    return fixed


def _digests(log: Iterable[Mapping[str, Any]]) -> _Releases:
    found = _Releases()
    for place, record in enumerate(log):
        for name, value in arrays_of(record).items():
            array = np.ascontiguousarray(value)
            found[f"{place}: {name}"] = sha256(f"{array.dtype} {array.shape}".encode() + array.tobytes()).hexdigest()
    return found


@dataclass
class RecordingFactory(TrialStrategyFactory):
    """Factory of an app's strategy, as it is or with new states of its generators, whose releases are recorded."""

    log: list[Mapping[str, Any]] = field(default_factory=list)  # models that were sent, and the last one
    renews: bool = False  # whether the strategy's own generators get new states

    def new_strategy(self) -> Strategy:
        """Return a copy of the app's strategy, whose `start` records each model that it releases."""
        copy = self.start.copy_for_trial(0, np.random.default_rng()) if self.renews else self.start.copied()
        begin, arguments = copy.strategy.start, {k: v for k, v in copy.arguments.items() if k != "num_rounds"}

        def start(grid: Grid, arrays: ArrayRecord, num_rounds: int) -> Result:
            seated = _RecordingGrid(grid, self.nodes, self.seats, self.log)
            result = begin(grid=seated, initial_arrays=arrays, num_rounds=num_rounds, **arguments)
            if result.arrays is not None:
                self.log.append(result.arrays)
            return result

        copy.strategy.start = start  # type: ignore[method-assign, assignment]
        return copy.strategy


class _RecordingGrid(VirtualClientGrid):
    """Grid that records the model of the first message to train in each round."""

    def __init__(self, room: Grid, nodes: int, seats: int, log: list[Mapping[str, Any]]) -> None:
        super().__init__(room, nodes, seats)
        self._log = log

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Record the model of the first message, and send all messages."""
        asked = list(messages)
        if asked and asked[0].metadata.message_type.startswith("train"):
            self._log += list(asked[0].content.array_records.values())
        return super().push_messages(asked)
