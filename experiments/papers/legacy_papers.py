"""Papers that are not yet data: each has a function that makes its items."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fl_audit.errors import InputError
from fl_audit.experiments.papers.item_results import COLUMNS
from fl_audit.experiments.papers.papers import ComputeExtent, PaperResults


@dataclass(frozen=True)
class OldPaperItem:
    """A table or figure of a paper."""

    key: str  # the last part of its name on the command line, and the name of its files
    title: str  # its number in the paper and its subject


@dataclass(frozen=True)
class OldPaper:
    """A paper that can be reproduced: its items, and functions that compute them."""

    key: str
    heading: str
    reference: str
    items: tuple[Any, ...]
    make: Callable[[Any, Any], PaperResults]
    settings: Callable[[ComputeExtent], Any]

    def digest(self, extent: ComputeExtent) -> str:
        """Return a hash of the settings of all runs, in the full or quick form, by which changes are noticed."""
        text = json.dumps([COLUMNS, self.settings(extent)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def name_of(self, item: Any) -> str:
        """Return the name of a table or figure on the command line."""
        return f"{self.key}-{item.key}"


class NoDataError(InputError):
    """Raised if a data set that a table or figure needs is missing; tables and figures without it can still be made."""
