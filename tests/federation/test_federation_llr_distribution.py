"""The exact distribution of the insider's log-odds on real data, in a quick form (tests.validation.llr_distribution has
the full one).

Seeds are fixed once. A sound run fails one check with a probability of about 0.24 %. Each wrong insider that is
to be found is about five standard errors or more from the distribution in both groups of trials.
"""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.validation.llr_distribution import WRONG_INSIDERS, plan_of, study


@dataclass(frozen=True)
class Quick:
    """A quick setting: fewer trials, changes, and the wrong insiders that so few trials can show."""

    setting: str
    trials: int
    changes: tuple[str, ...] = ()
    shown: tuple[str, ...] = field(default=tuple(WRONG_INSIDERS))
    needs_files: bool = True


SIGMA, EXCHANGED, STALE = WRONG_INSIDERS
FEW = ("data.records=100", "data.clients=4")
"""The distribution holds for any number of records, and few are weighed quickly."""
CLEAR = ("privacy.belief=", "privacy.noise-multiplier=4")
"""At the published guarantee a round tells little; less noise shows an exchange of D and D' in fewer trials."""
STEPS = "training.learning-rate=0.5"
"""With the small steps of a setting the weights of the round before are nearly those of the round."""
CASES = (
    Quick("adult", 120, (*FEW, *CLEAR, STEPS)),
    Quick("adult-global", 120, (*FEW, "privacy.belief=", "privacy.epsilon=10", STEPS)),
    # With fewer records the models grow so fast that their rounding would hide the release.
    Quick("adult-model-view", 120, ("data.records=400", "data.clients=4", *CLEAR)),
    Quick("digits-adam", 120, (*FEW, *CLEAR, STEPS), needs_files=False),
    # A convolutional trial takes its time; 5 % of sigma needs thousands of innovations and is shown by the others.
    Quick(
        "mnist-cnn",
        10,
        ("data.records=40", "data.clients=4", "privacy.belief=", "privacy.noise-multiplier=1", "training.rounds=8"),
        shown=(EXCHANGED, STALE),
    ),
)


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.setting, marks=[pytest.mark.long] * (case.needs_files)) for case in CASES]
)
def test_innovations_follow_their_distribution_and_those_of_wrong_insiders_do_not(
    case: Quick, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    data = request.getfixturevalue("published_data") if case.needs_files else None
    fixed = (f"audit.trials={case.trials}", "audit.epsilon-star=false", "run.trials-per-batch=100", "run.seed=0")
    plan = plan_of(case.setting, data, (*fixed, *case.changes))
    honest, *wrong = study(plan, tmp_path / "run")
    assert honest.check.holds, honest
    assert honest.check.members.count + honest.check.nonmembers.count > 0.9 * case.trials * plan.federation.rounds
    three_errors = 3 / case.trials**0.5
    limit = plan.guarantee.advantage_bound_exact
    assert honest.advantage < limit + three_errors
    assert plan.federation.mechanism.is_private_release or honest.advantage > limit - three_errors
    assert [result.insider for result in wrong] == list(WRONG_INSIDERS)
    for result in wrong:
        assert result.insider not in case.shown or not result.check.holds, result
