"""The page and its appendix: what stands where, that every number is there, that nothing is too long."""

import html
import json
import re
from dataclasses import dataclass, replace

import pytest

from fl_audit.audits.common.findings_epsilon_star import EpsilonStarFinding
from fl_audit.audits.common.sections_accuracy import ModelAccuracyFinding
from fl_audit.audits.common.sections_mechanism import _flat
from fl_audit.audits.identifiability.sections_insider import InsiderFinding
from fl_audit.audits.page.drawn_pictures import DrawnPicture
from fl_audit.audits.page.first_screen import first_screen
from fl_audit.audits.page.report_files import write_report
from fl_audit.audits.page.report_page import MOST_FAILED, ON_ITS_WORD, render_html
from fl_audit.audits.sections import SECTIONS, page_rows, report_contents, sections_with_findings
from fl_audit.data.catalogue import DataSpec
from fl_audit.federation.run_tables import Timing
from fl_audit.report.mechanism_messages import AUDIT_DEVICE
from fl_audit.report.report_elements import Section
from fl_audit.statistics.claim_comparisons import Reading, finding_text
from fl_audit.verdict.declared_tests import FAMILY_LEVEL, TestName
from fl_audit.verdict.sections_noise import NoiseFinding
from fl_audit.verdict.sections_verdict import banner, verdict_of
from fl_audit.verdict.verdict import Verdict
from fl_audit.verdict.verdict_messages import broken_tests, message_of, p_text, title_of
from fl_audit.words import number_text
from tests.builders.pages import ParsedPage, console_text, opening_of, text_of, undrawn
from tests.report.conftest import KINDS


def html_of(contents):
    return render_html(contents, undrawn(contents))


def page_and_appendix(contents):
    page, appendix = html_of(contents).split('<h2 id="appendix"')
    return page[page.index("<body") :], appendix


def words_of(html):
    return text_of(html).split()


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("verdict", KINDS, ids=str)
def test_the_page_is_short_and_the_rest_is_folded(make_contents, verdict):
    contents = make_contents(**KINDS[verdict])
    assert verdict_of(contents).verdict is verdict
    page, appendix = page_and_appendix(contents)
    assert len(words_of(first_screen(contents))) <= 250
    assert len(words_of(page)) <= 1000
    assert page.count("<figure id=") <= 4
    assert page.count("<table") == 1
    assert "<details" not in page
    assert re.findall(r"<h2 id=\"([a-z]+)\"", page)[:3] == ["person", "engineer", "words"]
    listed = re.findall(r'<a href="#([a-z-]+)"', appendix)
    assert [name for name in ParsedPage(html_of(contents)).values_of("id") if name in listed] == listed
    assert appendix.count("<details>") == len(listed) <= len(sections_with_findings(contents)) + 1
    for caption in re.findall(r"<figcaption>(.*?)</figcaption>", page + appendix, re.DOTALL):
        assert len(words_of(re.sub(r"<strong>.*?</strong>", "", caption))) <= 40, caption
    assert not re.search(r"\bNone\b(?! of)|\bnan\b", ParsedPage(html_of(contents)).text)
    assert banner(contents).word.lower() == str(verdict)


def test_nothing_on_a_violated_page_takes_the_guarantee_at_its_word(make_contents):
    contents = make_contents(**KINDS[Verdict.VIOLATED])
    page, appendix = page_and_appendix(contents)
    trusting = [section.name for section, _ in sections_with_findings(contents) if section.trusts]
    assert {"beliefs", "tradeoff"} <= set(trusting)
    assert not any(f'id="figure-{name}"' in page for name in trusting)
    assert appendix.count(ON_ITS_WORD) == len(trusting)
    assert f">{Reading.KEPT}<" not in page
    broken = broken_tests(verdict_of(contents).judgement, contents.words, contents.noise)
    assert page.count("<li><strong>") == min(MOST_FAILED, len(broken))
    assert ON_ITS_WORD not in html_of(make_contents(exact=False))


