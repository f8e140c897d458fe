"""The report section on the audited pair D and D': estimates from the insider's beliefs, and their calibration."""

from dataclasses import asdict
from functools import partial

from fl_audit.array_types import finite
from fl_audit.audits.identifiability.estimates_from_beliefs import ASSUMPTION
from fl_audit.audits.identifiability.findings_estimates_from_beliefs import (  # fmt: skip
    EstimatesFromBeliefsFinding,
    advantage_of_beliefs,
    epsilon_of_beliefs,
    measure_pair,
)
from fl_audit.report.formatting import percent
from fl_audit.report.report_elements import ReportContents, ReportNumber, Section, Table

_BETTING = "betting interval (Waudby-Smith & Ramdas 2024)"


def _rows(numbers: EstimatesFromBeliefsFinding, contents: ReportContents) -> list[ReportNumber]:
    guarantee, found, shown = contents.guarantee, numbers.advantage, numbers.calibration
    basis = f"mean over trials of the chance to be right that the belief states; {_BETTING}; {ASSUMPTION}"
    rows = [
        ReportNumber(
            "Advantage from beliefs",
            found.mean,
            basis,
            found.low,
            found.high,
            found.confidence,
            guarantee.advantage_bound_exact,
            largest=1.0,
            wide=partial(advantage_of_beliefs, contents.run),
        ),
        ReportNumber(
            "Its standard error", finite(found.standard_error), "spread over trials, over the root of their number"
        ),
    ]
    if (epsilon := numbers.epsilon) is not None:
        basis = f"where delta(epsilon) of the pair is {guarantee.delta:g}, the larger of both directions; {_BETTING}"
        rows.append(
            ReportNumber(
                "Epsilon of the pair from beliefs (nats)",
                finite(epsilon.value),
                basis,
                finite(epsilon.low),
                finite(epsilon.high),
                epsilon.confidence,
                guarantee.epsilon,
                wide=partial(epsilon_of_beliefs, contents.run),
            )
        )
    return [
        *rows,
        ReportNumber("Right guesses that the beliefs expect", shown.expected_wins,
            f"sum of the insider's chances; {shown.wins:,} were counted"),
        ReportNumber("Counted against expected (p-value)", shown.wins_p_value,
            "exact, two-sided: Poisson-binomial distribution"),
        ReportNumber("Calibration of the beliefs (p-value)", shown.p_value,
            "smallest p-value of the groups below, times their number: never too small"),
    ]  # fmt: skip


def _tables(numbers: EstimatesFromBeliefsFinding, _: ReportContents) -> list[Table]:
    bins = tuple(
        (f"{percent(part.lowest)} to {percent(part.highest)}", part.trials, part.members, part.mean_belief, part.share,
         part.low, part.high, part.p_value)
        for part in numbers.calibration.bins
    )  # fmt: skip
    at = f"intervals at {percent(numbers.calibration.confidence)} confidence"
    columns = ("Beliefs in D", "Trials", "D was used in", "Mean belief", "Share", "Lower end", "Upper end", "p-value")
    tables = [Table(f"Of the trials with such a belief in D, the share that used it ({at})", columns, bins)]
    if numbers.curve:
        points = tuple(tuple(asdict(point).values()) for point in numbers.curve)
        names = ("Epsilon (nats)", "Delta from beliefs", "Lower end", "Upper end", "Counted", "Lower end", "Upper end")
        tables.append(Table(f"delta(epsilon) of the audited pair ({at})", names, points))
    return tables


PAIR = Section(
    "pair", "What the beliefs say of the audited pair", EstimatesFromBeliefsFinding, measure_pair, keys=("pair",),
    trusts=True, rows=_rows, tables=_tables,
)  # fmt: skip
