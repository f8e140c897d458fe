"""Show the result of a live audit as lines for a terminal, and as an HTML page of one screen."""

import math
from typing import assert_never

from fl_audit.app_audits.live.live_audit import LiveFinding
from fl_audit.app_audits.live.live_checks import Inconsistency
from fl_audit.app_audits.live.stored_rounds import mismatches_text
from fl_audit.app_audits.page import PageText
from fl_audit.audits.canaries.canary_detection_limit import HIDDEN_BY_OTHERS
from fl_audit.privacy.guarantee_line import guarantee_line, guarantee_values
from fl_audit.report.page import Fact, facts_html, joined_html, page_table, paragraph_html
from fl_audit.statistics.claim_comparisons import Reading, compare_with_claim
from fl_audit.verdict.declared_tests import FAMILY_LEVEL
from fl_audit.verdict.noise_estimate import BREACH
from fl_audit.verdict.verdict import Verdict
from fl_audit.words import capital, is_certainty, number_text, one_in, percent, plural

_MOST_NUMBERED = 5  # largest number of rounds or canaries that are listed


def live_headline(finding: LiveFinding) -> str:
    """Return the verdict of a live audit, how many rounds were seen, and the lower bound on epsilon."""
    return f"{capital(str(finding.verdict))}: {_progress(finding)}. {_opening(finding)}"


def live_lines(finding: LiveFinding) -> tuple[tuple[str, str], ...]:
    """Return the findings of a live audit, as pairs of a subject and a text: claim, lower bounds and next step."""
    facts = [(fact.name, f"{fact.value} ({fact.note})") for fact in _facts(finding)]
    claimed = guarantee_line(guarantee_values(finding.guarantee.epsilon, finding.guarantee.claims))
    return (("Claimed", claimed), *facts, ("Next", _next(finding)))


def live_text(finding: LiveFinding) -> PageText:
    """Return the text of the page on a live audit."""
    return PageText(
        subtitle=f"One training as its own audit: {finding.guarantee.claim}",
        step=_next(finding),
        opening=_opening(finding),
        banner=_progress(finding),
        details=joined_html(facts_html(_facts(finding)), _table(finding), paragraph_html(_assumption(finding))),
        is_listed=False,
    )


def _assumption(finding: LiveFinding) -> str:
    unseen = ""
    if not finding.knows_others:
        unseen += " How many other clients answered was not seen:"
        unseen += " it is taken that their updates do not lie over the noise."
    if not finding.doubts.knows_canaries:
        unseen += " What canaries send where they are out, and with which coins, was not noted: it is taken to be as"
        unseen += " the guarantee and the coins have it, as far as the scores do not speak against it."
    if not finding.knows_weights:
        unseen += " What replies weigh was not seen: none is taken to outweigh a canary."
    return f"{finding.finding.method.assumption}{unseen}{_light(finding)}"


def _light(finding: LiveFinding) -> str:
    """Return a sentence on the canary with the smallest weight; empty if it weighs as much as the heaviest client."""
    smallest = min(finding.weights)
    if smallest == 1:
        return ""
    suffix = f"{number_text(1 / smallest, 3)} times the mu of" if smallest else "more than"
    return (
        f" Canary {finding.weights.index(smallest)} weighs {number_text(smallest, 3)} of the heaviest client of a "
        "round, by "
        f"number of examples: where the average counts these, it tells of that client up to {suffix} this canary."
    )


def _progress(finding: LiveFinding) -> str:
    whole = finding.finding.rounds
    claimed = finding.guarantee.rounds
    left_out = finding.released - finding.carried_on - whole
    wrong = ", ".join(map(str, finding.misnamed))
    twice = f", or clients named canaries twice or beside those that are watched ({wrong})" if wrong else ""
    unfit = f", or {mismatches_text(finding.misfits)}" if finding.misfits else ""
    without = f", {plural(left_out, 'round')} left out: a canary did not answer{twice}{unfit}" if left_out else ""
    suffix = f", after {plural(finding.carried_on, 'round')} of the same training that were set aside"
    return f"{whole:,} whole rounds of {claimed:,} claimed{without}{suffix if finding.carried_on else ''}"


