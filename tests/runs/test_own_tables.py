"""Tables as people have them lead from nothing to a verdict: none is misread, and no class is lost."""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fl_audit.cli.main import app
from fl_audit.data.catalogue import load_source
from fl_audit.data.column_encoding import column_lines
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.data.table_text import read_table_text
from fl_audit.data.written_numbers import is_number
from fl_audit.errors import Remedy
from fl_audit.runs.config_file import load_config
from fl_audit.runs.federation_of_config import data_spec
from fl_audit.runs.plan_warnings import data_warnings_of
from fl_audit.runs.planning import plan_run
from tests.builders.own_tables import LABEL, write_table
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally
from tests.builders.tables import load_table

pytestmark = pytest.mark.usefixtures("small_working_directory")


def initialised(name: str) -> str:
    """Return what `init` says in the end of one of the tables, where its advice is followed to the letter."""
    flags = ["init", "--data", str(write_table(name, Path())), "--label", LABEL[name], "--belief", "0.9"]
    flags += ["--set", "audit.trials=20", "--rounds", "3", "--clients", "2"]
    for _ in range(5):
        ran = CliRunner().invoke(app, flags)
        if ran.exit_code == 0:
            return ran.stdout
        error_text = str(ran.exception)
        ways = [
            match[0]
            for match in re.finditer(
                r"--[a-z-]+ ('[^']*'|[^\s;:,]+)( (with )?--[a-z]+ ('[^']*'|[^\s;:,]+))*", error_text
            )
        ]
        flags += shlex.split(ways[-1 if error_text.endswith("fixes all") else 0].replace(" with ", " "))
    raise AssertionError(f"the advice does not lead out: {error_text}")


def _long(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.long)


@pytest.mark.few_cases(3)
@pytest.mark.parametrize(
    ("name", "classes", "columns", "expected_text"),
    [
        (
            "german",
            2,
            [
                "Größe: number, 1.5 to 2",
                r"Einkommen: number, 943\.04 to 8967\.37 \('\.' left out\)",
                r"Kunden: number, 49 to 39778 \('\.' left out\)",
                r"Vertrag seit: number, 14610 to 17783 \(.*1970\)",
                r"Beitrag \(€\): number, 9\.4 to 89\.7",
            ],
            'encoding = "cp1252", separator = ";", decimal = ","',
        ),
        (
            "survey",
            3,
            [r"channels: levels, 4 .*: 1, 1,3, 2", "país: levels, 2 "],
            r'encoding = "utf-16", separator = "\\t"',
        ),
        (
            "hospital",
            4,
            ["age: number, 18 to 94", "discharged: number"],
            "readmitted .*'Yes', 'yes'; --set data.ignore-case=true",
        ),
        ("bank", 2, ["balance: number"], "status .*label churned .*other words"),
        ("ages", 2, ["âge: number, 18 to 94, scaled", "dose: number, 0.009 to 8.968"], 'decimal = ","'),
        _long("wide", 2, ["item_0: number, 1 to 5", "comment: levels, 3 of them"], "803 features"),
        _long("many", 2, ["x0: number"], "1,000 of 200,000 train"),
        (
            "marked",
            2,
            [
                r"cost: number, 856\.21 to 89353\.6 \(',' left out\)",
                r"visits: number, 35 to 3992 \(',' left out\)",
                r"share: number, 0 to 99 \('%' left out\)",
            ],
            "125 of 250 train",
        ),
        ("tabs", 2, ["width: number, 1.8 to 7.6", r"height \(cm, dry\): number"], r'separator = "\\t"'),
        ("constant", 2, [], "every feature .*same"),
    ],
)
def test_a_table_leads_to_a_verdict(name: str, classes: int, columns: list[str], expected_text: str) -> None:
    output = initialised(name)
    assert re.search(expected_text, output)
    assert " train, " in output
    config = load_config(Path("audit.toml"), ["run.seed=0"])  # an honest run is called violated once in 1,000
    source = load_source(data_spec(config.data))
    assert np.unique(source.pool.labels).size == source.pool.classes == classes
    uses = [str(use) for use in source.columns]
    for beginning in columns:
        assert any(re.match(beginning, use) for use in uses), (beginning, uses)
    summary = run_locally(plan_run(config), Path("run")).summary
    assert summary["verdict"] in ("consistent", "inconclusive")


