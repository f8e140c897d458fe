"""Tests of the attribution of records to sites with known truth: equal sites, disjoint sites, and bounds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl_audit.experiments.studies.participation_inference import (
    _client_and_class_guess_rates,
    _who_took_part,
    is_share_above_median,
    plan_of,
)
from fl_audit.federation.loaded_federation import load_federation

SITES, EACH = 6, 20


def sites_in(path: Path, are_alike: bool) -> dict[str, Any]:
    """Return the section [data] for six sites with the same records, or with nothing in common."""
    x = 30 * (np.tile(np.eye(EACH), (SITES, 1)) if are_alike else np.eye(SITES * EACH))
    owners, many = np.repeat(np.arange(SITES), EACH), np.tile(np.arange(EACH) % 5 > 0, SITES)
    labels = many if are_alike else many ^ (owners % 2 == 0)
    np.savez(path / "sites.npz", x=x, y=labels, site=owners, x_test=x, y_test=labels)
    data = {"name": "npz", "path": str(path / "sites.npz"), "owner": "site", "partition": "natural"}
    return data | {"records": len(x), "test-records": 20}


def test_sites_that_hold_the_same_are_not_told_apart_from_models(tmp_path: Path) -> None:
    """The AUC is 1/2 within intervals of 99.9 %."""
    found = _who_took_part(sites_in(tmp_path, are_alike=True), None, 64).achieved
    assert set(found) == {"loss", "lira", "rmia"}
    for one in found.values():
        assert one.rates.auc.low <= 0.5 <= one.rates.auc.high < 0.75


def test_sites_that_have_nothing_in_common_are_told_apart_without_noise(tmp_path: Path) -> None:
    found = _who_took_part(sites_in(tmp_path, are_alike=False), None, 64).achieved
    assert all(one.rates.auc.value > 0.99 for one in found.values())


@pytest.mark.long
def test_noise_keeps_all_answers_within_the_guarantee(tmp_path: Path) -> None:
    """Six intervals begin below their bounds, each except for one seed in 2,000. Answers are better than chance."""
    data = sites_in(tmp_path, are_alike=False)
    attacked = _who_took_part(data, 4.0, 64)
    assert set(attacked.achieved) == {"loss", "lira", "rmia", "insider"}
    for name, one in attacked.achieved.items():
        largest = attacked.largest_auc_of(name)
        assert largest is not None
        assert one.rates.auc.low <= largest < 0.9
    assert attacked.achieved["insider"].rates.auc.low > 0.5
    kept = is_share_above_median(load_federation(plan_of(data, 4.0, {"kind": "reconstruction"}).federation))
    assert np.array_equal(kept, np.arange(SITES)[:, None] % 2 == [0, 1])
    who, classes = _client_and_class_guess_rates(data, 4.0, 400)
    assert who.chance == pytest.approx(1 / SITES)
    assert classes.chance == 0.5
    for answer in (who, classes):
        assert answer.chance < answer.low < answer.bound < 0.9
