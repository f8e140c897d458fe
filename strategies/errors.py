"""The error that ends a federation before a private release could be wrong."""


class FederationError(RuntimeError):
    """A contribution is missing, late or unusable, described in one line. No release is made from that round."""
