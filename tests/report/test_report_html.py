import io
import re
from copy import deepcopy
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from rich.console import Console

from fl_audit.adjacency import Adjacency
from fl_audit.report.finished_run import Timing
from fl_audit.report.page.console import summary_table
from fl_audit.report.page.html import opening, render_html
from fl_audit.report.page.pictures import DrawnPicture
from fl_audit.report.page.writing import write_report
from fl_audit.report.section import Caption
from fl_audit.report.sections.insider import InsiderNumbers
from fl_audit.report.sections.registry import SECTIONS, report_contents
from fl_audit.report.wording import number_text, percent

FEW = ("pair", "reliability", "tradeoff")
"""Pictures that need more than a few worlds."""

VOID = {"meta", "img", "br", "hr", "link", "input"}
OF_OTHER_LAWS = ("insiders", "crafted", "attacks", "attacks-auc", "clipping-norm", "colluders")
PICTURES = [picture.name for section in SECTIONS for picture in section.pictures if picture.name not in OF_OTHER_LAWS]
TINY = [DrawnPicture(name, b"\x89PNG", Caption(name, "text", "alternative")) for name in PICTURES]


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
    """Return the numbers of a summary, but for the constants and intervals that the page says in words."""
    entries = {key: value for key, value in summary.items() if key != "schema"}
    return [leaf for leaf in leaves(entries) if isinstance(leaf, int | float) and not isinstance(leaf, bool)]


def console_text(contents):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(summary_table(contents))
    return console.export_text()


def page_of(contents, pictures=TINY):
    return Page(render_html(contents, pictures))


