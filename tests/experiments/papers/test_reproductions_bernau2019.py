"""Bernau et al. 2019: printed numbers against the accountant, settings, trade-offs, claims, and a slice of the runs."""

import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri
from sklearn.metrics import roc_auc_score

from fl_audit.adjacency import Adjacency
from fl_audit.array_types import Floats
from fl_audit.audits.membership.attack_results import relative_tradeoff
from fl_audit.audits.membership.attacks import shadow
from fl_audit.experiments.papers import reproduce, runner
from fl_audit.experiments.papers.bernau2019 import membership_runs
from fl_audit.experiments.papers.bernau2019.adversary_comparison_figure import adversaries_figure
from fl_audit.experiments.papers.bernau2019.attacked_models import (
    AttackedModels,
    DatasetModels,
    areas,
    dataset_models,
    joined,
    most_epochs,
    reduced,
)
from fl_audit.experiments.papers.bernau2019.claims import TESTS, _confidence_difference, claims_of
from fl_audit.experiments.papers.bernau2019.epsilon_tables import (
    EpsilonVerdict,
    _central_epsilon,
    _steps_for,
    guarantees,
    table_2,
    table_3,
)
from fl_audit.experiments.papers.bernau2019.figures import figure_of_models
from fl_audit.experiments.papers.bernau2019.hyperparameters import (
    CLASSES,
    COLLAB,
    HYPERPARAMETERS,
    LFW,
    NOISE_MULTIPLIERS,
    PURCHASES,
    STUDIES,
    TEXAS,
    record_epsilons,
)
from fl_audit.experiments.papers.bernau2019.hyperparameters import SKEWED as SKEWED_PURCHASES
from fl_audit.experiments.papers.bernau2019.membership_data import CANDIDATES
from fl_audit.experiments.papers.bernau2019.membership_runs import (
    BLACK_BOX,
    INSIDER,
    PRINTED,
    WHITE_BOX,
    PrivacyMethod,
    key_of,
    membership_run,
    runs_of,
)
from fl_audit.experiments.papers.bernau2019.paper import PAPER
from fl_audit.experiments.papers.bernau2019.small_faces_network import small_faces
from fl_audit.experiments.papers.bernau2019.tradeoffs import (
    auc_and_accuracy_resamples,
    difference_at_like_accuracy,
    gain,
    phi,
)
from fl_audit.experiments.papers.claims import ClaimVerdict, PaperClaim
from fl_audit.experiments.papers.papers import ComputeExtent, PaperDataset, PaperRun, ReproductionOptions
from fl_audit.experiments.papers.runner import find_data
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.privacy.accounting import Accountant, PrivacyProfile, account
from fl_audit.privacy.events import SampledGaussianRelease
from fl_audit.runs.mechanism_of_config import sampling_rate
from fl_audit.statistics.interval_estimates import IntervalEstimate
from fl_audit.user_modules import import_function

SKEWED = CANDIDATES[SKEWED_PURCHASES][0][0]
ALL = [candidate for groups in CANDIDATES.values() for forms in groups for candidate in forms]


# ---------------------------------------------------------------- Tables 2 and 3


def test_every_column_has_hyper_parameters_and_ten_numbers_more() -> None:
    columns = [(study, classes) for study in STUDIES for classes in CLASSES[study]]
    assert list(HYPERPARAMETERS) == columns
    assert len(PRINTED.at("Table 3")) == 17 * len(columns)
    for study, classes in columns:
        local = record_epsilons(study)
        central = NOISE_MULTIPLIERS
        names = ("original", *(f"LDP, epsilon_i {level:g}" for level in local), *(f"CDP, z {z:g}" for z in central))
        accuracies = [PRINTED(study, f"{classes} classes, {name}", "training accuracy") for name in names]
        epsilons = [PRINTED(study, f"{classes} classes, {name}", "epsilon of central DP") for name in names[-5:]]
        assert np.isfinite([*accuracies, *epsilons]).all()


