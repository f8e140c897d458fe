"""How often a number or a verdict may be wrong: fixed before any data, and shared by everything that judges."""

FAMILY_LEVEL = 0.001
"""Probability with which a federation that keeps its guarantee may be called violated."""

READING_LEVEL = FAMILY_LEVEL / 200
"""Chance with which one number that keeps its claim is called broken, where no test of the family decides about it.

So a run of 200 such numbers calls one of them broken as rarely as an honest run is called violated.
"""
