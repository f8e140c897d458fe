"""Import the accounting modules lazily, so that scipy is loaded only at first use.

Clients import the accounting modules through this module.
"""

from typing import TYPE_CHECKING

from fl_audit.lazy_imports import lazy_modules

PLACES = (
    "fl_audit.privacy.accounting",
    "fl_audit.privacy.calibration",
    "fl_audit.privacy.claim",
    "fl_audit.privacy.events",
    "fl_audit.privacy.gaussian",
    "fl_audit.privacy.guarantee",
    "fl_audit.privacy.guarantee_line",
    "fl_audit.privacy.strategy_matrices",
    "fl_audit.privacy.targets",
)

if TYPE_CHECKING:
    from fl_audit.privacy import accounting as accounting
    from fl_audit.privacy import calibration as calibration
    from fl_audit.privacy import claim as claim
    from fl_audit.privacy import events as events
    from fl_audit.privacy import gaussian as gaussian
    from fl_audit.privacy import guarantee as guarantee
    from fl_audit.privacy import guarantee_line as guarantee_line
    from fl_audit.privacy import strategy_matrices as strategy_matrices
    from fl_audit.privacy import targets as targets
else:
    __getattr__ = lazy_modules(__name__, PLACES)
