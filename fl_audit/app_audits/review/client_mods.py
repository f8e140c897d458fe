"""The mods of an app's clients, as trials call them: those that see an update before it is masked."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import flwr.clientapp.client_app as flower_client
import flwr.clientapp.mod as new_mods
from flwr.app import ConfigRecord, Context, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp

from fl_audit.app_audits.black_box.audited_system import Mod, with_mods
from fl_audit.app_audits.review.app_loading import AppDescription, StubImportFinder, is_stand_in, loaded
from fl_audit.errors import InputError, in_a_line
from fl_audit.strategies.flower_grids import make_messages_for
from fl_audit.strategies.simulated_grid import FIRST_NODE, RUN_ID

MASKED = "secure aggregation is not played: trials have plain replies, of which the server would see the sum alone"
"""Remark on trials of an app with secure aggregation."""
_AGREEING = ("secaggplus_mod", "secagg_mod")
"""Names of Flower's mods for secure aggregation."""
_SERVER = 1
_SETUP_RECORD = "secaggplus_configs"
_SETUP: dict[str, str | int | float] = {
    "stage": "setup",
    "sample_num": 3,
    "share_num": 3,
    "threshold": 2,
    "clipping_range": 8.0,
    "target_range": 1 << 20,
    "mod_range": 1 << 30,
    "max_weight": 1000.0,
}
"""Settings in the server's first message of secure aggregation, which contains no model, by the names in the message.

A test compares the names with those of the installed Flower.
"""
NotedMods = Mapping[int, Sequence[Mod]]  # mods, keyed by the `id` of the function after wrapping it in them


@dataclass(frozen=True)
class CapturedMod:
    """A client mod of an app, with the message types that it applies to, and the app's run configuration."""

    mod: Mod  # the mod itself
    types: frozenset[str] | None  # message types that the mod applies to; None for all types
    config: UserConfig  # run configuration of the app, which is put into the context of each trial

    def __call__(self, message: Message, context: Context, call_next: Callable[..., Message]) -> Message:
        """Return the client's reply, through the mod if it covers the message's type."""
        if self.types is not None and message.metadata.message_type not in self.types:
            return call_next(message, context)
        context.run_config = self.config
        try:
            # By position, as Flower does, because mods may name the third argument differently.
            return self.mod(message, context, call_next)
        except Exception as error:
            # Only the innermost mod adds the note; the exception then passes through the outer mods.
            if not hasattr(error, "__notes__"):
                error.add_note(f"raised inside of {_name_of(self.mod)}")
            raise


@contextmanager
def noted_mods() -> Iterator[NotedMods]:
    """Record in a `with` block which mods Flower wraps around each function of an imported client app."""
    noted = dict[int, Sequence[Mod]]()
    kept_alive = list[object]()
    make = vars(flower_client)["make_ffn"]

    def made(function: Callable[..., Message], mods: list[Mod]) -> Callable[..., Message]:
        call: Callable[..., Message] = make(function, mods)
        noted[id(call)] = tuple(mods)
        kept_alive.append(call)
        return call

    with patch.dict(vars(flower_client), make_ffn=made):
        yield noted


def client_mods(
    app: AppDescription, finder: StubImportFinder, noted: NotedMods
) -> tuple[tuple[CapturedMod, ...], list[str], list[str]]:
    """Return the client mods that trials call, remarks on other mods, and a line if some mods could not be loaded.

    A mod applies to all messages, or only to the messages for one function of the client app. `noted` has the mods that
    the app gave to single functions.
    """
    if not app.client:
        return (), ["it names no ClientApp, so its clients have no modifiers"], []
    lost = "the clients' modifiers could not be loaded"
    try:
        client = loaded(app, app.client, finder)
    except InputError as error:
        return (), [], [f"{lost} ({error})"]
    if not isinstance(client, ClientApp):
        return (), [], [f"{lost} ({app.client} is a {type(client).__name__}, no ClientApp{finder.words})"]
    placed: list[tuple[Mod, frozenset[str] | None]] = [(mod, None) for mod in client._mods]
    if client._registered_funcs:
        placed = [
            (mod, frozenset({name, name.removesuffix(".default")}))
            for name, function in client._registered_funcs.items()
            for mod in noted.get(id(function), client._mods)
        ]
    there = [(mod, types) for mod, types in placed if not is_stand_in(mod)]
    unseen = [f"{lost} (of {len(placed)}, {len(placed) - len(there)} are missing{finder.words})"]
    config = UserConfig(app.config)
    remarks = list[str]()
    noted_mods = list[tuple[Mod, frozenset[str] | None]]()
    for types in dict.fromkeys(types for _, types in there):
        inner, remarks_inside = _within_masks(app, [mod for mod, of_types in there if of_types == types])
        noted_mods += [(mod, types) for mod in inner]
        remarks += remarks_inside
    played = tuple(CapturedMod(_in_new_form(mod), types, config) for mod, types in noted_mods)
    return played, list(dict.fromkeys(remarks)), unseen if len(there) < len(placed) else []


