"""The table and the figure of how time and memory grow."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fl_audit.experiments.benchmarks import growth, user_networks
from fl_audit.experiments.benchmarks.growth_figure import fit_scaling, growth_figure

ROOT = Path(__file__).parents[3]
TABLE = ROOT / "docs" / "reference" / "growth.csv"


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_a_slope_is_that_of_the_cost_above_the_smallest_run(power: float) -> None:
    sizes = np.array([1.0, 10.0, 100.0, 1000.0])
    costs = 3.0 + 1e-2 * np.where(sizes > 1, sizes**power, 0.0)
    scaling_fit = fit_scaling(sizes, costs)
    assert scaling_fit.power == pytest.approx(power)
    assert scaling_fit.at(sizes) == pytest.approx(costs, rel=0.01)


def test_what_does_not_grow_has_no_slope() -> None:
    scaling_fit = fit_scaling(np.array([1.0, 10.0, 100.0]), np.array([500.0, 502.0, 501.0]))
    assert scaling_fit.power == 0
    assert (scaling_fit.at(np.array([1.0, 50.0])) == 500).all()
    assert fit_scaling(np.array([1.0, 10.0, 100.0]), np.array([5.0, 5.0, 50.0])).power > 1


def test_the_published_table_has_every_point_that_is_measured_and_is_drawn() -> None:
    table = pd.read_csv(TABLE, dtype={"size": str})
    assert list(table.columns) == list(growth._COLUMNS)
    for name, growing in growth.AXES.items():
        assert table.loc[table["axis"] == name, "size"].tolist() == [str(size) for size in growing.sizes]
    cores = table[table["axis"] == "cores"].set_index("size")["kind"]
    assert dict(cores) == {"1": "measured", "2": "measured", "64": "on paper", "512": "on paper"}
    assert (table[["seconds", "processor_seconds", "mib"]] > 0).all(axis=None)
    figure_texts = {text.get_text() for axes in growth_figure(table).axes for text in axes.texts}
    assert any(words.startswith("slope") for words in figure_texts)


def test_the_dense_networks_have_as_many_parameters_as_they_say() -> None:
    for power in range(3, 8):
        module = getattr(user_networks, f"dense_{power}")()
        count = sum(parameter.numel() for parameter in module.parameters())
        assert count == pytest.approx(10**power, rel=0.01)


def test_points_of_other_axes_stay_in_the_table(tmp_path: Path) -> None:
    path = tmp_path / "growth.csv"
    growth._written([("rounds", "1", 1.0, 1.0, 1.0, "measured")], path)
    growth._written([("clients", "10", 2.0, 2.0, 2.0, "measured")], path)
    table = growth._written([("rounds", "1", 3.0, 3.0, 3.0, "measured")], path)
    assert table["axis"].tolist() == ["clients", "rounds"]
    assert table["seconds"].tolist() == [2.0, 3.0]


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a run's memory is read as Linux counts it")
def test_a_point_is_a_run_of_its_own() -> None:
    growing = growth.AXES["rounds"]
    cost = growth._played(growing.values(2), growing.features, cores=1)
    assert 0 < cost.round_clients < cost.round_processor < cost.processor
    assert cost.seconds > cost.round_seconds
    assert 100 < cost.mib < 2000
