"""Cautions of a report beside its numbers: lines about the data, a model that names one class, Epsilon* of chance."""

import re
from dataclasses import replace

import numpy as np
import pytest

from fl_audit.audits.common.findings_epsilon_star import FEW_NATS, EpsilonStarFinding
from fl_audit.audits.common.report_cautions import NOT_MEANINGFUL, cautions_for_reader
from fl_audit.audits.common.sections_guarantee import person_text
from fl_audit.audits.page.engineer_part import engineer_part, next_step
from fl_audit.audits.page.first_screen import first_screen
from fl_audit.audits.page.report_page import render_html
from fl_audit.audits.sections import report_contents
from fl_audit.federation.federation import Federation
from fl_audit.federation.run_tables import NonPrivateAccuracy
from fl_audit.report.report_elements import ReportContents
from fl_audit.verdict.verdict import Verdict, VerdictDetails
from fl_audit.words import percent
from tests.builders.pages import console_text
from tests.report.conftest import KINDS


def changed(contents: ReportContents, untrained: float = 0.5, **facts: object) -> ReportContents:
    """Return the contents with other facts on the run, and another Epsilon* of untrained models."""
    tables = contents.run.tables
    releases = tables.releases.assign(
        epsilon_star=np.where(tables.releases["round"] == 0, untrained, tables.releases["epsilon_star"])
    )
    return report_contents(replace(contents.run, tables=replace(tables, releases=releases), **facts))


def terminal_text(contents: ReportContents) -> str:
    return " ".join(console_text(contents, width=300).split())  # a caption is broken into lines as wide as the table


def test_lines_about_the_data_stand_in_summary_console_and_first_screen(make_contents):
    small = make_contents(exact=False, trials=40, rounds=4)
    contents = changed(small, look_at=("lines about data",), most_records=7)
    assert contents.summary["look_at"] == ["lines about data"]
    assert "lines about data" in terminal_text(contents)
    assert "lines about data" in first_screen(contents)
    assert re.search(r"up to 7, .*protected less", person_text(contents))
    assert "protected less" not in person_text(changed(contents, most_records=1))


def test_a_model_no_better_than_one_class_is_told(make_contents):
    contents = make_contents(exact=False, trials=40, rounds=4)
    accuracy = float(contents.summary["utility"]["test_accuracy"])
    (line,) = changed(contents, commonest=accuracy).summary["look_at"]
    share = re.escape(percent(round(accuracy, 3)))
    assert re.search(rf"no better .*one class: .*{share} .*, against {share} ", line)
    assert " ".join(line.split()) in terminal_text(changed(contents, commonest=accuracy))
    assert changed(contents, commonest=accuracy - 0.01).summary["look_at"] == []
    assert "--without-privacy" in line


@pytest.mark.parametrize(
    ("without_privacy", "reason"), [(0.2, "the data, model or training are"), (1.0, "the noise is")]
)
def test_a_run_without_privacy_that_was_played_is_not_advised_but_used(make_contents, without_privacy, reason):
    contents = make_contents(exact=False, trials=40, rounds=4)
    accuracy = float(contents.summary["utility"]["test_accuracy"])
    unprotected_accuracy = NonPrivateAccuracy("other", 5, (0, 4), (0.1, without_privacy))
    (line,) = changed(contents, commonest=max(accuracy, 0.5), unprotected=unprotected_accuracy).summary["look_at"]
    assert "--without-privacy" not in line
    assert line.endswith(f"so {reason} the reason")


@pytest.mark.parametrize(("needed", "is_advised"), [(-1, False), (0, False), (1, True)])
def test_no_trials_are_advised_that_were_played(make_contents, needed, is_advised, monkeypatch):
    contents = make_contents(**KINDS[Verdict.INCONCLUSIVE])
    trials = contents.run.trials + needed
    monkeypatch.setattr(VerdictDetails, "trials_for_conclusive_verdict", property(lambda _: trials))
    assert ("Set trials = " in next_step(contents)) is is_advised


def test_a_run_without_noise_is_not_advised_to_run_without_privacy(make_contents):
    contents = make_contents(exact=False, trials=40, rounds=4, with_guarantee=False, with_insider=False)
    assert not contents.plan.federation.mechanism.adds_noise
    (line,) = changed(contents, commonest=1.0).summary["look_at"]
    assert "no better" in line
    assert "--without-privacy" not in line
    with_noise = make_contents(exact=False, trials=40, rounds=4)
    members = replace(with_noise.plan.federation, audit="canaries")
    assert not any(
        "--without-privacy" in caution for caution in cautions_for_reader(_with_federation(with_noise, members))
    )


def _with_federation(contents: ReportContents, federation: Federation) -> ReportContents:
    plan = replace(contents.plan, federation=federation)
    return replace(contents, run=replace(contents.run, plan=plan, commonest=1.0))


@pytest.mark.parametrize(("untrained", "is_told"), [(FEW_NATS, False), (FEW_NATS + 0.1, True), (np.inf, True)])
def test_epsilon_star_of_chance_is_called_meaningless_everywhere(make_contents, untrained: float, is_told: bool):
    contents = changed(make_contents(exact=False, trials=40, rounds=4), untrained)
    names = [entry["name"] for entry in contents.summary["findings"] if entry["name"].startswith("Epsilon*")]
    texts = (*names, terminal_text(contents), render_html(contents, []), engineer_part(contents))
    assert all((NOT_MEANINGFUL in text) == is_told for text in texts)
    assert any(NOT_MEANINGFUL in line for line in contents.summary["look_at"]) == is_told
    assert contents.summary["epsilon_star"]["is_meaningful"] is not is_told


def test_where_chance_is_not_known_nothing_is_said():
    assert EpsilonStarFinding(1.0, 2.0, 1e-3, 0.0, float("nan"), float("nan")).is_meaningful
