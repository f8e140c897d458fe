"""The white-box attack of Nasr et al. 2019: a network learns the membership of some targets and judges the others.

No shadow trials are needed. The attacker of a trial knows the membership of half of its targets, and never looks at
another trial. Cross-fitting over both halves gives each target a score from a network that did not learn its
membership. Functions raise `InputError` if numbers are out of range.

Each trial has a network with its own examples, and all are trained in parallel. All tensors have a leading axis of
networks, and Adam updates every parameter independently. Initial weights and dropped inputs are the same for all
networks, so the result of a network does not depend on the others. Every step uses all examples, so their order does
not matter.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import rankdata
from torch import Tensor

from fl_audit.array_types import Flags, Floats, Floats32
from fl_audit.audits.membership.white_box_features import WhiteBoxFeatures
from fl_audit.errors import require
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.learning.pass_budgets import slices
from fl_audit.value_checks import require_number

_NARROW = 16  # largest number of inputs of a layer that learns at the full rate
Shown = Mapping[str, Tensor]
"""The inputs of the networks: values of shape (networks, examples, inputs), keyed by the name of the part.

The part "gradient" is replaced by its two factors `signals` and `inputs`, each (networks, examples, releases, ...).
"""


_BRANCHES = ("gradient", "label", "loss", "output")
"""The parts of a target's features that the attack network sees, each by a branch of two layers, as in the code of
Bernau et al. 2019.

