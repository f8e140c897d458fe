"""Synthetic openings in numpy: samples, shares, quantile bits and steps, counted by their definitions.

Counts are computed here from raw samples and draws, independently of the challenger's records in a federation.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from fl_audit.adjacency import Adjacency
from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.statistics.exact_counts import BinomialHistogram
from fl_audit.verdict.opened_secrets import RESIDUAL, NoiseShareProducts, OpenedParticipation, OpenedSecrets


@dataclass(frozen=True)
class OpenedSetting:
    """The opened values of a synthetic federation."""

    trials: int = 40  # number of trials
    rounds: int = 30  # number of rounds
    units: int = 60  # units of which samples are drawn, the target being the first
    rate: float = 0.2  # the claimed rate
    batch: int = 20  # trials of a batch
    clients: int = 5  # clients that add shares of the noise
    coordinates: int = 32  # coordinates whose shares are opened


@dataclass
class OpenedDraws:
    """Everything that is drawn in secret, honest until a breach changes it."""

    rng: np.random.Generator
    setting: OpenedSetting
    members: Flags  # (trials,)
    taken: Flags  # (trials, rounds, units), the target first
    shares: Floats  # (clients, trials, rounds, coordinates)
    bits: Floats  # noise of quantile bits over the claimed noise, (trials, rounds)
    last_bits: Flags  # of released numbers, (trials, rounds, coordinates)
    wrong_steps: Floats  # (trials, rounds)
    wrong_norms: Floats  # (trials, rounds)


def draw(rng: np.random.Generator, setting: OpenedSetting) -> OpenedDraws:
    """Return honest draws."""
    shape = setting.trials, setting.rounds
    nothing = np.zeros(shape)
    return OpenedDraws(
        rng,
        setting,
        rng.permutation(setting.trials) % 2 == 0,
        rng.random((*shape, setting.units)) < setting.rate,
        rng.standard_normal((setting.clients, *shape, setting.coordinates)),
        rng.standard_normal(shape),
        rng.random((*shape, setting.coordinates)) < 0.5,
        nothing,
        nothing.copy(),
    )


def opened_of(draws: OpenedDraws) -> OpenedSecrets:
    """Return the challenger's opened values of such draws; the insider is client 1, and knows only its own share."""
    claim = Claim(Adjacency.ADD_REMOVE_RECORD, gaussian_rounds(2.0, draws.setting.rounds, draws.setting.rate), 1e-2)
    honest = OpenedSecrets(draws.members, claim, is_kept=True, is_sampled=True, has_shares=True, is_adaptive=True)
    return replace(
        honest,
        samples=_samples(draws),
        shares=_shares(draws),
        bits=draws.bits,
        wrong_steps=draws.wrong_steps,
        wrong_norms=draws.wrong_norms,
        odd=(2 * draws.last_bits.sum(axis=2) - draws.setting.coordinates) / math.sqrt(draws.setting.coordinates),
    )


def _samples(draws: OpenedDraws) -> OpenedParticipation:
    participation = draws.taken[:, :, 1:]
    setting = draws.setting
    target = draws.taken[:, :, 0]
    units = setting.units - 1
    overlaps = np.zeros(target.shape, dtype=np.int64)
    overlaps[:, 1:] = (participation[:, 1:] & participation[:, :-1]).sum(axis=2)
    names: dict[bytes, int] = {}
    digests = [names.setdefault(row.tobytes(), len(names)) for row in participation.reshape(-1, units)]
    with_d = draws.members[:, None]
    cells = (with_d & target, with_d & ~target, ~with_d & target, ~with_d & ~target)
    of_units = np.stack([participation[cell].sum(axis=0) for cell in cells], axis=1)
    crowds = tuple(
        _counted(
            participation[at : at + setting.batch].sum(axis=0),
            len(participation[at : at + setting.batch]),
            setting.rate,
        )
        for at in range(0, setting.trials, setting.batch)
    )
    return OpenedParticipation(
        setting.rate,
        units,
        participation.sum(axis=2),
        overlaps,
        np.array(digests, dtype=np.float64).reshape(target.shape),
        target,
        of_units,
        np.arange(1, units + 1),
        _counted(participation.sum(axis=1), setting.rounds, setting.rate),
        crowds,
    )


def _counted(values: Integers, trials: int, rate: float) -> BinomialHistogram:
    return BinomialHistogram(trials, rate, np.bincount(values.reshape(-1), minlength=trials + 1))


def _shares(draws: OpenedDraws) -> NoiseShareProducts:
    """Return products of all shares, and of the sum of those that the insider, client 1, does not know."""
    other_clients = [client for client in range(draws.setting.clients) if client != 1]
    rows = np.stack([draws.shares[other_clients].sum(axis=0), *draws.shares]).reshape(draws.setting.clients + 1, -1)
    return NoiseShareProducts(np.arange(RESIDUAL, draws.setting.clients), rows @ rows.T, rows.shape[1], (1,))
