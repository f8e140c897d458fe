"""The commands about promises, which need no run: calibrate and account."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fl_audit.errors import InputError
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.calibration import (
    AdvantageTarget,
    BeliefTarget,
    EpsilonTarget,
    Guarantee,
    Target,
    guarantee,
    noise_multiplier_for,
)

DeltaOption = Annotated[float, typer.Option("--delta", metavar="D", help="delta of (epsilon, delta)-DP, in (0, 1).")]
RoundsOption = Annotated[int, typer.Option("--rounds", metavar="K", help="Number of releases, at least 1.")]
RateOption = Annotated[
    float, typer.Option("--sampling-rate", metavar="Q", help="Poisson sampling rate of records, in (0, 1].")
]
AccountantOption = Annotated[
    str | None, typer.Option("--accountant", metavar="NAME", help=f"One of {', '.join(Accountant)}; default: all.")
]
PriorOption = Annotated[float, typer.Option("--prior", metavar="P", help="The insider's prior belief, in (0, 1).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw epsilon, belief and advantage to a PNG, PDF or SVG.")
]


@dataclass(frozen=True)
class Row:
    """What one accountant says, or why it says nothing."""

    accountant: Accountant
    promise: Guarantee | None
    refusal: str = ""


def calibrate(
    delta: DeltaOption,
    rounds: RoundsOption,
    belief: Annotated[float | None, typer.Option("--belief", metavar="P", help="Largest belief, in (0.5, 1).")] = None,
    advantage: Annotated[
        float | None, typer.Option("--advantage", metavar="A", help="Largest advantage, in (0, 1).")
    ] = None,
    epsilon: Annotated[float | None, typer.Option("--epsilon", metavar="E", help="Largest epsilon, positive.")] = None,
    sampling_rate: RateOption = 1.0,
    accountant: AccountantOption = None,
    prior: PriorOption = 0.5,
    as_json: JsonOption = False,
    plot: PlotOption = None,
) -> None:
    """Find the noise that a promise needs: exactly one of --belief, --advantage and --epsilon."""
    target = _target(belief, advantage, epsilon)

    def promised(name: Accountant) -> Guarantee:
        noise = noise_multiplier_for(target, name, rounds, delta, prior, sampling_rate)
        return guarantee(name, noise, rounds, delta, prior, sampling_rate)

    rows = _rows(accountant, promised)
    best = min((row.promise for row in rows if row.promise), key=lambda promise: promise.noise_multiplier)
    _print(rows, best, as_json, f"noise for {_said(target)} at delta {delta:g} over {rounds} rounds", saving=True)
    _draw(plot, best, sampling_rate, as_json)


def account(
    noise_multiplier: Annotated[
        float, typer.Option("--noise-multiplier", metavar="Z", help="Noise over sensitivity, positive.")
    ],
    delta: DeltaOption,
    rounds: RoundsOption,
    sampling_rate: RateOption = 1.0,
    accountant: AccountantOption = None,
    prior: PriorOption = 0.5,
    as_json: JsonOption = False,
    plot: PlotOption = None,
) -> None:
    """Say what a noise multiplier promises."""

    def promised(name: Accountant) -> Guarantee:
        return guarantee(name, noise_multiplier, rounds, delta, prior, sampling_rate)

    rows = _rows(accountant, promised)
    best = min((row.promise for row in rows if row.promise), key=lambda promise: promise.epsilon)
    title = f"what noise multiplier {noise_multiplier:g} promises at delta {delta:g} over {rounds} rounds"
    _print(rows, best, as_json, title, saving=False)
    _draw(plot, best, sampling_rate, as_json)


def _target(belief: float | None, advantage: float | None, epsilon: float | None) -> Target:
    given = {"--belief": belief, "--advantage": advantage, "--epsilon": epsilon}
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        raise InputError(f"{' and '.join(named) or 'no target'} given: accepted is exactly one of {', '.join(given)}")
    if belief is not None:
        return BeliefTarget(belief)
    if advantage is not None:
        return AdvantageTarget(advantage)
    assert epsilon is not None
    return EpsilonTarget(epsilon)


def _said(target: Target) -> str:
    match target:
        case BeliefTarget(belief):
            return f"a belief of at most {belief:g}"
        case AdvantageTarget(advantage):
            return f"an advantage of at most {advantage:g}"
        case EpsilonTarget(epsilon):
            return f"epsilon of at most {epsilon:g}"
        case _:
            return "a noise multiplier"


def _rows(accountant: str | None, promised: Any) -> list[Row]:
    """Ask one accountant, whose refusal is an error, or all, whose refusals are rows."""
    if accountant is not None:
        if accountant not in list(Accountant):
            raise InputError(f"--accountant {accountant!r}: accepted are {', '.join(Accountant)}")
        return [Row(Accountant(accountant), promised(Accountant(accountant)))]
    rows = []
    for name in Accountant:
        try:
            rows.append(Row(name, promised(name)))
        except InputError as error:
            rows.append(Row(name, None, str(error)))
    if all(row.promise is None for row in rows):
        raise InputError(rows[0].refusal)
    return rows


def _print(rows: list[Row], best: Guarantee, as_json: bool, title: str, saving: bool) -> None:
    if as_json:
        print(json.dumps(promise_json(best), allow_nan=False))
        return
    table = Table(title=title)
    for column in ("accountant", "noise multiplier", "epsilon", "belief at most", "advantage at most"):
        table.add_column(column, justify="left" if column == "accountant" else "right")
    if saving:
        table.add_column("noise saved", justify="right")
    most = max(row.promise.noise_multiplier for row in rows if row.promise)
    for row in rows:
        if row.promise is None:
            table.add_row(str(row.accountant), "-", "-", "-", "-", *(["-"] if saving else []))
            continue
        promise = row.promise
        cells = [
            f"{promise.noise_multiplier:.6g}",
            f"{promise.epsilon:.6g}",
            f"{promise.belief_bound:.4f}",
            f"{promise.advantage_bound_exact:.4f}",
        ]
        saved = [f"{1 - promise.noise_multiplier / most:.1%}"] if saving else []
        table.add_row(str(row.accountant), *cells, *saved)
    console = Console()
    console.print(table)
    for row in rows:
        if row.promise is None:
            console.print(f"{row.accountant}: {row.refusal}", highlight=False)


def promise_json(promise: Guarantee) -> dict[str, Any]:
    """Return a promise under the names of the command line's JSON."""
    return {
        "epsilon": promise.epsilon if math.isfinite(promise.epsilon) else None,
        "delta": promise.delta,
        "noise_multiplier": promise.noise_multiplier,
        "rounds": promise.rounds,
        "sampling_rate": promise.sampling_rate,
        "accountant": str(promise.accountant),
        "advantage": promise.advantage_bound_exact,
        "belief": promise.belief_bound,
    }


def _draw(plot: Path | None, promise: Guarantee, sampling_rate: float, as_json: bool) -> None:
    if plot is None:
        return
    from fl_audit.report.promise_figure import draw_promise

    draw_promise(promise, plot)
    if not as_json:
        print(f"figure: {plot}")
