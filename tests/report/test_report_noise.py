"""What the report says of noise as promised, of noise that is missing and of noise that was not needed."""

import re
from dataclasses import dataclass, replace
from html import escape

import pytest
from fl_audit.report.breach_words import breach_text, title_of
from scipy.stats import norm

from fl_audit.evidence.belief.family import FAMILY_LEVEL, TestName
from fl_audit.evidence.belief.verdict import Verdict
from fl_audit.privacy.gaussian import gdp_delta
from fl_audit.report.page.html import opening, render_html
from fl_audit.report.page.writing import write_report
from fl_audit.report.section import Section
from fl_audit.report.sections.noise import NoiseNumbers, noise_figure
from fl_audit.report.sections.pair import PairNumbers
from fl_audit.report.sections.registry import SECTIONS, report_contents
from fl_audit.report.sections.released_model import ModelNumbers
from fl_audit.report.sections.verdict import VerdictNumbers, banner
from fl_audit.report.wording import ratio_text, whole_sentence


def test_report_opens_with_the_noise(make_contents):
    contents = make_contents(exact=False)
    noise = contents.summary["noise"]
    assert noise["low"] < 1 < noise["high"]
    assert contents.summary["verdict"] == "consistent"
    ratio = ratio_text(noise["ratio"], noise["low"], noise["high"])
    assert opening(contents).startswith(
        f"The noise that this federation really adds is {ratio} times what was promised; the range in brackets holds "
        "with 95\xa0% confidence."
    )


def test_violated_report_leads_with_what_broke_it(make_contents):
    contents = make_contents(exact=False, worlds=20, noise=0.9)
    assert contents.summary["verdict"] == "violated"
    first, second, *_ = opening(contents).split(". ")
    assert first == "The promise was broken: the noise is 89.9\xa0% of what was promised"
    assert "We measured 0.90 times the claimed noise" in second
    assert "the promise was the claimed noise or more" in second
    words = banner(contents.find(VerdictNumbers))
    assert words.word == "Violated"
    assert words.line.startswith("The noise is 89.9\xa0% of what was promised. Also: ")
    assert "at most 1 in 1,000 audits" in words.basis
    html = render_html(contents, [])
    assert 'class="verdict violated"' in html
    assert "BROKEN" in html
    assert "Consistent" not in html


def test_noise_above_the_promise_is_accuracy_given_away_and_no_breach(make_contents):
    contents = make_contents(worlds=40, noise=1.1)
    assert contents.summary["verdict"] == "consistent"
    text = opening(contents)
    assert "it breaks no promise, and it gives accuracy away" in text
    spare = float(re.search(r"for ([\d.]+)\s% less noise", text)[1])
    assert spare == pytest.approx(100 * (1 - 1 / 1.1), abs=0.3)
    assert "gives accuracy away" in contents.summary["noise"]["excess"]
    assert "gives accuracy away" not in opening(make_contents(worlds=40))


def test_one_world_is_inconclusive_and_grey(make_contents):
    contents = make_contents(exact=False, worlds=1)
    assert contents.summary["verdict"] == "inconclusive"
    assert 'class="verdict inconclusive"' in render_html(contents, [])
    assert "Our verdict is open" in opening(contents)
    words = banner(contents.find(VerdictNumbers))
    assert words.line.startswith("Too few trials to tell")
    assert re.search(r"\d+ worlds, about 1 minute here, would find one of 1.5 times the promise", words.line)
    assert "worlds with as many rounds" in words.basis


def test_runs_without_residuals_speak_of_the_record_s_direction_alone(make_contents):
    contents = make_contents(with_residuals=False)
    noise = contents.summary["noise"]
    assert noise["ratio"] is None
    assert noise["along_low"] < 1 < noise["along_high"]
    assert {entry["name"] for entry in noise["not_offered"]} >= {"noise-total", "noise-tensor"}
    assert "in the direction in which it has to hide the record" in opening(contents)
    assert "Tests that this run could not make" in render_html(contents, [])


