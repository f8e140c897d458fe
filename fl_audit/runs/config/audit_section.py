"""Section [audit]: the kind of audit, the adversary, the difference between D and D', and the number of trials.

Epsilon* is an estimate of the privacy risk of a released model.
"""

from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, Strict, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from fl_audit.audits.membership.attacks.registry import ATTACKS, attacks_named, names_of_attacks
from fl_audit.audits.registry import AUDITS, audit_named
from fl_audit.data.data_setting_enums import RANKED, Dissimilarity, NeighbourChoice
from fl_audit.mechanisms.threat_model import Adversary, InsiderView, TargetsParticipation
from fl_audit.released_model.star_methods import EpsilonStarLocation
from fl_audit.runs.config.config_section import ConfigSection
from fl_audit.runs.config.setting_types import Choice, Count, OneOr, OwnName, RegisteredOrOwn
from fl_audit.words import name_list


def _neighbour(value: Any) -> NeighbourChoice | int:
    if isinstance(value, str) and value in list(NeighbourChoice):
        return NeighbourChoice(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10**9:
        return value
    accepted = f"accepted are {name_list(NeighbourChoice)}, and the index of a record of D, from 0"
    raise PydanticCustomError("neighbour", "{accepted}", {"accepted": accepted})


def _kind(value: str) -> str:
    if value not in AUDITS:
        raise PydanticCustomError("kind", "accepted are {accepted}", {"accepted": name_list(AUDITS)})
    return value


FEWEST_SHADOWS = 24
"""Number of trials with which a target has two others on each side, in or out, except for one in 28,000."""

FEWEST_KNOWN = 60
"""Number of targets, half of which hold fewer than two members, or fewer than two others, once in 17 million times."""

_Kind = Annotated[str, AfterValidator(_kind), WithJsonSchema({"enum": [*AUDITS], "type": "string"})]


class AuditSection(ConfigSection):
    """Section [audit]: the kind of audit, the adversary, the difference between D and D', and the number of trials.

    A trial is one repetition of the training, with a secret of its own.

    In a membership audit each of the `targets` is in with probability 1/2, anew in every trial, and the models of the
    other trials are the shadow models of `attacks`. In a reconstruction audit the insider knows all records but the
    right candidate, and names one. Canaries are clients that send known updates in secretly drawn rounds.

    `insider = false` runs the trials without an insider. Membership attacks, accuracy and Epsilon* (the privacy risk of
    a released model) are still measured.
    """

    trials: Count = 200
    """The number of trials; 1 is an ordinary federated run."""
    kind: _Kind = "identifiability"
    """The kind of audit: one record or client is in question (`identifiability`), many `targets` are in or out by
    chance (`membership`), exactly one of many `candidates` is in (`reconstruction`), or `canaries` take part in one
    training that is the audit (`canaries`).
    """
    candidates: Annotated[int, Field(ge=2, le=10**9)] | None = None
    """Units of which one is in, in the reconstruction audit; left out, 200, or all there are."""
    targets: Annotated[int, Field(ge=2, le=10**9)] | None = None
    """Units that are in or out in the membership audit; left out, 200, or all there are."""
    canaries: Count | None = None
    """Number of canaries in the canary audit, each in by the toss of a coin in every round; left out, 10."""
    attacks: Annotated[tuple[Annotated[str, RegisteredOrOwn(ATTACKS, "attack")], ...], Strict(False)] | None = None
    """Attacks of the membership audit, or `package.module:name`; left out, those that score by final models alone."""
    attribute: str | Annotated[int, Field(ge=0, le=10**9)] | None = None
    """Column that attack `attribute` guesses, by name or number from 0; left out, the most even one of two values. In
    the reconstruction audit, the column of the differing record whose values are the candidates; left out, none."""
    reconstruct_samples: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Number of records, or of clients with so many, whose reconstruction the report shows; left out, none."""
    insider: bool = True
    """Whether there is an insider; left out, not with randomised records, nor where its log-odds are unknown."""
    participation: Choice[TargetsParticipation] = TargetsParticipation.SECRET
    """Whether the insider sees in which rounds the target takes part, where rounds are sampled."""
    colluders: Annotated[int, Field(ge=0, le=10**9)] = 0
    """Clients who share their noise with the insider, where clients add the noise."""
    adversary: Choice[Adversary] = Adversary.CLIENT
    """Position of the adversary: a client, or the honest but curious server, which sees every single contribution."""
    view: Choice[InsiderView] = InsiderView.UPDATE
    """View of the insider in a round: the noisy sum (`update`), or only the model after it; honest clients receive only
    models.
    """
    neighbour: Annotated[NeighbourChoice | int, BeforeValidator(_neighbour)] = NeighbourChoice.MOST_DISSIMILAR
    """Difference of D and D': a choice by dissimilarity, a record crafted for the audit, or an index of D from 0."""
    neighbour_rank: Count | None = None
    """Rank among the most or least dissimilar neighbours; left out, 1."""
    dissimilarity: OneOr[Dissimilarity] = Dissimilarity.EUCLIDEAN
    """Measure of the distance of two records, or `package.module:name` of your own."""
    sections: Annotated[tuple[OwnName, ...], Strict(False)] = ()
    """Sections of your own at the end of the report's appendix, each `package.module:name`."""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    """Confidence of intervals and bounds."""
    epsilon_star: bool = True
    """Whether the risk of every evaluated release is measured as Epsilon*."""
    epsilon_star_losses: Choice[EpsilonStarLocation] = EpsilonStarLocation.POOLED
    """Place of members' losses when Epsilon* is computed: pooled in one place, or with their owners."""
    membership: bool = True
    """Whether the loss threshold attack of Yeom et al. 2018 is played on the final models."""
    evaluate_every: Count = 1
    """Accuracy and Epsilon* are evaluated at every release of this number, and at the last."""

    @model_validator(mode="after")
    def _of_membership(self) -> Self:
        own_settings = audit_named(self.kind).own_settings
        for kind, audit in AUDITS.items():
            if idle := self.given_keys([name for name in audit.own_settings if name not in own_settings]):
                raise ValueError(f"{self.named(idle)} needs kind = {kind}, and kind is {self.kind}")
        attacks = attacks_named(self.attacks)
        shadowed = [attack.name for attack in attacks if attack.learns_from_shadows]
        named_values = audit_named(self.kind).column_of_candidates(self.attribute) is not None
        if named_values and self.candidates is not None:
            raise ValueError(f"candidates = {self.candidates} with an attribute, whose values are the candidates")
        guesses_values = any(attack.guesses_values for attack in attacks)
        if self.attribute is not None and not named_values and not guesses_values:
            guessing = name_list(names_of_attacks(lambda attack: attack.guesses_values))
            problem = f"and they are {name_list(self.attacks or ()) or 'none'}"
            raise ValueError(f"{self.named(('attribute',))} needs {guessing} among attacks, {problem}")
        if self.trials < FEWEST_SHADOWS and shadowed:
            too_few = f"trials = {self.trials} are too few to be shadow models of each other"
            raise ValueError(f"{too_few}: accepted with {name_list(shadowed)} are {FEWEST_SHADOWS} and more")
        learning = [attack.name for attack in attacks if attack.sees_gradients]
        if (self.targets or FEWEST_KNOWN) < FEWEST_KNOWN and learning:
            too_few = f"targets = {self.targets} are too few to learn from half of them"
            raise ValueError(f"{too_few}: accepted with {name_list(learning)} are {FEWEST_KNOWN} and more")
        return self

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        rank, ranked = self.neighbour_rank, " or ".join(RANKED)
        if rank is not None and self.neighbour not in RANKED:
            raise ValueError(f"neighbour-rank = {rank} needs neighbour = {ranked}, and neighbour is {self.neighbour}")
        if self.epsilon_star_losses is EpsilonStarLocation.FEDERATED and not self.epsilon_star:
            raise ValueError("epsilon-star-losses = federated needs epsilon-star = true")
        return self
