"""Mechanism: the one description of a round's release that the server, the accountant and the adversary all use.

The server makes the release, the accountant derives the guarantee, and the adversary computes its likelihood ratio, all
from the same mechanism. So noise cannot be calibrated to one adjacency and accounted under another. The parts of a
mechanism are adjacency, contribution, clipping, participation, noise and optimizer. Further kinds of noise and
participation can be registered in `fl_audit.mechanisms`; the kinds of the other parts are fixed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

import numpy as np

from fl_audit.adjacency import Adjacency, Unit
from fl_audit.array_types import Floats
from fl_audit.errors import InputError, require
from fl_audit.learning.losses import PLAIN_LOSS, TrainingLoss
from fl_audit.learning.optimizers import ServerOptimizer
from fl_audit.mechanisms.compatibility_checks import require_combination
from fl_audit.mechanisms.contribution import AdaptiveClipping, Clipping, Contribution, PrivateTraining, RecordGradients
from fl_audit.mechanisms.noises.mechanism_noise import AccountedRounds, MechanismNoise, NoiseOrigin, SumSensitivity
from fl_audit.mechanisms.noises.registry import NOISES, StoredNoise, quoted_names
from fl_audit.mechanisms.participations.registry import PARTICIPATIONS, StoredParticipation
from fl_audit.mechanisms.threat_model import CLIENT_ALONE, Adversary, ThreatModel
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.privacy.events import ReleaseEvent
from fl_audit.privacy.gaussian import combined_multiplier, require_positive
from fl_audit.words import name_list

NO_LIKELIHOOD_RATIO = "the insider has nothing to weigh where nothing is claimed: set insider = false in [audit]"


@dataclass(frozen=True)
class Mechanism:
    """Description of round i's release: r_i = sum of clipped contributions + N(0, sigma_i^2 I), sigma_i = z Delta_i.

    z is the noise multiplier and Delta_i the sensitivity of the sum over the participating units. Sampling of units
    does not change Delta_i, but strengthens the guarantee (see `SampledGaussianRelease`). Raises `InputError` if a part
    has an unknown type, or the parts are incompatible.
    """

    adjacency: Adjacency  # the adjacency to which noise and guarantee refer
    clipping: Clipping  # clipping of one contribution
    participation: StoredParticipation  # rule that decides which units participate in a round
    noise: StoredNoise  # noise that is added to the sum
    # Fixed, public number by which the noised sum is divided: n, or q n with sampling; positive and finite.
    denominator: float
    optimizer: ServerOptimizer  # optimizer by which the server updates the model from the release
    contribution: Contribution = field(default_factory=RecordGradients)  # contribution of one unit
    loss: TrainingLoss = PLAIN_LOSS  # loss of a record in training, whose gradients contributions are made of

    def __post_init__(self) -> None:
        _require_known("contribution", self.contribution, get_args(Contribution))
        _require_known("clipping", self.clipping, get_args(Clipping))
        _require_known("participation", self.participation, tuple(PARTICIPATIONS.values()))
        _require_known("noise", self.noise, tuple(NOISES.values()))
        _require_known("optimizer", self.optimizer, (ServerOptimizer,))
        unit = self.contribution.unit
        accepted = " and ".join(adjacency for adjacency in Adjacency if adjacency.unit is unit)
        clipped = f"adjacency is '{self.adjacency}', and what is clipped are contributions of a {unit}"
        require(self.adjacency.unit is unit or not self.adds_noise, f"{clipped}: accepted are {accepted}")
        require_positive(denominator=self.denominator)
        require_combination(self.adjacency, self.contribution, self.clipping, self.participation, self.noise)

    @property
    def adds_noise(self) -> bool:
        """Whether noise is added; without noise there is no claim."""
        return self.noise.origin is not NoiseOrigin.NOBODY

    @property
    def unit(self) -> Unit:
        """Kind of unit by which D and D' differ and which a guarantee protects: record, user or client."""
        return self.adjacency.unit

    @property
    def is_sampled(self) -> bool:
        """Whether each round uses a random sample of the units."""
        return self.participation.is_sampled or self.sampling_rate < 1

    @property
    def sampling_rate(self) -> float:
        """Probability with which a unit participates in a round; the smallest of `rates` if there are several."""
        return self.rates[0]

    @property
    def rates(self) -> tuple[float, ...]:
        """Distinct probabilities with which units participate in a round, ascending.

        There are several only if clients sample their own records for DP-SGD.
        """
        inside = self.contribution.rates if isinstance(self.contribution, PrivateTraining) else (1.0,)
        return tuple(self.participation.rate * rate for rate in inside)

    @property
    def clipping_norm(self) -> float:
        """Clipping norm C of one contribution, in the first round if it is adaptive; infinite without clipping."""
        return self.clipping.norm

    @property
    def is_adaptive(self) -> bool:
        """Whether the clipping norm is adaptive."""
        return isinstance(self.clipping, AdaptiveClipping)

    @property
    def noise_multiplier(self) -> float:
        """Noise multiplier z as defined by the kind of noise; 0 without noise."""
        return self.noise.multiplier

    @property
    def scaling(self) -> SensitivityKind:
        """Sensitivity to which the noise is scaled, global or local; global without noise."""
        return self.noise.scaling

    @property
    def clients_add_noise(self) -> bool:
        """Whether the clients, and not the server, add the noise."""
        return self.noise.origin in (NoiseOrigin.CLIENTS, NoiseOrigin.TRAINING)

    @property
    def knows_llr(self) -> bool:
        """Whether an attacking client can compute the exact log-likelihood ratio of its observation.

        If it cannot, the attacker has only scores. The kind of noise decides it, see `MechanismNoise.knows_llr`.
        """
        return self.noise.knows_llr(self.contribution)

    @property
    def has_measurable_noise(self) -> bool:
        """Whether the noise of a release can be measured, which the kind of noise decides."""
        return self.noise.is_measurable(self.contribution)

    @property
    def rounds_needed(self) -> int:
        """Number of latest rounds whose releases enter a round's likelihood ratio; 1 for independent noise."""
        return self.noise.rounds_needed

    @property
    def global_sensitivity(self) -> float:
        """Global sensitivity of a round's sum, in the norm of the clipping; infinite without clipping.

        If the clipping norm is adaptive, it is the sensitivity of the first round's sum.
        """
        return self.adjacency.sensitivity_of_sum(self.clipping_norm)

    @property
    def bit_sensitivity(self) -> float:
        """Global sensitivity of the sum of the centred quantile bits.

        A contribution's bit is 1/2 if it is within the adaptive clipping norm, else -1/2.
        """
        return self.adjacency.sensitivity_of_sum(0.5)

    @property
    def bit_sigma(self) -> float:
        """Standard deviation of the noise on the sum of quantile bits; 0 if clipping is not adaptive."""
        if not isinstance(self.clipping, AdaptiveClipping):
            return 0.0
        # The bits' noise is relative to the accounted multiplier, which may differ from the noise's own `multiplier`.
        z = effective_noise_multiplier(self.noise, CLIENT_ALONE)
        return self.clipping.bit_noise * z * self.bit_sensitivity

    @property
    def is_private_release(self) -> bool:
        """Whether noise is added and its scale does not depend on the data, as differential privacy requires."""
        return self.adds_noise and self.scaling is SensitivityKind.GLOBAL

    def with_multiplier(self, multiplier: float) -> "Mechanism":
        """Return a copy with the noise multiplier z = `multiplier`; a mechanism without noise is returned unchanged."""
        return replace(self, noise=self.noise.with_multiplier(multiplier))

    def noise_scale(self, local_sensitivity: Floats, threat_model: ThreatModel, norms: Floats | None = None) -> Floats:
        """Return the scale of the noise that an adversary does not know, shaped as `local_sensitivity`.

        The scale is that parameter of the distribution which `noise.scale_words` names, such as the standard deviation.
        The noise is on the round's sum. If clients take one noised step per round (DP-SGD), it is on one client's
        clipped sum. The result is 0 without noise. It exists only for noise that can be measured
        (`has_measurable_noise`).

        Parameters
        ----------
        local_sensitivity
            Norm ||f_i(D) - f_i(D')|| of the difference of the round's sums, at the current model parameters, at least
            0, of any shape.
            Only the shape is used if the noise is scaled to the global sensitivity.
        threat_model
            Position and knowledge of the adversary.
        norms
            Adaptive clipping norms of the round, broadcastable to `local_sensitivity`; None if the norm is fixed.
        """
        assert self.has_measurable_noise, "noise in several steps of a client's training has no scale on the sum"
        largest = self.global_sensitivity if norms is None else self.adjacency.sensitivity_of_sum(1.0) * norms
        changes = np.broadcast_to(np.asarray(largest, dtype=np.float64), np.shape(local_sensitivity))
        sensitivity = SumSensitivity(local_sensitivity, changes, self.clipping_norm)
        return self.noise.scale(sensitivity, effective_noise_multiplier(self.noise, threat_model))

    def server_scale(self, local_sensitivity: Floats, norms: Floats | None = None) -> Floats:
        """Return the scale of the server's noise in each trial; ask only for noise that is added to sums.

        For correlated noise, the result is the standard deviation of the independent draws z.

        Parameters
        ----------
        local_sensitivity
            Local sensitivity of every trial, shape (trials,) or (trials, rounds).
        norms
            Adaptive clipping norms, of the shape of `local_sensitivity`; None if the norm is fixed.
        """
        assert self.noise.origin is not NoiseOrigin.TRAINING, "clients add this noise in the steps of their training"
        return self.noise_scale(local_sensitivity, CLIENT_ALONE, norms)

    @property
    def share_scale(self) -> float:
        """Standard deviation of the noise that each client adds; 0 if the server adds the noise."""
        return self.noise.share_scale(self.global_sensitivity)

    def claimed_multiplier(self, threat_model: ThreatModel) -> float:
        """Return the noise multiplier of all releases of a round against an adversary; 0 without noise.

        With adaptive clipping, a round has two releases, the sum of contributions and the sum of quantile bits. The
        result is the multiplier of one release that gives the same guarantee as both.
        """
        z = effective_noise_multiplier(self.noise, threat_model)
        return combined_multiplier(z, z * self.clipping.bit_noise) if isinstance(self.clipping, AdaptiveClipping) else z

    def round_multiplier(self, threat_model: ThreatModel) -> float:
        """Return the noise multiplier of a round: the noise's standard deviation over the sensitivity of the round.

        The sensitivity is the largest norm of the difference between the sums under D and D', as far as the adversary
        can see the difference. Only noise that the adversary does not know counts. The result is 0 without noise.
        """
        z = effective_noise_multiplier(self.noise, threat_model)
        return self.noise.round_multiplier(z, self.participation)

    def events_of_each(self, rounds: int, threat_model: ThreatModel) -> tuple[tuple[ReleaseEvent, ...], ...]:
        """Return the release events of the first k rounds for the accountant, one tuple for every kind of client.

        There are several kinds only if clients train by DP-SGD on shards of several sizes. A guarantee has to hold for
        all.

        Parameters
        ----------
        rounds
            Number of rounds k, from 1.
        threat_model
            The adversary against which the guarantee is computed.
        """
        z = self.claimed_multiplier(threat_model)
        is_seen = threat_model.sees_participation
        accounted = AccountedRounds(rounds, z, self.participation, is_seen)
        if isinstance(self.contribution, PrivateTraining):
            accounted = replace(accounted, schedule=self.contribution.schedule, shards=self.contribution.shards)
        return self.noise.events_of_each(accounted)

    def events(self, rounds: int, threat_model: ThreatModel) -> tuple[ReleaseEvent, ...]:
        """Return the release events of k rounds, from which an accountant computes epsilon; empty without noise.

        If clients train by DP-SGD, use `events_of_each`, because there may be several kinds of clients.

        Parameters
        ----------
        rounds
            Number of rounds k, at least 1.
        threat_model
            The adversary against which the guarantee is computed. The guarantee is weaker if the adversary knows part
            of the noise, or sees who participates.
        """
        (only,) = self.events_of_each(rounds, threat_model)
        return only


def _require_known(name: str, value: object, kinds: Sequence[type]) -> None:
    """Raise `InputError` unless the type of a mechanism's part is one of the known types.

    A subclass of a known type is refused too, because it may behave differently.
    """
    accepted = name_list(kind.__name__ for kind in kinds)
    require(type(value) in kinds, f"{name} is {value!r}: accepted are values of {accepted}")


def require_likelihood_ratio(mechanism: Mechanism, threat_model: ThreatModel) -> None:
    """Raise `InputError` if there is no likelihood ratio, because there is no noise or the adversary knows all of it.

    Parameters
    ----------
    mechanism
        The mechanism, whose noise is checked.
    threat_model
        Position of the adversary, and its knowledge of noise and participation.
    """
    require(mechanism.adds_noise, NO_LIKELIHOOD_RATIO)
    effective_noise_multiplier(mechanism.noise, threat_model)


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
