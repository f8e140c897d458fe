"""The studies of Negoescu et al. 2023 as published, and what is read off their models."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from scipy import stats

from fl_audit.experiments.papers import runner
from fl_audit.experiments.papers.claims import ClaimVerdict
from fl_audit.experiments.papers.negoescu2023 import mixture_fits
from fl_audit.experiments.papers.negoescu2023.epsilon_star_runs import (
    ADULT,
    LOCATION,
    PURCHASE,
    all_runs,
    baseline_runs,
    extreme_runs,
    private_runs,
)
from fl_audit.experiments.papers.negoescu2023.mixture_fits import _training_scores
from fl_audit.experiments.papers.negoescu2023.paper import PAPER
from fl_audit.experiments.papers.negoescu2023.privacy_utility import Models, _claims, _contrast, _floor, _remarks
from fl_audit.experiments.papers.papers import ComputeExtent, PaperDataset, ReproductionOptions, StoredPaperRun
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.privacy.accounting import Accountant
from fl_audit.released_model.parametric_star import epsilon_star_gaussian, fit_normal, loss_scores
from fl_audit.released_model.star_methods import PARAMETRIC_CUT
from fl_audit.report.figure_style import to_png
from fl_audit.runs.mechanism_of_config import rounds_of
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run_directory import read_public
from fl_audit.runs.sweeps.grid import grid, without_privacy
from tests.builders.runs import run_locally
from tests.builders.settings import small_settings


def test_the_settings_are_those_of_the_paper() -> None:
    sizes = (ADULT["data.records"], ADULT["data.population-records"], ADULT["data.test-records"])
    assert sizes == (32_561, 16_280, 16_280)
    for data, epochs in ((ADULT, (1, 5, 10, 20)), (LOCATION, (10, 50, 100)), (PURCHASE, (10, 50, 100))):
        plain, private = ([run.config() for run in runs_of(data)] for runs_of in (baseline_runs, private_runs))
        assert tuple(config.training.epochs for config in plain) == epochs
        varied = {
            (config.privacy.epsilon, config.privacy.clipping_norm, config.training.expected_batch) for config in private
        }
        batches = (64, 512) if data is ADULT else (256, 1024)
        assert varied == {(e, c, b) for e in (1, 3, 10, 100) for c in (1, 10, 30) for b in batches}
        for config in (*plain, *private):
            training = config.training
            assert (training.optimizer, training.momentum, training.learning_rate) == ("momentum", 0.9, 0.01)
            assert config.audit.trials == 5
            assert config.privacy.delta < 1 / data["data.records"]
        assert {config.privacy.accountant for config in private} == {Accountant.RDP}
        assert {config.privacy.private for config in plain} == {False}
    assert len(all_runs(ADULT)) == 28
    assert rounds_of(baseline_runs(ADULT)[0].config()) == math.ceil(32_561 / 64)


def test_the_quick_form_has_the_same_kinds_of_points() -> None:
    for data in (ADULT, LOCATION):
        quick = data.in_form(ComputeExtent.QUICK)
        assert quick is not None
        assert len(private_runs(quick)) == 2
        assert set(quick["baseline-epochs"]) <= set(data["baseline-epochs"])


def test_looked_at_are_the_extremes() -> None:
    labels = [run.label for run in extreme_runs(ADULT)]
    assert labels == ["no privacy, 1 epoch", "no privacy, 20 epochs", "epsilon = 1", "epsilon = 100"]


def test_missing_data_are_named(tmp_path: Path) -> None:
    datasets, (remark,) = runner.find_data(PAPER, (PURCHASE.study,), tmp_path)
    assert datasets == ()
    assert re.match(r"Purchase-100 is left out \(purchase100: .*; location30: .*\)", remark)


def _with(data: PaperDataset, **settings: Any) -> PaperDataset:
    return replace(data, settings={**data.settings, **settings})


def landscape(data: PaperDataset, baselines: dict[int, list[float]], private: dict[float, list[float]]) -> Models:
    """Return a data set with a table of models: one private point for each epsilon, a place in a list a repetition."""
    rows = [
        {
            "point": f"{kind}={level}",
            "private": kind == "epsilon",
            "privacy.epsilon": level,
            "epsilon": level,
            "trial": trial,
            "training.epochs": level if kind == "epochs" else np.nan,
            "epsilon_star": star,
            "membership_advantage": 0.25,
            "test_accuracy": 0.5 - star / 10,
            "test_auroc": 0.9 if kind == "epochs" else 0.8,
        }
        for kind, points in (("epsilon", private), ("epochs", baselines))
        for level, values in points.items()
        for trial, star in enumerate(values)
    ]
    return data, pd.DataFrame(rows)


_LOWER = "share of private settings with a lower utility"
"""Name of a claim's quantity."""