@pytest.mark.parametrize(
    ("members", "batch", "epochs", "expected"),
    [(368, 16, 110, (84.28, 4.75, 2.08, 1.34, 0.48)), (8000, 128, 200, (87.82, 4.54, 2.04, 1.32, 0.48))],
)
def test_epsilon_is_that_of_the_accountants(members: int, batch: int, epochs: int, expected: Sequence[float]) -> None:
    for z, value in zip((0.5, 2.0, 4.0, 6.0, 16.0), expected, strict=True):
        steps = epochs * members // batch
        epsilon = _central_epsilon(members, batch, steps, z)
        event = SampledGaussianRelease(z, batch / members, steps)
        profile = PrivacyProfile((event,), Adjacency.ADD_REMOVE_RECORD)
        assert epsilon == pytest.approx(account(profile, Accountant.RDP_CLASSIC, 1 / members), rel=1e-9)
        assert round(epsilon, 2) == value


def test_steps_are_those_that_give_epsilon() -> None:
    for epsilon in (0.3, 2.0, 60.0):
        steps = _steps_for(2500, 50, 4.0, epsilon)
        assert _central_epsilon(2500, 50, steps, 4.0) == pytest.approx(epsilon, rel=1e-9)
    assert _steps_for(2500, 50, 4.0, 0.1) == 0.0


def test_what_the_page_says_of_the_printed_epsilons() -> None:
    printed_guarantees = list(guarantees())
    of = {study: [guarantee for guarantee in printed_guarantees if guarantee.study == study] for study in STUDIES}
    verdicts = {study: [guarantee.verdict for guarantee in ones] for study, ones in of.items()}
    assert verdicts[LFW].count(EpsilonVerdict.AS_PRINTED) == 13
    assert EpsilonVerdict.LARGER not in verdicts[SKEWED_PURCHASES]
    assert verdicts[COLLAB] == [EpsilonVerdict.LARGER] * 5
    # 300 epochs fit COLLAB from z = 2 on, and not at z = .5.
    assert [guarantee.fewest <= 300 <= guarantee.most for guarantee in of[COLLAB]] == [False, True, False, True, True]
    # Texas at larger z: 600 of 1000 epochs at most.
    assert max(guarantee.most for guarantee in of[TEXAS] if guarantee.noise_multiplier > 1) < 600
    assert all(
        abs(guarantee.printed / guarantee.ours - 1) < 0.005
        for guarantee in of[PURCHASES]
        if guarantee.noise_multiplier < 1
    )
    assert _central_epsilon(100_000, 100, 200_000, 0.5) == pytest.approx(22.1, abs=0.05)


def test_tables_without_runs() -> None:
    assert len(table_3().frame) == 80
    rows = table_2().frame.set_index("setting")
    assert rows.loc["LFW, epsilon_i 0.1", "theory"] == rows.loc["LFW, epsilon_i 0.1", "published"] == 6250
    assert rows.loc["Texas, epsilon_i 3", "theory"] == 19146


# ---------------------------------------------------------------- settings


@pytest.mark.few_cases(5)
@pytest.mark.parametrize("data", ALL, ids=key_of)
def test_every_run_can_be_configured(data: PaperDataset) -> None:
    for extent in ComputeExtent:
        form = data.in_form(extent)
        if form is None:
            continue
        runs = runs_of(form)
        assert len({run.name for run in runs} | {run["run.seed"] for run in runs}) == 2 * len(runs)
        assert len(runs) == form["parts"] * (1 + 2 * len(form["levels"]))
        for run in runs[:: form["parts"]]:
            config = run.config()
            method = run["method"]
            assert config.audit.targets == config.data.records
            assert config.privacy.private == (method is PrivacyMethod.CENTRAL)
            assert (config.privacy.local_randomizer is not None) == (method is PrivacyMethod.LOCAL)
            assert config.privacy.delta == pytest.approx(2 / form["data.records"])


def test_a_member_is_sampled_as_in_the_paper() -> None:
    # LFW keeps the n of the paper, so that q and epsilon of its noise follow.
    faces = CANDIDATES[LFW][0][0]
    config = membership_run(faces, PrivacyMethod.CENTRAL, 4.0).config()
    assert float(sampling_rate(config)) == pytest.approx(16 / 368)
    config = membership_run(faces, PrivacyMethod.LOCAL, 0.1).config()
    assert config.training.local_batch == 32
    assert most_epochs(config) == faces["epochs"]
    assert (config.privacy.pixelation_block, config.privacy.pixelation_pixels) == (1, 64)


