"""Tests of the accountant that shares no code with the guarantee, against dp-accounting and against the guarantee's."""

import ast
from pathlib import Path

import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation

import fl_audit.privacy.independent_epsilon as module
from fl_audit.adjacency import Adjacency
from fl_audit.privacy.accounting import PrivacyProfile
from fl_audit.privacy.accounting_enums import NoiseDistribution
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.independent_epsilon import PlayedReleases, independent_epsilon


def _by_dp_accounting(release: PlayedReleases, delta: float) -> float:
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    event = dp_event.GaussianDpEvent(release.multiplier)
    sampled = event if release.rate == 1 else dp_event.PoissonSampledDpEvent(release.rate, event)
    accountant.compose(dp_event.SelfComposedDpEvent(sampled, release.count))
    return float(accountant.get_epsilon(delta))


def _gaussian(multiplier: float, count: int, rate: float = 1.0) -> PlayedReleases:
    return PlayedReleases(multiplier, count, rate, distribution=NoiseDistribution.GAUSSIAN)


RELEASES = (
    _gaussian(4.0, 30), _gaussian(0.7, 3), _gaussian(1.0, 100, 0.01), _gaussian(0.6, 1000, 0.02),
    _gaussian(2.0, 1, 0.5), _gaussian(8.0, 30, 0.3), _gaussian(1.0, 20000, 0.001),
)  # fmt: skip


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("release", RELEASES, ids=str)
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_it_agrees_with_dp_accounting(release: PlayedReleases, delta: float) -> None:
    found = independent_epsilon([release], delta)
    expected = _by_dp_accounting(release, delta)
    # dp-accounting rounds losses up to a grid of 1e-4, so that it is never too small.
    assert found.epsilon <= expected + found.error
    assert found.epsilon == pytest.approx(expected, rel=2e-3, abs=2e-3)


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE_RECORD, Adjacency.REPLACE_RECORD])
@pytest.mark.parametrize("is_seen", [False, True])
@pytest.mark.parametrize(("z", "rounds", "rate"), [(1.0, 50, 0.1), (3.0, 30, 0.5), (0.8, 500, 0.01), (0.5, 4, 0.9)])
def test_it_agrees_with_the_guarantee(adjacency: Adjacency, is_seen: bool, z: float, rounds: int, rate: float) -> None:
    claimed = PrivacyProfile(gaussian_rounds(z, rounds, rate, is_seen), adjacency)
    is_replaced = adjacency is Adjacency.REPLACE_RECORD
    release = PlayedReleases(z, rounds, rate, is_replaced, is_seen, distribution=NoiseDistribution.GAUSSIAN)
    for delta in (1e-3, 1e-6):
        found = independent_epsilon([release], delta)
        assert found.epsilon - found.error <= claimed.epsilon(delta)
        assert found.epsilon == pytest.approx(claimed.epsilon(delta), rel=1e-3, abs=1e-4)
        assert found.error < 1e-3 * max(1.0, found.epsilon)


def test_it_shares_no_code_with_the_guarantee() -> None:
    tree = ast.parse(Path(module.__file__).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name for name in imported if name and name.startswith("fl_audit")} == {
        "fl_audit.array_types",
        "fl_audit.errors",
        "fl_audit.privacy.accounting_enums",
        "fl_audit.value_checks",
    }
