"""The promise: how sure anybody may become, and the epsilon, delta and noise that this stands for."""

from fl_audit.evidence.belief.verdict import Verdict
from fl_audit.evidence.findings.promise import PromiseNumbers, measure_promise
from fl_audit.evidence.findings.verdict import VerdictNumbers
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.beliefs import Sensitivities
from fl_audit.privacy.defaults import CANDIDATES
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.report.finding import Row, RunContents, Section
from fl_audit.report.law_words import exact_accountant, mu_text, multiplier_text, noise_text, watcher_text
from fl_audit.report.wording import one_in, percent

_BY_RENYI = (Accountant.RDP_CLASSIC, Accountant.RDP)


def _sentence(numbers: PromiseNumbers, contents: RunContents) -> str:
    promise, facts = numbers.guarantee, contents.facts
    if promise is None and facts.game.randomiser is not None:
        return "The training itself had no protection, and of its models alone nothing was promised."
    if promise is None:
        return "These models were trained without any protection: nothing was promised."
    watcher, words = watcher_text(facts), contents.words
    bound, chance = percent(promise.belief_bound), one_in(promise.delta)
    if promise.belief_bound >= 1:
        return f"The promise is so weak that somebody who {watcher} may become sure {words.whether}."
    if facts.prior != 0.5:
        other = percent(facts.belief_bounds[0])
        return (
            f"The promise was that nobody who {watcher.rstrip(',')}, and takes it for {percent(facts.prior)} likely "
            f"beforehand that {words.that}, may become more than {bound} sure that {words.that_short}, or more than "
            f"{other} sure that {words.not_that}, except with a chance of at most {chance}."
        )
    return (
        f"The promise was that nobody who {watcher} may become more than {bound} sure {words.whether}, except with a "
        f"chance of at most {chance}."
    )


def person_text(contents: RunContents) -> str:
    """Return what the promise means for a person in the data, in a few sentences: one chance in so many."""
    promise, verdict = contents.facts.guarantee, contents.find(VerdictNumbers)
    if promise is None:
        return "Nothing limits what these models may tell about a person whose records were trained with."
    whose = (
        "your records are all that one client holds"
        if contents.words.one == "client"
        else "one of the records is yours"
    )
    used = "they were used" if contents.words.one == "client" else "it was used"
    right = percent(round((1 + promise.advantage_bound_exact) / 2, 3))
    limit = (
        f"becomes more than {percent(promise.belief_bound)} sure that {used}, with a chance of "
        f"{one_in(promise.delta)} at most"
    )
    if promise.belief_bound >= 1:
        limit = f"may become sure that {used}"
    text = (
        f"Suppose {whose}. Somebody who knows all the others and watches everything {limit}. At even odds the best "
        f"possible guess whether {used} is right in {right} of cases at most; a coin is right in 50{chr(160)}%."
    )
    named = promise.reconstruction_bound(1 / CANDIDATES)
    if named is not None:
        text += (
            f" Of {CANDIDATES:,} equally likely {contents.words.one}s an attacker who knows all the others names the "
            f"right one in {percent(named)} of cases at most; by chance it is {percent(1 / CANDIDATES)}."
        )
    if verdict is not None and verdict.verdict is Verdict.VIOLATED:
        return f"Had the promise been kept, this would hold; it was broken, so it does not. {text}"
    return text


def _rows(numbers: PromiseNumbers, contents: RunContents) -> list[Row]:
    promise, facts = numbers.guarantee, contents.facts
    if promise is None:
        return []
    by, between = f"by {promise.accountant}", noise_text(facts)
    always = f"for a {contents.words.one} that takes part every time; " * facts.is_amplified
    exact = "delta(0) of the loss distribution" if facts.is_amplified else "2 Φ(mu/2) - 1 (Dong, Roth & Su 2022)"
    prior = f"prior belief {percent(facts.prior)}"
    return [
        Row("Epsilon (nats)", promise.epsilon, f"over all rounds, at the delta below, {by}; {between}"),
        Row("Delta (probability)", promise.delta, "chosen before the run"),
        Row("Noise multiplier z", promise.noise_multiplier, f"{multiplier_text(facts)}; {by}"),
        Row("Rounds", numbers.rounds, "chosen before the run"),
        Row("Sampling rate", numbers.sampling_rate, "chosen before the run"),
        Row("Gaussian mu", promise.mu, f"{mu_text(facts)}; {always}by gdp"),
        Row("Belief bound", promise.belief_bound, f"{_bound_text(promise)}; {prior}", is_share=True),
        Row("Belief bound at fixed sensitivities", promise.belief_bound_fixed,
            f"{_fixed_text(promise.accountant)}; {prior}; were the differences of all rounds fixed beforehand",
            is_share=True),
        Row("Advantage bound", promise.advantage_bound,
            "Bernau et al. 2021, theorem 3 and Eq. (6): of noise calibrated by the classic formula"),
        Row("Advantage bound, exact", promise.advantage_bound_exact, f"{exact}, by {exact_accountant(facts)}"),
    ]  # fmt: skip


def _bound_text(promise: Guarantee) -> str:
    if promise.claim.sensitivities is Sensitivities.FIXED or promise.accountant in _BY_RENYI:
        return _fixed_text(promise.accountant)
    return "follows from delta(epsilon) at all smaller epsilons, so it holds whatever earlier releases decide"


def _fixed_text(accountant: Accountant) -> str:
    if accountant in _BY_RENYI:
        return "prior odds times exp(epsilon of rdp-classic), Eq. (5); passed with probability at most delta"
    return "quantile of the law of the log-odds; passed with probability at most delta"


def at_delta(delta: float | None) -> str:
    """Return at which delta a number holds, as the end of a phrase; empty for none."""
    return "" if delta is None else f", at delta = {delta:g}"


PROMISE = Section(
    name="promise", title="What was promised", numbers=PromiseNumbers, measure=measure_promise, keys=("guarantee",),
    on_page=True, sentence=_sentence, rows=_rows,
)  # fmt: skip
