"""The figures of a report: each can be drawn, has named axes, and shows the numbers that it says."""

import re
from dataclasses import replace
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats

from fl_audit.audits.common.sections_epsilon_star import guarantee_fits
from fl_audit.audits.common.sections_other_guarantees import AlternativeGuarantees
from fl_audit.audits.identifiability.sections_roc import FEWEST, TprAtFprFinding
from fl_audit.audits.membership.sections_membership_adversary import FinalModelMembershipFinding
from fl_audit.audits.page.drawn_pictures import _page_svg, draw_all
from fl_audit.audits.sections import SECTIONS, report_contents, sections_with_findings
from fl_audit.federation.crafted_records import CraftedMeasures
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_tables import RunTables, quantiles_by_round
from fl_audit.report import figure_style
from fl_audit.report.figure_style import to_png
from fl_audit.report.report_elements import ReportContents
from fl_audit.verdict.sections_noise import MOST_TENSORS, NOISE, NoiseFinding
from fl_audit.verdict.stored_measurements import measured_in
from fl_audit.words import rounded
from tests.builders.refusals import assert_refused

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def pictures_of(contents: ReportContents) -> dict[str, tuple]:
    """Return the pictures of a run by name, each with its numbers."""
    return {
        section.name: (section.picture, numbers)
        for section, numbers in sections_with_findings(contents)
        if section.picture is not None and section.picture.applies(numbers, contents)
    }


def figures_of(contents: ReportContents) -> dict[str, Figure]:
    """Return every figure of a run by name, undrawn yet."""
    return {name: picture.figure(numbers, contents) for name, (picture, numbers) in pictures_of(contents).items()}


@pytest.mark.long
def test_a_crafted_record_is_shown_as_an_image_where_it_is_one(make_contents):
    image = np.eye(8, dtype=np.float32)[None]
    table = np.ones(5, dtype=np.float32)
    for record, opposite, axes in ((image, None, 2), (image, image, 4), (table, None, 0)):
        crafted = CraftedMeasures(record, 3, 1.0, 0.9, 0.01, 0.95, 8, opposite)
        run = make_contents().run
        contents = report_contents(replace(run, crafted=crafted))
        figures = figures_of(contents)
        # One pair of axes for each image, and one for its scale.
        assert len(figures["crafted"].axes) == axes if axes else "crafted" not in figures
        assert to_png(figures["crafted"]).startswith(PNG_SIGNATURE) if axes else True
        crafted_summary = contents.summary["crafted"]
        share = run.by_trial("local_sensitivity") / run.plan.global_sensitivity
        assert (
            crafted_summary["label"],
            crafted_summary["clipped_gradient_norm"],
            crafted_summary["cosine_to_others"],
        ) == (3, 1.0, 0.01)
        assert crafted_summary["mean_sensitivity"] == pytest.approx(share.mean())


def figure_of(contents: ReportContents, name: str) -> Figure:
    """Return one figure of a run by name."""
    picture, numbers = pictures_of(contents)[name]
    return picture.figure(numbers, contents)


def with_tables(run: FinishedRun, **changed: object) -> FinishedRun:
    return replace(run, tables=replace(run.tables, **changed))


@pytest.mark.long
@pytest.mark.drawn
@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"trials": 1, "rounds": 1},
        {"exact": False, "prior": 0.2},
        {"trials": 25, "rounds": 200, "mu": 4.0},
        {"trials": 40, "mu": 0.01},
    ],
    ids=str,
)
def test_every_figure_is_drawn_as_png(make_contents, shape):
    contents = make_contents(**shape)
    pictures = draw_all(contents)
    has_tradeoff = min(contents.run.bits.sum(), (~contents.run.bits).sum()) >= FEWEST
    missing_names = set() if has_tradeoff else {"tradeoff"}
    assert {picture.name for picture in pictures} == EXPECTED - missing_names
    assert all(picture.png.startswith(PNG_SIGNATURE) for picture in pictures)
    assert all(picture.caption and picture.title for picture in pictures)


OF_OTHER_RUNS = {"crafted", "attacks", "reconstruction", "pictures", "client-metrics"}
EXPECTED = {section.name for section in SECTIONS if section.picture is not None} - OF_OTHER_RUNS


@pytest.mark.full_size
def test_a_figure_is_as_large_as_its_page_wants_it(make_contents):
    png = to_png(figure_of(make_contents(trials=30, rounds=3), "beliefs"))
    assert int.from_bytes(png[16:20]) == round(
        figure_style.REPORT_WIDTH * 150
    )  # the width stands first in a PNG's header