ADULT_MODELS = landscape(
    _with(ADULT, **{"audit.trials": 3}),
    {1: [0.1, 0.2, 0.15], 20: [0.5, 0.9, 0.7]},
    {1.0: [0.1, 0.2, 1.1], 3.0: [0.6, 0.8, 0.8]},
)


def test_claims_are_numbers_with_intervals() -> None:
    claims = {claim.quantity: claim for claim in _claims(*ADULT_MODELS)}
    grown = claims["Epsilon* at 20 epochs less that at 1"].interval
    expected = stats.ttest_rel([0.5, 0.9, 0.7], [0.1, 0.2, 0.15]).confidence_interval(0.95)
    assert (grown.value, grown.low, grown.high) == pytest.approx((0.55, expected.low, expected.high))
    # Intervals of the two private settings hold together: each at 97.5 %.
    below = claims["largest Epsilon* less epsilon, over private settings"]
    ends = [
        stats.ttest_1samp(np.array(values) - epsilon, 0).confidence_interval(0.975)
        for epsilon, values in {1.0: [0.1, 0.2, 1.1], 3.0: [0.6, 0.8, 0.8]}.items()
    ]
    assert below.interval.value == pytest.approx(1.4 / 3 - 1)
    assert (below.interval.low, below.interval.high) == pytest.approx(
        (max(end.low for end in ends), max(end.high for end in ends))
    )
    largest = claims["largest Epsilon*, over settings"]
    assert (largest.interval.value, largest.highest) == (pytest.approx(2.2 / 3), 0.3)
    over = claims["largest Epsilon* of private settings less the lowest of these baselines"].interval
    assert over.value == pytest.approx((0.6 + 0.8 + 0.8 - 0.5 - 0.9 - 0.7) / 3)
    assert claims[_LOWER].interval.value == 1.0


def test_repetitions_that_agree_are_few() -> None:
    lower_claim = {claim.quantity: claim for claim in _claims(*ADULT_MODELS)}[_LOWER]
    assert (lower_claim.interval.low, lower_claim.interval.high) == pytest.approx((stats.beta.ppf(0.025, 3, 1), 1))
    assert lower_claim.verdict is ClaimVerdict.OPEN


def test_remarks_name_who_exceeds_its_epsilon() -> None:
    said = " ".join(_remarks(*ADULT_MODELS))
    assert re.search(r"\b1 of 6 private models .*Epsilon\* at or above .* is 0\.250 on", said)
    assert "cannot exceed 13.8" in said


def test_the_tasks_are_set_apart() -> None:
    location_models = landscape(
        _with(LOCATION, **{"audit.trials": 3}), {10: [1.0, 2.0, 1.5], 100: [9.0, 10.0, 8.0]}, {1.0: [0.1, 0.2]}
    )
    claim = _contrast(location_models, ADULT_MODELS)
    assert claim.interval.value == pytest.approx(9.0 - 0.7)
    assert claim.verdict is ClaimVerdict.HOLDS


def test_chance_is_that_of_drawn_samples() -> None:
    """Moments drawn by their distributions give the Epsilon* of fitted samples; false alarm 1e-4."""
    data = _with(LOCATION, **{"data.records": 60, "data.population-records": 40, "privacy.delta": 0.01})
    random = np.random.default_rng(0)
    members = random.standard_normal((2000, 60))
    population = random.standard_normal((2000, 40))
    epsilon_stars = epsilon_star_gaussian(*fit_normal(members), *fit_normal(population), 0.01, PARAMETRIC_CUT)
    row = _floor(data)
    error = epsilon_stars.std(ddof=1) * math.sqrt(1 / 2000 + 1 / row.repetitions)
    assert abs(row.measured - epsilon_stars.mean()) < stats.norm.isf(5e-5) * error
    assert row.low < np.median(epsilon_stars) < row.high


