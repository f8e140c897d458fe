"""fl_audit: audit differentially private federated learning.

The names in this module are those that most users need. Each of them is imported at its first use.

Examples
--------
>>> import fl_audit as fa
>>> guarantee = fa.calibrate(30, 1e-3, adjacency="replace-record", belief=0.9, accountant="rdp-classic")
>>> round(guarantee.noise_multiplier, 2)
9.95
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fl_audit.adjacency import Adjacency
    from fl_audit.api.evidence import epsilon_star, lower_bound
    from fl_audit.api.guarantees import account, calibrate
    from fl_audit.api.run_error import RunError
    from fl_audit.api.running import run_audit
    from fl_audit.audits.canaries.bounds import one_run_bound
    from fl_audit.errors import InputError
    from fl_audit.privacy.accounting import Accountant
    from fl_audit.privacy.claim import Claim
    from fl_audit.privacy.events import (
        GaussianRelease,
        LaplaceRelease,
        RandomizedResponse,
        SampledGaussianRelease,
        gaussian_rounds,
    )
    from fl_audit.privacy.guarantee import Guarantee, derive_guarantee
    from fl_audit.runs.stored_run import Run, read_run
    from fl_audit.verdict.verdict import Verdict

__all__ = [
    "Accountant",
    "Adjacency",
    "Claim",
    "GaussianRelease",
    "Guarantee",
    "InputError",
    "LaplaceRelease",
    "RandomizedResponse",
    "Run",
    "RunError",
    "SampledGaussianRelease",
    "Verdict",
    "account",
    "calibrate",
    "derive_guarantee",
    "epsilon_star",
    "gaussian_rounds",
    "lower_bound",
    "one_run_bound",
    "read_run",
    "run_audit",
]

# Flower packs an app without symbolic links, and some systems have none: the parties then stand beside this package.
_BESIDE = Path(__file__).parent.parent
if not (_BESIDE / "fl_audit" / "clients").is_dir() and (_BESIDE / "clients").is_dir():
    __path__.append(str(_BESIDE))

_NAMES = {
    "adjacency": "Adjacency",
    "api.evidence": "epsilon_star lower_bound",
    "api.guarantees": "account calibrate",
    "api.run_error": "RunError",
    "api.running": "run_audit",
    "runs.stored_run": "Run read_run",
    "audits.canaries.bounds": "one_run_bound",
    "errors": "InputError",
    "verdict.verdict": "Verdict",
    "privacy.accounting": "Accountant",
    "privacy.claim": "Claim",
    "privacy.events": "GaussianRelease LaplaceRelease RandomizedResponse SampledGaussianRelease gaussian_rounds",
    "privacy.guarantee": "Guarantee derive_guarantee",
}
_HOMES = {name: f"fl_audit.{module}" for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import a public name of the package at its first use, because importing torch takes seconds."""
    if name == "__version__":
        # It looks on the disk for what is installed, and takes as long to import as all else here.
        from importlib.metadata import version  # noqa: PLC0415

        return version("fl-audit")
    if name not in _HOMES:
        raise AttributeError(f"module 'fl_audit' has no attribute {name!r}")
    attribute: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = attribute
    return attribute


def __dir__() -> list[str]:
    return sorted(__all__)
