"""The white-box attack of Nasr et al. 2019: a network learns the membership of some targets and judges the others.

No shadow trials are needed. The attacker of a trial knows the membership of half of its targets, and never looks at
another trial. Cross-fitting over both halves gives each target a score from a network that did not learn its
membership. Functions raise `InputError` if numbers are out of range.

Many networks are trained in parallel, each on its own examples: all tensors have a leading axis of networks, and Adam
updates every parameter independently. Initial weights and dropped inputs are the same for all networks, so the result
of a network does not depend on the others. Every step uses all examples, so their order does not matter.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import assert_never

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import rankdata
from torch import Tensor

from fl_audit.array_types import Flags, Floats, Floats32
from fl_audit.audits.membership.white_box_features import WhiteBoxFeatures
from fl_audit.errors import require, require_number
from fl_audit.federation.target_membership import TargetMembership

_NARROW = 16  # largest number of inputs of a layer that learns at the full rate
_LEAST_LOSS = 1e-16  # smallest loss that is used, about the rounding error of float64
_LEAST_SPREAD = 1e-30
"""Smallest standard deviation by which inputs are divided; inputs with a smaller one are only centred."""
_FARTHEST = 1e3  # inputs are clipped to this number of standard deviations

Shown = Mapping[str, Tensor]
"""The inputs of the networks: values of shape (networks, examples, inputs), keyed by the name of the part.

