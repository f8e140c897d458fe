"""Section [model]: which model, and where its training begins."""

from typing import Annotated

from pydantic import Field

from experiments.runs.config.values import Choice, ConfigSection
from fl_audit.game.names import InitialWeights


class ModelSection(ConfigSection):
    """Which model: a built-in name or `package.module:factory`. `seed` draws the initial weights, which are public.

    `initial = "pretrained"` begins in every world with the same weights, trained without privacy on records that serve
    for nothing else: the worst case for an observer of the final model.

    `weights` is the file that `vgg16` takes the weights of its frozen core from.
    """

    name: str = "logistic"
    """Name of a built-in model, or `package.module:factory` of one's own."""
    weights: str | None = None
    """File with the weights of the frozen core of `vgg16`."""
    initial: Choice[InitialWeights] = InitialWeights.DRAWN
    """Where training begins: weights drawn for every world, or the same pretrained ones (the worst case) in all."""
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0
    """Public seed of the initial weights."""
