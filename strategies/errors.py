"""What ends a federation before a private release could be wrong."""


class FederationError(RuntimeError):
    """A contribution is missing, late or unusable; said in one line. No release is made from that round."""
