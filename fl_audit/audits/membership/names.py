"""The names of the membership attacks, without their code, because a configuration needs only the names."""

from collections.abc import Iterable
from enum import StrEnum


class Attack(StrEnum):
    """Membership attacks.

    LOSS: the loss (Yeom et al. 2018). SHADOW: a classifier of confidences (Shokri et al. 2017). LIRA: the likelihood
    ratio (Carlini et al. 2022). RMIA: the robust attack (Zarifzadeh et al. 2024). WHITE_BOX: a network that sees
    gradients, and knows of half of the targets whether they are in (Nasr et al. 2019); WHITE_BOX_ROUNDS: the same over
    three releases, as an insider sees them. ACTIVE: an insider that pushes targets' losses up in every round (ibid.).
    QUANTILE: quantile regression of confidences on records that no model was trained on (Bertran et al. 2023).
    ATTRIBUTE: the value of one attribute of a target, from the loss with each value in its place (Yeom et al. 2018).
    """

    LOSS = "loss"
    SHADOW = "shadow"
    LIRA = "lira"
    RMIA = "rmia"
    WHITE_BOX = "white-box"
    WHITE_BOX_ROUNDS = "white-box-rounds"
    ACTIVE = "active"
    QUANTILE = "quantile"
    ATTRIBUTE = "attribute"

    @property
    def asks_about_records(self) -> bool:
        """Whether every target has to be a single record. (ACTIVE checks this requirement by itself.)"""
        return self not in (*OF_ANY_UNIT, Attack.ACTIVE)

    @property
    def sees_weights(self) -> bool:
        """Whether the attack uses gradients."""
        return self in (Attack.WHITE_BOX, Attack.WHITE_BOX_ROUNDS)


def of_ours(attacks: Iterable[Attack | str]) -> list[Attack]:
    """Return the built-in attacks, without the user's own, which are named `package.module:name`."""
    return [attack for attack in attacks if isinstance(attack, Attack)]


def has_shadows(attack: Attack | str) -> bool:
    """Return whether an attack uses the other trials' models as shadow models; assumed for the user's own attacks."""
    return not isinstance(attack, Attack) or attack in (Attack.SHADOW, Attack.LIRA, Attack.RMIA, Attack.ATTRIBUTE)


USUAL = (Attack.LOSS, Attack.SHADOW, Attack.LIRA, Attack.RMIA)
"""Default attacks of a run: they need final models alone."""
OF_ANY_UNIT = (Attack.LOSS, Attack.LIRA, Attack.RMIA)
"""Attacks that need only one number per target, so that they also work for clients."""
