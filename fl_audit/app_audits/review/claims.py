"""The privacy claim that a Flower app makes by the parameters of its DP wrappers and mods."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, log, sqrt
from numbers import Real
from typing import Any

from flwr.clientapp.mod import LocalDpMod

from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.black_box.audited_system import Mod
from fl_audit.app_audits.black_box.legacy_adapter import layers_of
from fl_audit.app_audits.black_box.trial_messages import Observer
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_messages import claim_warning
from fl_audit.privacy.accounting_enums import MultiplierReference
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import GaussianRelease
from fl_audit.privacy.gaussian import gaussian_mu, gdp_epsilon
from fl_audit.privacy.guarantee_line import guarantee_line, guarantee_values
from fl_audit.report.guarantee_warnings import weak_claim_warning

_NOISE = ("noise_multiplier", "dp_noise_multiplier", "server_noise_multiplier")
_NORM = ("clipping_norm", "initial_clipping_norm", "clip_norm", "dp_clip_norm", "l2_norm_clip", "max_grad_norm")
_COUNT = ("num_sampled_clients", "cohort_size", "clients_per_round")


@dataclass(frozen=True)
class StatedAppClaim:
    """The privacy claim of an app, and the place in the app where it was found.

    A `StatedClaim` is about one trial and always states something. An app may claim nothing, its trials are shorter
    than its training, and its claim depends on the norm and the clients of its own wrapper.
    """

    claim: StatedClaim | None  # claim for the rounds of one trial; None if no claim was found
    source: str  # description of the place where the claim was found
    norm: float = 1.0  # clipping norm (L2) that the claim refers to
    observer: Observer = Observer.CLIENT  # the adversary: another client, or the server
    clients: int | None = None  # number of clients per round that the noise is calibrated for; None if unknown
    is_of_reviewer: bool = False  # whether the reviewer states the claim, instead of the app
    # Parameter mu of Gaussian DP for the noise in one round, if the claim is an epsilon. If the reviewer states the
    # epsilon, mu belongs to the noise in the app's configuration, and is None if there is no noise.
    mu: float | None = None
    # Numbers of the app's own wrapper or mod, even if the reviewer states the claim; None if it names none.
    noise: float | None = None  # noise multiplier, in the wrapper's own reading
    clip: float | None = None  # clipping norm (L2)
    epsilon: float | None = None  # epsilon of `LocalDpMod` for one message
    is_of_flower: bool = False  # whether the noise is added by an unchanged wrapper or mod of Flower
    # Descriptions of noise settings that could not be read. If there are any, the app may claim more than was found.
    unseen: tuple[str, ...] = ()

    @property
    def mu_of_round(self) -> float | None:
        """Parameter mu of Gaussian DP for one round of the claim; None if there is no claim or its noise is unknown."""
        if self.claim is None:
            return None
        multiplier = self.claim.noise_multiplier
        return self.mu if multiplier is None else gaussian_mu(multiplier, 1)


def stated_by(
    strategy: object, mods: Sequence[Mod], adjacency: Adjacency | None, rounds: int, delta: float = 1e-5
) -> StatedAppClaim:
    """Return the privacy claim that follows from the noise parameters of a strategy and its client mods.

    A noise multiplier with a clipping norm means one release per round: Gaussian noise on the sum of updates that are
    clipped to this norm. Flower's adaptive wrappers also release the noised count of clipped clients. The claim
    composes both releases (Andrew et al. 2021, arXiv 1905.03871, Theorem 1).

    `LocalDpMod` adds noise with standard deviation sensitivity * sqrt(2 ln(1.25 / delta)) / epsilon (Dwork and Roth
    2014, Theorem A.1). So a message is mu-GDP with mu = epsilon / sqrt(2 ln(1.25 / delta)).

    Shapes: `delta` (0, 1).
    """
    for mod in mods:
        if isinstance(mod, LocalDpMod):
            source = f"LocalDpMod of the client app, per message: clipping_norm = {mod.clipping_norm:g}"
            if not (0 < mod.epsilon < 100 and 0 < mod.delta < 1):
                text = f"{source}; epsilon {mod.epsilon:g} at delta {mod.delta:g} is nothing to refute"
                return StatedAppClaim(None, text, mod.clipping_norm, Observer.SERVER)
            claim = StatedClaim(adjacency or Adjacency.REPLACE_CLIENT, epsilon=mod.epsilon, delta=mod.delta)
            mu = mod.epsilon / sqrt(2 * log(1.25 / mod.delta))
            return StatedAppClaim(
                claim,
                source,
                mod.clipping_norm,
                Observer.SERVER,
                mu=mu,
                clip=mod.clipping_norm,
                epsilon=mod.epsilon,
                is_of_flower=_is_of_flower(mod),
            )
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
        accountant_config = getattr(vars(layer).get("accountant"), "config", None)
        is_replaced = "replace" in str(getattr(accountant_config, "neighboring_relation", "")).lower()
        relation = adjacency or (Adjacency.REPLACE_CLIENT if is_replaced else Adjacency.ADD_REMOVE_CLIENT)
        delta = getattr(accountant_config, "target_delta", delta)
        # An accountant for replacement takes the multiplier relative to the sensitivity. Otherwise it is relative to
        # the clipping norm, and a reviewer who asks about replacement asks what the same noise guarantees under it.
        over = MultiplierReference.SENSITIVITY if is_replaced else MultiplierReference.CLIPPING_NORM
        claim = StatedClaim(relation, delta=delta, noise_multiplier=multiplier, rounds=rounds, noise_over=over)
        source = f"{type(layer).__name__}: {noise[0]} = {noise[1]:g}, {norm[0]} = {norm[1]:g}"
        source += f", {count[0]} = {count[1]:g}" if count else ""
        if accountant_config is not None:
            source += f"; of its accountant: target_delta = {delta:g}, max_epsilon = {accountant_config.max_epsilon}"
        clients = int(count[1]) if count else None
        return StatedAppClaim(
            claim, source, norm[1], clients=clients, noise=noise[1], clip=norm[1], is_of_flower=_is_of_flower(layer)
        )
    text = "no noise is named by the strategy, its wrappers or the modifiers of its clients"
    return StatedAppClaim(None, "; ".join(unseen) or text, unseen=tuple(unseen))


def _is_of_flower(layer: object) -> bool:
    return type(layer).__module__.startswith("flwr.")


def epsilon_words(app_claim: StatedAppClaim, rounds: int) -> str:
    """Return a phrase with a claim's epsilon for one round and for all rounds; `none` if there is no claim."""
    claim = app_claim.claim
    if claim is None:
        return "none"
    mu = app_claim.mu_of_round
    if mu is None:
        return claim.words
    whole = guarantee_line(_values_of_mu(claim, mu, rounds))
    if claim.noise_multiplier is None:
        noise = "the noise that the app names" if app_claim.is_of_reviewer else "the same noise"
        return f"{claim.words}; over all {rounds} {noise} comes to {whole}"
    return (
        f"epsilon {gdp_epsilon(claim.delta, mu):.2f} in one round, and over all {rounds} {whole} (noise multiplier "
        f"{claim.noise_multiplier:.3g} over the sensitivity, {claim.neighbours.sensitivity_words}; sampling not "
        "counted)"
    )


