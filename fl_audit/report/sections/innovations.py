"""The innovations: whether every step of the insider's log-odds obeys its exact law, N(0, 1) and independent."""

from fl_audit.evidence.belief.laws import SMALLEST_SIGNAL
from fl_audit.evidence.findings.insider import InnovationNumbers, measure_innovations
from fl_audit.report.finding import RunContents, Section, Table
from fl_audit.report.wording import plural


def _sentence(numbers: InnovationNumbers, contents: RunContents) -> str:
    check = numbers.check
    what = (
        "One innovation is one round's step of the log-odds, less what the law expects, in units of its spread."
        if contents.run.scores is None
        else "A round's step of the log-odds is no normal number here, so the noise itself stands in for it."
    )
    left = ""
    if check.left_out:
        left = (
            f" Of {plural(check.rounds, 'round')} of all worlds, {check.left_out:,} "
            f"{'was' if check.left_out == 1 else 'were'} left out: there D and D' differed by less than "
            f"{SMALLEST_SIGNAL:g} of the noise."
        )
    return f"{what} They must be independent N(0, 1): the law {'holds' if check.holds else 'does NOT hold'}.{left}"


def _tables(numbers: InnovationNumbers, _: RunContents) -> list[Table]:
    columns = ("Worlds", "Count", "Mean (law: 0)", "Variance (law: 1)", "Serial correlation (law: 0)",
               "p-value, Kolmogorov-Smirnov")  # fmt: skip
    rows = tuple(
        (f"b = {bit}", group.count, group.mean, group.variance, group.serial_correlation, group.ks_p_value)
        for bit, group in numbers.groups
    )
    return [Table("Innovations against independent N(0, 1)", columns, rows)]


INNOVATIONS = Section(
    name="innovations", title="Whether every step of the evidence follows its law", numbers=InnovationNumbers,
    measure=measure_innovations, keys=("innovations",), sentence=_sentence, tables=_tables,
)  # fmt: skip
