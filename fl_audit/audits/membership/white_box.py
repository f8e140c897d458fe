"""The white-box attack of Nasr et al. 2019: a network learns the membership of some targets and judges the others.

No shadow trials are needed. The attacker of a trial knows the membership of half of its targets, and never looks at
another trial. Cross-fitting over both halves gives each target a score from a network that did not learn its
membership. Functions raise `InputError` if numbers are out of range.
"""

from typing import assert_never

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import rankdata
from torch import Tensor

from fl_audit.array_types import Flags, Floats, Floats32
from fl_audit.audits.membership.white_box_features import WhiteBoxFeatures
from fl_audit.audits.membership.white_box_networks import AttackNetworks, WhiteBoxFeatureGroup, WhiteBoxSettings
from fl_audit.errors import require
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.learning.pass_budgets import slices
from fl_audit.value_checks import require_number

_LEAST_LOSS = 1e-16  # smallest loss that is used, about the rounding error of float64
_LEAST_SPREAD = 1e-30
"""Smallest standard deviation by which inputs are divided; inputs with a smaller one are only centred."""
_FARTHEST = 1e3  # inputs are clipped to this number of standard deviations


def _learnt_log_odds(features: WhiteBoxFeatures, is_in: Flags, learnt: Flags, settings: WhiteBoxSettings) -> Floats:
    """Return the log-odds of membership of all targets, (trials, targets), from one network for each trial.

    Each network is trained on the membership of the targets that `learnt` marks. The log-odds of these targets must not
    be used as scores of the attack.
    """
    # The targets that each network learns from, and their weights, which add up to 1, (networks, most). A network with
    # fewer examples than another is filled up with targets that it does not learn from, with weight 0.
    flags = torch.from_numpy(learnt)
    tensor = torch.argsort(flags.int(), dim=1, descending=True, stable=True)[:, : int(flags.sum(1).max())]
    weights = flags.gather(1, tensor).float()
    weights = weights / weights.sum(1, keepdim=True)
    tensors = _shown(features, settings, tensor, weights)
    examples = {name: _taken(values, tensor) for name, values in tensors.items()}
    answers = _taken(torch.from_numpy(is_in).float(), tensor)
    source = torch.Generator().manual_seed(settings.seed)
    networks = AttackNetworks.initial(settings, examples, source)
    networks.train(examples, answers, weights, source)
    with torch.no_grad():
        return np.asarray(networks.log_odds(tensors).double().numpy(), dtype=np.float64)


def _taken(values: Tensor, tensor: Tensor) -> Tensor:
    """Return the examples at the positions `tensor`, (networks, positions, ...)."""
    return values[torch.arange(len(values)).unsqueeze(1), tensor]


def _shown(
    features: WhiteBoxFeatures, settings: WhiteBoxSettings, tensor: Tensor, counted: Tensor
) -> dict[str, Tensor]:
    """Return the inputs of the networks for all targets, keyed by name, each (networks, targets, ...).

    The inputs are standardised by the training examples of each network alone. `tensor` holds the positions of these
    examples, and `counted` their weights.
    """

    def scaled(raw_values: Floats32 | Tensor, centred: bool = True) -> Tensor:
        """Return values standardised by the mean and standard deviation over a network's training examples.

        If not centred, they are only divided by the root mean square.
        """
        values = torch.as_tensor(raw_values)
        examples = _taken(values, tensor)
        weights = counted.reshape(*counted.shape, *[1] * (values.dim() - 2))
        mean = (weights * examples).sum(1, keepdim=True) if centred else torch.zeros_like(examples[:, :1])
        spread = (weights * (examples - mean).square()).sum(1, keepdim=True).sqrt()
        # Clipping keeps an example far from all training examples from overflowing.
        return ((values - mean) / torch.where(spread > _LEAST_SPREAD, spread, 1.0)).clamp_(-_FARTHEST, _FARTHEST)

    features_shown = {}
    for group in sorted(settings.parts):
        match WhiteBoxFeatureGroup(group):
            case WhiteBoxFeatureGroup.GRADIENT:
                # Because of the 1, scaling and shifting h does not change the linear maps of d (h, 1)'. (If the layer
                # has no bias, d is still known, as output minus label.) The signals are not centred: a shift would add
                # the activations.
                inputs = scaled(features.inputs)
                features_shown["inputs"] = torch.cat([inputs, torch.ones_like(inputs[..., :1])], -1)
                features_shown["signals"] = scaled(features.signals, centred=False)
            case WhiteBoxFeatureGroup.ACTIVATIONS:
                features_shown[group] = scaled(features.inputs).flatten(2)
            case WhiteBoxFeatureGroup.OUTPUT:
                features_shown[group] = scaled(features.log_probabilities).flatten(2)
            case WhiteBoxFeatureGroup.LOSS:
                losses = torch.from_numpy(features.losses)
                features_shown[group] = torch.cat([scaled(losses), scaled(_label_log_odds(losses))], -1)
            case WhiteBoxFeatureGroup.LABEL:
                one_hot = F.one_hot(torch.from_numpy(features.labels), features.log_probabilities.shape[-1]).float()
                features_shown[group] = one_hot.expand(features.trials, -1, -1)
            case _:
                assert_never(WhiteBoxFeatureGroup(group))
    return features_shown


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
    features: WhiteBoxFeatures, membership: TargetMembership, is_known: Flags, settings: WhiteBoxSettings | None = None
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

    Shapes: `is_known` (trials, targets).
    """
    settings = settings or WhiteBoxSettings()
    flags = _checked(features, membership, is_known)
    scores = np.empty(flags.shape)
    together = max(1, _SCALARS_AT_ONCE // _scalars_a_trial(features, settings))
    for rows in slices(features.trials, together):
        for learnt in (flags[rows], ~flags[rows]):
            log_odds = _learnt_log_odds(features.of_trials(rows), membership.is_in[rows], learnt, settings)
            for shares, values, learnt_values in zip(scores[rows], log_odds, learnt, strict=True):
                shares[~learnt_values] = (rankdata(values[~learnt_values]) - 0.5) / (~learnt_values).sum()
    return scores


def _scalars_a_trial(features: WhiteBoxFeatures, settings: WhiteBoxSettings) -> int:
    """Return the approximate number of scalars in the networks of one trial."""
    size = sum(values.shape[-1] for values in (features.signals, features.inputs, features.log_probabilities))
    return int(2 * features.targets * (size * features.releases + settings.filters * features.signals.shape[-1]))


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
