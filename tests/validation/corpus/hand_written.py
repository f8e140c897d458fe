"""Cases of private trainings without Opacus: one trial is one training, and it releases the weights at its end.

The target is one record more, with large values. What is claimed is the epsilon of five Poisson samples.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import nn

from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.local_training.edited_datasets import crafted_record, record_at, with_record, without_record
from fl_audit.generator_states import seed_generators, spared_generators
from tests.validation.corpus.case import Case, Claim, Floats, Layout, Training
from tests.validation.corpus.truth import NONE, sampled
from tests.validation.faulty_mechanisms import hand_written_trainings as trainings

FAMILY = "hand-written"
_TARGET = 7
_STEPS = 5
_RATE = 0.2
_MULTIPLIERS = {
    "noise divided twice": 1 / trainings.EXPECTED,
    "clipping of each tensor to the whole norm": 0.5**0.5,
    "noise over the root of the coordinates": 15**-0.5,
}
"""Noise multipliers of faulty trainings whose steps have one; of the largest tensor where they differ."""
_UNKNOWN = ("clipping of the batch", "division by the size of the sample")
_TOO_LONG = ("loop over records", "added to the gradient of the last record")
"""Trainings that take a loop over records: a hundred of them take minutes."""


def _label(words: str) -> str:
    return f"{FAMILY}/{'-'.join(words.split())}"


def _broken() -> dict[str, str]:
    return {_label(name): name for name in trainings.BROKEN if name not in _TOO_LONG}


def _honest() -> dict[str, str]:
    return {_label(f"honest {name}"): name for name in trainings.HONEST if name not in _TOO_LONG}


TWIN = _label("honest vmap")


def names() -> list[str]:
    """Return the names of all cases."""
    return [*_broken(), *_honest()]


def case(name: str) -> Case:
    """Return a case by its name."""
    broken = _broken().get(name)
    epsilon = sampled(trainings.NOISE, _STEPS, _RATE, trainings.DELTA)
    claim = Claim(epsilon, trainings.DELTA, str(Adjacency.ADD_REMOVE_RECORD), 1, limits=((epsilon, trainings.DELTA),))
    train = (
        partial(trainings.trained, apply=trainings.BROKEN[broken][0]) if broken else trainings.HONEST[_honest()[name]]
    )
    layout = Layout(1, (("weights", _play(train, np.random.default_rng(0), True).size),))
    if broken is None:
        return Case(name, claim, partial(_play, train), layout, epsilon, training=_looked_into(train))
    wrong = f"The steps of the training have: {broken}."
    return Case(name, claim, partial(_play, train), layout, _truth(broken), wrong, TWIN, training=_looked_into(train))


def _truth(broken: str) -> float | None:
    if broken in _UNKNOWN:
        return None
    if broken not in _MULTIPLIERS:
        return NONE
    return sampled(_MULTIPLIERS[broken], _STEPS, _RATE, trainings.DELTA)


def _looked_into(train: Callable[[Any], Any]) -> Training:
    return Training(lambda model, dataset: train(dataset), _no_model, _records, is_claim_named=False)


def _no_model() -> None:
    """Return nothing: the trainings make their models."""


@cache
def _records() -> Any:
    """Return the records with the target."""
    plain = trainings.records()
    return with_record(plain, _TARGET, crafted_record(record_at(plain, _TARGET)))


@cache
def _without_target() -> Any:
    return without_record(_records(), _TARGET)


def _play(train: Callable[[Any], Any], generator: np.random.Generator, with_target: bool) -> Floats:
    """Train once from random weights, and leave the global generators as they were."""
    with spared_generators():
        seed_generators(generator)
        model: nn.Module = train(_records() if with_target else _without_target())
    values = torch.cat([value.detach().flatten() for value in model.state_dict().values()])
    return np.nan_to_num(values.double().numpy(), posinf=0.0, neginf=0.0)
