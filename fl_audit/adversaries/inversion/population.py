"""Pictures out of noisy updates: what the attacker knows of other people's pictures fills in what noise hides."""

import torch
from torch import Tensor


def of_population(seen: Tensor, noise: float, pictures: Tensor, updates: Tensor) -> Tensor:
    """Return the linear estimate of least squared error of what each owner has, float32 (owners, *shape), from 0 to 1.

    It needs no label and no layer, and works for every model and every rule by which records become an update.

    Parameters
    ----------
    seen
        What each owner shared, with noise, float32 (owners, parameters).
    noise
        Standard deviation of the noise in each coordinate, from 0.
    pictures
        What others might have, a picture or several, float32 (others, *shape); the true ones are not among them.
    updates
        What these would have shared, without noise, float32 (others, parameters).

    Notes
    -----
    mean(x) + Cov(x, u) (Cov(u) + noise^2 I)^-1 (seen - mean(u)), with the means and covariances of the other pictures
    (the Gauss-Markov estimate). Only products of updates are needed: with U and X centred it is
    mean(x) + X' (U U' + n noise^2 I)^-1 U (seen - mean(u)). Without noise it is as good as the span of the others.
    """
    flat, centre = pictures.flatten(1).double(), updates.mean(0)
    middle, apart = flat.mean(0), updates - centre  # of large models these fill the memory: they stay in float32
    products = (apart @ apart.T).double()
    # Centred updates are dependent: without noise a part in 10^6 of their size keeps the system solvable.
    ridge = len(apart) * noise**2 + 1e-6 * float(products.diagonal().mean())
    products.diagonal().add_(ridge)
    shares: Tensor = torch.linalg.solve(products, (apart @ (seen - centre).T).double())
    found = middle + shares.T @ (flat - middle)
    return found.clamp(0, 1).float().reshape(len(seen), *pictures.shape[1:])
