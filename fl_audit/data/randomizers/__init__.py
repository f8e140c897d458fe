"""Local differential privacy: data owners randomise their records before any other party sees them.

A randomizer changes every record on its own, once, before training (Bernau et al. 2019, section 2.2, Definitions 4 and
5). An adversary that sees a randomised record compares the two records from which it can come by `log_odds`. The claim
is stated as releases, which `PrivacyProfile` composes, in three ways:

* `counted_events`: the releases of the paper's guarantee for any two records, such as one of epsilon_i per feature.
* `whole_events`: the releases that distinguish the two most different records of a shape.
* `pair_events`: the releases that distinguish two given records. For randomised bits and pixelation this is the exact
  distribution of `log_odds`; for graphs whose nodes without an edge were joined to others it is an upper bound.

Labels are not randomised, as in the paper. The draws come from a generator that the caller keys by
`Purpose.LOCAL_RANDOMIZER`, trial and client, so that every trial has separate draws; later records never change the
draws of earlier ones.
"""

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_types import Floats32
from fl_audit.data.randomizers.bits import RandomisedBits
from fl_audit.data.randomizers.common import pure_epsilon
from fl_audit.data.randomizers.edges import RandomisedEdges
from fl_audit.data.randomizers.pixelation import LaplacePixelation

LocalRandomizer = RandomisedBits | RandomisedEdges | LaplacePixelation
"""Mechanism by which owners randomise their records: a public value that holds no random draw."""
Lean = NDArray[np.uint8] | Floats32
"""Randomised records in the dtype that takes least memory: uint8 for bits, float32 otherwise."""

__all__ = ["LaplacePixelation", "Lean", "LocalRandomizer", "RandomisedBits", "RandomisedEdges", "pure_epsilon"]