def test_every_test_is_named_in_words_with_its_level(make_contents):
    contents = make_contents(worlds=20)
    html = render_html(contents, [])
    tests = contents.find(NoiseNumbers).judgement.tests
    assert {test.name for test in tests} == set(TestName) - {TestName.SCORES}
    assert sum(test.level for test in tests) == pytest.approx(FAMILY_LEVEL)
    for test in tests:
        assert escape(title_of(test.name, contents.facts.words)) in html
        assert str(test.level) in html
    for name in TestName:
        assert breach_text(replace(tests[0], name=name), contents.facts.words).endswith(".")


def test_figure_shows_every_tensor_and_the_promise(make_contents):
    contents = make_contents(worlds=20, noise=0.9)
    numbers = contents.find(NoiseNumbers)
    axes = noise_figure(numbers, contents).axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["bias", "weight", "Along the record's\ndirection", "All parameters"]
    low, high = axes.get_xlim()
    assert low < 0.9 < 1 < high
    many = tuple((f"t{at}", 1 + at / 1000, 0.9, 1.1) for at in range(40))
    axes = noise_figure(replace(numbers, estimate=replace(numbers.estimate, tensors=many)), contents).axes[0]
    assert len(axes.get_yticklabels()) == 14
    assert axes.get_yticklabels()[11].get_text() == "t0"


def test_advantage_from_beliefs_is_right_and_narrower_than_counted(make_contents):
    mu = 1.0
    found = make_contents(worlds=1000, mu=mu).find(PairNumbers)
    truth = 2 * norm.cdf(mu / 2) - 1
    assert found.advantage.low < truth < found.advantage.high
    assert found.counted.low < truth < found.counted.high
    assert found.advantage.high - found.advantage.low < 0.6 * (found.counted.high - found.counted.low)
    for point in found.curve:
        truth = gdp_delta(point.epsilon, mu)
        assert point.low < truth < point.high
        assert point.counted_low < truth < point.counted_high
        assert point.high - point.low < point.counted_high - point.counted_low


def test_violated_promise_warns_of_what_beliefs_say(make_contents):
    contents = make_contents(worlds=40, noise=0.5)
    pair = next(section for section in SECTIONS if section.numbers is PairNumbers)
    words = pair.pictures[0].caption(contents.find(PairNumbers), contents)
    assert "only what was counted holds" in words.text


def test_epsilon_star_above_the_promise_is_explained(make_contents):
    contents = make_contents(mu=0.1, worlds=20)
    numbers = contents.find(ModelNumbers)
    assert numbers.star.largest > contents.facts.guarantee.epsilon
    section = next(section for section in SECTIONS if section.numbers is ModelNumbers)
    words = section.pictures[0].caption(numbers, contents).text
    assert "does not contradict it" in words
    assert "untrained models at release 0" in words
    fits = make_contents(worlds=20, mu=3.0)
    assert "does not contradict" not in section.pictures[0].caption(fits.find(ModelNumbers), fits).text


@dataclass(frozen=True)
class _Extra:
    rounds: int

    def to_json(self):
        return {"extra": self.rounds}


def test_a_new_finding_is_one_entry_of_the_registry(make_contents):
    run = make_contents(worlds=3).run
    extra = Section(numbers=_Extra, keys=("extra",), measure=lambda run, _: _Extra(run.facts.game.rounds))
    contents = report_contents(run, (*SECTIONS, extra))
    assert contents.summary["extra"] == 30
    assert contents.find(_Extra) == _Extra(30)
    assert len({section.numbers for section in SECTIONS}) == len(SECTIONS)


SCHEMA = {
    "guarantee": ("epsilon", "delta", "accountant", "noise_multiplier", "belief_bound", "advantage_bound",
                  "advantage_bound_exact"),
    "insider": ("worlds", "wins", "advantage", "advantage_low", "advantage_high", "max_belief", "belief_violations"),
    "empirical_epsilon": ("from_sensitivity", "from_belief", "from_advantage", "lower_bound", "confidence", "method",
                          "limit_of_detection"),
    "epsilon_star": ("mean", "max", "delta"),
    "noise": ("ratio", "low", "high", "along_record", "tests"),
    "utility": ("test_accuracy",),
    "timing": ("setup_seconds", "training_seconds", "worlds_per_second"),
}  # fmt: skip
"""Keys of `summary.json` that users rely on: none is ever renamed."""


