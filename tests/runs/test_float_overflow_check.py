"""The effect of the first step is said before the run, in the words of the configuration."""

from typing import Any

import pytest
import torch
from small_audits import MakePlan

from fl_audit.errors import InputError
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.runs.float_overflow_check import require_finite_steps

DEEP = {"model": {"name": "dense-3x100"}}
PLAIN = {
    "privacy": {"private": False, "belief": None, "clipping-norm": None, "sensitivity": None},
    "audit": {"insider": False},
}


def check(small_plan: MakePlan, sections: dict[str, dict[str, Any]]) -> None:
    plan = small_plan(**sections)
    torch.manual_seed(0)
    require_finite_steps(plan.config, load_federation(plan.federation))


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"privacy": {"clipping-norm": 1e300}}, r"deviation of the noise .* clipping-norm in \[privacy\].* small"),
        ({"privacy": {"clipping-norm": 1e38}}, r"clipping-norm in \[privacy\], .* 1e\+38, .*smaller"),
        ({"privacy": {"clipping-norm": 1e-300}}, r"clipping-norm in \[privacy\], .* 1e-300, .*larger"),
        ({"training": {"learning-rate": 1e300}}, r"learning-rate is 1e\+300: accepted are 2.0e-31 to 3.4e\+38"),
        ({"training": {"learning-rate": 1e-300}}, "learning-rate is 1e-300: accepted are"),
        ({"training": {"learning-rate": 1e38}}, r"in 4 rounds, .* learning-rate in \[training\]"),
        ({"training": {"learning-rate": 1e15}} | DEEP, r"first step .* learning-rate in \[training\]"),
        ({"privacy": {"clipping-norm": 1e15}} | DEEP, r"first step .* clipping-norm in \[privacy\]"),
        ({"training": {"learning-rate": 1e15}} | PLAIN | DEEP, r"first step .* learning-rate"),
        (
            {"training": {"optimizer": "adam"}, "privacy": {"clipping-norm": 1e25}},
            r"Adam would square .* clipping-norm",
        ),
        (
            {"training": {"learning-rate": 1e-20}, "audit": {"view": "model"}},
            "view is 'model', .* raise .*learning rate, .*view = 'update'",
        ),
    ],
)
def test_numbers_beyond_32_bits_are_refused_by_the_key_that_is_out_of_the_ordinary(
    sections: dict[str, dict[str, Any]], said: str, small_plan: MakePlan
) -> None:
    with pytest.raises(InputError, match=said) as caught:
        check(small_plan, sections)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "sections",
    [
        {},
        DEEP,
        PLAIN,
        {"training": {"learning-rate": 1e4}} | DEEP,
        {"training": {"optimizer": "momentum", "momentum": 0.999}, "audit": {"view": "model"}},
        {"training": {"optimizer": "adam"}, "privacy": {"sensitivity": "global"}},
        {"privacy": {"clipping-norm": 1e-6}},
        {"privacy": {"clipping-norm": 1e6}},
    ],
)
def test_useful_numbers_pass(sections: dict[str, dict[str, Any]], small_plan: MakePlan) -> None:
    check(small_plan, sections)
