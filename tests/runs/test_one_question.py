"""One question has one answer: the same guarantee gives the same noise through command line, Python and TOML."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fl_audit as fa
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.record_selection import select_records
from fl_audit.runs.config import parse_config
from fl_audit.runs.mechanism_of_config import mechanism_of
from fl_audit.runs.planning import calibrated_multiplier
from tests.builders.commands import printed_by
from tests.builders.refusals import assert_refused
from tests.builders.runs import small_plan
from tests.builders.settings import small_settings
from tests.few_examples import examples

SPLIT = select_records(load_source(DataSpec("breast-cancer")), 60, 50, 0)
RELATIONS = ("replace-record", "add-remove-record")
TARGETS = st.one_of(
    st.tuples(st.just("belief"), st.floats(0.6, 0.99)),
    st.tuples(st.just("advantage"), st.floats(0.05, 0.9)),
    st.tuples(st.just("epsilon"), st.floats(0.3, 10.0)),
    st.tuples(st.just("reconstruction"), st.floats(0.005, 0.9)),
)


def by_command(target: str, value: float, **guarantee: Any) -> float:
    """Return the noise that the command finds; it has options for the usual targets alone, and the usual prior."""
    flags = [text for name, given_ in guarantee.items() for text in (f"--{name.replace('_', '-')}", str(given_))]
    output = printed_by("calibrate", f"--{target}", repr(value), *flags, "--json")
    return float(json.loads(output)["noise_multiplier"])


def by_python(target: str, value: float, **guarantee: Any) -> float:
    noise_multiplier = fa.calibrate(**{target.replace("-", "_"): value}, **guarantee).noise_multiplier
    assert noise_multiplier is not None
    return noise_multiplier


def by_file(target: str, value: float, rounds: int, sampling_rate: float = 1.0, **guarantee: Any) -> float:
    privacy = {"belief": None, "sensitivity": None, "accountant": None, "delta": None} | {target: value} | guarantee
    values = small_settings(privacy=privacy, training={"rounds": rounds, "sampling-rate": sampling_rate})
    if "accountant" not in guarantee:
        values["privacy"].pop("accountant", None)
    config = parse_config(values)
    return calibrated_multiplier(config, mechanism_of(config, 1.0, SPLIT))


DOORS = (by_command, by_python, by_file)


@settings(max_examples=examples(40), derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    target=TARGETS,
    rounds=st.integers(1, 200),
    delta=st.floats(1e-8, 0.01),
    prior=st.floats(0.2, 0.55),
    adjacency=st.sampled_from(RELATIONS),
)
def test_every_door_gives_the_same_noise(
    target: tuple[str, float], rounds: int, delta: float, prior: float, adjacency: str
) -> None:
    guarantee = {"rounds": rounds, "delta": delta, "prior": prior, "adjacency": adjacency}
    assert by_file(*target, **guarantee) == pytest.approx(by_python(*target, **guarantee), rel=1e-9)
    del guarantee["prior"]
    first, *other_multipliers = (door(*target, **guarantee) for door in DOORS)
    assert other_multipliers == pytest.approx([first] * len(other_multipliers), rel=1e-9)


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("target", [("belief", 0.9), ("advantage", 0.3), ("epsilon", 2.0), ("reconstruction", 0.05)])
def test_every_door_gives_the_same_noise_with_sampling(target: tuple[str, float], adjacency: str) -> None:
    guarantee = {"rounds": 20, "delta": 1e-5, "adjacency": adjacency, "sampling_rate": 0.1}
    first_multiplier, second_multiplier, third = (door(*target, **guarantee) for door in DOORS)
    assert first_multiplier == pytest.approx(second_multiplier, rel=1e-9)
    assert first_multiplier == pytest.approx(third, rel=1e-9)


@pytest.mark.parametrize("accountant", list(fa.Accountant))
def test_a_named_accountant_is_the_same_through_every_door(accountant: fa.Accountant) -> None:
    guarantee = {"rounds": 30, "delta": 1e-3, "adjacency": "replace-record", "accountant": str(accountant)}
    multipliers = [door("epsilon", 2.0, **guarantee) for door in DOORS]
    assert multipliers[1:] == pytest.approx(multipliers[:-1], rel=1e-9)


def test_no_door_fills_in_how_neighbours_differ() -> None:
    values = small_settings()
    values["privacy"].pop("adjacency")
    assert_refused(r"adjacency .*left out: .*neighbours differ", parse_config, values)
    with pytest.raises(TypeError, match="adjacency"):
        fa.calibrate(30, 1e-3, epsilon=1.0)  # type: ignore[call-arg]
    assert small_plan().guarantee is not None
