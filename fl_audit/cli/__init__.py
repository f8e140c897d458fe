"""The command line.

From the import of this package on, Ctrl-C ends the program, even during the seconds in which the modules of a run are
imported.
"""

import os
import signal
import sys
from types import FrameType

import fl_audit.runs  # noqa: F401  # sets the environment before Flower and Ray are imported

_NOTHING_BEGUN = b"fl-audit: interrupted; nothing was begun that could go on\n"


def _end_at_once(number: int, frame: FrameType | None) -> None:
    os.write(2, _NOTHING_BEGUN)
    os._exit(130)


# "-m" stands there while Python looks for the module it is to run, the name of the program when it is run by that. A
# process that was started in the background may have been told to ignore interrupts.
_is_program = bool(sys.argv) and (sys.argv[0] == "-m" or os.path.basename(sys.argv[0]).startswith("fl-audit"))
if _is_program and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end_at_once)
    from fl_audit.cli.interrupts import end_on_interrupt

    end_on_interrupt()
