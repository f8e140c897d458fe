"""Membership attacks on the models of a finished run: scores of every world and target."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from experiments.runs.plan import AuditPlan
from experiments.runs.store import RunStore
from fl_audit.adjacency import Unit
from fl_audit.adversaries.membership.attacks import ModelAnswers, attack_scores
from fl_audit.adversaries.membership.names import Attack
from fl_audit.adversaries.membership.white_box import known_halves
from fl_audit.adversaries.membership.white_box_features import WhiteBoxFeatures
from fl_audit.game.game import Game, load_game
from fl_audit.game.membership import Membership
from fl_audit.randomness import Purpose, generator
from fl_audit.report.sections.attacks import APART, SCORE
from server.target_outputs import LOGITS, POPULATION, UNDER_ASCENT, WHITE_BOX

_ENOUGH_TO_KEEP_APART = 64
"""With so many worlds half of them are shadows enough for the other half."""


def with_attacks(plan: AuditPlan, store: RunStore, targets: pd.DataFrame) -> pd.DataFrame:
    """Return the table of targets with a column of scores for every attack that the configuration names.

    Parameters
    ----------
    plan
        The run.
    store
        Its finished batches.
    targets
        One row a world and target, worlds and targets in order.

    Raises
    ------
    InputError
        If there are too few worlds for an attack.
    """
    membership = Membership(by_target(targets, "is_in").astype(np.bool_))
    answers = _answers(plan, store, targets)
    attacks: Sequence[Attack] = plan.config.audit.attacks or ()
    found = {f"{SCORE}{attack}": attack_scores(attack, answers, membership).reshape(-1) for attack in attacks}
    if membership.worlds >= _ENOUGH_TO_KEEP_APART:
        # Scores of worlds that are nobody's shadows are independent, as a bound on epsilon needs.
        shadows = np.arange(membership.worlds) < membership.worlds // 2
        for attack in attacks:
            if attack.has_shadows:
                found[f"{APART}{attack}"] = attack_scores(attack, answers, membership, shadows).reshape(-1)
    return targets.assign(**found)


def by_target(targets: pd.DataFrame, column: str) -> NDArray[np.float64]:
    """Return a column of the table of targets, shape (worlds, targets)."""
    values: NDArray[np.float64] = targets[column].to_numpy().reshape(targets["world"].nunique(), -1)
    return values


def _answers(plan: AuditPlan, store: RunStore, targets: pd.DataFrame) -> ModelAnswers:
    kept = store.outputs(plan.config.audit.worlds)
    logits, population = (torch.cat([one[name] for one in kept]).numpy() for name in (LOGITS, POPULATION))
    single = plan.public.law.unit is Unit.RECORD
    return ModelAnswers(
        log_probability=by_target(targets, "log_probability"),
        confidence=by_target(targets, "confidence"),
        logits=logits if single else None,
        labels=load_game(plan.public).differing.labels.cpu().numpy() if single else None,
        population=np.minimum(population.astype(np.float64), 0.0),
        white_box=_white_box(kept, load_game(plan.public)) if WHITE_BOX[0] in kept[0] else None,
        known=_known(plan, targets) if WHITE_BOX[0] in kept[0] else None,
        under_ascent=by_target(targets, UNDER_ASCENT) if UNDER_ASCENT in targets else None,
    )


def _white_box(kept: list[dict[str, Tensor]], game: Game) -> WhiteBoxFeatures:
    signals, inputs, log_probabilities, losses = (torch.cat([one[name] for one in kept]).numpy() for name in WHITE_BOX)
    labels = game.differing.labels.cpu().numpy()
    return WhiteBoxFeatures(signals, inputs, log_probabilities, losses, labels)


def _known(plan: AuditPlan, targets: pd.DataFrame) -> NDArray[np.bool_]:
    """Return of which targets a white-box attacker knows whether they are in; drawn in public, whoever is in."""
    draw = generator(plan.public.data_seed, Purpose.TARGET_CHOICE, round=2)
    return known_halves(targets["world"].nunique(), plan.public.targets, draw)
