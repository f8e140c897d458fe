"""The opening of a report in plain English: promise, strongest insider, released model, verdict and its limits.

Written for a data owner: no Greek, no formulas, no terms of the trade.
"""

import math

from fl_audit.report.contents import LawFacts, RunContents
from fl_audit.report.wording import number_text, one_in, percent, plural, whole

SIMULATION_NOTICE = (
    "All noise in this run comes from a seed, so that the run can be repeated. Whoever knows the seed can remove the "
    "noise: this is a simulation and no secure release."
)


AUDIT_DEVICE = "Not a private release: noise follows the data (audit device)"


def not_private_label(law: LawFacts) -> str:
    """Return why the models are no private release, in a line; empty where they are one."""
    if law.is_private_release:
        return ""
    return AUDIT_DEVICE if law.has_noise else "Not a private release: no clipping, no noise, no promise"


def opening(contents: RunContents) -> str:
    """Return the paragraph with which a report opens, as plain text."""
    sentences = (
        promise(contents),
        insider(contents),
        certainty(contents),
        membership(contents),
        released_model(contents),
        verdict(contents),
    )
    return " ".join(sentence for sentence in sentences if sentence)


def promise(contents: RunContents) -> str:
    """Return what was promised, in terms of how sure anybody may become."""
    bound = contents.number("guarantee", "belief_bound")
    what, unseen = _secret(contents.law.relation), _unseen(contents.law)
    if not contents.law.has_noise:
        return "These models were trained without any protection: nothing was promised."
    if bound is None:
        return f"No limit was set on how sure anybody may become {what}."
    chance = one_in(contents.number("guarantee", "delta"))
    prior = contents.law.prior
    if prior != 0.5:
        return (
            f"The promise was that nobody who watches this training{unseen}, and takes it for {percent(prior)} likely "
            f"before, may become more than {percent(bound)} sure that it holds {_subject(contents.law.relation)}, or "
            f"more than {percent(contents.belief_bounds()[0])} sure that it does not, except with a chance of at most "
            f"{chance}."
        )
    return (
        f"The promise was that nobody who watches this training{unseen} may become more than {percent(bound)} sure "
        f"{what}, except with a chance of at most {chance}."
    )


def insider(contents: RunContents) -> str:
    """Return how often the strongest insider was right, beside coin-flipping."""
    if not contents.has_insider:
        return ""
    worlds, wins = whole(contents.number("insider", "worlds")), whole(contents.number("insider", "wins"))
    who = (
        "We put the strongest insider we could think of to the test: a participant who already knows everything except "
        "that one answer and sees all that is shared during training."
    )
    if worlds is None or wins is None:
        return f"{who} How often it was right was not determined."
    if worlds == 1:
        return f"{who} It had a single trial and guessed {'right' if wins else 'wrong'}; one trial says almost nothing."
    return (
        f"{who} It was right in {wins:,} of {worlds:,} trials, where flipping a coin is right in about "
        f"{number_text(worlds / 2)} of them."
    )


def certainty(contents: RunContents) -> str:
    """Return the highest certainty that the insider reached and how often it passed the limit."""
    highest = contents.number("insider", "max_belief")
    if highest is None:
        return ""
    text = f"The surest it ever became of the right answer was {percent(highest)}"
    beyond, worlds = whole(contents.number("insider", "belief_violations")), whole(contents.number("insider", "worlds"))
    if beyond is None or not worlds or contents.number("guarantee", "belief_bound") is None:
        return f"{text}."
    if worlds == 1:
        return f"{text}, {'beyond' if beyond else 'within'} the promised limit."
    return f"{text}, and it passed the promised limit in {f'{beyond:,}' if beyond else 'none'} of {worlds:,} trials."


