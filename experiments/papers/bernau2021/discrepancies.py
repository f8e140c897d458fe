"""Reasons why our numbers may differ from the printed ones.

Each explanation has a key, by which tables and figures refer to it. Where the paper disagrees with the authors' public
code (SAP-samples/security-research-identifiability-in-dpdl), the explanation says which of the two we follow.
"""

from collections.abc import Iterable

SLIPS: dict[str, str] = {
    "second-draw": (
        "Noise: the authors' adversary observes a second draw of the noise, not the one that is applied to the model. "
        "Here there is one draw, which is both observed and applied. Under local sensitivity the distribution of the "
        "log-odds is the same in both cases. Under global sensitivity, what the authors' adversary observes no longer "
        "depends on how training goes on."
    ),
    "bit": (
        "Secret bit: the authors' code never draws it and always uses D, so it measures the advantage in trials with D "
        "only. Here b is drawn, as Experiment 2 says."
    ),
    "optimizer": (
        "Optimizer: Algorithm 1 is plain gradient descent, but the figures were made with Adam at learning rate 0.005, "
        "and so are ours. This matters only under global sensitivity, where the evidence depends on how training goes."
    ),
    "calibration": (
        "Noise scale: Algorithm 1 sets sigma_i from (epsilon_i, delta_i) of each round by Eq. (1); the authors' code "
        "looks for one noise multiplier z with which classic Rényi accounting over 30 rounds gives epsilon. Ours does "
        "the latter, so the exact advantage is 2 Phi(sqrt(30) / (2 z)) - 1, not rho_alpha."
    ),
    "order-cap": (
        "Orders: the accountant's largest Rényi order is 63. At the smallest rho_beta this nearly doubles the noise "
        "multiplier: 404.8 and 329.0 instead of 208.6 and 170.2. We keep it, since the paper's figures rest on it."
    ),
    "ls-curve": (
        "Panel a, local sensitivity: the published curve was never measured; the authors' script plots epsilon against "
        "itself. Ours is measured. It lies on the diagonal by definition, since the noise was scaled to that very "
        "sensitivity, so it only tests the bookkeeping."
    ),
    "gs-curve": (
        "Panel a, global sensitivity: in the authors' script a list is not emptied between values of rho_beta, two "
        "directories are exchanged, and the sensitivities come from runs with local noise. Ours are those of the runs "
        "with global noise, setting by setting."
    ),
    "eq-9": (
        "Neighbours: on Adult and Purchase-100 the authors' code does not choose the record to remove by Eq. (9). Ours "
        "does so on every data set. The removed record is therefore another one, and the results of every unbounded "
        "run under global sensitivity differ with it."
    ),
    "ssim": (
        "SSIM: the authors compute it on images flattened to vectors of 784 numbers, with distances in half precision. "
        "We compute it on the images, so other digits are chosen."
    ),
    "network": (
        "Networks: the authors' network for MNIST has batch normalisation, run with fixed statistics, and the one for "
        "Adult has a single sigmoid output. Ours have group normalisation, since batch statistics mix the records of a "
        "batch, and the softmax over two outputs that the paper states. All have the sizes given in the paper."
    ),
    "subset": (
        "Records: D is a random sample of 100 or 1000 records that the paper does not name. Ours is another sample, "
        "with another most dissimilar neighbour. This cannot matter under local sensitivity, but it does under global."
    ),
    "stand-in": (
        "Purchase-100: it is not in the data directory. Location-30 stands in for it, with the same hidden layer of "
        "128: a data set of the same authors and of the same kind, with 446 binary features and 30 classes. It has "
        "other sensitivities, so where these matter its numbers need not agree with the published ones."
    ),
    "precision": (
        "Precision: the authors' code multiplies probabilities in single precision. At epsilon = 0.12 on Purchase-100 "
        "the rounding then exceeds the signal, and saturated beliefs become NaN. Ours adds log-odds in double "
        "precision."
    ),
    "extreme": (
        "Largest belief: epsilon' from the largest belief is an extreme value. It grows with the number of repetitions "
        "and does not converge to epsilon, so compare it only at equal numbers of repetitions. The theory given is the "
        "median of the largest of that many log-odds."
    ),
    "equation-6": (
        "Eq. (6): as printed, it lacks a factor of 2, and section 5.3 lacks a logarithm in epsilon' from the belief. "
        "Both are present in the authors' code and in ours."
    ),
    "local-distribution": (
        "Local sensitivity: every round gives the same amount of evidence whatever the data and the model are, so the "
        "log-odds are exactly N(mu^2/2, mu^2) with mu = sqrt(30) / z, and these rows do not depend on the data. Rounds "
        "in which the differing record changes nothing (because units are dead) give less evidence; their noise is "
        "kept at a floor of 1e-4 C."
    ),
    "global-distribution": (
        "Global sensitivity: the theory given is the mean over trials of 2 Phi(mu_w / 2) - 1, where mu_w^2 is the sum "
        "of (Delta_i / sigma_i)^2 in trial w. It is an approximation, because mu_w depends on how training went, and "
        "thereby on the log-odds. Both sides of the comparison come from the same runs."
    ),
    "repetitions": (
        "Repetitions: the paper states 1000; its figures rest on 993 to 999 at rho_beta = 0.9 and on 242 to 493 "
        "elsewhere. The standard error of an advantage is .03 over 1000 trials and .06 over 250."
    ),
    "figure-4-relation": (
        "Figure 4: its caption names Eq. (9), by which a record is removed. But then no sensitivity could exceed "
        "C = 3, and the figure shows medians of 4.2 and 4.4. They belong to replaced records (Eq. 11 and 12). Both "
        "kinds are shown here, and the published medians stand beside the replaced records."
    ),
    "figure-4-cosine": (
        "Figure 4: the preprint has a panel more, in which neighbours of Purchase-100 are chosen by the cosine "
        "distance, which is said to do worse than the Hamming distance. It is missing here: its neighbours need runs "
        'of their own, which were not played. `dissimilarity = "cosine"` chooses them in a run.'
    ),
    "labels": (
        "Labels: the measures compare features alone. Two records with similar features and different labels pull the "
        "model in different directions, so the least dissimilar neighbour need not be the one that matters least. The "
        "column Note of the table below names the labels."
    ),
    "membership": (
        "Membership: Yeom's adversary is given only the final model and no neighbour. Its bound e^epsilon - 1 is far "
        "above 1 at most of these epsilons. The published advantages are below .02; ours is an average of TPR - FPR "
        "over trials. The paper does not say about which non-members its adversary was asked. How much models keep of "
        "few records grows with epsilon. By chance alone the advantage against one model has a standard deviation of "
        "at most sqrt((1 / n + 1 / m) / 4) over training sets, with n members and m others: the "
        "column Note gives it as 'by chance, one model'. As models differ between trials, a part of this averages out."
    ),
}
"""The explanations by their keys."""


def explained(keys: Iterable[str], stands_in: bool = False) -> tuple[str, ...]:
    """Return explanations of differences from the paper, in the order of their keys.

    `stands_in`: If so, the explanation of this is added at the end.
    """
    chosen = [SLIPS[key] for key in keys]
    return (*chosen, SLIPS["stand-in"]) if stands_in else tuple(chosen)
