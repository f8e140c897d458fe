"""Levels: the probabilities of wrong numbers and verdicts, fixed before any data and shared by all judgements."""

FAMILY_LEVEL = 0.001
"""Probability with which a federation that keeps its guarantee may be called violated."""

READING_LEVEL = FAMILY_LEVEL / 200
"""Probability with which a number that keeps its claim is called broken, if no test of the family decides about it.

In a run of 200 such numbers one is therefore called broken as rarely as an honest run is called violated.
"""
