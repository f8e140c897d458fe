"""Recognise names of table columns that hold identifiers, quantities, or attributes shared by many persons."""

import re

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
"""Column names, as `plain_name` writes them, of identifiers: `patient_id`, `kundennummer`, `id_paciente`."""
_OF_A_PERSON = re.compile(
    rf"(?:.*_)?(?:{_PERSONS})s?_?(?:{_MARKS}|{_NUMBERS})|(?:id|code|numero)_(?:{_PERSONS})|mrn|ssn"
)
"""Column names of identifiers of persons, and not of visits or devices."""
_PERSON_WORD = re.compile(rf"(?!household|account|acct|konto|kunden|personal)(?:{_PERSONS})")
"""Column names that are nothing but a word for a person, such as `subject`."""
_ALONE = re.compile(
    r"(?:.*_)?(?:mrn|ssn|uuid|guid|iban|imei|kvnr|seqn|pseudonym|email|e_mail|surname|last_?name|full_?name|"
    r"patient_?name|user_?name|nachname|identifier|identifiant|identificador|codice_fiscale|dni|nif|pesel|bsn|cpf|"
    r"phone|telefon|telephone)|\w*stayid"
)
"""Column names that mean an identifier by themselves, such as `ssn`."""
_MAYBE = re.compile(rf"(?:.*_)?(?:id|pid|uid|eid|sid|cid)|(?:{_PERSONS})")
"""Column names of either identifiers or groups, such as `sid`; the values decide."""
_OF_GROUPS = re.compile(
    r"(?:.*_)?(?:type|category|class|group|source|disposition|status|level|role|cluster|country|state|region|city|site|"
    r"location|hospital|clinic|ward|department|dept|unit|room|store|shop|branch|school|cent(?:er|re)|team|plan|product|"
    r"item|drug|diagnosis|procedure)(?:_?id)?"
)
"""Column names of attributes that many persons share, such as `hospital_id` and `ward`."""
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


def is_identifier_name(name: str) -> bool:
    """Return True if the name of a column alone says that the column is an identifier.

    Examples
    --------
    >>> is_identifier_name("PatientID"), is_identifier_name("Kunden-Nr."), is_identifier_name("uric_acid")
    (True, True, False)
    """
    plain = plain_name(name)
    return bool(_NAMED.fullmatch(plain) or _ALONE.fullmatch(plain)) and not _FIRST_COUNTS.fullmatch(plain)


def is_person_name(name: str) -> bool:
    """Return True if a column has the name of a person's identifier, such as `patient_id`, `mrn` or `subject#`.

    Examples
    --------
    >>> is_person_name("subject#"), is_person_name("encounter_id"), is_person_name("admitted")
    (True, False, False)
    """
    plain = plain_name(name)
    return bool(_OF_A_PERSON.fullmatch(plain) or _PERSON_WORD.fullmatch(plain))


def may_be_identifier_name(name: str) -> bool:
    """Return True if the name of a column can be that of an identifier or of groups, such as `sid`."""
    return bool(_MAYBE.fullmatch(plain_name(name)))


def plain_name(name: str) -> str:
    """Return a name in lower-case words joined by underscores, such as `patient_id` for `PatientID`."""
    parted = re.sub(r"(?<=[a-zß-ÿ0-9])(?=[A-Z])", "_", name)
    return "_".join(re.findall(r"[^\W_]+", parted.casefold()))


def counts_or_groups(plain: str) -> bool:
    """Return True if a column name, as `plain_name` writes it, stands for counts, or for groups of persons."""
    return bool(_FIRST_COUNTS.fullmatch(plain) or _OF_GROUPS.fullmatch(plain))


def is_measured(plain: str) -> bool:
    """Return whether a column's name has a word for a measurement or for a common attribute, such as a birth year.

    Columns of this kind do not identify persons.
    """
    return any(_MEASURED.fullmatch(word) for word in plain.split("_"))
