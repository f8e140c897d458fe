"""The fit of normals to the losses of a run's trials is tested as for one model, trial by trial."""

from types import SimpleNamespace

import numpy as np
import pytest

from fl_audit.released_model.empirical_star import empirical_epsilon_star
from fl_audit.released_model.normal_fit_tests import FIT, TRIALS_TESTED, fits_of_trials, rejected
from fl_audit.released_model.parametric_star import StarSettings, parametric_epsilon_star
from fl_audit.released_model.star_estimate import estimate_epsilon_star
from fl_audit.released_model.star_methods import EMPIRICAL_CUT, StarMethod
from fl_audit.server.release_findings import pooled_epsilon_star
from fl_audit.trial_batches import TrialBatch


def _losses(kind: str, trials: int, records: int = 400) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    if kind == "skewed":
        return draw.gamma(1, 0.3, (trials, records)), draw.gamma(1, 0.5, (trials, records))
    return draw.normal(10, 1, (trials, records)), draw.normal(11, 1, (trials, records))


@pytest.mark.long
@pytest.mark.parametrize(("kind", "method"), [("skewed", StarMethod.EMPIRICAL), ("normal", StarMethod.PARAMETRIC)])
def test_trials_are_judged_as_one_model_is(kind: str, method: StarMethod) -> None:
    members, population = _losses(kind, 20)
    found = fits_of_trials(members, population, np.arange(20), 0)
    tested, against = rejected(found)
    assert tested == 20
    assert (2 * against > tested) == (method is StarMethod.EMPIRICAL)
    alone = [
        estimate_epsilon_star(one, other, 1e-5, np.random.default_rng(0)).method
        for one, other in zip(members[:5], population[:5], strict=True)
    ]
    assert alone.count(method) >= 4


def test_a_trial_is_tested_alike_in_every_batch_and_few_losses_are_not() -> None:
    members, population = _losses("skewed", 6)
    whole = fits_of_trials(members, population, np.arange(96, 102), 3)
    parts = [fits_of_trials(members[rows], population[rows], np.arange(96, 102)[rows], 3) for rows in ([0, 1], [2, 3])]
    assert np.array_equal(whole[:4], np.concatenate(parts))
    assert np.isnan(whole[TRIALS_TESTED - 96 :]).all()
    assert np.isnan(fits_of_trials(members[:, :99], population, np.arange(6), 3)).all()
    assert rejected(np.array([np.nan, 0.01, 0.5, 0.05])) == (3, 2)


@pytest.mark.parametrize("number", [0, 3, 7])
def test_a_pooled_release_has_both_estimators_at_its_ends_and_the_fit_at_the_last(number: int) -> None:
    members, population = _losses("skewed", 2)
    release = SimpleNamespace(
        batch=TrialBatch(0, 0, 2),
        number=number,
        is_last=number == 7,
        federation=SimpleNamespace(public=SimpleNamespace(data_seed=0)),
        members_and_population=lambda: [(np.array([True, True]), members, population)],
    )
    found = pooled_epsilon_star(StarSettings(1e-5), release)
    assert np.array_equal(found.trials["epsilon_star"], parametric_epsilon_star(members, population, 1e-5))
    counted = empirical_epsilon_star(members, population, 1e-5, EMPIRICAL_CUT)
    wanted = counted if number in (0, 7) else np.full(2, np.nan)
    assert np.array_equal(found.releases["epsilon_star_counted"], wanted, equal_nan=True)
    assert (FIT in found.trials) == (number == 7)
    assert FIT not in found.releases
    assert StarSettings(1e-5, 0.01).counted_cut == 0.01
