"""The section on membership attacks: rates, bounds and curves of every attacker, on scores of known quality."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr

from fl_audit.adjacency import Adjacency
from fl_audit.audits.canaries.guessing_bounds import tradeoff_epsilon
from fl_audit.audits.membership.findings_attacks import INSIDER, AllAttacksFinding
from fl_audit.audits.membership.sections_attacks import ATTACKS
from fl_audit.audits.page.drawn_pictures import draw_all
from fl_audit.audits.page.report_page import render_html
from fl_audit.audits.sections import report_contents
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.report.report_elements import Reading
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.verdict import Verdict
from fl_audit.words import percent
from tests.builders.pages import console_text

TRIALS = 80
TARGETS = 30
MU = 0.55


def with_targets(run: FinishedRun) -> FinishedRun:
    """Return a run with scores of coins, of a perfect attack, and of insiders at the signal that is claimed."""
    source = np.random.default_rng(5)
    is_in = source.random((TRIALS, TARGETS)) < 0.5
    log_odds = np.where(is_in, 0.5, -0.5) * MU**2 + MU * source.standard_normal(is_in.shape)
    table = pd.DataFrame(
        {
            "trial": np.repeat(np.arange(TRIALS), TARGETS),
            "target": np.tile(np.arange(TARGETS), TRIALS),
            "is_in": is_in.ravel(),
            "log_odds": log_odds.ravel(),
            "mu": MU,
            "score_loss": source.random(is_in.size),
            "score_lira": is_in.ravel() + source.random(is_in.size) * 0.9,
            "score_shadow": source.random(is_in.size),
        }
    )
    plan = replace(
        run.plan,
        config=run.plan.config.changed(privacy={"delta": 0.001}),
        federation=replace(run.plan.federation, audit="membership", targets=TARGETS),
    )
    return replace(run, tables=replace(run.tables, targets=table), plan=plan)


@lru_cache
def contents_of_attacks(make_contents):
    shape = {"trials": TRIALS, "exact": False, "mu": MU, "with_insider": False}
    return report_contents(with_targets(make_contents(**shape, adjacency=Adjacency.ADD_REMOVE_RECORD).run))


@pytest.fixture
def contents(make_contents):
    return contents_of_attacks(make_contents)


@pytest.mark.long
@pytest.mark.parametrize(
    ("measured_trials", "verdict"), [(0, "inconclusive"), (TRIALS - 1, "inconclusive"), (TRIALS, "consistent")]
)
def test_the_noise_along_targets_counts_where_all_trials_measured_it(contents, measured_trials, verdict):
    """Trials of an older version did not: then nothing but scores is judged."""
    table = contents.run.tables.targets
    measured = table["trial"] < measured_trials
    noise = np.random.default_rng(5).standard_normal((len(table), 5))
    sums = {
        "noise_squares": np.square(noise).sum(axis=1),
        "noise_rounds": 5.0,
        "noise_sum": noise.sum(axis=1),
        "signal_sum": 5.0,
    }
    table = table.assign(**{name: np.where(measured, value, np.nan) for name, value in sums.items()})
    run = replace(contents.run, tables=replace(contents.run.tables, targets=table))
    numbers = report_contents(run).find(VerdictFinding)
    assert (numbers.judged.verdict, numbers.judges_scores) == (verdict, verdict == "inconclusive")
    # LiRA is made up to be always right: that is broken, so that the page is not consistent.
    assert numbers.verdict is Verdict.INCONCLUSIVE
    assert "AUC, LiRA" in numbers.contradicted_by


@pytest.mark.long
def test_attackers_get_what_their_scores_are_worth(contents):
    numbers = contents.find(AllAttacksFinding)
    assert numbers is not None
    assert (numbers.trials, numbers.targets) == (TRIALS, TARGETS)
    assert list(numbers.achieved) == ["loss", "lira", "shadow", INSIDER]
    rates = {name: attack_result.rates.auc for name, attack_result in numbers.achieved.items()}
    assert rates["loss"].low < 0.5 < rates["loss"].high
    assert rates["lira"].value == 1.0
    # Exactly Phi(mu / sqrt 2), for insiders whose signal is mu: also what the guarantee allows at most.
    exact = float(ndtr(MU / np.sqrt(2)))
    assert rates[INSIDER].low < exact < rates[INSIDER].high
    assert numbers.insider_auc == pytest.approx(exact)
    assert numbers.largest_auc == pytest.approx(exact, abs=1e-6)


def test_bounds_are_given_where_they_hold(contents):
    numbers = contents.find(AllAttacksFinding)
    # The trials of attacks with shadow models were each other's, and none were kept apart.
    has_bound = {name: attack_result.bound is not None for name, attack_result in numbers.achieved.items()}
    assert has_bound == {"loss": True, "lira": False, "shadow": False, INSIDER: True}
    assert numbers.achieved[INSIDER].one_run is None, "who knows other coins of a trial is no test of a single run"
    one_run = numbers.achieved["lira"].one_run
    assert (one_run.guesses.right, one_run.guesses.guessed, one_run.guesses.coins) == (6, 6, TARGETS)
    attack_summaries = contents.summary["attacks"]["by_name"]
    assert attack_summaries["lira"]["one_run"]["right"] == 6
    # Of six right guesses the trade-off curve proves as much as the binomial distribution does, or a little less or
    # more.
    assert attack_summaries["lira"]["one_run"]["epsilon_by_tradeoff"] == pytest.approx(
        tradeoff_epsilon(one_run.guesses, 0.001, 0.05)
    )
    assert attack_summaries["loss"]["lower_bound"]["delta"] == 0.001
    assert contents.find(VerdictFinding).judgement is not None, "the insiders' log-odds are judged"


@pytest.mark.long
def test_figures_and_page_show_them(contents):
    numbers = contents.find(AllAttacksFinding)
    curves = ATTACKS.picture.figure(numbers, contents).axes[0]
    assert (curves.get_xscale(), curves.get_yscale()) == ("log", "log")
    labels = [line.get_label() for line in curves.get_lines()]
    assert "coin-flipping" in labels
    assert sum("claimed" in label for label in labels) == 1
    assert any(label.startswith("LiRA: AUC 1.000") for label in labels)
    page = render_html(contents, draw_all(contents))
    lines = console_text(contents)
    assert "AUC, LiRA" in lines
    sentence = ATTACKS.sentence(numbers, contents)
    assert f"{percent(numbers.largest_order)} here, since two records" in sentence
    assert f"{percent(numbers.largest_auc)} here, where one record" in sentence
    assert 'id="figure-attacks"' in page
    rows = {row["name"]: row for row in contents.summary["findings"]}
    assert rows["AUC, LiRA"]["claimed"] == numbers.largest_order > numbers.largest_auc
    assert rows["AUC, Insider (exact)"]["claimed"] == numbers.largest_auc
    assert rows["AUC, LiRA"]["reading"] == Reading.BROKEN
    assert rows["AUC, Insider (exact)"]["reading"] in (Reading.KEPT, Reading.NO_CONTRADICTION, Reading.ALONE)


@pytest.mark.long
def test_a_report_on_the_insider_alone_names_no_attacker(contents):
    table = contents.run.tables.targets.drop(columns=["score_loss", "score_lira", "score_shadow"])
    alone = report_contents(replace(contents.run, tables=replace(contents.run.tables, targets=table)))
    assert not {"loss", "lira", "shadow"} & alone.find(AllAttacksFinding).achieved.keys()
    page, with_attackers = (render_html(attack_report, draw_all(attack_report)) for attack_report in (alone, contents))
    assert "but one coin" in page
    assert "picked the right" in with_attackers
    assert "picked the right" not in page