@pytest.mark.parametrize(
    "name", sorted({name for data in ALL for name in (data.name, data["model.name"]) if ":" in name})
)
def test_loaders_and_models_of_the_paper_are_where_their_names_say(name: str) -> None:
    assert callable(import_function(name, "name"))


def test_the_documentation_names_loaders_as_they_are_called() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "data-sets.md").read_text(encoding="utf-8")
    table = page.partition("after `fl_audit.experiments.papers.bernau2019.`")[2].partition("\n\n")[0]
    package = membership_runs.__name__.rpartition(".")[0]
    loader_names = {f"{package}.{name}" for name in re.findall(r"`(\w+:\w+)`", table)}
    assert loader_names >= {data.name for data in ALL if ":" in data.name}
    assert all(callable(import_function(name, "name")) for name in loader_names)


def test_the_small_network_for_faces() -> None:
    module = small_faces((1, 64, 64), 20)
    assert sum(parameter.numel() for parameter in module.parameters()) == 16_740


def test_missing_data_are_named_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FL_AUDIT_DATA", raising=False)
    studies = (TEXAS, COLLAB, SKEWED_PURCHASES)
    datasets, remarks = find_data(PAPER, studies, tmp_path)
    assert [dataset.study for dataset in datasets] == [SKEWED_PURCHASES] * 4
    assert [line.partition(" is left out")[0] for line in remarks] == ["Texas", "COLLAB"]


# ---------------------------------------------------------------- trade-offs and claims


def made_up(run: PaperRun, auc: float, accuracy: float, trials: int = 40, spread: float = 0.01) -> AttackedModels:
    """Return findings whose attacks reach about an AUC: scores of members are moved by as much."""
    random = np.random.default_rng(zlib.crc32(run.name.encode()))
    is_in = random.random((trials, 60)) < 0.5
    shift = np.sqrt(2) * ndtri(auc)
    scores = {
        BLACK_BOX: random.normal(size=is_in.shape) + shift * is_in,
        WHITE_BOX: random.normal(size=is_in.shape) + (shift + 0.1) * is_in,
    }
    right = np.clip(accuracy + spread * random.normal(size=trials), 0, 1)
    epsilon = 10 / max(run["level"], 0.1)
    sure = np.clip(right[:, np.newaxis] + 0.02 * scores[BLACK_BOX], 0, 1)
    by_trial = {"train_accuracy": right, "test_accuracy": right, "chosen_epoch": np.full(trials, 3.0)}
    return reduced(run, run.config(), epsilon, TargetMembership(is_in), scores, sure, by_trial)


def test_areas_are_those_of_scikit_learn() -> None:
    random = np.random.default_rng(1)
    scores = random.integers(5, size=(6, 30)).astype(float)
    is_in = random.random((6, 30)) < 0.5
    expected = [roc_auc_score(*pair) for pair in zip(is_in, scores, strict=True)]
    assert areas(scores, is_in) == pytest.approx(expected)


def test_phi_is_that_of_the_means_and_its_interval_covers_it() -> None:
    original = made_up(membership_run(SKEWED, PrivacyMethod.ORIGINAL), 0.8, 0.9)
    private = made_up(membership_run(SKEWED, PrivacyMethod.LOCAL, 1.0), 0.6, 0.5)
    phi_interval = phi(original, private, BLACK_BOX)
    areas = [run.areas_of_trials[BLACK_BOX].mean() for run in (original, private)]
    accuracies = [run.test_accuracy.mean() for run in (original, private)]
    assert phi_interval.value == pytest.approx(relative_tradeoff(*areas, *accuracies, 10))
    assert phi_interval.low < relative_tradeoff(0.8, 0.6, 0.9, 0.5, 10) < phi_interval.high
    assert phi_interval.high - phi_interval.low < 0.5
    # An attack that guessed from the start gives no phi.
    guessing = replace(original, areas_of_trials={BLACK_BOX: 1 - original.areas_of_trials[BLACK_BOX]})
    assert np.isnan(phi(guessing, private, BLACK_BOX).low)


