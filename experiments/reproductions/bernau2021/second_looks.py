"""Second looks at the claims of Bernau et al. 2021 that do not hold on our data."""

from experiments.reproductions.claims import Cause, SecondLook

SECOND_LOOKS = (
    SecondLook(
        "rho_alpha is reached", "", Cause.THEIRS,
        "the paper's Rényi accountant asks for more noise than epsilon and delta need, the more the larger rho_beta: "
        "the exact advantage is at least .97 of rho_alpha at rho_beta .75 and .87 at .99.",
    ),
    SecondLook(
        "a belief exceeds rho_beta with probability delta at most", "", Cause.REAL,
        "delta bounds an average, not the probability that the log-odds exceed epsilon; the page of errors has the "
        "proof and a command.",
    ),
)  # fmt: skip
"""The first that fits is taken."""
