"""Ten tables as people have them: what programs write, and what hands have typed into it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

LABEL = {
    "german": "Zahlungsverzug",
    "survey": "satisfied",
    "hospital": "readmitted",
    "bank": "churned",
    "wide": "group",
    "many": "clicked",
    "marked": "outcome",
    "tabs": "species",
    "constant": "defect",
    "ages": "group",
}
"""The column to be learned, of each table."""


def write_table(name: str, directory: Path) -> Path:
    """Write one of the tables as a file, and return where."""
    path = directory / f"{name}.csv"
    _TABLES[name](path, np.random.default_rng(len(name)))
    return path


def _comma(numbers: NDArray[np.float64], digits: int) -> list[str]:
    """Return numbers as a German spreadsheet writes them: 1.234,50."""
    return [f"{number:,.{digits}f}".translate(str.maketrans(",.", ".,")) for number in numbers]


def _german(path: Path, draw: np.random.Generator) -> None:
    """Semicolons, decimal commas, points between thousands, German dates, cp1252."""
    income = draw.uniform(900, 9000, 400)
    late = draw.random(400) < 0.4
    table = pd.DataFrame(
        {
            "Größe": _comma(draw.uniform(1.5, 2.0, 400), 2),
            "Einkommen": _comma(income, 2),
            "Kunden": _comma(draw.integers(1, 40_000, 400).astype(float), 0),
            "Stadt": draw.choice(["München", "Köln", "Würzburg"], 400),
            "Vertrag seit": [f"{1 + day:02d}.{1 + day % 12:02d}.20{10 + day % 9}" for day in draw.integers(0, 28, 400)],
            "Beitrag (€)": _comma(income / 100, 1),
            "Zahlungsverzug": np.where(late, "ja", "nein"),
        }
    )
    table.to_csv(path, sep=";", index=False, encoding="cp1252", lineterminator="\r\n")


def _survey(path: Path, draw: np.random.Generator) -> None:
    """UTF-16 with tabs, as a spreadsheet saves "Unicode text": answers in words, and several answers in one cell."""
    answers = ["never", "seldom", "often", "always"]
    table = pd.DataFrame({f"Q{number}": draw.choice(answers, 300) for number in range(8)})
    table["channels"] = draw.choice(["1", "1,3", "2,4,5", "2"], 300)
    table["país"] = draw.choice(["España", "Perú"], 300)
    table["satisfied"] = draw.choice(["yes", "no", "don't know"], 300, p=[0.5, 0.4, 0.1])
    table.to_csv(path, sep="\t", index=False, encoding="utf-16")


def _hospital(path: Path, draw: np.random.Generator) -> None:
    """Mostly empty columns, labels typed by hand, identifiers, dates; one class has no test result."""
    records = 500
    label = draw.choice(["Yes", "Yes ", "yes", "No", "Died"], records, p=[0.25, 0.1, 0.1, 0.45, 0.1])
    day = pd.Timestamp("2023-01-01") + pd.to_timedelta(draw.integers(0, 700, records), unit="D")
    table = pd.DataFrame(
        {
            "patient_id": [f"P{number:06d}" for number in draw.permutation(10**6)[:records]],
            "admitted": day.strftime("%d/%m/%Y"),
            "discharged": (day + pd.to_timedelta(draw.integers(1, 20, records), unit="D")).strftime("%Y-%m-%d"),
            "age": draw.integers(18, 95, records).astype(str),
            "sex": draw.choice(["M", "F", "m"], records, p=[0.5, 0.45, 0.05]),
            "creatinine": draw.gamma(3, 0.4, records).round(2),
            "ferritin": draw.gamma(3, 60, records).round(0),
            "biopsy": draw.choice(["benign", "malignant"], records),
            "ward": draw.choice(["A", "B", "C"], records),
            "readmitted": label,
        }
    )
    table.loc[draw.random(records) < 0.9, "ferritin"] = np.nan
    table.loc[draw.random(records) < 0.97, "biopsy"] = None
    table.loc[(label == "Died") | (draw.random(records) < 0.05), "creatinine"] = np.nan
    table.loc[draw.random(records) < 0.02, "age"] = "unknown"
    table.to_csv(path, index=False)


def _bank(path: Path, draw: np.random.Generator) -> None:
    """Rows that were exported twice, and a column that says the label in another word."""
    records = 1200
    churned = draw.integers(0, 2, records)
    table = pd.DataFrame(
        {
            "balance": draw.normal(2000, 900, records).round(2),
            "tenure": draw.integers(0, 120, records),
            "product": draw.choice(["gold", "basic"], records),
            "status": np.where(churned == 1, "closed", "active"),
            "churned": churned,
        }
    )
    pd.concat([table, table.iloc[:300]]).to_csv(path, index=False)


def _wide(path: Path, draw: np.random.Generator) -> None:
    """A survey of 800 questions, a few of which everybody answered alike."""
    answers = draw.integers(1, 6, (300, 800))
    answers[:, [17, 500]] = 3
    table = pd.DataFrame(answers, columns=[f"item_{number}" for number in range(800)])
    table["comment"] = draw.choice(["", "none", "see above"], 300)
    table.loc[table["comment"] == "", "comment"] = "nothing"
    table["group"] = draw.choice(["control", "treated"], 300)
    table.to_csv(path, index=False)


def _many(path: Path, draw: np.random.Generator) -> None:
    """200,000 rows with a rare class."""
    records = 200_000
    table = pd.DataFrame({f"x{number}": draw.normal(size=records).round(4) for number in range(6)})
    table["clicked"] = (draw.random(records) < 0.03).astype(int)
    table.to_csv(path, index=False)


def _marked(path: Path, draw: np.random.Generator) -> None:
    """A byte-order mark before the label, and amounts with commas between thousands in quotation marks."""
    table = pd.DataFrame(
        {
            "outcome": draw.choice(["ill", "well"], 250),
            "cost": [f"{cost:,.2f}" for cost in draw.uniform(10, 90_000, 250)],
            "visits": [f"{visits:,}" for visits in draw.integers(1, 4000, 250)],
            "share": [f"{share} %" for share in draw.integers(0, 100, 250)],
        }
    )
    table.to_csv(path, index=False, encoding="utf-8-sig")


def _tabs(path: Path, draw: np.random.Generator) -> None:
    """Tabs, row numbers without a name, and a word for what was not measured."""
    table = pd.DataFrame(
        draw.normal(5, 1, (320, 3)).round(1).astype(str), columns=["length", "width", "height (cm, dry)"]
    )
    table.loc[draw.random(320) < 0.04, "width"] = "n.m."
    table["species"] = draw.choice(["setosa", "virginica"], 320)
    table.to_csv(path, sep="\t")


def _constant(path: Path, draw: np.random.Generator) -> None:
    """Every feature is the same in all records."""
    pd.DataFrame({"plant": "north", "line": 4, "defect": draw.choice([0, 1], 200)}).to_csv(path, index=False)


def _ages(path: Path, draw: np.random.Generator) -> None:
    """77 different ages with decimal commas in quotation marks between ordinary commas; latin-1."""
    ages = draw.permutation(np.concatenate([np.linspace(18, 94, 77), draw.uniform(18, 94, 223)])).round(1)
    whole = [f"{age:g}".replace(".", ",") for age in ages]
    dose = [f"{dose:g}".replace(".", ",") for dose in (draw.integers(1, 9000, 300) / 1000)]
    table = pd.DataFrame({"âge": whole, "dose": dose, "group": draw.choice(["témoin", "traité"], 300)})
    table.to_csv(path, index=False, encoding="latin-1")


_TABLES: dict[str, Callable[[Path, np.random.Generator], None]] = {
    "german": _german,
    "survey": _survey,
    "hospital": _hospital,
    "bank": _bank,
    "wide": _wide,
    "many": _many,
    "marked": _marked,
    "tabs": _tabs,
    "constant": _constant,
    "ages": _ages,
}
