"""Second looks at the claims of Bernau et al. 2019 that do not hold on our data."""

from experiments.reproductions.claims import Cause, SecondLook

_CHANCE = "attacks do no better than guessing at this noise"
_INSIDE = "white-box attacks achieve more than black-box ones"
_LITTLE_MORE = "what they achieve more is small"
_ALIKE = "local and central DP trade privacy for accuracy alike"
_LOCAL_PHI = "phi is higher under LDP"

SECOND_LOOKS = (
    SecondLook(
        _CHANCE, "Location-30 for Texas", Cause.OURS,
        "Location-30 has 446 bits where Texas has 6,382, and a model of these layers still fits perturbed records of "
        "it: about half of the members are classified right, and a fifth of the test records. At epsilon_i .1, where "
        "it fits nothing, the same attacks are at chance.",
    ),
    SecondLook(
        _CHANCE, "COLLAB", Cause.OURS,
        "members are so few that whoever knows how many of each class are members, and nothing else, gets an AUC of "
        ".53; the rest is as small as the paper says.",
    ),
    SecondLook(
        _INSIDE, "LFW", Cause.OURS,
        "a small network from random weights stands in for VGG-16, and the white-box attack has a few hundred records "
        "to learn its gradients from; on Skewed Purchases with 20 classes and more the same attack achieves more than "
        "the black-box one.",
    ),
    SecondLook(
        _INSIDE, "Skewed Purchases, 10 classes", Cause.REAL,
        "without privacy and under local DP with epsilon_i 1 and more the white-box attack is ahead; under central DP "
        "it falls behind, so that the mean is below 0 by about a hundredth.",
    ),
    SecondLook(
        _LITTLE_MORE, "Skewed Purchases", Cause.OURS,
        "the paper does not state n; with 400 members on average the black-box attack has few shadow records of each "
        "class, and stays far below what a threshold on the loss alone gets, which the white-box attack sees.",
    ),
    SecondLook(
        _ALIKE, "Location-30 for Texas", Cause.REAL,
        "at the same accuracy local DP leaves the attack less: models that learn from perturbed records overfit less "
        "than models whose gradients are noisy, and the paper itself finds it of Purchases with 10 and 20 classes.",
    ),
    SecondLook(
        _ALIKE, "Skewed Purchases", Cause.REAL,
        "at the same accuracy local DP leaves the attack less, as the paper itself finds of Purchases with 10 and 20 "
        "classes.",
    ),
    SecondLook(
        "phi is higher under CDP", "Location-30 for Texas", Cause.OURS,
        "Location-30 stands in for Texas; on it local DP trades better, as its AUC at the same accuracy shows as well.",
    ),
    SecondLook(
        _LOCAL_PHI, "Skewed Purchases", Cause.OURS,
        "with 400 members and 20 or 50 classes the weakest local noise, epsilon_i 3, costs accuracy and leaves the "
        "AUC above .98, so that phi is near 0; with 10 classes, where models generalise, local DP is ahead.",
    ),
    SecondLook(
        "models are surest of their answers at epsilon_i = 1", "Skewed Purchases", Cause.OURS,
        "our models fit all perturbed records at epsilon_i 1, with a mean confidence of 1.000, and the largest mean at "
        "another level is only .00002 higher.",
    ),
    SecondLook(
        "under strong noise test accuracy is the share of the largest class", "COLLAB", Cause.OURS,
        "models of few graphs learn from graphs of coins which classes the members have, and are wrong about test "
        "records a little more often than by naming the largest class.",
    ),
)  # fmt: skip
"""The first that fits is taken."""
