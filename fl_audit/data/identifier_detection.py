"""Find table columns that look like identifiers of persons, by their names or by how often their values repeat.

A claim that protects single records does not protect a person with several records. A model should learn nothing from a
number that only identifies a person.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from math import gcd, log
from typing import Any

import numpy as np
import pandas as pd
import scipy

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.data.column_encoding import ENOUGH_TO_TELL
from fl_audit.data.records import IdentifyingColumn

_FEWEST_VALUES = 5  # with fewer it names groups
_MOST_A_VALUE, _FEWEST_A_VALUE = 50, 1.2  # records of a value, on average, where nothing but the shape is known
_SURE = 14.0  # log of how unlikely chance has to be: about one in a million
_COLUMNS_COMPARED = 200
_LONG = 6  # digits of whole numbers that are seldom counts or measurements where they repeat
_SAME_LENGTH = 0.95  # share of numbers with equally many digits, as codes have them

_PERSONS = (
    r"patient(?:en|in|innen)?|pat|pt|subject|subj|participant|proband(?:en)?|person|client|customer|cust|user|member|"
    r"employee|emp|student|pupil|respondent|resident|donor|household|account|acct|konto|kunden?|mitglieds?|nutzer|"
    r"versicherten|teilnehmer|personal|matrikel|cliente?|paciente?|paziente|usuario|utente|sujet"
)
_CASES = (
    r"fall|case|encounter|visit|admission|hadm|stay|icustay|record|chart|policy|claim|insurance|nhs|dossier|device|"
    r"session|order|invoice|transaction|loan|card|passport|social_security"
)
_MARKS = r"id|uid|uuid|guid|key|code|hash|pseudonym|identifier|kennung"
_NUMBERS = r"no|nr|nbr|num|number|nummer|numero"
_NAMED = re.compile(
    rf"id|(?:.*_)?(?:{_PERSONS})s?_?(?:{_MARKS}|{_NUMBERS})|(?:.*_)?(?:{_CASES})s?_?(?:{_MARKS})|"
    rf"(?:.*_)?(?:fall|case|record|chart|policy|claim|insurance|nhs|account|card|passport|loan)_?(?:{_NUMBERS})|"
    rf"(?:id|code|numero)_(?:{_PERSONS}|{_CASES})"
)
"""Column names, as `_plain` writes them, of identifiers: `patient_id`, `kundennummer`, `id_paciente`."""
_OF_A_PERSON = re.compile(
    rf"(?:.*_)?(?:{_PERSONS})s?_?(?:{_MARKS}|{_NUMBERS})|(?:id|code|numero)_(?:{_PERSONS})|mrn|ssn"
)
_ALONE = re.compile(
    r"(?:.*_)?(?:mrn|ssn|uuid|guid|iban|imei|kvnr|seqn|pseudonym|email|e_mail|surname|last_?name|full_?name|"
    r"patient_?name|user_?name|nachname|identifier|identifiant|identificador|codice_fiscale|dni|nif|pesel|bsn|cpf|"
    r"phone|telefon|telephone)|\w*stayid"
)
"""Column names that mean an identifier by themselves, such as `ssn`."""
_MAYBE = re.compile(rf"(?:.*_)?(?:id|pid|uid|eid|sid|cid)|(?:{_PERSONS})")
"""Column names of either identifiers or groups, such as `id`; the number of different values decides."""
_OF_GROUPS = re.compile(
    r"(?:.*_)?(?:type|category|class|group|source|disposition|status|level|role|cluster|country|state|region|city|site|"
    r"location|hospital|clinic|ward|department|dept|unit|room|store|shop|branch|school|cent(?:er|re)|team|plan|product|"
    r"item|drug|diagnosis|procedure)_?id"
)
"""Column names of attributes that many persons share, such as `hospital_id`."""
_FIRST_COUNTS = re.compile(
    r"(?:n|no|nr|num|number|count|anzahl|total|sum|mean|avg|average|max|min|has|is|any|days?|age)_.*"
)
"""Beginnings of names of counts and measurements, such as `number_of_visits` and `num_user_id`."""
_MEASURED = re.compile(
    r"age|alter|edad|years?|jahr|yob|birth\w*|zip\w*|plz|postal\w*|post|postcode|postleitzahl|pincode|fips|cap|cp|code|"
    r"date|datum|time|timestamp|day|month|week|hour|minute|tag|monat|dose|dosis|dosage|mg|count|n|los|length|duration|"
    r"price|cost|amount|charge|income|salary|balance|score|weight|height|icd\w*|drg|cpt|atc|loinc|lat|lon\w*|"
    r"population|pixel|temperature|pressure|size|rate|level|value|index|points?|visits?|children|steps"
)
"""Words in names of columns that hold measurements, counts or attributes shared by many persons."""
_HEX = re.compile(r"[0-9a-f]{12,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[^@\s]+@[^@\s]+\.\w+", re.IGNORECASE)
_FEWEST_DIGITS = 3  # digits of a code in text; W12 is a ward
_FEWEST_NUMBERS = 20  # with fewer different ones, their distribution says nothing
_MOST_OF_ONE = 10  # one part in so many of the records that somebody has at most
_PARTS, _ODD = 10, 27.9  # parts of a range of numbers; chi squared beyond which they are filled unevenly, once in 1,000
_RELATED = 4.9  # standard errors of a rank correlation that chance gives once in a million


def identifiers(
    frame: pd.DataFrame, label: str, owner: str | None, user: str | None = None
) -> tuple[IdentifyingColumn, ...]:
    """Return the columns of a table that look like identifiers, apart from the columns of labels, owners and users.

    A column looks like an identifier if its name says so, if it numbers the records consecutively, or if its values are
    codes that repeat. Values repeat if there are 1.2 to 50 records for each value on average, and if most records share
    their value with another record. Codes are long integers of one length, strings of one pattern, or integers that
    determine another column but not monotonically, as a person's number determines the sex. Measurements and counts
    rarely have one pattern, and a column that is determined by measurements or counts is monotonic in them.

    Parameters
    ----------
    frame
        Table with all records, without missing cells.
    label
        Name of the label column.
    owner
        Name of the column of owners, or None if there is none.
    user
        Name of the column of users, the persons whom the records are about, or None if there is none.
    """
    if len(frame) < ENOUGH_TO_TELL:
        return ()
    found, others = [], [name for name in frame.columns if name not in (label, owner, user)]
    # Other columns are compared with few that repeat, so that their codes are mostly not needed.
    compared = cache(lambda: _codes(frame[others[:_COLUMNS_COMPARED]]))
    for name in others:
        column = frame[name]
        if not _can_name(column):
            continue
        codes, levels = pd.factorize(column)
        counts = np.bincount(codes)
        if len(levels) < _FEWEST_VALUES or not _is_one(str(name), column, codes, counts, compared):
            continue
        within = [one is not None and _is_function(codes, pd.factorize(frame[one])[0]) for one in (owner, user)]
        found.append(IdentifyingColumn(str(name), len(levels), len(frame), int(counts.max()), *within))
    return tuple(found)


def possible_identifiers(
    frame: pd.DataFrame, label: str, person: str | None, found: Sequence[IdentifyingColumn]
) -> tuple[IdentifyingColumn, ...]:
    """Return columns of integers that may be either identifiers of persons or quantities.

    Their values repeat in most records, with 1.2 to 50 records for each value. Like identifiers they pass three tests.
    The values are spread evenly over their range. The frequency of a value says nothing about that of nearby values. No
    other column is correlated with them. Most quantities, such as ages, fail a test, but one with a uniform
    distribution passes. If the table has a column of users or owners, the result is empty, because the persons are
    known.

    Parameters
    ----------
    frame
        Table with all records, without missing cells.
    label
        Name of the label column.
    person
        Name of the column of users or of owners, or None if there is neither.
    found
        Columns that `identifiers` returned; they are not returned again.
    """
    if len(frame) < ENOUGH_TO_TELL or person is not None:
        return ()
    passed, ranks = {label, *(one.name for one in found)}, cache(lambda: _ranks(frame))
    possible = []
    for name in frame.columns:
        column = frame[name]
        if name in passed or not pd.api.types.is_numeric_dtype(column) or not _can_name(column):
            continue
        levels, codes, counts = np.unique(column.to_numpy(), return_inverse=True, return_counts=True)
        in_between = len(levels) * _MOST_A_VALUE >= len(frame) >= len(levels) * _FEWEST_A_VALUE
        is_common = 2 * (counts[codes] > 1).sum() >= len(frame) >= _MOST_OF_ONE * counts.max()
        if len(levels) < _FEWEST_NUMBERS or not in_between or not is_common:
            continue
        if _says_a_quantity(str(name)) or not _are_in_no_order(levels.astype(np.float64), counts):
            continue
        if not _rises_with_another(name, len(levels), frame, ranks()):
            possible.append(IdentifyingColumn(str(name), len(levels), len(frame), int(counts.max())))
    return tuple(possible)


def is_named_so(name: str) -> bool:
    """Return True if the name of a column alone says that the column is an identifier.

    Parameters
    ----------
    name
        The name of the column.

    Examples
    --------
    >>> is_named_so("PatientID"), is_named_so("Kunden-Nr."), is_named_so("number_of_visits"), is_named_so("uric_acid")
    (True, True, False, False)
    """
    plain = _plain(name)
    return bool(_NAMED.fullmatch(plain) or _ALONE.fullmatch(plain)) and not _FIRST_COUNTS.fullmatch(plain)


def most_personal(found: Sequence[IdentifyingColumn], person: str | None) -> IdentifyingColumn | None:
    """Return the column that most likely identifies persons, or None if `person` is given or no value repeats.

    Parameters
    ----------
    found
        Columns that look like identifiers, with their numbers of values and records.
    person
        Name of the column of users or of owners, or None if there is neither.
    """
    repeated = [one for one in found if one.most > 1] if person is None else []
    return min(repeated, key=_distance_from_person, default=None)


def _distance_from_person(one: IdentifyingColumn) -> tuple[int, int]:
    """Return a sort key that is smallest for the column that most likely identifies persons.

    Names of a person's number, such as `patient_id`, come before other names of identifiers. Columns found by their
    values come last. Within each group the column with the fewest different values comes first, because there are fewer
    persons than, say, visits.
    """
    if is_named_so(one.name):
        return (0 if _OF_A_PERSON.fullmatch(_plain(one.name)) else 1), one.values
    return 2, one.values


def _plain(name: str) -> str:
    """Return a name in lower-case words joined by underscores, such as `patient_id` for `PatientID`."""
    parted = re.sub(r"(?<=[a-zß-ÿ0-9])(?=[A-Z])", "_", name)
    return "_".join(re.findall(r"[^\W_]+", parted.casefold()))


def _can_name(column: "pd.Series[Any]") -> bool:
    """Return True if a column holds integers or strings, so that it may hold identifiers."""
    if pd.api.types.is_bool_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
        return False
    if pd.api.types.is_float_dtype(column):
        values = column.to_numpy()
        with np.errstate(invalid="ignore"):  # the remainder of an infinite number is none
            return bool((values[:1000] % 1 == 0).all() and (values % 1 == 0).all())
    return True


def _codes(frame: pd.DataFrame) -> Integers:
    """Return every column as integer codes of its values, shape (records, columns)."""
    found = [pd.factorize(frame[name])[0] for name in frame.columns]
    return np.stack(found, axis=1) if found else np.empty((len(frame), 0), dtype=np.int64)


def _is_one(
    name: str, column: "pd.Series[Any]", codes: Integers, counts: Integers, others: Callable[[], Integers]
) -> bool:
    values, rows, plain = len(counts), len(codes), _plain(name)
    if is_named_so(name):
        return True
    if _counts_or_groups(plain):
        return False
    if values == rows:
        return pd.api.types.is_numeric_dtype(column) and _counts_up(column)
    in_between = values * _MOST_A_VALUE >= rows
    if _MAYBE.fullmatch(plain) and in_between:
        return True
    repeated = counts[codes] > 1
    if not in_between or values * _FEWEST_A_VALUE > rows or 2 * repeated.sum() < rows:
        return False
    if _is_measured(plain):
        return False
    if pd.api.types.is_numeric_dtype(column):
        numbers = np.array([int(one) for one in column.unique().tolist()], dtype=object)
        return _are_long_codes(numbers) or _determines_in_no_order(column, codes, others())
    return _are_coded(column.astype(str).str.strip().unique().tolist())


def _counts_or_groups(plain: str) -> bool:
    return bool(_FIRST_COUNTS.fullmatch(plain) or _OF_GROUPS.fullmatch(plain))


def _is_measured(plain: str) -> bool:
    return any(_MEASURED.fullmatch(word) for word in plain.split("_"))


def _says_a_quantity(name: str) -> bool:
    """Return True if the name of a column says that it holds counts, measurements or groups of persons."""
    plain = _plain(name)
    return _counts_or_groups(plain) or _is_measured(plain)


def _are_in_no_order(levels: Floats, counts: Integers) -> bool:
    """Return True if the different values of a column and their counts look like identifiers, False if like a quantity.

    Chi-squared tests over ten equal parts of the range check that the values are spread evenly, and that values in all
    parts occur equally often. The common values of a quantity, by contrast, are near each other.

    Parameters
    ----------
    levels
        Different values of the column, ascending, shape (values,).
    counts
        Number of occurrences of each value, shape (values,).
    """
    low, high = levels[0], levels[-1]
    # The ends of the range are numbers that occur, so they tell nothing of how the others are spread.
    inner = np.histogram(levels[1:-1], bins=_PARTS, range=(low, high))[0]
    expected = inner.sum() / _PARTS
    if float(((inner - expected) ** 2).sum()) / expected > _ODD:
        return False
    part = np.minimum(((levels - low) / (high - low) * _PARTS).astype(np.int64), _PARTS - 1)
    # By ranks too, so that a few frequent numbers do not hide the order of the others.
    return all(_is_even(often, part) for often in (counts.astype(np.float64), scipy.stats.rankdata(counts)))


def _is_even(often: Floats, part: Integers) -> bool:
    """Return True if values occur equally often, on average, in all parts of their range, by a chi-squared test.

    Parameters
    ----------
    often
        Number of occurrences of each different value, shape (values,).
    part
        Number of the part of the range in which each value lies, shape (values,).
    """
    numbers, sums = np.bincount(part, minlength=_PARTS), np.bincount(part, often, minlength=_PARTS)
    variance = max(float(often.var()), 1e-12) * np.maximum(numbers, 1)
    return float(((sums - often.mean() * numbers) ** 2 / variance).sum()) <= _ODD


def _ranks(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the ranks of the values within each numeric column, centred and scaled to L2 norm 1."""
    numbers = frame.select_dtypes("number").iloc[:, :_COLUMNS_COMPARED]
    ranks = numbers.rank() - (len(frame) + 1) / 2
    scaled: pd.DataFrame = ranks / np.sqrt((ranks**2).sum()).replace(0.0, 1.0)
    return scaled


