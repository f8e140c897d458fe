"""Define the largest false-positive rates of verdicts and of comparisons with claims; data never change them."""

FAMILY_LEVEL = 0.001
"""Largest probability with which a federation that keeps its guarantee is called violated."""

READING_LEVEL = FAMILY_LEVEL / 200
"""Largest probability of calling a number that keeps its claim broken, if no test of the family decides about it.

Among 200 such numbers of a run, one is therefore called broken as rarely as an honest run is called violated.
"""
