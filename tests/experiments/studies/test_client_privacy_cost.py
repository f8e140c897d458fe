"""The study of accuracy under client-level privacy: every point can be played, what is said follows from numbers."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fl_audit.adjacency import Unit
from fl_audit.experiments.studies.client_privacy_cost import (
    WAYS,
    TrainingMethod,
    accuracy_figure,
    conclusions,
    federations,
    settings,
)
from fl_audit.mechanisms.noises.correlated import CorrelatedGaussian
from fl_audit.report.figure_style import to_png
from fl_audit.runs.config import parse_config
from fl_audit.runs.planning import plan_run


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS, ids=[way.name for way in WAYS])
def test_every_point_guarantees_what_it_is_named_after(way: TrainingMethod, published_data: Path) -> None:
    for federation in federations(published_data, quick=True):
        plan = plan_run(parse_config(settings(federation, way, 10.0, 2)))
        assert plan.guarantee is not None
        assert plan.guarantee.epsilon == pytest.approx(10.0, rel=1e-3)
        assert plan.federation.mechanism.unit is Unit.CLIENT
        assert isinstance(plan.federation.mechanism.noise, CorrelatedGaussian) == ("FTRL" in way.name)


def _made_up(accuracies: dict[float, float]) -> pd.DataFrame:
    rows = [
        {"federation": "a", "way": "DP-FedAvg", "epsilon": epsilon, "accuracy": accuracy, "error": 0.01}
        for epsilon, accuracy in accuracies.items()
    ]
    return pd.DataFrame(rows)


def test_what_is_said_follows_from_the_numbers() -> None:
    found = conclusions(_made_up({np.inf: 0.9, 1.0: 0.3, 10.0: 0.79, 30.0: 0.81}))
    (line,) = found
    assert re.fullmatch(r"a: .*0\.1 .*0\.900, from epsilon 30 on \(DP-FedAvg, 0\.810\)\.", line)
    none = conclusions(_made_up({np.inf: 0.9, 1.0: 0.3, 10.0: 0.79}))
    (line,) = none
    assert re.fullmatch(r"a: no guarantee .*epsilon 10 .*0\.1 .*0\.900\.", line)


def test_the_figure_is_drawn() -> None:
    assert to_png(accuracy_figure(_made_up({np.inf: 0.9, 1.0: 0.3, 10.0: 0.8}))).startswith(b"\x89PNG")
