"""Tests of the names that `import fl_audit as fa` offers."""

import html
import json
import os
import subprocess
import sys
from html import unescape
from pathlib import Path

import numpy as np
import pytest

import fl_audit as fa
from fl_audit.verdict.verdict import Verdict
from tests.builders.refusals import assert_refused

# One worker plays the run that tests of this file share.
pytestmark = pytest.mark.xdist_group("api")
SETTINGS = {
    "data": {"name": "breast-cancer", "records": 60, "clients": 3},
    "model": {"name": "logistic"},
    "training": {"rounds": 4, "learning-rate": 0.1},
    "privacy": {"epsilon": 2.0, "delta": 0.01, "clipping-norm": 1.0, "adjacency": "replace-record"},
    "audit": {"trials": 12},
}


def test_every_name_is_offered_and_loaded_when_it_is_used() -> None:
    assert set(fa.__all__) <= set(dir(fa))
    assert all(getattr(fa, name) is not None for name in fa.__all__)
    code = 'import sys, fl_audit; fl_audit.InputError; print({"torch", "pandas", "scipy"} & {*sys.modules})'
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
    with pytest.raises(AttributeError, match="no attribute 'epsilom_star'"):
        fa.epsilom_star  # noqa: B018


def test_calibration_and_accounting_are_each_others_inverse() -> None:
    guarantee = fa.calibrate(30, 1e-3, adjacency="replace-record", belief=0.9, accountant="rdp-classic")
    # Bernau et al. 2021, table 2: a belief of 0.9 is epsilon ln 9.
    assert guarantee.epsilon == pytest.approx(np.log(9), rel=1e-6)
    assert guarantee.noise_multiplier is not None
    again = fa.account(
        guarantee.noise_multiplier,
        30,
        1e-3,
        adjacency=fa.Adjacency.REPLACE_RECORD,
        accountant=fa.Accountant.RDP_CLASSIC,
    )
    assert again == guarantee
    assert f"{guarantee.noise_multiplier:.4g}" in guarantee._repr_html_()


def test_the_mu_that_a_guarantee_prints_is_one_of_its_numbers() -> None:
    sampled = fa.account(1.0, 100, 1e-5, adjacency="replace-record", sampling_rate=0.01)
    assert f"as mu-GDP: mu {sampled.gdp_mu:.4g} with a regret of {sampled.gdp_regret:.2g}" in str(sampled)
    assert (sampled.mu, round(sampled.gdp_mu, 4)) == (10.0, 0.1015)
    plain = fa.account(1.0, 100, 1e-5, adjacency="replace-record")
    assert (plain.gdp_mu, plain.gdp_regret) == (plain.mu, 0.0)


@pytest.mark.parametrize(
    ("wrong", "expected_message"),
    [
        ({"adjacency": "replace"}, "adjacency is 'replace': .* add-remove-record"),
        ({"adjacency": "replace-record", "epsilon": 1.0}, "belief and epsilon given: .*exactly one"),
        ({"adjacency": "replace-record", "accountant": "best"}, "accountant is 'best': .* rdp-classic"),
    ],
)
def test_wrong_guarantees_are_refused_in_a_line(wrong: dict[str, object], expected_message: str) -> None:
    assert_refused(expected_message, fa.calibrate, 30, 1e-3, **{"belief": 0.9, **wrong})


