"""Claims of Negoescu et al. 2023 by the rules of this version, from published numbers: no run is needed."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fl_audit.experiments.reproductions.claims import PaperClaim
from fl_audit.experiments.reproductions.negoescu2023.fits import LEVEL, ONE_SUFFICES, of_one_component
from fl_audit.experiments.reproductions.negoescu2023.landscapes import EIGHT_TIMES, EIGHT_TIMES_NUMBER
from fl_audit.experiments.reproductions.negoescu2023.textual_claims import claims_of_text
from fl_audit.experiments.reproductions.papers import ItemResult, Published

_ONE_COMPONENT = "p-value, 1 components"


def rejudge(published: Published) -> Mapping[str, ItemResult]:
    """Return the table of claims, judged again.

    Parameters
    ----------
    published
        The published results of the paper.
    """
    return {"claims": claims_of_text([_again(one, published) for one in published.claims], [])}


def _again(claim: PaperClaim, published: Published) -> PaperClaim:
    if claim.quantity == EIGHT_TIMES_NUMBER:
        return replace(claim, statement=EIGHT_TIMES)
    if claim.quantity == ONE_SUFFICES and (models := _models_that_agree(published)):
        return replace(claim, **of_one_component(np.zeros(models)))
    return claim


def _models_that_agree(published: Published) -> int:
    """Return the number of private models if one component is rejected for all of them at every size; 0 otherwise.

    A table of medians and extremes has the share of each model only where all of them agree.
    """
    rows = [row for row in published.rows("fig6")
            if row.setting.startswith("epsilon = ") and row.quantity.startswith(_ONE_COMPONENT)]  # fmt: skip
    if not rows or any(row.high > LEVEL for row in rows):
        return 0
    points = {row.setting: row.repetitions for row in rows}
    return sum(points.values())
