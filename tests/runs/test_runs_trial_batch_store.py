from pathlib import Path

import numpy as np
import pandas as pd

from fl_audit.runs.trial_batch_store import write_table


def test_tables_come_back_to_the_bit_whatever_they_hold(tmp_path: Path) -> None:
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324, 1 / 3])
    frame = pd.DataFrame(
        {
            "trial": np.arange(6),
            "won": odd > 0,
            "sigma": odd,
            "at 0": odd.astype(np.float32),
            "name": ["a", None, "c", "a", "", "é"],
        }
    )
    for table in (frame, frame.iloc[:0]):
        write_table(table, tmp_path / "table.parquet")
        read = pd.read_parquet(tmp_path / "table.parquet")
        pd.testing.assert_frame_equal(read, table, check_exact=True)
        assert np.array_equal(np.signbit(read["sigma"]), np.signbit(table["sigma"]))


def test_measured_noise_takes_less_than_nine_tenths_of_its_bytes(tmp_path: Path) -> None:
    """The 23 random bits of a fraction cannot be packed, the exponents can: .875 (.93 with numbers kept together)."""
    noise = np.random.default_rng(5).normal(size=(20_000, 20)).astype(np.float32)
    write_table(pd.DataFrame(noise).rename(columns=str), tmp_path / "noise.parquet")
    assert (tmp_path / "noise.parquet").stat().st_size < 0.9 * noise.nbytes
