import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad, trapezoid
from scipy.special import expit, logit

from fl_audit.adjacency import Adjacency
from fl_audit.audits.identifiability.belief_distribution import (
    _log_odds_density,
    belief_band,
    belief_density,
    belief_grid,
)
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.log_odds_distribution import NormalLogOdds, TrueHypothesis, bound_in_other, log_odds_distribution


def normal_distributions(mu):
    return {bit: NormalLogOdds(mu, truth) for bit, truth in ((1, TrueHypothesis.PRESENT), (0, TrueHypothesis.ABSENT))}


@pytest.mark.parametrize(("mu", "prior", "share"), [(0.55, 0.5, 0.5), (0.02, 0.5, 0.3), (3.0, 0.1, 0.7)])
def test_belief_density_integrates_to_one(mu, prior, share):
    points = belief_grid(normal_distributions(mu), prior, points=200_001, tail=1e-9)
    assert trapezoid(belief_density(points, normal_distributions(mu), prior, share), points) == pytest.approx(
        1, abs=1e-6
    )


def test_the_density_of_a_sampled_distribution_is_that_of_its_log_odds():
    events = gaussian_rounds(1.0, 8, 0.3)
    truths = {1: TrueHypothesis.PRESENT, 0: TrueHypothesis.ABSENT}
    distributions = {
        bit: log_odds_distribution(events, Adjacency.ADD_REMOVE_RECORD, truth, fine=False)
        for bit, truth in truths.items()
    }
    points = belief_grid(distributions, points=2001)
    assert trapezoid(belief_density(points, distributions, share=0.4), points) == pytest.approx(1, abs=1e-3)
    grid = np.linspace(-4, 9, 4001)
    for distribution in distributions.values():
        density = _log_odds_density(grid, distribution)
        assert trapezoid(density, grid) == pytest.approx(1, abs=1e-2)
        assert trapezoid(grid * density, grid) == pytest.approx(distribution.mean, abs=0.02)


@pytest.mark.parametrize("mu", [10.0, 40.0, 400.0])
def test_beliefs_that_round_to_certainty_have_a_density(mu):
    points = belief_grid(normal_distributions(mu))
    assert 0 < points.min() <= points.max() < 1
    with np.errstate(all="raise", under="ignore"):
        assert np.isfinite(belief_density(points, normal_distributions(mu))).all()


def belief_cdf(belief, mu, prior, share):
    """Log-odds of the truth are N(mu^2/2, mu^2) before the prior, which speaks for D and against D'."""
    evidence = [logit(belief) - sign * logit(prior) for sign in (1, -1)]
    with_d, without = (stats.norm.cdf(log_odds, mu**2 / 2, mu) for log_odds in evidence)
    return share * with_d + (1 - share) * without


def test_belief_density_is_the_derivative_of_the_distribution_function():
    mass, _ = quad(
        lambda belief: float(belief_density(belief, normal_distributions(1.1), 0.3, 0.6)), 0.2, 0.8, points=[0.3, 0.7]
    )
    expected = belief_cdf(0.8, 1.1, 0.3, 0.6) - belief_cdf(0.2, 1.1, 0.3, 0.6)
    assert mass == pytest.approx(float(expected), abs=1e-8)


@pytest.mark.parametrize(("mu", "prior"), [(0.55, 0.5), (1.5, 0.2)])
def test_simulated_beliefs_follow_the_distribution(make_run, mu, prior):
    trials = make_run(trials=3000, rounds=10, mu=mu, prior=prior).tables.trials
    share = float(trials["bit"].mean())
    result = stats.kstest(trials["belief"], lambda belief: belief_cdf(belief, mu, prior, share))
    assert result.pvalue > 0.001
    wrong = stats.kstest(trials["belief"], lambda belief: belief_cdf(belief, 1.5 * mu, prior, share))
    assert wrong.pvalue < 0.001


def test_log_odds_density_is_that_of_the_normal_distribution():
    assert _log_odds_density(0.3, normal_distributions(0.5)[1]) == pytest.approx(stats.norm.pdf(0.3, 0.125, 0.5))
    assert _log_odds_density(0.3, normal_distributions(0.5)[0]) == pytest.approx(stats.norm.pdf(0.3, -0.125, 0.5))


@pytest.mark.parametrize("bit", [0, 1])
def test_belief_band_holds_its_share_of_trials_at_each_round(make_run, bit):
    tables = make_run(trials=4000, rounds=6, mu=1.0, prior=0.3).tables
    low, middle, high = belief_band(1.0, 6, bit, prior=0.3, level=0.9)
    assert (low[0], middle[0], high[0]) == pytest.approx((0.3, 0.3, 0.3))
    trials = tables.trials.loc[tables.trials["bit"] == bit, "trial"]
    for number in (1, 3, 6):
        at = tables.rounds[(tables.rounds["round"] == number) & tables.rounds["trial"].isin(trials)]
        beliefs = expit(at["log_odds"] + logit(0.3))
        assert np.mean((beliefs > low[number]) & (beliefs < high[number])) == pytest.approx(0.9, abs=0.03)
        assert np.mean(beliefs < middle[number]) == pytest.approx(0.5, abs=0.05)


def test_bound_for_the_other_data_set_allows_the_same_evidence():
    assert bound_in_other(0.9, 0.5) == pytest.approx(0.9)
    evidence = logit(0.9) - logit(0.2)
    assert bound_in_other(0.9, 0.2) == pytest.approx(expit(evidence + logit(0.8)))
