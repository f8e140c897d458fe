"""Names of the membership attacks, without their code, because a configuration needs only the names."""

from collections.abc import Iterable
from enum import StrEnum


class Attack(StrEnum):
    """A membership attack, or an attack on an attribute, by its name in the configuration.

    LOSS: the loss (Yeom et al. 2018). SHADOW: a classifier of confidences (Shokri et al. 2017). LIRA: the likelihood
    ratio (Carlini et al. 2022). RMIA: the robust attack (Zarifzadeh et al. 2024). WHITE_BOX: a network that sees
    gradients in the final model, and knows the membership of half of the targets (Nasr et al. 2019). WHITE_BOX_ROUNDS:
    the same with gradients in three releases. ACTIVE: an insider that raises targets' losses in every round (Nasr et
    al. 2019). ATTRIBUTE: the value of one attribute of a target, from the loss with each possible value (Yeom et al.
    2018).
    """

    LOSS = "loss"
    SHADOW = "shadow"
    LIRA = "lira"
    RMIA = "rmia"
    WHITE_BOX = "white-box"
    WHITE_BOX_ROUNDS = "white-box-rounds"
    ACTIVE = "active"
    ATTRIBUTE = "attribute"

    @property
    def asks_about_records(self) -> bool:
        """Whether the attack needs targets that are single records; false for ACTIVE, which checks this itself."""
        return self not in (*OF_ANY_UNIT, Attack.ACTIVE)

    @property
    def is_white_box(self) -> bool:
        """Whether the attack uses gradients, for which it needs the weights of the model."""
        return self in (Attack.WHITE_BOX, Attack.WHITE_BOX_ROUNDS)


def of_ours(attacks: Iterable[Attack | str]) -> list[Attack]:
    """Return the built-in attacks in a configuration's list, without the user's own attacks, which are strings."""
    return [attack for attack in attacks if isinstance(attack, Attack)]


def has_shadows(attack: Attack | str) -> bool:
    """Return whether an attack uses the models of other trials as shadow models (models with known membership).

    This is true for every attack that the user of fl_audit provides.
    """
    return not isinstance(attack, Attack) or attack in (Attack.SHADOW, Attack.LIRA, Attack.RMIA, Attack.ATTRIBUTE)


USUAL = (Attack.LOSS, Attack.SHADOW, Attack.LIRA, Attack.RMIA)
"""Default attacks of a run, which need only the final models."""
OF_ANY_UNIT = (Attack.LOSS, Attack.LIRA, Attack.RMIA)
"""Attacks that need only one number per target, so that they also work for clients."""