def test_bounds_and_epsilon_star_answer_in_one_call() -> None:
    scores = np.arange(100.0)
    bound = fa.lower_bound(scores + 100, scores, 0.0)
    assert bound.epsilon == pytest.approx(3.05, abs=0.01)
    assert "clopper-pearson" in bound._repr_html_()
    one_run = fa.one_run_bound(scores, scores > 49, 1e-5, method="steinke")
    assert one_run.guesses.right == one_run.guesses.guessed == 20
    assert one_run.epsilon == one_run.limit_of_detection < fa.one_run_bound(scores, scores > 49, 1e-5).epsilon
    assert one_run.method.is_for_any_mechanism
    assert one_run.method.assumption in html.unescape(one_run._repr_html_())
    assert_refused(r"method is 'best': .* trade-off", fa.one_run_bound, scores, scores > 49, 1e-5, method="best")
    assert_refused(r"coins .*not all 0 or 1", fa.one_run_bound, scores, scores, 1e-5)
    draw = np.random.default_rng(3)
    losses = draw.gamma(2.0, 0.3, 400), draw.gamma(2.5, 0.3, 400)
    star = fa.epsilon_star(*losses, delta=1e-3)
    assert star == fa.epsilon_star(*losses, delta=1e-3), "equal calls answer alike"
    assert f"{star.epsilon_star:.4g}" in star._repr_html_()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[fa.Run, list[str]]:
    heard: list[str] = []
    # A directory of the user's with modules that have the names of our packages.
    directory = tmp_path_factory.mktemp("user")
    (directory / "server.py").write_text("raise RuntimeError('this is the module of somebody else')")
    (directory / "experiments").mkdir()
    # It writes no PDF, which takes seconds and has tests of its own.
    (directory / "first").mkdir()
    (directory / "first" / "weasyprint.py").write_text("raise ImportError")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        patch.setenv("PYTHONPATH", str(directory / "first"), prepend=os.pathsep)
        run = fa.run_audit(SETTINGS, directory / "run", engine="local", progress=heard.append)
    return run, heard


@pytest.mark.long
def test_an_audit_runs_from_python(run: tuple[fa.Run, list[str]]) -> None:
    audit_run, _ = run
    assert audit_run.verdict in Verdict
    assert audit_run.summary["insider"]["trials"] == len(audit_run.trials) == 12
    assert len(audit_run.rounds) == 12 * 4
    assert audit_run.configuration["audit"]["trials"] == 12
    assert audit_run.configuration["run"].get("seed") is None
    assert audit_run.report.is_file()
    assert audit_run.figures["beliefs"]._repr_png_().startswith(b"\x89PNG")
    html = unescape(audit_run._repr_html_())
    assert audit_run.summary["scope"] in html
    assert "epsilon 2 at delta 0.01" in html
    assert "epsilon 2 at delta 0.01" in repr(audit_run)


def test_what_cannot_be_written_down_is_refused(tmp_path: Path) -> None:
    options = {"engine": "local", "progress": None}
    assert_refused("setting is None", fa.run_audit, {"audit": {"trials": None}}, tmp_path / "run", **options)
    assert_refused("section trials .* is 3", fa.run_audit, {"trials": 3}, tmp_path / "run", **options)


@pytest.mark.parametrize(("status", "error"), [(2, fa.InputError), (3, fa.RunError)])
def test_the_line_of_a_command_that_failed_is_the_error(
    status: int, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping = tmp_path / "python"
    stopping.write_text(f"#!/bin/sh\necho starting >&2\necho 'fl-audit: stopped' >&2\nexit {status}\n")
    stopping.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stopping))
    heard: list[str] = []
    with pytest.raises(error, match=r"^stopped$"):
        fa.run_audit(SETTINGS, tmp_path / "run", progress=heard.append, own_process=True)
    assert heard == ["starting", "fl-audit: stopped"]


@pytest.mark.long
def test_a_directory_without_a_whole_run_is_refused(run: tuple[fa.Run, list[str]], tmp_path: Path) -> None:
    assert_refused(r"no finished run: .*directories .*summary\.json", fa.read_run, tmp_path)
    (tmp_path / "summary.json").write_text(json.dumps({"schema": 99}))
    assert_refused("no summary of", fa.read_run, tmp_path)
    (tmp_path / "summary.json").write_text(json.dumps(run[0].summary))
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / "configuration.json").write_text('{"configuration": {}}')
    assert_refused(r"lacks trials.parquet, rounds.parquet, releases.parquet", fa.read_run, tmp_path)
    for name in ("trials", "rounds", "releases"):
        (tmp_path / f"{name}.parquet").write_bytes(b"no table")
    assert_refused("cannot be read", fa.read_run, tmp_path)
