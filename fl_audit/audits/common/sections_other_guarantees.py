"""Report section on the noise that other privacy targets and numbers of rounds would need."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from fl_audit.errors import InputError
from fl_audit.federation.findings import Findings
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.calibration import noise_multiplier_for
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.guarantee import derive_guarantee
from fl_audit.privacy.targets import BeliefTarget
from fl_audit.report import mechanism_messages
from fl_audit.report.figure_style import BIT_STYLES, INK, SMALL_TEXT_SIZE, finish_axes
from fl_audit.report.report_elements import FindingFigure, ReportContents, Section, Table
from fl_audit.words import number_text, percent

# Belief bounds of the alternative guarantees.
BELIEFS = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class GuaranteeForBelief:
    """A guarantee with a given bound on the posterior belief in D, and the noise multiplier that achieves it."""

    belief: float  # bound on the posterior belief in D, which is exceeded with probability at most delta
    epsilon: float  # epsilon of the guarantee, at the delta of the run
    noise_multiplier: float  # noise multiplier that achieves the guarantee


@dataclass(frozen=True)
class AlternativeGuarantees:
    """Alternative guarantees for the claim of a run: what it would guarantee with more or less noise.

    There is one alternative for each of several bounds on the posterior belief.
    """

    claim: Claim

    def to_json(self) -> dict[str, Any]:
        """Return an empty dict, since `summary.json` does not contain the alternative guarantees."""
        return {}

    @property
    def accountant(self) -> Accountant:
        """Accountant of the alternative guarantees: the run's accountant, but `rdp-classic` instead of `rdp`."""
        accountant = self.claim.accountant
        return Accountant.RDP_CLASSIC if accountant is Accountant.RDP else accountant

    @property
    def guarantees(self) -> tuple[GuaranteeForBelief, ...]:
        """Alternative guarantees, one for each bound on belief in `BELIEFS`, ascending.

        A bound is left out if no noise multiplier achieves it.
        """
        return _guarantees(replace(self.claim, accountant=self.accountant))


@lru_cache(maxsize=8)
def _guarantees(claim: Claim) -> tuple[GuaranteeForBelief, ...]:
    rows = []
    for belief in BELIEFS:
        if belief <= claim.prior:
            continue
        try:
            guarantee = derive_guarantee(claim.with_noise(noise_multiplier_for(BeliefTarget(belief), claim)))
        except InputError:
            continue
        if guarantee.noise_multiplier is not None:
            rows.append(GuaranteeForBelief(belief, guarantee.epsilon, guarantee.noise_multiplier))
    return tuple(rows)


def claim_for_alternative_guarantees(run: FinishedRun, _: Findings) -> AlternativeGuarantees | None:
    """Return the claim of a run, from which a report later computes the guarantees with other bounds on the belief.

    The result is None if the run claims no guarantee by noise on sums. It is also None if these guarantees would take
    too long to compute, as for sampled releases with the accountant `pld`.
    """
    guarantee = run.plan.guarantee
    if guarantee is None or guarantee.noise_multiplier is None:
        return None
    # The loss distribution of sampled releases takes seconds for each guarantee.
    slow = guarantee.accountant is Accountant.PLD and guarantee.claim.profile.gaussian_mu is None
    return None if slow else AlternativeGuarantees(guarantee.claim)


def _other_guarantees_tables(alternatives: AlternativeGuarantees, _: ReportContents) -> list[Table]:
    here = alternatives.claim.noise_over_sensitivity
    assert here is not None, "only claims with noise on sums are looked at"
    columns = ("Nobody becomes surer than", "Epsilon (nats)", "Noise multiplier z", "Noise over that of this run")
    rows_of_claims = [
        (percent(guarantee.belief), guarantee.epsilon, guarantee.noise_multiplier)
        for guarantee in alternatives.guarantees
    ]
    rows = tuple((*row, row[2] / here) for row in rows_of_claims)
    title = f"What other guarantees would cost, at delta = {alternatives.claim.delta:g}, by {alternatives.accountant}"
    return [Table(title, columns, rows)] if rows else []


_CLOSE_TICKS = 0.1  # difference of two logarithms of noise multipliers whose ticks would touch


def _other_guarantees_figure(figure: Figure, alternatives: AlternativeGuarantees, contents: ReportContents) -> None:
    axes = figure.add_subplot()
    style = BIT_STYLES[1]
    guarantee = contents.guarantee
    beliefs = np.array([100 * guarantee.belief for guarantee in alternatives.guarantees])
    noise = np.array([guarantee.noise_multiplier for guarantee in alternatives.guarantees])
    axes.plot(beliefs, noise, "-", color=style.colour, linewidth=2, marker=style.marker, label="other guarantees")
    for belief, multiplier, other_guarantee in zip(beliefs, noise, alternatives.guarantees, strict=True):
        if math.isclose(belief, 100 * guarantee.belief_bound, abs_tol=0.1):
            continue  # the guarantee of this run has a label of its own
        axes.annotate(
            number_text(other_guarantee.epsilon, 2),
            (belief, multiplier),
            (4, 5),
            textcoords="offset points",
            fontsize=SMALL_TEXT_SIZE,
            color=INK,
        )
    here = alternatives.claim.noise_over_sensitivity or 0.0
    axes.plot([100 * guarantee.belief_bound], [here], "D", color=INK, markersize=8, label="this run")
    point = (100 * guarantee.belief_bound, here)
    axes.annotate(
        number_text(guarantee.epsilon, 2),
        point,
        (-6, -6),
        ha="right",
        va="top",
        textcoords="offset points",
        fontsize=SMALL_TEXT_SIZE,
        color=INK,
    )
    axes.set_yscale("log")
    axes.set_xlim(69, 101)
    axes.set_ylim(0.7 * min(noise.min(), here), 1.5 * max(noise.max(), here))  # this run may lie beyond them all
    apart = noise[np.abs(np.log(noise / here)) > _CLOSE_TICKS] if here else noise
    axes.yaxis.set_major_locator(FixedLocator([float(number) for number in np.round([*apart, here], 2) if number > 0]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    finish_axes(
        axes,
        "What other guarantees would cost",
        "Nobody becomes surer than (%); beside each, its epsilon",
        "Noise multiplier (logarithmic)",
    )


def _other_guarantees_caption(alternatives: AlternativeGuarantees, contents: ReportContents) -> str:
    first = alternatives.guarantees[0]
    last = alternatives.guarantees[-1]
    return (
        f"A guarantee of {percent(first.belief)} takes a noise multiplier of {number_text(first.noise_multiplier, 3)}, "
        f"one of {percent(last.belief)} takes {number_text(last.noise_multiplier, 3)}; this run has "
        f"{number_text(alternatives.claim.noise_over_sensitivity, 3)}, over "
        f"{mechanism_messages.multiplied_text(contents.plan.federation.mechanism)}. "
        "More noise costs accuracy."
    )


OTHER_GUARANTEES = Section(
    "other-guarantees",
    "What other guarantees would cost",
    AlternativeGuarantees,
    claim_for_alternative_guarantees,
    on_page=True,
    trusts=True,
    tables=_other_guarantees_tables,
    picture=FindingFigure(
        "What other guarantees would cost",
        _other_guarantees_figure,
        _other_guarantees_caption,
        applies=lambda numbers, _: len(numbers.guarantees) > 1,
    ),
)
