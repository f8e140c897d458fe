"""The origin of a run: noted with the run, told by its report, without the challenger's seed."""

import re
from dataclasses import replace

import pytest

from fl_audit.audits.common.sections_provenance import NOT_NOTED, provenance_line
from fl_audit.audits.page.papers_used import papers_of
from fl_audit.audits.page.report_page import render_html
from fl_audit.audits.sections import report_contents
from fl_audit.federation.run_tables import Provenance, RunSession
from fl_audit.runs.provenance import command_text

SEED = 0x9E3779B97F4A7C15
FIRST = RunSession(
    "2026-11-05T10:00:00+00:00",
    "fl-audit demo --out a",
    "0123456789ab",
    {"Python": "3.11.7", "fl_audit": "0.1.0", "flwr": "1.42.0", "torch": "2.13.0"},
    {"cores": "2"},
)


def test_a_report_tells_the_origin_that_was_stored_and_not_the_reader_s(make_contents):
    origin = Provenance((FIRST, replace(FIRST, began="2026-11-06T09:00:00+00:00")), "ab" * 32)
    assert Provenance.of_json(origin.to_json()) == origin
    run = make_contents(trials=5, rounds=2).run
    contents = report_contents(replace(run, provenance=origin))
    assert contents.summary == make_contents(trials=5, rounds=2).summary
    line = provenance_line(origin, 3).replace("\xa0", " ")
    assert (
        line
        == "5 November 2026 · fl_audit 0.1.0, flwr 1.42.0, torch 2.13.0 · data abababababab · fl-audit demo --out a"
    )
    html = render_html(contents, [])
    for phrase in ("fl-audit demo --out a", "0123456789ab", "Python 3.11.7", "2026-11-06T09:00", "ab" * 32):
        assert phrase in html
    unknown = render_html(report_contents(replace(run, provenance=replace(origin, data=None))), [])
    assert "test guesses" in unknown
    assert "test guesses" not in html
    secret = replace(origin, is_keyed=True, pool=1600)
    assert Provenance.of_json(secret.to_json()) == secret
    of_a_user = report_contents(replace(run, provenance=secret))
    records_text = f"{of_a_user.plan.federation.records:,} of 1,600 records drawn"
    page = render_html(of_a_user, [])
    assert page.count(records_text) == 2
    assert re.search(rf"{'ab' * 32}, [^.<]*key in challenger/", page)
    assert "data abababababab" in page.replace("\xa0", " ")
    assert records_text in provenance_line(secret, of_a_user.plan.federation.records)
    assert "all 1,600 records" in provenance_line(secret, 1600)
    assert NOT_NOTED in render_html(make_contents(trials=5, rounds=2), [])


@pytest.mark.parametrize(
    ("words", "expected_command"),
    [
        (["run", "a.toml", "--set", "audit.trials=9"], "fl-audit run a.toml --set audit.trials=9"),
        (["run", "a.toml", "--set", f"run.seed={SEED}", "--out", "b"], "fl-audit run a.toml --out b"),
        (["run", f"--set=run.seed = {SEED}", "a b.toml"], "fl-audit run 'a b.toml'"),
        (["run", "a.toml", "--out", f"runs/{SEED}"], None),
    ],
)
def test_the_command_is_told_without_the_seed(words, expected_command):
    assert command_text(["/usr/bin/fl-audit", *words], SEED) == expected_command


def test_programs_that_are_no_command_of_ours_are_not_told():
    assert command_text(["/home/me/secret_study.py", "--token", "x"], 1) is None
    assert command_text([], 1) is None


@pytest.mark.long
def test_the_papers_are_those_of_the_methods_used(make_contents):
    used = " ".join(papers_of(make_contents()))
    for doi in ("10.14778/3484224.3484231", "10.48550/arXiv.2307.11280", "10.1109/CSF.2017.11"):
        assert f"doi:{doi}" in used
    assert "LiRA" not in used
    less = " ".join(papers_of(make_contents(trials=5, with_epsilon_star=False, with_membership=False)))
    assert "Epsilon*" not in less
    assert "Yeom" not in less
