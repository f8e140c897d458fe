"""Items without runs against closed forms, and statistics against what they must give."""

import math

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit, logit

from fl_audit.experiments.papers.bernau2021.advantage_and_belief import (
    ADVANTAGE,
    EXCEEDED,
    _predicted_exceedance,
    _z_against,
    _z_between,
)
from fl_audit.experiments.papers.bernau2021.closed_forms import _largest_exceedance, printed_columns, table_3
from fl_audit.experiments.papers.bernau2021.epsilon_audit_figures import _median_of_largest
from fl_audit.experiments.papers.bernau2021.insider_runs import ADULT, MNIST, PRINTED, PURCHASE, main_runs
from fl_audit.experiments.papers.bernau2021.noisy_query import NoisyQuery, _simulate, figure_1, figure_2, figure_3
from fl_audit.experiments.papers.item_results import COLUMNS, ItemResult, ItemRow, table
from fl_audit.experiments.papers.statistics import bootstrap, mean_belief, predicted_advantage, reproducible_generator
from fl_audit.privacy.identifiability_bounds import gaussian_advantage
from fl_audit.report.figure_style import new_figure


def test_table_3_agrees_with_every_printed_digit() -> None:
    result = table_3()
    frame = result.frame.set_index(["setting", "quantity"])
    checked = 0
    for (study, belief), column in printed_columns().items():
        epsilon = math.log(belief / (1 - belief))
        delta = float(column["delta"])
        advantage = math.erf(epsilon / (2 * math.sqrt(2) * math.sqrt(2 * math.log(1.25 / delta))))
        for quantity, value in (("epsilon", epsilon), ("rho_alpha", advantage)):
            row = frame.loc[f"{study}, rho_beta {belief:g}", quantity]
            printed = column[quantity]
            assert f"{value:.{len(printed.split('.')[1])}f}" == printed
            assert row["theory"] == pytest.approx(value, abs=1e-12)
            assert row["measured"] == pytest.approx(value, rel=1e-6)
            assert row["note"].startswith("as printed")
            checked += 1
    assert checked == 24
    assert result.computed == (36, ())


def test_table_2_has_every_entry() -> None:
    runs = [run for data in (MNIST, PURCHASE, ADULT) for run in main_runs(data)]
    assert len(PRINTED.at("Table 2")) == 2 * len(runs) == 24
    printed = [PRINTED.of(run, quantity) for run in runs for quantity in (ADVANTAGE, EXCEEDED)]
    assert np.isfinite(printed).all()


def test_figures_1_and_2_follow_their_closed_forms() -> None:
    first = figure_1().frame
    second = figure_2().frame
    sigma = math.sqrt(2 * math.log(1.25e6)) / 6
    wins = first.set_index("quantity").loc["share of trials won"]
    assert wins["theory"] == pytest.approx(stats.norm.cdf(1 / (2 * sigma)), abs=1e-12)
    assert second["theory"].iloc[[0, 1, 3, 4]].tolist() == pytest.approx(
        [stats.norm.sf(0.5, 0, sigma)] * 2 + [stats.norm.sf(0.5, 0, 2 * sigma)] * 2, abs=1e-12
    )
    assert second["theory"].iloc[2] == pytest.approx(1 - 2 * stats.norm.sf(0.5, 0, sigma), abs=1e-12)
    boundary = first.set_index("quantity").loc["decision boundary (units of f)"]
    assert boundary["low"] < 0.5 < boundary["high"]


@pytest.mark.long
def test_simulated_federations_agree_with_theory() -> None:
    """45 intervals of 95 % from fixed seeds; 10 misses have a chance of 1e-4."""
    frames = [make().frame for make in (figure_1, figure_2, figure_3)]
    outside = sum(int(((frame["theory"] < frame["low"]) | (frame["theory"] > frame["high"])).sum()) for frame in frames)
    assert sum(len(frame) for frame in frames) == 45
    assert outside < 10


