"""Warnings that are known before a run begins, about its data and its guarantee; the report shows some of them."""

from collections.abc import Iterator, Sequence

import numpy as np

from fl_audit.adjacency import Adjacency, Unit
from fl_audit.array_types import Integers
from fl_audit.data import remedies
from fl_audit.data.catalogue import load_source
from fl_audit.data.data_setting_enums import PartitionScheme
from fl_audit.data.identifier_detection import likeliest_person_column
from fl_audit.data.identifier_names import is_person_name
from fl_audit.data.loaded_dataset import DataWarning, IdentifyingColumn, LoadedDataset
from fl_audit.data.record_selection import Split
from fl_audit.errors import Remedy, settings_text
from fl_audit.federation.federation_records import split_of
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.report.guarantee_warnings import delta_warning, weakness_warning
from fl_audit.words import plural

ENOUGH_FOR_A_RATE = 30
"""Number of records below which a share is off by 18 percentage points or more, one time in twenty."""
_CLASSES_NAMED = 5


def data_warnings_of(plan: RunPlan) -> tuple[DataWarning, ...]:
    """Return all warnings about the data of a planned run.

    They concern identifiers of persons, how the table was read, missing classes, too few records, and the model.
    """
    source = load_source(plan.federation.data)
    split = split_of(plan.federation)
    # Persons first: what follows concerns numbers, and an identifier concerns the guarantee.
    of_data = (*_of_persons(plan, source, split), *source.cautions, *_absent(plan, source, split), *_few(plan))
    return (*of_data, *(DataWarning(text) for text in load_federation(plan.federation).model.cautions))


def report_lines(plan: RunPlan) -> tuple[str, ...]:
    """Return the texts of those warnings about the data of a planned run that the report shows."""
    return tuple(caution.text for caution in data_warnings_of(plan) if caution.in_report)


def most_records(plan: RunPlan) -> int:
    """Return the largest number of records that one person seems to have in the data of a planned run.

    Persons are recognised by the user or owner of a record, and by columns that look like identifiers. The number is 1
    if no person seems to have several records, or if users are the units of the claim, which then include all their
    records.
    """
    if plan.federation.mechanism.unit is Unit.USER:
        return 1
    source = load_source(plan.federation.data)
    inside = split_of(plan.federation).inside
    persons = inside.owner if inside.user is None else inside.user
    owned = 1 if persons is None else int(np.bincount(persons).max())
    return max(owned, *(identifier.most for identifier in source.identifiers), 1)


def _of_persons(plan: RunPlan, dataset: LoadedDataset, split: Split) -> Iterator[DataWarning]:
    """Yield warnings about identifier columns, and about persons with several records."""
    owned = plan.config.data.owner is not None or dataset.pool.owner is not None
    unit = plan.federation.mechanism.unit
    together = unit is Unit.CLIENT and plan.federation.partition is PartitionScheme.NATURAL and owned
    by_user = unit is Unit.USER
    if split.inside.user is not None:
        if not by_user and not _does_client_unit_cover_users(plan, split.inside.user, unit):
            yield from _of_holders("a user", split.inside.user, unit, _as_users(plan))
    elif split.inside.owner is not None and not together:
        yield from _of_holders("an owner", split.inside.owner, unit, _as_clients(plan.federation.mechanism.adjacency))
    holder = "user" if split.inside.user is not None else "owner" if owned else None
    persons = likeliest_person_column(dataset.identifiers, holder)
    for column in dataset.identifiers:
        drop = remedies.drop(column.name)
        if column.most == 1:
            text = f"{column.name}: another value in each of {column.rows:,} rows, which only names or numbers it"
            yield DataWarning(f"{text}; {drop} leaves it out, else it is a feature", (drop,))
        elif (together and column.within_owner) or (by_user and column.within_user):
            text = f"{_numbers(column)}, so it looks like an identifier, and is a feature"
            yield DataWarning(f"{text}; {drop} leaves it out", (drop,))
        else:
            yield _unprotected(column, plan, is_person=column is persons)


