"""The Ray that a run starts, the versions of the machines of a cluster, and the code that client processes get."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from ray import cloudpickle

from fl_audit.errors import FederationError
from fl_audit.runs import process_guard
from fl_audit.runs.cluster import embedded_ray as module
from fl_audit.runs.cluster import ray_head
from fl_audit.runs.cluster.client_actor import process_class
from fl_audit.runs.cluster.embedded_ray import embedded_ray, ray_ahead, started_ahead
from fl_audit.runs.cluster.nodes import differing_versions, own_versions
from fl_audit.runs.cluster.ray_options import RayOptions

PLAIN_HEAD = """
import ray
from fl_audit.runs.cluster import ray_head

ray_head._HELPERS = tuple((place, f"other_{function}", result) for place, function, result in ray_head._HELPERS)
ray_head.main()
"""
PLAIN_RUN = """
import sys
from pathlib import Path

from fl_audit.runs.cluster import embedded_ray

embedded_ray._PROGRAM = Path(sys.argv.pop(1))
embedded_ray.read_credentials_anew = lambda: None
assert "ray" not in sys.modules

from fl_audit.cli.main import main

main()
"""
AUDIT = """
data = {name = "digits", records = 40, test-records = 20, clients = 2}
training = {rounds = 2, learning-rate = 1.0}
privacy = {noise-multiplier = 2.0, adjacency = "replace-record", delta = 0.01}
audit = {trials = 4}
run = {seed = 1}
"""


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ('print(\'{"error": "no room"}\')', "Ray did not start on this machine: no room"),
        ("", "Ray did not start on this machine: its process has ended"),
    ],
)
def test_a_ray_that_does_not_start_is_an_error_in_a_line(
    program: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "head.py").write_text(program)
    monkeypatch.setattr(module, "_PROGRAM", tmp_path / "head.py")
    with embedded_ray(RayOptions(actors=1)) as ray, pytest.raises(FederationError) as error:
        ray.address  # noqa: B018
    assert str(error.value) == words


def test_a_ray_that_is_not_used_ends_at_once_with_all_it_has_started() -> None:
    before = dict(os.environ)
    with ray_ahead(RayOptions(actors=1)):
        assert started_ahead() is not None
        directory = Path(os.environ["RAY_TMPDIR"])
        mark = os.environ[process_guard._MARK]
        assert process_guard.marked_processes(mark)
    assert started_ahead() is None
    assert not process_guard.marked_processes(mark)
    assert not directory.exists()
    assert dict(os.environ) == before


def test_the_head_skips_helpers_that_ray_has_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name is one of the installed Ray; of another one, none may exist."""
    import ray

    services = ray._private.services
    node = ray._private.node.Node
    for owner, function in ((services, "start_api_server"), (node, "start_monitor"), (node, "start_log_monitor")):
        monkeypatch.setattr(owner, function, getattr(owner, function))
    ray_head.skip_helpers()
    assert services.start_api_server(1, raise_on_failure=True) == (None, None)
    assert node.start_monitor(None) is None
    assert node.start_log_monitor(None) is None
    monkeypatch.setattr(ray_head, "_HELPERS", (("ray._private.node:Gone", "start", None), ("ray.gone", "start", None)))
    ray_head.skip_helpers()


@pytest.mark.long
@pytest.mark.ray
def test_a_run_needs_no_private_names_of_ray(tmp_path: Path) -> None:
    """Ray then starts its helpers, and reads its token when it is imported."""
    (tmp_path / "head.py").write_text(PLAIN_HEAD)
    (tmp_path / "audit.toml").write_text(AUDIT)
    ends = {"ray": [sys.executable, "-c", PLAIN_RUN, str(tmp_path / "head.py")]}
    ends["local"] = [sys.executable, "-c", "from fl_audit.cli.main import main; main()"]
    for engine, program in ends.items():
        command = [*program, "run", "audit.toml", "--engine", engine, "--out", engine]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    trials = {engine: pd.read_parquet(tmp_path / engine / "trials.parquet") for engine in ends}
    pd.testing.assert_frame_equal(trials["ray"], trials["local"], check_exact=True)


def test_equal_versions_and_builds_of_them_do_not_differ() -> None:
    versions = dict(own_versions())
    minor, _, patch = versions["Python"].rpartition(".")
    assert differing_versions(versions) == ""
    assert differing_versions(versions | {"Python": f"{minor}.{int(patch) + 1}"}) == ""
    assert differing_versions(versions | {"torch": f"{versions['torch'].partition('+')[0]}+cu130"}) == ""


@pytest.mark.parametrize(
    ("changed_versions", "words"),
    [
        ({"Python": "3.99.1"}, "Python 3.99.1"),
        ({"numpy": "9.9.9"}, "numpy 9.9.9"),
        ({"numpy": "9.9.9", "torch": ""}, "numpy 9.9.9 and no torch"),
    ],
)
def test_a_difference_is_named(changed_versions: dict[str, str], words: str) -> None:
    assert differing_versions(dict(own_versions()) | changed_versions) == words


PROGRAM = """
import pickle, sys

sys.modules["fl_audit"] = None  # an import of it fails
with open(sys.argv[1], "rb") as file:
    print(pickle.load(file)([], [None, None]).wait_for_results(0.0)[:2])
"""


def test_a_client_process_needs_nothing_of_this_program(tmp_path: Path) -> None:
    sent = process_class().__ray_metadata__.modified_class
    (tmp_path / "class").write_bytes(cloudpickle.dumps(sent))
    command = [sys.executable, "-P", "-c", PROGRAM, str(tmp_path / "class")]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "([], 0)\n"