def client_mods_alone(app: AppDescription, finder: StubImportFinder) -> tuple[CapturedMod, ...]:
    """Load a Flower app's ClientApp without its ServerApp, and return its mods, outermost first."""
    with noted_mods() as noted:
        return client_mods(app, finder, noted)[0]


def _within_masks(app: AppDescription, mods: Sequence[Mod]) -> tuple[Sequence[Mod], list[str]]:
    """Return the mods that see an update before secure aggregation masks it, and remarks on all other mods."""
    positions = [index for index, mod in enumerate(mods) if _name_of(mod) in _AGREEING]
    if not positions:
        return mods, []
    outer = mods[: positions[0]]
    agreeing = mods[positions[0]]
    inner = mods[positions[-1] + 1 :]
    inside = _name_of(agreeing)
    for mod in outer:
        fault = _fault_outside([mod], agreeing)
        if fault:
            name = _name_of(mod)
            raise InputError(
                f"{name} stands before {inside} in the modifiers of {app.client}, and so outside of it: Flower hands "
                f"it the messages of secure aggregation, it fails at the first ({fault}), and no round of {app.name} "
                f"ends; what it does never reaches a masked vector. Accepted is {inside} before it: "
                f"mods=[{inside}, {name}, ...]"
            )
    names = ", ".join(map(_name_of, outer))
    remark = f"outside of {inside}, {names} would see masked vectors alone: trials are played without what stands there"
    return inner, [MASKED, *([remark] if outer else [])]


def _in_new_form(mod: Mod) -> Mod:
    """Convert a mod of Flower's old client interface to its counterpart in the new one; return other mods unchanged."""
    if getattr(mod, "__module__", "").startswith("flwr.client.mod"):
        new_mod: Callable[..., Any] | None = getattr(new_mods, _name_of(mod), None)
        if isinstance(new_mod, type):
            return new_mod(mod.clipping_norm, mod.sensitivity, mod.epsilon, mod.delta)  # type: ignore[attr-defined]
        return new_mod or mod
    return mod


def _name_of(mod: Mod) -> str:
    """Return a mod's name: that of the function, or of the class of a callable object."""
    return str(getattr(mod, "__name__", type(mod).__name__))


def _fault_outside(outer: Sequence[Mod], secure_aggregation_mod: Mod) -> str:
    """Return the error that mods raise on the first message of secure aggregation; "" if there is no error.

    Mods that precede the secure aggregation mod see the messages of its protocol, and see updates only in masked form.
    They may fail on both. The error is in one line.
    """
    make_messages_for(RUN_ID, _SERVER)
    message = Message(RecordDict({_SETUP_RECORD: ConfigRecord(dict(_SETUP))}), FIRST_NODE, "train")
    context = Context(
        run_id=RUN_ID, node_id=FIRST_NODE, node_config=UserConfig(), state=RecordDict(), run_config=UserConfig()
    )
    try:
        reply = with_mods((*outer, secure_aggregation_mod), _untrained)(message, context)
    except Exception as error:  # raised by Flower's mods or by the app's own
        return in_a_line(error)
    return " ".join((reply.error.reason or "an error").split()) if reply.has_error() else ""


def _untrained(message: Message, _: Context) -> Message:
    return Message(RecordDict(), reply_to=message)
