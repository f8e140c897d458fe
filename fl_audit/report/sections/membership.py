"""The membership adversary, who sees the final model alone: its advantages, what bounds them, the insider beside it."""

from collections.abc import Mapping
from typing import Any

from fl_audit.adjacency import Relation, Unit
from fl_audit.evidence.findings.attacks import MembershipNumbers, measure_membership
from fl_audit.evidence.findings.found import finite
from fl_audit.evidence.findings.insider import InsiderNumbers
from fl_audit.evidence.finished_run import FinishedRun, RunFacts
from fl_audit.report.finding import Row, RunContents, Section
from fl_audit.report.law_words import exact_accountant, noise_text
from fl_audit.report.sections.insider import advantage_row
from fl_audit.report.sections.promise import at_delta
from fl_audit.report.units import unit_words
from fl_audit.report.wording import number_text, percent


def scope_of(facts: RunFacts) -> str:
    """Return whom the bounds cover, in words."""
    if not facts.has_promise:
        return "Nothing was promised, so nothing but certainty bounds the advantage."
    words = unit_words(facts.relation)
    if not facts.game.law.is_private_release:
        return (
            f"No bound for members and others holds here: the noise follows {words.differing}, and no other "
            f"{words.one} is promised anything. The bounds say what the same promise would be worth to every one."
        )
    text = (
        "The bounds for members and others hold on average over data sets drawn from the population; by the luck of "
        "this D and this sample the advantage may lie beyond."
    )
    if facts.relation.unit is Unit.CLIENT:
        text = f"What is promised to a client holds for each of its records, where these are drawn alike. {text}"
    if facts.relation.relation is Relation.ADD_REMOVE:
        text += (
            " One of the population in the place of a member is one removed and one added: these bounds count what is "
            "promised to either twice."
        )
    return text


def _said(numbers: MembershipNumbers, run: FinishedRun) -> Mapping[str, Any]:
    return {"membership": numbers.to_json()["membership"] | {"bound_scope": scope_of(run.facts)}}


def _sentence(numbers: MembershipNumbers, contents: RunContents) -> str:
    insider = contents.find(InsiderNumbers)
    beside = ""
    if insider is not None and insider.estimate.worlds > 1:
        scored = number_text(insider.estimate.advantage, 2)
        beside = f"; the insider scores {scored}{advantage_row(insider, contents).aside}"
    return (
        "An outsider who sees only the finished model, and tells its training cases by how well it does on them, "
        f"scores {number_text(numbers.over_worlds.advantage, 2)}{_mean_row(numbers).aside} on a scale where 0 is "
        f"coin-flipping and 1 is always right{beside}. {scope_of(contents.facts)}"
    )


def _mean_row(numbers: MembershipNumbers) -> Row:
    mean, attack = numbers.over_worlds, "a member where the final loss is at most the average one in training"
    basis = f"TPR - FPR, mean over worlds; {attack} (Yeom et al. 2018); betting interval, for this D and this sample"
    limit = None if numbers.bounds is None else numbers.bounds.exact
    return Row("Membership advantage", mean.advantage, basis, mean.low, mean.high, mean.confidence, limit,
               on_page=True)  # fmt: skip


def _rows(numbers: MembershipNumbers, contents: RunContents) -> list[Row]:
    record, bounds, differing = numbers.record, numbers.bounds, contents.words.differing
    rows = [
        _mean_row(numbers),
        Row(f"Right guesses about {differing}", record.wins, "counted; the same rule, threshold from all others"),
        Row(f"Advantage about {differing}", record.advantage,
            "twice the share of right guesses - 1; Clopper-Pearson interval", record.low, record.high,
            record.confidence, numbers.record_bound),
    ]  # fmt: skip
    promise, exact_by = contents.facts.guarantee, exact_accountant(contents.facts)
    if promise is not None and bounds is not None:
        epsilon = "(exp(epsilon) - 1 + 2 delta) / (exp(epsilon) + 1) (Kairouz et al. 2015, Humphries et al. 2023)"
        rows += [
            Row("Bound for members, exact", bounds.exact, f"total variation between neighbours, by {exact_by}"),
            Row("Bound for members by epsilon and delta", bounds.tradeoff, f"{epsilon}, by {promise.accountant}"),
            Row("Bound for members by epsilon", finite(bounds.yeom),
                "exp(epsilon) - 1 (Yeom et al. 2018, theorem 1), at delta = 0; above 1 it says nothing"),
            Row(f"Bound about {differing}, exact", numbers.record_bound,
                f"that of the insider (Bernau et al. 2021, prop. 1), by {exact_by}; {noise_text(contents.facts)}"),
        ]  # fmt: skip
    if (bound := numbers.lower_bound) is not None:
        rows += [
            Row(f"Lower bound from the loss of {differing} (nats)", finite(bound.epsilon),
                f"holds at {percent(bound.confidence)} confidence; {bound.method}{at_delta(bound.delta)}; final "
                f"release alone, less the loss of what takes its place; {bound.assumption}",
                limit=None if promise is None else promise.epsilon),
            Row("Largest bound that so many losses could prove (nats)", finite(bound.limit_of_detection),
                f"{bound.method}; {bound.limit_meaning}"),
        ]  # fmt: skip
    return rows


MEMBERSHIP = Section(
    name="membership", title="The membership adversary", numbers=MembershipNumbers, measure=measure_membership,
    keys=("membership",), sentence=_sentence, rows=_rows, said=_said,
)  # fmt: skip
