"""Every number of a run with what it rests on: accountant, confidence, method and assumption."""

from dataclasses import dataclass
from typing import Any

from fl_audit.report.contents import LawFacts, RunContents
from fl_audit.report.wording import MISSING, number_text, percent

NONE = "\N{EN DASH}"
POINT = "none: a point estimate"
EXACT = "none: exact count"
COMPUTED = "computed, not estimated"


@dataclass(frozen=True)
class Entry:
    """One number of the report and what it rests on.

    Parameters
    ----------
    name
        What the number is, with its unit.
    value
        The number itself; None where it was not determined.
    accountant
        Who accounts for it, or a dash.
    confidence
        The confidence it comes with, or why it has none.
    method
        How it was found.
    assumption
        What it rests on.
    is_share
        Whether it reads best as a percentage.
    """

    name: str
    value: Any
    accountant: str = NONE
    confidence: str = NONE
    method: str = NONE
    assumption: str = NONE
    is_share: bool = False


def evidence(contents: RunContents) -> dict[str, list[Entry]]:
    """Return the numbers of a run in groups, each group that has any under its heading."""
    groups = {
        "What was promised": _guarantee(contents) if contents.law.has_noise else [],
        "What the insider achieved": _insider(contents) if contents.has_insider else [],
        "Empirical epsilon": _empirical_epsilon(contents) if contents.has_insider else [],
        "Lower bounds by every method that applies": _bounds(contents),
        "The membership adversary": _membership(contents),
        "The released model": _model(contents),
    }
    return {heading: entries for heading, entries in groups.items() if entries}


def _guarantee(contents: RunContents) -> list[Entry]:
    accountant = str(contents.value("guarantee", "accountant") or MISSING)
    law = contents.law
    neighbours = _noise_text(law)
    classic = "Bernau et al. 2021, theorem 3 and Eq. (6)"
    sampled = law.sampling_rate < 1
    mu = "square root of rounds over z" + ("; for an insider who sees who takes part" if sampled else "")
    exact = "delta(0) of the privacy loss distribution" if sampled else "2 Φ(mu/2) - 1 (Dong, Roth & Su 2022)"

    def entry(
        name: str, key: str, method: str, assumption: str, source: str = accountant, share: bool = False
    ) -> Entry:
        value = contents.value("guarantee", key)
        return Entry(name, value, source, COMPUTED, method, assumption, share)

    chosen = "chosen before the run"
    return [
        entry("Epsilon (nats)", "epsilon", "accounting over all rounds, at the delta below", neighbours),
        entry("Delta (probability)", "delta", chosen, NONE),
        entry("Noise multiplier z", "noise_multiplier", "noise standard deviation over the sensitivity", neighbours),
        entry("Rounds", "rounds", chosen, NONE, NONE),
        Entry("Gaussian mu", law.mu, "gdp", COMPUTED, mu, neighbours),
        entry("Belief bound", "belief_bound", _belief_bound_method(accountant), _prior_text(contents), share=True),
        entry("Advantage bound", "advantage_bound", classic,
              "noise calibrated by the classic formula; for exactly calibrated noise it may be exceeded"),
        entry("Advantage bound, exact", "advantage_bound_exact", exact, neighbours, exact_accountant(law)),
    ]  # fmt: skip


def _insider(contents: RunContents) -> list[Entry]:
    at = _confidence(contents)
    interval = "Clopper-Pearson interval of the share of right guesses"
    independent = "worlds are independent repetitions"

    def entry(name: str, key: str, confidence: str, method: str, share: bool = False) -> Entry:
        return Entry(name, contents.value("insider", key), NONE, confidence, method, independent, share)

    return [
        entry("Worlds (trials)", "worlds", EXACT, "counted"),
        entry("Right guesses", "wins", EXACT, "counted; the insider names the likelier data set"),
        entry("Advantage", "advantage", POINT, "twice the share of right guesses - 1; 0 is coin-flipping"),
        entry("Advantage, lower end", "advantage_low", at, interval),
        entry("Advantage, upper end", "advantage_high", at, interval),
        entry("Largest belief in the truth", "max_belief", "none: an extreme value", "largest over all worlds", True),
        entry("Worlds beyond the belief bound", "belief_violations", EXACT, _violations_method(contents)),
    ]