They are the gradient of the loss with respect to weight and bias of the last dense layer; the class of the target,
one-hot; the cross-entropy and the log-odds of the label computed from it; the log-probabilities of all classes.
"""
_FILTERS = 8  # number of learned linear maps of each class's row of the gradient, the same for all classes
_WIDTHS = (32, 16)  # widths of the two layers of a branch
_HIDDEN = 32  # width of the layer after the branches
_STEPS = 200  # number of steps of Adam; each uses all training examples
_RATE = 0.01
"""Learning rate of layers with up to 16 inputs. Wider layers have rate x 16 / inputs, so that a branch with many inputs
does not dominate the branch of the loss."""
_DECAY = 0.01  # weight decay (AdamW)
_DROPOUT = 0.8  # share of a branch's inputs dropped in a step; not used for the loss
_SEED = 0  # seed of the initial weights and of dropout


@dataclass(frozen=True)
class AttackNetworks:
    """The weights and biases of the attack networks of all trials, stacked."""

    # Weights keyed by layer, (networks, ins, outs); the layer `filters` is (networks, releases, inputs, filters).
    weights: dict[str, Tensor]
    biases: dict[str, Tensor]  # biases keyed by layer, (networks, 1, outs)

    @classmethod
    def initial(cls, examples: Shown, source: torch.Generator) -> "AttackNetworks":
        """Return untrained networks, all equal, with zero biases and normal weights (He et al. 2015)."""
        networks = len(next(iter(examples.values())))
        new_networks = cls({}, {})

        def layer(name: str, ins: int, outs: int) -> None:
            initial_weights = torch.randn(ins, outs, generator=source) * (2 / ins) ** 0.5
            new_networks.weights[name] = initial_weights.expand(networks, -1, -1).clone().requires_grad_()
            new_networks.biases[name] = torch.zeros(networks, 1, outs, requires_grad=True)

        for branch in _BRANCHES:
            if branch == "gradient":
                _, _, releases, width = examples["inputs"].shape
                filter_weights = torch.randn(releases, width, _FILTERS, generator=source) * (releases * width) ** -0.5
                new_networks.weights["filters"] = filter_weights.expand(networks, -1, -1, -1).clone().requires_grad_()
                ins = _FILTERS * examples["signals"].shape[-1]
            else:
                ins = examples[branch].shape[-1]
            layer(f"{branch} 1", ins, _WIDTHS[0])
            layer(f"{branch} 2", *_WIDTHS)
        layer("trunk 0", _WIDTHS[1] * len(_BRANCHES), _HIDDEN)
        layer("trunk 1", _HIDDEN, 1)
        return new_networks

    def log_odds(self, examples: Shown, source: torch.Generator | None = None) -> Tensor:
        """Return the log-odds of membership of each example, shape (networks, examples)."""
        activations = []
        for branch in _BRANCHES:
            inputs = self._filtered(examples) if branch == "gradient" else examples[branch]
            dropout_source = None if branch == "loss" else source
            hidden = torch.relu(self._layer(f"{branch} 1", inputs, dropout_source))
            activations.append(torch.relu(self._layer(f"{branch} 2", hidden)))
        hidden = torch.relu(self._layer("trunk 0", torch.cat(activations, -1)))
        return self._layer("trunk 1", hidden).squeeze(-1)

    def train(
        self, examples: Shown, answers: Tensor, example_weights: Tensor, source: torch.Generator, steps: int = _STEPS
    ) -> None:
        """Train all networks on cross-entropy, in place.

        Shapes: `answers` (networks, examples), `example_weights` (networks, examples).
        """
        slower = {name: min(1.0, _NARROW / values.shape[-2]) for name, values in self.weights.items()}
        groups = [{"params": [values], "lr": _RATE * slower[name]} for name, values in self.weights.items()]
        groups.append({"params": list(self.biases.values()), "weight_decay": 0.0})
        optimizer = torch.optim.AdamW(groups, lr=_RATE, weight_decay=_DECAY)
        for _ in range(steps):
            optimizer.zero_grad()
            losses = F.binary_cross_entropy_with_logits(self.log_odds(examples, source), answers, reduction="none")
            torch.autograd.backward((losses * example_weights).sum())
            optimizer.step()

    def _layer(self, name: str, inputs: Tensor, source: torch.Generator | None = None) -> Tensor:
        """Return the outputs of the dense layer `name`; `source` draws the dropped inputs, and None drops none."""
        weights = self.weights[name]
        if source is not None:
            mask = torch.rand(weights.shape[1], 1, generator=source) < 1 - _DROPOUT
            weights = weights * (mask / (1 - _DROPOUT))
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


_LEAST_LOSS = 1e-16  # smallest loss that is used, about the rounding error of float64
_LEAST_SPREAD = 1e-30
"""Smallest standard deviation by which inputs are divided; inputs with a smaller one are only centred."""
_FARTHEST = 1e3  # inputs are clipped to this number of standard deviations


def _learnt_log_odds(features: WhiteBoxFeatures, is_in: Flags, learnt: Flags, steps: int = _STEPS) -> Floats:
    """Return the log-odds of membership of all targets, (trials, targets), from one network for each trial.

    Each network is trained on the membership of the targets that `learnt` marks. The log-odds of these targets must not
    be used as scores of the attack.
    """
    # The targets that each network learns from, and their weights, which add up to 1, (networks, most). A network with
    # fewer examples than another is filled up with targets that it does not learn from, with weight 0.
    flags = torch.from_numpy(learnt)
    positions = torch.argsort(flags.int(), dim=1, descending=True, stable=True)[:, : int(flags.sum(1).max())]
    weights = flags.gather(1, positions).float()
    weights = weights / weights.sum(1, keepdim=True)
    tensors = _shown(features, positions, weights)
    examples = {name: _taken(values, positions) for name, values in tensors.items()}
    answers = _taken(torch.from_numpy(is_in).float(), positions)
    source = torch.Generator().manual_seed(_SEED)
    networks = AttackNetworks.initial(examples, source)
    networks.train(examples, answers, weights, source, steps)
    with torch.no_grad():
        return np.asarray(networks.log_odds(tensors).double().numpy(), dtype=np.float64)


def _taken(values: Tensor, positions: Tensor) -> Tensor:
    """Return the examples at `positions`, (networks, positions, ...)."""
    return values[torch.arange(len(values)).unsqueeze(1), positions]


def _shown(features: WhiteBoxFeatures, positions: Tensor, example_weights: Tensor) -> dict[str, Tensor]:
    """Return the inputs of the networks for all targets, keyed by name, each (networks, targets, ...).

    The inputs are standardised by the training examples of each network alone. `positions` are those of these
    examples, and `example_weights` their weights.
    """

    def scaled(raw_values: Floats32 | Tensor, centred: bool = True) -> Tensor:
        """Return values standardised by the mean and standard deviation over a network's training examples.

        If not centred, they are only divided by the root mean square.
        """
        values = torch.as_tensor(raw_values)
        examples = _taken(values, positions)
        weights = example_weights.reshape(*example_weights.shape, *[1] * (values.dim() - 2))
        mean = (weights * examples).sum(1, keepdim=True) if centred else torch.zeros_like(examples[:, :1])
        spread = (weights * (examples - mean).square()).sum(1, keepdim=True).sqrt()
        # Clipping keeps an example far from all training examples from overflowing.
        return ((values - mean) / torch.where(spread > _LEAST_SPREAD, spread, 1.0)).clamp_(-_FARTHEST, _FARTHEST)

    inputs = scaled(features.inputs)
    losses = torch.from_numpy(features.losses)
    one_hot = F.one_hot(torch.from_numpy(features.labels), features.log_probabilities.shape[-1]).float()
    return {
        # The gradient's two factors. Because of the 1, scaling and shifting h does not change the linear maps of
        # d (h, 1)'. (If the layer has no bias, d is still known, as output minus label.) The signals are not centred: a
        # shift would add the activations.
        "inputs": torch.cat([inputs, torch.ones_like(inputs[..., :1])], -1),
        "signals": scaled(features.signals, centred=False),
        "label": one_hot.expand(features.trials, -1, -1),
        "loss": torch.cat([scaled(losses), scaled(_label_log_odds(losses))], -1),
        "output": scaled(features.log_probabilities).flatten(2),
    }


def _label_log_odds(losses: Tensor) -> Tensor:
    """Return log p - log(1 - p) for losses -log p, without overflow."""
    exact = losses.double().clamp(min=_LEAST_LOSS)
    return (-exact - torch.log(-torch.expm1(-exact))).float()


_LEAST_LEARNT = 2
_SCALARS_AT_ONCE = 2**23
"""Approximate largest number of scalars of the networks that are trained together, 32 MiB without gradients."""


def known_halves(trials: int, targets: int, generator: np.random.Generator) -> Flags:
    """Draw the half of the targets whose membership the attacker of each trial knows, as a mask (trials, targets)."""
    require_number("number of trials is", trials, "whole numbers from 1")
    require_number("number of targets is", targets, "whole numbers from 2")
    first = np.broadcast_to(np.arange(targets) < targets // 2, (trials, targets))
    return np.asarray(generator.permuted(first, axis=1), dtype=np.bool_)


def white_box_scores(
    features: WhiteBoxFeatures, membership: TargetMembership, is_known: Flags, steps: int = _STEPS
) -> Floats:
    """Return the scores of the white-box attack, higher for a likelier member, shape (trials, targets).

    The targets of each trial are split into two halves, the known half and the rest. One network learns the membership
    of the known half and predicts that of the rest. A second network does the reverse. The score of a target is the
    fraction of the targets in its half that have smaller log-odds of membership. The target itself and ties count as
    half, so scores lie strictly between 0 and 1. Raises `InputError` if a half has fewer than 2 members or fewer than 2
    nonmembers.

    Source: Nasr, Shokri & Houmansadr 2019, sections II and III; several releases as in their federated setting. Sizes,
    steps and dropout are chosen for a few hundred targets, and all features are standardised on the half that is
    learned. Training ends after a fixed number of steps, while the authors report the epoch that is best on the
    predicted records.

    Scores are such fractions, and not log-odds, because a network that learned from more members gives higher log-odds
    to the other half. With fractions the expected AUC without a leak is exactly 1/2. No score depends on another trial.

    Shapes: `is_known` (trials, targets). `steps` is the number of steps of training.
    """
    flags = _checked(features, membership, is_known)
    scores = np.empty(flags.shape)
    together = max(1, _SCALARS_AT_ONCE // _scalars_a_trial(features))
    for rows in slices(features.trials, together):
        for learnt in (flags[rows], ~flags[rows]):
            log_odds = _learnt_log_odds(features.of_trials(rows), membership.is_in[rows], learnt, steps)
            for shares, values, learnt_values in zip(scores[rows], log_odds, learnt, strict=True):
                shares[~learnt_values] = (rankdata(values[~learnt_values]) - 0.5) / (~learnt_values).sum()
    return scores


def _scalars_a_trial(features: WhiteBoxFeatures) -> int:
    """Return the approximate number of scalars in the networks of one trial."""
    size = sum(values.shape[-1] for values in (features.signals, features.inputs, features.log_probabilities))
    return int(2 * features.targets * (size * features.releases + _FILTERS * features.signals.shape[-1]))


def _checked(features: WhiteBoxFeatures, membership: TargetMembership, is_known: Flags) -> Flags:
    """Return `is_known` as a bool array, after checks.

    Raises `InputError` if its shape or type is wrong. It is also raised if the known or the other half of a trial's
    targets has fewer than 2 members or fewer than 2 nonmembers.
    """
    shape = (membership.trials, membership.targets)
    expected_shape = (features.trials, features.targets)
    require(
        expected_shape == shape,
        f"features are of {expected_shape} trials and targets: accepted is {shape}, those of the membership",
    )
    flags = np.asarray(is_known)
    fits = flags.shape == shape and flags.dtype == np.bool_
    require(fits, f"known targets are {flags.dtype} of shape {flags.shape}: accepted is bool {shape}")
    for learnt, half in ((flags, "known"), (~flags, "other")):
        for side, name in ((membership.is_in, "members"), (~membership.is_in, "targets that are out")):
            count = (learnt & side).sum(axis=1)
            trial = int(np.argmin(count))
            message = f"trial {trial} has {count[trial]} {name} in its {half} half"
            require(int(count[trial]) >= _LEAST_LEARNT, f"{message}: accepted are 2 or more; take more targets")
    return flags
