"""Negoescu et al. 2023: the simulated figures in their quick form, from the command's entry to the page."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fl_audit.experiments.papers.item_results import COLUMNS, ItemResult
from fl_audit.experiments.papers.negoescu2023.error_rate_log_ratios import CUT, DELTA, _exact_curves
from fl_audit.experiments.papers.negoescu2023.paper import PAPER
from fl_audit.experiments.papers.negoescu2023.simulation import (
    EMPIRICAL,
    PARAMETRIC,
    SimulationSettings,
    _true_epsilon_star,
    simulate,
    summary,
)
from fl_audit.experiments.papers.papers import ComputeExtent, PaperResults, ReproductionOptions
from fl_audit.experiments.papers.reproduce import chosen_items, reproduce
from fl_audit.experiments.papers.reproduction_names import item_names
from fl_audit.experiments.papers.runner import make
from fl_audit.experiments.papers.statistics import t_interval
from tests.builders.refusals import assert_refused
from tests.released_model.rates import epsilon_star_of_rates

# One worker makes what tests of this file share.
pytestmark = pytest.mark.xdist_group("negoescu")
ResultsAndDirectory = tuple[PaperResults, Path]


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory: pytest.TempPathFactory) -> ResultsAndDirectory:
    nothing = tmp_path_factory.mktemp("no-data")
    context = ReproductionOptions(tmp_path_factory.mktemp("negoescu"), nothing, ComputeExtent.QUICK)
    return reproduce("negoescu2023", context)[1:]


def _result(reproduction: ResultsAndDirectory, key: str) -> ItemResult:
    return next(result for item, result in reproduction[0].results if item.key == key)


def test_names_of_both_papers() -> None:
    assert {"bernau2021", "bernau2021-fig3", "negoescu2023", "negoescu2023-fig3"} < set(item_names())
    chosen, items = chosen_items("negoescu2023-fig4")
    assert chosen is PAPER
    assert [item.key for item in items] == ["fig4"]
    assert_refused(r"'negoescu-fig5' .*'negoescu2023-fig5'", chosen_items, "negoescu-fig5")


@pytest.mark.long
def test_every_file_is_written(reproduction: ResultsAndDirectory) -> None:
    keys = [item.key for item, _ in reproduction[0].results]
    assert {"fig3", "fig4", "fig5"} <= set(keys)
    assert {path.name for path in reproduction[1].parent.iterdir()} >= {
        "negoescu2023.html",
        *(f"{key}.{kind}" for key in ("fig3", "fig4", "fig5") for kind in ("csv", "png")),
    }
    for _, result in reproduction[0].results:
        assert tuple(result.frame.columns) == COLUMNS
        assert not result.comparable_rows("published")


@pytest.mark.long
def test_the_page_is_of_this_paper(reproduction: ResultsAndDirectory) -> None:
    html = reproduction[1].read_text(encoding="utf-8")
    assert re.search(r"<h1>[^<]*\bNegoescu .*2023</h1>", html)
    for words in (
        "Epsilon*: Privacy metric",
        "Quick form",
        "no data needed",
        "Sets of 100, 1,000 losses",
        "losses Gamma(2, 1)",
        "at the ends",
    ):
        assert words in html, words
    assert "Bernau" not in html
    assert "full-batch rounds" not in html


def test_figure_3_follows_the_normal_distributions(reproduction: ResultsAndDirectory) -> None:
    """The largest first quantity stands where FNR meets the cut: log (1 - delta - FPR) / FNR at that threshold."""
    frame = _result(reproduction, "fig3").frame
    fpr = stats.norm.cdf(stats.norm.isf(CUT) - 3)
    assert frame["theory"].iloc[0] == pytest.approx(math.log((1 - DELTA - fpr) / CUT), abs=1e-6)
    assert frame["theory"].iloc[1] == pytest.approx(frame["theory"].iloc[0], abs=1e-6)
    assert frame["measured"].iloc[3] > frame["measured"].iloc[2] > 0
    thresholds = np.linspace(0, 3, 20)
    curves = _exact_curves(thresholds)
    whole = epsilon_star_of_rates(curves.fpr, curves.fnr, DELTA)
    assert np.nanmax(curves.values) == pytest.approx(float(whole), rel=1e-9)


def test_figure_4_says_what_its_numbers_say(reproduction: ResultsAndDirectory) -> None:
    result = _result(reproduction, "fig4")
    rows = result.frame.set_index(["setting", "quantity"])
    assert set(rows["theory"].dropna()) == {0.0}
    farther = []
    for size in ("100", "1,000"):
        means = [
            rows.loc[(f"identical distributions, {size} losses", f"mean Epsilon*, {form} form"), "measured"]
            for form in (PARAMETRIC, EMPIRICAL)
        ]
        if means[0] >= means[1]:
            farther.append(f"{size} losses")
    claim = next(line for line in result.remarks if "nearer to 0" in line).split("(10 repetitions)")[0]
    assert f"nearer in {2 - len(farther)} of 2 cells" in claim
    assert farther, "at 100 losses the fit is the farther one"
    assert all(cell in " ".join(result.remarks) for cell in farther)
    spread = rows.loc[
        ("identical distributions, 100 losses", "standard deviation of Epsilon*, empirical form"), "measured"
    ]
    mean = rows.loc[("identical distributions, 100 losses", "mean Epsilon*, empirical form")]
    assert mean["high"] - mean["measured"] == pytest.approx(stats.t.ppf(0.975, 9) * spread / math.sqrt(10))


def test_figure_5_counts_the_cells(reproduction: ResultsAndDirectory) -> None:
    """The remark's count is that of a fresh simulation; the errors in the rows are bias, spread and their sum."""
    result = _result(reproduction, "fig5")
    errors = summary(simulate(SimulationSettings(sizes=(100, 1000), repetitions=10)))
    pairs = {key[:2]: (errors[*key[:2], PARAMETRIC].rmse, errors[*key[:2], EMPIRICAL].rmse) for key in errors}
    nearer = sum(fit < empirical_error for fit, empirical_error in pairs.values())
    assert f"nearer in {nearer} of 10 cells (10 repetitions), not at" in " ".join(result.remarks)
    together = {
        size: [np.sqrt(np.mean([pair[form] ** 2 for key, pair in pairs.items() if key[1] == size])) for form in (0, 1)]
        for size in (100, 1000)
    }
    assert all(fit < empirical_error for fit, empirical_error in together.values())
    rows = result.frame[result.frame["setting"] == "separation 2, 1,000 losses, 40 repetitions"]
    bias, std, rmse = (
        rows[rows["quantity"] == f"{name} of Epsilon*, parametric form"]["measured"].item()
        for name in ("bias", "standard deviation", "root mean squared error")
    )
    assert rmse**2 == pytest.approx(bias**2 + std**2 * 39 / 40)
    theory = result.frame.set_index("setting")["theory"].loc["separation 2, 1,000 losses"].iloc[0]
    assert theory == pytest.approx(_true_epsilon_star(SimulationSettings(), 2.0))


