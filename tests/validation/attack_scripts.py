"""Membership attacks of public packages, as scripts for environments of their own: they are no dependencies of ours.

Each reads an archive with the arrays of `attack_packages.Trained` and writes one with the scores (trials, targets)
of every attack, higher for a likelier member; trials that are not attacked get NaN.
"""

MIALIBRARY_SCRIPT = """
import sys

import jax.numpy as jnp
import numpy as np
from mialibrary.lira.compute_score import compute_lira_score
from mialibrary.rmia.compute_score import compute_score_rmia

table = np.load(sys.argv[1])
is_in, phi = table["is_in"], table["confidences"]
stats, coins = jnp.asarray(phi[:, :, None]), jnp.asarray(is_in)
found = {
    "lira mean each": compute_lira_score(stats, coins, False, False),
    "lira mean shared": compute_lira_score(stats, coins, True, False),
    "lira median each": compute_lira_score(stats, coins, False, True),
    "lira median shared": compute_lira_score(stats, coins, True, True),
}
own, others = np.exp(table["log_p"]), np.exp(table["population_log_p"])
found["rmia offline"] = compute_score_rmia(own, others, is_in, True, len(own))
np.savez(sys.argv[2], **found)
"""
"""mialibrary 0.1.5: LiRA in its four forms, RMIA in one; every trial is attacked with all others."""

PRIVACY_TESTS_SCRIPT = """
import importlib
import sys

import numpy as np

attack = importlib.import_module(
    "tensorflow_privacy.privacy.privacy_tests.membership_inference_attack.advanced_mia"
)
table = np.load(sys.argv[1])
is_in, logits, labels = table["is_in"], table["logits"], table["labels"]
trials = len(is_in)
phi = np.stack([attack.calculate_statistic(logits[w].copy(), labels) for w in range(trials)])
ways = {
    "lira mean each": ("both", False, "mean"),
    "lira mean shared": ("both", True, "mean"),
    "lira median each": ("both", False, "median"),
}
found = {name: np.zeros(is_in.shape) for name in ways}
for w in range(trials):
    rest = np.arange(trials) != w
    inside = [phi[rest & is_in[:, t], t, None] for t in range(phi.shape[1])]
    out = [phi[rest & ~is_in[:, t], t, None] for t in range(phi.shape[1])]
    for name, (option, fixed, middle) in ways.items():
        found[name][w] = -attack.compute_score_lira(phi[w, :, None], inside, out, option, fixed, middle)
np.savez(sys.argv[2], **found)
"""
"""tensorflow-empirical-privacy 0.1.0, without TensorFlow: LiRA from logits, where members score low."""

ART_SCRIPT = """
import sys
import warnings

warnings.simplefilter("ignore")
import numpy as np
from art.attacks.inference.membership_inference import MembershipInferenceBlackBox
from art.estimators.classification import BlackBoxClassifier, SklearnClassifier
from sklearn.neural_network import MLPClassifier


class Fitted(type(SklearnClassifier(model=MLPClassifier()))):
    # The wrapper's own method expects labels in columns, and the attack hands it one number for each.
    def fit(self, x, y, **options):
        self.model.fit(x, y)


def network():
    return Fitted(model=MLPClassifier((64,), random_state=0, max_iter=50))


table = np.load(sys.argv[1])
is_in, labels, shadows = table["is_in"], table["labels"], table["shadows"]
confidences = np.exp(table["logits"] - np.logaddexp.reduce(table["logits"], axis=-1, keepdims=True))
classes = confidences.shape[-1]
estimator = BlackBoxClassifier(lambda x: x, input_shape=(classes,), nb_classes=classes)


def scored(own):
    asked, coins = confidences[:, own], is_in[:, own]
    attack = MembershipInferenceBlackBox(estimator, attack_model=network())
    learnt, coins = asked[shadows], coins[shadows]
    attack.fit(pred=learnt[coins], test_pred=learnt[~coins])
    rest = asked[~shadows].reshape(-1, classes)
    return attack.infer(None, None, pred=rest, probabilities=True)[:, -1].reshape(-1, own.sum())


scores = np.full(is_in.shape, np.nan)
for label in np.unique(labels):
    own = labels == label
    scores[np.ix_(~shadows, own)] = scored(own)
np.savez(sys.argv[2], **{"network each class": scores})
"""
"""Adversarial Robustness Toolbox 1.20: the black-box attack, with an attack model for each class."""
