"""Tests that identifiers are found in made-up tables, and that measurements, counts and shared attributes are not."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.identifier_detection import identifiers, likeliest_person_column, possible_identifiers

ROWS, PERSONS = 900, 218
Values = np.ndarray  # one for each row


def _table(name: str, values: Values, person: Values, draw: np.random.Generator) -> pd.DataFrame:
    """Return a hospital's table with a column in question; a person's attributes are equal in all of their rows."""
    sex, born = draw.integers(0, 2, PERSONS), draw.integers(1930, 2005, PERSONS)
    return pd.DataFrame(
        {
            name: values,
            "sex": np.where(sex[person] == 1, "f", "m"),
            "age_at_visit": 2024 - born[person] + draw.integers(0, 3, ROWS),
            "creatinine": draw.gamma(3, 0.4, ROWS).round(2),
            "ward": draw.choice(["A", "B", "C"], ROWS),
            "outcome": draw.integers(0, 2, ROWS),
        }
    )


Column = Callable[[np.random.Generator, Values], Values]


def _numbers(low: int, high: int) -> Column:
    return lambda draw, person: draw.choice(np.arange(low, high), PERSONS, replace=False)[person]


def _of_each(form: Callable[[int], object]) -> Column:
    return lambda draw, person: np.array([form(one) for one in person])


def _drawn(low: int, high: int, by: int = 1) -> Column:
    return lambda draw, person: draw.integers(low, high, ROWS) * by


def _among(*words: str) -> Column:
    return lambda draw, person: draw.choice(words, ROWS)


DENSE = _of_each(lambda one: one + 1)
IDENTIFIERS: dict[str, Column] = {
    "patient_id": _numbers(10**6, 10**7),
    "PatientID": DENSE,
    "PATIENTID": DENSE,
    "Patienten-ID": DENSE,
    "patient_nbr": DENSE,
    "Pat.-Nr.": DENSE,
    "encounter_id": lambda draw, person: np.sort(draw.integers(10**6, 2 * 10**6, ROWS) // 2 * 2),
    "account_no": _numbers(10**17, 10**17 + 10**6),
    "mrn": _numbers(10**6, 10**7),
    "subject": DENSE,
    "participant_id": _of_each(lambda one: one % 12),
    "KundenNr": DENSE,
    "id": DENSE,
    "ID": DENSE,
    "id_paciente": DENSE,
    "hadm_id": DENSE,
    "SEQN": DENSE,
    "userId": DENSE,
    "member_uuid": _of_each(lambda one: f"{one * 7919:012x}"),
    "pseudonym": _of_each(lambda one: f"x{one}"),
    "last_name": _of_each(lambda one: "abcdefghij"[one % 10] + "klmnopqrst"[one // 10 % 10] * (1 + one // 100)),
    "e-mail": _of_each(lambda one: f"p{one}@example.org"),
    # without a name that says it
    "x1": _numbers(10**6, 10**7),
    "x2": DENSE,
    "x3": _of_each(lambda one: f"P{one:05d}"),
    "x4": _of_each(lambda one: f"{one * 7919:012x}"),
    "x5": _of_each(lambda one: f"{one}@example.org"),
    "x6": _numbers(10**17, 10**17 + 10**6),
}
HONEST: dict[str, Column] = {
    "age": _drawn(18, 95),
    "Alter": _drawn(18, 95),
    "birth_year": _drawn(1930, 2005),
    "jahr": _drawn(1930, 2005),
    "zip": _drawn(10000, 10300),
    "plz": _drawn(80331, 80600),
    "postal_code": _of_each(lambda one: 10_000 + 37 * one),
    "length_of_stay": lambda draw, person: draw.geometric(0.1, ROWS),
    "los": lambda draw, person: draw.geometric(0.1, ROWS),
    "stay": lambda draw, person: draw.geometric(0.1, ROWS),
    "dose": _drawn(1, 80, by=25),
    "dose_mg": _drawn(100, 300),
    "number_of_visits": _drawn(0, 60),
    "num_medications": _drawn(1, 80),
    "visit_number": _drawn(1, 40),
    "no_of_patients": _drawn(1, 60),
    "income": _drawn(150, 900, by=1000),
    "salary": _drawn(1_000, 9_000, by=100),
    "glucose": _drawn(70, 260),
    "heart_rate": _drawn(40, 180),
    "platelets": _drawn(100, 450, by=1000),
    "x_amount": _drawn(1500, 1900),
    "month": lambda draw, person: draw.integers(2015, 2024, ROWS) * 100 + draw.integers(1, 13, ROWS),
    "admitted": lambda draw, person: 20_230_000 + draw.integers(1, 13, ROWS) * 100 + draw.integers(1, 28, ROWS),
    "day_of_year": _drawn(1, 366),
    "exam": _drawn(0, 101),
    "pixel_17": _drawn(0, 256),
    "tenure": _drawn(0, 120),
    "percent": _drawn(0, 101),
    "hospital_id": _drawn(1, 6),
    "store_id": _drawn(1, 40),
    "discharge_disposition_id": _drawn(1, 29),
    "admission_type_id": _drawn(1, 9),
    "amino_acid": _among(*[f"aa{letter}" for letter in "acdefghiklmnpqrstvwy"]),
    "uric_acid": _drawn(20, 90),
    "paid": _drawn(100, 300),
    "lipid": _drawn(100, 300),
    "icd": _among(*[f"{letter}{number:02d}" for letter in "EIJK" for number in range(0, 99, 9)]),
    "diagnosis": _among(*[f"{letter}{number:02d}.{number % 9}" for letter in "EIJK" for number in range(0, 99, 9)]),
    "drug": _among(
        *[f"{name} {dose} mg" for name in ("aspirin", "statin", "heparin") for dose in range(100, 800, 100)]
    ),
    "city": _among(*[f"{first}{last}" for first in ("ham", "nor", "sou", "wes") for last in ("burg", "ton", "ford")]),
    "ward_name": _among(*[f"W{number}" for number in range(10, 40)]),
    "age_group": _among("18-30", "31-50", "51-70", "71+"),
    "temperature": lambda draw, person: draw.normal(37, 1, ROWS).round(1),
    "weight": lambda draw, person: draw.normal(70, 12, ROWS).round(0),
    "case_count": _drawn(0, 50),
    "client": _drawn(0, 2),
    "member": _among("yes", "no"),
}


def _found(name: str, column: Column) -> list[tuple[str, int, int, int]]:
    draw = np.random.default_rng(len(name))
    person = draw.permutation(np.concatenate([np.arange(PERSONS), draw.integers(0, PERSONS, ROWS - PERSONS)]))
    table = _table(name, column(draw, person), person, draw)
    return [(one.name, one.values, one.rows, one.most) for one in identifiers(table, "outcome", None)]


@pytest.mark.parametrize("name", IDENTIFIERS)
def test_an_identifier_is_found_with_its_numbers(name: str) -> None:
    draw = np.random.default_rng(len(name))
    person = draw.permutation(np.concatenate([np.arange(PERSONS), draw.integers(0, PERSONS, ROWS - PERSONS)]))
    counts = pd.Series(IDENTIFIERS[name](draw, person)).value_counts()
    assert _found(name, IDENTIFIERS[name]) == [(name, len(counts), ROWS, counts.max())]


@pytest.mark.parametrize("name", HONEST)
def test_what_is_measured_counted_or_shared_is_no_identifier(name: str) -> None:
    assert _found(name, HONEST[name]) == []


def test_a_column_that_numbers_or_names_each_record_is_told_apart_from_measurements() -> None:
    draw = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "row": draw.permutation(40) + 1000,
            "mrn": draw.choice(10**6, 40, replace=False),
            "income": draw.choice(10**6, 40, replace=False),
            "size": draw.normal(size=40),
        }
    )
    found = identifiers(table.assign(y=[0, 1] * 20), "y", None)
    assert [(one.name, one.values, one.most) for one in found] == [("row", 40, 1), ("mrn", 40, 1)]


def test_an_owner_is_no_feature_and_says_whose_the_other_values_are() -> None:
    person = np.repeat(np.arange(30), 4)
    visits = pd.DataFrame({"patient_id": person, "encounter_id": np.arange(120) // 2, "session_id": person % 7, "y": 0})
    found = identifiers(visits, "y", "patient_id")
    assert [(one.name, one.within_owner) for one in found] == [("encounter_id", True), ("session_id", False)]
    assert likeliest_person_column(found, "patient_id") is None
    both = identifiers(visits, "y", None)
    persons = likeliest_person_column(both, None)
    assert persons is not None
    assert (persons.name, persons.values, persons.most) == ("patient_id", 30, 4)


def test_a_table_of_many_columns_is_looked_through() -> None:
    draw = np.random.default_rng(0)
    table = pd.DataFrame(draw.integers(0, 40, (200, 250)), columns=[f"q{number}" for number in range(250)])
    table["patient_id"] = draw.permutation(np.arange(200) // 4)
    assert [one.name for one in identifiers(table.assign(y=0), "y", None)] == ["patient_id"]


def _possible(name: str, values: Values) -> list[tuple[str, int, int, int]]:
    draw = np.random.default_rng(5)
    table = _table(name, values, draw.integers(0, PERSONS, ROWS), draw)
    found = possible_identifiers(table, "outcome", None, identifiers(table, "outcome", None))
    return [(one.name, one.values, one.rows, one.most) for one in found]


@pytest.mark.parametrize(("low", "high"), [(0, 200), (1, 60), (0, 700), (500, 540)])
def test_short_numbers_that_could_be_those_of_persons_are_asked_about(low: int, high: int) -> None:
    values = np.random.default_rng(7).integers(low, high, ROWS)
    counts = pd.Series(values).value_counts()
    assert _possible("x3", values) == [("x3", len(counts), ROWS, counts.max())]


QUANTITIES: dict[str, Callable[[np.random.Generator], Values]] = {
    "normal": lambda draw: draw.normal(60, 12, ROWS).round(),
    "long tail": lambda draw: draw.gamma(2, 15, ROWS).round(),
    "counted": lambda draw: draw.poisson(60, ROWS),
    "rising": lambda draw: np.sort(draw.integers(0, 200, ROWS)) + draw.integers(0, 2, ROWS),
    "few": lambda draw: draw.integers(0, 15, ROWS),
    "mostly one": lambda draw: np.where(draw.random(ROWS) < 0.5, 0, draw.integers(0, 200, ROWS)),
}


@pytest.mark.parametrize("kind", QUANTITIES)
def test_numbers_whose_distribution_is_that_of_a_quantity_are_not_asked_about(kind: str) -> None:
    draw = np.random.default_rng(7)
    values = QUANTITIES[kind](draw)
    table = pd.DataFrame({"x3": values, "rank": np.arange(ROWS), "y": draw.integers(0, 2, ROWS)})
    assert possible_identifiers(table, "y", None, ()) == ()


def test_a_known_owner_or_a_name_that_says_what_is_measured_is_not_asked_about() -> None:
    draw = np.random.default_rng(7)
    table = pd.DataFrame({"x3": draw.integers(0, 200, ROWS), "who": np.arange(ROWS) // 4, "y": 0})
    assert possible_identifiers(table, "y", None, ()) != ()
    assert possible_identifiers(table, "y", "who", ()) == ()
    assert possible_identifiers(table.rename(columns={"x3": "age", "who": "week"}), "y", None, ()) == ()


def test_a_named_user_column_is_no_question(tmp_path: Path) -> None:
    """No column is asked about once the user column is named."""
    draw = np.random.default_rng(5)
    table = pd.DataFrame({"x3": draw.integers(0, 200, 900), "m": draw.normal(size=900), "y": draw.integers(0, 2, 900)})
    table.to_csv(tmp_path / "t.csv", index=False)
    asked = (("path", str(tmp_path / "t.csv")), ("label", "y"))
    assert [one.name for one in load_source(DataSpec("csv", None, asked)).possible_identifiers] == ["x3"]
    assert load_source(DataSpec("csv", None, (*asked, ("user", "x3")))).possible_identifiers == ()
