"""Quantile regression: against a distribution that is known, and what it refuses."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from fl_audit.audits.membership.quantile_regression_attack import FEWEST_RECORDS, quantile_scores
from fl_audit.errors import InputError

TRIALS, TARGETS, OTHERS, WIDTH, SHIFT = 20, 400, 2000, 8, 2.0


def test_members_are_told_as_well_as_the_distribution_of_their_confidence_allows() -> None:
    """Confidences are N(a x, e^(2 b x)); those of members lie two spreads higher: the best AUC is Phi(2 / sqrt 2)."""
    draw = np.random.default_rng(0)
    place, spread = 3 * draw.normal(size=WIDTH), 0.2 * draw.normal(size=WIDTH)
    own, others = draw.normal(size=(TARGETS, WIDTH)), draw.normal(size=(OTHERS, WIDTH))
    is_in = draw.random((TRIALS, TARGETS)) < 0.5
    noise = draw.normal(size=(TRIALS, TARGETS)) + SHIFT * is_in
    asked = own @ place + np.exp(own @ spread) * noise
    told = others @ place + np.exp(others @ spread) * draw.normal(size=(TRIALS, OTHERS))
    scores = quantile_scores(asked, own, told, others)
    best = norm.cdf(SHIFT / np.sqrt(2))
    auc = np.mean([roc_auc_score(*one) for one in zip(is_in, scores, strict=True)])
    blind = np.mean([roc_auc_score(*one) for one in zip(is_in, asked, strict=True)])
    assert blind < 0.65 < best - 0.02 < auc < best + 0.01
    # Scores of others are standard normal: 5 % lie above the quantile of 5 % (3 standard errors are 1 %).
    assert np.mean(scores[~is_in] > norm.ppf(0.95)) == pytest.approx(0.05, abs=0.01)


def test_what_is_left_out_is_what_a_regression_without_the_record_says() -> None:
    """The scale of the residuals is that of records left out one by one, found without a second regression."""
    from fl_audit.audits.membership.quantile_regression_attack import _Ridge

    draw = np.random.default_rng(1)
    records, answers = draw.normal(size=(40, 3)), draw.normal(size=(40, 2))
    _, residuals = _Ridge(records, records).predicted(answers)
    scaled = (records - records.mean(axis=0)) / records.std(axis=0)
    for penalty in np.geomspace(1e-3, 1e4, 15):
        gram = np.hstack([np.ones((40, 1)), scaled])
        ridge = np.diag([0.0, *[penalty] * 3])
        apart = np.empty(40)
        for one in range(40):
            rest = np.delete(np.arange(40), one)
            found = np.linalg.solve(gram[rest].T @ gram[rest] + ridge, gram[rest].T @ answers[rest, 0])
            apart[one] = answers[one, 0] - gram[one] @ found
        if np.allclose(apart, residuals[:, 0], atol=1e-8):
            return
    raise AssertionError("no penalty leaves these residuals")


@pytest.mark.parametrize(
    ("others", "message"),
    [(FEWEST_RECORDS - 1, r"population .*29 records"), (FEWEST_RECORDS + 1, "records contain NaN")],
)
def test_what_cannot_be_learned_from_is_refused(others: int, message: str) -> None:
    told = np.full((2, others), np.nan)
    with pytest.raises(InputError, match=message):
        quantile_scores(np.zeros((2, 3)), np.zeros((3, 4)), told, np.zeros((others, 4)))
    with pytest.raises(InputError, match="confidence for each"):
        quantile_scores(np.zeros((2, 3)), np.zeros((4, 4)), told, np.zeros((others, 4)))
