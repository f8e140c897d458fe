"""A second challenger with another secret seed: noise and samples of a server that follow no secret are found.

A strategy that draws from a seed of its own adds noise that everybody can draw again. Within one run it looks like any
other noise. So two servers begin anew, of which one has the secret seed of the run and the other another one, and are
asked for the first rounds of a few trials. Their models and settings are the same; noise and samples must not be.

A generator may stand in a module, outside of the strategy. So the modules of a strategy that is not ours are imported
anew for each of the two servers. A strategy that is defined inside of a function cannot be imported; its modules keep
their generators, which the answer says.
"""

import os
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor

from fl_audit.array_types import Floats
from fl_audit.federation.federation import Federation
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.generator_states import spared_generators
from fl_audit.learning.stacked_layers import ParameterLayout
from fl_audit.mechanisms.mechanism import Mechanism
from fl_audit.randomness import Purpose, generator
from fl_audit.strategies.contributors import call_of
from fl_audit.strategies.queries import BatchTrainingState
from fl_audit.strategies.secret_draws import SeededChallenger
from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy
from fl_audit.trial_batches import TrialBatch
from fl_audit.verdict.exact_questions import SecretDraw

_TRIALS, _SAMPLED_TRIALS, _ROUNDS = 4, 32, 2
_FEWEST = 8  # smallest number of values of which more than half are never equal by chance
_CLOSE = 1e-6  # difference of two draws, over the noise, up to which they are called equal: one in a million is
_CHANCE = 1e-9
_INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_OURS = "fl_audit"


def draws_in_common(
    strategy: TrialBatchStrategy,
    federation: LoadedFederation,
    challenger: SeededChallenger,
    initial: Callable[[Sequence[int]], Tensor],
) -> tuple[dict[int, float], bool]:
    """Return for each `SecretDraw` the share that two servers with different secret seeds have in common.

    A share is left out if too few draws are compared. Also return whether generators in modules began anew.

    Parameters
    ----------
    strategy
        The server of the run, of whose class the two servers are.
    federation
        The federation.
    challenger
        Challenger of the run, with its secret seed.
    initial
        Function from numbers of trials to their public initial models.
    """
    kind = type(strategy)
    other_seed = int(generator(challenger.seed, Purpose.EXACT_CHECKS, round=1).integers(2**63))
    draws_of_challengers = list[dict[SecretDraw, np.ndarray]]()
    is_anew = True
    with spared_generators():
        for seeded in (challenger, replace(challenger, seed=other_seed)):
            fresh = kind
            if fresh is not TrialBatchStrategy:
                fresh = _imported_anew(kind) or kind
                is_anew = is_anew and fresh is not kind
            begun = _begun(fresh, strategy, federation, seeded, initial)
            draws_of_challengers.append(_draws_of_first_rounds(begun, federation.public))
    first, second = draws_of_challengers
    shares = dict[int, float]()
    if SecretDraw.NOISE in first:
        shares |= _share_of(
            SecretDraw.NOISE, [first[SecretDraw.NOISE], second[SecretDraw.NOISE]], federation.model.layout
        )
    if SecretDraw.SHARES in first:
        shares[SecretDraw.SHARES] = float(np.mean(first[SecretDraw.SHARES] == second[SecretDraw.SHARES]))
    if SecretDraw.BITS in first:
        distances = np.abs(first[SecretDraw.BITS] - second[SecretDraw.BITS])
        shares[SecretDraw.BITS] = float(np.mean(distances < _CLOSE))
    if SecretDraw.SAMPLES in first:
        shares |= _equal_samples([first[SecretDraw.SAMPLES], second[SecretDraw.SAMPLES]])
    return shares, is_anew


def _begun(
    kind: type[TrialBatchStrategy],
    strategy: TrialBatchStrategy,
    federation: LoadedFederation,
    challenger: SeededChallenger,
    initial: Callable[[Sequence[int]], Tensor],
) -> TrialBatchStrategy:
    """Return a server of a class that is ready for its first round, with the public initial models."""
    public, batch = federation.public, TrialBatch(0, 0, _TRIALS)
    size = federation.model.layout.size
    new = kind(
        public, strategy.roster, challenger, (batch,), size, strategy.time_limit, lambda batch, server_round: None
    )
    new.transcripts[batch.name] = BatchTrainingState.of_start(initial(batch.trials), public.mechanism)
    return new


