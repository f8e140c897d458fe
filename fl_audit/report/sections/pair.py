"""What the beliefs say of the audited pair beyond counting: advantage, delta(epsilon) and epsilon with intervals."""

from dataclasses import asdict

from fl_audit.evidence.belief.expected import ASSUMPTION
from fl_audit.evidence.findings.found import finite
from fl_audit.evidence.findings.pair import PairNumbers, measure_pair
from fl_audit.report.finding import Row, RunContents, Section, Table
from fl_audit.report.wording import percent

_BETTING = "betting interval (Waudby-Smith & Ramdas 2024)"


def _rows(numbers: PairNumbers, contents: RunContents) -> list[Row]:
    promise, found, shown = contents.promise, numbers.advantage, numbers.calibration
    basis = f"mean over worlds of the chance to be right that the belief states; {_BETTING}; {ASSUMPTION}"
    rows = [
        Row("Advantage from beliefs", found.mean, basis, found.low, found.high, found.confidence,
            promise.advantage_bound_exact),
        Row("Its standard error", finite(found.standard_error), "spread over worlds, over the root of their number"),
    ]  # fmt: skip
    if (epsilon := numbers.epsilon) is not None:
        basis = f"where delta(epsilon) of the pair is {promise.delta:g}, the larger of both directions; {_BETTING}"
        rows.append(Row("Epsilon of the pair from beliefs (nats)", finite(epsilon.value), basis, finite(epsilon.low),
                        finite(epsilon.high), epsilon.confidence, promise.epsilon))  # fmt: skip
    return [
        *rows,
        Row("Right guesses that the beliefs expect", shown.expected_wins,
            f"sum of the insider's chances; {shown.wins:,} were counted"),
        Row("Counted against expected (p-value)", shown.wins_p_value, "exact, two-sided: Poisson-binomial law"),
        Row("Calibration of the beliefs (p-value)", shown.p_value,
            "smallest p-value of the groups below, times their number: never too small"),
    ]  # fmt: skip


def _tables(numbers: PairNumbers, _: RunContents) -> list[Table]:
    bins = tuple(
        (f"{percent(part.lowest)} to {percent(part.highest)}", part.worlds, part.members, part.mean_belief, part.share,
         part.low, part.high, part.p_value)
        for part in numbers.calibration.bins
    )  # fmt: skip
    at = f"intervals at {percent(numbers.calibration.confidence)} confidence"
    columns = ("Beliefs in D", "Worlds", "D was used in", "Mean belief", "Share", "Lower end", "Upper end", "p-value")
    tables = [Table(f"Of the worlds with such a belief in D, the share that used it ({at})", columns, bins)]
    if numbers.curve:
        points = tuple(tuple(asdict(point).values()) for point in numbers.curve)
        names = ("Epsilon (nats)", "Delta from beliefs", "Lower end", "Upper end", "Counted", "Lower end", "Upper end")
        tables.append(Table(f"delta(epsilon) of the audited pair ({at})", names, points))
    return tables


PAIR = Section(
    name="pair", title="What the beliefs say of the audited pair", numbers=PairNumbers, measure=measure_pair,
    keys=("pair",), trusts=True, rows=_rows, tables=_tables,
)  # fmt: skip
