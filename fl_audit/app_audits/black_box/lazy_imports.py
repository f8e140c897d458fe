"""Delay the import of modules that only the server needs until their first use; clients import this package, too."""

from typing import TYPE_CHECKING

from fl_audit.lazy_imports import lazy_modules

PLACES = (
    "fl_audit.app_audits.black_box.trials_after_training",
    "fl_audit.app_audits.black_box.in_app_verdict",
    "fl_audit.app_audits.black_box.legacy_adapter",
)

if TYPE_CHECKING:
    from fl_audit.app_audits.black_box import in_app_verdict as in_app_verdict
    from fl_audit.app_audits.black_box import legacy_adapter as legacy_adapter
    from fl_audit.app_audits.black_box import trials_after_training as trials_after_training
else:
    __getattr__ = lazy_modules(__name__, PLACES)