def _rises_with_another(name: str, levels: int, frame: pd.DataFrame, ranks: pd.DataFrame) -> bool:
    """Return True if a numeric column has a significant rank correlation with another numeric column.

    `levels` is the number of its different values, and `ranks` the result of `_ranks`.
    """
    own = frame[name].rank() - (len(frame) + 1) / 2
    others = ranks.drop(columns=[name], errors="ignore")
    # All records of a person may agree in another column: they count as one.
    related = np.abs((own / np.sqrt((own**2).sum())).to_numpy() @ others.to_numpy()) * np.sqrt(levels)
    return bool((related > _RELATED).any())


def _counts_up(column: "pd.Series[Any]") -> bool:
    """Return True if a column of different integers has no gaps: sorted, they are consecutive."""
    return int(column.max()) - int(column.min()) == len(column) - 1


def _are_long_codes(numbers: "np.ndarray[Any, np.dtype[np.object_]]") -> bool:
    """Return True if different integers are codes: long, of one length, and neither rounded amounts nor dates."""
    digits = np.array([len(str(abs(one))) for one in numbers])
    common = np.bincount(digits).argmax()
    if common < _LONG or (digits == common).mean() < _SAME_LENGTH or numbers.min() < 0:
        return False
    days = all(1900 <= int(str(one)[:4]) <= 2100 and 1 <= int(str(one)[4:6]) <= 12 for one in numbers)
    return gcd(*numbers.tolist()) == 1 and not days


