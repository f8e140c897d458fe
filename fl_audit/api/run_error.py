"""The exception for a failed run, in a module that can be imported without the dependencies of a run."""


class RunError(Exception):
    """Raised if a run fails; the results of finished trials are kept, and `resume=True` continues the run."""
