"""The studies of Negoescu et al. 2023 as published, and what is read off their models."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from audits import small_settings
from safetensors.torch import load_file
from scipy import stats

from experiments.engines import Engine
from experiments.plan import resolve, rounds_of
from experiments.reproductions.items import table
from experiments.reproductions.negoescu2023.fits import chosen_points, label_of, training_scores
from experiments.reproductions.negoescu2023.landscapes import (
    Landscape,
    _claim_rows,
    _contrast_rows,
    _floor,
    available_study,
)
from experiments.reproductions.negoescu2023.studies import (
    ADULT,
    LOCATION,
    PURCHASE,
    Study,
    Task,
    all_points,
    baseline_points,
    private_points,
    quick_form,
)
from experiments.reproductions.papers import Context, NoDataError
from experiments.run import run_audit
from experiments.run_directory import read_public
from experiments.sweeps.grid import grid, without_privacy
from fl_audit.evidence.epsilon_star import epsilon_star_gaussian, fit_normal
from fl_audit.evidence.losses import loss_scores
from fl_audit.evidence.star_estimate import PARAMETRIC_CUT
from fl_audit.game import load_game
from fl_audit.privacy.accounting import Accountant


def test_the_settings_are_those_of_the_paper() -> None:
    assert (ADULT.records, ADULT.population_records, ADULT.test_records) == (32_561, 16_280, 16_280)
    for study, epochs in ((ADULT, (1, 5, 10, 20)), (LOCATION, (10, 50, 100)), (PURCHASE, (10, 50, 100))):
        baselines, private = baseline_points(study, None), private_points(study, None)
        assert tuple(one.config.training.epochs for one in baselines) == epochs
        varied = {(one.config.privacy.epsilon, one.config.privacy.clipping_norm, one.config.training.expected_batch)
                  for one in private}  # fmt: skip
        batches = (64, 512) if study is ADULT else (256, 1024)
        assert varied == {(e, c, b) for e in (1, 3, 10, 100) for c in (1, 10, 30) for b in batches}
        for one in (*baselines, *private):
            training = one.config.training
            assert (training.optimizer, training.momentum, training.learning_rate) == ("momentum", 0.9, 0.01)
            assert one.config.audit.worlds == 5
            assert one.config.privacy.delta < 1 / study.records
        assert {one.config.privacy.accountant for one in private} == {Accountant.RDP}
    assert len(all_points(ADULT, None)) == 28
    assert rounds_of(baseline_points(ADULT, None)[0].config) == math.ceil(32_561 / 64)


def test_the_quick_form_has_the_same_kinds_of_points() -> None:
    for study in (ADULT, LOCATION):
        quick = quick_form(study)
        assert len(private_points(quick, None)) == 2
        assert set(quick.baseline_epochs) <= set(study.baseline_epochs)


def test_looked_at_are_the_extremes() -> None:
    labels = [label_of(one) for one in chosen_points(ADULT, None)]
    assert labels == ["no privacy, 1 epochs", "no privacy, 20 epochs", "epsilon = 1", "epsilon = 100"]


def test_missing_data_are_named(tmp_path: Path) -> None:
    with pytest.raises(NoDataError, match="purchase100 and location30 not found"):
        available_study(Task.PURCHASE, Context(tmp_path, data_dir=tmp_path))


def landscape(study: Study, baselines: dict[int, list[float]], star: list[float], epsilon: list[float]) -> Landscape:
    private = pd.DataFrame({"epsilon_star": star, "epsilon": epsilon, "private": True})
    plain = pd.DataFrame({"epsilon_star": np.concatenate(list(baselines.values())), "private": False})
    found = {epochs: np.array(values) for epochs, values in baselines.items()}
    return Landscape(study, found, private, pd.concat([private, plain]))


def test_claims_are_numbers_with_intervals() -> None:
    adult = landscape(ADULT, {1: [0.1, 0.2, 0.15], 20: [0.5, 0.9, 0.7]}, [0.1, 0.2, 1.1, 0.3, 0.3], [1.0] * 3 + [3.0] * 2)
    rows = table(_claim_rows(adult)).set_index("quantity")
    grown = rows.loc["Epsilon* at 20 epochs less that at 1"]
    expected = stats.ttest_ind([0.5, 0.9, 0.7], [0.1, 0.2, 0.15], equal_var=False).confidence_interval(0.95)
    assert grown["measured"] == pytest.approx(0.55)
    assert (grown["low"], grown["high"]) == pytest.approx((expected.low, expected.high))
    below = rows.loc["share of private models with Epsilon* below their epsilon"]
    assert (below["measured"], below["repetitions"], below["published"]) == (0.8, 5, 1.0)
    assert below["low"] == pytest.approx(stats.beta.ppf(0.025, 4, 2))
    assert rows.loc["share of models with Epsilon* below 0.3", "measured"] == pytest.approx(5 / 11)
    assert rows.loc["Epsilon* of private models at epsilon = 1", "measured"] == pytest.approx(1.4 / 3)
    many = landscape(
        replace(LOCATION, repetitions=3), {10: [1.0, 2.0, 1.5], 100: [9.0, 10.0, 8.0]}, [0.1, 0.2], [1.0, 1.0]
    )
    (contrast,) = table(_contrast_rows(adult, many)).itertuples()
    assert contrast.measured == pytest.approx(9.0 - 0.7)
    assert table(_contrast_rows(many, adult))["measured"].item() == contrast.measured


def test_chance_is_that_of_drawn_samples() -> None:
    """Moments drawn by their laws give the Epsilon* of fitted samples; false alarm 1e-4."""
    study = replace(LOCATION, records=60, population_records=40, delta=0.01)
    random = np.random.default_rng(0)
    members, population = random.standard_normal((2000, 60)), random.standard_normal((2000, 40))
    drawn = epsilon_star_gaussian(*fit_normal(members), *fit_normal(population), 0.01, PARAMETRIC_CUT)
    row = _floor(study)
    error = drawn.std(ddof=1) * math.sqrt(1 / 2000 + 1 / row.repetitions)
    assert abs(row.measured - drawn.mean()) < stats.norm.isf(5e-5) * error
    assert row.low < np.median(drawn) < row.high


def test_training_scores_are_those_of_epsilon_star(tmp_path: Path) -> None:
    """Where D was used, their normal fit and that of the population give the Epsilon* that the run itself found."""
    values = without_privacy(small_settings(data={"records": 300}, audit={"worlds": 6, "neighbour": "random"}))
    (one,) = grid(values, [])
    run_audit(resolve(one.config), tmp_path / "run", Engine.LOCAL, with_report=False)
    worlds = pd.read_parquet(tmp_path / "run" / "worlds.parquet")
    assert worlds["bit"].nunique() == 2
    game = load_game(read_public(tmp_path / "run")[0])
    models = [load_file(path)["models"] for path in sorted((tmp_path / "run" / "public").glob("models-*"))]
    population = game.losses(torch.cat(models), game.population)
    training = game.losses(torch.cat(models), game.training)
    for world, scores in enumerate(training_scores(tmp_path / "run")):
        everything = np.concatenate([training[world], population[world]])
        others = loss_scores(population[world], everything.min(), everything.max())
        star = epsilon_star_gaussian(scores.mean(), scores.std(), others.mean(), others.std(), 0.01)
        same = float(star) == pytest.approx(worlds["epsilon_star"][world], abs=1e-6)
        assert same == (worlds["bit"][world] == 1)
