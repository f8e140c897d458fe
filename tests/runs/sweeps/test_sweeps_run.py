"""Sweeps on Ray: ordinary runs, kept one by one, one row a model."""

import itertools
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from fl_audit.errors import FederationError
from fl_audit.learning.metric_names import Metric
from fl_audit.privacy.gaussian import gaussian_mu
from fl_audit.released_model.normal_fit_tests import FIT
from fl_audit.report.figure_style import to_png
from fl_audit.runs.cluster.ray_options import RayOptions
from fl_audit.runs.cluster.run_tasks import has_room
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import run_audit
from fl_audit.runs.run_directory import RunDirectory
from fl_audit.runs.sweeps.grid import Axis, Point, baselines, grid
from fl_audit.runs.sweeps.page import (
    better_than_no_privacy_texts,
    chance_text,
    claims_text,
    fit_text,
    points_html,
    sweep_page,
)
from fl_audit.runs.sweeps.privacy_utility_plot import landscape_figure
from fl_audit.runs.sweeps.sweep import SweepResults, run_sweep
from fl_audit.runs.sweeps.tables import UNTRAINED, choose_utility, models_table, points_table
from fl_audit.words import number_text
from tests.builders.commands import exit_status
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally
from tests.builders.settings import small_settings
from tests.untold import assert_untold

VALUES = small_settings(
    training={"rounds": 2},
    privacy={"belief": None, "epsilon": 1.0, "sensitivity": "global", "adjacency": "add-remove-record"},
    audit={"trials": 3, "insider": False},
)
ONE_ACTOR = RayOptions(actors=1)


def points(*epsilons: float) -> tuple[Point, ...]:
    baseline = baselines(VALUES, [Axis("training.learning-rate", (0.5,))])
    return grid(VALUES, [Axis("privacy.epsilon", epsilons)]) + baseline


@contextmanager
def interrupts(total: int) -> Iterator[Callable[[str], Callable[[int], None]]]:
    """A display during which somebody presses Ctrl-C when the first point has ended."""

    def begin(name: str) -> Callable[[int], None]:
        if name.startswith("1/"):
            raise KeyboardInterrupt
        return lambda done: None

    yield begin


