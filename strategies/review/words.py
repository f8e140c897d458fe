"""A review in words: what the first screen says, and the same as JSON values."""

from typing import Any, assert_never

from fl_audit.evidence.belief.verdict import Verdict
from fl_audit.laboratory.findings import Finding, findings, not_tried, opening, trial_json, untried_words
from fl_audit.laboratory.trial import Trial
from strategies.games.kinds import BY_NAME, MENDS, WORDS
from strategies.review.claims import epsilon_words, training_doubt
from strategies.review.plan import Aside, Leak
from strategies.review.review import REFERENCE, Review

_UNSEEN = (
    "what clients do with their records before they reply (noise or clipping of their own included), the data, "
    "what the server evaluates by itself, and who can read the server's memory"
)


def found_in(trial: Trial) -> tuple[Finding, ...]:
    """Return the findings of a trial of a review."""
    return findings(trial, WORDS, MENDS)


def headline(review: Review) -> str:
    """Return what a reviewer takes away, in a sentence or two."""
    if review.unseen:
        return f"Inconclusive: {review.unseen[0]}. The games without it: {_headline_of_games(review)}"
    return _headline_of_games(review)


def _headline_of_games(review: Review) -> str:
    if review.stated.claim is None:
        shares = [one.right / one.games for one in review.trial.attempts]
        told = f"whether a client took part was guessed rightly in {max(shares):.0%} of games" if shares else ""
        said = f"No promise: {review.app} promises no privacy of clients{told and f': {told}'}."
        if review.unseen:
            said = f"{told or 'none could be played'}."
        return f"{said} {untried_words(review.trial)}".strip()
    causes = [finding.cause for finding in found_in(review.trial) if finding.attempt.is_broken]
    doubt = training_doubt(review.stated, review.rounds, review.played_rounds)
    if doubt and review.verdict is not Verdict.VIOLATED:
        games = f"The games alone: {opening(review.trial)}"
        return f"Inconclusive as to the whole training: {doubt} {games}"
    aside = "" if review.beside is None else untried_words(review.beside)
    more = aside and f"Beside the model: {aside}", doubt and f"And {doubt}"
    return " ".join(part for part in (opening(review.trial), *causes[:1], *more) if part)


def screen(review: Review) -> tuple[tuple[str, str], ...]:
    """Return the lines of the first screen: what each is about, and what it says."""
    stated, claim = review.stated, epsilon_words(review.stated, review.rounds)
    model = "a small model" if review.parameters is None else f"its own model of {review.parameters:,} parameters"
    asked = f"{review.asked['train']} to train and {review.asked['evaluate']} to evaluate"
    kinds = [name for name in review.kinds if name not in review.trial.unplayed]
    played = (
        f"{len(kinds)} kinds of games, the plainest on {model}, {review.played_rounds} of its {review.rounds} "
        f"rounds each; of {review.nodes} clients it asks {asked}; {review.trial.pilots} games looked for leads, and "
        f"{review.budget} tried the best ones"
    )
    broken = [finding for finding in found_in(review.trial) if finding.attempt.is_broken]
    lost = {finding.attempt.lead.kind for finding in broken}
    lost |= {one.kind for one in review.trial.refusals if not one.is_allowed}
    # What is lost on one stage is no more said to hold, and what was not tried is not said to hold either.
    lost |= {name for names in not_tried(review.trial).values() for name in names}
    gone = {BY_NAME[name].plain_name for name in lost}
    holds = [name for name in dict.fromkeys(BY_NAME[name].plain_name for name in kinds) if name not in gone]
    lines = [("Claim", f"{claim} ({stated.source})"), ("Played", played)]
    if stated.claim is not None:
        lines.append(("No contradiction", ", ".join(holds) or "in no kind of game"))
        by = [(one.words, one.attempt) for one in broken]
        told = [f"{one.lead.kind} ({words}): {one.right / one.games:.0%} of games told" for words, one in by]
        lines.append(("Broken by", "; ".join(told) or "no kind of game"))
        said = untried_words(review.trial, most=max(len(review.kinds), 1)).removeprefix("Not tried: ")
        lines += [("Not tried", said)] if said else []
    leaks = "the server sees every number that a client reports"
    if review.beside is not None:
        leaks = "; ".join(_leak_words(leak, review) for leak in review.leaks)
    lines.append(("Beside the model", leaks))
    lines += [("Not loaded", f"{reason[0].upper()}{reason[1:]}.") for reason in review.unseen]
    lines += [("Note", f"{remark[0].upper()}{remark[1:]}.") for remark in review.remarks]
    return (*lines, ("Not seen", f"{_UNSEEN}."))


def _leak_words(leak: Leak, review: Review) -> str:
    if leak.share is not None:
        by = "" if leak.by is None or leak.by.startswith("what was released") else f" ({leak.by})"
        return f"{leak.aside} told {leak.share:.0%} of games{by}"
    if leak.is_played:
        return f"{leak.aside} told nothing beyond epsilon {REFERENCE:g}"
    match leak.aside:
        case Aside.EVALUATION:
            return "clients are not asked to evaluate"
        case Aside.BUFFERS if review.stated.claim is None:
            return "buffers are released as the model is"
        case Aside.BUFFERS:
            return "its model has no buffers"
        case Aside.METRICS | Aside.EXAMPLES:
            return f"{leak.aside} were not played"
        case _:
            assert_never(leak.aside)


def review_json(review: Review) -> dict[str, Any]:
    """Return a review as JSON values."""
    trial, claim = review.trial, review.stated.claim
    return {
        "app": review.app,
        "verdict": str(review.verdict),
        "headline": headline(review),
        "claimed": None if claim is None else epsilon_words(review.stated, review.rounds),
        "source": review.stated.source,
        "rounds": review.rounds,
        "played_rounds": review.played_rounds,
        "nodes": review.nodes,
        "asked": review.asked,
        "parameters": review.parameters,
        "kinds": list(review.kinds),
        "screen": [list(line) for line in screen(review)],
        "model": trial_json(trial, found_in(trial)),
        "beside": None if review.beside is None else trial_json(review.beside, found_in(review.beside)),
        "leaks": {str(one.aside): {"played": one.is_played, "share": one.share, "by": one.by} for one in review.leaks},
        "remarks": list(review.remarks),
        "not_loaded": list(review.unseen),
    }
