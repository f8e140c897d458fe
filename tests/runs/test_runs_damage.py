"""Damaged run directories: what can be played again is, what cannot is told in one line, what is not ours is left."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

from fl_audit.federation.run_plan import RunPlan
from fl_audit.runs.provenance import read_provenance
from fl_audit.runs.run_directory import RunDirectory
from fl_audit.runs.run_report import rebuild_report
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan

Damage = Callable[[Path], object]


def plan_with(seed: int = 0) -> RunPlan:
    changes = {"epsilon-star": False, "membership": False}
    return small_plan(training={"rounds": 2}, audit=changes, run={"seed": seed})


class Finished(NamedTuple):
    """A finished run of two batches, and one of another seed."""

    path: Path
    other: Path
    trials: pd.DataFrame
    rounds: pd.DataFrame


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    directory = tmp_path_factory.mktemp("finished")
    contents = run_locally(plan_with(), directory / "run")
    run_locally(plan_with(seed=1), directory / "other")
    return Finished(directory / "run", directory / "other", contents.trials, contents.rounds)


@pytest.fixture
def run(finished: Finished, tmp_path: Path) -> Path:
    """A copy of the finished run, to be damaged."""
    shutil.copytree(finished.path, tmp_path / "run")
    return tmp_path / "run"


def batch(run: Path, number: int = 0) -> Path:
    return run / "challenger" / "batches" / f"batch-{number:05d}"


def public(run: Path, kind: str, number: int = 0) -> Path:
    return run / "public" / f"{kind}-batch-{number:05d}.safetensors"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def exchange(first_path: Path, two: Path) -> None:
    aside = first_path.with_name("aside")
    first_path.rename(aside)
    two.rename(first_path)
    aside.rename(two)


def into_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def into_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("a file")


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


PLAYED_AGAIN: dict[str, Damage] = {
    "table missing": lambda run: (batch(run) / "trials.parquet").unlink(),
    "table cut": lambda run: cut(batch(run) / "rounds.parquet"),
    "table empty": lambda run: (batch(run) / "rounds.parquet").write_bytes(b""),
    "table of another batch": lambda run: exchange(batch(run) / "rounds.parquet", batch(run, 1) / "rounds.parquet"),
    "two tables exchanged": lambda run: exchange(batch(run) / "rounds.parquet", batch(run) / "releases.parquet"),
    "one bit of a table": lambda run: flip(batch(run) / "trials.parquet"),
    "table is a directory": lambda run: into_directory(batch(run) / "trials.parquet"),
    "batches exchanged": lambda run: exchange(batch(run), batch(run, 1)),
    "batch missing": lambda run: shutil.rmtree(batch(run, 1)),
    "batch is a file": lambda run: into_file(batch(run)),
    "manifest missing": lambda run: (batch(run) / "manifest.json").unlink(),
    "manifest cut": lambda run: cut(batch(run) / "manifest.json"),
    "manifest a list": lambda run: (batch(run) / "manifest.json").write_text("[]"),
    "manifest of words": lambda run: rewrite(batch(run) / "manifest.json", count="3"),
    "manifest of other trials": lambda run: rewrite(batch(run) / "manifest.json", first=3),
    "manifest is a directory": lambda run: into_directory(batch(run) / "manifest.json"),
    "models missing": lambda run: public(run, "models").unlink(),
    "models cut": lambda run: cut(public(run, "models", 1)),
    "one bit of a model": lambda run: flip(public(run, "models")),
    "models exchanged": lambda run: exchange(public(run, "models"), public(run, "models", 1)),
    "releases missing": lambda run: public(run, "releases").unlink(),
    "one bit of a release": lambda run: flip(public(run, "releases")),
    "all batches gone": lambda run: shutil.rmtree(batch(run).parent),
}

PASSED_OVER: dict[str, Damage] = {
    "stray file among batches": lambda run: (batch(run).parent / "notes.txt").write_text("mine"),
    "stray file in a batch": lambda run: (batch(run) / "notes.parquet").write_text("mine"),
    "stray directory": lambda run: (batch(run).parent / "batch-copy").mkdir(),
    "copy of a batch": lambda run: shutil.copytree(batch(run), batch(run, 7)),
    "half a batch": lambda run: (batch(run).parent / ".batch-00000.partial").mkdir(),
    "half a file": lambda run: (run / ".summary.123.part.json").write_text("{"),
    "summary cut": lambda run: cut(run / "summary.json"),
    "table of the run cut": lambda run: cut(run / "trials.parquet"),
    "timing cut": lambda run: cut(run / "timing.json"),
    "timing a list": lambda run: (run / "timing.json").write_text("[1]"),
    "models of a batch that is none": lambda run: public(run, "models", 9).write_text("mine"),
}

REFUSED: dict[str, tuple[Damage, str]] = {
    "configuration missing": (lambda run: (run / "public" / "configuration.json").unlink(), "holds no run"),
    "configuration cut": (lambda run: cut(run / "public" / "configuration.json"), "cannot be read"),
    "configuration a list": (lambda run: (run / "public" / "configuration.json").write_text("[]"), "is damaged"),
    "configuration deep": (
        lambda run: (run / "public" / "configuration.json").write_text("[" * 100_000),
        "cannot be read",
    ),
    "sections a list": (lambda run: rewrite(run / "public" / "configuration.json", configuration=[]), "is damaged"),
    "no federation": (lambda run: rewrite(run / "public" / "configuration.json", federation={}), "is damaged"),
    "an unknown setting": (
        lambda run: rewrite(run / "public" / "configuration.json", configuration={"privcy": {}}),
        "is damaged",
    ),
    "an earlier version": (
        lambda run: rewrite(run / "public" / "configuration.json", schema=1),
        r"another version .*\(schema 1\)",
    ),
    "configuration is a directory": (
        lambda run: into_directory(run / "public" / "configuration.json"),
        "is a directory",
    ),
    "seed missing": (lambda run: (run / "challenger" / "seed.json").unlink(), "seed.json is missing"),
    "seed cut": (lambda run: cut(run / "challenger" / "seed.json"), "cannot be read"),
    "seed a list": (lambda run: (run / "challenger" / "seed.json").write_text("[4711]"), "seed.json is damaged"),
    "seed a word": (lambda run: rewrite(run / "challenger" / "seed.json", seed="4711"), "seed.json is damaged"),
}

IN_THE_WAY: dict[str, tuple[Damage, str]] = {
    "table is a directory": (lambda run: into_directory(run / "trials.parquet"), "a directory, where"),
    "batches is a file": (lambda run: into_file(batch(run).parent), "a file, where"),
    "models is a directory": (lambda run: into_directory(public(run, "models")), "a directory, where"),
}


def resumed(run: Path) -> pd.DataFrame:
    return run_locally(plan_with(), run, resume=True).trials


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("kind", PLAYED_AGAIN)
def test_what_is_damaged_is_played_again(kind: str, run: Path, finished: Finished) -> None:
    PLAYED_AGAIN[kind](run)
    assert_refused(r"holds [03] of 6 .*--resume .* plays", rebuild_report, run)
    pd.testing.assert_frame_equal(resumed(run), finished.trials, check_exact=True)
    for kind_of, number in (("models", 0), ("models", 1), ("releases", 0)):
        assert public(run, kind_of, number).read_bytes() == public(finished.path, kind_of, number).read_bytes()


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("kind", PASSED_OVER)
def test_what_decides_nothing_is_passed_over(kind: str, run: Path, finished: Finished) -> None:
    PASSED_OVER[kind](run)
    written = [(batch(run, number) / "trials.parquet").stat().st_mtime_ns for number in (0, 1)]
    pd.testing.assert_frame_equal(resumed(run), finished.trials, check_exact=True)
    assert [(batch(run, number) / "trials.parquet").stat().st_mtime_ns for number in (0, 1)] == written
    pd.testing.assert_frame_equal(pd.read_parquet(run / "rounds.parquet"), finished.rounds, check_exact=True)


@pytest.mark.few_cases(5)
@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_played_again_gets_one_line(kind: str, run: Path) -> None:
    damage, expected_message = REFUSED[kind]
    damage(run)
    assert "4711" not in str(assert_refused(expected_message, resumed, run))
    assert_refused(r"\w", rebuild_report, run)


@pytest.mark.parametrize("kind", IN_THE_WAY)
def test_what_stands_in_the_way_is_named_before_anything_is_played(kind: str, run: Path) -> None:
    damage, expected_message = IN_THE_WAY[kind]
    damage(run)
    assert_refused(expected_message, resumed, run)


def test_a_batch_of_another_run_is_not_taken_for_ones_own(run: Path, finished: Finished) -> None:
    shutil.rmtree(batch(run))
    shutil.copytree(batch(finished.other), batch(run))
    for kind in ("models", "releases"):
        shutil.copy(public(finished.other, kind), public(run, kind))
    assert_refused(r"batch-00000 .*another run", rebuild_report, run)
    pd.testing.assert_frame_equal(resumed(run), finished.trials, check_exact=True)


def test_undamaged_batches_are_not_played_again(run: Path) -> None:
    written = (batch(run, 1) / "trials.parquet").stat().st_mtime_ns
    flip(public(run, "models"))
    resumed(run)
    assert (batch(run, 1) / "trials.parquet").stat().st_mtime_ns == written


def test_a_date_that_is_none_is_not_shown(run: Path) -> None:
    path = run / "public" / "provenance.json"
    path.write_text(path.read_text().replace('"began": "2', '"began": "soon 2'))
    assert "soon" in path.read_text()
    rebuild_report(run)
    assert read_provenance(RunDirectory(run)) is None
