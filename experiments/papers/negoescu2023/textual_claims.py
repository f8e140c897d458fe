"""Claims in the text of Negoescu et al. 2023 outside its figures, and explanations of claims that do not hold.

Epsilon* is a privacy metric of models.
"""

import numpy as np
from scipy.special import ndtr, ndtri

from fl_audit.experiments.papers.claims import PaperClaim, exact
from fl_audit.experiments.papers.negoescu2023.epsilon_star_runs import CLAIMS
from fl_audit.released_model.empirical_star import definition_ratios


def theorem_2() -> PaperClaim:
    """Return the claim of Theorem 2, tested on an example: mean Epsilon* of models against Epsilon* of their mechanism.

    The theorem says that the mean is at least as large as Epsilon* of the mechanism. The losses of the mechanism are
    the mixture of the losses of its models. In the example, half of the models leak nothing. The other half have losses
    N(0, 1) on members and N(1, 1) on nonmembers.
    """
    fpr = np.logspace(-12, 0, 4001)[:-1]
    fpr = np.concatenate([fpr, 1 - fpr[::-1]])
    silent, leaking = 1 - fpr, ndtr(-ndtri(fpr) - 1)

    def star(fnr: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            return max(0.0, float(np.nanmax(np.log(definition_ratios(fpr, 1 - fpr, fnr, 1 - fnr, 1e-5)))))

    mean, mixture = (star(silent) + star(leaking)) / 2, star((silent + leaking) / 2)
    where = f"two kinds of models: {mean:.2f} and {mixture:.2f} nats"
    return CLAIMS["theorem-2"].on(where, exact(mean - mixture))
