"""The first screen of a report: the verdict, three numbers, the gauge, what to do next; that nothing there misleads."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from scipy.stats import binom

from fl_audit.adjacency import Adjacency
from fl_audit.audits.page.drawn_pictures import draw_all
from fl_audit.audits.page.engineer_part import engineer_part, facts_of, next_step, warnings_of
from fl_audit.audits.page.first_screen import first_screen, first_screen_of
from fl_audit.audits.page.gauge import gauge_html
from fl_audit.audits.page.report_files import ON_PAPER, why_no_pdf, write_pdf
from fl_audit.audits.page.report_page import render_html
from fl_audit.audits.sections import report_contents
from fl_audit.data.randomizers import RandomisedBits
from fl_audit.federation.run_tables import Timing
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.privacy.guarantee import derive_guarantee
from fl_audit.report.stylesheet import DARK, LIGHT, STYLESHEET
from fl_audit.statistics.advantage import most_wins
from fl_audit.verdict.declared_tests import TestName
from fl_audit.verdict.noise_estimate import recomputed_epsilon
from fl_audit.verdict.sections_verdict import banner, verdict_of
from fl_audit.verdict.verdict import Verdict
from tests.builders.pages import ParsedPage, opening_of, text_of
from tests.report.conftest import KINDS


@pytest.mark.parametrize("verdict", KINDS, ids=str)
def test_the_first_screen_has_its_parts_in_order(make_contents, verdict):
    contents = make_contents(**KINDS[verdict])
    assert verdict_of(contents).verdict is verdict
    html = first_screen(contents)
    engineer = engineer_part(contents)
    markers = ('id="engineer"', 'class="facts"', 'class="gauge"', "To do.", 'class="origin')
    positions = [engineer.index(marker) for marker in markers]
    assert positions == sorted(positions)
    page = render_html(contents, [])
    assert page.index(html) < page.index(engineer) < page.index('id="words"') < page.index('id="numbers"')
    assert engineer.count("<dt>") == (3 if verdict is Verdict.VIOLATED else 2)
    look = "open" if verdict in (Verdict.NOT_AUDITED, Verdict.NO_GUARANTEE) else str(verdict)
    assert f'class="verdict {look}"' in html
    assert next_step(contents).endswith(".")
    assert not re.search(r"\bNone\b(?! of)|\bnan\b|\binf\b", text_of(html))


def test_a_violated_report_leads_with_what_broke_and_nothing_before_acquits(make_contents):
    contents = make_contents(**KINDS[Verdict.VIOLATED])
    html = render_html(contents, [])
    first = text_of(html[html.index("<body") : html.index('id="words"')])
    assert re.search(r"Verdict: Violated\s+The guarantee below does not hold. The noise is half of what was", first)
    assert not re.search(r"consistent|contradicts|none of \d|kept its|within", first, re.IGNORECASE)
    assert facts_of(contents)[0].value == "50\xa0%"
    assert next_step(contents) != next_step(make_contents(**KINDS[Verdict.CONSISTENT]))


def test_a_delta_that_lets_whole_records_be_published_is_warned_of(make_contents):
    contents = make_contents(exact=False)
    guarantee = contents.plan.guarantee
    assert guarantee.delta * contents.plan.federation.records > 1
    (line,) = warnings_of(contents)
    assert "1,000 records" in line
    assert line in text_of(first_screen(contents))
    small_plan = replace(contents.plan, federation=replace(contents.plan.federation, records=100))
    assert warnings_of(replace(contents, run=replace(contents.run, plan=small_plan))) == []


def test_right_guesses_stand_beside_what_a_kept_guarantee_allows(make_contents):
    contents = make_contents(exact=False)
    estimate = contents.summary["insider"]
    bound = contents.plan.guarantee.advantage_bound_exact
    largest_count = most_wins(estimate["trials"], bound, 0.001)
    distribution = binom(estimate["trials"], (1 + bound) / 2)
    assert distribution.sf(largest_count) <= 0.001 < distribution.sf(largest_count - 1)
    fact = facts_of(contents)[1]
    assert fact.value == f"{estimate['wins']} of 300"
    assert re.findall(r"[\d,]+", fact.note.replace(", ", " ")) == [str(largest_count), "1,000"]


def test_an_inconclusive_run_says_how_many_trials_and_minutes_would_tell(make_contents):
    run = make_contents(exact=False, trials=1).run
    slow = report_contents(replace(run, timing=Timing(30.0, 100.0, 0.02, "ray")))
    needed = verdict_of(slow).judgement.trials_for_conclusive_verdict
    minutes = round((needed / 0.02 + 30) / 60)
    assert f"{needed} trials, about {minutes} minutes" in text_of(engineer_part(slow))
    assert f"trials = {needed}" in next_step(slow)
    assert f"{needed} trials" in first_screen_of(slow).next_step
    unknown = report_contents(replace(run, timing=Timing()))
    assert f"{needed} trials" in text_of(engineer_part(unknown))
    assert "minutes" not in text_of(engineer_part(unknown))
    assert verdict_of(make_contents(exact=False, trials=needed)).verdict is not Verdict.INCONCLUSIVE
    assert verdict_of(make_contents(exact=False, trials=needed // 3)).verdict is Verdict.INCONCLUSIVE


def test_a_run_that_could_find_missing_noise_says_that_the_count_alone_is_open(make_contents):
    needed = verdict_of(make_contents(exact=False, trials=1)).judgement.trials_needed
    contents = make_contents(exact=False, trials=needed)
    judgement = verdict_of(contents).judgement
    assert judgement.conclusive
    assert not judgement.signal.conclusive
    assert verdict_of(contents).verdict is Verdict.INCONCLUSIVE
    short_page, page = (
        text_of(render_html(run_contents, [])) for run_contents in (make_contents(exact=False, trials=1), contents)
    )
    blind = "breach could hardly"
    assert blind in short_page
    assert blind not in page
    assert page.count("counts 1.5 times") >= 3


def bars_of(html):
    """Return kind, left and right end in percent of every bar of a gauge."""
    matches = re.findall(r'class="bar ([a-z ]+)" style="left:([\d.]+)%;width:([\d.]+)%', html)
    return [(kind, float(left_end), float(left_end) + float(width)) for kind, left_end, width in matches]


@pytest.mark.long
def test_the_gauge_reaches_beyond_what_was_measured_and_marks_what_could_not_be_found(make_contents):
    contents = make_contents(**KINDS[Verdict.VIOLATED] | {"noise": 0.1})
    judgement = verdict_of(contents).judgement
    guarantee = contents.plan.guarantee
    bars = {kind: ends for kind, *ends in bars_of(gauge_html(contents))}
    assert bars["shown beyond"][1] < 100, "the bar of what was shown ends on the axis"
    claimed_end = bars["claimed"][1]
    assert bars["shown beyond"][1] / claimed_end == pytest.approx(
        judgement.epsilon_lower_bound / guarantee.epsilon, rel=2e-3
    )
    assert bars["blind"][1] / claimed_end == pytest.approx(judgement.limit_of_detection / guarantee.epsilon, rel=4e-3)
    assert bars["detectable"] == [pytest.approx(bars["blind"][1], abs=0.02), pytest.approx(100, abs=0.02)]
    nothing = gauge_html(make_contents(**KINDS[Verdict.NO_GUARANTEE]))
    assert "axis" not in nothing
    assert bars_of(nothing) == []


def test_a_loose_accountant_is_told_from_the_noise_whose_breach_begins_below_the_guarantee(make_contents):
    contents = make_contents(exact=False)
    guarantee = contents.plan.guarantee
    html = gauge_html(contents)
    exact_epsilon = recomputed_epsilon(guarantee)
    assert exact_epsilon < min(guarantee.epsilon, verdict_of(contents).judgement.limit_of_detection)
    assert exact_epsilon == pytest.approx(gdp_epsilon(guarantee.delta, guarantee.claim.profile.gaussian_mu))
    assert html.count('class="kept"') == 3
    line = re.search(r'class="line" style="(left:[\d.]+%)"', html)
    assert f'<span style="{line[1]}">claimed</span>' in html
    assert f"gives away exactly {exact_epsilon:.3g}" in text_of(html)
    exact = derive_guarantee(replace(guarantee.claim, accountant=Accountant.GDP))
    run = replace(contents.run, plan=replace(contents.plan, guarantee=exact))
    assert 'class="kept"' not in gauge_html(report_contents(run))


@pytest.mark.long
def test_what_is_shown_at_95_percent_alone_is_no_alarm(make_contents):
    # By chance, as one run in 20, the noise along the record looks too small.
    chance_contents = next(
        contents
        for contents in (make_contents(exact=False, trials=1, rounds=2, seed=seed, mu=2.0) for seed in range(400))
        if verdict_of(contents).judgement.epsilon_lower_bound > contents.plan.guarantee.epsilon
        and verdict_of(contents).verdict is Verdict.INCONCLUSIVE
    )
    html = gauge_html(chance_contents)
    assert "beyond" not in html
    assert "1 in 20" in html
    assert "1 in 1,000" in html


def test_scores_of_no_known_distribution_are_not_said_to_find_anything(make_contents):
    contents = make_contents(exact=False, trials=12)
    trials = contents.trials.assign(score=contents.trials["log_odds"], log_odds=float("nan"))
    run = replace(contents.run, tables=replace(contents.run.tables, trials=trials))
    scored = report_contents(run)
    numbers = verdict_of(scored)
    assert numbers.verdict is Verdict.INCONCLUSIVE
    first = text_of(first_screen(scored) + engineer_part(scored))
    assert "gross" not in first
    assert "would find" not in first


def test_with_a_prior_the_first_number_says_of_which_answer_it_is(make_contents):
    fact = first_screen_of(make_contents(exact=False, prior=0.2)).facts[1]
    assert "from 20\xa0% beforehand; " in fact.note


def test_randomised_records_are_not_called_unprotected_on_the_first_screen(make_contents):
    plain = make_contents(**KINDS[Verdict.NO_GUARANTEE])
    federation = replace(plain.plan.federation, local_randomizer=RandomisedBits(2.0))
    randomised = report_contents(replace(plain.run, plan=replace(plain.plan, federation=federation)))
    assert facts_of(randomised)[0] != facts_of(plain)[0]
    assert next_step(randomised) != next_step(plain)
    assert "as protected" not in next_step(randomised)


def luminance(colour):
    channels = [int(colour[offset : offset + 2], 16) / 255 for offset in (1, 3, 5)]
    linear = [channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(colour, other_colour):
    low, high = sorted((luminance(colour), luminance(other_colour)))
    return (high + 0.05) / (low + 0.05)


TEXT_ON_GROUND = (
    ("ink", "paper"),
    ("muted", "paper"),
    ("ink", "pale"),
    ("ink", "good-ground"),
    ("good", "good-ground"),
    ("bad", "bad-ground"),
    ("ink", "open-ground"),
    ("open", "open-ground"),
    ("label", "label-ground"),
)
"""Every pair of a text's colour and the ground that it stands on."""


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_every_text_can_be_read_on_its_ground(colours):
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    for text, ground in TEXT_ON_GROUND:
        assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for bar in ("shown", "beyond", "ink", "muted"):
        assert contrast(colours[bar], colours["paper"]) >= 3, bar


