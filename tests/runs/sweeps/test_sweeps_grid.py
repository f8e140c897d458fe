"""Points of a sweep from axes: every combination, names that hold, one line for what is wrong."""

from hypothesis import given
from hypothesis import strategies as st

from fl_audit.runs.sweeps.grid import Axis, baselines, grid, parse_axis, point, require_distinct, without_privacy
from tests.builders.refusals import assert_refused
from tests.builders.settings import small_settings

VALUES = small_settings(privacy={"belief": None, "epsilon": 1.0, "sensitivity": "global"}, audit={"insider": False})


def test_every_combination() -> None:
    axes = [parse_axis("privacy.epsilon=1,3.5"), parse_axis("training.optimizer=sgd, adam")]
    points = grid(VALUES, axes)
    assert [sweep_point.settings for sweep_point in points] == [
        (("privacy.epsilon", epsilon), ("training.optimizer", optimizer))
        for epsilon in (1, 3.5)
        for optimizer in ("sgd", "adam")
    ]
    assert [sweep_point.config.privacy.epsilon for sweep_point in points] == [1, 1, 3.5, 3.5]
    assert [sweep_point.config.training.optimizer for sweep_point in points] == ["sgd", "adam"] * 2
    assert points[1].name == "epsilon=1_optimizer=adam"
    require_distinct(points)


def test_words_need_no_quotes_and_quoted_ones_may_hold_commas() -> None:
    assert parse_axis("data.path=a.csv,b.csv").values == ("a.csv", "b.csv")
    assert parse_axis('data.path="a,b.csv"').values == ("a,b.csv",)
    assert parse_axis("audit.membership=true,false").values == (True, False)
    assert parse_axis("audit.neighbour=0,random").values == (0, "random")


def test_without_an_axis_there_is_one_point() -> None:
    (sweep_point,) = grid(VALUES, [])
    assert (sweep_point.name, sweep_point.settings) == ("as-configured", ())


def test_a_baseline_guarantees_nothing() -> None:
    (sweep_point,) = grid(without_privacy(small_settings()), [])
    assert not sweep_point.config.privacy.private
    assert not sweep_point.config.audit.insider
    assert sweep_point.config.privacy.delta == 0.01


@given(st.lists(st.text(min_size=1, max_size=150), min_size=2, max_size=4, unique=True))
def test_names_are_plain_and_distinct(texts: list[str]) -> None:
    names = [
        point(small_settings(), (("audit.neighbour", index), ("data.label", text))).name
        for index, text in enumerate(texts)
    ]
    alike = [point(small_settings(), (("data.label", text),)).name for text in texts]
    for name in (*names, *alike):
        assert len(name) < 130
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789=._+-")
    assert len(set(alike)) == len(alike)


def test_what_is_swept_replaces_what_was_claimed() -> None:
    (sweep_point,) = grid(VALUES, [Axis("privacy.belief", (0.8,))])
    assert (sweep_point.config.privacy.belief, sweep_point.config.privacy.epsilon) == (0.8, None)
    assert_refused("can be claimed", grid, VALUES, [Axis("privacy.belief", (0.8,)), Axis("privacy.epsilon", (1,))])


def test_a_part_of_a_table_can_be_swept() -> None:
    values = small_settings(data={"partition": "dirichlet"})
    points = grid(values, [parse_axis("data.partition-parameters.alpha=0.1,1")])
    assert [sweep_point.config.data.partition_parameters for sweep_point in points] == [{"alpha": 0.1}, {"alpha": 1}]


def test_baselines_are_told_from_points_with_the_same_values() -> None:
    axes = [parse_axis("training.rounds=5,20")]
    everything = (*grid(VALUES, axes), *baselines(VALUES, axes))
    require_distinct(everything)
    assert everything[2].name == "private=false_rounds=5"
