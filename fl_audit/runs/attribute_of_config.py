"""Checks of the configured attacks, and the attribute (a table column) whose values are guessed."""

from fl_audit.adjacency import Unit
from fl_audit.audits.membership.attacks.registry import attacks_named, attacks_on_any_unit
from fl_audit.audits.registry import audit_named
from fl_audit.data.attribute_to_infer import choose_attribute
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.data.record_selection import Split
from fl_audit.data.records import Records
from fl_audit.errors import require
from fl_audit.runs.config import RunConfig
from fl_audit.words import name_list


def with_attribute(config: RunConfig, dataset: LoadedDataset, split: Split) -> RunConfig:
    """Check that the configured attacks are possible, and return the configuration with the attribute to guess.

    The attribute is the table column whose value an attack guesses. If no attack guesses one, the configuration is
    returned unchanged.

    Raises `InputError` if an attack on single records is configured although the unit is a user or a client, or if the
    attribute does not exist.
    """
    audit = config.audit
    relation = config.privacy.adjacency
    attacks = attacks_named(audit.attacks)
    of_records = [attack.name for attack in attacks if attack.needs_single_records]
    problem = f"attacks {name_list(of_records)} ask about records, and adjacency is {relation}"
    accepted = f"accepted about {relation.unit}s are {name_list(attacks_on_any_unit())}"
    require(relation.unit is Unit.RECORD or not of_records, f"{problem}: {accepted}")
    column = audit_named(audit.kind).column_of_candidates(audit.attribute)
    if column is None and not any(attack.guesses_values for attack in attacks):
        return config
    attribute_name = None if audit.attribute is None else str(audit.attribute)
    chosen = choose_attribute(dataset, _nonmembers(split), attribute_name)
    return config.changed(audit={"attribute": chosen.column.name})


def candidate_prior(config: RunConfig, dataset: LoadedDataset, split: Split) -> tuple[float, ...]:
    """Return the prior probability of each candidate in a reconstruction audit; empty if all are equally likely.

    Candidates that are the values of an attribute are as likely as among records that no trial uses for training.
    """
    attribute_name = audit_named(config.audit.kind).column_of_candidates(config.audit.attribute)
    return (
        ()
        if attribute_name is None
        else tuple(choose_attribute(dataset, _nonmembers(split), attribute_name).prior.tolist())
    )


def _nonmembers(split: Split) -> Records:
    """Return the records outside D, or the test records if there are none."""
    return split.test if split.outside is None else split.outside
