"""The times at which a federation started, was ready and finished."""

import time
from dataclasses import dataclass, field


@dataclass
class FederationTimestamps:
    """Times at which a federation started, was ready and finished (monotonic clock, seconds); NaN until then."""

    started: float = field(default_factory=time.monotonic)
    ready: float = field(default=float("nan"))
    finished: float = field(default=float("nan"))
