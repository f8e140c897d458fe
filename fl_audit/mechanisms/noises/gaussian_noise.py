"""Base class of the kinds of Gaussian noise: likelihood ratio, accounting and words that they have in common."""

from typing import TYPE_CHECKING, ClassVar

from fl_audit.mechanisms.noises.mechanism_noise import AccountedRounds, MechanismNoise, ServerNoiseDraws
from fl_audit.privacy.accounting_enums import NoiseDistribution, VectorNorm
from fl_audit.privacy.events import ReleaseEvent, gaussian_rounds

if TYPE_CHECKING:
    from torch import Tensor

    from fl_audit.mechanisms.likelihood_ratio import Hypotheses, ReleaseLlrs, ReleaseUnderHypotheses


class GaussianNoise(MechanismNoise):
    """Base class of noise that is N(0, sigma^2 I) in one round, given the releases of earlier rounds."""

    distribution: ClassVar = NoiseDistribution.GAUSSIAN
    scale_words: ClassVar = "standard deviation"
    norm: ClassVar = VectorNorm.L2
    has_gaussian_llr: ClassVar = True

    def server_draws(self) -> ServerNoiseDraws:
        """Return a function that draws standard normal noise, independently for each round."""
        return lambda normals, server_round: normals(0)

    def release_llrs(
        self, release: "ReleaseUnderHypotheses", scale: "Tensor", distance: "Tensor", hypotheses: "Hypotheses"
    ) -> "ReleaseLlrs":
        """Return the log-likelihood ratios by Lemma 1 of Bernau et al. 2021 (see `gaussian_likelihood`)."""
        from fl_audit.mechanisms.noises.gaussian_likelihood import gaussian_llr  # noqa: PLC0415

        return gaussian_llr(release, scale, distance, hypotheses)

    def standard_residuals(self, noise: "Tensor") -> "Tensor":
        """Return the noise as it is: over its standard deviation, it is N(0, 1)."""
        return noise

    @property
    def residual_shift(self) -> float:
        """1, since a residual is the noise over its standard deviation."""
        return 1.0

    def residual_ratio(self, noise_ratio: float) -> float:
        """Return `noise_ratio`, since a residual is the noise over its standard deviation."""
        return noise_ratio

    def noise_ratio(self, residual_ratio: float) -> float:
        """Return `residual_ratio`, since a residual is the noise over its standard deviation."""
        return residual_ratio

    def events_of_each(self, rounds: AccountedRounds) -> tuple[tuple[ReleaseEvent, ...], ...]:
        """Return one Gaussian event for all rounds, with sampling if units are sampled, for one kind of client."""
        often = rounds.participation.participations(rounds.count)
        return (gaussian_rounds(rounds.multiplier, often, rounds.participation.rate, rounds.seen),)

    def mu_words(self, rounds: str) -> str:
        """Return "square root of the rounds over z", with the given phrase for the rounds."""
        return f"square root of {rounds} over z"
