"""Where to look for the cause of a breach, and what tests of different kinds say alike: texts for
`messages_of_tests`.
"""

SCALE = "Compare the noise's real standard deviation with noise multiplier times sensitivity, and see whether "
NEIGHBOURS = f"{SCALE}the sensitivity is that of two training sets that differ as the guarantee says."
REUSE = "See where the noise comes from: every round, trial and tensor needs draws of its own, from a fresh state."
NORMAL = "See how the noise is drawn: it must be normal, neither cut off nor replaced by another distribution."
PRECISE = "Draw and add the noise in float32 or more, and round nothing before it is added."
BLIND = "Look for what reads the data before it sets the scale of the noise: the noise may not depend on them."
SAMPLER = "See how samples are drawn: every unit by its own coin, in every round anew, or claim no amplification."
CLIPPED = "See whether every contribution is clipped, and what the sum is divided by."
ONCE = "See whether the {one} is taken once in every round, within the clipping norm, and nothing is added to it."
LESS = "noise {limit:percent} below the guarantee"
