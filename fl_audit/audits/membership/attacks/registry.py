"""Registry of the membership attacks by name; to add one, write a module for it and add a line here."""

from collections.abc import Callable, Iterable

from fl_audit.audits.membership.attacks.active import ACTIVE
from fl_audit.audits.membership.attacks.attribute import ATTRIBUTE
from fl_audit.audits.membership.attacks.lira import LIRA
from fl_audit.audits.membership.attacks.loss import LOSS
from fl_audit.audits.membership.attacks.membership_attack import MembershipAttack
from fl_audit.audits.membership.attacks.own_attack import own_attack
from fl_audit.audits.membership.attacks.rmia import RMIA
from fl_audit.audits.membership.attacks.shadow import SHADOW
from fl_audit.audits.membership.attacks.white_box import WHITE_BOX, WHITE_BOX_ROUNDS

ATTACKS: dict[str, MembershipAttack] = {
    attack.name: attack for attack in (LOSS, SHADOW, LIRA, RMIA, WHITE_BOX, WHITE_BOX_ROUNDS, ACTIVE, ATTRIBUTE)
}
"""The built-in attacks, by their names in a configuration."""

Condition = Callable[[MembershipAttack], bool]
"""A condition on an attack."""


def attack_named(name: str) -> MembershipAttack:
    """Return the built-in attack with a name, or the user's own attack `package.module:name`, without its code."""
    return ATTACKS.get(name) or own_attack(name)


def attacks_named(names: Iterable[str] | None) -> tuple[MembershipAttack, ...]:
    """Return the attacks with the names of a configuration, in their order; none if the configuration names none."""
    return tuple(map(attack_named, names or ()))


def names_of_attacks(condition: Condition = lambda attack: True) -> tuple[str, ...]:
    """Return the names of all built-in attacks that meet a condition, such as that they need no single records."""
    return tuple(name for name, attack in ATTACKS.items() if condition(attack))


def default_attacks(of_records: bool) -> tuple[str, ...]:
    """Return the names of the attacks of a run whose configuration names none.

    `of_records`: Whether the targets are single records; if they are not, attacks that need these are left out.
    """
    return names_of_attacks(lambda attack: attack.is_default and (of_records or not attack.needs_single_records))


def attacks_on_any_unit() -> tuple[str, ...]:
    """Return the names of the attacks whose targets may be users or clients as well as single records."""
    return names_of_attacks(lambda attack: not attack.needs_single_records)
