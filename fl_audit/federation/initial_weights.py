"""Make the initial weights of training: drawn for each trial, or pretrained on public records and equal in all trials.

Differential privacy holds for any initial weights, so an audit may choose them. A pretrained model has small gradients
on ordinary records, so the effect of one unusual record on the model stands out. Pretrained weights are therefore the
worst case against an adversary that sees only the final model (Annamalai & De Cristofaro 2024). The pretraining records
are in neither D nor D', and are not used to evaluate models.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import assert_never

import numpy as np
import torch
from torch import Tensor

from fl_audit.adjacency import NeighbourPair
from fl_audit.errors import require
from fl_audit.federation.federation import Federation
from fl_audit.federation.federation_records import split_of
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.record_tensors import Examples
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.learning.optimizers import OptimizerState, ServerOptimizer, ServerOptimizerKind, step
from fl_audit.learning.training_enums import InitialWeightsSource as InitialWeightsSource
from fl_audit.randomness import Purpose, generator

FEWEST_RECORDS, MOST_RECORDS = 50, 10_000
"""Records that weights are trained on: with fewer nothing is learned that other records share."""
_STEPS, _BATCH, _RATE = 2000, 64, 0.003  # steps of Adam, records per batch, and the first learning rate


def starting_models(
    federation: LoadedFederation, weights_source: InitialWeightsSource, seed: int, trials: Sequence[int]
) -> Tensor:
    """Return the initial weights of the given trials, float32 (trials, parameters).

    Raises `InputError` if fewer records remain outside D than pretraining needs.

    `weights_source`: PRETRAINED: all trials have the same weights, which are drawn for trial 0 and then pretrained.
    """
    spec = federation.spec
    match weights_source:
        case InitialWeightsSource.DRAWN:
            return initial_models(spec, seed, trials)
        case InitialWeightsSource.PRETRAINED:
            # The replacement of a record changes nothing outside D, so one pretraining serves all replacements.
            pair = federation.public.pair
            ordinary = replace(federation.public, pair=NeighbourPair(pair.index, pair.replacement))
            return _pretrained(ordinary, seed).expand(len(trials), -1).clone()
        case _:
            assert_never(weights_source)


def pretraining_examples(federation: LoadedFederation) -> Examples:
    """Draw up to 10,000 records for pretraining, which are in neither D nor D' and not used for evaluation.

    Raises `InputError` if fewer than 50 records are left.
    """
    public = federation.public
    spare = federation.spare
    problem = f"initial is 'pretrained' and {len(spare)} records are left beside D, D' and the population sample"
    accepted = f"accepted in [data] are records and population-records that leave {FEWEST_RECORDS}"
    require(len(spare) >= FEWEST_RECORDS, f"{problem}: {accepted}")
    draw = generator(public.data_seed, Purpose.PRETRAINING)
    chosen = draw.choice(spare, size=min(MOST_RECORDS, len(spare)), replace=False)
    outside = split_of(public).outside
    assert outside is not None, "spare records are outside D"
    return federation.examples(outside.take(np.sort(chosen)))


@lru_cache(maxsize=2)
def _pretrained(public: Federation, seed: int) -> Tensor:
    """Train initial weights by Adam on public records, without privacy; float32 (1, parameters)."""
    federation = load_federation(public)
    examples = pretraining_examples(federation)
    draw = generator(seed, Purpose.PRETRAINING, round=1)
    spec = federation.spec
    models = initial_models(spec, seed, [0]).to(examples.features.device)
    state = OptimizerState()
    for number in range(_STEPS):
        batch = examples.take(draw.integers(examples.count, size=min(_BATCH, examples.count)))
        gradients = federation.model.mean_gradients(models, batch.features, batch.labels)
        # The step length falls to nothing, so that the weights come to rest where gradients are small.
        rule = ServerOptimizer(ServerOptimizerKind.ADAM, _RATE * (1 - number / _STEPS))
        models, state = step(rule, models, gradients, state)
    finite = bool(torch.isfinite(models).all())
    require(finite, "pretraining led to weights that are not finite: accepted is initial = 'drawn' in [model]")
    return models.cpu()
