"""The error that ends a federation before a wrong release could be made."""


class FederationError(RuntimeError):
    """A contribution is missing, late or unusable; the message is one line. Nothing is released from its round."""