def _opening(finding: LiveFinding) -> str:
    bounds = finding.finding
    guarantee = finding.guarantee
    lower = number_text(bounds.epsilon_lower, 3)
    at = f"at delta {number_text(guarantee.delta, 3)}"
    return (
        f"With noise as weak as the canaries certify, the training tells an epsilon of at least {lower} {at} "
        f"({percent(bounds.confidence)} confidence in one look that was chosen beforehand, and less for whoever looks "
        f"again); {number_text(guarantee.epsilon, 3)} is claimed."
    )


def _reading(finding: LiveFinding) -> Reading:
    """Return how the lower bound on mu compares with the claimed mu.

    The page may be opened at any time, so the claim is "broken" only if the verdict from declared analyses is
    `violated`.
    """
    bounds = finding.finding
    is_violated = finding.verdict is Verdict.VIOLATED
    wide = max((look.finding.mu_lower for look in finding.looks), default=0.0) if is_violated else 0.0, math.inf
    return compare_with_claim(
        (bounds.mu_lower, math.inf), bounds.mu_claimed, wide=lambda _: wide, level=finding.level, sides=1
    ).reading


def _facts(finding: LiveFinding) -> tuple[Fact, ...]:
    bounds = finding.finding
    guarantee = finding.guarantee
    reading = _reading(finding)
    rarely = f"except with a chance of at most {one_in(guarantee.delta)}"
    surer = f"claimed: at most {percent(guarantee.belief_bound)}, {rarely}; {reading}"
    if is_certainty(guarantee.belief_bound):
        surer = str(Reading.NO_LIMIT)
    needed = "none" if finding.rounds_needed is None else f"{finding.rounds_needed:,}"
    return (
        Fact(
            "Epsilon of the training, at least",
            number_text(bounds.epsilon_lower, 3),
            f"claimed: {number_text(guarantee.epsilon, 3)} by {guarantee.accountant}; {reading}",
        ),
        Fact("An insider may become as sure as", percent(finding.belief_lower), surer),
        Fact(
            "Epsilon of a round, at least",
            number_text(bounds.epsilon_round, 3),
            f"mu {number_text(bounds.mu_lower, 3)} or more, estimated {number_text(bounds.mu, 3)}; claimed "
            f"{number_text(bounds.mu_claimed, 3)}; {reading}",
        ),
        Fact(
            f"Rounds that find {BREACH:g} times the guarantee",
            needed,
            f"in 9 of 10 trainings with {plural(finding.canaries, 'canary', 'canaries')}",
        ),
    )


def _next(finding: LiveFinding) -> str:
    match finding.verdict:
        case Verdict.VIOLATED if finding.is_overrun:
            where = f"{plural(finding.released, 'round')} were released where {finding.guarantee.rounds:,} are claimed"
            return f"Stop the training: {where}, and every further one spends more."
        case Verdict.VIOLATED:
            return (
                "Stop the training and hand out none of its models. Compare the standard deviation that is really "
                "added with noise multiplier times clipping norm, and the number of answers with the one that the sum "
                "is divided by."
            )
        case Verdict.CONSISTENT:
            return "Nothing so far contradicts the guarantee." + ("" if finding.is_over else " Look again at the end.")
        case Verdict.INCONCLUSIVE if finding.misnamed:
            return "Give every node that sends canaries a number of its own, from 0: no other rounds count."
        case Verdict.INCONCLUSIVE if finding.misfits:
            return f"Fix what does not fit: no other rounds count. {capital(mismatches_text(finding.misfits))}."
        case Verdict.INCONCLUSIVE if finding.doubts.kinds:
            return _doubt(
                next(inconsistency for inconsistency in Inconsistency if inconsistency in finding.doubts.kinds), finding
            )
        case Verdict.INCONCLUSIVE if finding.rounds_needed is None and min(finding.weights) < 1:
            return f"Have the heaviest clients send the canaries, or weigh all alike.{_light(finding)}"
        case Verdict.INCONCLUSIVE if finding.rounds_needed is None:
            return f"Audit the strategy by itself, with `fl-audit strategy`: {HIDDEN_BY_OTHERS}."
        case Verdict.INCONCLUSIVE:
            if finding.covers_enough_rounds:
                return f"Look again after {finding.rounds_needed:,} whole rounds: these could not have told."
            remark = "with so few, not even all of its rounds can tell"
            return f"Send more canaries in the next training: {remark} {BREACH:g} times the guarantee.{_light(finding)}"
        case Verdict.NOT_AUDITED | Verdict.NO_GUARANTEE:
            raise AssertionError("a watched training has a guarantee and is audited")
        case _:
            assert_never(finding.verdict)


