"""Default values of the settings of a guarantee, shared by the command line, the Python functions and TOML files.

The adjacency has no default and must always be given, because a guarantee is meaningless without it.
"""

from typing import Final

from fl_audit.privacy.accounting_enums import SignalToNoiseAdaptivity

ACCOUNTANT: Final = None
"""None means the exact accountant of the releases: `gdp` if all are Gaussian without sampling, otherwise `pld`."""
DELTA: Final = 0.001  # delta of a configuration file; on the command line and in Python it has no default
PRIOR: Final = 0.5  # the adversary's prior belief in the true training set
SAMPLING_RATE: Final = 1.0  # every unit participates in every round
SENSITIVITIES: Final = SignalToNoiseAdaptivity.ADAPTIVE  # the weaker assumption, which holds for every private training
CANDIDATES: Final = 1000  # number of equally likely candidate records in a reconstruction attack
