"""Settings that do not suit labels that are quantities, because they are about classes."""

from fl_audit.audits.membership.attack_names import OF_ANY_UNIT, USUAL, Attack
from fl_audit.data.data_setting_enums import NeighbourChoice, PartitionScheme
from fl_audit.errors import require
from fl_audit.runs.config import RunConfig
from fl_audit.words import name_list

_BY_CLASSES = (PartitionScheme.DIRICHLET, PartitionScheme.PATHOLOGICAL, PartitionScheme.SHARD)
_ATTACKS = (*OF_ANY_UNIT, Attack.ACTIVE)
_QUANTITIES = "and the labels are quantities"


def fitting_quantities(config: RunConfig) -> RunConfig:
    """Return the configuration of a regression: without the attack on class probabilities where it is a default.

    Raises `InputError` for a partition, an attack or a record that needs classes.
    """
    data = config.data
    audit = config.audit
    schemes = [scheme for scheme in PartitionScheme if scheme not in _BY_CLASSES]
    divides = f"partition is '{data.partition}', which divides records by their classes, {_QUANTITIES}"
    require(data.partition not in _BY_CLASSES, f"{divides}: accepted are {name_list(schemes)}")
    crafted = (NeighbourChoice.CRAFTED, NeighbourChoice.CRAFTED_OPPOSITE)
    choices = [choice for choice in NeighbourChoice if choice not in crafted]
    searches = f"neighbour is '{audit.neighbour}', which searches among classes, {_QUANTITIES}"
    require(audit.neighbour not in crafted, f"{searches}: accepted are {name_list(choices)} and an index of D")
    of_classes = {"local-randomizer": config.privacy.local_randomizer, "reconstruct-samples": audit.reconstruct_samples}
    for name, value in of_classes.items():
        require(value is None, f"{name} is {value!r}, {_QUANTITIES}: accepted with it are labels that name a class")
    if audit.attacks == USUAL:
        return config.changed(audit={"attacks": OF_ANY_UNIT})
    about_classes = [attack for attack in audit.attacks or () if isinstance(attack, Attack) and attack not in _ATTACKS]
    problem = f"attacks {name_list(about_classes)} look at classes, {_QUANTITIES}"
    require(not about_classes, f"{problem}: accepted are {name_list(_ATTACKS)}")
    return config
