"""An attack of the user's own, named in the configuration as `package.module:name`."""

from functools import partial

import numpy as np

from fl_audit.array_types import Flags, Floats
from fl_audit.audits.membership.attacks.membership_attack import MembershipAttack
from fl_audit.audits.membership.attacks.model_outputs import ModelOutputs
from fl_audit.errors import require
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.user_modules import import_function


def own_attack(name: str) -> MembershipAttack:
    """Return the user's attack `package.module:name`, which always gets shadow models; its code is not imported."""
    sees = "the outputs of a trial's model and of shadow models"
    return MembershipAttack(name, name, sees, partial(_scores, name), learns_from_shadows=True)


def _scores(name: str, outputs: ModelOutputs, membership: TargetMembership, shadows: Flags | None) -> Floats:
    """Return the scores of the user's function, shape (trials, targets); NaN for the trials in `shadows`.

    It is called as `attack(model, shadows, is_in)` for each trial, with the outputs of the trial's model, the outputs
    of the shadow models, and the membership of the targets in the shadow models' training sets.
    """
    attack = import_function(name, "attack")
    scores = np.full(membership.is_in.shape, np.nan)
    usable = np.ones(membership.trials, dtype=np.bool_) if shadows is None else shadows
    for trial in range(membership.trials) if shadows is None else np.flatnonzero(~shadows):
        shadow_trials = usable & (np.arange(membership.trials) != trial)
        own_outputs = outputs.of(np.array([trial]))
        shadow_outputs = outputs.of(np.flatnonzero(shadow_trials))
        trial_scores = np.asarray(attack(own_outputs, shadow_outputs, membership.is_in[shadow_trials]))
        good = trial_scores.shape == (membership.targets,) and np.issubdtype(trial_scores.dtype, np.number)
        problem = f"attack {name!r} returned {trial_scores.dtype} of shape {trial_scores.shape}"
        accepted = f"accepted is a finite number for each of {membership.targets} targets"
        require(good and bool(np.isfinite(trial_scores).all()), f"{problem}: {accepted}")
        scores[trial] = trial_scores
    return scores