def _are_coded(cells: list[str]) -> bool:
    """Return True if different strings are codes: hexadecimal, e-mail addresses, or digits in one pattern."""
    if all(_HEX.fullmatch(cell) for cell in cells):
        return True
    forms = {re.sub(r"\d", "0", cell) for cell in cells}
    shortened = {re.sub("0+", "0", form) for form in forms}
    return len(shortened) == 1 and max(form.count("0") for form in forms) >= _FEWEST_DIGITS


def _determines_in_no_order(column: "pd.Series[Any]", codes: Integers, others: Integers) -> bool:
    """Return True if a column determines another one that neither follows its order nor only renames its values.

    A person's number determines the sex in this way. An age determines the age group, but the group follows the order
    of ages. The number of a diagnosis determines its name, but the name only renames the number.

    Parameters
    ----------
    column
        The column.
    codes
        Integer codes of its values, shape (records,).
    others
        Integer codes of the other columns, shape (records, columns).
    """
    order = np.argsort(column.to_numpy(), kind="stable")
    same = np.diff(codes[order]) == 0
    ranked = others[order]
    pairs = np.flatnonzero(same)
    few = pairs[:64]
    alike = np.flatnonzero((ranked[few] == ranked[few + 1]).all(axis=0))
    return any(_tells(ranked[:, place], pairs, same) for place in alike)


