"""Noise that clients add: what is left of it, and of the promise, where clients tell each other their noise."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_audit.mechanisms.noise import InsideTraining, faced
from fl_audit.mechanisms.standpoint import Place, Standpoint
from fl_audit.privacy.accounting import account
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun, RunFacts
from fl_audit.report.section import Caption, Picture, Section, Table, finite
from fl_audit.report.style import (
    BIT_STYLES,
    INK,
    MUTED,
    add_legend_of,
    finish_axes,
    markers_for,
    report_figure,
    whole_number_axis,
)
from fl_audit.report.wording import number_text, plural

MOST_POINTS = 25
"""With more clients than this, epsilon is worked out for so many numbers of them."""


@dataclass(frozen=True)
class Left:
    """What is left against an adversary.

    Parameters
    ----------
    clients
        Clients who put their noise together, the insider among them; 0 for the server, which knows none.
    noise_multiplier
        The noise multiplier that it faces.
    epsilon
        The epsilon that remains, at the delta of the promise and by its accountant.
    """

    clients: int
    noise_multiplier: float
    epsilon: float

    def to_json(self) -> dict[str, Any]:
        """Return an entry of the list `colluders`."""
        return asdict(self) | {"epsilon": finite(self.epsilon)}


@dataclass(frozen=True)
class ColludersNumbers:
    """What is left against 1 to m - 1 clients, and against the server."""

    groups: tuple[Left, ...]
    server: Left

    def to_json(self) -> dict[str, Any]:
        """Return the entry `colluders`."""
        return {"colluders": {"groups": [one.to_json() for one in self.groups], "server": self.server.to_json()}}


def _measure(run: FinishedRun, _: Findings) -> ColludersNumbers | None:
    facts = run.facts
    law = facts.game.law
    # Noise inside a client's own training protects its records alone: nothing is left of it or taken off it.
    if not facts.has_promise or not law.clients_add_noise or isinstance(law.noise, InsideTraining):
        return None
    most = facts.game.clients - 1
    counts = np.unique(np.linspace(1, most, min(most, MOST_POINTS)).round().astype(int))
    groups = tuple(_left(facts, Standpoint(colluders=int(count) - 1)) for count in counts)
    return ColludersNumbers(groups, _left(facts, Standpoint(Place.SERVER)))


def _left(facts: RunFacts, standpoint: Standpoint) -> Left:
    """Return what is left against whoever looks from a standpoint."""
    promise, law = facts.guarantee, facts.game.law
    assert promise is not None, "what was not promised does not shrink"
    claim = replace(promise.claim, events=law.events(facts.game.rounds, standpoint))
    epsilon = account(claim.profile, claim.accountant, claim.delta)
    return Left(standpoint.known_shares, faced(law.noise, standpoint), epsilon)


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


def _caption(numbers: ColludersNumbers, contents: RunContents) -> Caption:
    facts, alone, most = contents.facts, numbers.groups[0], numbers.groups[-1]
    promise = facts.guarantee
    assert promise is not None, "what was not promised does not shrink"
    text = (
        "Every client knows the noise that it added itself, and clients who trust each other can put theirs together "
        "and subtract it. Above: the noise multiplier that is left; below: the epsilon that this leaves at δ = "
        f"{number_text(promise.delta)}, by {promise.accountant}. A client alone faces {_faced(alone)}, all clients but "
        f"one {_faced(most)}. The dashed line is the honest-but-curious server, {_server_sentence(numbers)}"
    )
    alternative = (
        f"Two falling and rising curves over 1 to {plural(facts.game.clients - 1, 'client')}: noise multiplier and "
        "epsilon, with a line for the server and a mark for the insider of this run."
    )
    return Caption("Noise and promise against clients who collude", text, alternative)


def _faced(left: Left) -> str:
    return f"{number_text(left.noise_multiplier, 3)} (epsilon {number_text(finite(left.epsilon), 3)})"


def _server_sentence(numbers: ColludersNumbers) -> str:
    server = numbers.server
    return (
        f"which sees every contribution by itself, with that client's noise alone on it: noise multiplier "
        f"{number_text(server.noise_multiplier, 3)}, epsilon {number_text(finite(server.epsilon), 3)}."
    )


def colluders_figure(numbers: ColludersNumbers, contents: RunContents) -> Figure:
    """Draw noise multiplier and epsilon over the number of clients who put their noise together."""
    figure = report_figure(5.6)
    upper, lower = figure.subplots(2, 1, sharex=True)
    _draw(upper, numbers, contents, "noise_multiplier")
    _draw(lower, numbers, contents, "epsilon")
    finish_axes(upper, "Noise that is left", "", "Noise multiplier faced")
    promise = contents.facts.guarantee
    assert promise is not None, "what was not promised does not shrink"
    name = "Clients who put their noise together, the insider among them (number)"
    finish_axes(lower, "Promise that is left", name, f"Epsilon (nats)\nat δ = {number_text(promise.delta)}")
    whole_number_axis(lower, 1, contents.facts.game.clients - 1)
    handles, labels = lower.get_legend_handles_labels()
    add_legend_of(lower, handles, labels)
    return figure


def _draw(axes: Axes, numbers: ColludersNumbers, contents: RunContents, field: str) -> None:
    style, known = BIT_STYLES[1], contents.facts.game.standpoint.known_shares
    counts = [one.clients for one in numbers.groups]
    values = [getattr(one, field) for one in numbers.groups]
    axes.plot(counts, values, "-", color=style.colour, linewidth=2, marker=style.marker, **markers_for(len(counts)),
              label="clients who collude")  # fmt: skip
    server = getattr(numbers.server, field)
    axes.axhline(server, color=MUTED, linestyle="--", linewidth=1.8, label="the server, which sees contributions")
    if known:
        here = _left(contents.facts, contents.facts.game.standpoint)
        axes.plot([known], [getattr(here, field)], "D", color=INK, markersize=9, markerfacecolor="none",
                  markeredgewidth=1.8, label="the insider of this run")  # fmt: skip
    axes.set_ylim(bottom=0)


COLLUDERS = Section(
    numbers=ColludersNumbers,
    keys=("colluders",),
    measure=_measure,
    tables=_tables,
    pictures=(Picture("colluders", colluders_figure, _caption),),
)