def _empirical_epsilon(contents: RunContents) -> list[Entry]:
    accountant = str(contents.value("guarantee", "accountant") or MISSING)
    delta = _at_delta(contents.number("guarantee", "delta"))
    method, assumption = (str(contents.value("empirical_epsilon", key) or MISSING) for key in ("method", "assumption"))

    def entry(name: str, key: str, source: str, confidence: str, how: str, rests_on: str) -> Entry:
        return Entry(name, contents.value("empirical_epsilon", key), source, confidence, how, rests_on)

    return [
        entry("From sensitivities (nats)", "from_sensitivity", accountant, _range(contents, "from_sensitivity"),
              f"section 5.3 (i): accounting of the local sensitivities over the noise that the law names{delta}",
              "the server adds the noise that it names; tests the bookkeeping"),
        entry("From the largest belief (nats)", "from_belief", NONE,
              "an extreme value that grows with the number of repetitions and does not converge to epsilon; "
              + _range(contents, "from_belief"),
              "section 5.3 (ii): Eq. (5) turned round", "compare only at the same number of worlds"),
        entry("From the advantage (nats)", "from_advantage", NONE, _range(contents, "from_advantage"),
              f"section 5.3 (iii): Eq. (6) turned round{delta}", "noise calibrated by the classic formula"),
        entry("Lower bound (nats)", "lower_bound", NONE, f"holds at {_confidence(contents)}",
              f"{method}{delta}", assumption),
        entry("Lower bound that decides (nats)", "lower_bound_at_violation_level", NONE,
              f"holds at {percent(1 - contents.violation_level)} confidence",
              f"{method}{delta}; violated where it exceeds the promised epsilon", assumption),
        entry("Level of the verdict (probability)", "violation_level", NONE, NONE, "fixed before the run", NONE),
        entry("Limit of detection (nats)", "limit_of_detection", NONE, "a breach below it may well pass",
              f"{method}{delta}; unbounded or not determined where no breach could have shown", assumption),
    ]  # fmt: skip


def _bounds(contents: RunContents) -> list[Entry]:
    return [
        Entry(
            f"{bound['method']} (nats)",
            bound["epsilon"],
            NONE,
            f"holds at {percent(bound['confidence'])} confidence",
            f"at delta = {bound['delta']:g}; limit {_shown(bound['limit_of_detection'])}: {bound['limit_meaning']}",
            " ".join([bound["assumption"], *bound["warnings"]]),
        )
        for bound in contents.value("empirical_epsilon", "bounds") or []
    ]


def _range(contents: RunContents, name: str) -> str:
    """Return the interval of an empirical epsilon in words; a point estimate where the summary has none."""
    found = contents.value("empirical_epsilon", "intervals", name)
    if not isinstance(found, dict):
        return POINT
    ends = f"{_shown(found['low'])} to {_shown(found['high'])}"
    return f"{ends} over the worlds" if found["confidence"] == 1 else f"{ends} at {percent(found['confidence'])}"


def _shown(value: float | None) -> str:
    return "no limit" if value is None else f"{value:.4g}"


