"""The command line. Its modules take a second or two to import, and Ctrl-C is heeded from the first of them on."""

import sys
from pathlib import Path

from experiments.cli.interrupts import arm

# "-m" stands there while Python looks for the module it is to run, the name of the program when it is run by that.
if sys.argv and (sys.argv[0] == "-m" or Path(sys.argv[0]).stem == "fl-audit"):
    arm()
