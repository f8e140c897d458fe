"""Noise that clients add: what is left of it, and of the promise, where clients tell each other their noise."""

from dataclasses import asdict

from matplotlib.figure import Figure

from fl_audit.evidence.findings.colluders import ColludersNumbers, Left, measure_colluders
from fl_audit.evidence.findings.found import finite
from fl_audit.report.finding import Picture, RunContents, Section, Table
from fl_audit.report.style import (
    BIT_STYLES,
    INK,
    MUTED,
    add_legend,
    finish_axes,
    markers_for,
    report_figure,
    whole_number_axis,
)
from fl_audit.report.wording import number_text


def _sentence(numbers: ColludersNumbers, _: RunContents) -> str:
    alone, most, server = (_faced(one) for one in (numbers.groups[0], numbers.groups[-1], numbers.server))
    return (
        "Every client knows the noise that it added itself, and clients who trust each other can put theirs together "
        f"and subtract it. A client alone faces a noise multiplier of {alone}, all clients but one {most}; the "
        f"honest-but-curious server, which sees every contribution by itself, {server}."
    )


def _faced(left: Left) -> str:
    return f"{number_text(left.noise_multiplier, 3)} (epsilon {number_text(finite(left.epsilon), 3)})"


def _tables(numbers: ColludersNumbers, contents: RunContents) -> list[Table]:
    promise = contents.facts.guarantee
    assert promise is not None, "what was not promised does not shrink"
    epsilon = f"Epsilon at delta {promise.delta:g} ({promise.accountant}, nats)"
    columns = ("Who knows a part of the noise", "Noise multiplier faced", epsilon)
    rows = [(_name(one.clients), one.noise_multiplier, finite(one.epsilon)) for one in numbers.groups]
    server = ("the server, which sees every contribution by itself", *list(asdict(numbers.server).values())[1:])
    title = "What is left of noise that clients add, where clients tell each other theirs"
    return [Table(title, columns, (*rows, server))]


def _name(clients: int) -> str:
    return "a client alone, its own" if clients == 1 else f"{clients:,} clients together"


def _caption(_: ColludersNumbers, contents: RunContents) -> str:
    promise = contents.facts.guarantee
    assert promise is not None, "what was not promised does not shrink"
    return (
        f"The epsilon that is left at δ = {number_text(promise.delta)}, by {promise.accountant}, against clients who "
        "subtract their own noise, and against the server."
    )


def colluders_figure(numbers: ColludersNumbers, contents: RunContents) -> Figure:
    """Draw the epsilon that is left over the number of clients who put their noise together."""
    figure, style, promise = report_figure(3.6), BIT_STYLES[1], contents.facts.guarantee
    assert promise is not None, "what was not promised does not shrink"
    axes = figure.add_subplot()
    counts = [one.clients for one in numbers.groups]
    epsilons = [one.epsilon for one in numbers.groups]
    axes.plot(counts, epsilons, "-", color=style.colour, linewidth=2, marker=style.marker, **markers_for(len(counts)),
              label="clients who collude")  # fmt: skip
    axes.axhline(numbers.server.epsilon, color=MUTED, linestyle="--", linewidth=1.8, label="the server")
    if numbers.here.clients:
        axes.plot([numbers.here.clients], [numbers.here.epsilon], "D", color=INK, markersize=9, markerfacecolor="none",
                  markeredgewidth=1.8, label="the insider of this run")  # fmt: skip
    axes.set_ylim(bottom=0)
    whole_number_axis(axes, 1, contents.facts.game.clients - 1)
    name = "Clients who put their noise together, the insider among them (number)"
    finish_axes(axes, "Promise that is left", name, f"Epsilon (nats)\nat δ = {number_text(promise.delta)}")
    add_legend(axes)
    return figure


COLLUDERS = Section(
    name="colluders",
    title="What clients who collude take off the promise",
    numbers=ColludersNumbers,
    measure=measure_colluders,
    keys=("colluders",),
    sentence=_sentence,
    tables=_tables,
    picture=Picture("Promise against clients who collude", colluders_figure, _caption),
)
