"""Modifiers around secure aggregation: their effect on its messages, as Flower passes them on."""

from collections.abc import Sequence

from flwr.app import ConfigRecord, Context, Message, RecordDict, UserConfig
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage

from fl_audit.errors import in_a_line
from fl_audit.strategies.black_box.audited_system import Mod, modified
from fl_audit.strategies.flower_grids import FIRST_NODE, RUN_ID, make_messages_for

AGREEING = ("secaggplus_mod", "secagg_mod")
"""Names of Flower's modifiers of secure aggregation."""
_SERVER = 1
_SETUP: dict[str, str | int | float] = {
    Key.STAGE: Stage.SETUP, Key.SAMPLE_NUMBER: 3, Key.SHARE_NUMBER: 3, Key.THRESHOLD: 2, Key.CLIPPING_RANGE: 8.0,
    Key.TARGET_RANGE: 1 << 20, Key.MOD_RANGE: 1 << 30, Key.MAX_WEIGHT: 1000.0,
}  # fmt: skip
"""The first message of a server with secure aggregation, which holds no model."""


def name_of(mod: Mod) -> str:
    """Return the name of a mod: that of its function, or of its class."""
    return str(getattr(mod, "__name__", type(mod).__name__))


def fault_outside(outer: Sequence[Mod], agreeing: Mod) -> str:
    """Return one line on the failure of the first message of secure aggregation in outer mods; empty if it succeeds.

    Flower puts the first mod of a list outermost: this mod sees the protocol's messages, and only masked vectors.

    Parameters
    ----------
    outer
        Mods that come before the one of secure aggregation in the list of a client app.
    agreeing
        The mod of secure aggregation.
    """
    make_messages_for(RUN_ID, _SERVER)
    message = Message(RecordDict({RECORD_KEY_CONFIGS: ConfigRecord(dict(_SETUP))}), FIRST_NODE, "train")
    context = Context(
        run_id=RUN_ID, node_id=FIRST_NODE, node_config=UserConfig(), state=RecordDict(), run_config=UserConfig()
    )
    try:
        reply = modified((*outer, agreeing), _untrained)(message, context)
    except Exception as error:  # of Flower's modifiers, or of the app's own
        return in_a_line(error)
    return " ".join((reply.error.reason or "an error").split()) if reply.has_error() else ""


def _untrained(message: Message, _: Context) -> Message:
    """Replace the training of a client, which the first message does not reach."""
    return Message(RecordDict(), reply_to=message)
