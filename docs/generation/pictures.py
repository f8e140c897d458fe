"""Draws the pictures of the documentation from runs, and says when they are of another version.

    python docs/generation/pictures.py [--runs DIR] [NAME ...]

Runs are kept in DIR, so that a second call draws what is left. Pages are photographed by Chromium.
"""

import argparse
import hashlib
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import chdir
from dataclasses import fields
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from fl_audit.array_types import Floats
from fl_audit.audits.sections import SECTIONS
from fl_audit.report.page import Fact
from fl_audit.report.stylesheet import STYLESHEET
from fl_audit.runs.config_file import load_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import HONEST, ClientAppAndStrategy, run_audit
from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy
from fl_audit.trial_batches import TrialBatch
from fl_audit.verdict.verdict import Verdict

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
MADE = PICTURES / "made.json"
"""The values that the pictures were made of: see `page_schema`."""
COMMAND = "python docs/generation/pictures.py"
_DEMO = ROOT / "experiments" / "configs" / "demo.toml"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--force-device-scale-factor=1.5",
)
_COLOURS = 48
"""Enough for text, flat areas and lines; more make the files larger and no clearer."""
_FIRST_SCREEN = "main > *:not(.first), footer { display: none !important; } body { max-width: 54rem; }"
_TOP_OF_PAGE = "details, main > p:last-child, footer { display: none !important; } body { max-width: 54rem; }"
_MARK = (
    "position: absolute; left: -2.1rem; top: 0; width: 1.5rem; height: 1.5rem; border-radius: 99px; content: '%d'; "
    "background: #12426e; color: #fff; font: 700 .9rem/1.5rem sans-serif; text-align: center;"
)
_MARKED = (".verdict", ".first .facts", "#person", ".first .next")
"""Parts of the first screen in the order in which `docs/tutorials/reading-a-report.md` explains them."""


class _Quieter(TrialBatchStrategy):
    """Adds four fifths of the noise that it should: the breach in the pictures."""

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
        return super().noise(batch, server_round, total, 0.8 * sigma)


_RUNS: dict[str, tuple[ClientAppAndStrategy, tuple[str, ...]]] = {
    "consistent": (HONEST, ()),
    "violated": (ClientAppAndStrategy(strategy=_Quieter), ()),
    "inconclusive": (HONEST, ("audit.trials=2", "training.rounds=5")),
    "not-audited": (HONEST, ("audit.trials=20", "audit.insider=false")),
    "no-guarantee": (
        HONEST,
        (
            "audit.trials=20",
            "audit.insider=false",
            "privacy.private=false",
            "privacy.belief=",
            "privacy.delta=",
            "privacy.accountant=",
            "privacy.clipping-norm=",
            "privacy.sensitivity=",
        ),
    ),
}
"""A run for each verdict: who plays, and what differs from the demo."""


def page_schema() -> str:
    """Return what the first screen of a report is made of, as a digest: verdicts, findings on the page, parts, styles.

    Pictures are of a version with this digest. Another wording of a sentence, and styles for paper, leave it as it is.
    """
    parts = {
        "verdicts": [str(verdict) for verdict in Verdict],
        "page": [section.name for section in SECTIONS if section.on_page],
        "facts": [field.name for field in fields(Fact)],
        "styles": sorted(set(re.findall(r"\.([a-z][a-z-]+)(?=[^{}]*\{)", STYLESHEET.partition("@media print")[0]))),
    }
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _run_of(verdict: str, runs: Path) -> Path:
    """Return the directory of the run that leads to a verdict, played if need be."""
    directory = runs / verdict
    if not (directory / "report.html").exists():
        parties, changes = _RUNS[verdict]
        contents = run_audit(plan_run(load_config(_DEMO, [*changes])), directory, Engine.LOCAL, parties=parties)
        played_verdict = str(contents.summary["verdict"]).replace(" ", "-")
        assert played_verdict == verdict, f"the run that was to be {verdict} is {played_verdict}"
    return directory


