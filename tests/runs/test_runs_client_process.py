"""The code of a client process is sent whole: other machines need not have this program."""

import subprocess
import sys
from pathlib import Path

from ray import cloudpickle

from fl_audit.runs.cluster.client_actor import process_class

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
