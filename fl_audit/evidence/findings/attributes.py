"""Attribute inference: what models give away of members beyond what they give away of everybody."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fl_audit.arrays import Flags
from fl_audit.evidence.belief.advantage import MeanAdvantage, mean_advantage
from fl_audit.evidence.findings.found import Findings
from fl_audit.evidence.finished_run import FinishedRun
from fl_audit.evidence.membership.limits import largest_order

TRUTH, GUESSED_BLINDLY, GUESSED, GUESSED_BY_LAW = "attribute", "attribute_prior", "attribute_loss", "attribute_law"
"""Columns of the table of targets: the true value, from 0, and who guesses which."""
GUESSERS = (GUESSED_BLINDLY, GUESSED, GUESSED_BY_LAW)


@dataclass(frozen=True)
class Guesser:
    """What somebody achieved who guessed an attribute of every target."""

    # `members`, `others`: shares guessed right, of targets that were in and of those that were not, over all worlds.
    members: float
    others: float
    advantage: MeanAdvantage  # the first less the second, the mean over worlds


@dataclass(frozen=True)
class AttributeNumbers:
    """What was found out about an attribute."""

    attribute: str  # name of the column, or its number
    values: int  # how many of its values occur
    by_name: dict[str, Guesser]  # what everybody achieved, by the column of their guesses
    # The advantage that the promise allows; None without a promise. Members and others are of one training, so that two
    # records change places, as for `largest_order`.
    largest: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the entry `attribute`."""
        told = {name.removeprefix("attribute_"): asdict(found) for name, found in self.by_name.items()}
        return {
            "attribute": {
                "attribute": self.attribute,
                "values": self.values,
                "largest_advantage": self.largest,
                "by_name": told,
            }
        }


def measure_attributes(run: FinishedRun, _: Findings) -> AttributeNumbers | None:
    """Return what was found out about an attribute; None where none was asked about, and where nothing compares."""
    table, promise = run.tables.targets, run.facts.guarantee
    if table is None or TRUTH not in table or not run.can_compare_targets:
        return None
    worlds = table["world"].nunique()
    truth, is_in = table[TRUTH].to_numpy(), table["is_in"].to_numpy(dtype=np.bool_).reshape(worlds, -1)
    found = {}
    for name in GUESSERS:
        right = (table[name].to_numpy() == truth).reshape(worlds, -1)
        found[name] = _guesser(right, is_in, run.facts.confidence)
    largest = None if promise is None else 2 * largest_order(promise.claim.profile) - 1
    return AttributeNumbers(str(run.facts.configuration["audit"]["attribute"]), len(np.unique(truth)), found, largest)


def _guesser(right: Flags, is_in: Flags, confidence: float) -> Guesser:
    """Return what guesses (worlds, targets) achieved; a world with everybody in, or nobody, has no advantage."""
    members, others = is_in.sum(axis=1), (~is_in).sum(axis=1)
    both = (members > 0) & (others > 0)
    hits, other_hits = (right & is_in).sum(axis=1), (right & ~is_in).sum(axis=1)
    advantages = hits[both] / members[both] - other_hits[both] / others[both]
    return Guesser(
        members=float(hits.sum() / members.sum()),
        others=float(other_hits.sum() / others.sum()),
        advantage=mean_advantage(advantages, confidence),
    )
