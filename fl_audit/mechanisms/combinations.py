"""Which parts of a release law go together; what cannot be accounted or weighed is refused with the reason."""

from typing import assert_never

from fl_audit.adjacency import Adjacency, Relation
from fl_audit.errors import InputError
from fl_audit.mechanisms.clipping import AdaptiveClipping, Clipping, FixedClipping, NoClipping
from fl_audit.mechanisms.contribution import Contribution, PrivateTraining, RecordGradients
from fl_audit.mechanisms.noise import (
    CentralGaussian,
    CorrelatedGaussian,
    DistributedGaussian,
    InsideTraining,
    LocalGaussian,
    Noise,
    NoiseScaling,
    NoNoise,
)
from fl_audit.mechanisms.participation import Everybody, FixedCohort, Participation, PoissonSampling


def _require_combination(
    adjacency: Adjacency, contribution: Contribution, clipping: Clipping, participation: Participation, noise: Noise
) -> None:
    """Refuse parts of a release law that do not go together, with the reason."""
    for reason in (
        _of_private_training(adjacency, contribution, clipping, noise, participation),
        _of_clipping(clipping, noise),
        _of_noise(noise, participation),
        _of_adaptive(contribution, clipping, noise),
        _of_cohorts(contribution, participation),
    ):
        if reason is not None:
            raise InputError(reason)


def _of_private_training(
    adjacency: Adjacency, contribution: Contribution, clipping: Clipping, noise: Noise, participation: Participation
) -> str | None:
    is_private, is_inside = isinstance(contribution, PrivateTraining), isinstance(noise, InsideTraining)
    if is_inside and not is_private:
        return (
            "noise is 'inside-training' and clients do not train by DP-SGD, whose steps it is added to: accepted with "
            "it is strategy 'dp-sgd-clients'"
        )
    if not is_private:
        return None
    if isinstance(noise, NoNoise):
        return (
            "strategy is 'dp-sgd-clients' without a promise, and its clients train by DP-SGD, which clips and adds "
            "noise: accepted without a promise are 'dp-fedsgd' and 'dp-fedavg'"
        )
    if not is_inside:
        return (
            f"noise is '{noise.kind}' with strategy 'dp-sgd-clients', whose clients have added theirs in every step of "
            "their training: accepted with it is 'inside-training'"
        )
    if not isinstance(clipping, FixedClipping):
        return (
            f"clipping is '{clipping.kind}' with strategy 'dp-sgd-clients', whose clients clip the gradients of "
            "records in every step, all at one norm: accepted with it is 'fixed'"
        )
    if adjacency.relation is not Relation.ADD_REMOVE:
        return (
            f"adjacency is '{adjacency}' with strategy 'dp-sgd-clients', and the accountant of Opacus, which every "
            "client keeps, accounts for records that come or go: accepted with it is 'add-remove-record'"
        )
    if not isinstance(participation, Everybody):
        return (
            "not everybody takes part in every round with strategy 'dp-sgd-clients', whose promise is composed over "
            "the steps of a client that trains in all rounds: accepted with it is that everybody takes part"
        )
    return None


def _of_clipping(clipping: Clipping, noise: Noise) -> str | None:
    if isinstance(clipping, NoClipping) and not isinstance(noise, NoNoise):
        return f"noise multiplier is {noise.multiplier} without clipping: noise needs a clipping norm"
    if isinstance(noise, NoNoise) and not isinstance(clipping, NoClipping):
        return f"clipping norm is {clipping.norm} without noise: clipping alone promises nothing"
    return None


def _of_noise(noise: Noise, participation: Participation) -> str | None:
    if isinstance(participation, Everybody):
        return None
    match noise:
        case CentralGaussian(scaling=NoiseScaling.LOCAL):
            if isinstance(participation, PoissonSampling):
                rate = participation.rate
                return f"sensitivity is 'local' at sampling rate {rate}: accepted with sampling is 'global'"
            return "sensitivity is 'local' with a cohort: accepted with cohorts is 'global'"
        case DistributedGaussian() | LocalGaussian():
            return (
                f"noise is '{noise.kind}' and not everybody takes part in every round, so the shares of the noise that "
                "a round holds would change: accepted with it is that everybody takes part"
            )
        case CorrelatedGaussian():
            if isinstance(participation, FixedCohort):
                return None
            return (
                f"noise is correlated over rounds at sampling rate {participation.rate}, and no amplification by "
                "sampling is known for it: accepted are cohorts, or that everybody takes part"
            )
        case CentralGaussian() | InsideTraining() | NoNoise():
            return None
        case _:
            assert_never(noise)


def _of_adaptive(contribution: Contribution, clipping: Clipping, noise: Noise) -> str | None:
    if not isinstance(clipping, AdaptiveClipping):
        return None
    if isinstance(contribution, RecordGradients):
        return (
            "clipping is 'adaptive' for gradients of records, and a client would tell a bit for each of its records: "
            "accepted with strategy 'dp-fedsgd' is 'fixed'"
        )
    match noise:
        case CentralGaussian(scaling=NoiseScaling.GLOBAL) | NoNoise():
            return None
        case CentralGaussian():
            return "sensitivity is 'local' and clipping is 'adaptive': accepted with it is 'global'"
        case CorrelatedGaussian():
            return (
                "clipping is 'adaptive' with noise that is correlated over rounds, which is accounted for one norm in "
                "all rounds: accepted with it is 'fixed'"
            )
        case DistributedGaussian() | LocalGaussian() | InsideTraining():
            return (
                f"clipping is 'adaptive' and noise is '{noise.kind}', where nobody is there to add the noise of the "
                "bits: accepted with it is 'fixed'"
            )
        case _:
            assert_never(noise)


def _of_cohorts(contribution: Contribution, participation: Participation) -> str | None:
    if isinstance(contribution, RecordGradients) and isinstance(participation, FixedCohort):
        return (
            f"cohort is {participation.size} clients with strategy 'dp-fedsgd', whose units are records: accepted with "
            "it are sampling-rate and expected-batch"
        )
    return None
