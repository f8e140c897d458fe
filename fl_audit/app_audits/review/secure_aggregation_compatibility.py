"""Check whether client mods that precede Flower's secure aggregation mod fail on the messages of its protocol."""

from collections.abc import Sequence

from flwr.app import ConfigRecord, Context, Message, RecordDict, UserConfig

from fl_audit.app_audits.black_box.audited_system import Mod, with_mods
from fl_audit.errors import in_a_line
from fl_audit.strategies.flower_grids import make_messages_for
from fl_audit.strategies.simulated_grid import FIRST_NODE, RUN_ID

AGREEING = ("secaggplus_mod", "secagg_mod")
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


def name_of(mod: Mod) -> str:
    """Return a mod's name: that of the function, or of the class of a callable object."""
    return str(getattr(mod, "__name__", type(mod).__name__))


def fault_outside(outer: Sequence[Mod], secure_aggregation_mod: Mod) -> str:
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
