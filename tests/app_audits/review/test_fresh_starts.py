"""Noise that is the same in two fresh starts is public; what else an app seeds is no fault."""

import sys
from pathlib import Path

import numpy as np
import pytest

from fl_audit.app_audits.launchers import review_launcher
from fl_audit.app_audits.launchers.isolated_process import ProcessResult
from fl_audit.app_audits.launchers.review_launcher import reviewed, start_limit
from fl_audit.app_audits.review.fresh_starts import StartTrace, compared_starts, repeated_noise, trace_of_clients
from fl_audit.app_audits.review.review import trace_start
from fl_audit.app_audits.review.reviewed_app import read_reviewed_app
from fl_audit.app_audits.trial_options import ReviewOptions
from fl_audit.generator_states import seed_generators, spared_generators
from tests.app_audits.review.apps import CLIENT, write_app

pytestmark = pytest.mark.usefixtures("small_working_directory", "searched_as_before")
SERVER = """
import random
import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

{module}
app = ServerApp()


class Own(FedAvg):
    def __init__(self):
        super().__init__(fraction_evaluate=0.0)
        self.noise_multiplier, self.clipping_norm = 1.0, 1.0
        {init}

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        noised = {{name: Array((one.numpy() + {noise}).astype(np.float32)) for name, one in arrays.items()}}
        return ArrayRecord(noised), metrics


@app.main()
def main(grid, context):
    {main}
    Own().start(grid, ArrayRecord([np.zeros((3, 4), np.float32)]), num_rounds=3)
"""
OF_NUMPY = "np.random.normal(size=one.numpy().shape)"
OF_STRATEGY = "self.random.normal(size=one.numpy().shape)"
BREACHES = {
    "numpy in main": {"main": "np.random.seed(context.run_config['num-server-rounds'])"},
    "numpy in the module": {"module": "np.random.seed(42)"},
    "torch": {"main": "torch.manual_seed(1)", "noise": "torch.randn(one.numpy().shape).numpy()"},
    "random": {"init": "random.seed(0)", "noise": "random.gauss(0, 1)"},
    "strategy": {"init": "self.random = np.random.default_rng(42)", "noise": OF_STRATEGY},
    "global": {"module": "R = np.random.default_rng(7)", "noise": "R.normal(size=one.numpy().shape)"},
}
HONEST = {
    "unseeded": {},
    "seeded model": {"main": "torch.manual_seed(42); torch.nn.Linear(2, 2)"},
    "seeded partition": {"init": "self.split = np.random.default_rng(42); self.split.permutation(10)"},
    "seeded sampling": {"main": "random.seed(42)"},
    "own entropy": {"init": "self.random = np.random.default_rng()", "noise": OF_STRATEGY},
    "no noise": {"main": "np.random.seed(42)", "noise": "0"},
}


def _trace(app: Path, name: str) -> StartTrace:
    """Return the trace of a start, as in a fresh process: with generators in new states and modules not imported."""
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]
    with spared_generators():
        seed_generators(np.random.default_rng())
        trace = trace_start(app, ReviewOptions())
    assert trace is not None
    assert trace.failure == ""
    return trace


@pytest.mark.parametrize(
    ("case", "code", "is_repeated"),
    [(f"b{i}", code, True) for i, code in enumerate(BREACHES.values())]
    + [(f"h{i}", code, False) for i, code in enumerate(HONEST.values())],
    ids=[*BREACHES, *HONEST],
)
def test_noise_that_two_starts_share_is_found_and_other_seeds_are_not_accused(
    tmp_path: Path, case: str, code: dict[str, str], is_repeated: bool
) -> None:
    name = f"fresh_{case}"
    server = SERVER.format(**{"module": "", "init": "pass", "main": "pass", "noise": OF_NUMPY} | code)
    # What clients seed in their own processes says nothing of the server's noise.
    app = write_app(tmp_path / "app", name, server, f"import numpy\nnumpy.random.seed(3)\n{CLIENT}")
    first = _trace(app, name)
    second = _trace(app, name)
    assert (repeated_noise(first, second) != "") is is_repeated
    stated = read_reviewed_app(app, ReviewOptions(), is_inspected=False).app_claim
    assert (compared_starts(stated, (first, second)).repeats != "") is is_repeated


def test_a_start_that_fails_is_unseen(tmp_path: Path) -> None:
    app = write_app(tmp_path / "app", "fresh_stated", SERVER.format(module="", init="pass", main="pass", noise="0"))
    stated = read_reviewed_app(app, ReviewOptions(), is_inspected=False).app_claim
    comparison = compared_starts(stated, (StartTrace(), StartTrace(failure="it ended")))
    assert "it ended" in comparison.unseen[0]
    assert "it ended" in comparison.words


@pytest.mark.parametrize("is_seeded", [True, False])
def test_clients_that_seed_their_local_noise_are_found(tmp_path: Path, is_seeded: bool) -> None:
    name = f"fresh_clients_{is_seeded}"
    seed = "numpy.random.seed(3)" if is_seeded else ""
    client = CLIENT.replace("ClientApp()", "ClientApp(mods=[LocalDpMod(1.0, 1.0, 1.0, 1e-5)])")
    client = f"import numpy\nfrom flwr.clientapp.mod import LocalDpMod\n{seed}\n{client}"
    server = SERVER.format(module="", init="pass", main="np.random.seed(1)", noise="0")
    app = write_app(tmp_path / "app", name, server, client)
    assert _trace(app, name).awaits_clients
    traces = []
    for _ in range(2):
        del sys.modules[f"{name}.client_app"]
        with spared_generators():
            seed_generators(np.random.default_rng())
            traces.append(trace_of_clients(app))
    assert [trace.failure for trace in traces] == ["", ""]
    assert (repeated_noise(*traces) != "") is is_seeded


@pytest.mark.long
def test_a_review_starts_the_app_in_two_processes(tmp_path: Path) -> None:
    server = SERVER.format(module="", init="pass", main="np.random.seed(1)", noise=OF_NUMPY)
    app = write_app(tmp_path / "app", "fresh_twice", server)
    answer = reviewed(app, ReviewOptions(is_quick=True, seconds=60.0))
    assert answer["verdict"] == "violated"
    assert "numpy.random" in answer["repeated_noise"]


def test_the_limit_of_a_second_start_is_four_times_the_first_one() -> None:
    assert start_limit(300) == 100
    assert start_limit(60) == 30  # imports alone take some seconds
    assert start_limit(20) == 10
    assert start_limit(300, 5) == 100
    assert start_limit(300, 30) == 120
    assert start_limit(300, 90) == 150  # half of the review's limit


def test_clients_are_started_with_the_limit_that_the_start_of_the_server_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    limits = list[float]()

    def took_30_seconds(module: str, request: object, room: Path, seconds: float, *_: object) -> ProcessResult:
        now[0] += 30
        limits.append(seconds)
        return ProcessResult({"trace": {"awaits_clients": True}}, "")

    monkeypatch.setattr(review_launcher, "run_isolated", took_30_seconds)
    monkeypatch.setattr(review_launcher.time, "monotonic", lambda: now[0])
    app = tmp_path / "app"
    room = tmp_path / "room"
    app.mkdir()
    room.mkdir()
    review_launcher._fresh_starts(app, ReviewOptions(seconds=300.0), room, {})
    assert limits == [100, 120, 120]
