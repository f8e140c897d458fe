"""Optimised banded Toeplitz strategies for correlated noise, written to the file that `fl_audit.privacy` ships.

The coefficients come from jax-privacy 2.0 (`toeplitz.optimize_banded_toeplitz`: L-BFGS on the mean squared error of
prefix sums times the squared norm of a column; McKenna 2024, arXiv:2405.15913). The library is needed here only, in an
environment of its own:

    pip install jax-privacy
    python tests/validation/banded_matrices.py fl_audit/privacy/banded_coefficients.json

Coefficients are scaled so that the first is 1 and rounded to twelve digits; sensitivities are computed from what is
shipped, so that rounding costs no privacy. It takes about ten minutes.
"""

import importlib
import json
import sys
from itertools import product
from pathlib import Path

if __name__ == "__main__":
    importlib.import_module("jax").config.update("jax_enable_x64", True)
    toeplitz = importlib.import_module("jax_privacy.matrix_factorization.toeplitz")
    lines = []
    for rounds, bands in product((10, 30, 100, 300, 1000), (2, 4, 8, 16, 32)):
        if bands <= rounds:
            coefficients = toeplitz.optimize_banded_toeplitz(rounds, bands)
            scaled = [round(float(coefficient / coefficients[0]), 12) for coefficient in coefficients]
            lines.append(json.dumps({"rounds": rounds, "bands": bands, "coefficients": scaled}))
            print(f"{rounds} rounds, {bands} bands", flush=True)
    Path(sys.argv[1]).write_text("[\n" + ",\n".join(lines) + "\n]\n")