def _doubt(inconsistency: Inconsistency, finding: LiveFinding) -> str:
    doubts = finding.doubts
    match inconsistency:
        case Inconsistency.OVERRUN:
            return (
                f"Find out how many rounds there were: round {finding.last:,} was kept, and "
                f"{finding.guarantee.rounds:,} "
                f"are claimed. Only {finding.released:,} were kept, so that it cannot be said from here."
            )
        case Inconsistency.GAPS:
            return (
                "Watch what is released: rounds started from other models than those before them were seen to release. "
                "`watched` goes around the whole strategy, with the wrapper that adds the noise inside of it."
            )
        case Inconsistency.OUT:
            return (
                "Find out what the canaries send where they are out, which was not noted: it does not look like what "
                "the guarantee compares with. Their `is_replaced` is to be True where a client is replaced, and False "
                "where it comes or goes."
            )
        case Inconsistency.FAINT:
            alone = f" (each by itself: {_numbered(doubts.faint)})" if doubts.faint else ""
            return (
                f"Find out what hides the canaries{alone}: they stand out less than the claimed noise lets them. "
                "Updates of other clients do so, canaries that took no part, coins that are not those of all canaries, "
                "and more noise than was claimed. Noise that is missing could hide behind the first three."
            )
        case Inconsistency.UNEVEN:
            rounds = _numbered(doubts.uneven, "round", "rounds")
            return (
                f"Find out why far less noise than in the others lies in {rounds}: it was left out there, the average "
                "was over far more clients, or in the others updates of clients lie over the noise. Rounds on one "
                "scale alone can be judged."
            )
        case Inconsistency.ATTENDANCE:
            rate = percent(finding.guarantee.claim.sampling_rate)
            return (
                f"Find out who is asked to take part: {rate} of the rounds are claimed of each client, and canaries "
                "took part in more, or nobody saw in how many. Without the sampling, the training tells more than is "
                "claimed."
            )
        case _:
            assert_never(inconsistency)


def _numbered(numbers: tuple[int, ...], singular: str = "canary", plural_word: str = "canaries") -> str:
    """Return at most five of the numbers as a phrase, such as "canaries 1, 4".

    `singular` is the noun for a single number, `plural_word` the noun for several.
    """
    suffix = ", ..." if len(numbers) > _MOST_NUMBERED else ""
    return f"{singular if len(numbers) == 1 else plural_word} {', '.join(map(str, numbers[:_MOST_NUMBERED]))}{suffix}"


def _table(finding: LiveFinding) -> str:
    if not finding.looks:
        return paragraph_html("No verdict yet: the first is passed after five whole rounds.")
    rows = [
        (
            plural(look.rounds, "whole round"),
            number_text(look.finding.mu_lower, 3),
            number_text(look.finding.epsilon_lower, 3),
            "yes" if look.is_violated else "no",
        )
        for look in finding.looks
    ]
    columns = ("look after", "mu of a round, at least", "epsilon of the training, at least", "breaks the guarantee")
    together = f"their bounds hold together with {percent(finding.finding.confidence)} confidence"
    at_most = f"{together}, and a kept guarantee fails any of them in at most {one_in(FAMILY_LEVEL)} trainings"
    title = f"Looks that were declared beforehand: {at_most}"
    return page_table(columns, rows, numbers=(1, 2), title=title)