def _screen(page: Path, out: Path, style: str) -> None:
    """Photograph a page with some more style, 900 points wide, as tall as what is on it."""
    browser = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        sys.exit("no browser: Chromium takes the pictures")
    # The copy loads nothing either.
    copy = page.read_text(encoding="utf-8").replace("</style>", style + "</style>", 1)
    with tempfile.TemporaryDirectory() as directory:
        copied_page, photo = Path(directory) / "page.html", Path(directory) / "photo.png"
        copied_page.write_text(copy, encoding="utf-8")
        flags = (f"--user-data-dir={directory}/profile", "--window-size=900,1400", f"--screenshot={photo}")
        subprocess.run([browser, *_FLAGS, *flags, copied_page.as_uri()], check=True, capture_output=True, timeout=120)
        _write_small(Image.open(photo), out)


def _write_small(picture: Image.Image, out: Path) -> None:
    """Write a picture with few colours, without the empty space below and beside what is on it."""
    plain = picture.convert("RGB")
    ink = np.asarray(plain).min(axis=2) < 250
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    margin = 12
    box = (columns[0] - margin, rows[0] - margin, columns[-1] + margin, rows[-1] + margin)
    cut = plain.crop((max(0, box[0]), max(0, box[1]), min(plain.width, box[2]), min(plain.height, box[3])))
    cut.quantize(_COLOURS, dither=Image.Dither.NONE).save(out, optimize=True)


def _verdict(verdict: str, runs: Path, out: Path) -> None:
    _screen(_run_of(verdict, runs) / "report.html", out, _FIRST_SCREEN)


def _annotated(runs: Path, out: Path) -> None:
    marks = "".join(
        f"{part} {{ position: relative; overflow: visible; }} {part}::before {{ {_MARK % number} }} "
        for number, part in enumerate(_MARKED, start=1)
    )
    _screen(_run_of("consistent", runs) / "report.html", out, _FIRST_SCREEN + "body { padding-left: 3rem; }" + marks)


def _figure(verdict: str, name: str, runs: Path, out: Path) -> None:
    _write_small(Image.open(_run_of(verdict, runs) / "figures" / f"{name}.png"), out)


