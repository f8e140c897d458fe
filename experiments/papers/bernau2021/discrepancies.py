"""Reasons why our numbers may differ from the printed ones.

Each explanation has a key, by which tables and figures refer to it. Where the paper disagrees with the authors' public
code (SAP-samples/security-research-identifiability-in-dpdl), the explanation says which of the two we follow.
"""

from collections.abc import Iterable

SLIPS: dict[str, str] = {
    "second-draw": (
        "Noise: the authors' adversary observes a second draw, ours the one that is applied. Under local sensitivity "
        "the log-odds have the same distribution."
    ),
    "bit": ("Secret bit: the authors' code never draws it and always uses D. Here b is drawn, as Experiment 2 says."),
    "optimizer": (
        "Optimizer: Algorithm 1 is plain gradient descent; the authors' figures and ours use Adam at learning rate "
        "0.005, which matters under global sensitivity alone."
    ),
    "calibration": (
        "Noise scale: Algorithm 1 sets sigma_i for each round by Eq. (1); the authors' code, and ours, look for "
        "one noise multiplier z with which classic Rényi accounting over 30 rounds gives epsilon. So the exact "
        "advantage is 2 Phi(sqrt(30) / (2 z)) - 1, not rho_alpha."
    ),
    "order-cap": (
        "Orders: the accountant's largest Rényi order is 63. At the smallest rho_beta this nearly doubles the "
        "noise multiplier: 404.8 and 329.0 instead of 208.6 and 170.2. The paper's figures rest on it."
    ),
    "ls-curve": (
        "Panel a, local sensitivity: the authors' script plots epsilon against itself. Ours is measured, and lies"
        " on the diagonal by definition."
    ),
    "gs-curve": (
        "Panel a, global sensitivity: the authors' script does not empty a list between values of rho_beta, exchanges "
        "two directories, and takes sensitivities of runs with local noise. Ours are of runs with global noise."
    ),
    "eq-9": (
        "Neighbours: on Adult and Purchase-100 the authors' code does not choose the record to remove by Eq. (9), as "
        "ours does, which matters under global sensitivity alone."
    ),
    "ssim": (
        "SSIM: the authors' is of flattened images in half precision, ours of the images, so other digits are chosen."
    ),
    "network": (
        "Networks: the authors' network for MNIST has batch normalisation with fixed statistics, and the one for "
        "Adult a single sigmoid output. Ours have group normalisation, and the softmax over two outputs that the "
        "paper states."
    ),
    "subset": (
        "Records: the paper does not name its random sample D. Ours is another one, which matters under global "
        "sensitivity alone."
    ),
    "stand-in": (
        "Stand-in: Location-30 of the authors of Purchase-100 has 446 binary features and 30 classes, and gets the "
        "same hidden layer of 128. Where sensitivities matter, its numbers need not agree with the published ones."
    ),
    "precision": (
        "Precision: the authors' code multiplies probabilities in single precision, ours adds log-odds in double. At "
        "epsilon = 0.12 on Purchase-100 their rounding exceeds the signal, and saturated beliefs become NaN."
    ),
    "extreme": (
        "Largest belief: epsilon' from the largest belief grows with the number of repetitions and does not "
        "converge to epsilon. The theory given is the median of the largest of that many log-odds."
    ),
    "equation-6": (
        "Eq. (6): as printed, it lacks a factor of 2, and section 5.3 lacks a logarithm. The authors' code and "
        "ours have both."
    ),
    "local-distribution": (
        "Local sensitivity: every round gives the same amount of evidence, so the log-odds are exactly N(mu^2/2, "
        "mu^2) with mu = sqrt(30) / z for any data. Rounds in which the differing record changes nothing give less; "
        "their noise has a floor of 1e-4 C."
    ),
    "global-distribution": (
        "Global sensitivity: theory is the mean over trials of 2 Phi(mu_w / 2) - 1, where mu_w^2 is the sum of "
        "(Delta_i / sigma_i)^2 in trial w: an approximation, as mu_w depends on how training went."
    ),
    "repetitions": (
        "Repetitions: the paper states 1000; its figures rest on 993 to 999 at rho_beta = 0.9 and on 242 to 493 "
        "elsewhere. The standard error of an advantage is .03 over 1000 trials and .06 over 250."
    ),
    "figure-4-relation": (
        "Figure 4: its caption names Eq. (9), by which a record is removed. Then no sensitivity could exceed C = 3; "
        "its medians of 4.2 and 4.4 belong to replaced records (Eq. 11 and 12). Both kinds are shown here."
    ),
    "membership": (
        "Membership: Yeom's adversary is given the final model alone. Its bound e^epsilon - 1 is far above 1 at most "
        "of these epsilons. Published advantages are below .02; ours is the mean of TPR - FPR over trials."
    ),
}
"""The explanations by their keys."""


def explained(keys: Iterable[str], stands_in: bool = False) -> tuple[str, ...]:
    """Return explanations of differences from the paper, in the order of their keys.

    `stands_in`: If so, the explanation of this is added at the end.
    """
    chosen = [SLIPS[key] for key in keys]
    return (*chosen, SLIPS["stand-in"]) if stands_in else tuple(chosen)