@pytest.mark.long
def test_large_runs_are_drawn(make_contents):
    assert set(figures_of(make_contents(trials=1000, rounds=20))) == EXPECTED


@pytest.mark.long
def test_same_run_gives_the_same_bytes_and_leaves_no_global_state(make_contents):
    contents = make_contents(trials=30, rounds=3)
    settings = dict(matplotlib.rcParams)
    for name in ("beliefs", "noise"):
        assert to_png(figure_of(contents, name)) == to_png(figure_of(contents, name))
    assert dict(matplotlib.rcParams) == settings


def texts(figure):
    legends = figure.legends + [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    return [text.get_text().replace("\n", " ") for legend in legends for text in legend.get_texts()]


def test_axes_have_names(make_contents):
    for figure in figures_of(make_contents(trials=30, rounds=3)).values():
        assert figure.axes[-1].get_xlabel()


@pytest.mark.long
def test_where_no_distribution_is_exact_no_density_is_drawn(make_contents):
    assert not any("distribution" in text for text in texts(figure_of(make_contents(exact=False), "beliefs")))
    assert any("exact distribution" in text for text in texts(figure_of(make_contents(), "beliefs")))


def test_few_trials_are_drawn_each_by_itself_without_densities(make_contents):
    axes = figure_of(make_contents(trials=10), "beliefs").axes[0]
    marks = [line for line in axes.get_lines() if line.get_marker() == "o"]
    assert sum(len(line.get_xdata()) for line in marks) == 10
    assert not axes.containers


@pytest.mark.long
def test_bars_of_the_belief_histogram_have_area_one(make_contents):
    bars = figure_of(make_contents(), "beliefs").axes[0].containers[0]
    assert sum(bar.get_height() * bar.get_width() for bar in bars) == pytest.approx(1)


def test_claimed_epsilon_is_drawn_only_where_it_leaves_the_curve_readable(make_contents):
    contents = make_contents(trials=30, rounds=3)
    assert guarantee_fits(contents)
    assert any("claimed epsilon" in text for text in texts(figure_of(contents, "epsilon-star")))
    large = make_contents(trials=30, rounds=3, mu=6.0)
    assert not guarantee_fits(large)
    assert not any("claimed epsilon" in text for text in texts(figure_of(large, "epsilon-star")))
    assert "epsilon-star" not in pictures_of(make_contents(trials=5, with_epsilon_star=False, with_clients=False))


@pytest.mark.long
@pytest.mark.parametrize("exact", [True, False])
def test_innovations_are_standard_normal_in_every_mode(make_contents, exact):
    run = make_contents(exact=exact).run
    assert measured_in(run).innovations.shape == (300, 30)
    for bit in (True, False):
        assert stats.kstest(measured_in(run).innovations[run.bits == bit].ravel(), "norm").pvalue > 0.001


def test_no_number_depends_on_the_order_of_rows(make_contents):
    contents = make_contents(trials=9, rounds=4)
    tables = contents.run.tables
    mixed = {name: getattr(tables, name).sample(frac=1, random_state=1) for name in ("trials", "rounds", "residuals")}
    shuffled = with_tables(contents.run, **mixed)
    assert np.array_equal(measured_in(contents.run).innovations, measured_in(shuffled).innovations)
    assert report_contents(shuffled).summary == contents.summary


def test_rounds_without_signal_have_no_innovation(make_contents):
    run = make_contents(trials=6, rounds=4).run
    second = run.tables.rounds["round"] == 2
    still = run.tables.rounds.assign(local_sensitivity=run.tables.rounds["local_sensitivity"].mask(second, 0.0))
    quieter = with_tables(run, rounds=still)
    assert np.isfinite(measured_in(quieter).innovations).sum() == 18
    contents = report_contents(quieter)
    assert contents.summary["innovations"]["rounds_left_out"] == 6
    nowhere = with_tables(run, rounds=run.tables.rounds.assign(local_sensitivity=0.0))
    assert np.isnan(measured_in(nowhere).innovations).all()


def test_quantiles_over_trials(make_contents):
    contents = make_contents(trials=11, rounds=3)
    rounds, (low, middle) = quantiles_by_round(contents.rounds, "local_sensitivity", (0, 0.5))
    second = contents.rounds.loc[contents.rounds["round"] == 2, "local_sensitivity"]
    assert rounds.tolist() == [1, 2, 3]
    assert (low[1], middle[1]) == pytest.approx((second.min(), second.median()))


def test_figure_shows_every_tensor_and_the_guarantee(make_contents):
    contents = make_contents(trials=20, noise=0.9)
    numbers = contents.find(NoiseFinding)
    axes = NOISE.picture.figure(numbers, contents).axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert len(names) == 4
    assert names[:2] == ["bias", "weight"]
    assert "the record" in names[2]
    assert names[3].startswith("All")
    low, high = axes.get_xlim()
    assert low < 0.9 < 1 < high
    tensor_rows = tuple((f"t{at}", 1 + at / 1000, 0.9, 1.1) for at in range(40))
    axes = NOISE.picture.figure(
        replace(numbers, estimate=replace(numbers.estimate, tensors=tensor_rows)), contents
    ).axes[0]
    assert len(axes.get_yticklabels()) == MOST_TENSORS + 2
    assert axes.get_yticklabels()[MOST_TENSORS - 1].get_text() == "t0"


def test_findings_that_a_run_has_none_of_are_left_out(make_contents):
    assert make_contents(trials=60, with_membership=False).find(FinalModelMembershipFinding) is None
    without = make_contents(trials=5, with_insider=False, exact=False, with_clients=False)
    assert set(pictures_of(without)) == {"other-guarantees", "accuracy", "epsilon-star"}


def test_incomplete_tables_are_refused(make_contents):
    tables = make_contents(trials=2, rounds=2).run.tables
    named = "rounds lacks sigma"
    assert_refused(named, lambda: RunTables(tables.trials, tables.rounds.drop(columns="sigma"), tables.releases))
    assert_refused("trials is empty", lambda: RunTables(tables.trials.head(0), tables.rounds, tables.releases))


def test_a_drawing_for_the_page_has_words_colours_of_the_screen_and_names_of_its_own(make_contents):
    contents = make_contents(trials=30, rounds=3)
    svg = _page_svg(figure_of(contents, "noise"), "noise")
    assert svg.startswith("<svg viewBox=")
    assert svg.endswith("</svg>")
    assert svg == _page_svg(figure_of(contents, "noise"), "noise")
    estimate = contents.find(NoiseFinding).estimate
    rounded_ratio = rounded(estimate.ratio, estimate.low, estimate.high, 1.0)
    text = re.escape(f"{rounded_ratio.value} ({rounded_ratio.interval})")
    assert re.search(rf"<text [^>]*>{text}<", svg), "words stay words, with all their digits"
    assert "var(--ink)" in svg
    assert not re.search(r"#(?!noise-)[0-9a-f]{6}|\bid=\"(?!noise-)|https?://(?!www\.w3\.org)", svg)
    assert len(svg) < 20_000


@pytest.mark.long
def test_the_trade_off_of_a_kept_guarantee_stays_under_it_and_of_half_the_noise_does_not(make_contents):
    rate_finding = make_contents(trials=2000, rounds=40).find(TprAtFprFinding)
    assert rate_finding.low <= rate_finding.allowed
    assert rate_finding.allowed == pytest.approx(stats.norm.cdf(stats.norm.ppf(0.1) + 0.55), abs=1e-6)
    assert rate_finding.low <= rate_finding.found <= rate_finding.high
    figure = figure_of(make_contents(trials=2000, rounds=40), "tradeoff")
    assert (figure.axes[0].get_xscale(), figure.axes[0].get_yscale()) == ("log", "log")
    assert figure.axes[0].get_xlim() == (1e-3, 1)


def test_other_guarantees_are_those_that_calibration_gives(make_contents):
    contents = make_contents(trials=30, rounds=3)
    guarantees = contents.find(AlternativeGuarantees).guarantees
    assert [guarantee.belief for guarantee in guarantees] == [0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99]
    assert all(
        guarantee.epsilon == pytest.approx(np.log(guarantee.belief / (1 - guarantee.belief)), rel=1e-6)
        for guarantee in guarantees
    )
    assert all(first.noise_multiplier > second.noise_multiplier for first, second in pairwise(guarantees))


def test_this_run_is_seen_among_other_guarantees_even_where_it_guarantees_less(make_contents):
    contents = make_contents(trials=20, rounds=3, mu=6.0)
    axes = figure_of(contents, "other-guarantees").axes[0]
    (here,) = next(line for line in axes.get_lines() if line.get_label() == "this run").get_ydata()
    low, high = axes.get_ylim()
    assert low < here < high
    assert here < min(guarantee.noise_multiplier for guarantee in contents.find(AlternativeGuarantees).guarantees)


def test_an_axis_spans_the_finite_numbers() -> None:
    assert figure_style.span([np.nan, 3.0], [[-2.0, np.inf]]) == (-2.0, 3.0)
    assert figure_style.span([np.nan]) == (0.0, 1.0)
