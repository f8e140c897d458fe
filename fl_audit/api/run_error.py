"""The error of a run that had to stop, in a module without the imports that running needs."""


class RunError(Exception):
    """A run that had to stop; its finished part is kept, and `resume=True` continues it."""
