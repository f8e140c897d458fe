"""The exact law of the insider's log-odds on real data, in a quick form (experiments.studies.law has the full one).

Seeds are fixed once. A sound run fails one check with a probability of about 0.24 %.
"""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from experiments.studies.law import WRONG_INSIDERS, plan_of, study


@dataclass(frozen=True)
class Quick:
    """A setting made quick: worlds, changes, and the wrong insiders that so few worlds can show."""

    setting: str
    worlds: int
    changes: tuple[str, ...] = ()
    shown: tuple[str, ...] = field(default=tuple(WRONG_INSIDERS))
    needs_files: bool = True


SIGMA, EXCHANGED, STALE = WRONG_INSIDERS
CASES = (
    Quick("adult", 200),
    # Under global scaling a round tells little at the published promise; a weaker one shows more in fewer worlds.
    Quick("adult-global", 150, ("privacy.belief=", "privacy.epsilon=10")),
    Quick("adult-model-view", 200),
    Quick("digits-adam", 250, needs_files=False),
    # A convolutional world takes its time; 5 % of sigma needs thousands of innovations and is shown by the others.
    Quick(
        "mnist-cnn",
        12,
        ("privacy.belief=", "privacy.noise-multiplier=1", "training.rounds=8"),
        shown=(EXCHANGED, STALE),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.setting)
def test_innovations_follow_their_law_and_those_of_wrong_insiders_do_not(
    case: Quick, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    data = request.getfixturevalue("published_data") if case.needs_files else None
    fixed = (f"audit.worlds={case.worlds}", "audit.epsilon-star=false", "run.worlds-per-batch=100")
    plan = plan_of(case.setting, data, (*fixed, *case.changes))
    honest, *wrong = study(plan, tmp_path / "run")
    assert honest.check.holds, honest
    assert honest.check.members.count + honest.check.nonmembers.count > 0.9 * case.worlds * plan.public.rounds
    three_errors = 3 / case.worlds**0.5
    limit = plan.guarantee.advantage_bound_exact
    assert honest.advantage < limit + three_errors
    assert plan.public.law.is_private_release or honest.advantage > limit - three_errors
    assert [result.insider for result in wrong] == list(WRONG_INSIDERS)
    for result in wrong:
        assert result.insider not in case.shown or not result.check.holds, result
