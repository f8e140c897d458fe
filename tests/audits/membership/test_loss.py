"""The membership adversary on losses whose distribution is known, and the properties that its rates obey on any."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from fl_audit.audits.membership.yeom_attack import chance_spread, record_membership_guess
from fl_audit.released_model.empirical_star import yeom_advantage
from tests.builders.refusals import assert_refused

# Multiples of 1/8 under 2**20 are added, scaled by powers of two and averaged over 2, 4 or 8 without rounding.
DYADIC = st.integers(0, 2**20).map(lambda number: number / 8)
MEMBERS = st.sampled_from([1, 2, 4, 8]).flatmap(lambda count: st.lists(DYADIC, min_size=count, max_size=count))
OTHERS = st.lists(DYADIC, min_size=1, max_size=9)


@pytest.mark.parametrize(("shift", "spread"), [(0.0, 1.0), (0.5, 1.0), (1.0, 2.0), (-0.5, 0.7)])
def test_rates_on_normal_losses_are_those_of_the_closed_form(shift: float, spread: float) -> None:
    """TPR = 1/2 and FPR = Phi(-shift / spread); 40000 losses err by 0.0035, so 0.024 is over four errors."""
    draw = np.random.default_rng(3)
    attack_result = yeom_advantage(draw.normal(50, 1, (3, 40_000)), draw.normal(50 + shift, spread, (3, 40_000)))
    assert attack_result == pytest.approx(np.full(3, 0.5 - ndtr(-shift / spread)), abs=0.024)


def test_rates_on_exponential_losses_are_those_of_the_closed_form() -> None:
    """A skewed distribution tells mean from median: TPR = 1 - 1/e, FPR = 1 - e^(-1/4) for others with four times the
    mean.
    """
    draw = np.random.default_rng(4)
    attack_result = yeom_advantage(draw.exponential(1.0, 80_000), draw.exponential(4.0, 80_000))
    assert float(attack_result) == pytest.approx(math.exp(-0.25) - math.exp(-1), abs=0.024)


def test_trials_do_not_mix() -> None:
    draw = np.random.default_rng(5)
    members = draw.exponential(1.0, (6, 11))
    population = draw.exponential(2.0, (6, 7))
    together = yeom_advantage(members, population)
    alone = [float(yeom_advantage(members[i], population[i])) for i in range(6)]
    assert together.tolist() == alone
    assert len(set(alone)) > 1
    guesses = record_membership_guess(population[:, 0], members)
    assert guesses.tolist() == [bool(population[i, 0] <= members[i].mean()) for i in range(6)]


def test_a_loss_at_the_threshold_is_a_members() -> None:
    assert float(yeom_advantage([0.5, 1.0, 1.5], [1.0, 1.25])) == pytest.approx(2 / 3 - 0.5)
    assert record_membership_guess(1.0, [0.5, 1.5])


@given(value=st.floats(1e-6, 1e6), count=st.integers(1, 50))
def test_equal_losses_are_all_members_whatever_the_rounding_of_their_mean(value: float, count: int) -> None:
    assert yeom_advantage(np.full(count, value), [value, 2 * value]) == 0.5
    assert record_membership_guess(value, np.full(count, value))


@given(members=MEMBERS, others=OTHERS)
def test_the_advantage_lies_between_minus_one_and_one(members: list[float], others: list[float]) -> None:
    # The smallest loss is at most the mean, so somebody is always called a member.
    assert 1 / len(members) - 1 <= yeom_advantage(members, others) <= 1
    assert yeom_advantage(members, members) == 0


@given(members=MEMBERS, non_members=OTHERS, scale=st.sampled_from([0.25, 1.0, 8.0]), shift=DYADIC)
def test_increasing_affine_maps_of_the_losses_change_nothing(
    members: list[float], non_members: list[float], scale: float, shift: float
) -> None:
    moved = [scale * np.array(values) + shift for values in (members, non_members)]
    assert yeom_advantage(*moved) == yeom_advantage(members, non_members)
    before = record_membership_guess(non_members[0], members)
    assert record_membership_guess(moved[1][0], moved[0]) == before


@given(common=MEMBERS, own_loss=DYADIC)
def test_the_record_guess_is_the_rule_for_a_member_of_d(common: list[float], own_loss: float) -> None:
    """x lies under the mean of D where it lies under the mean of the rest; sums, so that nothing rounds."""
    is_under_mean_of_all = own_loss * (len(common) + 1) <= math.fsum([*common, own_loss])
    assert bool(record_membership_guess(own_loss, common)) == is_under_mean_of_all


def test_an_uninformative_model_gives_the_record_guess_no_advantage() -> None:
    """The model is drawn without the bit; the threshold of the data set really used would tell D from D' by itself.

    40000 trials err by 0.005; 0.02 is four errors. The naive threshold's advantage is about 0.3 here.
    """
    draw = np.random.default_rng(6)
    common = draw.exponential(1.0, (40_000, 2))
    own_losses = draw.exponential(1.0, 40_000)
    replacement_losses = draw.exponential(8.0, 40_000)
    bits = draw.integers(0, 2, 40_000) == 1
    guess = record_membership_guess(own_losses, common)
    assert 2 * np.mean(guess == bits) - 1 == pytest.approx(0, abs=0.02)
    used = np.concatenate([common, np.where(bits, own_losses, replacement_losses)[:, None]], axis=1)
    assert abs(2 * np.mean((own_losses <= used.mean(axis=1)) == bits) - 1) > 0.1


@pytest.mark.parametrize(("distribution", "share"), [("normal", 0.5), ("exponential", 1 - math.exp(-1))])
@pytest.mark.parametrize(("members", "non_members"), [(100, 1000), (500, 100)])
def test_chance_spread_is_that_of_advantages_where_nothing_leaks(
    distribution: str, share: float, members: int, non_members: int
) -> None:
    """A standard deviation of 4000 advantages strays by 1.1 %: 5 % has a false-alarm rate under 1e-5."""
    draw = getattr(np.random.default_rng(3), distribution)
    computed_spread = yeom_advantage(*(10 + draw(size=(4000, records)) for records in (members, non_members))).std()
    largest = chance_spread(members, non_members)
    assert computed_spread == pytest.approx(largest * 2 * math.sqrt(share * (1 - share)), rel=0.05)
    assert_refused("0 members and 5 others: accepted are 1 or more", chance_spread, 0, 5)
