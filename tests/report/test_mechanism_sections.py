"""The report on every mechanism: the unit in all its sentences, who adds the noise, who takes part."""

import re
from dataclasses import replace

import pytest

from fl_audit.adjacency import Adjacency
from fl_audit.audits.common.sections_clipping import AdaptiveClippingFinding
from fl_audit.audits.common.sections_colluders import ColludersFinding
from fl_audit.audits.common.sections_guarantee import person_text
from fl_audit.audits.common.sections_mechanism import mechanism_tables
from fl_audit.audits.page.engineer_part import facts_of
from fl_audit.audits.page.report_page import render_html
from fl_audit.audits.sections import report_contents, sections_with_findings
from fl_audit.mechanisms.mechanism import effective_noise_multiplier
from fl_audit.mechanisms.threat_model import Adversary, TargetsParticipation, ThreatModel
from fl_audit.report.figure_style import to_png
from fl_audit.report.mechanism_messages import contribution_text, multiplied_text
from fl_audit.report.unit_words import unit_words
from fl_audit.verdict.declared_tests import TestName
from fl_audit.verdict.stored_measurements import measured_in
from fl_audit.verdict.verdict_messages import title_of
from fl_audit.words import percent
from tests.builders.pages import console_text, opening_of, text_of, undrawn

CLIENT = {"adjacency": Adjacency.ADD_REMOVE_CLIENT, "exact": False, "trials": 25, "rounds": 4}
SEEN = ThreatModel(participation=TargetsParticipation.SEEN)


def words_of(contents):
    """Return the visible words of the page and of the terminal."""
    page = re.sub(r"<style.*?</style>", "", render_html(contents, undrawn(contents)), flags=re.DOTALL)
    return text_of(page) + console_text(contents)


def mechanism_of(contents):
    """Return the table of the mechanism as a dictionary."""
    return dict(mechanism_tables(contents.plan)[0].rows)


@pytest.mark.parametrize(
    ("adjacency", "whether"),
    [
        (Adjacency.ADD_REMOVE_RECORD, r"whether [^.]*particular record was\b"),
        (Adjacency.REPLACE_RECORD, r"whether [^.]*particular record, or another\b"),
        (Adjacency.ADD_REMOVE_CLIENT, r"whether [^.]*particular client took part"),
        (Adjacency.REPLACE_CLIENT, r"whether [^.]*particular client's records [^.]*stand-in"),
    ],
)
def test_the_guarantee_names_the_unit(make_contents, adjacency, whether):
    contents = make_contents(trials=3, rounds=2, exact=False, adjacency=adjacency)
    assert re.match(whether, contents.words.whether)
    assert contents.words.whether in opening_of(contents)


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE_CLIENT, Adjacency.REPLACE_CLIENT])
@pytest.mark.parametrize("noise", [1.0, 0.5])
def test_no_record_is_singled_out_where_clients_are_protected(make_contents, adjacency, noise):
    text = words_of(make_contents(**CLIENT | {"adjacency": adjacency, "noise": noise}))
    singled = (
        "the record",
        "differing record",
        "one particular record",
        "record's direction",
        "one record",
        "that record",
        "insider's record",
        "rate of records",
        "along-record",
    )
    assert [words for words in singled if re.search(rf"{words}\b", text)] == []
    assert "hides the client" in text


def test_a_violated_guarantee_to_clients_says_client(make_contents):
    text = opening_of(make_contents(**CLIENT | {"noise": 0.5, "with_residuals": False}))
    assert re.search(r", just where [^.,]*hide the client\b", text)


def test_every_test_is_named_for_either_unit():
    for adjacency in Adjacency:
        words = unit_words(adjacency)
        titles = [title_of(name, words) for name in TestName]
        assert len(set(titles)) == len(TestName)
        assert not any("{" in title for title in titles)
        assert any(words.one in title for title in titles)


def test_another_prior_is_said_for_clients(make_contents):
    contents = make_contents(**CLIENT | {"prior": 0.2})
    words = contents.words
    plan = contents.plan
    phrases = (
        f"{percent(plan.prior)} likely",
        f"that {words.that}",
        f"{percent(plan.guarantee.belief_bound)} sure",
        words.that_short,
        f"{percent(plan.belief_bounds[0])} sure",
        words.not_that,
    )
    assert plan.prior == 0.2
    assert re.search("[^.]*".join(re.escape(phrase) for phrase in phrases), opening_of(contents))


