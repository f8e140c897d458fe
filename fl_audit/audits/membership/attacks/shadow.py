"""The black-box shadow attack of Shokri et al. 2017: a classifier of model outputs, trained on shadow trials.

Shadow trials are trials with known membership. For each class an attack model is trained on confidence vectors of the
shadow trials' models, labelled by membership. It then classifies the outputs of the attacked trials' models. Trials are
split into folds for cross-fitting: the attack models of a fold learn from the other folds, so no trial is attacked by a
model that learnt from this trial.
"""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.audits.membership.attacks.membership_attack import MembershipAttack
from fl_audit.audits.membership.attacks.model_outputs import ModelOutputs
from fl_audit.audits.membership.record_confidences import log_probabilities
from fl_audit.audits.membership.shadow_sums import _shadow_flags
from fl_audit.errors import require
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.paper_reference import PaperReference

_LEAST_PROBABILITY = 1e-12
_TRIALS_AT_ONCE = 32  # largest number of trials whose logits are converted together
_FEWEST = 2  # smallest number of members, and also of nonmembers, from which a classifier is trained
_EPOCHS = 50
_FEWEST_EPOCHS = 5
_SEEN = 128_000
"""A network is trained for 50 epochs; with more than 2,560 examples for 128,000 / examples, but at least 5 epochs.

With 6,400 examples for each class, as in the MNIST audit in `experiments/configs`, 20 epochs gave the same AUC as 50
epochs, 0.610, in half the time.
"""
_FOLDS = 2  # number of folds into which trials are split; trial w is in fold w modulo 2


def shadow_scores(
    log_probabilities: NDArray[np.floating],
    labels: NDArray[np.integer],
    membership: TargetMembership,
    shadows: Flags | None = None,
) -> Floats:
    """Return the log-odds of membership that the attack models give, shape (trials, targets).

    Source: Shokri, Stronati, Song & Shmatikov 2017, section V. Two points differ from the paper. The attack models also
    see the target's own record in other trials, while Shokri's shadow models are trained on records of their own. Rare
    classes, which the paper does not treat, share one attack model that learns from the records of all classes.

    Raises `InputError` if shapes do not fit, a value is not finite, or there are fewer than 2 members or fewer than 2
    nonmembers in all shadow trials together.

    Parameters
    ----------
    log_probabilities
        Log-probabilities of the classes of each target under each trial's model, (trials, targets, classes).
    labels
        True class of each target, (targets,). A class is rare if it has fewer than 2 members or fewer than 2 nonmembers
        in the shadow trials.
    membership
        The membership of the targets in all trials. The attack on a trial uses only the rows of its shadow trials.
    shadows
        Mask of the shadow trials, (trials,). All other trials are attacked; the shadow trials get NaN as scores,
        because the attack models learnt their membership. None uses folds instead.
    """
    values, classes = _checked(log_probabilities, labels, membership)
    scores = np.full((membership.trials, membership.targets), np.nan)
    for learnt_from, attacked in _parts(membership, shadows):
        is_in = membership.is_in[learnt_from]
        everyone = np.arange(membership.targets)
        is_rare = np.zeros(membership.targets, dtype=np.bool_)
        for label in np.unique(classes):
            columns = np.flatnonzero(classes == label)
            if _smaller_group_size(is_in[:, columns]) < _FEWEST:
                is_rare[columns] = True
                continue
            model = _trained(_confidences(values, learnt_from, columns), is_in[:, columns].ravel())
            scores[np.ix_(attacked, columns)] = _log_odds(model, _confidences(values, attacked, columns), len(attacked))
        if is_rare.any():
            problem = f"there are {is_in.sum()} members and {(~is_in).sum()} others in the trials to learn from"
            require(
                _smaller_group_size(is_in) >= _FEWEST,
                f"{problem}: accepted are {_FEWEST} or more of each; play more trials",
            )
            columns = np.flatnonzero(is_rare)
            model = _trained(_label_first(values, learnt_from, everyone, classes), is_in.ravel())
            inputs = _label_first(values, attacked, columns, classes)
            scores[np.ix_(attacked, columns)] = _log_odds(model, inputs, len(attacked))
    return scores


def _label_first(
    values: NDArray[np.floating], trials: NDArray[np.intp], targets: NDArray[np.intp], classes: Integers
) -> Floats:
    """Return the confidence vectors of `_confidences`, with the confidence in the target's label first.

    It is exchanged with the confidence in class 0. So one attack model can learn from targets of all labels.
    """
    rows = _confidences(values, trials, targets)
    every = np.arange(len(rows))
    label = np.tile(classes[targets], len(trials))
    rows[every, label], rows[:, 0] = rows[:, 0].copy(), rows[every, label]
    return rows