def leaves(entry):
    if isinstance(entry, dict):
        return [leaf for value in entry.values() for leaf in leaves(value)]
    return [leaf for value in entry for leaf in leaves(value)] if isinstance(entry, list) else [entry]


def test_every_number_of_the_summary_is_on_the_page(make_contents):
    contents = make_contents()
    values = set(ParsedPage(html_of(contents)).values_of("value", tags=("data",)))
    words = ("schema", "findings", "noise", "exact")  # exact answers stand there as sentences
    summary = {key: value for key, value in contents.summary.items() if key not in words}
    summary["noise"] = {key: value for key, value in contents.summary["noise"].items() if key not in ("tests", "level")}
    numbers = [leaf for leaf in leaves(summary) if isinstance(leaf, int | float) and not isinstance(leaf, bool)]
    assert len(numbers) > 100
    missing = [number for number in numbers if number not in (0, 1, 0.95) and str(number) not in values]
    assert missing == []


@pytest.mark.parametrize("noise", [1.0, 0.5])
def test_readings_stand_in_summary_page_and_console_alike(make_contents, noise):
    contents = make_contents(trials=60, exact=False, noise=noise, seed=8)
    findings = {entry["name"]: entry for entry in contents.summary["findings"]}
    rows = {row.name: row for row in page_rows(contents)}
    assert findings.keys() == rows.keys()
    assert {"Advantage of the insider", "Share of D found at 10\xa0% false alarms", "Test accuracy"} <= findings.keys()
    page, _ = page_and_appendix(contents)
    for name, row in rows.items():
        assert findings[name]["reading"] == row.reading
        assert name in page
    terminal = " ".join(console_text(contents).replace("│", "").split())
    assert all(" ".join(finding_text(entry).split()) in terminal for entry in findings.values())


