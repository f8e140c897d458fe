"""Lazy import of the module `cluster.flower_runtime_patch`.

The import takes seconds and is therefore done while Ray starts.
"""

from typing import TYPE_CHECKING

from fl_audit.lazy_imports import lazy_modules

PLACES = ("fl_audit.runs.cluster.flower_runtime_patch",)

if TYPE_CHECKING:
    from fl_audit.runs.cluster import flower_runtime_patch as flower_runtime_patch
else:
    __getattr__ = lazy_modules(__name__, PLACES)
