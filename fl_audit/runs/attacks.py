"""Results of membership attacks and of attacks on attributes, for every trial and target of a finished run."""

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from fl_audit.adjacency import Unit
from fl_audit.array_types import Floats, Integers
from fl_audit.audits.membership.attacks import ModelOutputs
from fl_audit.audits.membership.attacks.membership_attack import MembershipAttack
from fl_audit.audits.membership.attacks.registry import attacks_named
from fl_audit.audits.membership.attribute_inference import (
    attribute_guesses,
    attribute_guesses_with_shadows,
    attribute_of,
)
from fl_audit.audits.membership.findings_attacks import APART, SCORE
from fl_audit.audits.membership.sections_attribute_inference import (
    GUESSED,
    GUESSED_BLINDLY,
    GUESSED_BY_DISTRIBUTION,
    TRUTH,
)
from fl_audit.audits.membership.white_box import known_halves
from fl_audit.audits.membership.white_box_features import WhiteBoxFeatures
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.randomness import Purpose, generator
from fl_audit.report.report_elements import SectionError, noted_in
from fl_audit.runs.trial_batch_store import TrialBatchStore
from fl_audit.server.trial_batch_results import LOGITS, POPULATION, UNDER_ASCENT, VALUES, WHITE_BOX

_ENOUGH_TO_KEEP_APART = 64  # with so many trials half of them are shadows enough for the other half


def with_attacks(
    plan: RunPlan, store: TrialBatchStore, targets: pd.DataFrame, errors: list[SectionError]
) -> pd.DataFrame:
    """Return the table of targets with further columns: the results of every configured attack.

    Targets are units whose membership in the training data is drawn at random in each trial. A membership attack adds a
    column of scores. An attack that learns from other trials adds a second column if there are at least 64 trials. For
    the second column, the attack learns from the first half of the trials alone and attacks the second half. The attack
    on an attribute adds four columns: the true values and three kinds of guesses.

    `errors`: An attack that raises an error is noted here, and has no column.
    """
    membership = TargetMembership(by_target(targets, "is_in").astype(np.bool_))
    outputs: ModelOutputs | None = None
    with noted_in(errors, "The outputs of the models that the attacks see"):
        outputs = _answers(plan, store, targets)
    attacks = attacks_named(plan.config.audit.attacks)
    columns = dict[str, Floats | Integers]()
    for attack in attacks:
        if attack.guesses_values:
            with noted_in(errors, f"The attack {attack.name}"):
                columns |= _guesses(plan, store, membership)
        elif outputs is not None:
            with noted_in(errors, f"The membership attack {attack.name}"):
                columns |= _scores(attack, outputs, membership)
    return targets.assign(**columns)


def _scores(attack: MembershipAttack, outputs: ModelOutputs, membership: TargetMembership) -> dict[str, Floats]:
    """Return the columns with the scores of an attack."""
    columns = {f"{SCORE}{attack.name}": attack.scores(outputs, membership, None).reshape(-1)}
    if attack.learns_from_shadows and membership.trials >= _ENOUGH_TO_KEEP_APART:
        # The second half of the trials are no shadows, so their scores are independent, as a bound on epsilon needs.
        shadows = np.arange(membership.trials) < membership.trials // 2
        columns[f"{APART}{attack.name}"] = attack.scores(outputs, membership, shadows).reshape(-1)
    return columns


def _guesses(plan: RunPlan, store: TrialBatchStore, membership: TargetMembership) -> dict[str, Integers]:
    """Return the true and the guessed values of the attacked table column, keyed by the name of a result column.

    Each array has the shape (trials * targets,) and holds indices of values.
    """
    federation = load_federation(plan.federation)
    attribute = attribute_of(plan, federation)
    assert attribute is not None, "the attack is named"
    outputs = store.outputs(plan.config.audit.trials)
    losses = torch.cat([tensors[VALUES] for tensors in outputs]).double().numpy()
    truth = attribute.codes(federation.differing.features.cpu().numpy())
    return {
        TRUTH: np.tile(truth, membership.trials),
        GUESSED_BLINDLY: np.full(membership.is_in.size, attribute.prior.argmax()),
        GUESSED: attribute_guesses(losses, truth, attribute.prior).values.reshape(-1),
        GUESSED_BY_DISTRIBUTION: attribute_guesses_with_shadows(
            losses, truth, attribute.prior, membership
        ).values.reshape(-1),
    }


def by_target(targets: pd.DataFrame, column: str) -> Floats:
    """Return a column of a table of trials and targets as an array of shape (trials, targets)."""
    values: Floats = targets[column].to_numpy().reshape(targets["trial"].nunique(), -1)
    return values


def _answers(plan: RunPlan, store: TrialBatchStore, targets: pd.DataFrame) -> ModelOutputs:
    outputs = store.outputs(plan.config.audit.trials)
    federation = load_federation(plan.federation)

    def stacked(name: str) -> NDArray[Any]:
        return torch.cat([tensors[name] for tensors in outputs]).numpy()

    labels = federation.differing.labels.cpu().numpy()
    single = plan.federation.mechanism.unit is Unit.RECORD
    white_box = None
    is_known = None
    if WHITE_BOX[0] in outputs[0]:
        signals, inputs, log_probabilities, losses = map(stacked, WHITE_BOX)
        white_box = WhiteBoxFeatures(signals, inputs, log_probabilities, losses, labels)
        # Of which targets the attacker knows whether they are in is drawn in public, whoever is in.
        draw = generator(plan.federation.data_seed, Purpose.TARGET_CHOICE, round=2)
        is_known = known_halves(targets["trial"].nunique(), plan.federation.targets, draw)
    return ModelOutputs(
        log_probability=by_target(targets, "log_probability"),
        confidence=by_target(targets, "confidence"),
        logits=stacked(LOGITS) if single else None,
        labels=labels if single else None,
        population=np.minimum(stacked(POPULATION).astype(np.float64), 0.0),
        white_box=white_box,
        known=is_known,
        under_ascent=by_target(targets, UNDER_ASCENT) if UNDER_ASCENT in targets else None,
    )
