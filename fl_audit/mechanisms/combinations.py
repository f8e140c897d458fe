"""Which parts of a mechanism go together; what cannot be accounted or weighed is refused with the reason."""

from typing import assert_never

from fl_audit.adjacency import Adjacency, Relation
from fl_audit.errors import InputError, require
from fl_audit.mechanisms.contribution import (
    AdaptiveClipping,
    Clipping,
    Contribution,
    Everybody,
    FixedClipping,
    FixedCohort,
    NoClipping,
    Participation,
    PoissonSampling,
    PrivateTraining,
    RecordGradients,
    UserGradients,
)
from fl_audit.mechanisms.noise import (
    CentralGaussian,
    CorrelatedGaussian,
    DistributedGaussian,
    LocalDPSGD,
    LocalGaussian,
    Noise,
    NoiseScaling,
    NoNoise,
)


def _require_combination(
    adjacency: Adjacency, contribution: Contribution, clipping: Clipping, participation: Participation, noise: Noise
) -> None:
    """Refuse parts of a mechanism that do not go together, with the reason."""
    _require_private_training(adjacency, contribution, clipping, noise, participation)
    if isinstance(clipping, NoClipping) and not isinstance(noise, NoNoise):
        raise InputError(f"noise multiplier is {noise.multiplier} without clipping: noise needs a clipping norm")
    if isinstance(noise, NoNoise) and not isinstance(clipping, NoClipping):
        raise InputError(f"clipping norm is {clipping.norm} without noise: clipping alone guarantees nothing")
    if not isinstance(participation, Everybody):
        _require_some(noise, participation)
    if isinstance(clipping, AdaptiveClipping):
        _require_adaptive(contribution, noise)
    if isinstance(contribution, RecordGradients | UserGradients) and isinstance(participation, FixedCohort):
        units = f"whose units are {contribution.unit}s"
        cohort = f"cohort is {participation.size} clients with strategy 'dp-fedsgd', {units}"
        raise InputError(f"{cohort}: accepted with it are sampling-rate and expected-batch")


def _require_private_training(
    adjacency: Adjacency, contribution: Contribution, clipping: Clipping, noise: Noise, participation: Participation
) -> None:
    is_inside = isinstance(noise, LocalDPSGD)
    if not isinstance(contribution, PrivateTraining):
        foreign = "noise is 'inside-training' and clients do not train by DP-SGD, whose steps it is added to"
        require(not is_inside, f"{foreign}: accepted with it is strategy 'dp-sgd-clients'")
        return
    bare = (
        "strategy is 'dp-sgd-clients' without a guarantee, and its clients train by DP-SGD, which clips and adds noise"
    )
    require(not isinstance(noise, NoNoise), f"{bare}: accepted without a guarantee are 'dp-fedsgd' and 'dp-fedavg'")
    private = "with strategy 'dp-sgd-clients'"
    inside = "whose clients have added theirs in every step of their training: accepted with it is 'inside-training'"
    require(is_inside, f"noise is '{noise.kind}' {private}, {inside}")
    fixed = "whose clients clip the gradients of records in every step, all at one norm: accepted with it is 'fixed'"
    require(isinstance(clipping, FixedClipping), f"clipping is '{clipping.kind}' {private}, {fixed}")
    opacus = "and the accountant of Opacus, which every client keeps, accounts for records that come or go"
    comes = f"adjacency is '{adjacency}' {private}, {opacus}: accepted with it is 'add-remove-record'"
    require(adjacency.relation is Relation.ADD_REMOVE, comes)
    composed = "whose guarantee is composed over the steps of a client that trains in all rounds"
    some = f"not everybody takes part in every round {private}, {composed}"
    require(isinstance(participation, Everybody), f"{some}: accepted with it is that everybody takes part")


def _require_some(noise: Noise, participation: PoissonSampling | FixedCohort) -> None:
    """Refuse noise that does not go with rounds in which not everybody takes part."""
    is_cohort = isinstance(participation, FixedCohort)
    match noise:
        case CentralGaussian(scaling=NoiseScaling.LOCAL) if is_cohort:
            raise InputError("sensitivity is 'local' with a cohort: accepted with cohorts is 'global'")
        case CentralGaussian(scaling=NoiseScaling.LOCAL):
            sampled = f"sensitivity is 'local' at sampling rate {participation.rate}"
            raise InputError(f"{sampled}: accepted with sampling is 'global'")
        case DistributedGaussian() | LocalGaussian():
            some = f"noise is '{noise.kind}' and not everybody takes part in every round"
            shares = "so the shares of the noise that a round holds would change"
            raise InputError(f"{some}, {shares}: accepted with it is that everybody takes part")
        case CorrelatedGaussian():
            sampled = f"noise is correlated over rounds at sampling rate {participation.rate}"
            unknown = "and no amplification by sampling is known for it"
            require(is_cohort, f"{sampled}, {unknown}: accepted are cohorts, or that everybody takes part")
        case CentralGaussian() | LocalDPSGD() | NoNoise():
            pass
        case _:
            assert_never(noise)


def _require_adaptive(contribution: Contribution, noise: Noise) -> None:
    """Refuse what does not go with a clipping norm that adapts."""
    bits = "clipping is 'adaptive' for gradients of records, and a client would tell a bit for each of its records"
    accepted = "accepted with strategy 'dp-fedsgd' are 'fixed', and an adjacency of users"
    require(not isinstance(contribution, RecordGradients), f"{bits}: {accepted}")
    match noise:
        case CentralGaussian(scaling=NoiseScaling.GLOBAL) | NoNoise():
            pass
        case CentralGaussian():
            raise InputError("sensitivity is 'local' and clipping is 'adaptive': accepted with it is 'global'")
        case CorrelatedGaussian():
            correlated = "noise that is correlated over rounds, which is accounted for one norm in all rounds"
            raise InputError(f"clipping is 'adaptive' with {correlated}: accepted with it is 'fixed'")
        case DistributedGaussian() | LocalGaussian() | LocalDPSGD():
            nobody = f"noise is '{noise.kind}', where nobody is there to add the noise of the bits"
            raise InputError(f"clipping is 'adaptive' and {nobody}: accepted with it is 'fixed'")
        case _:
            assert_never(noise)
