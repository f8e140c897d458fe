"""Lazy import of the module `cluster.backend`, which takes seconds and is therefore done while Ray starts."""

from typing import TYPE_CHECKING

from fl_audit.lazy_imports import lazy_modules

PLACES = ("fl_audit.experiments.runs.cluster.backend",)

if TYPE_CHECKING:
    from fl_audit.experiments.runs.cluster import backend as backend
else:
    __getattr__ = lazy_modules(__name__, PLACES)