def _draws_of_first_rounds(strategy: TrialBatchStrategy, federation: Federation) -> dict[SecretDraw, np.ndarray]:
    """Return all draws of a server's first rounds."""
    mechanism, draws_by_kind = federation.mechanism, dict[SecretDraw, np.ndarray]()
    rounds = range(1, min(_ROUNDS, federation.rounds) + 1)
    if mechanism.adds_noise and not mechanism.clients_add_noise:
        draws_by_kind[SecretDraw.NOISE] = _noise(strategy, mechanism, rounds)
    if federation.clients_draw:
        draws_by_kind[SecretDraw.SHARES] = np.array(
            [strategy.challenger.noise_seed(client) for client in range(federation.clients)]
        )
    if mechanism.is_adaptive:
        draws_by_kind[SecretDraw.BITS] = strategy.challenger.quantile_normals(range(_SAMPLED_TRIALS), 1).numpy()
    if mechanism.is_sampled:
        batch = TrialBatch(0, 0, _SAMPLED_TRIALS)
        calls = (call_of(federation, strategy.roster, strategy.challenger, batch, number) for number in rounds)
        samples = [call.taking_part.numpy() for call in calls if call.taking_part is not None]
        draws_by_kind[SecretDraw.SAMPLES] = np.concatenate(samples)
    return draws_by_kind


def _noise(strategy: TrialBatchStrategy, mechanism: Mechanism, rounds: range) -> Floats:
    """Return what a server makes of sums of 0 in its first rounds, over the noise, (trials and rounds, size)."""
    (batch,) = strategy.batches
    norms = np.full(batch.count, mechanism.clipping_norm)
    sigma = mechanism.server_scale(norms, norms if mechanism.is_adaptive else None)
    noises = list[Floats]()
    for number in rounds:
        released = strategy.noised_release(batch, number, torch.zeros(batch.count, strategy.parameters), sigma)
        noises.append(released.before_changes.double().numpy() / sigma[:, None])
    return np.concatenate(noises)


def _share_of(kind: SecretDraw, noises: Sequence[Floats], layout: ParameterLayout) -> dict[int, float]:
    """Return the largest share, over the tensors of the model, of draws that are equal but for their signs."""
    equal = np.abs(np.abs(noises[0]) - np.abs(noises[1])) < _CLOSE
    equals = [equal[:, slice] for slice in layout.slices().values()]
    shares = [float(values.mean()) for values in equals if values.size >= _FEWEST]
    return {kind: max(shares)} if shares else {}


def _equal_samples(samples: Sequence[np.ndarray]) -> dict[int, float]:
    """Return the share of samples that are equal, unless so many could be equal by chance."""
    first, second = samples
    rates = first.mean(axis=0)
    by_chance = float(np.prod(rates**2 + (1 - rates) ** 2))
    if binom.sf(len(first) // 2, len(first), by_chance) > _CHANCE:
        return {}
    return {SecretDraw.SAMPLES: float((first == second).all(axis=1).mean())}


def _imported_anew(strategy: type[TrialBatchStrategy]) -> type[TrialBatchStrategy] | None:
    """Return a class as its module defines it when it is imported anew, with the user's modules that it imports.

    The modules that are imported stay as they are. None if the class cannot be imported, such as one that is defined
    inside of a function or in a notebook.
    """
    modules = {name: module for name, module in sys.modules.items() if _is_of_user(name, module)}
    if strategy.__module__ not in modules or "<locals>" in strategy.__qualname__:
        return None
    for name in modules:
        del sys.modules[name]
    try:
        attribute: object = import_module(strategy.__module__)
        for name_part in strategy.__qualname__.split("."):
            attribute = getattr(attribute, name_part)
    except Exception:  # a module of somebody else may refuse to be imported twice in any way
        return None
    finally:
        for name in [name for name, module in sys.modules.items() if _is_of_user(name, module)]:
            del sys.modules[name]
        sys.modules.update(modules)
    return attribute if isinstance(attribute, type) and issubclass(attribute, TrialBatchStrategy) else None


def _is_of_user(name: str, module: ModuleType) -> bool:
    """Return whether a module is neither ours nor installed: one that a user wrote and imported."""
    file = getattr(module, "__file__", None)
    if file is None or name == "__main__" or name.partition(".")[0] == _OURS:
        return False
    # There are thousands of modules, and the path of each as an object would take ten times as long.
    return not _is_installed(os.path.dirname(file))


@cache
def _is_installed(directory: str) -> bool:
    """Return whether a directory belongs to Python or to its installed packages."""
    path = Path(directory).resolve()
    return any(path.is_relative_to(installed) for installed in _INSTALLED)
