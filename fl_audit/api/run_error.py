"""The error of a run that had to stop; who only catches it need not import what plays runs."""


class RunError(Exception):
    """A run that had to stop; what was finished is kept, and `resume=True` goes on."""
