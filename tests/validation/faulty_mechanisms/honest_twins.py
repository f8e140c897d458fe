"""The type of a faulty mechanism of the catalogue, and the honest mechanisms for which the same claims hold."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg, Strategy

from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.black_box.audited_system import AuditedSystem
from fl_audit.app_audits.black_box.scenarios import kinds_of
from fl_audit.app_audits.black_box.trial_messages import Observer
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.errors import require
from fl_audit.privacy.accounting import PrivacyProfile
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.gaussian import combined_multiplier, gdp_epsilon
from tests.validation.faulty_mechanisms import clients, parts
from tests.validation.faulty_mechanisms.mechanism import Mechanism

NO_INCIDENT = "no published incident known to us"


@dataclass(frozen=True)
class HonestMechanism:
    """A mechanism that keeps its claim."""

    name: str  # by which it is called
    claim: StatedClaim  # its claim
    system: AuditedSystem  # the mechanism
    # The scenarios that the claim is about, on every stage; None for all of them.
    covered: tuple[str, ...] | None = None

    @property
    def trials(self) -> tuple[str, ...]:
        """Names of the scenarios that are played."""
        kinds = kinds_of(self.system, self.claim)
        return tuple(kind.name for kind in kinds if self.covered is None or kind.plain_name in self.covered)


@dataclass(frozen=True)
class FaultyMechanism:
    """A mechanism that breaks its claim.

    `InputError` is raised if a sentence is empty.
    """

    name: str  # by which it is called
    twin: HonestMechanism  # the honest mechanism that it takes itself for; both have one claim
    system: AuditedSystem  # the real mechanism
    wrong: str  # the fault, in a sentence
    source: str  # the published incident, or the publication that describes the mistake
    fix: str  # the fix for its author
    # Whether low bits alone tell: it is caught where they do, and its claim about real numbers may hold.
    is_rounding: bool = False

    def __post_init__(self) -> None:
        for field in ("wrong", "source", "fix"):
            require(bool(getattr(self, field).strip()), f"{field} of {self.name} is empty: accepted is a sentence")

    @property
    def claim(self) -> StatedClaim:
        """The claim of the honest twin."""
        return self.twin.claim

    @property
    def trials(self) -> tuple[str, ...]:
        """Names of the scenarios that are played."""
        return replace(self.twin, system=self.system).trials


DELTA = 0.01
"""Delta of claims with an epsilon: one over a hundred clients or records."""
CLIENTS = 4
SAMPLING_RATE = 0.25
POISSON_ROUNDS = 4
LONG = 4
SHORT = 2
BIT_MULTIPLIER = 2.0
RATE = 0.5
"""Learning rate of an adaptive clipping norm."""


def _of_rounds(rounds: int) -> StatedClaim:
    """Return the claim that all rounds together reveal no more of a client than one Gaussian release with mu = 1.

    The client is added or removed, which moves such a release by one standard deviation of its noise.
    """
    return StatedClaim(Adjacency.ADD_REMOVE_CLIENT, noise_multiplier=math.sqrt(rounds), rounds=rounds)


def system(mechanism: Mechanism, like: AuditedSystem | None = None) -> AuditedSystem:
    """Return a mechanism as a system for trials, with the clients of another system.

    Without another system, clients are plain ones.
    """
    return replace(like or AuditedSystem(mechanism.strategy, clients=CLIENTS), strategy=mechanism.strategy)


def flowers_fixed(inner: type[FedAvg], **settings: object) -> Callable[[int], Strategy]:
    """Return a factory of Flower's wrapper with clipping on the server around a strategy: noise 1 at norm 1."""

    def made(clients: int) -> Strategy:
        strategy = inner(fraction_evaluate=0.0, **settings)  # type: ignore[arg-type]
        return DifferentialPrivacyServerSideFixedClipping(strategy, 1.0, 1.0, clients)

    return made