def test_advice_never_costs_a_class() -> None:
    initialised("hospital")
    data = load_config(Path("audit.toml")).data
    assert set(data.drop or ()) == {"creatinine", "ferritin", "biopsy", "patient_id", "admitted"}
    assert data.missing == ("unknown",)
    labels = pd.read_csv("hospital.csv")["readmitted"].str.strip()
    assert load_source(data_spec(data)).pool.labels.size == (pd.read_csv("hospital.csv")["age"] != "unknown").sum()
    named = r"every record .*'Died' lacks.* missing = \[\"Died\"\] in \[data\]"
    assert_refused(named, load, "hospital", drop=("ferritin", "biopsy"), missing=("unknown",))
    assert "Died" in set(labels)


def load(name: str, **options: object) -> LoadedDataset:
    """Return one of the tables, or a file that a test has written, with settings of [data]."""
    path = write_table(name, Path()) if name in LABEL else Path(f"{name}.csv")
    return load_table(path, **{"label": LABEL.get(name, "y"), **options})


def test_remedies_of_warnings_fix_them() -> None:
    dropped = ("creatinine", "ferritin", "biopsy", "patient_id", "admitted")
    hospital = load("hospital", drop=dropped, missing=("unknown",), ignore_case=True)
    assert (hospital.pool.classes, hospital.cautions) == (3, ())
    plain = load("bank")
    assert [remedy for caution in plain.cautions for remedy in caution.remedies] == [
        Remedy("drop", ("status",)),
        Remedy("unique", True),
    ]
    fixed = load("bank", drop=("status",), unique=True)
    assert (len(fixed.pool), fixed.cautions) == (1200, ())
    assert re.search("every feature .*same", load("constant").cautions[0].text)


def written(text: str, encoding: str = "utf-8", **options: object) -> LoadedDataset:
    Path("own.csv").write_bytes(text.encode(encoding))
    return load("own", **options)


ROWS = 30


def column(*cells: str, separator: str = ";") -> str:
    return f"x{separator}y\n" + "".join(f"{cells[row % len(cells)]}{separator}{row % 2}\n" for row in range(ROWS))


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        (column("6,392", "1", "0,5"), 0.5, 6.392),
        (column("1.234,5", "12"), 12, 1234.5),
        (column("1.234.567", "12"), 12, 1234567),
        (column("12.500", "1,5"), 1.5, 12500),
        (column("12.500", "0.5"), 0.5, 12.5),
        (column('"12,500.5"', "7", separator=","), 7, 12500.5),
        (column("1'234.5", "7"), 7, 1234.5),
        (column("1\u202f234,5", "7"), 7, 1234.5),
        ("sep=;\n" + column("1,5", "2,25"), 1.5, 2.25),
        (column("31.12.1970", "1.1.1970"), 0, 364),
        (column("(1,329.17)", "12.5", "(1.91)"), -1329.17, 12.5),
        (column("2555,67-", "12,5", "1.911,00-"), -2555.67, 12.5),
        (column("\u22122.56", "12.5"), -2.56, 12.5),
        (column("20,00 €", "1.499,50 €", "-3 €"), -3, 1499.5),
        (column("$20.00", "-$3", "($4.50)"), -4.5, 20),
        (column("EUR 20", "EUR 7.5"), 7.5, 20),
        (column("20 years", "7 years"), 7, 20),
        (column("10mg", "2.5mg", "0"), 0, 10),
    ],
)
def test_numbers_are_read_as_they_are_meant(text: str, low: float, high: float) -> None:
    detail = written(text).columns[1].detail
    assert detail.startswith(f"{low:g} to {high:g}"), detail


@pytest.mark.parametrize("cells", [("6,392", "1"), ("12.500", "1.000"), ("1.000", "2.000")])
def test_numbers_that_can_be_meant_in_two_ways_are_asked_about(cells: tuple[str, ...]) -> None:
    text = column(*cells)
    error = assert_refused("file tells which", written, text)
    assert error.choices == (Remedy("decimal", ","), Remedy("decimal", "."))
    assert error.remedies == ()
    values = {mark: written(text, decimal=mark).columns[1].detail for mark in (",", ".")}
    assert values[","] != values["."]
    assert all("levels" not in detail for detail in values.values())