def guarantee_of_stated(app_claim: StatedAppClaim, rounds: int) -> dict[str, Any] | None:
    """Return the guarantee that a claim's noise gives over all rounds of the training; None if the noise is unknown.

    The guarantee consists of JSON values by name.
    """
    claim = app_claim.claim
    mu = app_claim.mu_of_round
    return None if claim is None or mu is None else _values_of_mu(claim, mu, rounds)


def _values_of_mu(claim: StatedClaim, mu: float, rounds: int) -> dict[str, Any]:
    """Return the guarantee of `rounds` rounds, each mu-GDP, with the claim's adjacency and delta."""
    whole = Claim(claim.neighbours, (GaussianRelease(mu, 1.0, max(rounds, 1)),), claim.delta)
    return guarantee_values(whole.profile.epsilon(whole.delta), (whole,))


def stated_claim_warning(app_claim: StatedAppClaim, rounds: int) -> str | None:
    """Return a warning if the claim about the whole training excludes nothing that a person could object to, else None.

    An epsilon that the reviewer states is about the whole training.
    """
    claim = app_claim.claim
    mu = app_claim.mu_of_round
    if claim is None:
        return None
    if mu is None or (app_claim.is_of_reviewer and claim.epsilon is not None):
        return claim_warning(claim)
    epsilon = gdp_epsilon(claim.delta, mu * sqrt(max(rounds, 1)))
    return weak_claim_warning(epsilon, claim.delta, claim.neighbours)


def training_doubt(app_claim: StatedAppClaim, rounds: int, played: int) -> str:
    """Return a sentence on why the trials do not support the epsilon that a reviewer set; empty if there is no doubt.

    If the noise of the app is known, there is a doubt if this noise gives a larger epsilon over the whole training than
    the reviewer set. If the noise is unknown, there is a doubt if a trial has fewer rounds than the training.
    """
    claim = app_claim.claim
    if claim is None or claim.epsilon is None or not app_claim.is_of_reviewer:
        return ""
    if app_claim.mu is None:
        tried = f"the claim was tried for {played} of {rounds} rounds, and nothing is known of the noise of the others."
        return tried if played < rounds else ""
    whole = gdp_epsilon(claim.delta, app_claim.mu * sqrt(max(rounds, 1)))
    noise_text = f"the noise that the app names comes to epsilon {whole:.2f} over its {rounds} rounds"
    return f"{noise_text}, and {claim.epsilon:g} is claimed." if whole > claim.epsilon else ""


def _number(layer: object, names: Sequence[str]) -> tuple[str, float] | None:
    """Return name and value of the first attribute among `names` that is a finite number above 0; else None."""
    for name in names:
        value = _read(_held(layer, name))
        if value is not None and isfinite(value) and value > 0:
            return name, value
    return None


def _held(layer: object, name: str) -> object:
    """Return an attribute of a layer: None if it does not exist, and the raised exception if it cannot be read."""
    try:
        return getattr(layer, name, None)
    except Exception as error:  # an app's property may raise any exception
        return error


def _read(value: object) -> float | None:
    """Return a number, or the only number in a tensor or array, as a float; None for booleans and any other value."""
    if isinstance(value, Real):
        return None if isinstance(value, bool) else float(value)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return _read(value.item())
    return None


def _unread(layer: object) -> Iterator[str]:
    """Yield a phrase for each noise setting of an object whose value is not None or False, and no finite number."""
    for name in _NOISE:
        value = _held(layer, name)
        number = _read(value)
        if value is not None and value is not False and (number is None or not isfinite(number)):
            yield f"{name} of {type(layer).__name__} could not be read (it is {str(value)[:40]!r}, no number)"
