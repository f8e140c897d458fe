"""Comparison of a stored run with one that is to go on in its directory, to find out whether they are the same run.

Locations of files and the number of cores do not matter, but the contents of the records do.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from fl_audit.data.records import Records
from fl_audit.federation.federation_records import split_of
from fl_audit.federation.run_plan import RunPlan
from fl_audit.runs.config.data_section import DATA_PATHS
from fl_audit.runs.config.model_section import MODEL_PATH

_OPERATIONAL = ("run.client-time-limit", "run.actors")
"""Settings that change how a run is carried out, but not its results."""
_PLACES = (*(f"data.{key}" for key in DATA_PATHS), f"model.{MODEL_PATH}")
"""Settings with the places of files, whose contents are compared by digests."""
GROWING = "audit.trials"  # the setting that may be raised: more trials of the same run


def data_digests(plan: RunPlan) -> tuple[str, str]:
    """Return two SHA-256 digests for a plan: of D with the test records, and of all records outside D.

    They depend on the records alone and not on the locations of files. The records outside D include the population
    sample and the records that replace others in D'.
    """
    split = split_of(plan.federation)
    return _digest(split.inside, split.test), _digest(split.outside)


def _digest(*record_sets: Records | None) -> str:
    digest = hashlib.sha256()
    for records in (records for records in record_sets if records is not None):
        digest.update(repr((records.features.shape, records.classes)).encode())
        # Digests from before there were owners and users stay valid where there are none.
        for values in (records.features, records.labels, records.owner, records.user):
            digest.update(b"" if values is None else values.tobytes())
    return digest.hexdigest()


def differences(stored: Mapping[str, Any], wanted_values: Mapping[str, Any]) -> list[str]:
    """Return a line of text for each difference between two configurations that affects a run's results.

    A larger number of trials is no difference, because trials can be added to a run.
    """
    passed_over = {*_OPERATIONAL, *_PLACES, GROWING}
    old, new = (dict(_flat(values)) for values in (stored, wanted_values))
    keys = [key for key in dict.fromkeys([*old, *new]) if key not in passed_over]
    differing = [
        f"{key} is {_said(new, key)} and was {_said(old, key)}" for key in keys if old.get(key) != new.get(key)
    ]
    if new[GROWING] < old[GROWING]:
        differing.append(f"{GROWING} is {new[GROWING]} and was {old[GROWING]}, and trials can only be added")
    return differing


def _flat(values: Any, key_prefix: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(values, Mapping):
        yield key_prefix, values
        return
    for key, value in values.items():
        yield from _flat(value, f"{key_prefix}.{key}" if key_prefix else str(key))


def _said(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    return "not set" if value is None else str(value)
