"""Messages of the grids on which both engines run: their ids, and replies to failed client calls."""

import uuid

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode


def give_id(message: Message) -> str:
    """Give a message a new random id, and return the id."""
    message.metadata.__dict__["_message_id"] = identity = str(uuid.uuid4())
    return identity


def failed_reply(message: Message, failure: Exception) -> Message:
    """Return the error reply to a message whose client call failed.

    Parameters
    ----------
    message
        The message to the client.
    failure
        The exception of the client call, which the reply names.
    """
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, f"Message: {failure}"), reply_to=message)
