"""The releases of a run as they were played, for an accountant that shares no code with the guarantee.

Nothing here asks the mechanism for its events or for its effective noise: the numbers are read from the parts of the
mechanism, from the turns that units had in the rounds, and from the noise that the tables state.
"""

import math
from typing import assert_never

import numpy as np

from fl_audit.adjacency import Relation
from fl_audit.federation.federation import Federation
from fl_audit.mechanisms.contribution import AdaptiveClipping, PrivateTraining
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin
from fl_audit.mechanisms.threat_model import Adversary
from fl_audit.privacy.independent_epsilon import PlayedReleases

Releases = list[PlayedReleases]


def played_releases(federation: Federation) -> list[Releases]:
    """Return the releases of a federation's run, one list for each kind of client.

    There are several kinds only if clients train privately on shards of different sizes.
    """
    mechanism = federation.mechanism
    if isinstance(mechanism.contribution, PrivateTraining):
        return _of_clients(federation, mechanism.contribution)
    multiplier = _unknown_noise(federation)
    if isinstance(mechanism.clipping, AdaptiveClipping):
        # A unit moves the sum of the bits by 1/2, or by 1, over noise that is larger by this factor.
        multiplier = 1 / math.hypot(1 / multiplier, 1 / (multiplier * mechanism.clipping.bit_noise))
    turns = _turns(federation)
    if mechanism.rounds_needed > 1:
        joint_multiplier = multiplier / _largest_joint_change(federation, turns)
        return [[PlayedReleases(joint_multiplier, 1, distribution=mechanism.noise.distribution)]]
    often = int(turns.sum(axis=1).max())
    is_replaced = mechanism.adjacency.relation is Relation.REPLACE
    is_seen = federation.threat_model.sees_participation
    rate = mechanism.participation.rate
    distribution = mechanism.noise.distribution
    return [[PlayedReleases(multiplier, often, rate, is_replaced, is_seen, distribution=distribution)]]


def _unknown_noise(federation: Federation) -> float:
    """Return the scale of the noise that the adversary does not know, over the sensitivity of the sum."""
    noise = federation.mechanism.noise
    threat = federation.threat_model
    origin = noise.origin
    match origin:
        case NoiseOrigin.SERVER:
            # Correlated noise is whitened by the caller; a kind of noise says itself how much it adds in one round.
            is_correlated = federation.mechanism.rounds_needed > 1
            return noise.multiplier if is_correlated else noise.effective_multiplier(threat)
        case NoiseOrigin.CLIENTS:
            # Variances of a share, and of all shares but those that the adversary drew or was told.
            share = (noise.share_scale(1.0)) ** 2
            unknown_shares = 1 if threat.adversary is Adversary.SERVER else federation.clients - 1 - threat.colluders
            return math.sqrt(unknown_shares * share)
        case NoiseOrigin.NOBODY | NoiseOrigin.TRAINING:
            raise ValueError("no noise is added to the sums")
        case _:
            assert_never(origin)


def _turns(federation: Federation) -> np.ndarray:
    """Return in which rounds each unit may take part, bool (units, rounds); one row if all may take part in all."""
    units_by_round = [federation.eligible_units(number) for number in range(1, federation.rounds + 1)]
    if any(units is None for units in units_by_round):
        return np.ones((1, federation.rounds), dtype=np.bool_)
    turns = np.zeros(
        (max(int(units.max(initial=0)) for units in units_by_round if units is not None) + 1, len(units_by_round)),
        np.bool_,
    )
    for number, units in enumerate(units_by_round):
        turns[units, number] = True
    return turns


def _largest_joint_change(federation: Federation, turns: np.ndarray) -> float:
    """Return the largest change that a unit makes in all whitened releases together, over that of one contribution."""
    noise = federation.mechanism.noise
    rounds = federation.rounds
    rows = np.zeros((rounds, rounds))
    for number in range(1, rounds + 1):
        rows[number - 1, :number] = noise.whitening(number)
    products = np.abs(rows.T @ rows)
    return max(math.sqrt(float(products[np.ix_(turn, turn)].sum())) for turn in np.unique(turns, axis=0))


def _of_clients(federation: Federation, training: PrivateTraining) -> list[Releases]:
    """Return the steps of clients that train privately, for each size of their shards."""
    schedule = training.schedule
    noise = federation.mechanism.noise
    releases = []
    for records in training.shards:
        batches = math.ceil(records / schedule.batch)
        steps = schedule.steps if schedule.steps is not None else (schedule.epochs or 0) * batches
        steps_of_all_rounds = federation.rounds * steps
        played = PlayedReleases(noise.multiplier, steps_of_all_rounds, 1 / batches, distribution=noise.distribution)
        releases.append([played])
    return releases
