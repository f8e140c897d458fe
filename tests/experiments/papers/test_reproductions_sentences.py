"""Sentences of the papers as ranges: where each is said, and of what it speaks."""

from dataclasses import replace

import numpy as np
import pytest

from fl_audit.adjacency import Adjacency
from fl_audit.experiments.papers.bernau2019.attacked_models import dataset_models
from fl_audit.experiments.papers.bernau2019.claim_premises import CLAIMS
from fl_audit.experiments.papers.bernau2019.claims import entropy_gap, trade_claim, white_over_black
from fl_audit.experiments.papers.bernau2019.hyperparameters import COLLAB, LFW, PURCHASES, TEXAS
from fl_audit.experiments.papers.bernau2019.hyperparameters import SKEWED as SKEWED_PURCHASES
from fl_audit.experiments.papers.bernau2019.membership_data import CANDIDATES
from fl_audit.experiments.papers.bernau2019.membership_runs import BLACK_BOX, WHITE_BOX, PrivacyMethod, membership_run
from fl_audit.experiments.papers.bernau2019.skewed import skewed_purchases
from fl_audit.experiments.papers.bernau2021.attack_cost_scaling import exponent
from fl_audit.experiments.papers.bernau2021.claims import counted_advantage, exceedance
from fl_audit.experiments.papers.bernau2021.insider_runs import ADULT, MNIST, PRINTED, PURCHASE, insider_run, main_runs
from fl_audit.experiments.papers.claims import ClaimVerdict
from fl_audit.experiments.papers.negoescu2023.epsilon_star_runs import CLAIMS as CLAIMS_OF_2023
from fl_audit.experiments.papers.statistics import mean_of_shares
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.statistics.interval_estimates import IntervalEstimate
from tests.experiments.papers.test_reproductions_bernau2019 import SKEWED, _around

ALIKE, BETTER = "trade-alike", "local-trades-better"


def test_local_and_central_dp_are_compared_where_section_6_does_and_as_it_does() -> None:
    data = [dataset for groups in CANDIDATES.values() for forms in groups for dataset in forms]
    claims_by_data = {(dataset.study, dataset["classes"]): key for dataset in data if (key := trade_claim(dataset))}
    skewed = {classes: claims_by_data.get((SKEWED_PURCHASES, classes)) for classes in (10, 20, 50, 100)}
    assert skewed == {10: BETTER, 20: BETTER, 50: None, 100: None}
    assert {claims_by_data[PURCHASES, classes] for classes in (10, 20)} == {BETTER}
    assert {claims_by_data[PURCHASES, classes] for classes in (30, 50, 100)} == {ALIKE}
    assert {text for (study, _), text in claims_by_data.items() if study in {TEXAS, LFW}} == {ALIKE}
    assert not any(study == COLLAB for study, _ in claims_by_data)


def test_a_small_gain_is_claimed_only_of_an_attack_that_gains() -> None:
    settings_ = [membership_run(SKEWED, PrivacyMethod.ORIGINAL), membership_run(SKEWED, PrivacyMethod.LOCAL, 3.0)]
    for gain, verdict in ((0.0, ClaimVerdict.UNTESTED), (0.04, ClaimVerdict.HOLDS)):
        runs = [_around(item, 0.6, 0.5) for item in settings_]
        gaining_runs = [
            replace(item, areas_of_trials=item.areas_of_trials | {WHITE_BOX: item.areas_of_trials[BLACK_BOX] + gain})
            for item in runs
        ]
        claims = {item.statement: item for item in white_over_black(dataset_models(SKEWED, gaining_runs))}
        assert claims[CLAIMS["white-box-gain-is-small"].statement].verdict is verdict


def test_the_entropy_of_skewed_purchases_is_that_of_drawn_records() -> None:
    source = skewed_purchases(classes=10, generated_records=4000)
    shares = [
        np.clip(record_set.features[record_set.labels == 0].mean(axis=0, dtype=np.float64), 1e-9, 1 - 1e-9)
        for record_set in (source.test, source.pool)
    ]
    test, pool = (float(np.mean(-share * np.log2(share) - (1 - share) * np.log2(1 - share))) for share in shares)
    assert test - pool == pytest.approx(entropy_gap(10), abs=0.01)


def test_models_that_all_reject_one_component_decide_the_claim() -> None:
    def judged(models: int) -> ClaimVerdict:
        return CLAIMS_OF_2023["one-component-suffices"].on("Adult", mean_of_shares(np.zeros(models)), models).verdict

    assert (judged(10), judged(5)) == (ClaimVerdict.FAILS, ClaimVerdict.OPEN)


def test_what_was_counted_keeps_its_own_interval() -> None:
    setting = insider_run(MNIST, SensitivityKind.LOCAL, Adjacency.REPLACE_RECORD)
    claim = counted_advantage(setting, IntervalEstimate(0.278, 0.217, 0.338), 1000)
    assert claim.interval.high - claim.interval.low == pytest.approx(0.121)
    assert claim.verdict is ClaimVerdict.OPEN
    exceedance_estimate = IntervalEstimate(0.003, 0.0006, 0.0087)
    assert exceedance("MNIST", exceedance_estimate, 0.01, 1000).interval == exceedance_estimate


def test_table_2_is_as_printed_with_two_digits() -> None:
    runs = [run for data in (MNIST, PURCHASE, ADULT) for run in main_runs(data)]
    printed = [PRINTED.of(run, "advantage") for run in runs]
    assert printed == [0.24, 0.23, 0.18, 0.27, 0.25, 0.23, 0.1, 0.24, 0.17, 0.22, 0.13, 0.18]
    assert printed == [round(PRINTED.of(run, "advantage before rounding"), 2) for run in runs]


def test_the_exponent_of_a_power_is_found() -> None:
    exponent_interval = exponent([1, 2, 4, 8], [3.0, 12.0, 48.0, 192.0])
    assert (exponent_interval.value, exponent_interval.low, exponent_interval.high) == pytest.approx((2, 2, 2))
