import matplotlib
import numpy as np
import pytest
from scipy import stats

from fl_audit.errors import InputError
from fl_audit.report import RunContents
from fl_audit.report.page.figures import FIGURES, draw_all
from fl_audit.report.sections.captions import caption
from fl_audit.report.sections.client_figure import client_figure
from fl_audit.report.sections.innovation_figure import innovations_by_bit
from fl_audit.report.sections.insider_figures import beliefs_figure, worlds_shown
from fl_audit.report.sections.membership_figure import membership_figure
from fl_audit.report.sections.training_figures import promise_fits, quantiles_by_round, releases_figure
from fl_audit.report.wording import number_text

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"exact": False},
        {"worlds": 1},
        {"worlds": 1, "rounds": 1},
        {"worlds": 40, "rounds": 1, "with_epsilon_star": False},
        {"worlds": 25, "rounds": 200, "mu": 4.0},
        {"prior": 0.2},
        {"mu": 0.01},
    ],
    ids=str,
)
def test_every_figure_is_drawn_as_png(make_contents, shape):
    figures = draw_all(make_contents(**shape))
    assert list(figures) == list(FIGURES)
    assert all(png.startswith(PNG_SIGNATURE) for png in figures.values())


def test_large_runs_are_drawn(make_contents):
    assert len(draw_all(make_contents(worlds=5000, rounds=200))) == len(FIGURES)


def test_same_run_gives_the_same_bytes_and_leaves_no_global_state(make_contents):
    contents, settings = make_contents(worlds=30, rounds=3), dict(matplotlib.rcParams)
    assert draw_all(contents) == draw_all(contents)
    assert dict(matplotlib.rcParams) == settings


def texts(figure):
    legends = figure.legends + [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    return [text.get_text() for legend in legends for text in legend.get_texts()]


def test_axes_have_names(make_contents):
    for draw in FIGURES.values():
        figure = draw(make_contents(worlds=30, rounds=3))
        assert figure.axes[-1].get_xlabel()
        assert figure.axes[0].get_ylabel()


def test_belief_figure_names_law_bound_and_share(make_contents):
    legend = " ".join(texts(beliefs_figure(make_contents())))
    assert "exact law, μ = 0.55" in legend
    assert "of 300" in legend
    assert "δ = 0.12" in legend
    assert "promise (upper limit)" in " ".join(texts(beliefs_figure(make_contents(exact=False))))


def test_bars_of_the_belief_histogram_have_area_one(make_contents):
    bars = beliefs_figure(make_contents()).axes[0].containers[0]
    assert sum(bar.get_height() * bar.get_width() for bar in bars) == pytest.approx(1)


def test_epsilon_star_panel_is_left_out_when_turned_off(make_contents):
    assert len(releases_figure(make_contents(worlds=5)).axes) == 2
    assert len(releases_figure(make_contents(worlds=5, with_epsilon_star=False)).axes) == 1


def test_promised_epsilon_is_drawn_only_where_it_leaves_the_curve_readable(make_contents):
    contents = make_contents(worlds=30, rounds=3)
    assert promise_fits(contents)
    assert any("promised epsilon" in text for text in texts(releases_figure(contents)))
    contents.summary["guarantee"]["epsilon"] = 50.0
    assert not promise_fits(contents)
    assert not any("promised epsilon" in text for text in texts(releases_figure(contents)))


@pytest.mark.parametrize("exact", [True, False])
def test_innovations_are_standard_normal_in_every_mode(make_contents, exact):
    parts = innovations_by_bit(make_contents(exact=exact))
    assert set(parts) == {0, 1}
    assert sum(part.size for part in parts.values()) == 300 * 30
    assert all(stats.kstest(part, "norm").pvalue > 0.001 for part in parts.values())


def test_innovations_do_not_depend_on_the_order_of_rows(make_contents):
    contents = make_contents(worlds=9, rounds=4)
    shuffled = RunContents(**{**vars(contents), "rounds": contents.rounds.sample(frac=1, random_state=1)})
    for bit, part in innovations_by_bit(contents).items():
        assert np.array_equal(part, innovations_by_bit(shuffled)[bit])


def test_rounds_without_signal_have_no_innovation(make_contents):
    contents = make_contents(worlds=6, rounds=4)
    contents.rounds.loc[contents.rounds["round"] == 2, "local_sensitivity"] = 0.0
    assert sum(part.size for part in innovations_by_bit(contents).values()) == 18
    contents.rounds["local_sensitivity"] = 0.0
    assert innovations_by_bit(contents) == {}
    assert len(draw_all(contents)) == len(FIGURES)


def test_worlds_shown_are_the_first_of_either_bit(make_contents):
    worlds = make_contents().worlds
    shown = worlds_shown(worlds)
    assert shown["bit"].tolist() == [1] * 6 + [0] * 6
    assert shown.loc[shown["bit"] == 0, "world"].tolist() == worlds.loc[worlds["bit"] == 0, "world"].head(6).tolist()
    only = worlds[worlds["bit"] == 1]
    assert len(worlds_shown(only)) == 12


def test_quantiles_over_worlds(make_contents):
    contents = make_contents(worlds=11, rounds=3)
    rounds, (low, middle) = quantiles_by_round(contents.rounds, "local_sensitivity", (0, 0.5))
    second = contents.rounds.loc[contents.rounds["round"] == 2, "local_sensitivity"]
    assert rounds.tolist() == [1, 2, 3]
    assert (low[1], middle[1]) == pytest.approx((second.min(), second.median()))


def test_membership_figure_has_every_advantage_and_each_bound_that_says_something(make_contents):
    contents = make_contents()
    legend = " ".join(texts(membership_figure(contents)))
    assert "exact bound, one record: 0.217" in legend
    assert "exact bound, members and others: 0.218" in legend
    assert "(Kairouz et al. 2015): 0.8" in legend
    assert "Yeom" not in legend
    contents.summary["membership"] |= {"yeom_bound": 0.1052, "bound": 0.21671}
    figure = membership_figure(contents)
    legend = " ".join(texts(figure))
    assert "bound of Yeom et al. 2018" in legend
    assert "members and others" not in legend
    shown = {text.get_text() for text in figure.axes[0].texts}
    assert {"0.0179", number_text(contents.summary["insider"]["advantage"], 3)} <= shown


def test_membership_figure_is_left_out_when_turned_off(make_contents):
    assert "membership" in draw_all(make_contents(worlds=5))
    assert set(FIGURES) - set(draw_all(make_contents(worlds=5, with_membership=False))) == {"membership"}


def test_incomplete_tables_are_refused(make_contents):
    contents = make_contents(worlds=2, rounds=2)
    with pytest.raises(InputError, match="rounds lacks sigma"):
        RunContents(**{**vars(contents), "rounds": contents.rounds.drop(columns="sigma")})
    with pytest.raises(InputError, match="worlds is empty"):
        RunContents(**{**vars(contents), "worlds": contents.worlds.head(0)})


def test_client_figure_marks_what_is_unbounded_and_leaves_out_what_has_no_value(make_contents):
    contents = make_contents()
    axes = client_figure(contents).axes[0]
    medians, unbounded, _ = axes.lines
    assert list(medians.get_xdata()) == [0, 1, 2, 4]
    assert list(unbounded.get_xdata()) == [4]
    words = caption("client-epsilon-star", contents)
    assert "No value for 1 client " in words.text
    assert "5 clients" in words.alternative
    assert "client-epsilon-star" not in draw_all(make_contents(with_clients=False))
