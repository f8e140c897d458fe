import io
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console

from fl_audit.report import RunContents, write_report
from fl_audit.report.page.figures import FIGURES
from fl_audit.report.page.html import render_html
from fl_audit.report.sections.console import summary_table
from fl_audit.report.sections.narrative import opening
from fl_audit.report.wording import number_text

VOID = {"meta", "img", "br", "hr", "link", "input"}
TINY = dict.fromkeys(FIGURES, b"\x89PNG")


class Page(HTMLParser):
    """Checks that tags are balanced and collects attributes, values and visible text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.values, self.alternatives, self.text = [], [], [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.links += [given[name] for name in ("src", "href") if name in given]
        self.values += [given["value"]] if tag == "data" else []
        self.alternatives += [given.get("alt")] if tag == "img" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def leaves(entry):
    if isinstance(entry, dict):
        return [leaf for value in entry.values() for leaf in leaves(value)]
    return [leaf for value in entry for leaf in leaves(value)] if isinstance(entry, list) else [entry]


def numbers_of(summary):
    entries = {key: value for key, value in summary.items() if key != "schema"}
    return [leaf for leaf in leaves(entries) if isinstance(leaf, int | float) and not isinstance(leaf, bool)]


def console_text(contents):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(summary_table(contents))
    return console.export_text()


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"worlds": 1, "with_epsilon_star": False},
        {"worlds": 5, "with_membership": False},
        {"exact": False, "verdict": "violated"},
    ],
    ids=str,
)
def test_report_is_written_whole_and_self_contained(make_contents, tmp_path, shape):
    shown = [name for name in FIGURES if name != "membership" or shape.get("with_membership", True)]
    path = write_report(make_contents(**shape), tmp_path / "run")
    assert path == tmp_path / "run" / "report.html"
    names = {file.relative_to(tmp_path / "run").as_posix() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    assert names == {"report.html"} | {f"figures/{name}.png" for name in shown}
    page = Page(path.read_text(encoding="utf-8"))
    assert len(page.alternatives) == len(shown)
    assert all(page.alternatives)
    assert all(link.startswith("data:image/png;base64,") for link in page.links)
    assert not re.search(r"url\(|@import|<script|<link", path.read_text(encoding="utf-8"))


def test_every_number_of_the_summary_is_in_the_tables(make_contents):
    contents = make_contents()
    page = Page(render_html(contents, TINY))
    special = {contents.number("empirical_epsilon", "confidence"): "95\xa0% confidence"}
    for number in numbers_of(contents.summary):
        if number in special:
            assert special[number] in page.text
        elif number not in (0, 1):
            assert str(number) in page.values, number
    for word in ("rdp-classic", "gaussian-shift", "The log-odds are normal", contents.summary["scope"]):
        assert word in page.text


def test_membership_stands_beside_the_insider_with_its_bounds(make_contents):
    contents = make_contents()
    text = Page(render_html(contents, TINY)).text
    assert "The membership adversary" in text
    assert "The bound of Yeom et al. lies above 1 and says nothing" in text
    assert "wins more often by chance only" in text
    assert "wins more often by chance only" not in Page(render_html(make_contents(prior=0.2), TINY)).text
    without = make_contents(with_membership=False)
    drawn = {name: png for name, png in TINY.items() if name != "membership"}
    assert "The membership adversary" not in Page(render_html(without, drawn)).text
    assert "outsider" not in opening(without)
    assert re.search(r"Membership\s+│ not determined", console_text(without))


def test_extreme_value_of_the_largest_belief_is_called_one(make_contents):
    assert "extreme value that grows with the number of repetitions" in Page(render_html(make_contents(), TINY)).text


def test_user_strings_are_escaped(make_contents):
    evil = "<script>alert('x')</script>"
    contents = make_contents(model=evil)
    contents.configuration[evil] = {"<b>": evil}
    contents.summary["scope"] = contents.summary["empirical_epsilon"]["method"] = evil
    contents.summary["guarantee"]["accountant"] = contents.summary["timing"]["engine"] = evil
    text = render_html(contents, {**TINY, evil: b"x"})
    Page(text)
    assert "<script" not in text
    assert "<b>" not in text
    assert "&lt;script&gt;" in text


def test_dollar_signs_of_the_user_are_kept(make_contents):
    assert "$figures and $5" in Page(render_html(make_contents(model="$figures and $5"), TINY)).text


def test_opening_is_plain_english(make_contents):
    contents = make_contents()
    text = opening(contents)
    wins = contents.summary["insider"]["wins"]
    assert "more than 90\xa0% sure whether one particular record, or another in its place, was used" in text
    assert f"right in {wins} of 300 trials, where flipping a coin is right in about 150" in text
    assert "scores 0.018 on a scale where 0 is coin-flipping" in text
    assert f"the insider scores {number_text(contents.summary['insider']['advantage'], 2)}" in text
    assert "0.3211 (at worst 0.6544) on the leakage scale Epsilon*" in text
    assert "nothing we saw contradicts the promise" in text
    assert "no proof for other people's data" in text
    assert not re.search(r"[\u0370-\u03ff]|log-odds|sigma|sensitivity|posterior|delta", text)


def test_verdict_banner(make_contents):
    consistent, violated = (Page(render_html(make_contents(verdict=v), TINY)) for v in ("consistent", "violated"))
    assert "Verdict: Consistent" in consistent.text
    assert "Verdict: Violated" in violated.text
    assert "the promise was broken" in violated.text
    assert "has a chance of at most about 1 in 990" in violated.text
    assert "at level 0.00101" in violated.text
    assert 'class="verdict violated"' in render_html(make_contents(verdict="violated"), TINY)


def test_audit_device_is_labelled_and_simulation_always_said(make_contents):
    local, private = (Page(render_html(make_contents(exact=exact), TINY)).text for exact in (True, False))
    label = "Not a private release: noise follows the data (audit device)"
    assert label in local
    assert label not in private
    assert "no secure release" in local
    assert "no secure release" in private
    assert label in console_text(make_contents())


def test_one_world_says_that_it_shows_nothing(make_contents):
    text = Page(render_html(make_contents(worlds=1), TINY)).text
    assert "one trial says almost nothing" in text
    assert "no breach could have shown" in text
    assert "None" not in text


def test_nulls_and_missing_sections_are_said_in_words(make_contents):
    full = make_contents(worlds=5, rounds=2, with_epsilon_star=False, with_membership=False)
    bare = RunContents(**{**vars(full), "summary": {"schema": 1, "verdict": "consistent", "guarantee": None}})
    for contents in (full, bare):
        text = Page(render_html(contents, TINY)).text
        assert "None" not in text
        assert "nan" not in text
        assert "not determined" in text
        assert "not measured" in text or contents is bare
        assert "Consistent" in console_text(contents)


def test_bare_run_is_written_with_its_figures(make_contents, tmp_path):
    full = make_contents(worlds=2, rounds=2)
    bare = RunContents(**{**vars(full), "summary": {"schema": 1}})
    assert "No verdict" in write_report(bare, tmp_path).read_text(encoding="utf-8")


def test_infinite_limit_of_detection(make_contents):
    contents = make_contents(worlds=3)
    contents.summary["empirical_epsilon"]["limit_of_detection"] = float("inf")
    text = Page(render_html(contents, TINY)).text
    assert "no breach could have shown" in text
    assert "unbounded" in text


def test_console_table_has_the_seven_lines(make_contents):
    text = console_text(make_contents(model="[bold]x"))
    lines = ("Promise", "Insider", "Membership", "Evidence", "Epsilon*", "Accuracy", "Verdict")
    for word in (*lines, "[bold]x", "rdp-classic"):
        assert word in text