def test_resamples_of_auc_are_stretched() -> None:
    run = made_up(membership_run(SKEWED, PrivacyMethod.ORIGINAL), 0.7, 0.9)
    resamples = auc_and_accuracy_resamples((run,), BLACK_BOX, np.random.default_rng(0))
    error = run.areas_of_trials[BLACK_BOX].std() / np.sqrt(run.trials)
    assert resamples.auc[1:].std() == pytest.approx(np.sqrt(2) * error, rel=0.15)
    assert resamples.accuracy[1:].std() == pytest.approx(run.test_accuracy.std() / np.sqrt(run.trials), rel=0.15)


def _ladder(method: PrivacyMethod, shift: float) -> list[AttackedModels]:
    return [
        made_up(membership_run(SKEWED, method, level), 0.8 - 0.06 * step + shift, 0.9 - 0.1 * step)
        for step, level in enumerate((0.1, 0.5, 1.0) if method is PrivacyMethod.LOCAL else (0.5, 2.0, 4.0), start=1)
    ]


@pytest.mark.parametrize("shift", [0.0, 0.05])
def test_difference_at_like_accuracy(shift: float) -> None:
    original = made_up(membership_run(SKEWED, PrivacyMethod.ORIGINAL), 0.8, 0.9)
    runs = (original, *_ladder(PrivacyMethod.CENTRAL, 0.0), *_ladder(PrivacyMethod.LOCAL, shift))
    resamples = auc_and_accuracy_resamples(runs, BLACK_BOX, np.random.default_rng(0))
    interval = resamples.interval(partial(difference_at_like_accuracy, split=4, near=0.03))
    # The intervals of two seeds at 95 %: one in ten such pairs would fail by chance, and these seeds do not.
    assert interval.low < shift < interval.high
    assert interval.high - interval.low < 0.06


def test_gain_is_the_mean_difference_of_the_same_models() -> None:
    runs = _ladder(PrivacyMethod.LOCAL, 0.0)
    interval = gain(runs, WHITE_BOX, BLACK_BOX)
    differences = [run.areas_of_trials[WHITE_BOX] - run.areas_of_trials[BLACK_BOX] for run in runs]
    assert interval.value == pytest.approx(np.mean(differences))
    assert interval.low < interval.value < interval.high


def test_models_that_are_surest_at_one_level_are_found() -> None:
    ladder = _ladder(
        PrivacyMethod.LOCAL, 0.0
    )  # levels 0.1, 0.5, 1.0: each less accurate, and less sure, than the one before
    difference = _confidence_difference(ladder, 0.95)
    assert difference is not None
    assert difference.high < 0  # at epsilon_i = 1 they are least sure
    sure = [run.confidence.mean() for run in ladder]
    assert difference.value == pytest.approx(sure[2] - sure[0])
    turned = [replace(run, confidence=1 - run.confidence) for run in ladder]
    difference = _confidence_difference(turned, 0.95)
    assert difference is not None
    assert 0 < difference.low < difference.value == pytest.approx(sure[1] - sure[2])
    assert _confidence_difference(ladder[:2], 0.95) is None


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        (IntervalEstimate(0.51, 0.49, 0.52), ClaimVerdict.HOLDS),
        (IntervalEstimate(0.51, 0.49, 0.54), ClaimVerdict.OPEN),
        (IntervalEstimate(0.6, 0.55, 0.65), ClaimVerdict.FAILS),
        (IntervalEstimate(0.6, np.nan, np.nan), ClaimVerdict.OPEN),
    ],
)
def test_a_claim_holds_where_its_whole_interval_lies_in_the_range(
    interval: IntervalEstimate, verdict: ClaimVerdict
) -> None:
    assert PaperClaim("6", "said", "there", "AUC", interval, 0.47, 0.53).verdict is verdict