def _blocks(page: str) -> dict[str, str]:
    """Return the files that a page of the documentation shows, by name."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return {name: body for body, name in re.findall(r"^```\w+\n(# ([\w./-]+\.\w+)\n.*?)^```$", text, re.M | re.S)}


def _fl_audit(directory: Path, *words: str) -> None:
    command = [sys.executable, "-m", "fl_audit.cli.main", *words]
    subprocess.run(command, cwd=directory, check=True, timeout=900, stdout=subprocess.DEVNULL)


def _own_table(runs: Path, out: Path) -> None:
    """Follow the tutorial on tables, with the same training without privacy beside it."""
    directory = runs / "own-table"
    if not (directory / "run" / "report.html").exists():
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "make_data.py").write_text(_blocks("tutorials/own-data.md")["make_data.py"])
        with chdir(directory):
            runpy.run_path("make_data.py")
        _fl_audit(directory, "init", "patients.toml", "--data", "patients.csv", "--label", "outcome", "--belief", "0.9")
        _fl_audit(directory, "run", "patients.toml", "--engine", "local", "--without-privacy", "--out", "run")
    _write_small(Image.open(directory / "run" / "figures" / "accuracy.png"), out)


def _simulation(runs: Path, out: Path) -> None:
    """Follow the tutorial on simulation: the landscape of its sweep."""
    directory = runs / "simulation"
    if not (directory / "runs" / "ward-landscape" / "landscape.png").exists():
        directory.mkdir(parents=True, exist_ok=True)
        text = (ROOT / "docs" / "tutorials" / "simulation.md").read_text()
        for name, body in _blocks("tutorials/simulation.md").items():
            (directory / name).write_text(body)
        with chdir(directory):
            runpy.run_path("make_ward.py")
        command = next(line for line in text.replace("\\\n", " ").splitlines() if line.startswith("fl-audit sweep"))
        _fl_audit(directory, *shlex.split(command)[1:], "--engine", "local")
    _write_small(Image.open(directory / "runs" / "ward-landscape" / "landscape.png"), out)


def _review(runs: Path, out: Path) -> None:
    """Follow the tutorial on apps: the review of the app that it shows."""
    directory = runs / "review"
    if not (directory / "out" / "report.html").exists():
        for name, text in _blocks("tutorials/flower-app.md").items():
            if not name.endswith("audit.py"):
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                (directory / name).write_text(text)
        _fl_audit(directory, "review", "noisy-app", "--quick", "--rounds", "1", "--out", "out")
    _screen(directory / "out" / "report.html", out, _TOP_OF_PAGE)


def _trials(runs: Path, out: Path) -> None:
    """Follow the page on strategies, and show the scores of its trials."""
    directory = runs / "trials"
    if not (directory / "out" / "report.html").exists():
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "my_strategies.py").write_text(_blocks("how-to/review.md")["my_strategies.py"])
        words = ("--claim-noise-multiplier", "1", "--adjacency", "replace-client", "--include", "opposite", "--quick")
        _fl_audit(directory, "strategy", "my_strategies:private", *words, "--set", "processes=1", "--out", "out")
    alone = "header, main > *:not(figure), figcaption, footer { display: none !important; }"
    _screen(directory / "out" / "report.html", out, alone)


def _live(runs: Path, out: Path) -> None:
    """Follow the tutorial on a federation of hospitals, with its mistake."""
    directory = runs / "live"
    if not (directory / "canaries" / "report.html").exists():
        command = [
            sys.executable,
            "-m",
            "fl_audit.experiments.examples.local_superlink",
            str(directory),
            "--added",
            "0.1",
        ]
        subprocess.run(command, cwd=ROOT, check=True, timeout=900, stdout=subprocess.DEVNULL)
        _fl_audit(directory, "live", "canaries", "--coins", "coins")
    _screen(directory / "canaries" / "report.html", out, _TOP_OF_PAGE)


def _guarantee(runs: Path, out: Path) -> None:
    """Draw the picture for a discussion of the tutorial on guarantees."""
    plot = (runs / "guarantee.png").absolute()
    words = ("--epsilon", "2", "--delta", "1e-5", "--rounds", "100", "--adjacency", "replace-record")
    _fl_audit(ROOT, "calibrate", *words, "--plot", str(plot))
    _write_small(Image.open(plot), out)


def _study(part: str, runs: Path, out: Path) -> None:
    """Draw a part of the study of reconstruction; the part with digits of MNIST only where FL_AUDIT_DATA has them."""
    figure = runs / f"{part}.png"
    command = [sys.executable, "-m", "fl_audit.experiments.studies.reconstruction", "--only", part, "--out", str(runs)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=1800, stdout=subprocess.DEVNULL)
    if figure.exists():
        _write_small(Image.open(figure), out)
    else:
        sys.stdout.write(f"{out.stem}: left as it is, since FL_AUDIT_DATA names no directory with MNIST\n")


def _growth(runs: Path, out: Path) -> None:
    """Draw the measured points of the benchmark of growth, which stand in the documentation as a table."""
    figure = runs / "growth.png"
    words = ("--draw", "--csv", str(ROOT / "docs" / "reference" / "growth.csv"), "--figure", str(figure))
    command = [sys.executable, "-m", "fl_audit.experiments.benchmarks.growth", *words]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120, stdout=subprocess.DEVNULL)
    _write_small(Image.open(figure), out)


DRAWN: dict[str, Callable[[Path, Path], None]] = {
    **{f"verdict-{verdict}": partial(_verdict, verdict) for verdict in _RUNS},
    "first-screen": _annotated,
    "demo-beliefs": partial(_figure, "consistent", "beliefs"),
    "own-table": _own_table,
    "simulation": _simulation,
    "review": _review,
    "trials": _trials,
    "live": _live,
    "guarantee": _guarantee,
    "growth": _growth,
    "reconstruction": partial(_study, "pictures"),
    "reconstruction-rates": partial(_study, "rates"),
}
"""Pictures by name, and what draws each, told where runs are kept and which file to write."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw all pictures, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "pictures", help="where runs are kept")
    parser.add_argument("names", nargs="*", choices=[[], *DRAWN], metavar="NAME", help="all of them, left out")
    options = parser.parse_args(arguments)
    options.runs.mkdir(parents=True, exist_ok=True)
    for name in options.names or DRAWN:
        out = PICTURES / f"{name}.png"
        DRAWN[name](options.runs.absolute(), out)
        sys.stdout.write(f"{name}: {out.stat().st_size / 1024:.0f} kB\n")
    if not options.names:
        MADE.write_text(json.dumps({"page": page_schema()}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
