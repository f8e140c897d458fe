"""Audits of a single training by canaries with secret coins: their scores on a release, and bounds from the scores.

`directions` needs numpy alone, so that a client can carry it; the bounds also need scipy.
"""
