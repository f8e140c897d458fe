"""A run in a few lines on the terminal."""

from rich.table import Table
from rich.text import Text

from fl_audit.report.finding import RunContents
from fl_audit.report.page.first_screen import facts_of, next_step, warnings_of
from fl_audit.report.sections.registry import page_rows
from fl_audit.report.sections.verdict import banner
from fl_audit.report.wording import finding_text
from fl_audit.user_modules import title_of_named

_WIDEST_NAME = 30


def summary_table(contents: RunContents) -> Table:
    """Return a table for the terminal: the verdict, what to do next, and the numbers of the report's page."""
    game, words, warnings = contents.facts.game, banner(contents), warnings_of(contents)
    title = Text(f"{game.data.title}, {title_of_named(game.model)}: {contents.run.worlds:,} x {game.rounds} rounds")
    table = Table(title=title, show_header=False, caption=Text("\n".join(warnings)) if warnings else None)
    table.add_column("what", style="bold", max_width=_WIDEST_NAME)
    table.add_column("finding")
    *_, style = words.look.value
    table.add_row(Text("Verdict"), Text(words.word, style=style).append(f". {words.line}", style="not bold default"))
    table.add_row(Text("Next"), Text(next_step(contents)))
    table.add_section()
    for fact in facts_of(contents):
        table.add_row(Text(fact.name), Text(f"{fact.value}, {fact.note}"))
    table.add_section()
    for row in page_rows(contents):
        table.add_row(Text(row.name), Text(finding_text(row.to_json())))
    return table
