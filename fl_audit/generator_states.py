"""States of the global random generators of Python, numpy and torch: to keep, compare, restore and seed them.

Apps, trainings and Flower's own wrappers draw from these generators.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True, eq=False)
class GeneratorStates:
    """States of the global random generators."""

    python: Any  # state of `random`
    numpy: Any  # state of `numpy.random`
    torch: torch.Tensor  # state of torch's generator for processors

    @classmethod
    def current(cls) -> "GeneratorStates":
        """Return the states as they are now, without a draw."""
        return cls(random.getstate(), np.random.get_state(), torch.get_rng_state())  # noqa: NPY002

    def restore(self) -> None:
        """Give these states to the generators."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)  # noqa: NPY002
        torch.set_rng_state(self.torch)

    def is_same(self, states: "GeneratorStates") -> bool:
        """Return whether two states are equal: then nothing was drawn in between."""
        return (
            self.python == states.python
            and self.numpy[2:] == states.numpy[2:]
            and np.array_equal(self.numpy[1], states.numpy[1])
            and torch.equal(self.torch, states.torch)
        )

    def digests(self) -> dict[str, str]:
        """Return a digest of each state, keyed by the name of the generator."""
        texts = {
            "random": repr(self.python).encode(),
            "numpy.random": repr((self.numpy[0], *self.numpy[2:])).encode() + self.numpy[1].tobytes(),
            "torch": self.torch.numpy().tobytes(),
        }
        return {name: sha256(text).hexdigest() for name, text in texts.items()}


@contextmanager
def spared_generators() -> Iterator[None]:
    """Keep the states of the global random generators, and restore them after a `with` block."""
    states = GeneratorStates.current()
    try:
        yield
    finally:
        states.restore()


def seed_generators(draws: np.random.Generator) -> None:
    """Seed the global random generators of Python, numpy and torch with integers drawn from `draws`."""
    for seeded in (random.seed, np.random.seed, _seed_torch):
        seeded(int(draws.integers(2**32)))


def _seed_torch(seed: int) -> None:
    """Seed torch's generators; without a graphics card in a hundredth of the time of `torch.manual_seed`."""
    if torch.cuda.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
