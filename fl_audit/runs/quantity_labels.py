"""Settings that do not suit labels that are quantities, because they are about classes."""

from fl_audit.audits.membership.attacks.registry import attacks_named, default_attacks, names_of_attacks
from fl_audit.data.data_setting_enums import NeighbourChoice, PartitionScheme
from fl_audit.errors import require
from fl_audit.runs.config import RunConfig
from fl_audit.words import name_list

_BY_CLASSES = (PartitionScheme.DIRICHLET, PartitionScheme.PATHOLOGICAL, PartitionScheme.SHARD)
_QUANTITIES = "and the labels are quantities"


def fitting_quantities(config: RunConfig) -> RunConfig:
    """Return the configuration of a regression: without attacks on class probabilities where they are a default.

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
    about_classes = [attack.name for attack in attacks_named(audit.attacks) if attack.needs_classes]
    fitting = names_of_attacks(lambda attack: not attack.needs_classes)
    if audit.attacks == default_attacks(of_records=True):
        return config.changed(audit={"attacks": [name for name in audit.attacks if name in fitting]})
    problem = f"attacks {name_list(about_classes)} look at classes, {_QUANTITIES}"
    require(not about_classes, f"{problem}: accepted are {name_list(fitting)}")
    return config
