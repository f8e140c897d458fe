"""One training is enough: canaries with secret coins, what a release says of them, and what their scores prove.

`directions` needs numpy alone, so that a client can carry it; the bounds need scipy besides.
"""