@pytest.mark.parametrize(
    ("shape", "left_out"),
    [
        ({"worlds": 1, "with_epsilon_star": False, "with_clients": False}, {"client-epsilon-star", *FEW}),
        ({"worlds": 5, "with_membership": False}, {"membership", *FEW}),
        ({"exact": False, "noise": 0.5}, set()),
    ],
    ids=lambda value: str(sorted(value)),
)
def test_report_is_written_whole_and_self_contained(make_contents, tmp_path, shape, left_out):
    shown = [name for name in PICTURES if name not in left_out]
    path = write_report(make_contents(**shape), tmp_path / "run")
    assert path == tmp_path / "run" / "report.html"
    names = {file.relative_to(tmp_path / "run").as_posix() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    assert names == {"report.html"} | {f"figures/{name}.png" for name in shown}
    page = Page(path.read_text(encoding="utf-8"))
    assert len(page.alternatives) == len(shown)
    assert all(page.alternatives)
    assert all(link.startswith("data:image/png;base64,") for link in page.links)
    assert not re.search(r"url\(|@import|<script|<link", path.read_text(encoding="utf-8"))


def test_every_number_of_the_summary_is_on_the_page(make_contents):
    contents = make_contents()
    page = page_of(contents)
    said = {0.95: "95\xa0% confidence", 0.01: "error rates beyond 0.01"}
    summary = deepcopy(contents.summary)
    in_words = summary["empirical_epsilon"].pop("intervals")
    for part in summary["pair"]["calibration"]["bins"]:
        assert f"{percent(part.pop('lowest'))} to {percent(part.pop('highest'))}" in page.text
    for number in numbers_of(summary):
        if number in said:
            assert said[number] in page.text
        elif number not in (0, 1):
            assert str(number) in page.values, number
    for name, interval in in_words.items():
        ends = [f"{interval[end]:.4g}" if interval[end] is not None else "no limit" for end in ("low", "high")]
        assert " to ".join(ends) in page.text, name
    for word in ("rdp-classic", contents.summary["scope"], contents.summary["empirical_epsilon"]["assumption"]):
        assert word in page.text


def test_membership_stands_beside_the_insider_with_its_bounds(make_contents):
    assert "The membership adversary" in page_of(make_contents()).text
    without = make_contents(with_membership=False)
    assert "The membership adversary" not in page_of(without).text
    assert "outsider" not in opening(without)
    assert re.search(r"Membership\s+│ not measured", console_text(without))


def test_extreme_value_of_the_largest_belief_is_called_one(make_contents):
    assert "extreme value that grows with the number of repetitions" in page_of(make_contents()).text


def test_user_strings_are_escaped(make_contents):
    evil = "<script>alert('x')</script>"
    run = make_contents(model=evil, neighbour=evil).run
    facts = replace(run.facts, configuration={evil: {"<b>": evil}})
    contents = report_contents(replace(run, facts=facts, timing=Timing(engine=evil)))
    text = render_html(contents, [*TINY, DrawnPicture(evil, b"x", Caption(evil, evil, evil))])
    Page(text)
    assert "<script" not in text
    assert "<b>" not in text
    assert "&lt;script&gt;" in text


def test_dollar_signs_of_the_user_are_kept(make_contents):
    assert "$figures and $5" in page_of(make_contents(model="$figures and $5")).text


@pytest.mark.parametrize("shape", [{}, {"prior": 0.3}, {"noise": 0.5}, {"worlds": 1}, {"exact": False}], ids=str)
def test_opening_is_plain_english(make_contents, shape):
    text = opening(make_contents(**shape))
    assert not re.search(r"[\u0370-\u03ff]|log-odds|sigma|sensitivity|posterior|delta|None|nan", text)


def test_opening_has_the_findings(make_contents):
    contents = make_contents()
    text, insider = opening(contents), contents.find(InsiderNumbers)
    star = contents.summary["epsilon_star"]
    assert "more than 89.7\xa0% sure whether one particular record, or another in its place, was used" in text
    assert f"right in {insider.estimate.wins} of 300 trials, where flipping a coin is right in about 150" in text
    assert "on a scale where 0 is coin-flipping" in text
    assert f"the insider scores {number_text(insider.estimate.advantage, 2)}" in text
    assert f"{number_text(star['mean'], 3)} (at worst {number_text(star['max'], 3)}) on the leakage scale" in text
    assert "no proof for other people's data" in text


@pytest.mark.parametrize(
    ("adjacency", "words"),
    [
        (Adjacency.REPLACE_RECORD, "whether one particular record, or another in its place, was used"),
        (Adjacency.ADD_REMOVE_RECORD, "whether one particular record was used"),
    ],
)
def test_the_secret_is_named_by_its_relation(make_contents, adjacency, words):
    assert words in opening(make_contents(worlds=3, adjacency=adjacency))


def test_audit_device_is_labelled_and_simulation_always_said(make_contents):
    local, private = (page_of(make_contents(exact=exact)).text for exact in (True, False))
    label = "Not a private release: noise follows the data (audit device)"
    assert label in local
    assert label not in private
    assert "no secure release" in local
    assert "no secure release" in private
    assert label in console_text(make_contents())


def test_one_world_says_that_it_shows_nothing(make_contents):
    text = page_of(make_contents(worlds=1)).text
    assert "one trial says almost nothing" in text
    assert "None" not in text


@pytest.mark.parametrize(
    ("shape", "verdict"),
    [
        ({"with_epsilon_star": False, "with_membership": False, "with_clients": False}, None),
        (
            {"with_insider": False, "exact": False, "sampling_rate": 0.2, "adjacency": Adjacency.ADD_REMOVE_RECORD},
            "Not audited",
        ),
        ({"with_insider": False, "with_promise": False}, "No promise"),
    ],
    ids=str,
)
def test_what_a_run_has_none_of_is_said_in_words(make_contents, tmp_path, shape, verdict):
    contents = make_contents(worlds=5, rounds=2, **shape)
    text = Page(write_report(contents, tmp_path).read_text(encoding="utf-8")).text
    assert "None" not in text
    assert not re.search(r"\bnan\b", text)
    if verdict is not None:
        assert f"Verdict: {verdict}" in text
        assert verdict in console_text(contents)


def test_console_table_has_a_line_a_finding(make_contents):
    text = console_text(make_contents(model="[bold]x"))
    lines = ("Noise", "Promise", "Insider", "Advantage", "Membership", "Evidence", "Epsilon*", "Accuracy", "Verdict")
    for word in (*lines, "[bold]x", "rdp-classic"):
        assert word in text
