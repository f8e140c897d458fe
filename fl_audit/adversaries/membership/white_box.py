"""The white-box attack of Nasr et al. 2019: a network learns from half of the targets who is in, and judges the others.

No shadow worlds are needed: the attacker of a world knows of half of its targets whether they are members, and never
looks at another world. Crossing the halves gives every target a score by a network that was not told of it. Numbers out
of their range raise `InputError`.
"""

import numpy as np
from scipy.stats import rankdata

from fl_audit.adversaries.membership.attack_networks import WhiteBoxRule, _learnt_log_odds
from fl_audit.adversaries.membership.white_box_features import WhiteBoxFeatures
from fl_audit.arrays import Flags, Floats
from fl_audit.errors import require
from fl_audit.game.membership import Membership

_LEAST_LEARNT = 2
_SCALARS_AT_ONCE = 2**23
"""Scalars, about, that the networks of several worlds hold together: 32 MiB, and gradients as much again."""


def known_halves(worlds: int, targets: int, generator: np.random.Generator) -> Flags:
    """Draw which half of the targets the attacker of each world knows, bool (worlds, targets).

    Parameters
    ----------
    worlds, targets
        Number of worlds, at least 1, and of targets in each, at least 2.
    generator
        Draws them, never looking at who is in: who is known must not tell who is a member.
    """
    require(worlds >= 1, f"number of worlds is {worlds}: accepted are whole numbers from 1")
    require(targets >= 2, f"number of targets is {targets}: accepted are whole numbers from 2")
    first = np.broadcast_to(np.arange(targets) < targets // 2, (worlds, targets))
    return np.asarray(generator.permuted(first, axis=1), dtype=np.bool_)


def white_box_scores(
    features: WhiteBoxFeatures, membership: Membership, known: Flags, rule: WhiteBoxRule | None = None
) -> Floats:
    """Return the scores of the white-box attack, shape (worlds, targets), higher for a likelier member.

    In each world one network learns from the known targets and judges the others, and a second one the other way round.
    The score is the share of targets of its half of the world that a target outdoes in log-odds of membership, itself
    and ties counted by half: above 0 and below 1. Raises `InputError` if a half has fewer than 2 members or fewer than
    2 others to learn from.

    Source: Nasr, Shokri & Houmansadr 2019, sections II and III; several releases as in their federated setting. Sizes,
    steps and dropout are fitted to a few hundred targets (theirs has a thousand filters), all features are standardised
    on the learning half, and training ends after a fixed number of steps: theirs reports the best epoch on the judged
    records.

    Why shares and not log-odds: the network that was told of more members says higher log-odds, and what it judges is
    the other half. Where nothing leaks, log-odds of both halves together had an AUC of 0.45 in simulation with 30
    targets; with shares it is 1/2 in the mean, exactly, since both halves have the same ones. Where members stand out
    well it costs about 0.004 of the AUC with 100 targets. No world's score rests on another's, so `membership_rates`
    may be told that worlds are no shadows of each other.

    Parameters
    ----------
    features, rule
        What is seen of each target, under one released model or several: the more an insider has seen, the more it has.
        What the networks are shown, and how they learn; `WhiteBoxRule()` if None.
    membership, known
        Who is in; of it a network is told the half of its own world that it learns from. The halves, bool (worlds,
        targets), are as `known_halves` draws them.
    """
    rule = rule or WhiteBoxRule()
    flags = _checked(features, membership, known)
    scores = np.empty(flags.shape)
    together = max(1, _SCALARS_AT_ONCE // _scalars_a_world(features, rule))
    for first in range(0, features.worlds, together):
        rows = slice(first, first + together)
        for learnt in (flags[rows], ~flags[rows]):
            log_odds = _learnt_log_odds(features.of_worlds(rows), membership.is_in[rows], learnt, rule)
            for shares, values, told in zip(scores[rows], log_odds, learnt, strict=True):
                shares[~told] = (rankdata(values[~told]) - 0.5) / (~told).sum()
    return scores


def _scalars_a_world(features: WhiteBoxFeatures, rule: WhiteBoxRule) -> int:
    """Return how many scalars a world's networks hold, about: inputs as given and scaled, and what filters give."""
    seen: int = sum(values.shape[-1] for values in (features.signals, features.inputs, features.log_probabilities))
    filtered: int = rule.filters * features.signals.shape[-1]
    return 2 * features.targets * (seen * features.releases + filtered)


def _checked(features: WhiteBoxFeatures, membership: Membership, known: Flags) -> Flags:
    """Return the halves, or refuse what does not fit together or cannot be learned from."""
    shape = (membership.worlds, membership.targets)
    found = (features.worlds, features.targets)
    require(found == shape, f"features are of {found} worlds and targets: accepted is {shape}, those of the membership")
    flags = np.asarray(known)
    fits = flags.shape == shape and flags.dtype == np.bool_
    require(fits, f"known targets are {flags.dtype} of shape {flags.shape}: accepted is bool {shape}")
    for learnt, half in ((flags, "known"), (~flags, "other")):
        for side, name in ((membership.is_in, "members"), (~membership.is_in, "targets that are out")):
            count = (learnt & side).sum(axis=1)
            world = int(np.argmin(count))
            message = f"world {world} has {count[world]} {name} in its {half} half"
            require(int(count[world]) >= _LEAST_LEARNT, f"{message}: accepted are 2 or more; take more targets")
    return flags
