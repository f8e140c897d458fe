"""Finding and report section on the claimed guarantee, in words and numbers."""

from dataclasses import dataclass
from typing import Any

from fl_audit.adjacency import Unit
from fl_audit.audits.common.sections_privacy_units import PrivacyUnitsFinding, larger_unit_sentence
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_plan import RunPlan
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.accounting_enums import NoiseDistribution
from fl_audit.privacy.defaults import CANDIDATES
from fl_audit.privacy.gdp_fit import SMALLEST_DELTA
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.privacy.guarantee_line import GUARANTEE_NAMES, fit_of_all, guarantee_values
from fl_audit.privacy.identifiability_bounds import SignalToNoiseAdaptivity
from fl_audit.report import mechanism_messages
from fl_audit.report.report_elements import ReportContents, ReportNumber, Section
from fl_audit.verdict.claim_standing import ClaimStanding, standing_of_claim
from fl_audit.words import is_certainty, one_in, percent

_BOUNDS = (
    "noise_multiplier",
    "belief_bound",
    "belief_bound_fixed",
    "advantage_bound",
    "advantage_bound_exact",
    "rho_alpha",
)


@dataclass(frozen=True)
class GuaranteeFinding:
    """The claimed guarantee of a run, with its number of rounds and its sampling rate."""

    guarantee: Guarantee | None  # the guarantee; None if nothing was claimed
    rounds: int  # number of releases after the initial model
    # Probability with which a unit takes part in a round (for DP-SGD at the clients, a record in a local step).
    sampling_rate: float

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `guarantee`, for `summary.json`.

        Without a claim, the values of the guarantee are None.
        """
        guarantee = self.guarantee
        line = (
            dict.fromkeys(GUARANTEE_NAMES)
            if guarantee is None
            else guarantee_values(guarantee.epsilon, guarantee.claims)
        )
        bounds = {name: None if guarantee is None else getattr(guarantee, name) for name in _BOUNDS}
        return {"guarantee": json_of(line | bounds | {"rounds": self.rounds, "sampling_rate": self.sampling_rate})}


def measure_guarantee(run: FinishedRun, _: Findings) -> GuaranteeFinding:
    """Return the claimed guarantee of a run, with its number of rounds and its sampling rate."""
    guarantee = run.plan.guarantee
    rate = run.plan.federation.mechanism.sampling_rate if guarantee is None else guarantee.sampling_rate
    return GuaranteeFinding(guarantee, run.plan.federation.rounds, rate)


def _sentence(finding: GuaranteeFinding, contents: ReportContents) -> str:
    guarantee = finding.guarantee
    plan = contents.plan
    if guarantee is None and plan.federation.local_randomizer is not None:
        return "The training itself had no protection, and of its models alone nothing was claimed."
    if guarantee is None:
        return "These models were trained without any protection: nothing was claimed."
    watcher = mechanism_messages.observer_after_nobody(plan)
    words = contents.words
    bound = percent(guarantee.belief_bound)
    if is_certainty(guarantee.belief_bound):
        watcher = mechanism_messages.observer_after_somebody(plan)
        return f"The guarantee is so weak that somebody who {watcher} may become sure {words.whether}."
    surer = f" may become more than {bound} sure {words.whether}"
    if plan.prior != 0.5:
        surer = (
            f", and takes it for {percent(plan.prior)} likely beforehand that {words.that}, may become more than "
            f"{bound} sure that {words.that_short}, or more than {percent(plan.belief_bounds[0])} sure that "
            f"{words.not_that}"
        )
        watcher = watcher.rstrip(",")
    return (
        f"The guarantee was that nobody who {watcher}{surer}, except with a chance of at most "
        f"{one_in(guarantee.delta)}."
    )


_BY_STANDING = {
    ClaimStanding.HELD: "",
    ClaimStanding.REFUTED: "The guarantee was broken, so it limits nothing. ",
    ClaimStanding.UNCONFIRMED: "This is claimed, not confirmed by this run. ",
}
"""Sentence before the text for a person, by the standing of the claim."""


def person_text(contents: ReportContents) -> str:
    """Return a few sentences that explain the guarantee of a report to a person whose records are in the data."""
    guarantee = contents.plan.guarantee
    standing = standing_of_claim(contents)
    if guarantee is None and contents.plan.federation.local_randomizer is not None:
        return (
            "What the owners did to the records before the training, described above, is all that limits what these "
            "models may tell about a person whose records were trained with."
        )
    if guarantee is None:
        return "Nothing limits what these models may tell about a person whose records were trained with."
    whose = "one of the records is yours"
    used = "it was used"
    if contents.words.one == "client":
        whose = "your records are all that one client holds"
        used = "they were used"
    if contents.words.one == "user":
        whose = "some of the records are yours, however many, as those of one user"
        used = "they were used"
    watches = mechanism_messages.informed_observer_after_somebody(contents.plan)
    if standing is ClaimStanding.REFUTED:
        how_sure = f"how sure somebody who {watches} may become that {used}"
        return f"{_BY_STANDING[standing]}Suppose {whose}: nobody knows {how_sure}."
    if is_certainty(guarantee.belief_bound):
        sure = f"Somebody who {watches} may become sure that {used}"
        return f"{_BY_STANDING[standing]}Suppose {whose}. {sure}: this guarantee assures next to nothing."
    right = percent((1 + guarantee.advantage_bound_exact) / 2)
    limit = (
        f"becomes more than {percent(guarantee.belief_bound)} sure that {used}, with a chance of "
        f"{one_in(guarantee.delta)} at most"
    )
    text = (
        f"Suppose {whose}. Somebody who {watches} {limit}. At even odds the best possible "
        f"guess whether {used} is right in {right} of cases at most; a coin is right in 50{chr(160)}%."
    )
    named_bound = guarantee.reconstruction_bound(1 / CANDIDATES)
    if named_bound is not None:
        text += (
            f" Of {CANDIDATES:,} equally likely {contents.words.one}s such a person names the right one in "
            f"{percent(named_bound)} of cases at most; by chance it is {percent(1 / CANDIDATES)}."
        )
    if (largest := contents.run.most_records) > 1 and contents.words.one == "record":
        text += f" It covers one record: a person with several, here up to {largest:,}, is protected less."
        levels = contents.find(PrivacyUnitsFinding)
        text += f" {larger_unit_sentence(levels, Unit.RECORD)}" if levels is not None else ""
    return f"{_BY_STANDING[standing]}{text}"


def _rows(finding: GuaranteeFinding, contents: ReportContents) -> list[ReportNumber]:
    guarantee = finding.guarantee
    plan = contents.plan
    if guarantee is None:
        return []
    by = f"by {guarantee.accountant}"
    between = mechanism_messages.noise_text(plan)
    always = f"for a {contents.words.one} that takes part every time; " * plan.is_amplified
    is_gaussian = all(claim.profile.gaussian_mu is not None for claim in guarantee.claims)
    exact = "2 Φ(mu/2) - 1 (Dong, Roth & Su 2022)" if is_gaussian else "delta(0) of the loss distribution"
    prior = f"prior belief {percent(plan.prior)}"
    by_renyi = guarantee.accountant in (Accountant.RDP_CLASSIC, Accountant.RDP)
    basis_text = (
        "prior odds times exp(epsilon of rdp-classic), Eq. (5)"
        if by_renyi
        else "quantile of the distribution of the log-odds"
    )
    fixed = adaptive = f"{basis_text}; passed with probability at most delta"
    if not by_renyi and guarantee.claim.sensitivities is not SignalToNoiseAdaptivity.FIXED:
        adaptive = "follows from delta(epsilon) at all smaller epsilons, so it holds whatever earlier releases decide"
    over_norm = score = list[ReportNumber]()
    noise = plan.federation.mechanism.noise
    if guarantee.noise_multiplier is not None and noise.distribution is NoiseDistribution.GAUSSIAN:
        quoted = mechanism_messages.noise_over_norm(plan.federation.mechanism, guarantee.noise_multiplier)
        usage_text = "the same noise, as Opacus, TensorFlow Privacy and dp-accounting quote it"
        over_norm = [ReportNumber("Noise over the clipping norm", quoted, usage_text)] if quoted is not None else []
    if guarantee.rho_alpha is not None:
        theorem = "the score of Bernau et al. 2021, theorem 3 and Eq. (6): a bound of noise by the classic formula only"
        score = [ReportNumber("rho_alpha", guarantee.rho_alpha, theorem)]
    return [
        ReportNumber("Epsilon (nats)", guarantee.epsilon, f"over all rounds, at the delta below, {by}; {between}"),
        ReportNumber("Delta (probability)", guarantee.delta, "chosen before the run"),
        ReportNumber(
            "Noise multiplier z", guarantee.noise_multiplier, f"{mechanism_messages.multiplier_text(plan)}; {by}"
        ),
        *over_norm,
        ReportNumber("Rounds", finding.rounds, "chosen before the run"),
        ReportNumber("Sampling rate", finding.sampling_rate, "chosen before the run"),
        *_mu_rows(guarantee, plan, always),
        ReportNumber("Belief bound", guarantee.belief_bound, f"{adaptive}; {prior}", is_share=True),
        ReportNumber(
            "Belief bound at fixed sensitivities",
            guarantee.belief_bound_fixed,
            f"{fixed}; {prior}; if the differences of all rounds were fixed beforehand",
            is_share=True,
        ),
        ReportNumber(
            "Advantage bound",
            guarantee.advantage_bound_exact,
            f"{exact}, by {mechanism_messages.exact_accountant(plan)}; exact, whatever calibrated the noise",
        ),
        *score,
    ]


def _mu_rows(guarantee: Guarantee, plan: RunPlan, always: str) -> list[ReportNumber]:
    """Return rows on mu of Gaussian DP: that of the claim, one fitted to the privacy profile, and the fit's error.

    There are none where the noise is not Gaussian.
    """
    if (mu_text := mechanism_messages.mu_text(plan)) is None:
        return []
    fit = fit_of_all(guarantee.claims)
    good = "below 0.01 mu says all of the guarantee, and better than one epsilon and delta"
    return [
        ReportNumber("Gaussian mu", guarantee.mu, f"{mu_text}; {always}by gdp"),
        ReportNumber(
            "Gaussian mu of the whole profile",
            fit.mu,
            f"mu-GDP, of every delta from {SMALLEST_DELTA:g} (Gomez et al. 2025, arXiv 2503.10945)",
        ),
        ReportNumber(
            "Regret of that mu",
            fit.regret,
            f"by how much both error rates of a test can lie from those of a Gaussian; {good}",
        ),
    ]


GUARANTEE = Section(
    "guarantee",
    "What was claimed",
    GuaranteeFinding,
    measure_guarantee,
    keys=("guarantee",),
    on_page=True,
    sentence=_sentence,
    rows=_rows,
)