def test_report_is_written_whole_and_self_contained(make_contents, tmp_path):
    contents = make_contents(trials=25, rounds=4)
    path = write_report(contents, tmp_path / "run")
    names = {file.relative_to(tmp_path / "run").as_posix() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    assert names == {"report.html"} | {f"figures/{picture.name}.png" for picture in undrawn(contents)}
    text = path.read_text(encoding="utf-8")
    assert all(link.startswith(("data:image/png;base64,", "#")) for link in ParsedPage(text).values_of("src", "href"))
    assert not re.search(r"url\(|@import|<script|<link", text)


def test_user_strings_are_escaped_and_dollars_kept(make_contents):
    evil = "<script>alert('x')</script> $5"
    run = make_contents(model=evil).run
    plan = replace(run.plan, config=run.plan.config.changed(data={"name": evil, "partition_parameters": {"<b>": evil}}))
    contents = report_contents(replace(run, plan=plan, timing=Timing(engine=evil)))
    text = render_html(contents, [DrawnPicture(evil, b"x", evil, evil)])
    ParsedPage(text)
    assert "<script" not in text
    assert "<b>" not in text
    assert "&lt;script&gt;" in text
    assert "$5" in text
    assert "[bold]x" in console_text(make_contents(model="[bold]x"))


@pytest.mark.long
def test_titles_name_the_last_part_and_the_configuration_the_whole(make_contents):
    data, model = "papers.of_2019.faces:lfw", "papers.of_2019.networks:small_net"
    run = make_contents(model=model).run
    federation = replace(run.plan.federation, data=DataSpec(data))
    config = run.plan.config.changed(data={"name": data}, model={"name": model})
    contents = report_contents(replace(run, plan=replace(run.plan, federation=federation, config=config)))
    text = html_of(contents)
    terminal = console_text(contents)
    assert re.search("<title>[^<]*: lfw, small_net</title>", text)
    assert "lfw, small_net:" in terminal
    assert data not in terminal + text.split('<h2 id="appendix"')[0]
    for name in (data, model):
        assert json.dumps(name, ensure_ascii=False) in html.unescape(text.split('<h2 id="appendix"')[1])


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("shape", [{}, {"prior": 0.3}, {"noise": 0.5}, {"trials": 1}, {"exact": False}], ids=str)
def test_words_need_no_course(make_contents, shape):
    text = opening_of(make_contents(**shape))
    assert not re.search(
        r"[\u0370-\u03ff]|log-odds|sigma|sensitivity|posterior|delta|None|nan|D'|Epsilon|direction|neighbours", text
    )


@pytest.mark.long
def test_audit_device_is_labelled_and_simulation_always_said(make_contents):
    local, private = (ParsedPage(html_of(make_contents(exact=exact))).text for exact in (True, False))
    assert AUDIT_DEVICE in local
    assert AUDIT_DEVICE not in private
    assert "no secure release" in local
    assert "no secure release" in private
    assert AUDIT_DEVICE in console_text(make_contents())


@pytest.mark.long
def test_every_test_is_named_in_words_with_its_level(make_contents):
    contents = make_contents(trials=20)
    tests = contents.find(NoiseFinding).judgement.tests
    rows = [message_of(test, contents.words, contents.noise) for test in verdict_of(contents).judgement.tests]
    assert [row.test.p_value for row in rows] == [test.p_value for test in tests]
    assert {test.name for test in tests} <= set(TestName) - {TestName.SCORES}
    assert sum(row.test.level for row in rows) <= FAMILY_LEVEL * (1 + 1e-9)
    assert len({row.title for row in rows}) == len(rows)
    html = html_of(contents)
    assert all(row.title in ParsedPage(html).text for row in rows)
    assert p_text(0.0) == "under 1e-300"


@pytest.mark.long
def test_noise_that_is_missing_or_spare_is_told_in_numbers(make_contents):
    broken = make_contents(exact=False, trials=20, noise=0.9)
    assert broken.summary["verdict"] == "violated"
    first = broken_tests(verdict_of(broken).judgement, broken.words, broken.noise)[0]
    assert first.test.statistic == pytest.approx(0.9, abs=0.01)
    assert "89.9\xa0%" in banner(broken).line
    spare = make_contents(trials=40, noise=1.1)
    assert spare.summary["verdict"] == "consistent"
    assert float(re.search(r"for ([\d.]+)\s% less noise", opening_of(spare))[1]) == pytest.approx(9.1, abs=0.3)
    assert "less noise" not in opening_of(make_contents(trials=40))
    missing = verdict_of(make_contents(exact=False))
    assert 0 < missing.missing_anywhere < missing.missing_at_unit < 0.1


def test_runs_without_residuals_speak_of_the_noise_at_the_record_alone(make_contents):
    contents = make_contents(with_residuals=False)
    noise = contents.summary["noise"]
    assert noise["ratio"] is None
    assert noise["along_low"] < 1 < noise["along_high"]
    assert {entry["name"] for entry in noise["not_offered"]} >= {"noise-total", "noise-tensor"}
    assert re.search(r", just where [^.,]*hide the record\b", opening_of(contents))
    page = html.unescape(html_of(contents))
    for entry in noise["not_offered"]:
        assert title_of(TestName(entry["name"]), contents.words) in page
        assert entry["reason"] in page


def test_accuracy_stands_beside_the_most_frequent_class(make_contents):
    run = make_contents(trials=5, rounds=3).run
    contents = report_contents(replace(run, commonest=0.76))
    assert contents.summary["utility"]["commonest_class"] == 0.76
    assert re.search("76\xa0% [^.]*most frequent class", opening_of(contents))
    assert "most frequent class" not in opening_of(make_contents(trials=5, rounds=3))


def test_what_early_stopping_chose_is_said(make_contents):
    plain = make_contents(trials=4, rounds=3)
    trials = plain.run.tables.trials.assign(chosen_release=[0.0, 2.0, 1.0, 1.0])
    stopped = report_contents(replace(plain.run, tables=replace(plain.run.tables, trials=trials)))
    section = next(section for section in SECTIONS if section.numbers is ModelAccuracyFinding)
    for contents, chosen in ((plain, False), (stopped, True)):
        numbers = contents.find(ModelAccuracyFinding)
        assert ("from 0 to 2" in section.sentence(numbers, contents)) is chosen
        assert ("all 3 rounds" in section.picture.caption(numbers, contents)) is chosen


@dataclass(frozen=True)
class _Extra:
    rounds: int

    def to_json(self):
        return {"extra": self.rounds}


def test_a_new_finding_is_one_entry_of_the_registry(make_contents):
    run = make_contents(trials=3).run
    extra = Section(
        "extra",
        "Extra",
        _Extra,
        lambda run, _: _Extra(run.plan.federation.rounds),
        ("extra",),
        sentence=lambda numbers, _: f"There were {numbers.rounds} of them.",
    )
    contents = report_contents(run, (*SECTIONS, extra))
    assert "There were 30 of them." in render_html(contents, [])
    assert contents.summary["extra"] == 30
    assert contents.find(_Extra) == _Extra(30)
    assert not extra.on_page
    for kind in ("name", "title"):
        assert len({getattr(section, kind) for section in SECTIONS}) == len(SECTIONS)


SCHEMA = {
    "guarantee": (
        "epsilon",
        "delta",
        "accountant",
        "noise_multiplier",
        "belief_bound",
        "advantage_bound",
        "advantage_bound_exact",
    ),
    "insider": ("trials", "wins", "advantage", "advantage_low", "advantage_high", "max_belief", "belief_violations"),
    "empirical_epsilon": (
        "from_sensitivity",
        "from_belief",
        "from_advantage",
        "lower_bound",
        "confidence",
        "method",
        "limit_of_detection",
    ),
    "epsilon_star": ("mean", "max", "delta"),
    "noise": ("ratio", "low", "high", "along_record", "tests"),
    "membership": ("advantage", "bound", "bound_scope", "record"),
    "utility": ("test_accuracy",),
    "timing": ("setup_seconds", "training_seconds", "trials_per_second"),
}
"""Keys of `summary.json` that users rely on: none is ever renamed."""


def test_a_finding_is_shown_beside_where_it_is_measured():
    """In the package of its audit; what a section leaves out is a default of `Section`."""
    packages = set()
    for section in SECTIONS:
        functions = [section.sentence, section.rows, section.tables, section.said]
        functions += [section.picture.draw, section.picture.caption] if section.picture is not None else []
        homes = {function.__module__ for function in (section.measure, *functions)} - {Section.__module__}
        (package,) = {home.rpartition(".")[0] for home in homes}
        packages.add(package.rpartition(".")[2])
    assert packages == {"verdict", "common", "identifiability", "membership", "reconstruction", "canaries"}


@pytest.mark.parametrize("shape", [{}, {"with_insider": False, "exact": False}], ids=str)
def test_summary_keeps_its_keys(make_contents, shape):
    summary = make_contents(trials=20, **shape).summary
    assert summary["schema"] == 1
    assert {"verdict", "scope", "innovations", "findings"} <= summary.keys()
    for key, names in SCHEMA.items():
        assert summary[key] is None or set(names) <= summary[key].keys()
    assert (summary["insider"] is None) == bool(shape)
    assert summary["verdict"] in set(Verdict)
    assert (make_contents(trials=20, **shape).find(InsiderFinding) is None) == bool(shape)


def test_epsilon_star_stands_beside_what_chance_gives(make_contents):
    contents = make_contents()
    row = next(row for row in page_rows(contents) if row.name.startswith("Epsilon*"))
    chance = contents.find(EpsilonStarFinding).untrained_mean
    assert number_text(chance, 3) in row.note
    assert "untrained" in row.note


def test_a_long_path_does_not_fill_pages_of_the_report() -> None:
    """Breaking a line of thousands of characters takes a PDF minutes."""
    path = "/".join(["directory"] * 400)
    ((_, text),) = _flat({"path": path})
    assert len(text) < 400
    assert (text[:10], text[-10:]) == (f'"{path[:9]}', f'{path[-9:]}"')
    assert _flat({"path": path[:300]}) == [("path", f'"{path[:300]}"')]
