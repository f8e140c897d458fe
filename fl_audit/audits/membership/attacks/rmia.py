"""The robust membership inference attack (RMIA) of Zarifzadeh, Liu & Shokri 2024.

The attack asks whether the attacked model has gained more confidence in a target x than in population records z,
compared with reference models. The score is the share of population records z for which P(model | x) is at least
P(model | z), which is gamma = 1 in the paper. By Bayes' rule each probability is proportional to the model's confidence
in the record, divided by the mean confidence of reference models.
"""

import numpy as np

from fl_audit.array_types import Flags, Floats
from fl_audit.audits.membership.attacks.membership_attack import MembershipAttack
from fl_audit.audits.membership.attacks.model_outputs import ModelOutputs
from fl_audit.audits.membership.shadow_sums import ShadowGroupMoments, _of_targets, _shadow_flags, _shadow_group
from fl_audit.errors import require
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.paper_reference import PaperReference

_SLOPE = 0.3
"""The paper's a: the confidence in a record of models that used it is taken as a p_out + 1 - a, where p_out is the
confidence of models that did not use it."""


def rmia_scores(
    log_probabilities: Floats, population: Floats, membership: TargetMembership, shadows: Flags | None = None
) -> Floats:
    """Return the RMIA score of each target in each trial, from 0 to 1, shape (trials, targets); higher for members.

    The ratio of a record is the confidence of the attacked model in the record, divided by the mean confidence of
    reference models. The score of a target is the fraction of population records whose ratio is at most the target's
    ratio. Let mean_out be the mean confidence in a target over reference models without the target. The mean confidence
    in the target is taken as ((1 + a) mean_out + 1 - a) / 2, which is the paper's offline form. No reference model used
    a population record, so its mean_out is over all of them.

    Source: Zarifzadeh, Liu & Shokri 2024, Low-cost high-power membership inference attacks, equations 2 to 4 and
    appendix B.2. The code run_rmia of ML Privacy Meter differs from the paper in two points. For a population record it
    takes the mean over the larger half of the confidences, as if half of the models had used the record. It compares
    ratios by > where the paper has >=.

    Raises `InputError` if shapes do not match, or if a log-probability is not finite or above 0. It also raises it if a
    target has no reference model without the target.

    Parameters
    ----------
    log_probabilities
        Log-probability of the true label of each target under each trial's model, at most 0 and finite, shape (trials,
        targets).
    population
        Log-probability of the true label of each population record under each trial's model, shape (trials, records),
        with at least one record. No trial was trained on these records.
    membership
        The membership of the targets in all trials. The attack on a trial uses only the rows of other trials.
    shadows
        Whether each trial's model may serve as a reference, bool (trials,); None allows all but the attacked one.

    Examples
    --------
    >>> bits = np.array([[True], [False], [False]])
    >>> own, others = np.log([[0.9], [0.5], [0.6]]), np.log([[0.5, 0.6], [0.5, 0.6], [0.5, 0.6]])
    >>> rmia_scores(own, others, TargetMembership(bits)).ravel().tolist()
    [1.0, 0.0, 1.0]
    """
    targets = _checked(_of_targets(log_probabilities, membership, "log-probabilities"), "log-probabilities")
    records = np.asarray(population, dtype=np.float64)
    fits = records.ndim == 2 and len(records) == membership.trials and records.size > 0
    shape = f"({membership.trials}, records)"
    require(fits, f"log-probabilities of the population have shape {records.shape}: accepted is {shape}")
    records = _checked(records, "log-probabilities of the population")
    flags = _shadow_flags(membership, shadows)
    # The mean confidence of reference models in each target, and in each record of the population.
    sure = np.exp(targets)
    out = _shadow_group(sure, ~membership.is_in, flags, "out", 1)
    ratios = targets - _log(_from_out(out))
    out = _shadow_group(np.exp(records), np.ones(records.shape, dtype=np.bool_), flags)
    theirs = records - _log(_from_out(out))
    pairs = zip(np.sort(theirs, axis=1), ratios, strict=True)
    outdone = np.stack(
        [np.searchsorted(population_ratios, target_ratios, side="right") for population_ratios, target_ratios in pairs]
    )
    return np.asarray(outdone / theirs.shape[1], dtype=np.float64)


def _log(confidence: Floats) -> Floats:
    """Return the logarithm of each confidence; smaller values count as the smallest positive normal float."""
    return np.asarray(np.log(np.maximum(confidence, np.finfo(np.float64).tiny)), dtype=np.float64)


def _from_out(out: ShadowGroupMoments) -> Floats:
    """Return the mean confidence of reference models in each record, estimated from models that did not train on it.

    Half of the reference models are taken to have used the record. Then the mean is ((1 + a) p_out + 1 - a) / 2, where
    p_out is the mean confidence of models that did not use it, and a is `_SLOPE`.
    """
    return np.asarray(((1 + _SLOPE) * out.mean + 1 - _SLOPE) / 2, dtype=np.float64)


def _checked(values: Floats, name: str) -> Floats:
    """Return log-probabilities unchanged, or raise `InputError` if they are not valid.

    They are not valid if one of them is above 0 or not finite. `name` is their name in the error message.
    """
    require(bool(np.isfinite(values).all()), f"{name} contain NaN or infinity: accepted are finite numbers")
    highest = float(values.max())
    require(highest <= 0, f"{name} reach {highest:g}: accepted are numbers up to 0")
    return values


def _scores(outputs: ModelOutputs, membership: TargetMembership, shadows: Flags | None) -> Floats:
    """Return the shares of population records that the targets outdo, shape (trials, targets)."""
    return rmia_scores(outputs.log_probability, outputs.population, membership, shadows)


RMIA = MembershipAttack(
    name="rmia",
    label="RMIA",
    sees="the confidence, compared with that in records of the population",
    scores=_scores,
    source="Zarifzadeh et al. 2024",
    paper=PaperReference(
        "S. Zarifzadeh, P. Liu, R. Shokri (2024). Low-cost high-power membership inference attacks. ICML",
        "For RMIA",
        "10.48550/arXiv.2312.03262",
    ),
    is_default=True,
    learns_from_shadows=True,
    needs_shadows_of_each_target=True,
)
"""The robust membership inference attack."""
