"""What is kept of a finished table or figure so that a page can be made of it without its runs, as JSON."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from experiments.reproductions.items import ItemResult
from experiments.reproductions.page import differences_html
from experiments.reproductions.papers import Context, Item, MadeItems, Paper
from experiments.runs.provenance import commit_of_sources

SCHEMA = 1
"""Version of these records, and of what pages are made of them."""
_IN_BRACKETS = re.compile(r" \((?:[^()]|\([^()]*\))*\)")


def record_of(
    context: Context, paper: Paper[Any], made: MadeItems, item: Item, result: ItemResult
) -> Mapping[str, Any]:
    """Return the record of an item.

    Parameters
    ----------
    context
        How much was computed.
    paper
        The paper.
    made
        All that was made of it.
    item
        The table or figure.
    result
        What became of it.
    """
    spent = result.spent
    return {
        "schema": SCHEMA,
        "paper": paper.key,
        "item": item.key,
        "title": item.title,
        "caption": result.caption,
        "extent": str(context.extent),
        "settings": paper.digest(context.extent),
        "commit": commit_of_sources(),
        "run_commits": spent.commits,
        "worlds": spent.worlds,
        "minutes": round(spent.minutes, 1) if isfinite(spent.minutes) else None,
        "made": datetime.now(UTC).date().isoformat(),
        # Reasons in brackets name places of the machine that played.
        "said": (*made.warnings, *(_IN_BRACKETS.sub("", line) for line in (*made.remarks, *made.left_out))),
        "played": result.played,
        "differences": differences_html(result),
        "claims": [claim.to_json() for claim in result.claims],
    }
