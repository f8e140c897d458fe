"""`FederationError`, which ends a federation before it makes a wrong release."""


class FederationError(RuntimeError):
    """Raised, with a one-line message, if a contribution is missing, late or unusable; its round releases nothing."""
