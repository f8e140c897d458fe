"""Apply the membership attacks, by name, to the outputs of the models of a run.

If an attack uses shadow models (models with known membership), each trial is attacked with the models of all other
trials as shadow models.
"""

from dataclasses import dataclass
from typing import TypeVar, assert_never

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.audits.membership.attack_names import OF_ANY_UNIT, Attack
from fl_audit.audits.membership.lira import LiraSpread, lira_scores
from fl_audit.audits.membership.record_confidences import log_probabilities
from fl_audit.audits.membership.rmia import rmia_scores
from fl_audit.audits.membership.shokri_attack import shadow_scores
from fl_audit.audits.membership.white_box import white_box_scores
from fl_audit.audits.membership.white_box_features import WhiteBoxFeatures
from fl_audit.audits.membership.yeom_attack import active_scores, loss_scores
from fl_audit.errors import InputError, require
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.user_modules import import_function

T = TypeVar("T")

_FEW_TRIALS = 64
"""Number of trials below which LiRA uses one spread for all targets (Carlini et al. 2022, section VI-B)."""


@dataclass(frozen=True)
class ModelOutputs:
    """The outputs of the models of all trials on the records of the targets and on population records.

    No model was trained on population records.
    """

    # log p_y (log-probability of the true label y) of each target, (trials, targets); mean over the records of a target
    # with several records.
    log_probability: Floats
    confidence: Floats  # logit of the probability p_y of each target, (trials, targets); mean as above
    # Logits of the targets' records, (trials, records, classes); None if targets are not single records.
    logits: NDArray[np.floating] | None
    labels: Integers | None  # true labels of these records, (records,); None if `logits` is None
    population: Floats  # log p_y of p records that no trial was trained on, (trials, p)
    # Features of the targets' gradients in three releases, the final one last; None if not requested.
    white_box: WhiteBoxFeatures | None = None
    # Whether the attacker of a trial knows the target's membership, bool (trials, targets); None with `white_box`.
    known: Flags | None = None
    # Mean loss of each target while the insider raised it by gradient ascent, (trials, targets); None without ascent.
    under_ascent: Floats | None = None

    def of(self, trials: Integers) -> "ModelOutputs":
        """Return the outputs of the models of the given trials only; fields that have a default are None."""
        logits = None if self.logits is None else self.logits[trials]
        values = self.log_probability[trials], self.confidence[trials]
        return ModelOutputs(*values, logits, self.labels, self.population[trials])


_TRIALS_AT_ONCE = 32  # largest number of trials whose logits are converted together


def attack_scores(
    attack: Attack | str, outputs: ModelOutputs, membership: TargetMembership, shadows: Flags | None = None
) -> Floats:
    """Return the scores that an attack gives the targets, higher for a likelier member, shape (trials, targets).

    Parameters
    ----------
    attack
        A built-in attack, or the location `package.module:name` of the user's own attack function as a string.
    outputs
        Outputs of the models of all trials on the targets.
    membership
        The membership of the targets in all trials. The attack on a trial never uses the trial's own membership.
    shadows
        Mask of the trials that serve only as shadow models, (trials,), whose scores are NaN; None attacks each trial
        with all other trials as shadow models.

    Raises
    ------
    InputError
        If there are too few trials for the attack, or it needs one record per target and targets have several.
    """
    match attack:
        case Attack.LOSS:
            return loss_scores(-outputs.log_probability)
        case Attack.LIRA:
            count = membership.trials if shadows is None else int(shadows.sum())
            spread = LiraSpread.SHARED if count < _FEW_TRIALS else LiraSpread.EACH
            return lira_scores(outputs.confidence, membership, spread=spread, shadows=shadows)
        case Attack.RMIA:
            return rmia_scores(outputs.log_probability, outputs.population, membership, shadows=shadows)
        case Attack.WHITE_BOX | Attack.WHITE_BOX_ROUNDS:
            assert outputs.white_box is not None, "a run that names the attack keeps what it sees"
            assert outputs.known is not None
            features = outputs.white_box if attack is Attack.WHITE_BOX_ROUNDS else outputs.white_box.of_last_release()
            return white_box_scores(features, membership, outputs.known)
        case Attack.ACTIVE:
            assert outputs.under_ascent is not None, "a run that names the attack keeps what it sees"
            return active_scores(outputs.under_ascent[np.newaxis])
        case Attack.SHADOW:
            logits = _of_records(outputs.logits, attack)
            labels = _of_records(outputs.labels, attack)
            # Single precision and pieces save memory: with many trials this is the largest array of a report.
            pieces = np.array_split(logits, -(-len(logits) // _TRIALS_AT_ONCE))
            values = np.concatenate([log_probabilities(piece).astype(np.float32) for piece in pieces])
            return shadow_scores(values, labels, membership, shadows=shadows)
        case Attack.ATTRIBUTE:
            raise InputError(f"attack '{attack}' guesses values: accepted are attacks that score membership")
        case str():
            return _own_scores(attack, outputs, membership, shadows)
        case _:
            assert_never(attack)


def _own_scores(name: str, outputs: ModelOutputs, membership: TargetMembership, shadows: Flags | None) -> Floats:
    """Return the scores of a user's attack, shape (trials, targets); NaN for the trials in `shadows`.

    `name` is the location of the attack, as `package.module:function`. It is called as `attack(model, shadows, is_in)`
    for each trial, with the outputs of the trial's model, the outputs of the shadow models, and the membership of the
    targets in the shadow models' training sets.
    """
    attack = import_function(name, "attack")
    scores = np.full(membership.is_in.shape, np.nan)
    usable = np.ones(membership.trials, dtype=np.bool_) if shadows is None else shadows
    for trial in range(membership.trials) if shadows is None else np.flatnonzero(~shadows):
        shadow_trials = usable & (np.arange(membership.trials) != trial)
        own_outputs = outputs.of(np.array([trial]))
        theirs = outputs.of(np.flatnonzero(shadow_trials))
        scores_found = np.asarray(attack(own_outputs, theirs, membership.is_in[shadow_trials]))
        good = scores_found.shape == (membership.targets,) and np.issubdtype(scores_found.dtype, np.number)
        problem = f"attack {name!r} returned {scores_found.dtype} of shape {scores_found.shape}"
        accepted = f"accepted is a finite number for each of {membership.targets} targets"
        require(good and bool(np.isfinite(scores_found).all()), f"{problem}: {accepted}")
        scores[trial] = scores_found
    return scores


def _of_records(answers: T | None, attack: str) -> T:
    """Return an attack's inputs unchanged; raise `InputError` if they are None because a target has several records."""
    accepted = f"accepted about clients are {' and '.join(OF_ANY_UNIT)}"
    require(answers is not None, f"attack '{attack}' is asked about records: {accepted}")
    assert answers is not None
    return answers
