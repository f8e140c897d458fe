"""A made-up hospital table: 900 stays of 218 patients in four hospitals, up to a dozen stays each."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd


def hospital_table(stays: int = 900, patients: int = 218, seed: int = 7) -> pd.DataFrame:
    """Return the table; every patient has a stay, all in one hospital."""
    draw = np.random.default_rng(seed)
    extra_stays = draw.choice(patients, stays - patients, p=draw.dirichlet(np.full(patients, 2.0)))
    patient_numbers = np.concatenate([np.arange(patients), extra_stays])
    draw.shuffle(patient_numbers)
    age = draw.integers(20, 90, patients)
    sex = draw.integers(0, 2, patients)
    site = draw.integers(0, 4, patients)
    pressure = draw.normal(120 + 0.4 * (age - 50), 12)
    marker = draw.normal(5 + sex, 1.5)
    risk = 1 / (1 + np.exp(-(0.05 * (pressure - 120) + 0.5 * (marker - 5))))
    return pd.DataFrame(
        {
            "patient_id": [f"P{patient_number:05d}" for patient_number in patient_numbers],
            "hospital": [f"H{site[patient_number]}" for patient_number in patient_numbers],
            "age": age[patient_numbers],
            "sex": np.where(sex[patient_numbers] == 1, "f", "m"),
            "pressure": pressure[patient_numbers].round(1),
            "marker": marker[patient_numbers].round(2),
            "readmitted": np.where(draw.random(stays) < risk[patient_numbers], "yes", "no"),
        }
    )


def write_hospital(directory: Path, **numbers: int) -> Path:
    """Write the table, and return its path."""
    path = directory / "hospital.csv"
    hospital_table(**numbers).to_csv(path, index=False)
    return path


def hospital_data(path: Path, records: int = 150) -> dict[str, Any]:
    """Return the section [data] that reads the table, with a patient as the user."""
    return {
        "name": "csv",
        "path": str(path),
        "label": "readmitted",
        "user": "patient_id",
        "records": records,
        "drop": ["hospital"],
        "clients": 3,
        "test-records": 60,
    }