TINY = {
    "model.name": "logistic",
    "data.records": 300,
    "data.test-records": 100,
    "data.population-records": 100,
    "training.epochs": 1,
    "privacy.delta": 1e-3,
    "audit.trials": 2,
    "epsilons": (1.0, 10.0),
    "clipping-norms": (1.0,),
}
TINY_ADULT = _with(ADULT, **TINY, **{"data.name": "breast-cancer", "batches": (50,), "baseline-epochs": (1, 10)})
TINY_MANY = replace(
    _with(LOCATION, **TINY, **{"data.name": "digits", "batches": (100,), "baseline-epochs": (10, 50)}),
    title="Digits in place of Purchase-100",
)


@pytest.mark.long
def test_figures_of_trained_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixture_fits, "SIZES", {ComputeExtent.FULL: (100,)})
    monkeypatch.setattr(mixture_fits, "COMPONENTS", {ComputeExtent.FULL: (1, 2)})
    monkeypatch.setattr(runner, "parallel_runs", lambda: 1)
    candidates = {PURCHASE.study: ((PURCHASE,), (TINY_MANY,)), ADULT.study: ((TINY_ADULT,),)}
    messages: list[str] = []
    options = ReproductionOptions(tmp_path, data_dir=tmp_path, announce=messages.append)
    items = [item for item in PAPER.items if item.key in ("fig1", "fig2", "fig6")]
    results = runner.make(replace(PAPER, candidates=candidates), items, options).results
    first, second, third = (result for _, result in results)
    assert re.fullmatch(r"Purchase-100 is not there .*: digits stands in for it", messages[0])
    assert re.fullmatch(r"Digits .* Purchase-100", first.data[0])
    assert not first.comparable_rows("published")
    assert "7.06 in print, on Purchase-100" in " ".join(first.frame["note"])
    rows = second.frame.set_index(["setting", "quantity"])["measured"]

    def trials_of(data: PaperDataset) -> pd.DataFrame:
        longest = baseline_runs(data)[-1]
        return StoredPaperRun(longest, longest.config(), options.runs / longest.name).trials

    adult = trials_of(TINY_ADULT)
    purchase_trials = trials_of(TINY_MANY)
    assert rows["Adult, 10 epochs", "Epsilon*"] == pytest.approx(adult["epsilon_star"].mean())
    assert rows["Adult, 10 epochs", "test AUROC (probability)"] == pytest.approx(adult["test_auroc"].mean())
    apart = purchase_trials["epsilon_star"].mean() - adult["epsilon_star"].mean()
    assert second.claims[-1].interval.value == pytest.approx(apart)
    assert second.spent.trials == 2 * len(all_runs(TINY_ADULT))
    assert len(third.frame) == 4 * 2
    assert len(third.claims) == 4
    assert third.frame["measured"].between(0, 1).all()
    assert to_png(third.figure)


def test_training_scores_are_those_of_epsilon_star(tmp_path: Path) -> None:
    """With D, their normal fit and that of the population give the Epsilon* that the run itself found."""
    values = without_privacy(small_settings(data={"records": 300}, audit={"trials": 6, "neighbour": "random"}))
    (paper_run,) = grid(values, [])
    run_locally(plan_run(paper_run.config), tmp_path / "run")
    trials = pd.read_parquet(tmp_path / "run" / "trials.parquet")
    assert trials["bit"].nunique() == 2
    federation = load_federation(read_public(tmp_path / "run")[0])
    models = [load_file(path)["models"] for path in sorted((tmp_path / "run" / "public").glob("models-*"))]
    population = federation.losses(torch.cat(models), federation.population)
    training = federation.losses(torch.cat(models), federation.training)
    for trial, scores in enumerate(_training_scores(tmp_path / "run")):
        everything = np.concatenate([training[trial], population[trial]])
        population_scores = loss_scores(population[trial], everything.min(), everything.max())
        star = epsilon_star_gaussian(
            scores.mean(), scores.std(), population_scores.mean(), population_scores.std(), 0.01
        )
        same = float(star) == pytest.approx(trials["epsilon_star"][trial], abs=1e-6)
        assert same == (trials["bit"][trial] == 1)
