"""Cases of private trainings with Opacus: one trial is one training, and it releases the weights at its end.

The target is one record more, with large values. What is claimed is the epsilon that the training itself works out.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import Tensor, nn

from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.local_training.edited_datasets import crafted_record, record_at, with_record, without_record
from fl_audit.app_audits.local_training.pitfalls import Pitfall
from tests.validation.corpus.case import Case, Claim, Floats, Layout, Training
from tests.validation.corpus.truth import NONE, sampled
from tests.validation.faulty_mechanisms.private_trainings import BATCH, EXAMPLES, HONEST, PLANTED, RECORDS

FAMILY = "training"
_EXAMPLE = EXAMPLES[0]
_TARGET = 7
_RATE = 1 / (-(-RECORDS // BATCH))
_STEPS = -(-RECORDS // BATCH)
_LEFT_OUT = (
    Pitfall.CLAIMED_EPSILON,  # the same training as that of a fresh accountant
    Pitfall.UNTAKEN_STEPS,  # costs no privacy: it is an honest case
    Pitfall.LARGE_DELTA,  # the claim holds at that delta, which is too large for a claim
)
_UNBOUNDED = (
    Pitfall.NO_NOISE,
    Pitfall.NOISE_DISTRIBUTION,
    Pitfall.REPEATED_NOISE,
    Pitfall.SEEDED_NOISE,
    Pitfall.TRAINED_BEFORE,
    Pitfall.UNWRAPPED,
    Pitfall.OUTSIDE_OPTIMIZER,
    Pitfall.MOVED_OUTSIDE,
    Pitfall.FROZEN_MOVED,
    Pitfall.UNKNOWN_TENSORS,
    Pitfall.BUFFERS,
)
"""Something leaves without noise, with noise that is known or bounded, or with a sensitivity that nothing bounds."""
_REALLY: dict[Pitfall, tuple[float, int]] = {
    Pitfall.EARLY_EPSILON: (1.0, _STEPS),
    Pitfall.UNCOUNTED_STEPS: (1.0, _STEPS),
    Pitfall.WRONG_RATE: (1.0, _STEPS),
    Pitfall.WRONG_NOISE_COUNTED: (1.0, _STEPS),
    Pitfall.FRESH_ACCOUNTANT: (1.0, 2 * _STEPS),
    Pitfall.REPEATED_BATCH: (0.5**0.5, _STEPS),
    Pitfall.OVER_NORM: (1 / 3, _STEPS),
    Pitfall.LAYER_CLIPPING: (0.5, _STEPS),
    Pitfall.SMALL_NOISE: (0.5, _STEPS),
}
"""Noise over the sensitivity and Poisson steps of what really runs, where it amounts to that."""
_SMALL_SAMPLES = -(-RECORDS // 4)  # steps of an epoch in batches of four
_HONEST_SAMPLING = {
    **dict.fromkeys(("two epochs", "falling learning rate", "public test data"), (2 * _STEPS, _RATE)),
    "small samples": (_SMALL_SAMPLES, 1 / _SMALL_SAMPLES),
}
"""Steps of honest trainings and their rate, where they are other ones than those of the plain training."""
_UNKNOWN = "aimed at epsilon"
"""An honest training whose noise follows from an epsilon."""


def _label(words: str) -> str:
    return f"{FAMILY}/" + "-".join(words.replace(",", "").replace("'", "").split())


def _faulty() -> dict[str, Pitfall]:
    return {_label(pitfall.value): pitfall for pitfall in PLANTED if pitfall not in _LEFT_OUT}


def _honest() -> dict[str, Callable[..., Any]]:
    trainings = {f"honest {name}": train for name, train in HONEST.items()}
    return {_label(name): train for name, train in trainings.items()} | {
        _label("honest counted steps not taken"): PLANTED[Pitfall.UNTAKEN_STEPS]
    }


TWIN = _label("honest plain")


def names() -> list[str]:
    """Return the names of all cases."""
    return [*_faulty(), *_honest()]


def case(name: str) -> Case:
    """Return a case by its name."""
    pitfall = _faulty().get(name)
    train = partial(_honest()[name] if pitfall is None else PLANTED[pitfall], _EXAMPLE)
    play = partial(_play, train)
    wrong = "" if pitfall is None else f"The training has the pitfall: {pitfall.value}."
    epsilon, delta, size = _claimed(train)
    claim = Claim(epsilon, delta, str(Adjacency.ADD_REMOVE_RECORD), 1, limits=((epsilon, delta),))
    true = _truth_of_honest(name, delta) if pitfall is None else _truth_of_faulty(pitfall, delta)
    looked_into = Training(train, _EXAMPLE.model, _records)
    layout = Layout(1, (("weights", size),))
    return Case(name, claim, play, layout, true, wrong, TWIN if pitfall else "", training=looked_into)


def _truth_of_faulty(pitfall: Pitfall, delta: float) -> float | None:
    if pitfall in _UNBOUNDED:
        return NONE
    if pitfall not in _REALLY:
        return None
    multiplier, steps = _REALLY[pitfall]
    return sampled(multiplier, steps, _RATE, delta)


def _truth_of_honest(name: str, delta: float) -> float | None:
    training_name = name.removeprefix(f"{FAMILY}/honest-").replace("-", " ")
    return (
        None
        if training_name == _UNKNOWN
        else sampled(1.0, *_HONEST_SAMPLING.get(training_name, (_STEPS, _RATE)), delta)
    )


@contextmanager
def _engines(get_epsilon: Callable[[PrivacyEngine, float], float]) -> Iterator[None]:
    """Let the engines of Opacus work out epsilon in another way meanwhile."""
    original = PrivacyEngine.get_epsilon
    PrivacyEngine.get_epsilon = get_epsilon
    try:
        yield
    finally:
        PrivacyEngine.get_epsilon = original


def _claimed(train: Callable[[nn.Module, Any], Any]) -> tuple[float, float, int]:
    """Return the last epsilon that a training works out, its delta, and how many numbers it releases."""
    epsilon_calls = list[tuple[float, float]]()
    original = PrivacyEngine.get_epsilon

    def listening(engine: PrivacyEngine, delta: float) -> float:
        epsilon_calls.append((float(original(engine, delta)), delta))
        return epsilon_calls[-1][0]

    with _engines(listening):
        size = _trained(train, np.random.default_rng(0), True).size
    return *epsilon_calls[-1], size


@cache
def _records() -> Any:
    """Return the records with the target."""
    plain = _EXAMPLE.dataset()
    return with_record(plain, _TARGET, crafted_record(record_at(plain, _TARGET)))


@cache
def _without_target() -> Any:
    return without_record(_records(), _TARGET)


def _play(train: Callable[[nn.Module, Any], Any], generator: np.random.Generator, with_target: bool) -> Floats:
    # Working out epsilon takes four fifths of the time, and is no part of what is released.
    with _engines(lambda engine, delta: 0.0):
        return _trained(train, generator, with_target)


def _trained(train: Callable[[nn.Module, Any], Any], generator: np.random.Generator, with_target: bool) -> Floats:
    """Train once from the same initial weights, and leave the global generator of torch as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = _EXAMPLE.model()
        torch.manual_seed(int(generator.integers(2**62)))
        came = train(model, _records() if with_target else _without_target())
    state = came if isinstance(came, dict) else (came if isinstance(came, nn.Module) else model).state_dict()
    values: list[Tensor] = [value.detach().flatten() for value in state.values()]
    return np.nan_to_num(torch.cat(values).to(torch.float64).numpy(), posinf=0.0, neginf=0.0)