def test_the_style_sheet_uses_the_palette_alone():
    assert set(LIGHT) == set(DARK)
    rules = STYLESHEET.partition("* {")[2]
    assert not re.search(r"#[0-9a-f]{3,6}\b|rgb|https?:|url\(|@import", rules)
    texts = set(re.findall(r"[ ;{]color: var\(--([a-z-]+)\)", rules))
    grounds = set(re.findall(r"background: var\(--([a-z-]+)\)", rules)) - {"shown", "beyond", "muted"}
    assert texts == {text for text, _ in TEXT_ON_GROUND}
    assert grounds == {ground for _, ground in TEXT_ON_GROUND}


@pytest.mark.long
def test_headings_do_not_jump_and_nothing_is_loaded(make_contents):
    page = ParsedPage(render_html(make_contents(adjacency=Adjacency.ADD_REMOVE_RECORD), []))
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert not {"script", "link", "iframe", "object", "embed"} & {tag for tag, _ in page.tags}
    loads = page.values_of("src", "srcset", "data", "background") + page.values_of("href", tags=("use", "image"))
    assert all(load.startswith("data:") for load in loads)


@pytest.mark.long
@pytest.mark.skipif(bool(why_no_pdf()), reason="no WeasyPrint")
@pytest.mark.drawn
@pytest.mark.parametrize("verdict", [Verdict.CONSISTENT, Verdict.VIOLATED], ids=str)
def test_the_pdf_has_five_pages_with_the_configuration_and_an_annex_to_sign(make_contents, tmp_path, verdict):
    import weasyprint

    contents = make_contents(**KINDS[verdict])
    html = render_html(contents, draw_all(contents), on_paper=True, with_appendix=False)
    for marker in ('id="configuration"', "Signature", "run.keep-releases"):
        assert marker in html
    assert 'id="appendix"' not in html
    assert len(weasyprint.HTML(string=html).render(stylesheets=[weasyprint.CSS(string=ON_PAPER)]).pages) == 5
    write_pdf(html, tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF-")
    assert [file.name for file in tmp_path.iterdir()] == ["report.pdf"]


def test_without_weasyprint_no_pdf_is_left_and_the_reason_is_said(monkeypatch, tmp_path):
    (tmp_path / "report.pdf").write_bytes(b"of an earlier run")
    monkeypatch.setitem(__import__("sys").modules, "weasyprint", None)
    why_no_pdf.cache_clear()
    try:
        assert re.fullmatch(r"WeasyPrint .*not installed \(pip install 'fl-audit\[pdf\]'\)", why_no_pdf())
        write_pdf("<html></html>", tmp_path / "report.pdf")
    finally:
        why_no_pdf.cache_clear()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_noise_of_another_size_is_not_said_to_be_copied_or_odd(make_contents):
    judgement = verdict_of(contents := make_contents(**KINDS[Verdict.VIOLATED])).judgement
    assert {TestName.SHAPE, TestName.NOISE_TOTAL} <= {test.name for test in judgement.broken}
    assert "Also" not in banner(contents).line


def test_a_guarantee_that_allows_certainty_does_not_say_100_percent(make_contents):
    contents = make_contents(mu=9.0, trials=20)
    assert contents.plan.guarantee.belief_bound == 1
    text = opening_of(contents)
    assert "may become sure" in text
    assert "more than 100" not in text
