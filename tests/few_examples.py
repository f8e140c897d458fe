"""The number of examples that hypothesis draws: a fifth in the fast suite, all of them in `make test-all`."""

import os

ALL = os.environ.get("FL_AUDIT_EXAMPLES") == "all"
"""Whether properties are held against as many examples as they name."""


def examples(count: int) -> int:
    """Return as many examples as a property is held against here, of the number that it names."""
    return count if ALL else max(count // 5, min(count, 8))
