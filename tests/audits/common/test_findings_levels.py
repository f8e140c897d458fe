"""Three levels of one training: what follows at each, in the summary, the report and the first screen."""

import math
import re
from pathlib import Path

import pytest

from fl_audit.adjacency import Relation, Unit
from fl_audit.audits.common.sections_guarantee import person_text
from fl_audit.audits.common.sections_privacy_units import PrivacyUnitsFinding, _size
from fl_audit.experiments.studies.study_runs import results_of_run
from fl_audit.federation.finished_run import GroupSizes
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.report.report_elements import ReportContents
from fl_audit.runs.config import parse_config
from fl_audit.runs.planning import plan_run
from tests.builders.hospital import hospital_data, write_hospital

SIZES = GroupSizes(records_of_client=40, records_of_user=9, users_of_client=12, clients_of_user=2)


@pytest.mark.parametrize(
    ("claimed", "unit", "removed", "replaced"),
    [
        (Unit.RECORD, Unit.RECORD, 1, 1),
        (Unit.RECORD, Unit.USER, 9, 9),
        (Unit.RECORD, Unit.CLIENT, 40, 40),
        (Unit.USER, Unit.RECORD, 2, 1),
        (Unit.USER, Unit.USER, 1, 1),
        (Unit.USER, Unit.CLIENT, 12, 12),
        (Unit.CLIENT, Unit.RECORD, 2, 1),
        (Unit.CLIENT, Unit.USER, 4, 2),
        (Unit.CLIENT, Unit.CLIENT, 1, 1),
    ],
)
def test_how_many_units_of_the_guarantee_change(claimed: Unit, unit: Unit, removed: int, replaced: int) -> None:
    assert _size(claimed, unit, Relation.ADD_REMOVE, SIZES) == removed
    assert _size(claimed, unit, Relation.REPLACE, SIZES) == replaced


def contents_of(directory: Path, adjacency: str) -> ReportContents:
    path = write_hospital(directory)
    settings = {
        "data": hospital_data(path, records=100),
        "training": {"rounds": 3},
        "privacy": {"noise-multiplier": 4.0, "delta": 0.001, "adjacency": adjacency, "accountant": "gdp"},
        "audit": {"trials": 10, "epsilon-star": False, "membership": False},
        "run": {"seed": 1},
    }
    return results_of_run(plan_run(parse_config(settings)))


def test_a_claim_about_records_says_what_it_is_worth_to_a_patient(tmp_path: Path) -> None:
    contents = contents_of(tmp_path, "add-remove-record")
    numbers = contents.find(PrivacyUnitsFinding)
    assert numbers is not None
    record, user, client = numbers.levels
    assert contents.plan.guarantee is not None
    mu = math.sqrt(3) / 4
    largest_count = contents.run.most_records
    assert record.is_claimed
    assert record.epsilon == contents.plan.guarantee.epsilon
    assert (user.size, user.epsilon) == (largest_count, pytest.approx(gdp_epsilon(0.001, largest_count * mu)))
    assert client.epsilon is not None
    assert client.epsilon > user.epsilon > record.epsilon
    assert user.shown is client.shown is None
    assert re.search(
        rf"user .*\b{largest_count} records .*epsilon {user.epsilon:.3g} .*group privacy", person_text(contents)
    )
    assert contents.summary["levels"]["levels"][1]["size"] == largest_count


@pytest.mark.long
def test_a_claim_about_users_covers_their_records(tmp_path: Path) -> None:
    for adjacency, size in (("replace-user", 1), ("add-remove-user", 2)):
        contents = contents_of(tmp_path, adjacency)
        numbers = contents.find(PrivacyUnitsFinding)
        assert numbers is not None
        record, user, client = numbers.levels
        assert (record.size, user.is_claimed, user.size) == (size, True, 1)
        assert client.size is not None
        assert client.size < contents.plan.federation.users
        assert "is protected less" not in person_text(contents)
