"""Privacy in an app's configuration: settings that switch it on, and numbers that are stronger than those in use."""

import re
from collections.abc import Mapping
from math import isfinite, sqrt

from fl_audit.app_audits.review.claims import StatedAppClaim
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.words import plural

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")  # the places in "noiseMultiplier" at which a word begins
_WORDS_OF_PRIVACY = frozenset({"noise", "epsilon", "dp", "privacy", "private"})
_LEAST_CLAIM = 1e-3  # largest number that switches no privacy on
_OF_OPTIMIZERS = frozenset({"adam", "adagrad", "optimizer", "optim", "yogi", "greedy"})


def named_in(config: Mapping[str, object]) -> str:
    """Return a phrase with the privacy settings that a run configuration, keyed by name, switches on; "" if none."""
    settings = [f"{name} = {value}" for name, value in config.items() if _is_of_privacy(name) and is_on(value)]
    text = f"the app's configuration names {', '.join(settings)}, which was seen in nothing that was played"
    return text if settings else ""


def _is_of_privacy(name: str) -> bool:
    return bool(_WORDS_OF_PRIVACY & set(re.split(r"[^a-z]+", name.lower())))


def is_on(value: object) -> bool:
    """Return whether the value of a privacy setting switches privacy on.

    A number switches it on if it is above 0.001. Any other value switches it on, unless it is empty or one of the words
    none, no, off and false.
    """
    # A smaller epsilon belongs to an optimizer such as Adam, where it prevents a division by 0.
    if isinstance(value, (bool, int, float)):
        return value > _LEAST_CLAIM
    return str(value).strip().lower() not in ("", "none", "no", "off", "false")


def weaker_than_configured(stated: StatedAppClaim, config: Mapping[str, object], rounds: int) -> tuple[str, ...]:
    """Return a phrase for each number in an app's configuration that claims more privacy than the strategy has.

    Compared are noise multipliers, clipping norms and epsilons. An epsilon is compared with that of the strategy's
    noise over all rounds, or with that of `LocalDpMod`.
    """
    weaker = []
    for name, value in config.items():
        number = _number(value)
        if number is None or not is_on(number):
            continue
        words = frozenset(re.split(r"[^a-z0-9]+", _CAMEL.sub("-", name).lower()))
        if used := _weaker(stated, words, number, rounds):
            weaker.append(f"the configuration names {name} {value}; {used}")
    return tuple(weaker)


def _number(value: object) -> float | None:
    """Return a number, or a text that is one, as a float; None for other values."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return float(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and isfinite(value) else None  # type: ignore[arg-type]


def _weaker(stated: StatedAppClaim, words: frozenset[str], number: float, rounds: int) -> str:
    """Return what the app uses if it is weaker than a configured number, otherwise ""; `words` are of its name."""
    if {"noise", "multiplier"} <= words and stated.noise is not None:
        return f"the strategy uses {stated.noise:g}" if _is_below(stated.noise, number) else ""
    if words & {"clip", "clipping"} and "norm" in words and stated.clip is not None:
        return f"the app clips to {stated.clip:g}" if _is_below(number, stated.clip) else ""
    if "epsilon" not in words or words & _OF_OPTIMIZERS:
        return ""
    if stated.epsilon is not None:
        return f"LocalDpMod uses {stated.epsilon:g}" if _is_below(number, stated.epsilon) else ""
    # The claim of a reviewer says nothing of the app's own noise.
    mu = stated.mu if stated.is_of_reviewer else stated.mu_of_round
    if mu is None or stated.claim is None:
        return ""
    whole = gdp_epsilon(stated.claim.delta, mu * sqrt(max(rounds, 1)))
    over = f"the strategy's noise comes to {whole:.4g} over {plural(rounds, 'round')} (sampling not counted)"
    return over if _is_below(number, whole) else ""


def _is_below(value: float, reference: float) -> bool:
    """Return whether a number is smaller than another by more than rounding, such as that to float32."""
    return value < reference * (1 - 1e-3)
