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
    SecondLook(
        "the most dissimilar neighbour has a larger sensitivity than the least", "Adult", Cause.REAL,
        "Manhattan distance does not look at labels: both pairs are of two labels, so that their gradients point apart "
        "whatever the distance, and which of them is learned first decides.",
    ),
    SecondLook(
        "the sensitivities of both extremes have no far outliers", "MNIST", Cause.OURS,
        "outliers are counted over all rounds of all worlds beyond 1.5 interquartile ranges, and the middle half of a "
        "neighbour that is learned early, or never, is narrow; the paper's network has batch norm, ours has none.",
    ),
    SecondLook(
        "a global sensitivity that is too large costs accuracy", "", Cause.OURS,
        "thirty steps of n records leave our models near where guessing the most frequent class is, with either noise, "
        "so that there is hardly any accuracy to lose.",
    ),
    SecondLook(
        "epsilon' from the largest belief is nearer to epsilon than that from the advantage", "", Cause.REAL,
        "the largest belief is an extreme value, which grows with the number of games and passes epsilon; the "
        "advantage is a mean, and its distance from epsilon is what the accountant's noise is too large by.",
    ),
    SecondLook(
        "the bound of membership inference is loose", "", Cause.OURS,
        "members and others are the same records in all worlds: at the smallest epsilon, where the bound is about .1, "
        "what tells the two sets apart without any training fills most of it.",
    ),
    SecondLook(
        "the insider has a larger advantage than the membership adversary", "", Cause.OURS,
        "members and others are the same records in all worlds, so that what tells the two sets apart without any "
        "training does not average out; where rho_alpha is small it is more than the insider learns of one record.",
    ),
)  # fmt: skip
"""The first that fits is taken."""
