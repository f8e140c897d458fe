"""Modules that only the server needs, imported at first use because clients import this package, too."""

from typing import TYPE_CHECKING

from fl_audit.lazy_imports import lazy_modules

PLACES = (
    "fl_audit.strategies.black_box.audited_strategy",
    "fl_audit.strategies.black_box.in_app_report",
    "fl_audit.strategies.black_box.legacy_adapter",
)

if TYPE_CHECKING:
    from fl_audit.strategies.black_box import audited_strategy as audited_strategy
    from fl_audit.strategies.black_box import in_app_report as in_app_report
    from fl_audit.strategies.black_box import legacy_adapter as legacy_adapter
else:
    __getattr__ = lazy_modules(__name__, PLACES)
