"""A second challenger with another secret seed: noise and samples of a server that follow no secret are found.

A strategy that draws from a seed of its own adds noise that everybody can draw again. Within one run it looks like any
other noise. So two servers begin anew, of which one has the secret seed of the run and the other another one, and are
asked for the first rounds of a few trials. Their models and settings are the same; noise and samples must not be.

A generator may stand in a module, outside of the strategy. So the modules of a strategy that is not ours are imported
anew for each of the two servers. A strategy that is defined inside of a function cannot be imported; its modules keep
their generators, which the answer says.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor

from fl_audit.array_types import Floats
from fl_audit.federation.federation import Federation
from fl_audit.generator_states import spared_generators
from fl_audit.learning.stacked_layers import ParameterLayout
from fl_audit.randomness import Purpose, generator
from fl_audit.strategies.contributors import ClientRoles, call_of
from fl_audit.strategies.fresh_imports import imported_anew
from fl_audit.strategies.queries import BatchTrainingState
from fl_audit.strategies.secret_draws import SeededChallenger
from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy
from fl_audit.trial_batches import TrialBatch
from fl_audit.verdict.exact_questions import SecretDraw

MakeServer = Callable[[type[TrialBatchStrategy], SeededChallenger, Sequence[TrialBatch]], TrialBatchStrategy]
"""Function that returns a server of a class, before its first round, for a challenger and batches of trials."""
_TRIALS, _SAMPLED_TRIALS, _ROUNDS = 4, 32, 2
_FEWEST = 8  # smallest number of values of which more than half are never equal by chance
_CLOSE = 1e-6  # difference of two draws, over the noise, up to which they are called equal: one in a million is
_CHANCE = 1e-9


@dataclass(frozen=True)
class SecondSeed:
    """Draws that two servers with different secret seeds are asked for."""

    public: Federation  # public facts of the federation
    roster: ClientRoles  # clients of the federation, with their units
    layout: ParameterLayout  # tensors of the model
    challenger: SeededChallenger  # challenger of the run
    strategy: type[TrialBatchStrategy]  # class of the server
    make: MakeServer
    initial: Callable[[Sequence[int]], Tensor]  # from numbers of trials to their public initial models

    def repeated(self) -> tuple[dict[int, float], bool]:
        """Return for each `SecretDraw` the share that both servers have in common, if enough are compared.

        Also return whether generators in modules began anew.
        """
        first_challenger = self.challenger
        other_seed = int(generator(first_challenger.seed, Purpose.EXACT_CHECKS, round=1).integers(2**63))
        challengers = [first_challenger, replace(first_challenger, seed=other_seed)]
        draws_of_challengers = list[dict[SecretDraw, np.ndarray]]()
        is_anew = True
        with spared_generators():
            for challenger in challengers:
                fresh = self.strategy
                if fresh is not TrialBatchStrategy:
                    fresh = imported_anew(self.strategy) or self.strategy
                    is_anew = is_anew and fresh is not self.strategy
                draws_of_challengers.append(self._drawn(self._server(fresh, challenger)))
        first, second = draws_of_challengers
        shares = dict[int, float]()
        if SecretDraw.NOISE in first:
            shares |= _share_of(SecretDraw.NOISE, [first[SecretDraw.NOISE], second[SecretDraw.NOISE]], self.layout)
        if SecretDraw.SHARES in first:
            shares[SecretDraw.SHARES] = float(np.mean(first[SecretDraw.SHARES] == second[SecretDraw.SHARES]))
        if SecretDraw.BITS in first:
            apart = np.abs(first[SecretDraw.BITS] - second[SecretDraw.BITS])
            shares[SecretDraw.BITS] = float(np.mean(apart < _CLOSE))
        if SecretDraw.SAMPLES in first:
            shares |= _equal_samples([first[SecretDraw.SAMPLES], second[SecretDraw.SAMPLES]])
        return shares, is_anew

    def _drawn(self, strategy: TrialBatchStrategy) -> dict[SecretDraw, np.ndarray]:
        """Return all draws of a server's first rounds."""
        mechanism, draws_by_kind = self.public.mechanism, dict[SecretDraw, np.ndarray]()
        if mechanism.adds_noise and not mechanism.clients_add_noise:
            draws_by_kind[SecretDraw.NOISE] = self._noise(strategy)
        if self.public.clients_draw:
            draws_by_kind[SecretDraw.SHARES] = np.array(
                [strategy.challenger.noise_seed(client) for client in range(self.public.clients)]
            )
        if mechanism.is_adaptive:
            draws_by_kind[SecretDraw.BITS] = strategy.challenger.quantile_normals(range(_SAMPLED_TRIALS), 1).numpy()
        if mechanism.is_sampled:
            draws_by_kind[SecretDraw.SAMPLES] = self._samples(strategy)
        return draws_by_kind

    def _server(self, strategy: type[TrialBatchStrategy], challenger: SeededChallenger) -> TrialBatchStrategy:
        batch = TrialBatch(0, 0, _TRIALS)
        server = self.make(strategy, challenger, (batch,))
        norms = None
        if self.public.mechanism.is_adaptive:
            norms = torch.full((_TRIALS,), self.public.mechanism.clipping_norm, dtype=torch.float64)
        server.transcripts[batch.name] = BatchTrainingState([self.initial(batch.trials)], norms=norms)
        return server

    def _noise(self, strategy: TrialBatchStrategy) -> Floats:
        """Return what a server makes of sums of 0 in its first rounds, over the noise, (trials and rounds, size)."""
        mechanism, (batch,) = self.public.mechanism, strategy.batches
        norms = np.full(batch.count, mechanism.clipping_norm)
        sigma = mechanism.server_scale(norms, norms if mechanism.is_adaptive else None)
        noises = [
            strategy.noised_release(batch, number, torch.zeros(batch.count, self.layout.size), sigma)
            .before_changes.double()
            .numpy()
            / sigma[:, None]
            for number in range(1, min(_ROUNDS, self.public.rounds) + 1)
        ]
        return np.concatenate(noises)

    def _samples(self, strategy: TrialBatchStrategy) -> np.ndarray:
        """Return the samples of units of the first rounds, bool (trials and rounds, units)."""
        batch = TrialBatch(0, 0, _SAMPLED_TRIALS)
        rounds = range(1, min(_ROUNDS, self.public.rounds) + 1)
        calls = (call_of(self.public, self.roster, strategy.challenger, batch, number) for number in rounds)
        return np.concatenate([call.taking_part.numpy() for call in calls if call.taking_part is not None])


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