def test_a_column_with_the_other_mark_is_refused_by_name() -> None:
    text = "a;b;y\n" + "".join(f"1,{row:02d};0.{row:02d};{row % 2}\n" for row in range(ROWS))
    assert_refused(r"column a, .* mark '\.': .* drop = \[\"a\"\]", written, text)
    assert written(text, drop=("a",)).columns[1].detail.startswith("0 to 0.29")


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252", "latin-1", "cp1250"]
)
def test_letters_are_what_they_were(encoding: str) -> None:
    words = ["Müller", "Köln", "Straße", "ja"]
    text = "Größe;y\n" + "".join(f"{words[row % 4]};{row % 2}\n" for row in range(ROWS))
    Path("letters.csv").write_bytes(text.encode(encoding))
    table = read_table_text(Path("letters.csv"))
    assert (table.text, table.separator, table.header) == (text, ";", ["Größe", "y"])


@pytest.mark.parametrize(
    ("encoding", "header", "words"),
    [
        ("cp1252", "décès", ["guéri", "décédé", "Besançon"]),
        ("cp1252", "señal", ["niño", "corazón", "sí"]),
        ("cp1252", "età", ["perché", "città", "più"]),
        ("cp1252", "não", ["São Paulo", "coração", "pulmão"]),
        ("cp1252", "død", ["København", "Ærø", "nej"]),
        ("cp1252", "ålder", ["Malmö", "Göteborg", "nej"]),
        ("cp1250", "płeć", ["mężczyzna", "śląskie", "łódzkie"]),
        ("cp1250", "město", ["žena", "Děčín", "Příbram"]),
        ("cp1251", "пол", ["мужской", "женский", "Москва"]),
        ("cp1253", "φύλο", ["άνδρας", "γυναίκα", "ηλικία"]),
    ],
)
def test_languages_are_read_as_they_are_written(encoding: str, header: str, words: list[str]) -> None:
    text = f"{header};y\n" + "".join(f"{words[row % 3]};{row % 2}\n" for row in range(ROWS))
    Path("letters.csv").write_bytes(text.encode(encoding))
    assert read_table_text(Path("letters.csv")).text == text


@pytest.mark.parametrize(
    ("cells", "levels"),
    [
        (("1-", "2-", "3"), 3),
        (("1-", "1", "2", "2-", "3"), None),
        (("C50", "C61"), 2),
        (("1 apple", "2 pears"), 2),
        (("5k", "5000"), 2),
        (("1st", "2nd"), 2),
        (("20-29 years", "30-39 years"), 2),
        (("G1 (low)", "G2 (high)"), 2),
    ],
)
def test_codes_and_grades_are_no_amounts(cells: tuple[str, ...], levels: int | None) -> None:
    if levels is None:
        assert_refused(r"'1-' .* x\b.* missing = \[\"1-\", \"2-\"\]", lambda: written(column(*cells)))
    else:
        assert str(written(column(*cells)).columns[1]).startswith(f"x: levels, {levels} of them")


def test_how_amounts_are_read_is_said_and_many_words_among_numbers_are_no_missing_values() -> None:
    assert "('(4.50 €)' is below 0; '€' left out)" in written(column("20.00 €", "(4.50 €)")).columns[1].detail
    words = [f"word {row}" for row in range(8)]
    error = assert_refused(
        r"'word 0' .* x\b.* 7 further",
        lambda: written(
            column(*words, *map(str, range(22))).replace(";", ";1;").replace("x;1;y", "x;z;y"), max_levels=99
        ),
    )
    assert error.remedies == (Remedy("drop", ("x",)),)


def test_words_that_differ_by_spaces_around_them_are_one_and_said() -> None:
    words = ("Yes", "Yes ", "No", '"No"')
    dataset = written("x;y\n" + "".join(f"{row};{words[row % 4]}\n" for row in range(ROWS)))
    assert dataset.pool.classes == 2
    assert re.search("y has 'Yes', 'Yes '", dataset.cautions[0].text)
    assert dataset.cautions[0].remedies == ()