@pytest.mark.long
@pytest.mark.parametrize(
    ("shape", "fact", "expected_text"),
    [
        ({}, "Noise", "the server adds .*sum"),
        ({"source": "distributed"}, "Noise", "5 clients .* 1/5 of the variance"),
        ({"source": "local"}, "Noise", "sum .* 5 times the variance"),
        ({"source": "tree"}, "Noise", "binary tree .* 4 rounds"),
        ({"source": "banded"}, "Noise", "banded .* 2 bands .* 4 rounds"),
        ({}, "Who takes part", "every client .*every round"),
        ({"sampling_rate": 0.3}, "Who takes part", "probability 0.3; .*differing client"),
        ({"sampling_rate": 0.3, "threat_model": SEEN}, "Who takes part", "only .*left out protects"),
        ({"cohort": 2}, "Who takes part", "round of 2.5, .* 2 times in 4 rounds"),
        ({"adaptive": True}, "Clipping", "50\xa0% of the updates"),
        (
            {"source": "local", "threat_model": ThreatModel(Adversary.SERVER)},
            "Where the insider sits",
            "the honest-but-curious server",
        ),
        (
            {"source": "distributed", "threat_model": ThreatModel(colluders=2)},
            "Noise that the insider knows",
            "2 colluders, 3 of 5 shares",
        ),
    ],
    ids=str,
)
def test_the_distribution_is_told_in_words(make_contents, shape, fact, expected_text):
    contents = make_contents(**CLIENT | shape)
    assert re.search(expected_text, mechanism_of(contents)[fact])
    assert not re.search(r"\bnan\b|\bNone\b(?! of)", words_of(contents))


@pytest.mark.few_cases(1)
@pytest.mark.parametrize(
    ("shape", "expected_text"),
    [
        ({"sampling_rate": 0.3}, " and [^.]*not told which clients[^.]*"),
        ({"sampling_rate": 0.3, "threat_model": SEEN}, ", even if told [^.]*rounds that client[^.]*,"),
        ({"source": "distributed"}, ", even [^.]*participant,"),
        (
            {"source": "distributed", "threat_model": ThreatModel(colluders=1)},
            ", even [^.]*participant [^.]*noise of 1 other,",
        ),
        ({"source": "local", "threat_model": ThreatModel(Adversary.SERVER)}, ", not even the server[^.]*,"),
    ],
    ids=str,
)
def test_the_guarantee_says_against_whom(make_contents, shape, expected_text):
    assert re.search(rf"watches this training{expected_text} may become", opening_of(make_contents(**CLIENT | shape)))


@pytest.mark.long
def test_sampling_is_that_of_the_unit(make_contents):
    clients = make_contents(**CLIENT | {"sampling_rate": 0.3})
    rates = {name: value for name, value in mechanism_of(clients).items() if name.startswith("Sampling rate")}
    assert [(name.rpartition(" ")[2], rate) for name, rate in rates.items()] == [("clients", 0.3)]
    assert re.search(r"clients sampled [^.]*rate 0\.3\b", words_of(clients))
    records = make_contents(trials=5, exact=False, sampling_rate=0.3, adjacency=Adjacency.ADD_REMOVE_RECORD)
    rates = {name: value for name, value in mechanism_of(records).items() if name.startswith("Sampling rate")}
    assert [(name.rpartition(" ")[2], rate) for name, rate in rates.items()] == [("records", 0.3)]


def test_what_colluders_leave_follows_from_the_noise(make_contents):
    contents = make_contents(**CLIENT | {"source": "distributed", "threat_model": ThreatModel(colluders=1)})
    numbers = contents.find(ColludersFinding)
    mechanism = contents.plan.federation.mechanism
    assert [group.clients for group in numbers.groups] == [1, 2, 3, 4]
    for group in numbers.groups:
        z = effective_noise_multiplier(mechanism.noise, ThreatModel(colluders=group.clients - 1))
        assert group.noise_multiplier == pytest.approx(z)
        assert group.noise_multiplier == pytest.approx(mechanism.noise_multiplier * ((5 - group.clients) / 5) ** 0.5)
    assert numbers.groups[1].epsilon == pytest.approx(contents.plan.guarantee.epsilon)
    epsilons = [group.epsilon for group in numbers.groups]
    assert epsilons == sorted(epsilons)
    assert numbers.server.noise_multiplier == pytest.approx(mechanism.noise_multiplier / 5**0.5)
    assert make_contents(**CLIENT).find(ColludersFinding) is None


