"""Section [privacy]: the claim, which is a privacy target with adjacency, delta, noise and clipping."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from fl_audit.adjacency import Adjacency
from fl_audit.mechanisms.noises.registry import names_of_noises
from fl_audit.privacy import defaults
from fl_audit.privacy.accounting_enums import Accountant, MultiplierReference, SensitivityKind
from fl_audit.privacy.targets import DETAILS, TARGETS
from fl_audit.runs.config.config_section import ConfigSection
from fl_audit.runs.config.setting_types import Choice, Count, NamesInSchema, Positive, Share, Size
from fl_audit.words import name_list

PRIVACY_TARGETS = tuple(TARGETS)
OF_PIXELATION = ("pixelation-pixels", "pixelation-block")
OF_RANDOMIZERS = ("record-epsilon", *OF_PIXELATION)
RANDOMIZER_KEYS = ("local-randomizer", *OF_RANDOMIZERS)
GUARANTEE_ONLY = (
    *PRIVACY_TARGETS,
    *DETAILS,
    *("noise-over", "accountant", "stop-at-epsilon", "clipping-norm", "sensitivity", "noise", "clipping"),
)
"""Settings that have no meaning without a claim."""


def _noise(value: str) -> str:
    if value not in names_of_noises():
        raise PydanticCustomError("noise", "accepted are {accepted}", {"accepted": name_list(names_of_noises())})
    return value


class PrivacySection(ConfigSection):
    """Section [privacy]: the claim, which states exactly one privacy target, such as `epsilon` or `noise-multiplier`.

    `private = false` turns off clipping and noise, and nothing is guaranteed. With a `local-randomizer`, the owners of
    records randomize them before any training. This alone guarantees `record-epsilon` for every record, with or without
    a claim.
    """

    private: bool = True
    """Whether there is a claim; false clips nothing and adds no noise."""
    belief: Share | None = None
    """Target: the largest belief of an insider in the truth. Exactly one of the targets is given."""
    epsilon: Positive | None = None
    """Target: epsilon at `delta`, by the accountant."""
    advantage: Share | None = None
    """Target: the largest advantage of an insider over guessing, exact with every accountant."""
    reconstruction: Share | None = None
    """Target: the largest probability of identifying the right one of `candidates` equally likely records."""
    candidates: Annotated[int, Field(ge=2, le=10**9)] | None = None
    """Number of equally likely records, of `reconstruction`; left out, 1000."""
    noise_multiplier: Annotated[float, Field(ge=0.01, le=1e6)] | None = None
    """Target: the noise itself, over the quantity that `noise-over` names."""
    noise_over: Choice[MultiplierReference] | None = None
    """Quantity that `noise-multiplier` multiplies: the `sensitivity`, 2 x clipping norm where a unit is replaced, or
    the `clipping-norm`, as Opacus and Flower quote it; left out, the sensitivity.
    """
    delta: Share = defaults.DELTA
    """delta of the guarantee, and of Epsilon*."""
    prior: Share = defaults.PRIOR
    """The insider's prior belief in D."""
    accountant: Choice[Accountant] | None = defaults.ACCOUNTANT
    """Accountant of the claim; left out, the exact one: `gdp` without sampling, `pld` with it."""
    stop_at_epsilon: Size | None = None
    """Epsilon at `delta` before which training ends: the round that would exceed it is not made; left out, none is."""
    clipping_norm: Size = 3.0
    """Largest norm of a contribution, L2 with Gaussian noise and else L1; with adaptive clipping, that of the first
    round.
    """
    sensitivity: Choice[SensitivityKind] = SensitivityKind.GLOBAL
    """Scale of the noise: `global` is a private release, `local` the audit device of Bernau et al. 2021."""
    adjacency: Choice[Adjacency] = Adjacency.REPLACE_RECORD
    """Relation of neighbours: it must be named with a claim, and may be left out with private = false."""
    noise: Annotated[str, AfterValidator(_noise), NamesInSchema(names_of_noises)] = "central"
    """Party that adds the noise, and whether rounds share it; left out with `dp-sgd-clients`, `inside-training`."""
    clipping: Literal["fixed", "adaptive"] = "fixed"
    """Whether the clipping norm is fixed, or follows the median length of updates (Andrew et al. 2021)."""
    local_randomizer: Literal["randomised-response", "randomised-edges", "pixelation"] | None = None
    """Randomisation of records by their owners before any training; left out, none."""
    record_epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Epsilon of the randomizer: of one bit, of one pair of nodes, or of `pixelation-pixels` changed pixels."""
    pixelation_pixels: Count | None = None
    """Pixels in which neighbouring images may differ (m), of `pixelation`."""
    pixelation_block: Count | None = None
    """Side in pixels of the blocks that are averaged (b), of `pixelation`; left out, 1."""

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        if self.local_randomizer is None and (idle := self.given_keys(OF_RANDOMIZERS)):
            raise ValueError(f"{self.named(idle)} needs a randomizer, and local-randomizer is left out")
        needed = ["record-epsilon"] if self.local_randomizer is not None else []
        if self.local_randomizer == "pixelation":
            needed += ["pixelation-pixels"]
        elif idle := self.given_keys(OF_PIXELATION):
            raise ValueError(
                f"{self.named(idle)} needs local-randomizer = pixelation, and local-randomizer is "
                f"{self.local_randomizer}"
            )
        if missing := [name for name in needed if name not in self.given_keys(needed)]:
            raise ValueError(f"local-randomizer = {self.local_randomizer} needs {missing[0]}, which is left out")
        if self.local_randomizer == "pixelation" and self.record_epsilon == 0:
            raise ValueError("record-epsilon = 0 with local-randomizer = pixelation: accepted are positive numbers")
        return self

    @model_validator(mode="after")
    def _exactly_one_target(self) -> Self:
        if not self.private:
            if idle := [name for name in GUARANTEE_ONLY if name.replace("-", "_") in self.model_fields_set]:
                keys = "that key" if len(idle) == 1 else "those keys"
                problem = f"given together with private = false, which guarantees nothing: leave {keys} out, or set"
                raise ValueError(f"{self.named(idle)} {problem} private = true")
            return self
        targets_given = self.given_keys(PRIVACY_TARGETS)
        if len(targets_given) != 1:
            accepted = name_list(PRIVACY_TARGETS, "or")
            raise ValueError(f"{self.named(targets_given) or 'none'} given: accepted is exactly one of {accepted}")
        for detail in self.given_keys(tuple(DETAILS)):
            if DETAILS[detail] not in targets_given:
                raise ValueError(f"{self.named([detail])} needs {DETAILS[detail]}, which is left out")
        if self.sensitivity is SensitivityKind.LOCAL and targets_given[0] in DETAILS.values():
            raise ValueError(
                f"{targets_given[0]} with sensitivity = local, noise for one pair only: accepted is global"
            )
        if self.noise_over is not None and self.noise_multiplier is None:
            raise ValueError(f"noise-over = {self.noise_over} needs noise-multiplier, which is left out")
        if self.noise_over is MultiplierReference.CLIPPING_NORM and self.sensitivity is SensitivityKind.LOCAL:
            raise ValueError(
                "noise-over = clipping-norm with sensitivity = local, noise over the difference of one "
                "pair: accepted is sensitivity"
            )
        if "adjacency" not in self.model_fields_set:
            kinds = name_list(Adjacency, "or")
            raise ValueError(f"adjacency is left out: a guarantee names how neighbours differ, one of {kinds}")
        return self
