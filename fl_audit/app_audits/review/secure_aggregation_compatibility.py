"""Check whether client mods that precede Flower's secure aggregation mod fail on the messages of its protocol."""

from collections.abc import Sequence

from flwr.app import ConfigRecord, Context, Message, RecordDict, UserConfig
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage

from fl_audit.app_audits.black_box.audited_system import Mod, with_mods
from fl_audit.errors import in_a_line
from fl_audit.strategies.flower_grids import make_messages_for
from fl_audit.strategies.simulated_grid import FIRST_NODE, RUN_ID

AGREEING = ("secaggplus_mod", "secagg_mod")
"""Names of Flower's mods for secure aggregation."""
_SERVER = 1
_SETUP: dict[str, str | int | float] = {
    Key.STAGE: Stage.SETUP, Key.SAMPLE_NUMBER: 3, Key.SHARE_NUMBER: 3, Key.THRESHOLD: 2, Key.CLIPPING_RANGE: 8.0,
    Key.TARGET_RANGE: 1 << 20, Key.MOD_RANGE: 1 << 30, Key.MAX_WEIGHT: 1000.0,
}  # fmt: skip
"""Settings in the server's first message of secure aggregation, which contains no model."""


def name_of(mod: Mod) -> str:
    """Return a mod's name: that of the function, or of the class of a callable object."""
    return str(getattr(mod, "__name__", type(mod).__name__))


def fault_outside(outer: Sequence[Mod], secure_aggregation_mod: Mod) -> str:
    """Return the error that mods raise on the first message of secure aggregation; "" if there is no error.

    Mods that precede the secure aggregation mod see the messages of its protocol, and see updates only in masked form.
    They may fail on both. The error is in one line.
    """
    make_messages_for(RUN_ID, _SERVER)
    message = Message(RecordDict({RECORD_KEY_CONFIGS: ConfigRecord(dict(_SETUP))}), FIRST_NODE, "train")
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
