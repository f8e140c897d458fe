"""States of the global random generators of Python, numpy and torch."""

import random
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class GeneratorStates:
    """States of the global random generators, from which apps and Flower's own wrappers draw."""

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

    def digests(self) -> dict[str, str]:
        """Return a digest of each state, keyed by the name of the generator."""
        texts = {
            "random": repr(self.python).encode(),
            "numpy.random": repr((self.numpy[0], *self.numpy[2:])).encode() + self.numpy[1].tobytes(),
            "torch": self.torch.numpy().tobytes(),
        }
        return {name: sha256(text).hexdigest() for name, text in texts.items()}