ONE_ROUND = Mechanism(multiplier=1.0)
"""The base of most faulty mechanisms: one round, and noise as large as the clipping norm."""
TWO_ROUNDS = Mechanism(multiplier=math.sqrt(SHORT))
ADAPTIVE = Mechanism(1.0, next_norm=parts.towards_median(RATE, BIT_MULTIPLIER), said=parts.norm_said)
SUMMING = Mechanism(0.0, clip=parts.untouched, weights=parts.of_all_or_none)
"""The server for clients that clip and add noise themselves."""
OF_RECORDS = Mechanism(1.0, norm=1 / clients.EXPECTED_RECORDS, clip=parts.untouched)
SAMPLED = Mechanism(1.0, clip=parts.untouched)
SHARE = 1 / math.sqrt(CLIENTS - 1)
"""Noise of one client: an insider subtracts its own, and the others' together has deviation 1."""
MESSAGE_DEVIATION = 2.0
"""Noise on one message for mu = 1: a replaced client moves its update by twice the norm."""

CENTRAL = HonestMechanism("one round", _of_rounds(1), system(ONE_ROUND))
REPLACED = HonestMechanism(
    "one round, replaced clients",
    StatedClaim(Adjacency.REPLACE_CLIENT, noise_multiplier=1.0),
    system(ONE_ROUND.with_(multiplier=2.0)),
)
NORMALISED = HonestMechanism("normalised updates", _of_rounds(1), system(ONE_ROUND.with_(clip=parts.normalised)))
"""Every update has the length of the norm, and an absent client contributes exactly zero."""
SHORT_RUN = HonestMechanism("two rounds", _of_rounds(SHORT), system(TWO_ROUNDS))
LONG_RUN = HonestMechanism("four rounds", _of_rounds(LONG), system(ONE_ROUND.with_(multiplier=math.sqrt(LONG))))
ADAPTIVE_CLIPPING = HonestMechanism(
    "adaptive clipping",
    StatedClaim(Adjacency.ADD_REMOVE_CLIENT, noise_multiplier=combined_multiplier(1.0, BIT_MULTIPLIER), rounds=SHORT),
    system(ADAPTIVE),
)
DISTRIBUTED = HonestMechanism(
    "noise of the clients", _of_rounds(1), replace(system(SUMMING), mods=(clients.noising(1.0, SHARE),))
)
RECORDS = HonestMechanism(
    "records",
    StatedClaim(Adjacency.ADD_REMOVE_RECORD, noise_multiplier=1.0),
    replace(system(OF_RECORDS), local=clients.mean_of_expected),
)
_SAMPLED_ROUNDS = PrivacyProfile(gaussian_rounds(1.0, POISSON_ROUNDS, SAMPLING_RATE), Adjacency.ADD_REMOVE_RECORD)
POISSON = HonestMechanism(
    "sampled records",
    StatedClaim(
        Adjacency.ADD_REMOVE_RECORD, epsilon=_SAMPLED_ROUNDS.epsilon(DELTA), delta=DELTA, rounds=POISSON_ROUNDS
    ),
    replace(system(SAMPLED), local=clients.poisson_batches(SAMPLING_RATE)),
)
LOCAL = HonestMechanism(
    "local privacy",
    StatedClaim(Adjacency.REPLACE_CLIENT, epsilon=gdp_epsilon(DELTA, 1.0), delta=DELTA, rounds=LONG),
    replace(
        system(SUMMING), mods=(clients.noising(1.0, MESSAGE_DEVIATION * math.sqrt(LONG)),), observer=Observer.SERVER
    ),
)

FLOWERS = HonestMechanism(
    "Flower's fixed clipping",
    _of_rounds(1),
    AuditedSystem(flowers_fixed(FedAvg), clients=CLIENTS),
    covered=("removed", "huge", "huge in every tensor", "tiny"),
)
"""The use that Flower's documentation covers: updates of ordinary floating-point tensors, equal weights."""

HONEST = (
    FLOWERS,
    CENTRAL,
    REPLACED,
    NORMALISED,
    SHORT_RUN,
    LONG_RUN,
    ADAPTIVE_CLIPPING,
    DISTRIBUTED,
    RECORDS,
    POISSON,
    LOCAL,
)
"""All honest mechanisms."""