@pytest.mark.parametrize("shape", [{}, {"with_insider": False, "exact": False}], ids=str)
def test_summary_keeps_its_keys(make_contents, shape):
    summary = make_contents(worlds=20, **shape).summary
    assert summary["schema"] == 1
    assert {"verdict", "scope", "innovations", "membership", "client_epsilon_star"} <= summary.keys()
    for key, names in SCHEMA.items():
        assert summary[key] is None or set(names) <= summary[key].keys()
    assert (summary["insider"] is None) == bool(shape)
    assert summary["verdict"] in set(Verdict)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        ((1.0001, 0.9994, 1.0008), "1.000 (0.999 to 1.001)"),
        ((0.98, 0.978, 0.982), "0.980 (0.978 to 0.982)"),
        ((0.9998, 0.99961, 0.99996), "0.99980 (0.99961 to 0.99996)"),
        ((1.0, 0.8, 1.34), "1.00 (0.80 to 1.34)"),
        ((0.0, 0.0, 0.0), "0.000000 (0.000000 to 0.000000)"),
    ],
)
def test_ratios_tell_their_ends_apart_and_from_one(ratio, text):
    assert ratio_text(*ratio) == text


def test_phrases_become_sentences():
    assert whole_sentence("noise 2 % below would be found") == "Noise 2 % below would be found."
    assert whole_sentence("") == ""


def test_the_report_of_one_world_is_written(make_contents, tmp_path):
    text = write_report(make_contents(worlds=1, rounds=1), tmp_path).read_text(encoding="utf-8")
    assert not re.search(r">None<|>nan<", text)


def test_what_early_stopping_chose_is_called_final_in_words_and_caption(make_contents):
    plain = make_contents(worlds=4, rounds=3)
    worlds = plain.worlds.assign(chosen_release=[0.0, 2.0, 1.0, 1.0])
    stopped = report_contents(replace(plain.run, tables=replace(plain.run.tables, worlds=worlds)))
    section = next(section for section in SECTIONS if section.numbers is ModelNumbers)
    for contents, chosen in ((plain, False), (stopped, True)):
        numbers = contents.find(ModelNumbers)
        assert ("a release from 0 to 2." in section.sentence(numbers, contents)) is chosen
        caption = section.pictures[0].caption(numbers, contents).text
        assert ("Early stopping chose a release from 0 to 2 of each world" in caption) is chosen
        assert ("the promise counts all 3 rounds" in caption) is chosen


def test_captions_of_one_world_and_of_pretrained_models_say_what_they_show(make_contents):
    section = next(section for section in SECTIONS if section.numbers is ModelNumbers)
    one = make_contents(worlds=1, rounds=3)
    caption = section.pictures[0].caption(one.find(ModelNumbers), one).text
    assert caption.startswith("The one world of this run")
    assert "at most" not in caption
    assert "at worst" not in section.sentence(one.find(ModelNumbers), one)
    facts = replace(one.facts, configuration={"model": {"initial": "pretrained"}})
    pretrained = report_contents(replace(one.run, facts=facts))
    words = section.sentence(pretrained.find(ModelNumbers), pretrained)
    assert "the pretrained model scores" in words
    assert "untrained" not in words


def test_only_limits_that_are_a_matter_of_chance_say_how_often(make_contents):
    contents = make_contents(exact=False)
    numbers = contents.find(NoiseNumbers)
    section = next(section for section in SECTIONS if section.numbers is NoiseNumbers)
    rows = {row[0]: row[4] for row in section.tables(numbers, contents)[0].rows}
    assert "in 9 of 10 runs" in rows["Noise along the record's direction"]
    assert rows["Sensitivities within the claim"].endswith("would have been found")
