"""The Epsilon* of a run is that of the estimator that holds, and what it rests on stands beside it everywhere."""

import re
from dataclasses import replace

import numpy as np
import pytest
from test_report_cautions import shown

from fl_audit.audits.common.findings_released_model import EpsilonStarFinding
from fl_audit.audits.page.report_page import render_html
from fl_audit.audits.sections import report_contents
from fl_audit.released_model.normal_fit_tests import FIT
from fl_audit.report.report_elements import ReportContents

TRIALS = 40


def played(contents: ReportContents, *, rejected: int | None, counted: float = 0.3, **audit: object) -> ReportContents:
    """Return the contents of a run whose fit was rejected in so many trials, or was not tested."""
    tables, facts = contents.run.tables, contents.facts
    trials, releases = tables.trials, tables.releases
    if rejected is not None:
        p_values = np.where(np.arange(len(trials)) < rejected, 0.001, 0.6)
        trials = trials.assign(epsilon_star_counted=counted, **{FIT: p_values})
        releases = releases.assign(epsilon_star_counted=np.where(releases["round"] == 0, counted / 2, counted))
    facts = replace(facts, configuration={**facts.configuration, "audit": audit})
    return report_contents(replace(contents.run, tables=replace(tables, trials=trials, releases=releases), facts=facts))


def texts(contents: ReportContents) -> list[str]:
    (note,) = [one["note"] for one in contents.summary["findings"] if one["name"].startswith("Epsilon*")]
    return [note, shown(contents), render_html(contents, [])]


@pytest.mark.parametrize(("rejected", "is_counted"), [(0, False), (TRIALS // 2, False), (TRIALS // 2 + 1, True)])
def test_counted_losses_are_the_headline_where_normals_are_rejected_in_most_trials(
    make_contents, rejected: int, is_counted: bool
) -> None:
    plain = make_contents(exact=False, trials=TRIALS, rounds=4)
    contents = played(plain, rejected=rejected)
    star, before = contents.summary["epsilon_star"], plain.summary["epsilon_star"]
    by_normals = {name: before[name] for name in ("mean", "max", "untrained_mean", "untrained_max", "cut")}
    assert (star["fit_tested"], star["fit_rejected"]) == (TRIALS, rejected)
    if is_counted:
        assert star["method"] == "empirical"
        assert (star["mean"], star["untrained_mean"], star["cut"]) == (
            pytest.approx(0.3),
            0.15,
            contents.facts.star.counted_cut,
        )
        assert star["by_normals"] == by_normals
    else:
        assert star["method"] == "parametric"
        assert star["by_normals"] is None
        assert {name: star[name] for name in by_normals} == by_normals
    (entry,) = [one for one in contents.summary["findings"] if one["name"].startswith("Epsilon*")]
    assert entry["value"] == star["mean"]
    assert all(
        f"rejected in {rejected} of {TRIALS}" in text.replace("\N{NO-BREAK SPACE}", " ") for text in texts(contents)
    )


def test_what_was_not_tested_is_told_with_its_reason_wherever_the_number_stands(make_contents) -> None:
    plain = make_contents(exact=False, trials=TRIALS, rounds=4)
    federated = played(plain, rejected=None, **{"epsilon-star-losses": "federated"})
    assert federated.summary["epsilon_star"]["fit_tested"] == 0
    assert all("not tested" in text for text in texts(federated))
    assert re.search(r"not tested: [^.<]*losses stay", render_html(federated, []))
    few = played(plain, rejected=0)
    trials = few.run.tables.trials.assign(**{FIT: np.nan})
    few = report_contents(replace(few.run, tables=replace(few.run.tables, trials=trials)))
    assert all("not tested" in text for text in texts(few))
    assert re.search(r"not tested: [^.<]* 100 losses", render_html(few, []))
    found = few.find(EpsilonStarFinding)
    assert found is not None
    assert found.by_normals is None