def test_within_one_cut_the_empirical_form_meets_the_truth() -> None:
    """Its shortfall is the cut's: 4 nats from the truth, and within 0.3 of the truth under the same cut."""
    table = simulate(SimulationSettings(separations=(0.0, 3.0), sizes=(10_000,), repetitions=5))
    wide, narrow = (summary(table, truth)[3.0, 10_000, EMPIRICAL] for truth in ("truth", "narrow_truth"))
    assert wide.bias < -4
    assert abs(narrow.bias) < 0.3


def test_t_interval_is_that_of_scipy() -> None:
    values = np.array([0.2, 1.5, 0.4, 2.2])
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    interval = t_interval(values)
    assert (interval.value, interval.low, interval.high) == pytest.approx((values.mean(), expected.low, expected.high))


def test_an_item_without_its_data_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FL_AUDIT_DATA", raising=False)
    options = ReproductionOptions(tmp_path / "out", tmp_path, ComputeExtent.QUICK)
    results = make(PAPER, PAPER.items[:1], options)
    assert results.results == ()
    assert results.left_out == (f"{PAPER.items[0].title}: left out, none of its data sets is there",)
    assert_refused(r"negoescu2023-fig1 cannot .*\blocation30", reproduce, "negoescu2023-fig1", options)
    assert not (tmp_path / "out").exists()
