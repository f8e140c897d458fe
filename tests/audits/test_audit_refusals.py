"""Refusals of scores, losses and guesses: each names what is wrong."""

import math
from dataclasses import replace

import numpy as np
from torch import nn

from fl_audit.audits.canaries.bounds import bound_of_guesses
from fl_audit.audits.canaries.guessing_bounds import Guesses, guesses_of_scores, steinke_epsilon, tradeoff_epsilon
from fl_audit.audits.identifiability.bernau_empirical_epsilons import (
    advantage_interval,
    belief_interval,
    epsilon_from_measured_advantage,
)
from fl_audit.audits.membership.insider_increments import increments
from fl_audit.audits.membership.white_box_features import WhiteBoxFeatures, white_box_features
from fl_audit.audits.membership.yeom_attack import record_membership_guess
from fl_audit.audits.reconstruction.candidate_hits import ranks_of_truth
from fl_audit.audits.reconstruction.image_attacks import DescentSettings
from fl_audit.audits.reconstruction.reconstruction_metrics import image_similarity
from fl_audit.data.attribute_to_infer import choose_attribute
from fl_audit.data.builtin import load_breast_cancer, load_digits
from fl_audit.learning.optimizers import ServerOptimizer, ServerOptimizerKind
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.mechanisms.threat_model import InsiderView
from fl_audit.privacy.accounting import Accountant
from fl_audit.released_model.empirical_star import yeom_advantage
from tests.audits.identifiability.test_empirical_epsilon import epsilon_of
from tests.audits.identifiability.test_identifiability_adversary import initial, make_federation, weigh_models
from tests.audits.membership.test_attribute_choice import table
from tests.audits.membership.test_white_box_features import _drawn, _Rows, _Shared, _Twice
from tests.audits.reconstruction.test_inversion import DRAWN, OTHERS, TRUE
from tests.builders.refusals import Refusal, refusal_test, refusals

BY_ADAM = make_federation(optimizer=ServerOptimizer(ServerOptimizerKind.ADAM, 0.1))


def features_of(template: nn.Module, shape: tuple[int, ...]) -> WhiteBoxFeatures:
    model = StackedModel(template, shape)
    return white_box_features(model, *_drawn(shape, 2, model.layout.size))


