"""Audits of a single training by canaries, which are test contributions that secret coins include or leave out.

The modules score releases and derive lower bounds on epsilon from the scores. `canary_draws` needs only numpy, so that
clients can import it; the bounds also need scipy.
"""
