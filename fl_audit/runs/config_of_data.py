"""Choices of a configuration that follow from its data: records, users, clients, attacks and metrics."""

from fl_audit.adjacency import Adjacency, Unit
from fl_audit.audits.membership.attacks.registry import attacks_named, default_attacks, names_of_attacks
from fl_audit.audits.registry import audit_named
from fl_audit.data.data_setting_enums import NeighbourChoice, PartitionScheme
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.data.partition import owners_of
from fl_audit.data.record_selection import Split, select_records
from fl_audit.data.records import Records
from fl_audit.errors import require
from fl_audit.learning.metric_names import metrics_of_task
from fl_audit.learning.metrics import require_metrics
from fl_audit.runs import mechanism_of_config
from fl_audit.runs.config import RunConfig
from fl_audit.runs.federation_of_config import randomizer_of, with_attribute
from fl_audit.words import name_list

_BY_CLASSES = (PartitionScheme.DIRICHLET, PartitionScheme.PATHOLOGICAL, PartitionScheme.SHARD)
_QUANTITIES = "and the labels are quantities"


def with_records_selected(config: RunConfig, source: LoadedDataset) -> tuple[RunConfig, Split]:
    """Return the configuration with the numbers of its records and users, and the records themselves.

    Raises `InputError` if there are too few records, or if a setting does not suit them.
    """
    config = _fitting_quantities(config) if source.pool.has_quantities else config
    data = config.data
    adjacency = config.privacy.adjacency
    by_user = adjacency.unit is Unit.USER
    needs_replacement = adjacency is Adjacency.REPLACE_RECORD and audit_named(config.audit.kind).chooses_pair
    split = select_records(
        source, data.records, data.test_records, data.seed, by_user, data.users, fewest_outside=int(needs_replacement)
    )
    if by_user:
        # Whole users rarely have just as many records as are wanted.
        users = mechanism_of_config.units_of(split.inside)
        config = config.changed(data={"records": len(split.inside), "users": users})
    else:
        require(data.users is None, "users is set in [data], and adjacency is not about users: leave users out")
    local_randomizer = randomizer_of(config.privacy)
    # The records of D, and those outside it, which may be in D'.
    for records in (split.inside, split.outside):
        if local_randomizer is not None and records is not None:
            local_randomizer.require_records(records)
    return config, split


def with_choices_by_data(config: RunConfig, source: LoadedDataset, split: Split) -> RunConfig:
    """Return the configuration with clients, attribute and metrics; those that it leaves out follow from the data."""
    # If the number of clients is not set, each owner of records in D is a client.
    clients = len(owners_of(split.inside.owner)) if config.data.clients is None else config.data.clients
    config = with_attribute(config.changed(data={"clients": clients}), source, split)
    return _with_metrics(config, split.test)


def _fitting_quantities(config: RunConfig) -> RunConfig:
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


def _with_metrics(config: RunConfig, test: Records) -> RunConfig:
    """Return the configuration with the metrics that suit the labels of the test records, unless it names metrics.

    Raises `InputError` if a metric does not suit them.
    """
    if config.training.metrics is not None:
        require_metrics(config.training.metrics, test.classes)
        return config
    chosen = metrics_of_task(test.classes, test.largest_class or 0.0, is_audit=not config.is_ordinary_training)
    return config.changed(training={"metrics": chosen})
