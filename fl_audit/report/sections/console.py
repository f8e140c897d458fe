"""A run in a few lines on the terminal."""

from rich.table import Table
from rich.text import Text

from fl_audit.report.contents import RunContents
from fl_audit.report.sections.narrative import banner, not_private_label
from fl_audit.report.wording import MISSING, number_text, percent, whole


def summary_table(contents: RunContents) -> Table:
    """Return a short table for the terminal: promise, insider, membership, evidence, Epsilon*, accuracy, verdict."""
    law = contents.law
    caption = not_private_label(law)
    title = Text(f"{law.data_name}, {law.model}: {len(contents.worlds):,} x {law.rounds} rounds")
    table = Table(title=title, show_header=False, caption=Text(caption) if caption else None)
    table.add_column("what", style="bold", no_wrap=True)
    table.add_column("finding")
    for name, finding in _rows(contents):
        table.add_row(Text(name), Text(finding))
    word, line = banner(contents)
    table.add_section()
    style = "bold red" if word == "Violated" else "bold green" if word == "Consistent" else "bold"
    table.add_row(Text("Verdict"), Text(word, style=style).append(f". {line}", style="not bold default"))
    return table


def _rows(contents: RunContents) -> list[tuple[str, str]]:
    rows = [
        ("Promise", _promise(contents)),
        ("Insider", _insider(contents)),
        ("Membership", _membership(contents)),
        ("Evidence", _evidence(contents)),
        ("Epsilon*", _epsilon_star(contents)),
        ("Accuracy", f"{percent(contents.number('utility', 'test_accuracy'))} on test records"),
    ]
    return [row for row in rows if contents.has_insider or row[0] not in ("Insider", "Evidence")]


def _promise(contents: RunContents) -> str:
    if not contents.law.has_noise:
        return "none: no clipping, no noise"
    epsilon, delta, bound = (contents.number("guarantee", key) for key in ("epsilon", "delta", "belief_bound"))
    accountant = contents.value("guarantee", "accountant") or MISSING
    return (
        f"belief at most {percent(bound)} (but for {percent(delta)}); epsilon {number_text(epsilon)} "
        f"at delta {number_text(delta)} by {accountant}"
    )


def _insider(contents: RunContents) -> str:
    worlds, wins, beyond = (whole(contents.number("insider", key)) for key in ("worlds", "wins", "belief_violations"))
    return (
        f"right in {number_text(wins)} of {number_text(worlds)}; largest belief "
        f"{percent(contents.number('insider', 'max_belief'))}; {number_text(beyond)} beyond the bound"
    )


def _membership(contents: RunContents) -> str:
    if not contents.has_membership:
        return MISSING
    value, low, high, record = (
        number_text(contents.number("membership", *keys), 3)
        for keys in (("advantage",), ("low",), ("high",), ("record", "advantage"))
    )
    text = f"advantage {value} ({low} to {high}); about the differing record {record}"
    if not contents.has_insider:
        return text
    insider = number_text(contents.number("insider", "advantage"), 3)
    return f"advantage {value} ({low} to {high}); about the insider's record {record}, the insider {insider}"


def _evidence(contents: RunContents) -> str:
    bound = contents.number("empirical_epsilon", "lower_bound")
    if bound is None:
        return "no lower bound on epsilon"
    confidence = percent(contents.number("empirical_epsilon", "confidence"))
    method = contents.value("empirical_epsilon", "method") or MISSING
    limit = number_text(contents.number("empirical_epsilon", "limit_of_detection"))
    return f"epsilon at least {number_text(bound)} at {confidence} confidence by {method}; limit of detection {limit}"


def _epsilon_star(contents: RunContents) -> str:
    mean, largest, delta = (contents.number("epsilon_star", key) for key in ("mean", "max", "delta"))
    if mean is None:
        return MISSING
    return f"{number_text(mean)} on average, {number_text(largest)} at most, at delta {number_text(delta)}"
