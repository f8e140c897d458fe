"""Nothing outside challenger/ tells the challenger's seed, and only the owner may read what lies inside."""

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from audits import MakePlan, small_settings

from experiments.runs.config import parse_config
from experiments.runs.engines import Engine, RayOptions
from experiments.runs.plan import resolve
from experiments.runs.run import run_audit
from experiments.runs.run_directory import RunDirectory
from experiments.sweeps.grid import Axis, Point, grid
from experiments.sweeps.page import sweep_page
from experiments.sweeps.sweep import run_sweep
from fl_audit.errors import InputError
from fl_audit.whole_files import whole_file

SEED = 0x9E3779B97F4A7C15  # 64 bits that turn up nowhere by chance


def spellings(seed: int) -> list[bytes]:
    """Return a seed as text and as the bytes of an integer or a float."""
    import struct

    texts = [str(seed), f"{seed:x}", f"{seed:X}", str(float(seed)), str(seed - 2**64)]
    packed = [struct.pack(form, seed) for form in ("<Q", ">Q", "<d", ">d")]
    return [text.encode() for text in texts] + packed


def files_outside_the_challenger(directory: Path) -> Iterator[Path]:
    for path in directory.rglob("*"):
        if path.is_file() and "challenger" not in path.relative_to(directory).parts:
            yield path


def assert_untold(directory: Path, seed: int) -> None:
    seen = 0
    for path in files_outside_the_challenger(directory):
        content, seen = path.read_bytes() + path.name.encode(), seen + 1
        # Compression hides from the search, so what is compressed is read as well.
        if path.suffix == ".parquet":
            content += pd.read_parquet(path).to_csv().encode()
        for spelling in spellings(seed):
            assert spelling not in content, f"{path.name} tells the seed"
    assert seen >= 5


def test_no_file_of_a_run_tells_the_seed(
    small_plan: MakePlan, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_audit(small_plan(run={"seed": SEED}), tmp_path / "run", Engine.LOCAL, with_report=False)
    assert_untold(tmp_path / "run", SEED)
    assert json.loads((tmp_path / "run" / "challenger" / "seed.json").read_text())["seed"] == SEED
    assert not any(text in "".join(capfd.readouterr()).encode() for text in spellings(SEED)[:3])


def test_the_search_for_the_seed_finds_it_where_it_stands(small_plan: MakePlan, tmp_path: Path) -> None:
    run_audit(small_plan(run={"seed": SEED}, model={"seed": SEED}), tmp_path / "run", Engine.LOCAL, with_report=False)
    with pytest.raises(AssertionError, match=r"configuration\.json tells the seed"):
        assert_untold(tmp_path / "run", SEED)


def test_a_seed_that_is_left_out_is_drawn_kept_and_gone_on_with(small_plan: MakePlan, tmp_path: Path) -> None:
    left_out = small_plan(run={"seed": None}, audit={"worlds": 12, "epsilon-star": False})
    runs = [run_audit(left_out, tmp_path / name, Engine.LOCAL, with_report=False) for name in ("one", "two")]
    seeds = [RunDirectory(tmp_path / name).secret().seed for name in ("one", "two")]
    assert seeds[0] != seeds[1]
    assert min(seeds) > 2**40  # fails by chance once in 8 million runs
    assert not runs[0].worlds.equals(runs[1].worlds)
    shutil.rmtree(tmp_path / "one" / "challenger" / "batches" / "batch-00001")
    again = run_audit(left_out, tmp_path / "one", Engine.LOCAL, resume=True, with_report=False)
    pd.testing.assert_frame_equal(again.worlds, runs[0].worlds, check_exact=True)
    named = small_plan(run={"seed": seeds[1]}, audit={"worlds": 12, "epsilon-star": False})
    known = run_audit(named, tmp_path / "known", Engine.LOCAL, with_report=False)
    pd.testing.assert_frame_equal(known.worlds, runs[1].worlds, check_exact=True)
    assert_untold(tmp_path / "two", seeds[1])


def test_initial_weights_follow_a_seed_of_their_own(small_plan: MakePlan, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    def begun_with(name: str, model: int, run: int) -> pd.DataFrame:
        plan = small_plan(model={"seed": model}, run={"seed": run, "worlds-per-batch": 6})
        run_audit(plan, tmp_path / name, Engine.LOCAL, with_report=False)
        return load_file(tmp_path / name / "public" / "releases-batch-00000.safetensors")["initial"]

    first = begun_with("a", 0, 0)
    assert first.equal(begun_with("b", 0, 1))
    assert not first.equal(begun_with("c", 1, 0))


@pytest.fixture
def sweep_points() -> tuple[Point, ...]:
    values = small_settings(
        training={"rounds": 2},
        privacy={"belief": None, "epsilon": 1.0, "sensitivity": "global", "adjacency": "add-remove-record"},
        audit={"worlds": 2, "insider": False},
        run={"seed": None},
    )
    return grid(values, [Axis("privacy.epsilon", (1.0, 8.0))])


@pytest.mark.ray
def test_points_of_a_sweep_have_seeds_of_their_own_that_stay_when_it_grows(
    sweep_points: tuple[Point, ...], tmp_path: Path
) -> None:
    found = run_sweep(sweep_points, tmp_path / "sweep", RayOptions(actors=1))
    with whole_file(tmp_path / "sweep" / "sweep.html") as file:
        file.write_text(sweep_page(found, "A sweep"), encoding="utf-8")
    runs = {one.name: RunDirectory(tmp_path / "sweep" / "points" / one.name) for one in sweep_points}
    seeds = {name: run.secret().seed for name, run in runs.items()}
    assert len(set(seeds.values())) == 2
    secret = json.loads((tmp_path / "sweep" / "challenger" / "seed.json").read_text())["seed"]
    for seed in (*seeds.values(), int(secret, 16) % 2**64):
        assert_untold(tmp_path / "sweep", seed)
    assert secret not in "".join(path.read_text() for path in (tmp_path / "sweep").glob("*.html"))
    name, lost = next(iter(runs.items()))
    shutil.rmtree(lost.path)
    again = run_sweep(sweep_points, tmp_path / "sweep", RayOptions(actors=1))
    assert lost.secret().seed == seeds[name]
    pd.testing.assert_frame_equal(again.models, found.models, check_exact=True)
    assert stat.S_IMODE(lost.secrets.stat().st_mode) == 0o600
    assert stat.S_IMODE(lost.secrets.parent.stat().st_mode) == 0o700


def test_a_sweep_over_the_seed_is_refused() -> None:
    with pytest.raises(InputError, match="it is the challenger's secret, and a sweep shows its settings"):
        grid(small_settings(), [Axis("run.seed", (1, 2))])


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_public_files_follow_the_mask_and_secret_ones_are_the_owners(small_plan: MakePlan, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        run_audit(small_plan(), tmp_path / "run", Engine.LOCAL, with_report=False)
    finally:
        os.umask(before)
    for path in (tmp_path / "run").rglob("*"):
        secret = "challenger" in path.relative_to(tmp_path / "run").parts
        wanted = (0o700 if secret else 0o755) if path.is_dir() else (0o600 if secret else 0o644)
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_a_seed_out_of_range_is_refused_and_none_is_accepted() -> None:
    assert parse_config(small_settings(run={"seed": None})).run.seed is None
    assert resolve(parse_config(small_settings(run={"seed": None}))).config.run.seed is None
    with pytest.raises(InputError, match=r"run\.seed"):
        parse_config(small_settings(run={"seed": 2**64}))