def _tells(other: Integers, pairs: Integers, same: Flags) -> bool:
    """Return True if a column determines `other`, as a person's number determines the sex, and hardly by chance.

    So `other` has a single value for each value of the column. False if this is likely by chance, if `other` follows
    the order of the column's values, or if it renames these values.

    Parameters
    ----------
    other
        Integer codes of the other column, sorted by the first column, shape (records,).
    pairs
        Positions at which `same` is True.
    same
        True for each record that has the same value of the column as the record before it, shape (records - 1,).
    """
    if not (other[pairs] == other[pairs + 1]).all():
        return False
    shares = np.bincount(other) / len(other)
    levels, changes, values = np.count_nonzero(shares), int((np.diff(other) != 0).sum()), int((~same).sum()) + 1
    by_chance = -len(pairs) * log(max(float((shares**2).sum()), 1e-12))
    # A column that follows the order changes once between its levels; one that renames has as many levels as values.
    return by_chance > _SURE and 1 < int(levels) <= values // 2 and changes > 2 * int(levels)


def _is_function(codes: Integers, other: Integers) -> bool:
    """Return True if `codes` determines `other`: equal values in `codes` always come with equal values in `other`.

    Both are columns of a table as integer codes of their values, shape (records,).
    """
    return len(np.unique(codes.astype(np.int64) * (int(other.max()) + 1) + other)) == int(codes.max()) + 1
