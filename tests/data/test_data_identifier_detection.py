"""Tests that identifiers are found in made-up tables, and that measurements, counts and shared attributes are not."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from fl_audit.data.identifier_detection import identifiers, likeliest_person_column

ROWS, PERSONS = 900, 218
Values = np.ndarray  # one for each row


def _table(name: str, values: Values, person: Values, draw: np.random.Generator) -> pd.DataFrame:
    """Return a hospital's table with a column in question; a person's attributes are equal in all of their rows."""
    sex = draw.integers(0, 2, PERSONS)
    born = draw.integers(1930, 2005, PERSONS)
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
    return lambda draw, person: np.array([form(index) for index in person])


def _drawn(low: int, high: int, by: int = 1) -> Column:
    return lambda draw, person: draw.integers(low, high, ROWS) * by


def _among(*words: str) -> Column:
    return lambda draw, person: draw.choice(words, ROWS)


DENSE = _of_each(lambda person_number: person_number + 1)
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
    "participant_id": _of_each(lambda person_number: person_number % 12),
    "KundenNr": DENSE,
    "id": DENSE,
    "ID": DENSE,
    "id_paciente": DENSE,
    "hadm_id": DENSE,
    "SEQN": DENSE,
    "userId": DENSE,
    "member_uuid": _of_each(lambda person_number: f"{person_number * 7919:012x}"),
    "pseudonym": _of_each(lambda person_number: f"x{person_number}"),
    "last_name": _of_each(
        lambda person_number: (
            "abcdefghij"[person_number % 10] + "klmnopqrst"[person_number // 10 % 10] * (1 + person_number // 100)
        )
    ),
    "e-mail": _of_each(lambda person_number: f"p{person_number}@example.org"),
    # without a name that says it
    "x1": _numbers(10**6, 10**7),
    "x2": DENSE,
    "x3": _of_each(lambda person_number: f"P{person_number:05d}"),
    "x4": _of_each(lambda person_number: f"{person_number * 7919:012x}"),
    "x5": _of_each(lambda person_number: f"{person_number}@example.org"),
    "x6": _numbers(10**17, 10**17 + 10**6),
}
HONEST: dict[str, Column] = {
    "age": _drawn(18, 95),
    "Alter": _drawn(18, 95),
    "birth_year": _drawn(1930, 2005),
    "jahr": _drawn(1930, 2005),
    "zip": _drawn(10000, 10300),
    "plz": _drawn(80331, 80600),
    "postal_code": _of_each(lambda person_number: 10_000 + 37 * person_number),
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
    return [
        (identifier.name, identifier.values, identifier.rows, identifier.most)
        for identifier in identifiers(table, "outcome", None)
    ]


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
    identifier_columns = identifiers(table.assign(y=[0, 1] * 20), "y", None)
    assert [(identifier.name, identifier.values, identifier.most) for identifier in identifier_columns] == [
        ("row", 40, 1),
        ("mrn", 40, 1),
    ]


def test_an_owner_is_no_feature_and_says_whose_the_other_values_are() -> None:
    person = np.repeat(np.arange(30), 4)
    visits = pd.DataFrame({"patient_id": person, "encounter_id": np.arange(120) // 2, "session_id": person % 7, "y": 0})
    identifier_columns = identifiers(visits, "y", "patient_id")
    assert [(identifier.name, identifier.within_owner) for identifier in identifier_columns] == [
        ("encounter_id", True),
        ("session_id", False),
    ]
    assert likeliest_person_column(identifier_columns, "patient_id") is None
    all_columns = identifiers(visits, "y", None)
    persons = likeliest_person_column(all_columns, None)
    assert persons is not None
    assert (persons.name, persons.values, persons.most) == ("patient_id", 30, 4)


def test_a_table_of_many_columns_is_looked_through() -> None:
    draw = np.random.default_rng(0)
    table = pd.DataFrame(draw.integers(0, 40, (200, 250)), columns=[f"q{number}" for number in range(250)])
    table["patient_id"] = draw.permutation(np.arange(200) // 4)
    assert [identifier.name for identifier in identifiers(table.assign(y=0), "y", None)] == ["patient_id"]


def _measurements(rows: int) -> dict[str, Values]:
    draw = np.random.default_rng(3)
    return {"pitch": draw.normal(150, 30, rows).round(3), "jitter": draw.gamma(2, 0.003, rows).round(5)}


def test_a_person_with_hundreds_of_rows_is_noticed_by_the_name_of_the_column() -> None:
    """42 persons of 140 recordings each, as in telemonitoring."""
    subject = np.repeat(np.arange(1, 43), 140)
    table = pd.DataFrame({"subject#": subject, **_measurements(len(subject)), "y": subject % 2})
    for frame in (table, table.assign(**{"subject#": [f"s{number}" for number in subject]})):
        (identifier,) = identifiers(frame, "y", None)
        assert (identifier.name, identifier.values, identifier.rows, identifier.most) == ("subject#", 42, 5880, 140)


def test_a_short_name_is_one_of_persons_if_another_column_describes_them() -> None:
    number = np.repeat(np.arange(42), 140)
    table = pd.DataFrame({"sid": number, **_measurements(len(number)), "y": np.arange(len(number)) % 2})
    assert identifiers(table, "y", None) == ()
    (identifier,) = identifiers(table.assign(sex=np.random.default_rng(0).integers(0, 2, 42)[number]), "y", None)
    assert identifier.name == "sid"


@pytest.mark.parametrize(
    ("form", "beginning"),
    [("phon_R01_S{person:02d}_{row}", "phon_R01_S00"), ("S{person:02d}-{row}", "S00"), ("P{person} T1 R{row}", "P0")],
)
def test_persons_hidden_in_the_beginnings_of_names_are_found(form: str, beginning: str) -> None:
    """22 persons of six recordings each, with another name for every recording."""
    names = [form.format(person=person, row=row) for person in range(22) for row in range(1, 7)]
    table = pd.DataFrame({"name": names, **_measurements(len(names)), "y": np.arange(len(names)) // 6 % 2})
    (identifier,) = identifiers(table, "y", None)
    assert (identifier.name, identifier.values, identifier.most, identifier.beginning) == ("name", 22, 6, beginning)
    assert likeliest_person_column((identifier,), None) == identifier


def test_names_that_only_number_the_records_hide_no_persons() -> None:
    names = [f"image_{row:03d}" for row in range(60)]
    people = [f"{first}, {last}" for first in "abcdef" for last in "klmnopqrst"]
    table = pd.DataFrame({"name": names, "who": people, **_measurements(60), "y": np.arange(60) % 2})
    assert identifiers(table, "y", None) == ()


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d.%m.%Y", "%d/%m/%y", "%Y-%m-%d 10:15", "%Y%m%d"])
def test_a_date_is_no_person_although_other_columns_follow_from_it(form: str) -> None:
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.random.default_rng(0).integers(0, 90, 900), unit="D")
    written = day.strftime(form)
    column = written.astype(int) if form == "%Y%m%d" else written
    table = pd.DataFrame({"admission": column, "weekday": day.weekday, **_measurements(900), "y": np.arange(900) % 2})
    assert identifiers(table, "y", None) == ()
    assert identifiers(table.assign(admission=day), "y", None) == ()


def test_numbers_that_nothing_follows_from_are_no_identifiers() -> None:
    """Digits alone do not tell an identifier from an amount."""
    draw = np.random.default_rng(7)
    numbers = draw.choice(np.arange(10**6, 10**7), 200, replace=False)[draw.integers(0, 200, ROWS)]
    table = pd.DataFrame({"x1": numbers, **_measurements(ROWS), "y": draw.integers(0, 2, ROWS)})
    assert identifiers(table, "y", None) == ()