def test_the_query_has_one_distribution_in_every_dimension() -> None:
    """Log-odds of the truth are N(mu^2/2, mu^2): mean and variance within 4 standard errors, a false alarm in 1e-4."""
    for dimensions in (1, 7):
        query = NoisyQuery(2.0, 0.001, dimensions)
        mu = query.mu
        federations = _simulate(query, np.random.default_rng(3), 40_000)
        assert abs(federations.towards_truth.mean() - mu**2 / 2) < 4 * mu / 200
        assert abs(federations.towards_truth.var() / mu**2 - 1) < 4 * math.sqrt(2 / 40_000)
        assert abs(federations.used.mean() - 0.5) < 0.01


def test_statistics() -> None:
    mu = 0.55
    density = lambda x: expit(x) * stats.norm.pdf(x, mu**2 / 2, mu)  # noqa: E731
    assert mean_belief(mu) == pytest.approx(integrate.quad(density, -8, 8)[0], abs=1e-5)
    assert predicted_advantage(np.array([mu, mu])) == pytest.approx(2 * stats.norm.cdf(mu / 2) - 1)
    tail = stats.norm.sf(math.log(9), mu**2 / 2, mu)
    assert _predicted_exceedance(np.array([mu, 0.0]), 0.9) == pytest.approx(tail / 2)
    largest = _median_of_largest(mu, 250)
    assert stats.norm.cdf(largest, mu**2 / 2, mu) ** 250 == pytest.approx(0.5, abs=1e-9)
    assert _z_against(0.25, 0.2, 1000) == pytest.approx(0.05 / math.sqrt(0.96 / 1000))
    assert _z_between(0.25, 1000, 0.2, 1000) == pytest.approx(0.05 / math.sqrt((2 - 0.0625 - 0.04) / 1000))


def test_the_bootstrap_has_the_width_of_the_standard_error() -> None:
    values = np.random.default_rng(0).standard_normal((500, 3))
    estimate = bootstrap(values, lambda sample: float(sample.mean()), reproducible_generator("a test"))
    assert estimate.low < estimate.value == values.mean() < estimate.high
    assert (estimate.high - estimate.low) / (2 * 1.96 / math.sqrt(1500)) == pytest.approx(1, abs=0.15)


def test_differences_name_published_numbers_outside_our_interval() -> None:
    rows = [
        ItemRow("a", "x", published=0.5, measured=0.1, low=0.0, high=0.2),
        ItemRow("b", "x", published=0.1, measured=0.1, low=0.0, high=0.2),
        ItemRow("c", "x", measured=0.1, low=0.0, high=0.2),
        ItemRow("d", "x", published=0.1),
    ]
    result = ItemResult(table(rows), new_figure(), "")
    assert tuple(result.frame.columns) == COLUMNS
    assert result.outside_sentences("published") == ("a: x is 0.5 in print, here 0.1 (0 to 0.2)",)
    assert result.comparable_rows("published") == 2


def test_no_choice_of_rounds_exceeds_a_belief_more_often_than_is_said() -> None:
    # Rounds of mu_i = mu / 5 while the belief is below the threshold, and none after: the worst that adaptivity can do.
    mu = 1.5
    belief = 0.9
    federations = 40_000
    random = np.random.default_rng(0)
    odds = np.zeros(federations)
    for _ in range(25):
        increments = np.where(odds > logit(belief), 0.0, mu / 5)
        odds += increments**2 / 2 + increments * random.normal(size=federations)
    exceedance_share = float(np.mean(odds > logit(belief)))
    largest_exceedance = _largest_exceedance(mu, belief)
    assert _predicted_exceedance(np.array([mu]), belief) + 0.02 < exceedance_share < largest_exceedance
    assert exceedance_share > 0.6 * largest_exceedance


def test_what_beliefs_say_of_the_advantage_is_what_wins_count() -> None:
    random = np.random.default_rng(0)
    mu = 0.7
    belief = expit(mu**2 / 2 + mu * random.normal(size=40_000))
    advantage = float(np.mean(np.abs(2 * belief - 1)))
    assert advantage == pytest.approx(gaussian_advantage(mu), abs=0.005)
    assert advantage == pytest.approx(2 * np.mean(belief > 0.5) - 1, abs=0.02)
    assert np.std(np.abs(2 * belief - 1)) < 0.25 * np.std(2.0 * (belief > 0.5))
