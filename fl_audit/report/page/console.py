"""A run in a few lines on the terminal."""

from typing import assert_never

from rich.table import Table
from rich.text import Text

from fl_audit.evidence.belief.verdict import Verdict
from fl_audit.report.finding import RunContents
from fl_audit.report.headline import next_step, warnings_of
from fl_audit.report.sections.registry import SECTIONS
from fl_audit.report.sections.verdict import banner, verdict_of

UNMEASURED = "not measured"


def summary_table(contents: RunContents) -> Table:
    """Return a short table for the terminal: the verdict and what to do next, then a line for each finding."""
    game = contents.facts.game
    warnings = warnings_of(contents)
    title = Text(f"{game.data.name}, {game.model}: {contents.run.worlds:,} x {game.rounds} rounds")
    table = Table(title=title, show_header=False, caption=Text("\n".join(warnings)) if warnings else None)
    table.add_column("what", style="bold", no_wrap=True)
    table.add_column("finding")
    words, verdict = banner(contents), verdict_of(contents).verdict
    text = Text(words.word, style=_style(verdict)).append(f". {words.line}", style="not bold default")
    table.add_row(Text("Verdict"), text)
    table.add_row(Text("Next"), Text(next_step(contents)))
    table.add_section()
    for name, finding in _lines(contents):
        table.add_row(Text(name), Text(finding))
    return table


def _lines(contents: RunContents) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for section in SECTIONS:
        numbers = contents.find(section.numbers)
        if numbers is None and section.belongs(contents.facts):
            lines.append((section.title.removeprefix("The ").split(" ")[0].capitalize(), UNMEASURED))
        elif numbers is not None and section.console is not None:
            lines.extend(section.console(numbers, contents))
    return lines


def _style(verdict: Verdict) -> str:
    match verdict:
        case Verdict.VIOLATED:
            return "bold red"
        case Verdict.CONSISTENT:
            return "bold green"
        case Verdict.INCONCLUSIVE | Verdict.NOT_AUDITED | Verdict.NO_PROMISE:
            return "bold bright_black"
        case _:
            assert_never(verdict)
