"""Scripts that studies run in another interpreter."""

import sys

import numpy as np

from fl_audit.experiments.studies.study_runs import arrays_of_script
from tests.builders.refusals import assert_refused

DOUBLED = """
import sys
import numpy as np

np.savez(sys.argv[2], doubled=2 * np.load(sys.argv[1])["values"])
"""


def test_a_script_of_another_interpreter_gets_arrays_and_returns_arrays() -> None:
    found = arrays_of_script(sys.executable, DOUBLED, {"values": np.arange(3.0)}, "an attack")
    np.testing.assert_array_equal(found["doubled"], [0.0, 2.0, 4.0])


def test_what_an_interpreter_says_is_told_in_one_line() -> None:
    named = r"ModuleNotFoundError: .*'no_such_package'"
    assert_refused(named, arrays_of_script, sys.executable, "import no_such_package", {}, "an attack")
    assert_refused(r"/no/python .*no interpreter: .*of a Python", arrays_of_script, "/no/python", "", {}, "an attack")
