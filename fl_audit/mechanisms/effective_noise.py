"""Compute the noise multiplier that protects against an adversary, draw noise shares, and add noise to sums.

The kinds of noise are in `fl_audit.mechanisms.noises`; likelihood ratios of a release are in `likelihood_ratio`.
Functions raise `InputError` for numbers out of range.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fl_audit.array_types import Floats
from fl_audit.errors import InputError
from fl_audit.mechanisms.noises.base import MechanismNoise, NoiseOrigin
from fl_audit.mechanisms.noises.registry import quoted_names
from fl_audit.mechanisms.threat_model import Adversary, ThreatModel
from fl_audit.privacy.accounting_enums import SensitivityKind as SensitivityKind
from fl_audit.randomness import Purpose, generator


def effective_noise_multiplier(noise: MechanismNoise, threat_model: ThreatModel) -> float:
    """Return the noise multiplier that counts only noise unknown to an adversary; 0 without noise.

    Parameters
    ----------
    noise
        The mechanism's noise, which defines which part of it each adversary knows.
    threat_model
        Position and knowledge of the adversary.

    Raises
    ------
    InputError
        If the adversary knows all noise, or is a server that adds the noise itself.
    """
    if noise.origin is NoiseOrigin.SERVER and threat_model.adversary is Adversary.SERVER:
        server = "adversary is 'server' and the server adds the noise, so it knows everything"
        accepted = f"accepted with adversary = 'server' are noise = {quoted_names(NoiseOrigin.CLIENTS)}"
        raise InputError(f"{server}: {accepted}")
    return noise.effective_multiplier(threat_model)


def noise_share(seed: int, trials: Sequence[int], server_round: int, size: int) -> Tensor:
    """Draw the noise that one client adds, as standard normal numbers, float32 (trials, size).

    Equal arguments give equal draws.

    Parameters
    ----------
    seed
        Secret seed of the client.
    trials
        Numbers of the trials, from 0.
    server_round
        Number of the round, from 1.
    size
        Number of parameters.
    """
    draws = np.empty((len(trials), size), dtype=np.float32)
    for row, trial in enumerate(trials):
        source = generator(seed, Purpose.NOISE_SHARE, trial=trial, round=server_round)
        source.standard_normal(out=draws[row], dtype=np.float32)
    return torch.from_numpy(draws)


def add_noise(total: Tensor, standard_normals: Tensor, sigma: Floats) -> Tensor:
    """Add `standard_normals` times `sigma` to the sums `total`, in place, and return the sums.

    Parameters
    ----------
    total
        Sums, float32 (trials, parameters); they are overwritten.
    standard_normals
        Standard normal draws, float32 (trials, parameters).
    sigma
        Standard deviation of the noise of each trial, shape (trials,).
    """
    return total.addcmul_(standard_normals, torch.from_numpy(sigma).float().unsqueeze(1))
