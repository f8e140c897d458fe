"""Empirical epsilon: the paper's three estimates, and lower bounds that hold with a stated confidence."""

import math

from fl_audit.evidence.belief.empirical_epsilon import EpsilonInterval
from fl_audit.evidence.belief.family import TestName
from fl_audit.evidence.belief.verdict import Judgement
from fl_audit.evidence.bounds.lower_bounds import LowerBound
from fl_audit.evidence.bounds.methods import BoundMethod
from fl_audit.evidence.findings.empirical_epsilon import EmpiricalNumbers, measure_empirical
from fl_audit.evidence.findings.found import finite
from fl_audit.report.finding import Row, RunContents, Section, Table
from fl_audit.report.sections.promise import at_delta
from fl_audit.report.sections.verdict import verdict_of
from fl_audit.report.tests_table import title_of
from fl_audit.report.units import UnitWords
from fl_audit.report.wording import DASH, number_text, percent, uncapital


def _method(decisive: Judgement, words: UnitWords) -> str:
    """Return the name of the method in words, where it is that of a test."""
    is_test = decisive.method in set(TestName)
    return f"the {uncapital(title_of(TestName(decisive.method), words))}" if is_test else decisive.method


def _detectable(contents: RunContents) -> str:
    """Return the limit of detection with the level that it belongs to, which is not that of the lower bound."""
    decisive = verdict_of(contents).judged
    level = f"level {number_text(decisive.level_of_limit)}"
    if not math.isfinite(decisive.limit_of_detection):
        return (
            f"where the {contents.words.one} is hidden nothing could have been found at {level}, since D and D' hardly "
            "differed"
        )
    found = number_text(decisive.limit_of_detection, 3)
    return f"noise that leaves epsilon {found} would have been found in 9 of 10 runs at {level}"


def _rows(numbers: EmpiricalNumbers, contents: RunContents) -> list[Row]:
    promise, decisive = contents.promise, numbers.decisive
    delta, level = at_delta(promise.delta), decisive.level
    by = f"{_method(decisive, contents.words)}{delta}. {decisive.assumption}"
    advantage = f"section 5.3 (iii): Eq. (6) turned round{delta}, of noise calibrated by the classic formula"
    rows = [
        Row("Epsilon shown at least (nats)", finite(decisive.epsilon_lower_bound),
            f"lower bound, holds at {percent(decisive.confidence)} confidence, by {by}", limit=promise.epsilon,
            low=finite(decisive.epsilon_lower_bound_at_level), on_page=True),
        Row("The same at the level of the verdict (nats)", finite(decisive.epsilon_lower_bound_at_level),
            f"holds at {percent(1 - level)} confidence, likewise", limit=promise.epsilon),
        Row("Level of the verdict (probability)", level, "of all tests together, fixed before the run"),
        Row("Limit of detection (nats)", finite(decisive.limit_of_detection), f"{_detectable(contents)}, by {by}"),
        _estimate("From the largest belief (nats)", numbers.from_belief,
                  "section 5.3 (ii): Eq. (5) turned round; an extreme value that grows with the number of worlds"),
        _estimate("From the advantage (nats)", numbers.from_advantage, advantage, promise.epsilon),
    ]  # fmt: skip
    if (found := numbers.from_sensitivity) is not None:
        method = f"section 5.3 (i): sensitivities over the noise that the law names{delta}, by {promise.accountant}"
        rows.append(_estimate("From sensitivities (nats)", found, f"{method}; tests the bookkeeping"))
    return rows


def _estimate(name: str, found: EpsilonInterval, basis: str, limit: float | None = None) -> Row:
    """Return one of the paper's estimates with its interval; over all worlds where that has no confidence."""
    over = "; ends over the worlds" if found.confidence == 1 else ""
    return Row(
        name, finite(found.epsilon), f"{basis}{over}", finite(found.low), finite(found.high), found.confidence, limit
    )


def _tables(numbers: EmpiricalNumbers, _: RunContents) -> list[Table]:
    if not numbers.bounds:
        return []
    columns = ("Method", "Epsilon at least (nats)", "Confidence", "Would be found from (nats)",
               "Could be shown up to (nats)", "Assumption")  # fmt: skip
    rows = tuple(
        (str(bound.method), finite(bound.epsilon),
         f"{percent(bound.confidence) if bound.method.has_confidence else 'none'}, at delta = {bound.delta:g}",
         *_limits(bound), " ".join([bound.assumption, *bound.warnings]))
        for bound in numbers.bounds
    )  # fmt: skip
    return [Table("Lower bounds on epsilon by every method that applies", columns, rows)]


def _limits(bound: LowerBound) -> tuple[float | str | None, float | str | None]:
    """Return from where a breach would be found, and up to where one could be shown: a method has one of the two."""
    limit = finite(bound.limit_of_detection)
    return (limit, DASH) if bound.method is BoundMethod.GAUSSIAN_SHIFT else (DASH, limit)


EMPIRICAL_EPSILON = Section(
    name="empirical-epsilon", title="The epsilon that the run shows", numbers=EmpiricalNumbers,
    measure=measure_empirical, keys=("empirical_epsilon",), rows=_rows, tables=_tables,
)  # fmt: skip
