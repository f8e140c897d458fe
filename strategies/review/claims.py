"""The privacy claim that an app makes by the parameters of its Flower DP wrappers and mods."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log, sqrt
from numbers import Real
from typing import Any

from flwr.clientapp.mod import LocalDpMod

from fl_audit.adjacency import Adjacency
from fl_audit.audits.black_box.claim import StatedClaim
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import GaussianRelease
from fl_audit.privacy.gaussian import gaussian_mu, gdp_epsilon
from fl_audit.privacy.guarantee_line import guarantee_line, guarantee_values
from fl_audit.privacy.names import MultiplierReference
from fl_audit.strategies.black_box.audited_system import Mod, Observer
from fl_audit.strategies.black_box.legacy_adapter import layers_of

_NOISE = ("noise_multiplier", "dp_noise_multiplier", "server_noise_multiplier")
_NORM = ("clipping_norm", "initial_clipping_norm", "clip_norm", "dp_clip_norm", "l2_norm_clip", "max_grad_norm")
_WORDS_OF_PRIVACY = frozenset({"noise", "epsilon", "dp", "privacy", "private"})
_LEAST_CLAIM = 1e-3
_COUNT = ("num_sampled_clients", "cohort_size", "clients_per_round")


@dataclass(frozen=True)
class StatedAppClaim:
    """The privacy claim of an app, and the place in the app from which it was read."""

    claim: StatedClaim | None  # the claim for the rounds of a trial; None if nothing is claimed
    source: str  # description of the place from which the claim was read
    norm: float = 1.0  # the clipping norm that the claim refers to
    observer: Observer = Observer.CLIENT  # position of the adversary
    clients: int | None = None  # number of clients per round that the noise is calibrated for; None if unknown
    is_of_reviewer: bool = False  # whether the claim is the reviewer's and not the app's
    # The Gaussian-DP parameter of the noise in one round, if the claim states an epsilon. If the reviewer states it,
    # `mu` is that of the noise in the app's own configuration, and None if there is none.
    mu: float | None = None
    # Noise settings that could not be read. If there are any, a missing claim does not mean that nothing is claimed.
    unseen: tuple[str, ...] = ()


def stated_by(
    strategy: object, mods: Sequence[Mod], adjacency: Adjacency | None, rounds: int, delta: float = 1e-5
) -> StatedAppClaim:
    """Return the claim of a strategy and its client mods.

    A noise multiplier with a clipping norm is read as Gaussian noise on the sum of the updates, in which each client
    has a norm of at most the clipping norm, once a round. For Flower's adaptive wrappers, the noised count of clipped
    clients is composed with it (Andrew et al. 2021, arXiv 1905.03871, Theorem 1). `LocalDpMod` adds noise with standard
    deviation sensitivity * sqrt(2 ln(1.25 / delta)) / epsilon (Dwork and Roth 2014, Theorem A.1), so that a message is
    mu-GDP with mu = epsilon / sqrt(2 ln(1.25 / delta)).

    Parameters
    ----------
    strategy
        The strategy with all its wrappers.
    mods
        The client mods of the app.
    adjacency
        The relation between neighbours; None for the relation that the mechanism itself uses.
    rounds
        Number of rounds of a trial.
    delta
        Delta of the claim, above 0 and below 1, unless the wrapper's accountant or the mod has its own.
    """
    for mod in mods:
        if isinstance(mod, LocalDpMod):
            source = f"LocalDpMod of the client app, per message: clipping_norm = {mod.clipping_norm:g}"
            if not (0 < mod.epsilon < 100 and 0 < mod.delta < 1):
                said = f"{source}; epsilon {mod.epsilon:g} at delta {mod.delta:g} is nothing to refute"
                return StatedAppClaim(None, said, mod.clipping_norm, Observer.SERVER)
            claim = StatedClaim(adjacency or Adjacency.REPLACE_CLIENT, epsilon=mod.epsilon, delta=mod.delta)
            mu = mod.epsilon / sqrt(2 * log(1.25 / mod.delta))
            return StatedAppClaim(claim, source, mod.clipping_norm, Observer.SERVER, mu=mu)
    unseen = list[str]()
    for layer in layers_of(strategy):
        unseen += _unread(layer)
        noise, norm, count = (_number(layer, names) for names in (_NOISE, _NORM, _COUNT))
        if noise is not None and norm is None:
            unseen.append(f"{type(layer).__name__} names {noise[0]} = {noise[1]:g}, and no clipping norm beside it")
        if noise is None or norm is None:
            continue
        multiplier = noise[1]
        bits = _number(layer, ("clipped_count_stddev",))
        if bits is not None:
            multiplier = (multiplier**-2 + (2 * bits[1]) ** -2) ** -0.5
        # Since 1.34 Flower's wrappers may have an accountant, which says at which delta and between which neighbours.
        own = getattr(vars(layer).get("accountant"), "config", None)
        is_replaced = "replace" in str(getattr(own, "neighboring_relation", "")).lower()
        relation = adjacency or (Adjacency.REPLACE_CLIENT if is_replaced else Adjacency.ADD_REMOVE_CLIENT)
        delta = getattr(own, "target_delta", delta)
        # An accountant for replacement takes the multiplier relative to the sensitivity. Otherwise it is relative to
        # the clipping norm, and a reviewer who asks about replacement asks what the same noise guarantees under it.
        over = MultiplierReference.SENSITIVITY if is_replaced else MultiplierReference.CLIPPING_NORM
        claim = StatedClaim(relation, delta=delta, noise_multiplier=multiplier, rounds=rounds, noise_over=over)
        source = f"{type(layer).__name__}: {noise[0]} = {noise[1]:g}, {norm[0]} = {norm[1]:g}"
        source += f", {count[0]} = {count[1]:g}" if count else ""
        if own is not None:
            source += f"; of its accountant: target_delta = {delta:g}, max_epsilon = {own.max_epsilon}"
        return StatedAppClaim(claim, source, norm[1], clients=int(count[1]) if count else None)
    said = "no noise is named by the strategy, its wrappers or the modifiers of its clients"
    return StatedAppClaim(None, "; ".join(unseen) or said, unseen=tuple(unseen))


def named_in(config: Mapping[str, object]) -> str:
    """Return a phrase that lists the privacy settings of a run configuration; empty if it has none.

    Parameters
    ----------
    config
        The run configuration, flattened.
    """
    named = [f"{name} = {value}" for name, value in config.items() if _is_of_privacy(name) and is_on(value)]
    said = f"the app's configuration names {', '.join(named)}, which was seen in nothing that was played"
    return said if named else ""


def _is_of_privacy(name: str) -> bool:
    return bool(_WORDS_OF_PRIVACY & set(re.split(r"[^a-z]+", name.lower())))


def is_on(value: object) -> bool:
    """Return whether the value of a privacy setting, of any type, switches privacy on."""
    # A smaller epsilon belongs to an optimizer such as Adam, where it prevents a division by 0.
    if isinstance(value, (bool, int, float)):
        return value > _LEAST_CLAIM
    return str(value).strip().lower() not in ("", "none", "no", "off", "false")


def epsilon_words(stated: StatedAppClaim, rounds: int) -> str:
    """Return a phrase with a claim's epsilon in one round and over all rounds; `none` if nothing is claimed.

    Parameters
    ----------
    stated
        The claim of the app for a trial.
    rounds
        Number of rounds of the app.
    """
    claim = stated.claim
    if claim is None:
        return "none"
    mu = stated.mu if claim.noise_multiplier is None else gaussian_mu(claim.noise_multiplier, 1)
    if mu is None:
        return claim.words
    whole = guarantee_line(_values_of_mu(claim, mu, rounds))
    if claim.noise_multiplier is None:
        noise = "the noise that the app names" if stated.is_of_reviewer else "the same noise"
        return f"{claim.words}; over all {rounds} {noise} comes to {whole}"
    return (
        f"epsilon {gdp_epsilon(claim.delta, mu):.2f} in one round, and over all {rounds} {whole} (noise multiplier "
        f"{claim.noise_multiplier:.3g} over the sensitivity, {claim.neighbours.sensitivity_words}; sampling not "
        "counted)"
    )


def guarantee_of_stated(stated: StatedAppClaim, rounds: int) -> dict[str, Any] | None:
    """Return the guarantee over all rounds as JSON values; None where no noise is named, from which it would follow.

    Parameters
    ----------
    stated
        The claim of the app for a trial.
    rounds
        Number of rounds of the app.
    """
    claim = stated.claim
    if claim is None:
        return None
    mu = stated.mu if claim.noise_multiplier is None else gaussian_mu(claim.noise_multiplier, 1)
    return None if mu is None else _values_of_mu(claim, mu, rounds)


def _values_of_mu(claim: StatedClaim, mu: float, rounds: int) -> dict[str, Any]:
    """Return the values of the line of Gaussian releases that are mu-GDP each."""
    whole = Claim(claim.neighbours, (GaussianRelease(mu, 1.0, max(rounds, 1)),), claim.delta)
    return guarantee_values(whole.profile.epsilon(whole.delta), (whole,))


def training_doubt(stated: StatedAppClaim, rounds: int, played: int) -> str:
    """Return why trials of few rounds do not support a reviewer's epsilon for the whole training; empty if they do.

    Parameters
    ----------
    stated
        The claim of the app for a trial.
    rounds
        Number of rounds of the app.
    played
        Number of rounds of a trial.
    """
    claim = stated.claim
    if claim is None or claim.epsilon is None or not stated.is_of_reviewer:
        return ""
    if stated.mu is None:
        tried = f"the claim was tried for {played} of {rounds} rounds, and nothing is known of the noise of the others."
        return tried if played < rounds else ""
    whole = gdp_epsilon(claim.delta, stated.mu * sqrt(max(rounds, 1)))
    named = f"the noise that the app names comes to epsilon {whole:.2f} over its {rounds} rounds"
    return f"{named}, and {claim.epsilon:g} is claimed." if whole > claim.epsilon else ""


def _number(layer: object, names: Sequence[str]) -> tuple[str, float] | None:
    """Return name and value of the first of the named attributes that is a number above 0; None if there is none."""
    for name in names:
        value = _read(_held(layer, name))
        if value is not None and isfinite(value) and value > 0:
            return name, value
    return None


def _held(layer: object, name: str) -> object:
    """Return an attribute of an object or its class, None if there is none, and the error if it cannot be read."""
    try:
        return getattr(layer, name, None)
    except Exception as error:  # an app's property may raise any exception
        return error


def _read(value: object) -> float | None:
    """Return a number of any library, such as a tensor with one value, as a float; None if it is no number."""
    if isinstance(value, Real):
        return None if isinstance(value, bool) else float(value)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return _read(value.item())
    return None


def _unread(layer: object) -> Iterator[str]:
    """Yield a phrase for each noise setting of a strategy whose value cannot be read as a number."""
    for name in _NOISE:
        value = _held(layer, name)
        number = _read(value)
        if value is not None and value is not False and (number is None or not isfinite(number)):
            yield f"{name} of {type(layer).__name__} could not be read (it is {str(value)[:40]!r}, no number)"