@pytest.mark.long
@pytest.mark.ray
def test_a_sweep_is_its_runs_survives_interrupts_and_failures_and_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its points have seeds of their own, which no file tells and which stay when it grows or a point is lost."""
    monkeypatch.setitem(VALUES, "run", {**VALUES["run"], "seed": None})
    runs = tmp_path / "sweep" / "points"
    with pytest.raises(KeyboardInterrupt):
        run_sweep(points(1.0), tmp_path / "sweep", ONE_ACTOR, progress=interrupts)
    (first,) = runs.iterdir()
    modification_times = {path: path.stat().st_mtime_ns for path in first.rglob("*.parquet")}
    assert len(modification_times) == 6
    assert pd.read_parquet(tmp_path / "sweep" / "models.parquet")["point"].unique().tolist() == [first.name]
    hopeless = grid(VALUES, [Axis("run.client-time-limit", (1e-6,))])
    with pytest.raises(FederationError, match=r"point client-time-limit=1e-06: .*time limit"):
        run_sweep((*points(1.0, 8.0), *hopeless), tmp_path / "sweep", ONE_ACTOR)
    assert {path: path.stat().st_mtime_ns for path in modification_times} == modification_times
    assert (tmp_path / "sweep" / "landscape.png").exists()
    before = pd.read_parquet(first / "trials.parquet")
    seed = RunDirectory(first).secret().seed
    shutil.rmtree(first)
    # Whatever the engine, a point that was lost comes back as it was.
    sweep_results = run_sweep(points(1.0, 8.0), tmp_path / "sweep", engine=Engine.LOCAL)
    assert RunDirectory(first).secret().seed == seed
    pd.testing.assert_frame_equal(pd.read_parquet(first / "trials.parquet"), before, check_exact=True)
    models = pd.read_parquet(tmp_path / "sweep" / "models.parquet")
    names = ["epsilon=1.0", "epsilon=8.0", "private=false_learning-rate=0.5"]
    assert sorted(path.name for path in runs.iterdir()) == names
    assert models["point"].tolist() == [name for name in names for _ in range(3)]
    assert models["privacy.epsilon"].tolist()[:6] == [1.0] * 3 + [8.0] * 3
    assert models["privacy.epsilon"].isna().tolist() == [False] * 6 + [True] * 3
    np.testing.assert_allclose(models["epsilon"][:6], [1.0] * 3 + [8.0] * 3, atol=1e-3)
    seeds = {path.name: RunDirectory(path).secret().seed for path in runs.iterdir()}
    plan = plan_run(points(8.0)[0].config).with_seed(seeds["epsilon=8.0"])
    alone = run_locally(plan, tmp_path / "alone")
    for column in ("test_accuracy", "test_auroc", "epsilon_star", "membership_advantage"):
        np.testing.assert_array_equal(models.loc[models["point"] == "epsilon=8.0", column], alone.trials[column])
    assert sweep_results.utility == Metric.ACCURACY
    claimed = sweep_results.points["gdp_mu"].to_numpy()
    multipliers = models["noise_multiplier"].to_numpy()[[0, 3]]
    np.testing.assert_allclose(claimed[:2], [gaussian_mu(multiplier, 2) for multiplier in multipliers], rtol=1e-12)
    assert np.isnan(claimed[2])
    (terms,) = claims_text(sweep_results)
    assert "delta 0.01" in terms
    assert "add-remove-record" in terms
    assert terms.count("record)") == 1
    page = sweep_page(sweep_results, "A sweep")
    assert terms in page
    assert "privacy.epsilon = 8.0" in page
    assert "training.learning-rate = 0.5" in page
    (tmp_path / "sweep" / "sweep.html").write_text(page, encoding="utf-8")
    _assert_seeds_are_secret(tmp_path / "sweep", seeds)


def _assert_seeds_are_secret(sweep: Path, seeds: dict[str, int]) -> None:
    assert len(set(seeds.values())) == len(seeds) == 3
    secret = json.loads((sweep / "challenger" / "seed.json").read_text())["seed"]
    for seed in (*seeds.values(), int(secret, 16) % 2**64):
        assert_untold(sweep, seed)
    assert secret not in (sweep / "sweep.html").read_text()
    if os.name != "nt":
        seed_path = sweep / "points" / "epsilon=1.0" / "challenger" / "seed.json"
        assert stat.S_IMODE(seed_path.stat().st_mode) == 0o600
        assert stat.S_IMODE(seed_path.parent.stat().st_mode) == 0o700


CLAIM = {
    "epsilon": 1.0,
    "delta": 0.01,
    "accountant": "rdp",
    "adjacency": "add-remove-record",
    "unit": "record",
    "gdp_mu": 0.5,
    "gdp_regret": 0.0,
}


def test_an_interrupted_command_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: object) -> None:
        (tmp_path / "out" / "points").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr("fl_audit.runs.sweeps.sweep.run_sweep", interrupted)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text("[privacy]\nadjacency = 'replace-record'\nepsilon = 1\n")
    assert exit_status("sweep", "config.toml", "--set", "run.seed=7", "--out", "out") == 130
    assert capfd.readouterr().err.endswith(
        "interrupted; go on with: fl-audit sweep config.toml --set run.seed=7 --out out\n"
    )


@pytest.mark.long
def test_a_sweep_in_this_process_keeps_its_points_goes_on_and_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def here(*epsilons: float) -> SweepResults:
        return run_sweep(grid(VALUES, [Axis("privacy.epsilon", epsilons)]), tmp_path / "out", engine=Engine.LOCAL)

    assert len(here(1.0, 4.0).models) == 6
    point_names = {path.name for path in (tmp_path / "out" / "points").iterdir()}
    assert len(point_names) == 2
    assert not list(tmp_path.rglob("*.partial"))
    point_directory = tmp_path / "out" / "points" / sorted(point_names)[0]
    assert stat.S_IMODE((point_directory / "challenger").stat().st_mode) == 0o700
    played: list[Path] = []

    def noted(*arguments: Any, **options: Any) -> Any:
        played.append(arguments[1])
        return run_audit(*arguments, **options)

    monkeypatch.setattr("fl_audit.runs.many_runs.run_audit", noted)
    assert len(here(1.0, 2.0, 4.0).points) == 3
    assert len(played) == 1


@pytest.mark.long
def test_a_point_that_fails_in_this_process_leaves_nothing_behind(tmp_path: Path) -> None:
    hopeless = grid(VALUES, [Axis("run.client-time-limit", (1e-6,))])
    with pytest.raises(FederationError, match=r"point client-time-limit=1e-06: .*time limit"):
        run_sweep((*points(1.0), *hopeless), tmp_path / "out", engine=Engine.LOCAL)
    names = {path.name for path in (tmp_path / "out" / "points").iterdir()}
    assert names == {"epsilon=1.0", "private=false_learning-rate=0.5"}


def test_no_ended_sweep_leaves_a_half_point_with_its_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt takes it away, and the next sweep what a killed one left."""
    challenger_directory = tmp_path / "out" / "points" / ".epsilon=1.0.999999.partial" / "challenger"
    challenger_directory.mkdir(parents=True)
    (challenger_directory / "seed.json").write_text("{}")

    def interrupted(plan: Any, directory: Path, *_: Any, **__: Any) -> None:
        run_locally(plan, directory)
        raise KeyboardInterrupt

    monkeypatch.setattr("fl_audit.runs.many_runs.run_audit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(points(1.0), tmp_path / "out", engine=Engine.LOCAL)
    assert list((tmp_path / "out" / "points").iterdir()) == []


def test_frontier_and_ranges_of_points() -> None:
    sweep_points = points(1.0, 8.0)
    star = {"epsilon=1.0": [0.1, 0.3], "epsilon=8.0": [1.0, 1.0], "private=false_learning-rate=0.5": [np.inf, 2.0]}
    accuracy = {"epsilon=1.0": [0.5, 0.7], "epsilon=8.0": [0.6, 0.6], "private=false_learning-rate=0.5": [0.9, 0.9]}
    models = pd.DataFrame(
        [
            {
                **CLAIM,
                "point": name,
                "private": "epsilon" in name,
                "test_accuracy": accuracy[name][index],
                "test_auroc": np.nan,
                "epsilon_star": star[name][index],
                "membership_advantage": 0.0,
            }
            for name in star
            for index in range(2)
        ]
    )
    table = points_table(models, sweep_points, Metric.ACCURACY).set_index("point")
    assert table.loc["epsilon=1.0", ["utility", "utility_low", "utility_high"]].tolist() == [0.6, 0.5, 0.7]
    assert table["on_frontier"].tolist() == [True, False, False]
    assert choose_utility(models, None) == Metric.ACCURACY
    assert_refused("not computed", choose_utility, models, Metric.AUROC)


def test_values_of_several_kinds_are_written_as_words(tmp_path: Path) -> None:
    sweep_points = grid(VALUES, [Axis("audit.neighbour", (0, "random"))])
    for point in sweep_points:
        run_locally(plan_run(point.config), tmp_path / point.name)
    table = models_table(sweep_points, tmp_path)
    table.to_parquet(tmp_path / "models.parquet")
    assert table["audit.neighbour"].unique().tolist() == ["0", "random"]


def test_points_of_the_membership_audit_name_their_strongest_attack(tmp_path: Path) -> None:
    audit = {"kind": "membership", "targets": 40, "trials": 2, "attacks": ["loss"], "insider": True}
    settings = small_settings(
        training={"rounds": 1},
        privacy={"belief": None, "epsilon": 1.0, "sensitivity": None, "adjacency": "add-remove-record"},
        audit=audit,
    )
    sweep_points = grid(settings, [Axis("audit.kind", ("membership",))]) + grid(VALUES, [Axis("training.rounds", (1,))])
    run_contents = [run_locally(plan_run(entry.config), tmp_path / entry.name) for entry in sweep_points]
    models = models_table(sweep_points, tmp_path)
    table = points_table(models, sweep_points, Metric.ACCURACY)
    rates = run_contents[0].summary["attacks"]["by_name"]["loss"]
    assert table["attack"].fillna("none").tolist() == ["loss", "none"]
    assert table["attack_auc"][0] == rates["auc"]["value"]
    assert table["attack_tpr_at_fpr_001"][0] == rates["tpr_at_fpr_001"]["value"]
    page = points_html(SweepResults(models, table, Metric.ACCURACY, Figure()))
    assert "Strongest attack" in page
    # What chance reaches stands beside Epsilon*, as in the report of a run.
    stars = [entry.summary["epsilon_star"] for entry in run_contents]
    # Points are compared by normals, also where a run has too few losses to state a value.
    untrained = [(star.get("by_normals") or star)["untrained_mean"] for star in stars]
    assert models.groupby("point", sort=False)[UNTRAINED].first().tolist() == untrained
    chance = chance_text(SweepResults(models, table, Metric.ACCURACY, Figure()))
    assert all(number_text(entry, 3) in chance for entry in untrained)
    assert f">{number_text(rates['auc']['value'], 3)}</td>" in page


def test_what_epsilon_star_of_a_sweep_rests_on_is_said() -> None:
    """Its points are compared by normals: whether these fit is said as the report of a run says it."""

    def said(**columns: object) -> str:
        models = pd.DataFrame({"point": ["one"] * 4, "epsilon_star": 1.0} | columns)
        return fit_text(SweepResults(models, models, Metric.ACCURACY, Figure()))

    assert "in 2 of 3 models" in said(**{FIT: [1e-9, 0.5, 1e-3, np.nan]})
    assert "rejects most" in said(**{FIT: [1e-9, 0.5, 1e-3, np.nan]})
    assert said(**{FIT: [0.5] * 4}).endswith("in 0 of 4 models.")
    assert "was not tested" in said(**{FIT: [np.nan] * 4})
    assert "was not tested" in said()


def test_unbounded_models_are_not_drawn() -> None:
    models = pd.DataFrame(
        {
            **CLAIM,
            "point": ["epsilon=1.0"] * 2,
            "private": True,
            "test_accuracy": [0.5, 0.6],
            "epsilon_star": [np.inf, np.inf],
            "membership_advantage": 0.0,
        }
    )
    table = points_table(models, points(1.0)[:1], Metric.ACCURACY)
    assert not table["on_frontier"].any()
    figure = landscape_figure(table, models, Metric.ACCURACY, "cost in $ and $$")
    to_png(figure)
    assert all(panel.get_xlim()[0] >= 0 or panel.get_ylim()[0] >= 0 for panel in figure.axes), "no density is below 0"


@pytest.mark.parametrize(
    ("utility", "out", "expected_message"),
    [(Metric.AUROC, "new", r"auroc: accepted for digits are accuracy"), (None, "file/new", "cannot be written")],
)
def test_what_cannot_work_is_refused_before_training(
    utility: Metric | None, out: str, expected_message: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    assert_refused(
        expected_message,
        lambda: run_sweep(
            grid({**VALUES, "data": {**VALUES["data"], "name": "digits"}}, []), tmp_path / out, utility=utility
        ),
    )


def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    notes = tmp_path / "points" / "epsilon=1.0" / "notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    assert_refused("no finished point", lambda: run_sweep(points(1.0), tmp_path))
    assert notes.read_text() == "mine"


def test_a_sweep_without_epsilon_star_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    blind = grid(small_settings(audit={"epsilon-star": False}), [])
    assert_refused("needs it true", run_sweep, blind, tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize(
    ("node", "is_large"),
    [
        ({"Alive": True, "Resources": {"CPU": 4.0}}, True),
        ({"Alive": True, "Resources": {"CPU": 3.0}}, False),
        ({"Alive": False, "Resources": {"CPU": 8.0}}, False),
        ({"Alive": True, "Resources": {}}, False),
    ],
)
def test_a_cluster_with_no_node_large_enough_is_noticed(
    node: dict[str, object], is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.nodes", lambda: [{"Alive": True, "Resources": {"CPU": 1.0}}, node])
    assert has_room(RayOptions("head:6379", threads=4)) == is_large


def points_of(utilities: list[float], without: float) -> pd.DataFrame:
    """Return a table of private points, each epsilon with two settings, and one point without privacy."""
    rows = [
        {
            "settings": f"privacy.epsilon = {1 + index // 2}, privacy.clipping-norm = {index % 2}",
            "private": True,
            "epsilon": 1.0 + index // 2,
            "utility": value,
        }
        for index, value in enumerate(utilities)
    ]
    rows.append({"settings": "privacy.private = false", "private": False, "epsilon": np.nan, "utility": without})
    table = pd.DataFrame(rows)
    ends = {f"{name}_{end}": table["utility"] for name in ("utility", "epsilon_star") for end in ("low", "high")}
    return table.assign(**ends, epsilon_star=table["utility"], models=3, on_frontier=table["private"])


@pytest.mark.parametrize("by_guarantee", [True, False])
def test_numbers_stand_beside_their_points_and_cover_nothing(by_guarantee: bool) -> None:
    points = points_of([0.6, 0.605, 0.7, 0.702, 0.75, 0.752, 0.8, 0.801, 0.81, 0.815], 0.79)
    models = points.assign(test_auroc=points["utility"])
    figure = landscape_figure(points, models, "auroc", "ten", by_guarantee)
    figure.draw_without_rendering()
    axes = next(axes for axes in figure.axes if axes.texts)
    assert {int(text.get_text()) for text in axes.texts} == set(range(1, 11 + (not by_guarantee)))
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not [
        (label_box, other_box)
        for label_box, other_box in itertools.combinations(boxes, 2)
        if label_box.overlaps(other_box)
    ]
    ticks = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
    assert not [
        (label_box, other_box)
        for label_box, other_box in itertools.combinations(ticks, 2)
        if label_box.overlaps(other_box)
    ]
    (legend,) = figure.legends
    box = legend.get_window_extent()
    page = figure.bbox
    assert box.x0 >= page.x0 - 1
    assert box.x1 <= page.x1 + 1
    assert "1: epsilon = 1, clipping-norm = 0" in [text.get_text() for text in legend.get_texts()]


def test_private_points_that_beat_no_privacy_are_a_matter_of_chance() -> None:
    def told(utilities: list[float], without: float) -> list[str]:
        points = points_of(utilities, without)
        return better_than_no_privacy_texts(SweepResults(points, points, "auroc", Figure()))

    (text,) = told([0.6, 0.82], 0.8)
    assert text.startswith("Point 2 is better than the best without privacy, by 0.02 at most.")
    assert "chance" in text
    assert told([0.6, 0.79], 0.8) == []