The part "gradient" is replaced by its two factors `signals` and `inputs`, each (networks, examples, releases, ...).
"""


class WhiteBoxPart(StrEnum):
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


_AUTHORS_PARTS = frozenset({WhiteBoxPart.GRADIENT, WhiteBoxPart.OUTPUT, WhiteBoxPart.LOSS, WhiteBoxPart.LABEL})
"""The parts that the code of Bernau et al. 2019 uses."""


@dataclass(frozen=True)
class WhiteBoxSettings:
    """Settings of the white-box attack: the inputs, sizes and training of its networks."""

    parts: frozenset[WhiteBoxPart] = _AUTHORS_PARTS  # the parts used, one or more; each has a branch of two layers
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
        for part in self.parts:
            require(part in set(WhiteBoxPart), f"part {part!r} is unknown: accepted are {', '.join(WhiteBoxPart)}")
        whole = {"filters": self.filters, "steps": self.steps, "smallest width": min(self.branch + self.trunk)}
        for name, value in whole.items():
            require_number(f"{name} is", value, "whole numbers from 1")
        require_number("rate is", self.rate, "numbers above 0")
        require_number("decay is", self.decay, "numbers from 0")
        require_number("dropout is", self.dropout, "numbers from 0 to below 1")


def _learnt_log_odds(features: WhiteBoxFeatures, is_in: Flags, learnt: Flags, rule: WhiteBoxSettings) -> Floats:
    """Return the log-odds of membership of all targets, from one network for each trial, shape (trials, targets).

    `learnt` marks the targets, one or more, whose membership each trial's network learns. The membership `is_in`, bool
    (trials, targets), has no effect for other targets. Log-odds of learned targets are not scores of an attack.
    """
    # The targets that each network learns from, and their weights, which add up to 1, (networks, most). A network with
    # fewer examples than another is filled up with targets that it does not learn from, with weight 0.
    flags = torch.from_numpy(learnt)
    places = torch.argsort(flags.int(), dim=1, descending=True, stable=True)[:, : int(flags.sum(1).max())]
    counted = flags.gather(1, places).float()
    counted = counted / counted.sum(1, keepdim=True)
    shown = _shown(features, rule, places, counted)
    examples = {name: _taken(values, places) for name, values in shown.items()}
    answers = _taken(torch.from_numpy(is_in).float(), places)
    source = torch.Generator().manual_seed(rule.seed)
    networks = _Networks.initial(rule, examples, source)
    networks.train(examples, answers, counted, source)
    with torch.no_grad():
        return np.asarray(networks.log_odds(shown).double().numpy(), dtype=np.float64)


def _taken(values: Tensor, places: Tensor) -> Tensor:
    """Return the examples at the given positions, shape (networks, positions, ...).

    `values` has shape (networks, examples, ...), and `places` (networks, positions).
    """
    return values[torch.arange(len(values)).unsqueeze(1), places]


def _shown(features: WhiteBoxFeatures, rule: WhiteBoxSettings, places: Tensor, counted: Tensor) -> dict[str, Tensor]:
    """Return the inputs of the networks for all targets, keyed by input name, each of shape (networks, targets, ...).

    `rule` chooses the inputs. They are scaled by the mean and the standard deviation of the training examples alone.
    `places` holds the positions of the training examples among the targets, and `counted` their weights, both
    (networks, training examples).
    """

    def scaled(given: Floats32 | Tensor, centred: bool = True) -> Tensor:
        """Return `given` divided by its standard deviation over the training examples, in the same shape.

        If `centred`, the mean over the training examples is subtracted first. Otherwise the mean of the squares,
        without a subtraction, takes the place of the variance.
        """
        values = torch.as_tensor(given)
        examples, weights = _taken(values, places), counted.reshape(*counted.shape, *[1] * (values.dim() - 2))
        mean = (weights * examples).sum(1, keepdim=True) if centred else torch.zeros_like(examples[:, :1])
        spread = (weights * (examples - mean).square()).sum(1, keepdim=True).sqrt()
        # An example far beyond all that was learned from says no more than one at the edge, and must not overflow.
        return ((values - mean) / torch.where(spread > _LEAST_SPREAD, spread, 1.0)).clamp_(-_FARTHEST, _FARTHEST)

    shown = {}
    for part in sorted(rule.parts):
        match WhiteBoxPart(part):
            case WhiteBoxPart.GRADIENT:
                # Scaling and shifting h does not change the linear maps of d (h, 1)', because of the 1. (Where the
                # layer has no bias, d is known all the same, as output less label.) The signals keep their zero:
                # shifted, they would add the activations by themselves.
                inputs = scaled(features.inputs)
                shown["inputs"] = torch.cat([inputs, torch.ones_like(inputs[..., :1])], -1)
                shown["signals"] = scaled(features.signals, centred=False)
            case WhiteBoxPart.ACTIVATIONS:
                shown[part] = scaled(features.inputs).flatten(2)
            case WhiteBoxPart.OUTPUT:
                shown[part] = scaled(features.log_probabilities).flatten(2)
            case WhiteBoxPart.LOSS:
                losses = torch.from_numpy(features.losses)
                shown[part] = torch.cat([scaled(losses), scaled(_label_log_odds(losses))], -1)
            case WhiteBoxPart.LABEL:
                one_hot = F.one_hot(torch.from_numpy(features.labels), features.log_probabilities.shape[-1]).float()
                shown[part] = one_hot.expand(features.trials, -1, -1)
            case _:
                assert_never(WhiteBoxPart(part))
    return shown


def _label_log_odds(losses: Tensor) -> Tensor:
    """Return log p - log(1 - p) for losses -log p, without overflow, with the shape of `losses`."""
    exact = losses.double().clamp(min=_LEAST_LOSS)
    return (-exact - torch.log(-torch.expm1(-exact))).float()


@dataclass(frozen=True)
class _Networks:
    """The weights and biases of the attack networks of all trials, stacked."""

    rule: WhiteBoxSettings  # sizes and training
    branches: tuple[str, ...]  # names of the branches, in the order in which the trunk reads them
    # Weights keyed by layer, (networks, ins, outs); the layer `filters` is (networks, releases, inputs, filters).
    weights: dict[str, Tensor]
    biases: dict[str, Tensor]  # biases keyed by layer, (networks, 1, outs)

    @classmethod
    def initial(cls, rule: WhiteBoxSettings, examples: Shown, source: torch.Generator) -> "_Networks":
        """Return untrained networks, all equal, with random weights and zero biases.

        `rule` and the shapes of `examples` determine the layers, and `source` draws the weights. The weights of dense
        layers are normal with variance 2 / inputs (He et al. 2015).
        """
        networks = len(next(iter(examples.values())))
        made = cls(rule, tuple(sorted(rule.parts)), {}, {})

        def layer(name: str, ins: int, outs: int) -> None:
            drawn = torch.randn(ins, outs, generator=source) * (2 / ins) ** 0.5
            made.weights[name] = drawn.expand(networks, -1, -1).clone().requires_grad_()
            made.biases[name] = torch.zeros(networks, 1, outs, requires_grad=True)

        for branch in made.branches:
            if branch == WhiteBoxPart.GRADIENT:
                _, _, releases, width = examples["inputs"].shape
                drawn = torch.randn(releases, width, rule.filters, generator=source) * (releases * width) ** -0.5
                made.weights["filters"] = drawn.expand(networks, -1, -1, -1).clone().requires_grad_()
                ins = rule.filters * examples["signals"].shape[-1]
            else:
                ins = examples[branch].shape[-1]
            layer(f"{branch} 1", ins, rule.branch[0])
            layer(f"{branch} 2", *rule.branch)
        widths = (rule.branch[1] * len(made.branches), *rule.trunk, 1)
        for number, (ins, outs) in enumerate(pairwise(widths)):
            layer(f"trunk {number}", ins, outs)
        return made

    def log_odds(self, shown: Shown, source: torch.Generator | None = None) -> Tensor:
        """Return the log-odds of membership of each example, shape (networks, examples).

        `shown` holds the inputs of the networks. The generator `source` draws which inputs of the branches are dropped
        (dropout); None drops none.
        """
        seen = []
        for branch in self.branches:
            inputs = self._filtered(shown) if branch == WhiteBoxPart.GRADIENT else shown[branch]
            kept = source if branch != WhiteBoxPart.LOSS else None
            hidden = torch.relu(self._layer(f"{branch} 1", inputs, kept))
            seen.append(torch.relu(self._layer(f"{branch} 2", hidden)))
        values, last = torch.cat(seen, -1), len(self.rule.trunk)
        for number in range(last):
            values = torch.relu(self._layer(f"trunk {number}", values))
        return self._layer(f"trunk {last}", values).squeeze(-1)

    def train(self, examples: Shown, answers: Tensor, counted: Tensor, source: torch.Generator) -> None:
        """Train all networks on cross-entropy, in place.

        `answers` are 1 for members and 0 for nonmembers, and `counted` are the weights of the examples, both (networks,
        examples). The generator `source` draws which inputs are dropped.
        """
        rule = self.rule
        slower = {name: min(1.0, _NARROW / values.shape[-2]) for name, values in self.weights.items()}
        groups = [{"params": [values], "lr": rule.rate * slower[name]} for name, values in self.weights.items()]
        groups.append({"params": list(self.biases.values()), "weight_decay": 0.0})
        optimizer = torch.optim.AdamW(groups, lr=rule.rate, weight_decay=rule.decay)
        for _ in range(rule.steps):
            optimizer.zero_grad()
            losses = F.binary_cross_entropy_with_logits(self.log_odds(examples, source), answers, reduction="none")
            torch.autograd.backward((losses * counted).sum())
            optimizer.step()

    def _layer(self, name: str, inputs: Tensor, source: torch.Generator | None = None) -> Tensor:
        """Return the outputs of the dense layer `name`, shape (networks, examples, outs).

        The generator `source` draws which inputs are dropped; None drops none.
        """
        weights = self.weights[name]
        if source is not None:
            kept = torch.rand(weights.shape[1], 1, generator=source) < 1 - self.rule.dropout
            weights = weights * (kept / (1 - self.rule.dropout))
        return torch.baddbmm(self.biases[name], inputs, weights)

    def _filtered(self, shown: Shown) -> Tensor:
        """Return learned linear maps of the gradient, shape (networks, examples, filters x outs).

        The gradient is that of the loss with respect to weight and bias of the last dense layer. It is not formed
        itself: its row for class c is d_c (h, 1), where d_c is the derivative of the loss at the output of this class
        (`shown["signals"]`), and (h, 1) are the layer's inputs with a 1 for the bias (`shown["inputs"]`). So each
        filter is applied to (h, 1), and the result is multiplied by d_c. The results of several releases are added.
        """
        found, maps = [], self.weights["filters"]
        for release in range(maps.shape[1]):
            mapped = torch.bmm(shown["inputs"][:, :, release], maps[:, release])
            found.append(mapped.unsqueeze(-1) * shown["signals"][:, :, release].unsqueeze(-2))
        return sum(found[1:], start=found[0]).flatten(2)


_LEAST_LEARNT = 2
_SCALARS_AT_ONCE = 2**23
"""Approximate largest number of scalars of the networks that are trained together, 32 MiB without gradients."""


def known_halves(trials: int, targets: int, generator: np.random.Generator) -> Flags:
    """Draw the half of the targets whose membership the attacker of each trial knows, as a mask (trials, targets).

    Parameters
    ----------
    trials
        Number of trials, at least 1.
    targets
        Number of targets in each trial, at least 2.
    generator
        Generator of the draws, which must not depend on the membership.
    """
    require_number("number of trials is", trials, "whole numbers from 1")
    require_number("number of targets is", targets, "whole numbers from 2")
    first = np.broadcast_to(np.arange(targets) < targets // 2, (trials, targets))
    return np.asarray(generator.permuted(first, axis=1), dtype=np.bool_)


def white_box_scores(
    features: WhiteBoxFeatures, membership: TargetMembership, known: Flags, rule: WhiteBoxSettings | None = None
) -> Floats:
    """Return the scores of the white-box attack, higher for a likelier member, shape (trials, targets).

    In each trial one network learns from the known half of the targets and judges the others, and a second network does
    the reverse. The score of a target is the share of the targets in its half whose log-odds of membership are below
    its own. The target itself and ties count as half, so scores lie strictly between 0 and 1. Raises `InputError` if a
    half has fewer than 2 members or fewer than 2 nonmembers.

    Source: Nasr, Shokri & Houmansadr 2019, sections II and III; several releases as in their federated setting. Sizes,
    steps and dropout are chosen for a few hundred targets, and all features are standardised on the half that is
    learned. Training ends after a fixed number of steps, while the authors report the best epoch on the judged records.

    Scores are shares because a network that learned from more members gives higher log-odds to the other half. Without
    a leak, log-odds of both halves together had an AUC of 0.45 in simulation with 30 targets; with shares the expected
    AUC is exactly 1/2. No trial's score depends on another trial, so `membership_rates` may treat trials as
    independent.

    Parameters
    ----------
    features
        Features of each target under one released model or several.
    rule
        Settings of the networks; `WhiteBoxSettings()` if None.
    membership
        The membership of the targets in all trials. A network learns half of the membership of its own trial.
    known
        Whether each target belongs to the known half of its trial, bool, shape (trials, targets); see `known_halves`.
    """
    rule = rule or WhiteBoxSettings()
    flags = _checked(features, membership, known)
    scores = np.empty(flags.shape)
    together = max(1, _SCALARS_AT_ONCE // _scalars_a_trial(features, rule))
    for first in range(0, features.trials, together):
        rows = slice(first, first + together)
        for learnt in (flags[rows], ~flags[rows]):
            log_odds = _learnt_log_odds(features.of_trials(rows), membership.is_in[rows], learnt, rule)
            for shares, values, told in zip(scores[rows], log_odds, learnt, strict=True):
                shares[~told] = (rankdata(values[~told]) - 0.5) / (~told).sum()
    return scores


def _scalars_a_trial(features: WhiteBoxFeatures, rule: WhiteBoxSettings) -> int:
    """Return the approximate number of scalars in the networks of one trial: their inputs and filter outputs."""
    seen = sum(values.shape[-1] for values in (features.signals, features.inputs, features.log_probabilities))
    return int(2 * features.targets * (seen * features.releases + rule.filters * features.signals.shape[-1]))


def _checked(features: WhiteBoxFeatures, membership: TargetMembership, known: Flags) -> Flags:
    """Return `known`, the mask of targets in the known half, as a bool array (trials, targets), after checking it.

    Raises `InputError` if features, membership and mask do not match, or if either half of a trial has fewer than 2
    members or fewer than 2 nonmembers.
    """
    shape = (membership.trials, membership.targets)
    found = (features.trials, features.targets)
    require(found == shape, f"features are of {found} trials and targets: accepted is {shape}, those of the membership")
    flags = np.asarray(known)
    fits = flags.shape == shape and flags.dtype == np.bool_
    require(fits, f"known targets are {flags.dtype} of shape {flags.shape}: accepted is bool {shape}")
    for learnt, half in ((flags, "known"), (~flags, "other")):
        for side, name in ((membership.is_in, "members"), (~membership.is_in, "targets that are out")):
            count = (learnt & side).sum(axis=1)
            trial = int(np.argmin(count))
            message = f"trial {trial} has {count[trial]} {name} in its {half} half"
            require(int(count[trial]) >= _LEAST_LEARNT, f"{message}: accepted are 2 or more; take more targets")
    return flags