@pytest.mark.long
def test_claims_find_what_was_put_in() -> None:
    played = dataset_models(
        SKEWED,
        [
            made_up(membership_run(SKEWED, PrivacyMethod.ORIGINAL), 0.8, 0.9),
            *_ladder(PrivacyMethod.LOCAL, 0.0),
            *_ladder(PrivacyMethod.CENTRAL, 0.15),
        ],
    )
    claims = {claim.statement: claim for claim in claims_of([played]) if "white" not in claim.quantity}
    better = claims["local DP trades strictly better with 10 and 20 classes"]
    assert better.verdict is ClaimVerdict.HOLDS
    assert better.interval.value == pytest.approx(-0.15, abs=0.04)
    assert len(claims_of([played])) >= len(TESTS) - 2


@pytest.mark.long
def test_the_figure_shows_every_run() -> None:
    played = dataset_models(
        SKEWED,
        [
            made_up(membership_run(SKEWED, PrivacyMethod.ORIGINAL), 0.8, 0.9),
            *_ladder(PrivacyMethod.LOCAL, 0.0),
            *_ladder(PrivacyMethod.CENTRAL, 0.0),
        ],
    )
    figure_result = figure_of_models([played])
    panels = figure_result.figure.get_axes()
    assert len(panels) == 16
    assert all(panel.get_xlabel() and panel.get_ylabel() for panel in panels)
    # ROC curves: the original model and three levels on each side, beside the diagonal.
    assert [len(panel.get_lines()) for panel in panels[8:12]] == [5] * 4
    by = figure_result.frame.set_index(["setting", "quantity"])
    published = by.loc[(membership_run(SKEWED, PrivacyMethod.LOCAL, 0.1).label, "training accuracy"), "published"]
    assert published == 0.52
    assert set(by.index.get_level_values("quantity")) >= {"phi, black-box", "phi, white-box", "test accuracy"}


# ---------------------------------------------------------------- a slice of the runs

_TINY = {
    "data.records": 64,
    "data.test-records": 40,
    "data.population-records": 20,
    "data.loader-parameters": {"classes": 10, "generated-records": 400},
    "model.name": "logistic",
    "epochs": 2,
    "central-epochs": 2,
    "levels": (2,),
    "parts": 1,
}


