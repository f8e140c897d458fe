"""Section [model]: the model, its weights and their seed."""

from typing import Annotated

from pydantic import Field

from fl_audit.learning.training_enums import InitialWeightsSource
from fl_audit.runs.config.config_section import ConfigSection
from fl_audit.runs.config.setting_types import Choice

MODEL_PATH = "weights"
"""Setting of the section that names a file."""


class ModelSection(ConfigSection):
    """Section [model]: a built-in model by name, or a user's own as `package.module:factory`.

    With `initial = "pretrained"`, every trial starts from the same weights, which were trained without privacy on
    records that serve no other purpose. Common weights are the worst case if the adversary sees the final model.
    """

    name: str = "logistic"
    """Name of a built-in model, or `package.module:factory` of your own."""
    weights: str | None = None
    """File with the weights of the frozen core of `vgg16`."""
    initial: Choice[InitialWeightsSource] = InitialWeightsSource.DRAWN
    """Initial model: weights drawn for every trial, or the same pretrained ones (the worst case) in all."""
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0
    """Public seed of the initial weights."""
