"""Report section on the test of the innovations, the standardised increments of the insider's log-odds."""

from fl_audit.audits.identifiability import findings_insider as evidence
from fl_audit.report.report_elements import ReportContents, Section, Table
from fl_audit.verdict.log_odds_innovations import SMALLEST_SIGNAL
from fl_audit.words import number_text, plural


def _innovations_sentence(finding: evidence.LlrIncrementTestFinding, contents: ReportContents) -> str:
    check = finding.check
    subject = (
        "One innovation is one round's step of the log-odds, less what the distribution expects, in units of its "
        "spread."
        if contents.run.scores is None
        else "A round's step of the log-odds is not normal here, so the noise itself stands in for it."
    )
    text = (
        f"{subject} They must be independent N(0, 1): {'nothing contradicts that' if check.holds else 'they are NOT'}."
    )
    if not check.left_out:
        return text
    return (
        f"{text} Of {plural(check.rounds, 'round')} of all trials, {check.left_out:,} "
        f"{'was' if check.left_out == 1 else 'were'} left out: there D and D' differed by less than "
        f"{number_text(SMALLEST_SIGNAL)} of the noise."
    )


def _innovations_tables(finding: evidence.LlrIncrementTestFinding, _: ReportContents) -> list[Table]:
    columns = (
        "Trials",
        "Count",
        "Mean (distribution: 0)",
        "Variance (distribution: 1)",
        "Serial correlation (distribution: 0)",
        "p-value, Kolmogorov-Smirnov",
    )
    rows = tuple(
        (f"b = {bit}", statistics.count, *numbers_of_test)
        if statistics.count
        else (f"b = {bit}", 0, *[None] * len(numbers_of_test))
        for bit, statistics in finding.groups
        for numbers_of_test in (
            (statistics.mean, statistics.variance, statistics.serial_correlation, statistics.ks_p_value),
        )
    )
    return [Table("Innovations against independent N(0, 1)", columns, rows)]


INNOVATIONS = Section(
    "innovations",
    "Whether every step of the evidence follows its distribution",
    evidence.LlrIncrementTestFinding,
    evidence.measure_innovations,
    keys=("innovations",),
    sentence=_innovations_sentence,
    tables=_innovations_tables,
)