def test_the_server_faces_one_client_s_noise(make_contents):
    contents = make_contents(**CLIENT | {"source": "local", "threat_model": ThreatModel(Adversary.SERVER)})
    numbers = contents.find(ColludersFinding)
    assert numbers.server.epsilon == pytest.approx(contents.plan.guarantee.epsilon)
    assert numbers.groups[-1].epsilon == pytest.approx(numbers.server.epsilon)


def test_both_releases_of_adaptive_clipping_are_told(make_contents):
    contents = make_contents(**CLIENT | {"adaptive": True})
    numbers = contents.find(AdaptiveClippingFinding)
    assert (numbers.first_norm, numbers.last_norm) == (3.0, 1.5)
    assert numbers.count_noise_multiplier == pytest.approx(5 * numbers.sum_noise_multiplier)
    assert numbers.noise_multiplier == pytest.approx(contents.plan.guarantee.noise_multiplier)
    assert contents.plan.guarantee.mu == pytest.approx(2 / numbers.noise_multiplier)
    assert make_contents(**CLIENT).find(AdaptiveClippingFinding) is None
    # The multiplier of both releases is not said to be that of the sum alone.
    multiplied = multiplied_text(contents.plan.federation.mechanism)
    assert multiplied != multiplied_text(make_contents(**CLIENT).plan.federation.mechanism)
    assert multiplied in facts_of(contents)[0].note


def test_nobody_is_said_to_clip_where_nothing_is_clipped(make_contents):
    for shape in (CLIENT, CLIENT | {"adjacency": Adjacency.REPLACE_RECORD}):
        assert "clipped" in contribution_text(make_contents(**shape).plan)
        plain = make_contents(**shape | {"with_guarantee": False, "with_insider": False})
        assert "clipped" not in contribution_text(plain.plan)


def test_a_person_is_protected_from_those_whom_the_guarantee_names(make_contents):
    secret = make_contents(**CLIENT | {"sampling_rate": 0.3})
    assert "not told which clients" in person_text(secret)
    assert "not told" not in person_text(make_contents(**CLIENT | {"sampling_rate": 0.3, "threat_model": SEEN}))


@pytest.mark.parametrize(
    ("shape", "name"), [({"adaptive": True}, "local-sensitivity"), ({"source": "tree"}, "local-sensitivity")]
)
def test_figures_of_every_distribution_have_named_axes(make_contents, shape, name):
    contents = make_contents(**CLIENT | shape)
    section, numbers = next(pair for pair in sections_with_findings(contents) if pair[0].name == name)
    figure = section.picture.figure(numbers, contents)
    assert figure.axes[-1].get_xlabel()
    assert to_png(figure).startswith(b"\x89PNG")


def test_whitened_rounds_may_differ_by_more_than_one_contribution(make_contents):
    contents = make_contents(**CLIENT | {"source": "tree"})
    assert contents.plan.largest_difference > contents.plan.global_sensitivity
    assert "adds earlier rounds" in words_of(contents)
    assert "adds earlier rounds" not in words_of(make_contents(**CLIENT))
    assert make_contents(**CLIENT).plan.largest_difference == pytest.approx(3.0)


def test_scores_stand_in_for_innovations_where_a_round_is_a_mixture(make_contents):
    run = make_contents(**CLIENT).run
    rounds = run.tables.rounds.assign(score_present=0.5, score_absent=-0.5)
    scored = replace(run, tables=replace(run.tables, rounds=rounds))
    assert measured_in(scored).innovations[scored.bits].tolist() == [[0.5] * 4] * int(scored.bits.sum())
    assert "noise itself stands" in words_of(report_contents(scored))
    assert "noise itself stands" not in words_of(make_contents(**CLIENT))
