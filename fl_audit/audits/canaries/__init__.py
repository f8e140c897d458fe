"""Audits of a single training by canaries with secret coins: scores of a release, and lower bounds from the scores.

`canary_draws` needs numpy alone, so that clients can import it; the bounds also need scipy.
"""