def _numbers(column: IdentifyingColumn) -> str:
    return f"{column.name}: {column.values:,} values in {column.rows:,} rows, up to {column.most:,} each"


def _unprotected(column: IdentifyingColumn, plan: RunPlan, is_person: bool) -> DataWarning:
    """Return the warning on an identifier column whose values occur in several records.

    The claim protects one record or user, but not all records with the same value. If the values are persons, the
    warning advises to make them users. It advises to drop a column only if another one identifies the persons, or if
    its values may be no persons.
    """
    unit = plan.federation.mechanism.unit
    drop = remedies.drop(column.name)
    claim = f"a claim about {unit}s does not protect a person with several"
    if column.beginning:
        begin = f"{column.name}: words that begin in {column.values:,} ways, such as {column.beginning!r}"
        begin += f", in {column.rows:,} rows, up to {column.most:,} each"
        advice = "if the beginning says whom a row is about, give it a column of its own and name that as the user"
        return DataWarning(f"{begin}: {claim}; {advice}", in_report=True)
    text = f"{_numbers(column)}: {claim}, and it is a feature"
    if not is_person:
        return DataWarning(f"{text}; {drop} leaves it out", (drop,), in_report=True)
    needed = (remedies.user(column.name), *_as_users(plan))
    text += f"; {settings_text(needed)} protects all rows of each together"
    if is_person_name(column.name):
        return DataWarning(text, needed, in_report=True)
    return DataWarning(f"{text}; if its values are no persons, {drop} leaves it out", needed, True, (drop,))


def _as_users(plan: RunPlan) -> tuple[Remedy, ...]:
    """Return the settings that make users, instead of records, the units of the claim."""
    relation = Adjacency(f"{plan.federation.mechanism.adjacency.relation}-{Unit.USER}")
    # Clients that train by themselves clip what they send, and not what each of their users adds to it.
    sums = () if plan.config.training.strategy == "dp-fedsgd" else (Remedy("strategy", "dp-fedsgd", "training"),)
    return *sums, Remedy("adjacency", relation.value, "privacy")


def _of_holders(holder: str, held_by: Integers, unit: Unit, remedies: Sequence[Remedy]) -> Iterator[DataWarning]:
    """Yield a warning if some user or owner has several records, because the claim does not protect them together.

    `held_by` is the number of the user or owner of each record of D, shape (records,).
    """
    noun = holder.split()[1]
    counts = np.unique(held_by, return_counts=True)[1]
    if (largest := int(counts.max())) == 1:
        return
    holding = f"{len(counts):,} {noun}s have the {len(held_by):,} records that train, up to {largest:,} each"
    several = "one record is not one person" if unit is Unit.RECORD else f"clients are not the {noun}s"
    claim = f"and the claim protects one {unit}, not all records of {holder}"
    text = f"{several}: {holding}, {claim}; {settings_text(remedies)} does"
    yield DataWarning(text, tuple(remedies), in_report=True)


def _does_client_unit_cover_users(plan: RunPlan, user: Integers, unit: Unit) -> bool:
    """Return whether clients are the units of the claim and no user has records at several clients."""
    if unit is not Unit.CLIENT:
        return False
    shards = load_federation(plan.federation).shards
    return sum(len(np.unique(user[shard])) for shard in shards) == len(np.unique(user))


def _as_clients(adjacency: Adjacency) -> tuple[Remedy, ...]:
    """Return the settings that make every owner of records a client, and make clients the units of the claim."""
    relation = Adjacency(f"{adjacency.relation}-{Unit.CLIENT}")
    natural = Remedy("partition", PartitionScheme.NATURAL.value)
    return natural, Remedy("strategy", "dp-fedavg", "training"), Remedy("adjacency", relation.value, "privacy")


