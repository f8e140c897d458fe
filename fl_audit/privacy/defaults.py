"""Defaults of a guarantee: the one table that command line, Python and TOML read.

The relation between neighbours has no default: a guarantee without it means nothing, so it must always be named.
"""

from typing import Final

from fl_audit.privacy.names import SensitivityAdaptivity

ACCOUNTANT: Final = None
"""None is the exact accountant of the releases: `gdp` where they are plain Gaussian, otherwise `pld`."""
DELTA: Final = 0.001  # delta of a configuration; command line and Python ask for it
PRIOR: Final = 0.5  # the insider's belief in the true data set before anything is seen
SAMPLING_RATE: Final = 1.0  # everybody takes part in every round
SENSITIVITIES: Final = SensitivityAdaptivity.ADAPTIVE  # the weaker assumption, which every private training meets
CANDIDATES: Final = 1000  # equally likely records among which an attacker looks for the right one
POPULATION_SHARE: Final = 0.001  # share of the population that a description of one person fits
