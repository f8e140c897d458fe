"""States of the global generators: a draw from any of them is seen, and is undone by restoring them."""

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from fl_audit.generator_states import GeneratorStates, seed_generators, spared_generators

_DRAWS: list[Callable[[], object]] = [random.random, np.random.random, lambda: torch.rand(1)]


@pytest.mark.parametrize("draw", _DRAWS)
def test_a_draw_from_any_generator_changes_the_states_until_they_are_restored(draw: Callable[[], object]) -> None:
    before = GeneratorStates.current()
    assert GeneratorStates.current().is_same(before)
    first_draw = draw()
    assert not GeneratorStates.current().is_same(before)
    digests = before.digests()
    assert sum(GeneratorStates.current().digests()[name] != digest for name, digest in digests.items()) == 1
    before.restore()
    assert GeneratorStates.current().is_same(before)
    assert draw() == first_draw


def test_seeds_follow_from_the_generator_and_end_with_the_block() -> None:
    before = GeneratorStates.current()
    with spared_generators():
        seed_generators(np.random.default_rng(7))
        seeded = GeneratorStates.current()
        seed_generators(np.random.default_rng(7))
        assert GeneratorStates.current().is_same(seeded)
        assert not seeded.is_same(before)
    assert GeneratorStates.current().is_same(before)
