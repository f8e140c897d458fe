"""Log-odds of two hypotheses against log-densities of mixtures."""

import numpy as np
import pytest
import torch
from scipy import special, stats

from fl_audit.errors import InputError
from fl_audit.mechanisms.weighing import Hypotheses, gaussian_log_odds


@pytest.mark.parametrize("weight", [1.0, 0.3, 0.01])
@pytest.mark.parametrize("replaces", [True, False])
def test_log_odds_are_those_of_the_densities(weight: float, replaces: bool) -> None:
    draw = np.random.default_rng(4)
    worlds, size = 6, 9
    shared, present, other = (draw.standard_normal((worlds, size)).astype(np.float32) for _ in range(3))
    absent = other if replaces else np.zeros_like(other)
    sigma = draw.uniform(0.5, 2.0, worlds)
    release = shared + present + sigma[:, None] * draw.standard_normal((worlds, size))
    hypotheses = Hypotheses(*(torch.from_numpy(part) for part in (shared, present, absent)), weight)
    found = [
        gaussian_log_odds(part, (part.residual * part.difference).sum(dim=1), torch.from_numpy(sigma), weight)
        for part in hypotheses.against(torch.from_numpy(release))
    ]

    def log_density(own: np.ndarray) -> np.ndarray:
        scale = sigma[:, None]
        inside = stats.norm.logpdf(release, shared + own, scale).sum(axis=1)
        outside = stats.norm.logpdf(release, shared, scale).sum(axis=1)
        with np.errstate(divide="ignore"):
            return special.logsumexp([inside, outside], axis=0, b=[[weight], [1 - weight]])

    np.testing.assert_allclose(torch.cat(found).numpy(), log_density(present) - log_density(absent), atol=1e-5)


@pytest.mark.parametrize("weight", [0.0, -0.1, 1.1])
def test_refuses_weights_that_are_no_probability(weight: float) -> None:
    zero = torch.zeros(1, 2)
    with pytest.raises(InputError, match="weight is"):
        Hypotheses(zero, zero, zero, weight)
