"""Small models of many worlds, trained once for attacks of ours and of others."""

from dataclasses import dataclass

import numpy as np
import torch

from fl_audit.adversaries.membership.confidence import label_log_probability, scaled_confidence
from fl_audit.arrays import Flags, Floats, Integers
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.errors import require
from fl_audit.game.membership import Membership
from fl_audit.learning.models import ModelSpec, initial_models
from fl_audit.learning.optimizers import OptimizerKind, OptimizerState, ServerOptimizer, step
from fl_audit.learning.stacked import StackedModel

MODEL = "dense-128"
_LEARNING_RATE = 0.01


@dataclass(frozen=True)
class Trained:
    """What trained models say, as the packages are told."""

    logits: Floats  # of the targets, shape (worlds, targets, classes)
    labels: Integers  # of the targets, shape (targets,)
    is_in: Flags  # which targets each world used, shape (worlds, targets)
    shadows: Flags  # which worlds Shokri's attack learns from, shape (worlds,)
    # `confidences`, `log_p`: confidence in the label on the scale of log-odds, and its logarithm, shape (worlds,
    # targets).
    confidences: Floats
    log_p: Floats
    population_log_p: Floats  # logarithm of the confidence in the labels of as many records that no world used

    @property
    def membership(self) -> Membership:
        """The coins."""
        return Membership(self.is_in)


def train(data: DataSpec, worlds: int, targets: int, steps: int, seed: int = 0) -> Trained:
    """Train one model a world on the targets that its coins chose, by Adam on all of them at once.

    Parameters
    ----------
    data
        Where records come from; twice as many are needed as there are targets.
    worlds
        Number of models.
    targets
        Number of targets.
    steps
        Number of steps.
    seed
        Seed of records, coins and initial weights.

    Raises
    ------
    InputError
        If there are fewer records than that.
    """
    pool, draw = load_source(data).pool, np.random.default_rng(seed)
    require(
        2 * targets <= len(pool.labels), f"there are {len(pool.labels)} records: accepted are {2 * targets} or more"
    )
    chosen = draw.permutation(len(pool.labels))[: 2 * targets]
    features, labels = torch.from_numpy(pool.features[chosen]), torch.from_numpy(pool.labels[chosen])
    is_in = draw.random((worlds, targets)) < 0.5
    spec = ModelSpec(MODEL, pool.shape, pool.classes)
    model, models, state = StackedModel.of(spec), initial_models(spec, seed, range(worlds)), OptimizerState()
    rule, taking_part = ServerOptimizer(OptimizerKind.ADAM, _LEARNING_RATE), torch.from_numpy(is_in)
    for _ in range(steps):
        sums = model.clipped_sum(models, features[:targets], labels[:targets], None, taking_part=taking_part)
        models, state = step(rule, models, sums, state, denominator=targets / 2)
    logits = model.logits(models, features).double().numpy()
    own, others = logits[:, :targets], logits[:, targets:]
    classes = pool.labels[chosen]
    return Trained(
        logits=own,
        labels=classes[:targets],
        is_in=is_in,
        shadows=np.arange(worlds) % 2 == 0,
        confidences=scaled_confidence(own, classes[:targets]),
        log_p=label_log_probability(own, classes[:targets]),
        population_log_p=label_log_probability(others, classes[targets:]),
    )
