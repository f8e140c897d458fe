"""Measure one released model by the losses of members and of other records, and hold the numbers against a claim.

A lower bound on epsilon refutes a claim only where fair coins decided which records were in the training: a bound from
coins holds whatever the mechanism tells of several records at once. Without coins, members may differ from other
records for other reasons, and losses under one model depend on each other; the numbers are then shown, and decide
nothing. Losses of one model never confirm a claim, since another attack may tell more.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.array_files import open_tensors, read_arrays
from fl_audit.array_types import Floats, finite
from fl_audit.audits.canaries.bounds import OneRunBound, one_run_bound
from fl_audit.audits.canaries.one_run_methods import OneRunMethod
from fl_audit.errors import require
from fl_audit.ordinary_files import require_ordinary, sha256_of
from fl_audit.released_model.empirical_star import OutstandingMembers, outstanding_members
from fl_audit.released_model.star_estimate import StarEstimate, estimate_epsilon_star
from fl_audit.statistics.claim_comparisons import FAMILY_LEVEL
from fl_audit.statistics.lower_bound_methods import ScoreDistribution
from fl_audit.statistics.lower_bounds import LowerBound, all_bounds
from fl_audit.verdict.verdict import Verdict, verdict_on

Bound = LowerBound | OneRunBound
FALSE_ALARMS = 0.01
"""Share of other records that the loss attack may take for members, where members are listed that stand out."""
_SAFETENSORS = ".safetensors"
_NUMPY = ".npz"


@dataclass(frozen=True)
class Checkpoint:
    """The file of a released model, by which others recognise it."""

    file: str  # name of the file, without its directory
    sha256: str  # digest of the file, hexadecimal
    tensors: int  # number of tensors
    parameters: int  # number of values in all tensors, buffers included

    def to_json(self) -> dict[str, Any]:
        """Return the entry `model` of `summary.json`."""
        return asdict(self)


def read_checkpoint(path: Path) -> Checkpoint:
    """Return what the file of a model holds; raise `InputError` unless it is a readable .safetensors or .npz file."""
    require_ordinary("model", path)
    require(path.is_file(), f"model {path} is missing: accepted is a file {_SAFETENSORS} or {_NUMPY}")
    is_known = path.suffix in (_SAFETENSORS, _NUMPY)
    # Other formats, such as those of torch.save, are pickles, which run code when they are read.
    require(
        is_known, f"model {path} is a file {path.suffix or 'without a suffix'}: accepted is {_SAFETENSORS} or {_NUMPY}"
    )
    shapes = list(_shapes(path))
    require(bool(shapes), f"model {path} has no tensors: accepted is a file with the parameters of a model")
    return Checkpoint(path.name, sha256_of(path), len(shapes), sum(map(prod, shapes)))


def _shapes(path: Path) -> Iterable[tuple[int, ...]]:
    if path.suffix == _NUMPY:
        return [array.shape for array in read_arrays(path).values()]
    with open_tensors(path) as file:
        return [tuple(file.get_slice(name).get_shape()) for name in file.keys()]  # noqa: SIM118


@dataclass(frozen=True)
class ReleaseFinding:
    """The numbers of one released model: lower bounds on epsilon, Epsilon*, and the members that stand out."""

    model: Checkpoint
    claim: StatedClaim | None  # None if nothing is claimed
    delta: float  # delta of all numbers
    has_coins: bool  # whether fair coins decided which records were in the training
    members: int  # number of losses of members
    nonmembers: int  # number of losses of other records
    bounds: tuple[Bound, ...]  # lower bounds that hold for any scores; the first was chosen before the losses were seen
    certain: Bound  # the first bound again, at the confidence 1 - `FAMILY_LEVEL` with which a verdict is given
    star: StarEstimate  # Epsilon* of the model
    outstanding: OutstandingMembers  # the members that the loss attack finds with `FALSE_ALARMS`

    @property
    def contradicts(self) -> bool:
        """Whether the bound exceeds the claimed epsilon, at the confidence with which a verdict is given."""
        return self.claim is not None and self.certain.epsilon > (self.claim.epsilon or 0.0)

    @property
    def verdict(self) -> Verdict:
        """The verdict on the claim: never consistent, since losses of one model cannot confirm a claim."""
        if self.claim is None:
            return Verdict.NO_GUARANTEE
        return verdict_on(self.contradicts and self.has_coins, is_conclusive=False)

    def to_json(self) -> dict[str, Any]:
        """Return the further entries of `summary.json`; numbers that are not finite become None."""
        star = self.star
        attacks = self.star.attacks
        return {
            "model": self.model.to_json(),
            "delta": self.delta,
            "coins": self.has_coins,
            "losses": {"members": self.members, "others": self.nonmembers},
            "bounds": [_bound_json(bound) for bound in (*self.bounds, self.certain)],
            "epsilon_at_least": finite(self.bounds[0].epsilon),
            "epsilon_star": {
                "value": finite(star.epsilon_star),
                "is_lower_bound": star.is_lower_bound,
                "interval": [finite(end) for end in star.interval],
                "confidence": star.confidence,
                "method": str(star.method),
                "cut": star.cut,
                "warnings": list(star.warnings),
            },
            "attack": {
                "auc": float(attacks.auc),
                "tpr_at_fpr_0.001": float(attacks.tpr_at_fpr_0001),
                "tpr_at_fpr_0.01": float(attacks.tpr_at_fpr_001),
                "yeom_advantage": float(attacks.yeom_advantage),
            },
            "outstanding": {
                "indices": list(self.outstanding.indices),
                "share": len(self.outstanding.indices) / self.members,
                "false_alarms": self.outstanding.fpr,
                "expected_by_chance": self.outstanding.expected,
                "p_value": self.outstanding.p_value,
            },
        }


def _bound_json(bound: Bound) -> dict[str, Any]:
    return {
        "method": str(bound.method),
        "epsilon": finite(bound.epsilon),
        "confidence": bound.confidence,
        "limit_of_detection": finite(bound.limit_of_detection),
    }


def measure_release(
    model: Checkpoint,
    member_losses: Floats,
    other_losses: Floats,
    claim: StatedClaim | None,
    delta: float,
    rng: np.random.Generator,
    confidence: float = 0.95,
    has_coins: bool = False,
) -> ReleaseFinding:
    """Return the numbers of one released model.

    Parameters
    ----------
    model
        What the model's file holds.
    member_losses
        Losses on units of the training set, finite and at least 0, shape (m,), m at least 2.
    other_losses
        Losses on units that were not in the training, shape (p,), under the same conditions.
    claim
        The claim about the training, by epsilon; None if nothing is claimed.
    delta
        Delta of the bounds and of Epsilon*, from 0 to below 1.
    rng
        Generator of the bootstrap and of the splits that test the fit of Epsilon*.
    confidence
        Confidence of the bounds that are shown, above 0.5 and below 1.
    has_coins
        Whether a fair coin for each unit decided whether it was in the training.

    Raises
    ------
    InputError
        If a loss or a number is out of its range, or coins are named with a claim about replaced units.
    """
    star = estimate_epsilon_star(member_losses, other_losses, delta, rng, None, confidence)
    is_of_coins = not has_coins or claim is None or claim.neighbours.sensitivity_of_sum(1.0) == 1
    accepted = "accepted with coins are claims between neighbours by add-remove"
    require(is_of_coins, f"coins with a claim about {claim and claim.adjacency}: {accepted}")
    bounds = _bounds(member_losses, other_losses, delta, confidence, has_coins)
    return ReleaseFinding(
        model=model,
        claim=claim,
        delta=delta,
        has_coins=has_coins,
        members=member_losses.size,
        nonmembers=other_losses.size,
        bounds=bounds,
        certain=_bounds(member_losses, other_losses, delta, 1 - FAMILY_LEVEL, has_coins)[0],
        star=star,
        outstanding=outstanding_members(member_losses, other_losses, FALSE_ALARMS),
    )


def _bounds(
    member_losses: Floats, other_losses: Floats, delta: float, confidence: float, has_coins: bool
) -> tuple[Bound, ...]:
    """Return the lower bounds that hold for any scores; the score of the loss attack is minus the loss."""
    if not has_coins:
        return all_bounds(-member_losses, -other_losses, delta, confidence, ScoreDistribution.ANY)
    scores = -np.concatenate([member_losses, other_losses])
    coins = np.arange(scores.size) < member_losses.size
    methods = (method for method in OneRunMethod if method.is_for_any_mechanism)
    return tuple(one_run_bound(scores, coins, delta, confidence, method) for method in methods)
