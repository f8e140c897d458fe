"""Optimised banded Toeplitz strategies for correlated noise, written to the file that `fl_audit.privacy` ships.

The coefficients come from jax-privacy 2.0 (`toeplitz.optimize_banded_toeplitz`: L-BFGS on the mean squared error of
prefix sums times the squared norm of a column; McKenna 2024, arXiv:2405.15913). The library is needed here only, in an
environment of its own:

    pip install jax-privacy
    python experiments/studies/banded_matrices.py fl_audit/privacy/banded_coefficients.json

Coefficients are scaled so that the first is 1 and rounded to twelve digits; sensitivities are computed from what is
shipped, so that rounding costs no privacy. It takes about ten minutes.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

ROUNDS = (10, 30, 100, 300, 1000)
BANDS = (2, 4, 8, 16, 32)


def optimised(toeplitz: Any, rounds: int, bands: int) -> list[float]:
    """Return the coefficients of the best banded Toeplitz strategy that the library finds, the first one being 1.

    Parameters
    ----------
    toeplitz
        The module of the library.
    rounds
        Size of the matrix.
    bands
        Number of its bands.
    """
    found = toeplitz.optimize_banded_toeplitz(rounds, bands)
    return [round(float(coefficient / found[0]), 12) for coefficient in found]


def main(path: Path) -> None:
    """Write the coefficients of all rounds and bands to a file, one line each."""
    importlib.import_module("jax").config.update("jax_enable_x64", True)
    toeplitz = importlib.import_module("jax_privacy.matrix_factorization.toeplitz")
    lines = []
    for rounds in ROUNDS:
        for bands in (bands for bands in BANDS if bands <= rounds):
            entry = {"rounds": rounds, "bands": bands, "coefficients": optimised(toeplitz, rounds, bands)}
            lines.append(json.dumps(entry))
            print(f"{rounds} rounds, {bands} bands", flush=True)
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
