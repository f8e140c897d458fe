"""Local differential privacy: data owners randomise their records before any other party sees them.

A randomizer changes every record on its own, once, before training (Bernau et al. 2019, section 2.2, Definitions 4 and
5). An adversary who sees a randomised record uses `log_odds` to compare the two records from which it may come. The
claim on a randomizer is a list of releases, which `PrivacyProfile` composes. Three methods return releases:

* `counted_events`: releases from which the paper computes its guarantee, such as one of epsilon_i for each feature.
* `events_of_opposite_records`: releases that distinguish the two most different records of a given shape.
* `pair_events`: releases that distinguish two given records. For randomised bits and pixelation their privacy loss has
  exactly the distribution of `log_odds`. For graphs they give an upper bound, because nodes without an edge are joined
  to others.

Labels are not randomised, as in the paper. The caller provides a generator for each trial and client, so every trial
has draws of its own. Records are randomised in order, so that further records do not change the draws of earlier
records.
"""

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_types import Floats32
from fl_audit.data.randomizers.bits import RandomisedBits
from fl_audit.data.randomizers.edges import RandomisedEdges
from fl_audit.data.randomizers.pixelation import LaplacePixelation
from fl_audit.data.randomizers.randomized_responses import pure_epsilon

LocalRandomizer = RandomisedBits | RandomisedEdges | LaplacePixelation
"""Mechanism by which owners randomise their records: a public value that holds no random draw."""
Lean = NDArray[np.uint8] | Floats32
"""Randomised records in the dtype that takes least memory: uint8 for bits, float32 otherwise."""

__all__ = ["LaplacePixelation", "Lean", "LocalRandomizer", "RandomisedBits", "RandomisedEdges", "pure_epsilon"]
