"""The Epsilon* of a run is that of the estimator that holds, and what it rests on stands beside it everywhere."""

import re
from dataclasses import replace

import numpy as np
import pytest

from fl_audit.audits.common.findings_epsilon_star import EpsilonStarFinding
from fl_audit.audits.page.report_page import render_html
from fl_audit.audits.sections import report_contents
from fl_audit.released_model.normal_fit_tests import FIT
from fl_audit.released_model.parametric_star import parametric_epsilon_star
from fl_audit.released_model.star_estimate import least_of_few
from fl_audit.released_model.star_methods import EpsilonStarLocation, StarMethod
from fl_audit.report.report_elements import ReportContents
from tests.report.test_report_cautions import terminal_text

TRIALS = 40


def played(
    contents: ReportContents, *, rejected: int | None, counted_star: float = 0.3, **audit: object
) -> ReportContents:
    """Return the contents of a run whose fit was rejected in so many trials, or was not tested."""
    tables = contents.run.tables
    plan = contents.plan
    trials = tables.trials
    releases = tables.releases
    if rejected is not None:
        p_values = np.where(np.arange(len(trials)) < rejected, 0.001, 0.6)
        trials = trials.assign(epsilon_star_counted=counted_star, **{FIT: p_values})
        releases = releases.assign(
            epsilon_star_counted=np.where(releases["round"] == 0, counted_star / 2, counted_star)
        )
    plan = replace(plan, config=plan.config.changed(audit=audit))
    return report_contents(replace(contents.run, tables=replace(tables, trials=trials, releases=releases), plan=plan))


def texts(contents: ReportContents) -> list[str]:
    (note,) = [finding["note"] for finding in contents.summary["findings"] if finding["name"].startswith("Epsilon*")]
    return [note, terminal_text(contents), render_html(contents, [])]


@pytest.mark.parametrize(("rejected", "is_counted"), [(0, False), (TRIALS // 2, False), (TRIALS // 2 + 1, True)])
def test_counted_losses_are_the_headline_where_normals_are_rejected_in_most_trials(
    make_contents, rejected: int, is_counted: bool
) -> None:
    plain = make_contents(exact=False, trials=TRIALS, rounds=4)
    contents = played(plain, rejected=rejected)
    star = contents.summary["epsilon_star"]
    before = plain.summary["epsilon_star"]
    by_normals = {name: before[name] for name in ("mean", "max", "untrained_mean", "untrained_max", "cut")}
    assert (star["fit_tested"], star["fit_rejected"]) == (TRIALS, rejected)
    if is_counted:
        assert star["method"] == "empirical"
        assert (star["mean"], star["untrained_mean"], star["cut"]) == (
            pytest.approx(0.3),
            0.15,
            contents.plan.star.counted_cut,
        )
        assert star["by_normals"] == by_normals
    else:
        assert star["method"] == "parametric"
        assert star["by_normals"] is None
        assert {name: star[name] for name in by_normals} == by_normals
    (entry,) = [finding for finding in contents.summary["findings"] if finding["name"].startswith("Epsilon*")]
    assert entry["value"] == star["mean"]
    assert all(
        f"rejected in {rejected} of {TRIALS}" in text.replace("\N{NO-BREAK SPACE}", " ") for text in texts(contents)
    )


def test_what_was_not_tested_is_told_with_its_reason_wherever_the_number_stands(make_contents) -> None:
    plain = make_contents(exact=False, trials=TRIALS, rounds=4)
    federated = played(plain, rejected=None, epsilon_star_losses=EpsilonStarLocation.FEDERATED)
    assert federated.summary["epsilon_star"]["fit_tested"] == 0
    assert all("not tested" in text for text in texts(federated))
    assert re.search(r"not tested: [^.<]*losses stay", render_html(federated, []))
    of_older_version = played(plain, rejected=0)
    trials = of_older_version.run.tables.trials.assign(**{FIT: np.nan})
    tables = replace(of_older_version.run.tables, trials=trials)
    of_older_version = report_contents(replace(of_older_version.run, tables=tables))
    assert all("not tested" in text for text in texts(of_older_version))
    assert re.search(r"not tested: [^.<]* 100 losses", render_html(of_older_version, []))


@pytest.mark.parametrize("has_few", [False, True])
def test_normals_that_no_test_could_judge_are_not_the_headline(make_contents, has_few: bool) -> None:
    contents = played(make_contents(exact=False, trials=TRIALS, rounds=4), rejected=0)
    tables = contents.run.tables
    lower_bound = 0.1 if has_few else np.nan
    trials = tables.trials.assign(epsilon_star_least=lower_bound, **{FIT: np.nan})
    releases = tables.releases.assign(epsilon_star_least=lower_bound)
    contents = report_contents(replace(contents.run, tables=replace(tables, trials=trials, releases=releases)))
    star = contents.find(EpsilonStarFinding)
    assert star is not None
    assert (star.method, star.fit_tested, star.is_lower_bound) == (StarMethod.EMPIRICAL, 0, has_few)
    assert star.mean == pytest.approx(lower_bound if has_few else 0.3)
    note, *_ = texts(contents)
    assert ("lower bound" in note) == has_few


def test_few_losses_without_a_leak_give_no_large_number() -> None:
    rng = np.random.default_rng(3)
    members = rng.gamma(2, size=(20, 30))
    population = rng.gamma(2, size=(20, 30))
    assert parametric_epsilon_star(members, population, 1e-5).mean() > 2
    assert least_of_few(members, population, 1e-5, 0.01).max() < 0.5
    assert np.isnan(least_of_few(np.ones((2, 100)), np.ones((2, 100)), 1e-5, 0.01)).all()
