"""Why ours may differ from what is printed: where the paper and its authors' public code part, and what we do.

Each is told once, by a key that the items name. The code is SAP-samples/security-research-identifiability-in-dpdl.
"""

from collections.abc import Iterable

SLIPS: dict[str, str] = {
    "second-draw": (
        "Noise: the authors' adversary weighs a second draw of the noise, not the one that is applied to the model. "
        "Here there is one draw, which is observed and applied. Under local sensitivity the law of the log-odds is the "
        "same; under global sensitivity theirs cuts the tie between what is observed and how training goes on."
    ),
    "bit": (
        "Secret bit: theirs is never drawn, D is always used, so that an advantage is measured in worlds with D only. "
        "Here b is drawn, as Experiment 2 says."
    ),
    "optimizer": (
        "Optimizer: Algorithm 1 is plain gradient descent; the figures were made with Adam at learning rate 0.005, and "
        "so are ours. It matters under global sensitivity only, where the sensitivities follow training."
    ),
    "calibration": (
        "Noise scale: Algorithm 1 sets sigma_i from (epsilon_i, delta_i) of each round by Eq. (1); the authors' code "
        "looks for one noise multiplier z with which classic Rényi accounting over 30 rounds gives epsilon. Ours does "
        "the latter, so the exact advantage is 2 Phi(sqrt(30) / (2 z)) - 1, not rho_alpha."
    ),
    "order-cap": (
        "Orders: the accountant's largest Rényi order is 63. At the smallest rho_beta this nearly doubles the noise "
        "multiplier: 404.8 and 329.0 instead of 208.6 and 170.2. Kept, since the figures rest on it."
    ),
    "ls-curve": (
        "Panel a, local sensitivity: the published curve was never measured; the authors' script plots epsilon against "
        "itself. Ours is measured. It lies on the diagonal by definition, since noise was scaled to that very "
        "sensitivity: what it tests is the bookkeeping."
    ),
    "gs-curve": (
        "Panel a, global sensitivity: in the authors' script a list is not emptied between values of rho_beta, two "
        "directories are exchanged, and the sensitivities come from runs with local noise. Ours are those of the runs "
        "with global noise, setting by setting."
    ),
    "eq-9": (
        "Neighbours: the authors' code does not choose the record to remove by Eq. (9) on Adult and Purchase-100. Ours "
        "does, on every data set; the removed record, and with it every unbounded run under global sensitivity, is "
        "another one."
    ),
    "ssim": (
        "SSIM: theirs is computed on images flattened to vectors of 784 numbers, with distances in half precision. "
        "Ours is computed on the images, so the chosen digits differ."
    ),
    "network": (
        "Networks: theirs has batch normalisation on MNIST, run with fixed statistics, and one sigmoid on Adult. Ours "
        "has group normalisation, since batch statistics mix the records of a batch, and the two-neuron softmax that "
        "the paper states. All have the paper's sizes."
    ),
    "subset": (
        "Records: D is a random sample of 100 or 1000 records that the paper does not name. Ours is another sample, "
        "with another most dissimilar neighbour. Under local sensitivity this cannot matter, under global it does."
    ),
    "stand-in": (
        "Purchase-100 is not in the data directory: Location-30 (same authors, same kind: binary features, many "
        "classes; 446 features, 30 classes) stands in for it, with the same hidden layer of 128. Its sensitivities are "
        "its own: where they matter, the published numbers are no target for it."
    ),
    "precision": (
        "Precision: theirs multiplies probabilities in single precision, where at epsilon = 0.12 on Purchase-100 "
        "rounding exceeds the signal and saturated beliefs become NaN. Ours adds log-odds in double precision."
    ),
    "extreme": (
        "Largest belief: epsilon' from it is an extreme value. It grows with the number of repetitions and does not "
        "converge to epsilon; compare it at equal repetitions only. Theory is the median of the largest of that many "
        "log-odds."
    ),
    "equation-6": (
        "Eq. (6) as printed lacks a factor of 2, and section 5.3 a logarithm in epsilon' from the belief. Both are in "
        "the authors' code, and in ours."
    ),
    "local-law": (
        "Local sensitivity: every round is worth the same evidence whatever the data and the model, so that the "
        "log-odds are N(mu^2/2, mu^2) with mu = sqrt(30) / z exactly, and these rows need no particular data. Rounds "
        "in which the differing record changes nothing (dead units) are worth less, and get noise at a floor of 1e-4 C."
    ),
    "global-law": (
        "Global sensitivity: theory is the mean over worlds of 2 Phi(mu_w / 2) - 1 with mu_w^2 the sum of (Delta_i / "
        "sigma_i)^2 of that world: an approximation, for mu_w depends on how training went, and so on the log-odds. "
        "Both sides of the comparison come from the same runs."
    ),
    "repetitions": (
        "Repetitions: 1000 are stated; the figures rest on 993 to 999 at rho_beta = 0.9 and on 242 to 493 elsewhere. "
        "One standard error of an advantage over 1000 games is .03, over 250 it is .06."
    ),
    "figure-4-relation": (
        "Figure 4: its caption names Eq. (9), which removes a record; but then no sensitivity could exceed C = 3, and "
        "medians of 4.2 and 4.4 are drawn. They belong to replaced records (Eq. 11 and 12). Both are shown here; the "
        "published medians stand beside replaced records."
    ),
    "labels": (
        "Labels: the measures compare features alone. Two records that are near in features and carry different labels "
        "pull the model apart, so that the least dissimilar neighbour need not be the one that matters least. The "
        "notes name the labels."
    ),
    "membership": (
        "Membership: Yeom's adversary is told the final model only and no neighbour. Its bound e^epsilon - 1 is far "
        "above 1 at most of these epsilons. The published advantages stayed under .02; an average of TPR - FPR over "
        "worlds is set beside it. It leaves open whom else its adversary was asked about. What models keep of few "
        "records grows with epsilon. By chance alone the advantage against one model has a standard deviation of at "
        "most sqrt((1 / n + 1 / m) / 4) over training sets, n members and m others (see the notes); models that differ "
        "from world to world average a part of it away."
    ),
}  # fmt: skip
"""Each key with its explanation."""


def explained(keys: Iterable[str], stands_in: bool = False) -> tuple[str, ...]:
    """Return the explanations of some keys, with that of the stand-in data set where there is one."""
    chosen = [SLIPS[key] for key in keys]
    return (*chosen, SLIPS["stand-in"]) if stands_in else tuple(chosen)
