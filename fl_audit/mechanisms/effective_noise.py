"""Compute the noise multiplier that protects against an adversary, who may know a part of the noise.

The kinds of noise are in `fl_audit.mechanisms.noises`; likelihood ratios of a release are in `likelihood_ratio`.
"""

from fl_audit.errors import InputError
from fl_audit.mechanisms.noises.mechanism_noise import MechanismNoise, NoiseOrigin
from fl_audit.mechanisms.noises.registry import quoted_names
from fl_audit.mechanisms.threat_model import Adversary, ThreatModel


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