def _confidences(values: NDArray[np.floating], trials: NDArray[np.intp], targets: NDArray[np.intp]) -> Floats:
    """Return the class probabilities that the models of some trials give for some targets, (trials * targets, classes).

    `values` contains log-probabilities. All targets of the first trial come first.
    """
    confidences = values[np.ix_(trials, targets)].reshape(-1, values.shape[2])
    return np.asarray(np.exp(confidences.astype(np.float64)), dtype=np.float64)


def _parts(membership: TargetMembership, shadows: Flags | None) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Return pairs of disjoint sets of trials: the first trains the attack models, the second is attacked.

    There is one pair if `shadows` is given, and otherwise one for each fold.
    """
    if shadows is not None:
        flags = _shadow_flags(membership, shadows)
        return [(np.flatnonzero(flags), np.flatnonzero(~flags))]
    accepted = f"accepted are {_FOLDS} trials or more, one for each fold"
    require(membership.trials >= _FOLDS, f"there are {membership.trials} trials: {accepted}")
    fold = np.arange(membership.trials) % _FOLDS
    return [(np.flatnonzero(fold != index), np.flatnonzero(fold == index)) for index in range(_FOLDS)]


def _trained(examples: Floats, answers: Flags) -> Any:
    """Return a classifier of members and nonmembers, fitted to `examples` and `answers`.

    `examples` are confidence vectors, one a row. `answers` are True where the vector belongs to a member.
    """
    # Imported here, because the import takes a second and only this attack needs it.
    from sklearn import exceptions, neural_network, pipeline, preprocessing  # noqa: PLC0415

    epochs = min(_EPOCHS, max(_FEWEST_EPOCHS, -(-_SEEN // len(examples))))
    # One hidden layer of 64 ReLU units, as in the code of Bernau et al. 2019.
    network = neural_network.MLPClassifier((64,), random_state=0, max_iter=epochs)
    model = pipeline.make_pipeline(preprocessing.StandardScaler(), network)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", exceptions.ConvergenceWarning)
        model.fit(examples, answers)
    return model


def _log_odds(model: Any, inputs: Floats, trials: int) -> Floats:
    """Return the log-odds of membership that a classifier gives for rows ordered by trial, (trials, targets)."""
    if len(inputs) == 0:
        return np.zeros((0, 1))
    inside = np.clip(model.predict_proba(inputs)[:, 1], _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)
    return np.asarray(np.log(inside) - np.log1p(-inside), dtype=np.float64).reshape(trials, -1)


def _smaller_group_size(is_in: Flags) -> int:
    """Return the size of the smaller group, members or nonmembers."""
    return int(min(is_in.sum(), (~is_in).sum()))


def _checked(
    log_probabilities: NDArray[np.floating], labels: NDArray[np.integer], membership: TargetMembership
) -> tuple[NDArray[np.floating], Integers]:
    """Return the log-probabilities as an array and the labels as int64; raise `InputError` if they do not fit."""
    values = np.asarray(log_probabilities)
    classes = np.asarray(labels)
    shape = (membership.trials, membership.targets)
    fits = values.ndim == 3 and values.shape[:2] == shape and values.shape[2] >= 2
    require(fits, f"log-probabilities have shape {values.shape}: accepted is {shape} and 2 or more classes")
    require(bool(np.isfinite(values).all()), "log-probabilities contain NaN or infinity: accepted are finite numbers")
    whole = classes.shape == shape[1:] and np.issubdtype(classes.dtype, np.integer)
    require(whole, f"labels are {classes.dtype} of shape {classes.shape}: accepted are whole numbers {shape[1:]}")
    return values, classes.astype(np.int64)


def _scores(outputs: ModelOutputs, membership: TargetMembership, shadows: Flags | None) -> Floats:
    """Return the log-odds that the classifiers give, shape (trials, targets)."""
    has_records = outputs.logits is not None and outputs.labels is not None
    require(has_records, "attack 'shadow' needs targets that are single records")
    assert outputs.logits is not None
    assert outputs.labels is not None
    # Single precision and pieces save memory: with many trials this is the largest array of a report.
    pieces = np.array_split(outputs.logits, -(-len(outputs.logits) // _TRIALS_AT_ONCE))
    values = np.concatenate([log_probabilities(piece).astype(np.float32) for piece in pieces])
    return shadow_scores(values, outputs.labels, membership, shadows)


SHADOW = MembershipAttack(
    name="shadow",
    label="Shadow models",
    sees="confidences; a classifier for each class learns from the other trials",
    scores=_scores,
    source="Shokri et al. 2017",
    paper=PaperReference(
        "R. Shokri, M. Stronati, C. Song, V. Shmatikov (2017). Membership inference attacks against machine learning "
        "models. IEEE Symposium on Security and Privacy",
        "For attacks by shadow models",
        "10.1109/SP.2017.41",
    ),
    is_default=True,
    needs_single_records=True,
    needs_classes=True,
    learns_from_shadows=True,
)
"""The attack of a classifier of confidences that learns from shadow models."""
