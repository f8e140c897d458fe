"""The app of the tutorial is run by Flower's own command, reviewed, and audited with its clients, as the page says."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fl_audit.app_audits.launchers.review_launcher import reviewed
from fl_audit.app_audits.review.app_loading import StubImportFinder, read_app
from fl_audit.app_audits.review.strategy_capture import capture_strategy
from fl_audit.app_audits.trial_options import ReviewOptions
from tests.documentation.pages import BLOCKS, FILES

PAGE = "docs/tutorials/flower-app.md"


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, block in FILES.items():
        if name.startswith("noisy-app/"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(block.body)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path / "noisy-app"


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A home of Flower's own, so that the SuperLink that it starts is ours to end."""
    home = tmp_path / "flower"
    switches = {"FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1", "FLWR_TELEMETRY_ENABLED": "0"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # the environment need not be activated
    yield os.environ | switches | {"FLWR_HOME": str(home), "PATH": path}
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            is_ours = f"FLWR_HOME={home}".encode() in entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if is_ours and int(entry.parent.name) != os.getpid():
            os.kill(int(entry.parent.name), signal.SIGKILL)


def _log_of(beginning: str, directory: Path, environment: dict[str, str]) -> str:
    """Run the command of the page that begins so, and return all that it says."""
    command = next(line for block in BLOCKS[PAGE] for line in block.commands if line.startswith(beginning))
    words = shlex.split(command)
    flwr = Path(sys.executable).with_name(words[0])
    done = subprocess.run(
        [flwr, *words[1:]], cwd=directory, env=environment, capture_output=True, text=True, timeout=400
    )
    return done.stdout + done.stderr


def test_the_app_of_the_tutorial_is_taken_as_it_is(app: Path) -> None:
    stand_ins = StubImportFinder(app)
    strategy_capture = capture_strategy(read_app(app), 10, stand_ins)
    assert strategy_capture.start.strategy.noise_multiplier == 1.0  # type: ignore[attr-defined]
    assert (strategy_capture.rounds, stand_ins.packages) == (3, [])


@pytest.mark.long
@pytest.mark.ray  # in a group with all of these: Flower's simulation would join another test's Ray, and end with it
@pytest.mark.timeout(900)
def test_the_tutorial_leads_from_start_to_verdict(app: Path, environment: dict[str, str]) -> None:
    review = reviewed(app, ReviewOptions(is_quick=True, seconds=600, rounds=1))
    broken = {finding["trial"] for finding in review["model"]["findings"] if finding["broken"]}
    assert review["verdict"] == "inconclusive"
    assert review["headline"].startswith("Noise and clipping are as claimed")
    consistent_trials = dict(review["lines"])["No contradiction"].split(", ")
    assert {"zero", "many examples"} <= broken
    assert {"removed", "huge"} <= set(consistent_trials)
    assert not {"zero", "many examples", "missing reply"} & set(consistent_trials)
    server = app / "noisy" / "server_app.py"
    client = app / "noisy" / "client_app.py"
    lines = [line.partition("  #")[0] for block in BLOCKS[PAGE] for line in block.body.split("\n")]
    watch, insider = (next(line for line in lines if marker in line) for marker in ("audit.watch", "audit.insider"))
    import_line = "from noisy.audit import audit\n"
    server.write_text(import_line + server.read_text().replace("    strategy.start", f"{watch}\n    strategy.start"))
    client.write_text(import_line + client.read_text().replace("app = ClientApp()", insider))
    log = _log_of("flwr run", app.parent, environment)
    assert "Strategy execution finished" in log
    assert "fl_audit: Consistent" in log
    assert re.search(r"\d+ of [\d,]+ trials .*guessed right", log)