def _membership(contents: RunContents) -> list[Entry]:
    if not contents.has_membership:
        return []
    accountant = str(contents.value("guarantee", "accountant") or MISSING)
    at = f"{percent(contents.number('membership', 'confidence'))} confidence"
    exact_by = exact_accountant(contents.law)
    scope = str(contents.value("membership", "bound_scope"))
    attack = "final release; a member where the loss is at most the average training loss (Yeom et al. 2018)"
    sample, independent = "this D and this population sample", "worlds are independent repetitions"
    student = "Student interval of the mean over worlds"
    exact = "Clopper-Pearson interval of the share of right guesses"

    def entry(name: str, key: str, source: str, confidence: str, method: str, rests_on: str) -> Entry:
        return Entry(name, contents.value("membership", *key.split(".")), source, confidence, method, rests_on)

    entries = [
        entry("Membership advantage", "advantage", NONE, POINT, f"TPR - FPR, mean over worlds; {attack}", sample),
        entry("Membership advantage, lower end", "low", NONE, at, student, sample),
        entry("Membership advantage, upper end", "high", NONE, at, student, sample),
        entry("Its bound, exact", "bound", exact_by, COMPUTED, "total variation between neighbours", scope),
        entry("Its bound by epsilon and delta", "tradeoff_bound", accountant, COMPUTED,
              "(exp(epsilon) - 1 + 2 delta) / (exp(epsilon) + 1) (Kairouz et al. 2015, Humphries et al. 2023)", scope),
        entry("Its bound by epsilon", "yeom_bound", accountant, COMPUTED,
              "exp(epsilon) - 1 (Yeom et al. 2018, theorem 1); above 1 it says nothing; it may be too large to write",
              f"delta = 0. {scope}"),
        entry("Right guesses about the differing record", "record.wins", NONE, EXACT,
              "counted; the same rule, threshold from the records that D and D' share", independent),
        entry("Advantage about the differing record", "record.advantage", NONE, POINT,
              "twice the share of right guesses - 1", independent),
        entry("The same, lower end", "record.low", NONE, at, exact, independent),
        entry("The same, upper end", "record.high", NONE, at, exact, independent),
        entry("Its bound, exact", "record.bound", exact_by, COMPUTED,
              "that of the insider (Bernau et al. 2021, proposition 1)", _noise_text(contents.law)),
    ]  # fmt: skip
    return [entry for entry in entries if contents.law.has_noise or "bound" not in entry.name]


def _model(contents: RunContents) -> list[Entry]:
    cut, area = contents.value("epsilon_star", "cut"), contents.value("utility", "test_auroc")
    method = (
        f"Epsilon* of the final release (Negoescu et al. 2023){_at_delta(contents.number('epsilon_star', 'delta'))}"
        + (f", error rates beyond {number_text(cut)} and 1 - {number_text(cut)} left out" if cut else "")
    )
    losses = "losses of members and of a population sample, after a logit transform, are normal"
    return [
        Entry("Epsilon*, mean over worlds (nats)", contents.value("epsilon_star", "mean"), NONE, POINT, method, losses),
        Entry("Epsilon*, largest world (nats)", contents.value("epsilon_star", "max"), NONE,
              "none: an extreme value", method, losses),
        Entry("Delta of Epsilon* (probability)", contents.value("epsilon_star", "delta"), NONE, NONE,
              "chosen before the run", NONE),
        Entry("Test accuracy", contents.value("utility", "test_accuracy"), NONE, POINT,
              "share of right predictions of the final release, mean over worlds",
              "test records were not used in training", True),
        *([] if area is None else [Entry("Test AUROC (probability)", area, NONE, POINT,
              "area under the ROC of the final release, mean over worlds", "test records were not used in training")]),
    ]  # fmt: skip


def _confidence(contents: RunContents) -> str:
    confidence = contents.number("empirical_epsilon", "confidence")
    return MISSING if confidence is None else f"{percent(confidence)} confidence"


def _at_delta(delta: float | None) -> str:
    return "" if delta is None else f", at delta = {delta:g}"


def exact_accountant(law: LawFacts) -> str:
    """Return who accounts for what holds exactly."""
    return "pld" if law.sampling_rate < 1 else "gdp"


def _noise_text(law: LawFacts) -> str:
    text = f"Gaussian noise on the sum, neighbours by {law.relation}"
    if law.sampling_rate < 1:
        text += f", records sampled at rate {law.sampling_rate:g}"
    return text if law.is_private_release else f"{text}; noise follows the data, so for this pair of data sets only"


def _belief_bound_method(accountant: str) -> str:
    if accountant in ("rdp-classic", "rdp"):
        return "prior odds times exp(epsilon of rdp-classic), Eq. (5); passed with probability at most delta"
    return "quantile of the law of the log-odds; passed with probability at most delta"


def _prior_text(contents: RunContents) -> str:
    return f"prior belief {percent(contents.law.prior)}"


def _violations_method(contents: RunContents) -> str:
    delta, worlds = contents.number("guarantee", "delta"), contents.number("insider", "worlds")
    if delta is None or worlds is None:
        return "counted"
    return f"counted; the promise allows {delta * worlds:.3g} on average"