@pytest.fixture
def _slice(monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(SKEWED, quick=_TINY)
    monkeypatch.setattr(runner, "find_data", lambda *_: ((small,), ("Texas is gone",)))
    # The white-box attack takes seconds a run: its panels are drawn from made-up runs above.
    monkeypatch.setattr(membership_runs, "BASE", {**membership_runs.BASE, "audit.attacks": ["loss", "shadow"]})
    monkeypatch.setattr(shadow, "_EPOCHS", 2)
    monkeypatch.setattr(runner, "parallel_runs", lambda: 1)


@pytest.mark.long
@pytest.mark.usefixtures("_slice")
def test_a_slice_from_runs_to_page(tmp_path: Path) -> None:
    announcements: list[str] = []
    context = ReproductionOptions(tmp_path, extent=ComputeExtent.QUICK, announce=announcements.append)
    *_, page = reproduce.reproduce("bernau2019-fig7", context)
    assert announcements == ["Texas is gone"]
    frame = pd.read_csv(tmp_path / "fig7.csv")
    played = (path.name.rpartition("10-")[2] for path in (tmp_path / "runs-quick").glob("*-10-*") if path.is_dir())
    assert sorted(played) == ["cdp-4-part0", "ldp-1-part0", "original-part0"]
    by = frame.set_index(["setting", "quantity"])["measured"]
    label = f"{SKEWED.title}, LDP, epsilon_i 1"
    trials = pd.read_parquet(
        tmp_path / "runs-quick" / membership_run(SKEWED, PrivacyMethod.LOCAL, 1.0).name / "trials.parquet"
    )
    assert by[label, "test accuracy"] == pytest.approx(trials["test_accuracy"].mean())
    assert {"black-box AUC", "AUC of the loss", "training accuracy"} <= set(frame["quantity"])
    assert any("against test records" in quantity for quantity in frame["quantity"])
    text = page.read_text(encoding="utf-8")
    for words in ("What agrees", "Quick form", "Texas is gone", "its shadow models", "n is not stated"):
        assert words in text, words


# ---------------------------------------------------------------- trials by what claims lack


def test_parts_are_counted_together() -> None:
    setting = membership_run(SKEWED, PrivacyMethod.LOCAL, 1.0)
    first_models = made_up(setting, 0.8, 0.9)
    second_models = made_up(setting, 0.6, 0.5, trials=20)
    joined_models = joined([first_models, second_models])
    assert joined_models.trials == 60
    for attack, attack_areas in joined_models.areas_of_trials.items():
        assert list(attack_areas) == [*first_models.areas_of_trials[attack], *second_models.areas_of_trials[attack]]
    assert first_models.called is not None
    assert second_models.called is not None
    assert joined_models.called is not None
    assert np.array_equal(joined_models.called.counts, first_models.called.counts + second_models.called.counts)
    assert joined_models.called.counts.sum() == 60 * 60
    assert joined_models.rocs[BLACK_BOX].tpr == pytest.approx(
        (first_models.rocs[BLACK_BOX].tpr + second_models.rocs[BLACK_BOX].tpr) / 2
    )


def _open_claim(interval: IntervalEstimate) -> PaperClaim:
    return PaperClaim("6", "said", "there", "AUC", interval, 0.0, trials=24)


def test_claims_say_how_many_trials_would_decide_them() -> None:
    # The interval reaches twice as far as the edge of the range: four times the trials.
    assert _open_claim(IntervalEstimate(0.05, -0.05, 0.15)).trials_to_decide == 4 * 24
    assert _open_claim(IntervalEstimate(-0.05, -0.15, 0.05)).trials_to_decide == 4 * 24
    assert _open_claim(IntervalEstimate(0.0, -0.1, 0.1)).trials_to_decide is None
    assert _open_claim(IntervalEstimate(2e-16, -0.1, 0.1)).trials_to_decide is None
    assert _open_claim(IntervalEstimate(0.2, 0.1, 0.3)).trials_to_decide is None
    share = PaperClaim(
        "6", "said", "there", "share", IntervalEstimate(0.0, 0.0, 0.003), highest=0.001, trials=1000, narrows=1.0
    )
    assert share.trials_to_decide == 3000
    narrow = replace(share, interval=IntervalEstimate(0.0, 0.0, 0.001))
    assert narrow.verdict is ClaimVerdict.HOLDS


def _around(run: PaperRun, auc: float, accuracy: float) -> AttackedModels:
    """Return findings of 40 trials with these means, to the last digit, and a spread of about .01."""
    findings = made_up(run, 0.7, accuracy, spread=0.0)
    even = np.linspace(-0.02, 0.02, 40)
    areas = {attack: auc + np.roll(even, index) for index, attack in enumerate(findings.areas_of_trials)}
    return replace(findings, areas_of_trials=areas, test_accuracy=accuracy + even / 10)


def _runs(original: tuple[float, float], *levels: tuple[float, float]) -> DatasetModels:
    """Return runs on Skewed Purchases with these AUCs and test accuracies, alike under both kinds of privacy."""
    levels_of_methods = [(PrivacyMethod.LOCAL, (3.0, 1.0, 0.1)), (PrivacyMethod.CENTRAL, (0.5, 4.0, 16.0))]
    models = [_around(membership_run(SKEWED, PrivacyMethod.ORIGINAL), *original)] + [
        _around(membership_run(SKEWED, method, level), *numbers)
        for method, method_levels in levels_of_methods
        for level, numbers in zip(method_levels, levels, strict=False)
    ]
    return dataset_models(SKEWED, models)


_TRADED = {
    "local DP trades strictly better with 10 and 20 classes",
    "phi is above 1 for some epsilon",
    "phi is higher under LDP",
}


@pytest.mark.long
@pytest.mark.parametrize("loss", [0.0, 0.01])
@pytest.mark.parametrize(
    ("auc", "accuracy", "why"), [(0.51, 0.9, "not so: the attack"), (0.8, 0.11, "not so: the original"), (0.8, 0.9, "")]
)
def test_what_the_original_model_does_not_show_cannot_be_tested(
    auc: float, accuracy: float, why: str, loss: float
) -> None:
    # Whatever privacy does to it, a little or nothing: the original model alone decides.
    runs = _runs((auc, accuracy), (auc - loss, accuracy - loss), (auc - 2 * loss, accuracy))
    claims = [claim for claim in claims_of([runs]) if claim.statement in _TRADED]
    assert {claim.statement for claim in claims} == _TRADED
    for claim in claims:
        assert claim.untestable.startswith(why)
        assert (claim.verdict is ClaimVerdict.UNTESTED) == bool(why) == bool(claim.untestable)
        assert claim.to_json()["why"] == claim.untestable
        if why:
            assert claim.trials_to_decide is None
            assert why in claim.note


def test_a_premise_that_is_not_decided_leaves_a_claim_as_it_is() -> None:
    premise = PaperClaim("3", "it is attacked", "there", "AUC", IntervalEstimate(0.52, 0.49, 0.55), 0.53)
    claim = PaperClaim("6", "it is so", "there", "phi", IntervalEstimate(1.2, 1.1, 1.3), 1.0, premises=(premise,))
    assert claim.verdict is ClaimVerdict.HOLDS
    gone = replace(premise, interval=IntervalEstimate(0.51, 0.5, 0.525))
    assert replace(claim, premises=(premise, gone)).verdict is ClaimVerdict.UNTESTED


@pytest.mark.long
@pytest.mark.parametrize(
    ("level", "verdict"),
    [
        ((0.75, 0.6), ClaimVerdict.FAILS),  # a sixth of what the attack had is lost, and a third of the accuracy
        ((0.55, 0.8), ClaimVerdict.HOLDS),
    ],
)
def test_levels_at_which_nothing_is_left_say_nothing_of_phi(level: tuple[float, float], verdict: ClaimVerdict) -> None:
    # At the last level phi is 1, a little above or below it by chance: with it no claim could ever fail.
    claims = [
        claim
        for claim in claims_of([_runs((0.8, 0.9), level, (0.5, 0.1))])
        if claim.statement.startswith("phi is above 1")
    ]
    assert [claim.verdict for claim in claims] == [verdict] * 2
    nothing = [
        claim
        for claim in claims_of([_runs((0.8, 0.9), (0.5, 0.1), (0.501, 0.102))])
        if claim.statement.startswith("phi is above 1")
    ]
    assert [claim.verdict for claim in nothing] == [ClaimVerdict.UNTESTED] * 2
    assert "phi is 1" in nothing[0].untestable


def test_a_gain_over_runs_of_unequal_numbers_of_trials_has_its_level() -> None:
    random = np.random.default_rng(3)
    covered = 0
    runs = [_around(membership_run(SKEWED, PrivacyMethod.LOCAL, level), 0.6, 0.5) for level in (3.0, 1.0, 0.1)]

    def differences(trials: int, spread: float) -> Floats:
        # The trials are each other's shadows: a mean is as uncertain as twice their variance says.
        return np.sqrt(0.5) * spread * (random.normal(size=trials) + random.normal() / np.sqrt(trials))

    for _ in range(600):
        resampled_runs = [
            replace(run, areas_of_trials={WHITE_BOX: differences(*size), BLACK_BOX: np.zeros(size[0])})
            for run, size in zip(runs, ((6, 3.0), (24, 1.0), (72, 0.3)), strict=True)
        ]
        interval = gain(resampled_runs, WHITE_BOX, BLACK_BOX)
        covered += interval.low <= 0 <= interval.high
    assert covered / 600 >= 0.94


def test_the_insider_learns_most_of_made_up_runs() -> None:
    run = made_up(membership_run(SKEWED, PrivacyMethod.CENTRAL, 2.0), 0.6, 0.5)
    watched = replace(run, areas_of_trials={**run.areas_of_trials, INSIDER: np.full(40, 0.95) - 0.01 * run.confidence})
    original = made_up(membership_run(SKEWED, PrivacyMethod.ORIGINAL), 0.8, 0.9)
    models = dataset_models(SKEWED, [original, watched])
    figure_result = adversaries_figure([models])
    assert len(figure_result.frame) == 3 + 2  # without the attack on losses, which is not made up
    # The insider is another paper's, so no claim of this one is about it.
    assert [claim.statement for claim in claims_of([models]) if "insider" in claim.statement] == []
