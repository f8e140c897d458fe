"""The first screen for somebody who decides: what leads, and that each technical word on it is explained on it."""

import re
from dataclasses import replace

import pytest

from fl_audit.adjacency import Adjacency
from fl_audit.audits.page.engineer_part import next_step
from fl_audit.audits.page.first_screen import FirstScreen, first_screen, first_screen_of
from fl_audit.audits.page.report_page import render_html
from fl_audit.mechanisms.contribution import UserGradients
from fl_audit.report.report_elements import ReportContents
from fl_audit.report.template_files import template_table
from fl_audit.verdict.verdict import Verdict
from fl_audit.words import one_in, percent
from tests.report.conftest import KINDS, MakeContents

EXPLAINED = tuple(word for word, _ in template_table("words.md", unit="record"))
TECHNICAL = (
    *EXPLAINED,
    "global sensitivity",
    "sensitivity",
    "local",
    "gdp",
    "pld",
    "rdp",
    "limit of detection",
    "nats",
    "mu",
    "regret",
    "accountant",
    "log-odds",
    "likelihood",
    "noise multiplier",
    "standard deviation",
    "neighbour",
    "replace-record",
    "belief",
    "advantage",
    "AUC",
    "AUROC",
    "ROC",
    "confidence",
    "p-value",
    "tensor",
    "cosine",
    "gradient",
    "adversary",
    "challenger",
    "posterior",
    "D'",
    "[audit]",
    "[privacy]",
    "Poisson",
    "amplification",
)
"""Words that somebody who knows no differential privacy does not know. The first screen explains one, or is without."""
WEAK = {"exact": False, "mu": 2.5}
SHAPES = {**{str(verdict): shape for verdict, shape in KINDS.items()}, "weak": WEAK}
ADJACENCIES = (Adjacency.ADD_REMOVE_RECORD, Adjacency.ADD_REMOVE_USER, Adjacency.ADD_REMOVE_CLIENT)


def text_without_explanations(screen: FirstScreen) -> str:
    numbers = [text for fact in screen.facts for text in (fact.name, fact.value, fact.note)]
    return " ".join(
        (screen.banner.word, screen.banner.line, *screen.warnings, *numbers, screen.person, screen.next_step)
    )


def technical_words(text: str) -> set[str]:
    return {word for word in TECHNICAL if re.search(rf"(?<![\w*]){re.escape(word)}s?(?![\w*])", text, re.IGNORECASE)}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_no_technical_word_is_left_unexplained(make_contents: MakeContents, shape: str) -> None:
    contents = make_contents(**SHAPES[shape])
    screen = first_screen_of(contents)
    explained = {word for word, _ in screen.words}
    assert technical_words(text_without_explanations(screen)) == explained
    # What explains a word needs no explanation itself.
    assert technical_words(" ".join(meaning for _, meaning in screen.words)) <= explained
    page = render_html(contents, [])
    above = page[page.index("<body") : page.index('<div class="first">')]
    assert technical_words(re.sub(r"<[^>]+>", " ", above)) <= explained


def test_the_declared_words_are_found_where_they_stand() -> None:
    text = "1.71 nats by gdp, mu 0.5 with a regret of 0; global sensitivity; a limit of detection"
    assert {"nats", "gdp", "mu", "regret", "global sensitivity", "limit of detection"} <= technical_words(text)
    assert technical_words("much regretted") == set()
    assert technical_words("Epsilon* of a model") == {"Epsilon*"}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_verdict_who_is_protected_and_how_well_lead_in_this_order(make_contents: MakeContents, shape: str) -> None:
    contents = make_contents(**SHAPES[shape])
    html = first_screen(contents)
    screen = first_screen_of(contents)
    values = [f'class="figure">{fact.value}<' for fact in screen.facts]
    markers = [f"{screen.banner.word}</h2>", *values, 'id="person"', "Next."]
    positions = [html.index(marker) for marker in markers]
    assert positions == sorted(positions)
    names = [fact.name.lower() for fact in screen.facts]
    assert "protected" in names[0]
    assert "right for" in names[-1]
    if (guarantee := contents.plan.guarantee) is None:
        assert (screen.facts[0].value, len(names)) == ("Nobody", 2)
        return
    values = [fact.value for fact in screen.facts]
    assert values[1:3] == [percent(guarantee.belief_bound), one_in(guarantee.delta)]
    assert ("refuted" in names[1]) == (shape == "violated")
    assert ("not confirmed" in names[1]) == (shape in ("inconclusive", "not audited"))


@pytest.mark.parametrize(("adjacency", "protected"), zip(ADJACENCIES, ("record", "person", "client"), strict=True))
def test_it_says_first_whether_a_person_or_a_record_is_protected(
    make_contents: MakeContents, adjacency: Adjacency, protected: str
) -> None:
    is_of_users = adjacency is Adjacency.ADD_REMOVE_USER
    stored_adjacency = Adjacency.ADD_REMOVE_RECORD if is_of_users else adjacency
    contents = make_contents(exact=False, trials=40, rounds=4, adjacency=stored_adjacency)
    if is_of_users:
        federation = contents.plan.federation
        mechanism = replace(federation.mechanism, adjacency=adjacency, contribution=UserGradients())
        plan = replace(contents.plan, federation=replace(federation, mechanism=mechanism, users=300))
        contents = replace(contents, run=replace(contents.run, plan=plan))
    screen = first_screen_of(contents)
    assert screen.facts[0].value == f"One {protected}"
    assert ("not a person" in screen.facts[0].note) == (protected == "record")
    assert ("client" in {word for word, _ in screen.words}) == (protected == "client")
    assert not {word for word, _ in screen.words} & {"gdp", "mu"}


def test_steps_for_who_decides_name_no_settings(make_contents: MakeContents) -> None:
    for shape in SHAPES.values():
        contents = make_contents(**shape)
        assert "[" not in first_screen_of(contents).next_step
        assert next_step(contents) != first_screen_of(contents).next_step


def test_a_weak_claim_that_is_kept_is_not_called_a_protection(make_contents: MakeContents) -> None:
    weak, strong = (first_screen_of(make_contents(**shape)) for shape in (WEAK, KINDS[Verdict.CONSISTENT]))
    assert weak.facts[0].name != strong.facts[0].name == "Protected"
    assert "next to nothing" in weak.banner.line
    assert "next to nothing" not in strong.banner.line


def told_of_shown(contents: ReportContents) -> bool:
    page = render_html(contents, [])
    return "no alarm" in page[page.index('id="engineer"') : page.index('id="words"')]


def test_an_epsilon_shown_below_the_claim_is_said_to_be_no_alarm(make_contents: MakeContents) -> None:
    assert told_of_shown(make_contents(**KINDS[Verdict.CONSISTENT]))
    assert not told_of_shown(make_contents(**KINDS[Verdict.VIOLATED]))
    assert not told_of_shown(make_contents(**KINDS[Verdict.NO_GUARANTEE]))
