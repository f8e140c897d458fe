"""The networks of the white-box attack, one for each trial with its own examples; all are trained in parallel.

All tensors have a leading axis of networks, and Adam updates every parameter independently. Initial weights and dropped
inputs are the same for all networks, so the result of a network does not depend on the others. Every step uses all
examples, so their order does not matter.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from fl_audit.errors import require
from fl_audit.value_checks import require_number
from fl_audit.words import name_list

_NARROW = 16  # largest number of inputs of a layer that learns at the full rate
Shown = Mapping[str, Tensor]
"""The inputs of the networks: values of shape (networks, examples, inputs), keyed by the name of the part.

The part "gradient" is replaced by its two factors `signals` and `inputs`, each (networks, examples, releases, ...).
"""


class WhiteBoxFeatureGroup(StrEnum):
    """A part of a target's features that the attack network may use.

    GRADIENT: the gradient of the loss with respect to weight and bias of the last dense layer. ACTIVATIONS: the outputs
    of the last hidden layer. OUTPUT: log-probabilities of all classes. LOSS: the cross-entropy, and the log-odds of the
    label computed from it. LABEL: the class, one-hot.
    """

    GRADIENT = "gradient"
    ACTIVATIONS = "activations"
    OUTPUT = "output"
    LOSS = "loss"
    LABEL = "label"


_AUTHORS_PARTS = frozenset(
    {WhiteBoxFeatureGroup.GRADIENT, WhiteBoxFeatureGroup.OUTPUT, WhiteBoxFeatureGroup.LOSS, WhiteBoxFeatureGroup.LABEL}
)
"""The parts that the code of Bernau et al. 2019 uses."""


@dataclass(frozen=True)
class WhiteBoxSettings:
    """Settings of the white-box attack: the inputs, sizes and training of its networks."""

    parts: frozenset[WhiteBoxFeatureGroup] = (
        _AUTHORS_PARTS  # the parts used, one or more; each has a branch of two layers
    )
    # Number of learned linear maps of each class's row of the gradient, the same for all classes, 1 or more.
    filters: int = 8
    branch: tuple[int, int] = (32, 16)  # widths of the two layers of a branch
    trunk: tuple[int, ...] = (32,)  # widths of the hidden layers after the branches
    steps: int = 200  # number of steps of Adam, 1 or more; each uses all training examples
    # Learning rate, above 0, of layers with up to 16 inputs. Wider layers have rate x 16 / inputs, so that a branch
    # with many inputs does not dominate the branch of the loss.
    rate: float = 0.01
    decay: float = 0.01  # weight decay (AdamW), 0 or more
    dropout: float = 0.8  # share of a branch's inputs dropped in a step, from 0 to below 1; not used for the loss
    seed: int = 0  # seed of the initial weights and of dropout

    def __post_init__(self) -> None:
        require(len(self.parts) > 0, "no parts are shown to the attack network: accepted is one or more")
        for group in self.parts:
            require(
                group in set(WhiteBoxFeatureGroup),
                f"part {group!r} is unknown: accepted are {name_list(WhiteBoxFeatureGroup)}",
            )
        whole = {"filters": self.filters, "steps": self.steps, "smallest width": min(self.branch + self.trunk)}
        for name, value in whole.items():
            require_number(f"{name} is", value, "whole numbers from 1")
        require_number("rate is", self.rate, "numbers above 0")
        require_number("decay is", self.decay, "numbers from 0")
        require_number("dropout is", self.dropout, "numbers from 0 to below 1")


@dataclass(frozen=True)
class AttackNetworks:
    """The weights and biases of the attack networks of all trials, stacked."""

    rule: WhiteBoxSettings  # sizes and training
    branches: tuple[str, ...]  # names of the branches, in the order in which the trunk reads them
    # Weights keyed by layer, (networks, ins, outs); the layer `filters` is (networks, releases, inputs, filters).
    weights: dict[str, Tensor]
    biases: dict[str, Tensor]  # biases keyed by layer, (networks, 1, outs)

    @classmethod
    def initial(cls, settings: WhiteBoxSettings, examples: Shown, source: torch.Generator) -> "AttackNetworks":
        """Return untrained networks, all equal, with zero biases and normal weights (He et al. 2015)."""
        networks = len(next(iter(examples.values())))
        new_networks = cls(settings, tuple(sorted(settings.parts)), {}, {})

        def layer(name: str, ins: int, outs: int) -> None:
            initial_weights = torch.randn(ins, outs, generator=source) * (2 / ins) ** 0.5
            new_networks.weights[name] = initial_weights.expand(networks, -1, -1).clone().requires_grad_()
            new_networks.biases[name] = torch.zeros(networks, 1, outs, requires_grad=True)

        for branch in new_networks.branches:
            if branch == WhiteBoxFeatureGroup.GRADIENT:
                _, _, releases, width = examples["inputs"].shape
                filter_weights = (
                    torch.randn(releases, width, settings.filters, generator=source) * (releases * width) ** -0.5
                )
                new_networks.weights["filters"] = filter_weights.expand(networks, -1, -1, -1).clone().requires_grad_()
                ins = settings.filters * examples["signals"].shape[-1]
            else:
                ins = examples[branch].shape[-1]
            layer(f"{branch} 1", ins, settings.branch[0])
            layer(f"{branch} 2", *settings.branch)
        widths = (settings.branch[1] * len(new_networks.branches), *settings.trunk, 1)
        for number, (ins, outs) in enumerate(pairwise(widths)):
            layer(f"trunk {number}", ins, outs)
        return new_networks

    def log_odds(self, examples: Shown, source: torch.Generator | None = None) -> Tensor:
        """Return the log-odds of membership of each example, shape (networks, examples)."""
        activations = []
        for branch in self.branches:
            inputs = self._filtered(examples) if branch == WhiteBoxFeatureGroup.GRADIENT else examples[branch]
            dropout_source = source if branch != WhiteBoxFeatureGroup.LOSS else None
            hidden = torch.relu(self._layer(f"{branch} 1", inputs, dropout_source))
            activations.append(torch.relu(self._layer(f"{branch} 2", hidden)))
        values = torch.cat(activations, -1)
        last = len(self.rule.trunk)
        for number in range(last):
            values = torch.relu(self._layer(f"trunk {number}", values))
        return self._layer(f"trunk {last}", values).squeeze(-1)

    def train(self, examples: Shown, answers: Tensor, tensor: Tensor, source: torch.Generator) -> None:
        """Train all networks on cross-entropy, in place.

        Shapes: `answers` (networks, examples), `tensor` (networks, examples).
        """
        rule = self.rule
        slower = {name: min(1.0, _NARROW / values.shape[-2]) for name, values in self.weights.items()}
        groups = [{"params": [values], "lr": rule.rate * slower[name]} for name, values in self.weights.items()]
        groups.append({"params": list(self.biases.values()), "weight_decay": 0.0})
        optimizer = torch.optim.AdamW(groups, lr=rule.rate, weight_decay=rule.decay)
        for _ in range(rule.steps):
            optimizer.zero_grad()
            losses = F.binary_cross_entropy_with_logits(self.log_odds(examples, source), answers, reduction="none")
            torch.autograd.backward((losses * tensor).sum())
            optimizer.step()

    def _layer(self, name: str, inputs: Tensor, source: torch.Generator | None = None) -> Tensor:
        """Return the outputs of the dense layer `name`; `source` draws the dropped inputs, and None drops none."""
        weights = self.weights[name]
        if source is not None:
            tensor = torch.rand(weights.shape[1], 1, generator=source) < 1 - self.rule.dropout
            weights = weights * (tensor / (1 - self.rule.dropout))
        return torch.baddbmm(self.biases[name], inputs, weights)

    def _filtered(self, examples: Shown) -> Tensor:
        """Return learned linear maps of the last dense layer's gradient, (networks, examples, filters x outs).

        The gradient's row for class c is d_c (h, 1), with d_c in `signals` and (h, 1) in `inputs`. The gradient itself
        is not computed: a map is applied to (h, 1), and the result is multiplied by every d_c.
        """
        filtered = []
        maps = self.weights["filters"]
        for release in range(maps.shape[1]):
            mapped = torch.bmm(examples["inputs"][:, :, release], maps[:, release])
            filtered.append(mapped.unsqueeze(-1) * examples["signals"][:, :, release].unsqueeze(-2))
        return sum(filtered[1:], start=filtered[0]).flatten(2)