def membership(contents: RunContents) -> str:
    """Return how an outsider who has the finished model alone fares beside the insider, on one scale."""
    outsider, insider = contents.number("membership", "advantage"), contents.number("insider", "advantage")
    if outsider is None:
        return ""
    compared = insider is not None and len(contents.worlds) > 1
    beside = f"; the insider scores {number_text(insider, 2)}" if compared else ""
    return (
        "An outsider who sees only the finished model, and tells its training cases by how well it does on them, "
        f"scores {number_text(outsider, 2)} on a scale where 0 is coin-flipping and 1 is always right{beside}."
    )


def released_model(contents: RunContents) -> str:
    """Return how the released model fares, by Epsilon* and accuracy."""
    accuracy, mean = contents.number("utility", "test_accuracy"), contents.number("epsilon_star", "mean")
    useful = f"The released model is right for {percent(accuracy)} of new cases" if accuracy is not None else ""
    if mean is None:
        return f"{useful}; how much it gives away by itself was not measured." if useful else ""
    largest = contents.number("epsilon_star", "max")
    worst = f" (at worst {number_text(largest)})" if largest is not None and largest > mean else ""
    score = (
        f"judged by its errors alone, it scores {number_text(mean)}{worst} on the leakage scale Epsilon*, where 0 "
        "means that it treats people in the training data just like others"
    )
    return f"{useful}; {score}." if useful else f"The released model: {score}."


def verdict(contents: RunContents) -> str:
    """Return the verdict and what it does not cover, in a few sentences."""
    match contents.value("verdict"):
        case "violated":
            text = (
                "Our verdict: the promise was broken. The insider learned more than it allows; where the promise is "
                f"kept, so clear a sign has a chance of at most {one_in(contents.violation_level)}. The "
                "verdict is about this one example and this run; it does not say how much more others could learn."
            )
        case "consistent":
            text = f"Our verdict: nothing we saw contradicts the promise. {_not_covered(contents)}"
        case "no promise":
            return (
                "There was no promise to test, so there is no verdict. These models must not pass for protected ones."
            )
        case "not audited":
            text = "We came to no verdict: no insider took part, so nothing was held against the promise."
        case _:
            text = "We came to no verdict."
    if contents.law.is_private_release:
        return text
    return f"{text} The models of this run are test pieces and must not be handed out: their noise depends on the data."


def could_show_breach(contents: RunContents) -> bool:
    """Whether the run had worlds enough to show any breach, that is, whether it has a finite limit of detection."""
    limit = contents.number("empirical_epsilon", "limit_of_detection")
    return limit is not None and math.isfinite(limit)


def banner(contents: RunContents) -> tuple[str, str]:
    """Return the large line of the verdict and the smaller line below it."""
    if contents.value("verdict") == "violated":
        return "Violated", "What the insider learned contradicts the promise."
    if contents.value("verdict") == "consistent":
        blind = "" if could_show_breach(contents) else " But no breach could have shown: too few worlds."
        return "Consistent", f"Nothing the insider learned contradicts the promise.{blind}"
    if contents.value("verdict") == "no promise":
        return "No promise", "These models were trained without clipping and noise; there is nothing to hold them to."
    if contents.value("verdict") == "not audited":
        return "Not audited", "No insider took part; nothing was held against the promise."
    return "No verdict", "The run came to no verdict."


def _subject(relation: str) -> str:
    return "one particular participant's data" if "client" in relation else "one particular record"


def _unseen(law: LawFacts) -> str:
    """Return what the promise takes for hidden, where records are sampled."""
    return ", and is not told whose records each step used," if law.sampling_rate < 1 else ""


def _secret(relation: str) -> str:
    owner = _subject(relation)
    other = "another's in their place" if "client" in relation else "another in its place"
    verb = "were" if "client" in relation else "was"
    return f"whether {owner}{f', or {other},' if relation.startswith('replace') else ''} {verb} used"


def _not_covered(contents: RunContents) -> str:
    where = "That covers this one example and this run only; it is no proof for other people's data or other attacks"
    if not could_show_breach(contents):
        return f"{where}, and with so few trials no breach could have shown."
    worlds = whole(contents.number("insider", "worlds")) or len(contents.worlds)
    return f"{where}, nor against leaks too small to show in {plural(worlds, 'trial')}."