def test_a_column_with_one_word_is_listed_among_many() -> None:
    names = ";".join(f"x{index}" for index in range(30))
    rows = "".join(f"DE;{';'.join(str(row * index % 7) for index in range(30))};{row % 2}\n" for row in range(ROWS))
    lines = column_lines(written(f"country;{names};y\n{rows}").columns)
    assert any(re.match("country: levels, DE .*every record.* 1", line) for line in lines)


def test_a_class_that_no_training_record_has_is_named() -> None:
    rows = "".join(f"{row};{row % 7};{'ab'[row % 2] if row else 'fraud'}\n" for row in range(200))
    Path("rare.csv").write_text("x;z;y\n" + rows)
    Path("audit.toml").write_text(
        f'data = {{name = "csv", path = "{Path("rare.csv").absolute()}", label = "y", records = 20, clients = 2}}\n'
        'training = {rounds = 1}\nprivacy = {belief = 0.9, delta = 0.001, adjacency = "replace-record"}\n'
    )
    caution_texts = [caution.text for caution in data_warnings_of(plan_run(load_config(Path("audit.toml"))))]
    assert any(re.match(r"no record .*fraud \(1 in .*\b20 that train", text) for text in caution_texts)
    # x numbers the records, and 20 records are too few for a rate
    assert re.match("x: another value .* 200 rows", caution_texts[0])
    assert any(re.search("measured on 20 training records", text) for text in caution_texts)


def test_an_encoding_that_is_as_likely_is_named_and_names_decide() -> None:
    rows = "".join(f"{('Plzeňský', 'Jihomoravský')[row % 3 == 0]};{row % 2}\n" for row in range(ROWS))
    doubted = written("x;výška\n" + rows, "cp1250", label="výška").cautions
    assert doubted[0].remedies == (Remedy("encoding", "cp1250"),)
    assert re.search("'Plzeňský' .*'Plzeòský'", doubted[0].text)
    assert load("own", label="výška", encoding="cp1250").cautions == ()
    assert "Plzeňský" in str(written("x;třída\n" + rows, "cp1250", label="třída").columns[1])


@pytest.mark.parametrize("word", ["None", "NA", "null", "n/a"])
def test_a_usual_word_for_a_missing_value_is_a_class_among_words(word: str) -> None:
    """A person without a complication has a label: that there was none."""
    text = "x;y\n" + "".join(f"{row};{(word, 'Bleeding', 'Infection')[row % 3]}\n" for row in range(ROWS))
    dataset = written(text)
    assert (dataset.pool.classes, len(dataset.pool)) == (3, ROWS)
    assert dataset.cautions[0].remedies == (Remedy("missing", (word,)),)
    assert re.search(rf"\b{ROWS // 3} records .*label {word!r}", dataset.cautions[0].text)
    without = written(text, missing=(word,))
    assert (without.pool.classes, len(without.pool), without.cautions) == (2, 2 * ROWS // 3, ())
    gaps = text.replace(";Bleeding", ";").replace("x;y", "x;z")
    assert_refused(r"missing value .* z\b", written, gaps, label="z")
    assert written(gaps, label="z", missing=()).pool.classes == 2
    for other_labels in ((0, 1), (True, False)):  # beside numbers and truth values it is no class
        numbers = "x;w\n" + "".join(f"{row};{(word, *other_labels)[row % 3]}\n" for row in range(ROWS))
        error = assert_refused(rf"{word!r} .*missing value .* w\b", written, numbers, label="w", missing=())
        assert error.remedies == (Remedy("missing", (word,)),)
        assert written(numbers, label="w", missing=(word,)).pool.classes == 2


def test_an_encoding_that_is_named_is_taken_and_a_wrong_one_refused() -> None:
    Path("own.csv").write_bytes("Größe;y\n".encode("cp1252"))
    assert_refused(r"byte 0xf6 at 2, .*utf-8", read_table_text, Path("own.csv"), "utf-8")
    assert_refused(r"encoding is 'cp9': .*Python", read_table_text, Path("own.csv"), "cp9")


@pytest.mark.parametrize("cell", ["", "-", ".", ",", "1.2.3", "2,4,5", "12a", "1,23,456"])
@pytest.mark.parametrize("decimal", [".", ","])
def test_what_is_no_number(cell: str, decimal: str) -> None:
    assert not is_number(cell, decimal)
