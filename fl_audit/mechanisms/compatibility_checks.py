"""Check that the parts of a mechanism fit together: that accounting and likelihood ratios exist for them.

Every kind of noise and of participation rejects further incompatible parts in its own class.
"""

from fl_audit.adjacency import Adjacency, Relation, Unit
from fl_audit.errors import InputError, require
from fl_audit.mechanisms.contribution import (
    AdaptiveClipping,
    Clipping,
    Contribution,
    FixedClipping,
    NoClipping,
    PrivateTraining,
    RecordGradients,
)
from fl_audit.mechanisms.noises.mechanism_noise import MechanismNoise, NoiseOrigin
from fl_audit.mechanisms.noises.registry import quoted_names
from fl_audit.mechanisms.participations.participation import Participation


def require_combination(
    adjacency: Adjacency,
    contribution: Contribution,
    clipping: Clipping,
    participation: Participation,
    noise: MechanismNoise,
) -> None:
    """Raise `InputError` with the reason if the parts of a mechanism do not fit together."""
    _require_private_training(adjacency, contribution, clipping, noise, participation)
    adds_noise = noise.origin is not NoiseOrigin.NOBODY
    if isinstance(clipping, NoClipping) and adds_noise:
        raise InputError(f"noise multiplier is {noise.multiplier} without clipping: noise needs a clipping norm")
    if not isinstance(clipping, NoClipping) and not adds_noise:
        raise InputError(f"clipping norm is {clipping.norm} without noise: clipping alone guarantees nothing")
    if adds_noise and clipping.measured_in is not noise.norm:
        problem = f"contributions are clipped in the {clipping.measured_in} norm, and noise is '{noise.name}'"
        raise InputError(f"{problem}: accepted with it is the {noise.norm} norm")
    if not participation.takes_all:
        noise.require_participation(participation)
    if isinstance(clipping, AdaptiveClipping):
        _require_adaptive(contribution, noise)
    if not isinstance(contribution, PrivateTraining):
        participation.require_contribution(contribution.unit, contribution.unit is Unit.CLIENT)


def _require_private_training(
    adjacency: Adjacency,
    contribution: Contribution,
    clipping: Clipping,
    noise: MechanismNoise,
    participation: Participation,
) -> None:
    is_inside = noise.origin is NoiseOrigin.TRAINING
    if not isinstance(contribution, PrivateTraining):
        if is_inside:
            foreign = f"noise is '{noise.name}' and clients do not train by DP-SGD, whose steps it is added to"
            raise InputError(f"{foreign}: accepted with it is strategy 'dp-sgd-clients'")
        return
    bare = (
        "strategy is 'dp-sgd-clients' without a guarantee, and its clients train by DP-SGD, which clips and adds noise"
    )
    adds_noise = noise.origin is not NoiseOrigin.NOBODY
    require(adds_noise, f"{bare}: accepted without a guarantee are 'dp-fedsgd' and 'dp-fedavg'")
    private = "with strategy 'dp-sgd-clients'"
    fits = quoted_names(NoiseOrigin.TRAINING)
    inside = f"whose clients have added theirs in every step of their training: accepted with it is {fits}"
    require(is_inside, f"noise is '{noise.name}' {private}, {inside}")
    fixed = "whose clients clip the gradients of records in every step, all at one norm: accepted with it is 'fixed'"
    require(isinstance(clipping, FixedClipping), f"clipping is '{clipping.kind}' {private}, {fixed}")
    opacus = "and the accountant of Opacus, which every client keeps, accounts for records that come or go"
    comes = f"adjacency is '{adjacency}' {private}, {opacus}: accepted with it is 'add-remove-record'"
    require(adjacency.relation is Relation.ADD_REMOVE, comes)
    composed = "whose guarantee is composed over the steps of a client that trains in all rounds"
    partial_participation = f"not everybody takes part in every round {private}, {composed}"
    require(participation.takes_all, f"{partial_participation}: accepted with it is that everybody takes part")


def _require_adaptive(contribution: Contribution, noise: MechanismNoise) -> None:
    """Raise `InputError` if the contribution or the noise does not support adaptive clipping."""
    bits = "clipping is 'adaptive' for gradients of records, and a client would tell a bit for each of its records"
    accepted = "accepted with strategy 'dp-fedsgd' are 'fixed', and an adjacency of users"
    require(not isinstance(contribution, RecordGradients), f"{bits}: {accepted}")
    noise.require_adaptive_clipping()