def _absent(plan: RunPlan, dataset: LoadedDataset, split: Split) -> Iterator[DataWarning]:
    """Yield a warning if a class of the data set has no records in D."""
    if dataset.pool.has_quantities:
        return
    absent = np.setdiff1d(dataset.pool.labels, split.inside.labels)
    if absent.size:
        names = dataset.class_names or range(dataset.pool.classes)
        absent_classes = [f"{names[code]} ({np.sum(dataset.pool.labels == code):,} in the data)" for code in absent]
        classes_text = f"{', '.join(absent_classes[:_CLASSES_NAMED])}{', ...' * (absent.size > _CLASSES_NAMED)}"
        yield DataWarning(
            f"no record of class {classes_text} is among the {plan.federation.records:,} that train, so that "
            "nothing of it is "
            f"learned: {_more_records(plan)} would hold some"
        )


def _more_records(plan: RunPlan) -> str:
    """Return words for where more training records come from: a larger setting, or more data if all of them train."""
    pool = len(load_source(plan.federation.data).pool)
    are_left = plan.federation.records >= plan.config.data.records and plan.federation.records < pool
    return "more records in [data]" if are_left else "more data"


def _few(plan: RunPlan) -> Iterator[DataWarning]:
    """Yield a warning for each set of fewer than 30 records: test set, training set, population sample."""
    federation = load_federation(plan.federation)
    audit = plan.config.audit
    data = plan.config.data
    tested = len(federation.test_records)
    if tested < ENOUGH_FOR_A_RATE:
        remedy = Remedy("test-records", ENOUGH_FOR_A_RATE)
        is_set = data.test_records < ENOUGH_FOR_A_RATE
        fix = f"{remedy} asks for more" if is_set else "150 records or more in the table would hold out 30"
        yield _of_few("accuracy is measured", tested, "test", fix, (remedy,) if is_set else ())
    compares = bool(audit.membership or audit.epsilon_star or audit.attacks)
    if compares and (members := plan.federation.records) < ENOUGH_FOR_A_RATE:
        fix = f"{_more_records(plan)} make it more"
        yield _of_few("what models give away is measured", members, "training", fix)
    population = len(federation.population_records)
    if compares and population < ENOUGH_FOR_A_RATE:
        fix = "fewer records in [data], or a longer table, leave more to compare with"
        yield _of_few("what models give away is measured", population, "population", fix)


def _of_few(subject: str, number: int, kind: str, fix: str, remedies: Sequence[Remedy] = ()) -> DataWarning:
    off = round(100 * 1.96 * 0.5 / np.sqrt(number))
    records = f"{number} {kind} {'record' if number == 1 else 'records'}"
    text = f"{subject} on {records} alone, where a share can be off by {off} percentage points by chance: {fix}"
    return DataWarning(text, tuple(remedies), in_report=True)


def plan_warnings_of(plan: RunPlan) -> tuple[DataWarning, ...]:
    """Return all warnings about a planned run: first of its data, then of its guarantee."""
    return (*data_warnings_of(plan), *_of_guarantee(plan))


def _of_guarantee(plan: RunPlan) -> tuple[DataWarning, ...]:
    guarantee = plan.guarantee
    if guarantee is None:
        return ()
    federation = plan.federation
    units = federation.records if federation.mechanism.unit is Unit.RECORD else federation.units
    warnings_found = (weakness_warning(guarantee), delta_warning(guarantee, units), _budget_text(plan))
    return tuple(DataWarning(text) for text in warnings_found if text is not None)


def _budget_text(plan: RunPlan) -> str | None:
    """Return a sentence on the rounds that a budget of epsilon allows; None without a budget."""
    budget = plan.config.privacy.stop_at_epsilon
    if budget is None or plan.guarantee is None:
        return None
    rounds = plural(plan.federation.rounds, "round")
    return f"stop-at-epsilon = {budget:g} allows {rounds}, which spend epsilon {plan.guarantee.epsilon:.4g}"
