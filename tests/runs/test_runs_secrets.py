"""Nothing outside challenger/ tells the challenger's seed, and only the owner may read what lies inside."""

import base64
import hmac
import json
import os
import shutil
import stat
import sys
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image, PngImagePlugin

from fl_audit.audits.page import report_files
from fl_audit.audits.page.report_files import why_no_pdf, write_pdf
from fl_audit.runs.config import parse_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import run_audit
from fl_audit.runs.run_directory import RunDirectory
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import small_settings
from tests.untold import assert_untold, content_of, files_outside_the_challenger, spellings

SEED = 0x9E3779B97F4A7C15  # 64 bits that turn up nowhere by chance


@pytest.mark.drawn
def test_no_file_of_a_run_tells_the_seed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the tables, the figures, the report or the PDF, nor the command that is noted."""
    monkeypatch.setattr(report_files, "write_pdf", write_pdf)
    monkeypatch.setattr(sys, "argv", ["fl-audit", "run", "a.toml", "--set", f"run.seed={SEED}", "--out", "run"])
    run_audit(small_plan(run={"seed": SEED}), tmp_path / "run", Engine.LOCAL)
    assert json.loads((tmp_path / "run" / "challenger" / "seed.json").read_text())["seed"] == SEED
    assert_untold(tmp_path / "run", SEED)
    endings = {path.suffix for path in files_outside_the_challenger(tmp_path / "run")}
    assert {".parquet", ".html", ".json", ".png", ".safetensors"} <= endings
    assert (".pdf" in endings) == (not why_no_pdf())
    noted = json.loads((tmp_path / "run" / "public" / "provenance.json").read_text())["sessions"][0]
    assert noted["command"] == "fl-audit run a.toml --out run"
    assert not any(text in "".join(capfd.readouterr()).encode() for text in spellings(SEED)[:3])


def test_the_digest_of_a_user_s_records_is_told_with_a_key_that_is_not(tmp_path: Path) -> None:
    """An insider with all records but one cannot test guesses of the last; the key shows which data they were."""
    numbers = np.random.default_rng(0).normal(size=(40, 2))
    frame = pd.DataFrame(numbers, columns=["a", "b"]).assign(y=["ill", "well"] * 20)
    frame.to_csv(tmp_path / "own.csv", index=False)
    data = {"name": "csv", "path": str(tmp_path / "own.csv"), "label": "y", "records": 20, "clients": 2}
    privacy = {"epsilon": 2.0, "delta": 0.001, "adjacency": "replace-record"}
    sections = {"data": data, "training": {"rounds": 1}, "privacy": privacy, "audit": {"trials": 4}}
    run_audit(plan_run(parse_config(sections)), tmp_path / "run", Engine.LOCAL)
    secret = json.loads((tmp_path / "run" / "challenger" / "seed.json").read_text())
    keyed = hmac.new(bytes.fromhex(secret["data_key"]), secret["data"].encode(), "sha256").hexdigest()
    noted = json.loads((tmp_path / "run" / "public" / "provenance.json").read_text())
    assert (noted["data"], noted["data_is_keyed"], noted["pool"]) == (keyed, True, 40)
    page = (tmp_path / "run" / "report.html").read_text()
    assert keyed in page
    assert page.count("20 of 40 records drawn") >= 2
    for path in files_outside_the_challenger(tmp_path / "run"):
        content = path.read_bytes()
        assert secret["data"].encode() not in content
        assert secret["data_key"].encode() not in content


@pytest.mark.parametrize("ending", [".parquet", ".png", ".html", ".pdf"])
def test_the_search_looks_into_what_is_packed(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"file{ending}"
    text = PngImagePlugin.PngInfo()
    text.add_text("Comment", str(SEED), zip=True)
    Image.new("L", (2, 2)).save(tmp_path / "picture.png", pnginfo=text)
    packed = (tmp_path / "picture.png").read_bytes()
    match ending:
        case ".parquet":
            pd.DataFrame({"a": [SEED], "b": ["x"]}).to_parquet(path)
        case ".html":
            path.write_bytes(b'<img src="data:image/png;base64,' + base64.b64encode(packed) + b'">')
        case ".png":
            path.write_bytes(packed)
        case _:
            path.write_bytes(b"%PDF-1.7 stream " + zlib.compress(str(SEED).encode()) + b" endstream")
    assert str(SEED).encode() not in path.read_bytes()
    assert str(SEED).encode() in content_of(path)


@pytest.mark.long
def test_the_search_for_the_seed_finds_it_where_it_stands(tmp_path: Path) -> None:
    run_locally(small_plan(run={"seed": SEED}, model={"seed": SEED}), tmp_path / "run")
    with pytest.raises(AssertionError, match=r"configuration\.json tells"):
        assert_untold(tmp_path / "run", SEED)


@pytest.mark.long
def test_a_seed_that_is_left_out_is_drawn_kept_and_gone_on_with(tmp_path: Path) -> None:
    left_out = small_plan(run={"seed": None}, audit={"trials": 12, "epsilon-star": False})
    runs = [run_audit(left_out, tmp_path / name, Engine.LOCAL, with_report=name == "two") for name in ("one", "two")]
    seeds = [RunDirectory(tmp_path / name).secret().seed for name in ("one", "two")]
    assert seeds[0] != seeds[1]
    assert min(seeds) > 2**40  # fails by chance once in 8 million runs
    assert not runs[0].trials.equals(runs[1].trials)
    shutil.rmtree(tmp_path / "one" / "challenger" / "batches" / "batch-00001")
    again = run_locally(left_out, tmp_path / "one", resume=True)
    pd.testing.assert_frame_equal(again.trials, runs[0].trials, check_exact=True)
    seeded_plan = small_plan(run={"seed": seeds[1]}, audit={"trials": 12, "epsilon-star": False})
    seeded_run = run_locally(seeded_plan, tmp_path / "known")
    pd.testing.assert_frame_equal(seeded_run.trials, runs[1].trials, check_exact=True)
    assert_untold(tmp_path / "two", seeds[1])


@pytest.mark.long
def test_initial_weights_follow_a_seed_of_their_own(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    def begun_with(name: str, model: int, run: int) -> pd.DataFrame:
        plan = small_plan(model={"seed": model}, run={"seed": run, "trials-per-batch": 6})
        run_locally(plan, tmp_path / name)
        return load_file(tmp_path / name / "public" / "releases-batch-00000.safetensors")["initial"]

    first = begun_with("a", 0, 0)
    assert first.equal(begun_with("b", 0, 1))
    assert not first.equal(begun_with("c", 1, 0))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_public_files_follow_the_mask_and_secret_ones_are_the_owners(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        run_locally(small_plan(), tmp_path / "run")
    finally:
        os.umask(before)
    for path in (tmp_path / "run").rglob("*"):
        secret = "challenger" in path.relative_to(tmp_path / "run").parts
        expected_mode = (0o700 if secret else 0o755) if path.is_dir() else (0o600 if secret else 0o644)
        assert stat.S_IMODE(path.stat().st_mode) == expected_mode, path


def test_a_seed_out_of_range_is_refused_and_none_is_accepted() -> None:
    assert parse_config(small_settings(run={"seed": None})).run.seed is None
    assert small_plan(run={"seed": None}).config.run.seed is None
    assert_refused(r"run\.seed", lambda: parse_config(small_settings(run={"seed": 2**64})))
