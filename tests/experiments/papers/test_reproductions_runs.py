"""Runs are shared, kept and resumed; every item gives its rows, its picture and its part of the page."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fl_audit.adjacency import Adjacency
from fl_audit.experiments.papers import reproduce, runner
from fl_audit.experiments.papers.bernau2021 import attack_cost_scaling, paper
from fl_audit.experiments.papers.bernau2021.advantage_and_belief import ADVANTAGE
from fl_audit.experiments.papers.bernau2021.insider_runs import ADULT, claimed_mu, insider_run, labels_of, mu_of_trials
from fl_audit.experiments.papers.item_results import COLUMNS
from fl_audit.experiments.papers.papers import ComputeExtent, ReproductionOptions
from fl_audit.experiments.papers.reproduce import PAPERS, chosen_items
from fl_audit.experiments.papers.reproduction_names import ITEMS, item_names
from fl_audit.experiments.papers.runner import play
from fl_audit.experiments.papers.statistics import predicted_advantage
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.privacy.identifiability_bounds import gaussian_advantage
from fl_audit.runs import many_runs
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import run_audit
from fl_audit.runs.run_directory import RunDirectory
from tests.builders.pages import ParsedPage
from tests.builders.refusals import assert_refused

_FULL = replace(
    ADULT,
    title="Small for Adult",
    stands_in=True,
    quick={"audit.dissimilarity": "euclidean", "trials": (6, 4, 3)},
    settings={
        **ADULT.settings,
        "data.name": "breast-cancer",
        "data.records": 40,
        "data.test-records": 20,
        "model.name": "logistic",
        "training.rounds": 3,
        "audit.evaluate-every": 3,
        "run.trials-per-batch": 3,
    },
)
SMALL = _FULL.in_form(ComputeExtent.QUICK)
assert SMALL is not None
LS_B = insider_run(SMALL, SensitivityKind.LOCAL, Adjacency.REPLACE_RECORD)
OTHER = insider_run(SMALL, SensitivityKind.LOCAL, Adjacency.REPLACE_RECORD, 0.75)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "parallel_runs", lambda: 1)  # processes of their own take seconds to begin
    monkeypatch.setattr(runner, "find_data", lambda *_: ((_FULL,), ("Adult is small",)))


@pytest.mark.long
def test_all_items_at_once(tmp_path: Path) -> None:
    messages: list[str] = []
    context = ReproductionOptions(tmp_path, extent=ComputeExtent.QUICK, announce=messages.append)
    _, reproduction, page = reproduce.reproduce("bernau2021", context)
    keys = [item.key for item, _ in reproduction.results]
    assert keys == ["table1", "table2", "table3", *(f"fig{number}" for number in (1, 2, 3, 4, 5, 6, 9)), "claims"]
    assert [line.partition(".")[0] for line in reproduction.left_out] == ["Figure 7", "Figure 8"]
    assert messages == ["Adult is small"]
    # 4 runs at rho_beta = 0.9, 2 x 3 at the others, and the least dissimilar neighbours of Figure 4.
    assert sum(directory.is_dir() for directory in (tmp_path / "runs-quick").iterdir()) == 12
    for key in keys:
        frame = pd.read_csv(tmp_path / f"{key}.csv")
        assert tuple(frame.columns) == COLUMNS
        assert len(frame) > 0
        finite = frame.dropna(subset=["measured", "low", "high"])
        assert (finite["low"] <= finite["high"] + 1e-9).all(), key
        assert (tmp_path / f"{key}.png").read_bytes().startswith(b"\x89PNG")
    _check_page(page, keys)


WORDS_OF_THE_PAGE = (
    "Quick form",
    "instead of manhattan",
    "a private release",
    "Adult is small",
    "Small for Adult",
    "Adam",
    "local",
    "a second draw",
    "never draws it",
    "epsilon against itself",
    "Eq. (9)",
    "flattened images",
    "order is 63",
    "Location-30",
    "Figure 7",
    "medians of 4.2 and 4.4",
)


def _check_page(path: Path, keys: list[str]) -> None:
    html = path.read_text(encoding="utf-8")
    page = ParsedPage(html)
    images = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(images) == len(keys)
    assert all(str(image["src"]).startswith("data:image/png;base64,") and image["alt"] for image in images)
    assert not re.search(r"url\(|@import|<script|<link", html)
    for words in WORDS_OF_THE_PAGE:
        assert words in page.text, words


@pytest.mark.long
def test_rows_are_what_the_runs_say(tmp_path: Path) -> None:
    _, reproduction, page = reproduce.reproduce(
        "bernau2021-table2", ReproductionOptions(tmp_path, extent=ComputeExtent.QUICK)
    )
    assert page.name == "bernau2021-table2.html"
    frame = reproduction.results[0][1].frame
    assert len(frame) == 8
    trials = pd.read_parquet(tmp_path / "runs-quick" / LS_B.name / "trials.parquet")
    row = frame[(frame["setting"] == LS_B.label) & (frame["quantity"] == ADVANTAGE)].iloc[0]
    assert row["measured"] == pytest.approx(2 * trials["won"].mean() - 1)
    assert (row["repetitions"], row["published"]) == (6, 0.17)
    played_run = play([LS_B], ReproductionOptions(tmp_path, extent=ComputeExtent.QUICK))[LS_B]
    assert row["theory"] == gaussian_advantage(claimed_mu(played_run))
    # Under local noise every trial has the claimed evidence: the general prediction and the exact distribution are one.
    assert predicted_advantage(mu_of_trials(played_run)) == pytest.approx(row["theory"], rel=1e-6)
    expected_mu = (
        np.sqrt(played_run.summary["guarantee"]["rounds"]) / played_run.summary["guarantee"]["noise_multiplier"]
    )
    assert claimed_mu(played_run) == pytest.approx(expected_mu)


@pytest.mark.long
def test_finished_runs_are_used_and_interrupted_ones_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[str] = []

    def noting(plan, directory, *arguments, **keywords):  # type: ignore[no-untyped-def]
        played.append(directory.name)
        return run_audit(plan, directory, *arguments, **keywords)

    monkeypatch.setattr(many_runs, "run_audit", noting)
    first = play([LS_B, LS_B], ReproductionOptions(tmp_path, extent=ComputeExtent.QUICK))[LS_B]
    assert played == [LS_B.name]
    again = play([LS_B], ReproductionOptions(tmp_path, extent=ComputeExtent.QUICK))[LS_B]
    assert played == [LS_B.name]
    pd.testing.assert_frame_equal(first.trials, again.trials)
    (tmp_path / "runs-quick" / LS_B.name / "summary.json").unlink()
    resumed = play([LS_B], ReproductionOptions(tmp_path, extent=ComputeExtent.QUICK))[LS_B]
    assert played == [LS_B.name] * 2
    pd.testing.assert_frame_equal(first.trials, resumed.trials)


@pytest.mark.long
def test_the_display_counts_every_round_once(tmp_path: Path) -> None:
    counts: list[int] = []

    class Display:
        def __init__(self, total: int) -> None:
            counts.append(-total)

        def __enter__(self):  # type: ignore[no-untyped-def]
            return lambda name: counts.append

        def __exit__(self, *ended: object) -> None:
            """Nothing to close."""

    play([LS_B, OTHER], ReproductionOptions(tmp_path, extent=ComputeExtent.QUICK, progress=Display))
    assert counts[0] == -3 * (6 + 4)
    assert sum(counts) == 0
    # An interrupted run with one of its two batches finished: that one counts at once.
    (tmp_path / "runs-quick" / LS_B.name / "summary.json").unlink()
    shutil.rmtree(tmp_path / "runs-quick" / LS_B.name / "challenger" / "batches" / "batch-00001")
    counts.clear()
    play([LS_B, OTHER], ReproductionOptions(tmp_path, extent=ComputeExtent.QUICK, progress=Display))
    assert counts[:2] == [-3 * 6, 3 * 3]
    assert sum(counts) == 0


def test_another_configuration_in_the_way_is_refused(tmp_path: Path) -> None:
    play([LS_B], ReproductionOptions(tmp_path, extent=ComputeExtent.QUICK))
    (tmp_path / "runs-quick").rename(tmp_path / "runs")
    assert_refused(
        "another configuration",
        lambda: play(
            [insider_run(_FULL, SensitivityKind.LOCAL, Adjacency.REPLACE_RECORD)], ReproductionOptions(tmp_path)
        ),
    )


@pytest.mark.long
def test_the_neighbour_is_searched_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = LS_B.config()
    pair = runner.shared_pair(config)
    assert plan_run(config).federation.pair == pair
    played_run = play([LS_B], ReproductionOptions(tmp_path, extent=ComputeExtent.QUICK))[LS_B]
    monkeypatch.setattr(runner, "_ranked", None)
    finished_runs = [(config, RunDirectory(tmp_path / "runs-quick" / LS_B.name))]
    assert runner.shared_pair(OTHER.config(), finished_runs) == pair
    assert len(labels_of(played_run)) == 2


@pytest.mark.long
def test_nothing_to_play_on_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "find_data", lambda *_: ((), ("no Adult (gone)",)))
    monkeypatch.setattr(attack_cost_scaling, "_seconds", lambda work, size: 1e-9 * size**2)  # nothing is timed here
    named = r"bernau2021-fig9 .*no Adult \(gone\)"
    assert_refused(named, lambda: reproduce.reproduce("bernau2021-fig9", ReproductionOptions(tmp_path / "out")))
    assert not (tmp_path / "out").exists()
    _, reproduction, _ = reproduce.reproduce("bernau2021", ReproductionOptions(tmp_path / "out"))
    assert [item.key for item, _ in reproduction.results] == ["table1", "table3", "fig1", "fig2", "fig3"]
    (tmp_path / "file").write_text("")
    named = "is a file"
    assert_refused(named, lambda: reproduce.reproduce("bernau2021-table3", ReproductionOptions(tmp_path / "file")))


def test_every_paper_has_items_of_its_own() -> None:
    assert {publication.key: tuple(item.key for item in publication.items) for publication in PAPERS} == ITEMS
    for publication in PAPERS:
        assert len({item.key for item in publication.items}) == len(publication.items) > 0
        assert chosen_items(publication.key) == (publication, publication.items)
        assert [chosen_items(publication.name_of(item))[1] for item in publication.items] == [
            (item,) for item in publication.items
        ]
    assert len(set(item_names())) == len(item_names())
    assert paper.PAPER.items[8].runs(ADULT)


def test_papers_do_not_mix_in_one_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "older2020-fig3.html").write_text("")
    monkeypatch.setattr(reproduce, "PAPERS", (replace(paper.PAPER, key="older2020"), paper.PAPER))
    named = r"older2020: .*bernau2021"
    assert_refused(named, lambda: reproduce.reproduce("bernau2021-table3", ReproductionOptions(tmp_path)))
    assert [path.name for path in tmp_path.iterdir()] == ["older2020-fig3.html"]