REFUSALS = [
    # Wrong input is named.
    Refusal(lambda: Guesses(5, 2, 3), "3 right of 2 guesses about 5 coins"),
    Refusal(
        lambda: guesses_of_scores(np.zeros(4), np.ones(4, dtype=np.bool_), 3, 2), r"3 positive.* 2 negative.* 4 coins"
    ),
    Refusal(lambda: guesses_of_scores([np.nan], [True], 1, 0), "scores contain NaN"),
    Refusal(lambda: steinke_epsilon(Guesses(5, 2, 2), 1.0, 0.05), "delta is 1"),
    Refusal(lambda: tradeoff_epsilon(Guesses(5, 2, 2), 1.0, 0.05), "delta is 1"),
    Refusal(lambda: bound_of_guesses(Guesses(5, 2, 2), 0.0, 0.5), r"confidence is 0\.5"),
    # Wrong input is named.
    Refusal(lambda: epsilon_of(np.array([[0.1, -1.0]]), 0.01, Accountant.GDP), r"signal is -1\.0"),
    Refusal(lambda: epsilon_of(np.array([[0.1, math.nan]]), 0.01, Accountant.GDP), "signal is nan"),
    Refusal(lambda: epsilon_of(np.zeros(3), 0.01, Accountant.GDP), "signal has shape"),
    Refusal(lambda: belief_interval(np.array([math.nan]), 0.9), "log-odds contain NaN"),
    Refusal(lambda: belief_interval(np.array([]), 0.9), r"of trials.* 0\b"),
    Refusal(lambda: epsilon_from_measured_advantage(1.5, 0.01), r"advantage is 1\.5"),
    Refusal(lambda: epsilon_from_measured_advantage(-0.1, 0.0), "delta is 0"),
    # Intervals refuse wrong numbers.
    Refusal(lambda: advantage_interval(4, 3, 0.01, 0.95), r"of successes.* 4\b"),
    Refusal(lambda: belief_interval(np.zeros(3), 1.0), "confidence is"),
    Refusal(lambda: belief_interval(np.zeros(3), 0.95, math.nan), "mu is nan"),
    Refusal(lambda: epsilon_of(np.array([[math.nan]]), 0.01, Accountant.GDP), "signal is nan"),
    # What has no such column is refused.
    *refusals(
        lambda source, attribute_name: choose_attribute(source, source.pool, attribute_name),
        (load_digits(), None, r"digits .*images"),
        (load_breast_cancer(), None, "no column"),
        (load_breast_cancer(), "0", r"attribute 0 .*456 values: .*2 to 100"),
        (table(), "town ", r"attribute is town : .*people .*age, smokes, sex, town or "),
        (replace(table(), pool=replace(table().pool, graphs=True)), None, r"people .*graphs"),
    ),
    # Wrong losses are named.
    Refusal(lambda: yeom_advantage([0.1, math.nan], [0.2]), r"member losses .*nan"),
    Refusal(lambda: yeom_advantage([0.1], []), r"population losses .*\(0,\)"),
    Refusal(lambda: yeom_advantage(np.zeros((2, 3)), np.zeros((3, 3))), r"leading axes \(2,\)"),
    Refusal(lambda: record_membership_guess(math.inf, [0.1]), r"record losses .*NaN"),
    Refusal(lambda: record_membership_guess(np.zeros(3), np.zeros((2, 4))), r"record losses .*\(3,\)"),
    # A search that is none is refused.
    *refusals(
        lambda wrong: DescentSettings(**wrong),
        ({"iterations": 0}, "iterations are 0"),
        ({"step": 0.0}, "step is 0"),
        ({"smoothness": -1.0}, "smoothness is -1"),
        ({"restarts": 0}, "restarts are 0"),
        ({"seconds": 0.0}, "seconds are 0"),
    ),
    # Pictures of other shapes are refused.
    Refusal(lambda: image_similarity(TRUE, DRAWN[:5], OTHERS), "accepted are drawings"),
    # Ranks of unusable scores are refused.
    Refusal(lambda: ranks_of_truth(np.array([[0.0, np.nan]]), np.array([0])), "log-likelihoods have shape"),
    # What the membership audit's insider cannot weigh.
    *refusals(
        lambda change: increments(
            **{
                "products": np.ones((2, 3)),
                "norms": np.ones((2, 3)),
                "clipping_norm": 1.0,
                "sigma": [1.0, 1.0],
                "is_in": np.ones((2, 3)) > 0,
            }
            | change
        ),
        ({"sigma": [1.0, 0.0]}, r"sigma is 0\.0 .*trial 1: .*positive numbers"),
        ({"sigma": [1.0, np.nan]}, r"sigma is nan .*trial 1"),
        ({"sigma": 1.0}, r"sigma .*\(\): .*\(2,\)"),
        ({"products": np.full((2, 3), np.inf)}, "products contain NaN or infinity"),
        ({"norms": np.full((2, 3), -1.0)}, r"norms .*-1\.0: .*numbers from 0"),
        ({"norms": np.ones((2, 4))}, r"norms .*\(2, 4\): .*\(2, 3\)"),
        ({"clipping_norm": 0.0}, r"clipping norm is 0\.0: .*positive numbers.* None"),
        ({"is_in": np.ones((2, 3))}, r"is_in .*float64 .*\(2, 3\): .*bool \(2, 3\)"),
        ({"takes_part": np.ones((3, 2), dtype=np.bool_)}, r"takes_part .*bool .*\(3, 2\): .*bool"),
        ({"sampling_rate": 0.0}, r"sampling rate is 0\.0: .*from 1e-20"),
        ({"sampling_rate": 0.5}, r"sampling rate is 0\.5 .*: .*bool \(2, 3\)"),
    ),
    # Layers without a gradient that a white-box attacker sees.
    *refusals(
        lambda template, shape: features_of(template(), shape),
        (lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten()), (1, 3, 3), "no dense layer"),
        (_Twice, (3,), "is called 2 times"),
        (_Rows, (4, 3), r"inputs .*\(1, 4, 3\)"),
        (_Shared, (3,), "serves elsewhere, too"),
    ),
    # Models that follow from Adam's steps.
    Refusal(
        lambda: weigh_models(BY_ADAM, [initial(BY_ADAM), initial(BY_ADAM) + 0.1]), r"'adam': .*'sgd' and 'momentum'"
    ),
    Refusal(lambda: replace(BY_ADAM.public, view=InsiderView.MODEL), "'adam'"),
]

test_it_is_refused = refusal_test(REFUSALS)
