"""The report section on the membership adversary, which attacks the losses of the final model."""

from functools import partial

from fl_audit.adjacency import Relation, Unit
from fl_audit.array_types import finite
from fl_audit.audits.common.sections_guarantee import at_delta
from fl_audit.audits.identifiability.findings_insider import InsiderFinding
from fl_audit.audits.identifiability.sections_insider import advantage_row
from fl_audit.audits.membership import findings_membership_adversary as evidence
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_plan import RunPlan
from fl_audit.report.mechanism_messages import exact_accountant, noise_text
from fl_audit.report.report_elements import ReportContents, ReportNumber, Section
from fl_audit.report.unit_words import unit_words
from fl_audit.statistics.advantage import advantage_ends
from fl_audit.words import percent


def _scope_of(plan: RunPlan) -> str:
    """Return sentences for the report that say for which units and data sets the bounds on the advantage hold."""
    if not plan.has_guarantee:
        of_training = "" if plan.federation.local_randomizer is None else " of the training"
        return f"Nothing was claimed{of_training}, so nothing but certainty bounds the advantage."
    words = unit_words(plan.adjacency)
    if not plan.federation.mechanism.is_private_release:
        return (
            f"No bound for members and others holds here: the noise follows {words.differing}, and no other "
            f"{words.one} is claimed anything. The bounds say what the same guarantee would be worth to everyone."
        )
    text = (
        "The bounds for members and others hold on average over data sets drawn from the population; by the luck of "
        "this D and this sample the advantage may lie beyond."
    )
    if plan.adjacency.unit is Unit.CLIENT:
        text = f"What is claimed to a client holds for each of its records, where these are drawn alike. {text}"
    if plan.adjacency.relation is Relation.ADD_REMOVE:
        text += (
            " One of the population in the place of a member is one removed and one added: these bounds count what is "
            "claimed to either twice."
        )
    return text


def _membership_sentence(finding: evidence.FinalModelMembershipFinding, contents: ReportContents) -> str:
    insider = contents.find(InsiderFinding)
    mean = _mean_row(finding, contents.run)
    beside = ""
    if insider is not None and insider.estimate.trials > 1:
        scored = advantage_row(insider.estimate, contents)
        beside = f"; the insider scores {scored.shown.value}{scored.comparison_in_brackets}"
    return (
        "An outsider who sees only the finished model, and tells its training cases by how well it does on them, "
        f"scores {mean.shown.value}{mean.comparison_in_brackets} on a scale "
        f"where 0 is coin-flipping and 1 is always right{beside}. {_scope_of(contents.plan)}"
    )


def _mean_row(finding: evidence.FinalModelMembershipFinding, run: FinishedRun) -> ReportNumber:
    mean = finding.over_trials
    attack = "a member where the final loss is at most the average one in training"
    basis = f"TPR - FPR, mean over trials; {attack} (Yeom et al. 2018); betting interval, for this D and this sample"
    limit = None if finding.bounds is None else finding.bounds.exact
    return ReportNumber(
        "Membership advantage",
        mean.advantage,
        basis,
        mean.low,
        mean.high,
        mean.confidence,
        limit,
        largest=1.0,
        on_page=True,
        wide=partial(evidence.membership_ends, run),
    )


def _membership_rows(finding: evidence.FinalModelMembershipFinding, contents: ReportContents) -> list[ReportNumber]:
    record = finding.record
    bounds = finding.bounds
    differing = contents.words.differing
    rows = [
        _mean_row(finding, contents.run),
        ReportNumber(
            f"Right guesses about {differing}", record.wins, "counted; the same rule, threshold from all others"
        ),
        ReportNumber(
            f"Advantage about {differing}",
            record.advantage,
            "twice the share of right guesses - 1; Clopper-Pearson interval",
            record.low,
            record.high,
            record.confidence,
            finding.record_bound,
            largest=1.0,
            wide=partial(advantage_ends, record.wins, record.trials),
        ),
    ]
    guarantee = contents.plan.guarantee
    exact_by = exact_accountant(contents.plan)
    if guarantee is not None and bounds is not None:
        epsilon = "(exp(epsilon) - 1 + 2 delta) / (exp(epsilon) + 1) (Kairouz et al. 2015, Humphries et al. 2023)"
        rows += [
            ReportNumber(
                "Bound for members, exact", bounds.exact, f"total variation between neighbours, by {exact_by}"
            ),
            ReportNumber(
                "Bound for members by epsilon and delta", bounds.tradeoff, f"{epsilon}, by {guarantee.accountant}"
            ),
            ReportNumber(
                "Bound for members by epsilon",
                finite(bounds.yeom),
                "exp(epsilon) - 1 (Yeom et al. 2018, theorem 1), at delta = 0; above 1 it says nothing",
            ),
            ReportNumber(
                f"Bound about {differing}, exact",
                finding.record_bound,
                f"that of the insider (Bernau et al. 2021, prop. 1), by {exact_by}; {noise_text(contents.plan)}",
            ),
        ]
    if (bound := finding.lower_bound) is not None:
        rows += [
            ReportNumber(
                f"Lower bound from the loss of {differing} (nats)",
                finite(bound.epsilon),
                f"holds at {percent(bound.confidence)} confidence; {bound.method}{at_delta(bound.delta)}; final "
                f"release alone, less the loss of what takes its place; {bound.assumption}",
                limit=None if guarantee is None else guarantee.epsilon,
                is_bound=True,
                wide=partial(evidence.record_bound_end, contents.run),
            ),
            ReportNumber(
                "Largest bound that so many losses could prove (nats)",
                finite(bound.limit_of_detection),
                f"{bound.method}; {bound.limit_meaning}",
            ),
        ]
    return rows


MEMBERSHIP = Section(
    "membership",
    "The membership adversary",
    evidence.FinalModelMembershipFinding,
    evidence.measure_membership,
    keys=("membership",),
    sentence=_membership_sentence,
    rows=_membership_rows,
    said=lambda finding, run: {"membership": finding.to_json()["membership"] | {"bound_scope": _scope_of(run.plan)}},
)
