"""The command for an auditor who has losses and nothing else: epsilon-star."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.cli.evidence import read_numbers
from experiments.cli.options import JsonOption, among
from fl_audit.errors import InputError
from fl_audit.evidence.star.methods import StarMethod

if TYPE_CHECKING:
    from fl_audit.evidence.star.star_estimate import StarEstimate


def epsilon_star(
    members: Annotated[Path, typer.Argument(metavar="MEMBERS", help="Losses on members: one a line, or .npy.")],
    population: Annotated[Path, typer.Argument(metavar="POPULATION", help="Losses on a population sample, likewise.")],
    delta: Annotated[float, typer.Option("--delta", metavar="D", help="delta of Epsilon*, in [0, 1).")],
    method: Annotated[
        str,
        typer.Option(
            "--method", metavar="NAME", help=f"One of {', '.join(StarMethod)}.", autocompletion=among(StarMethod)
        ),
    ] = StarMethod.PARAMETRIC.value,
    confidence: Annotated[float, typer.Option("--confidence", metavar="P", help="Of the interval, in (0, 1).")] = 0.95,
    cut: Annotated[
        float | None,
        typer.Option(
            "--cut",
            metavar="C",
            help="Leave out error rates beyond C and 1 - C.  [default: 0.001 empirical, else 1e-6]",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of bootstrap and mixtures.")] = 0,
    as_json: JsonOption = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Draw densities, ROC and epsilon over thresholds: PNG, PDF or SVG."
        ),
    ] = None,
) -> None:
    """Measure the privacy risk of one model from its losses: Epsilon* of Negoescu et al. 2023."""
    import numpy as np

    from experiments.runs.progress import at_work
    from fl_audit.evidence.star.star_estimate import estimate_epsilon_star

    if method not in list(StarMethod):
        raise InputError(f"--method {method!r}: accepted are {', '.join(StarMethod)}")
    if seed < 0:
        raise InputError(f"--seed {seed}: accepted are whole numbers from 0")
    if plot is not None:
        from experiments.figures.paths import require_figure_path

        require_figure_path(plot)
    member_losses, population_losses = read_numbers(members), read_numbers(population)
    with at_work(f"fitting, {member_losses.size + population_losses.size} losses"):
        found = estimate_epsilon_star(
            member_losses, population_losses, delta, np.random.default_rng(seed), StarMethod(method), confidence, cut
        )
    if plot is not None:
        from experiments.figures.epsilon_star import draw_epsilon_star

        draw_epsilon_star(found, member_losses, population_losses, plot)
    if as_json:
        print(json.dumps(estimate_json(found), allow_nan=False))
        return
    _print(found)
    if plot is not None:
        print(f"figure: {plot}")


def estimate_json(found: "StarEstimate") -> dict[str, Any]:
    """Return an estimate under the names of the command line's JSON; infinite numbers are null."""
    attacks = found.attacks
    return {
        "epsilon_star": _finite(found.epsilon_star),
        "unbounded": math.isinf(found.epsilon_star),
        "delta": found.delta,
        "method": str(found.method),
        "interval": [_finite(end) for end in found.interval],
        "confidence": found.confidence,
        "cut": found.cut,
        "epsilon_star_within_cut": _finite(found.epsilon_star_within_cut),
        "members": found.members,
        "population": found.population,
        "components": None if found.laws is None else [law.components for law in found.laws],
        "attacks": {
            "auc": float(attacks.auc),
            "tpr_at_fpr_0.001": float(attacks.tpr_at_fpr_0001),
            "tpr_at_fpr_0.01": float(attacks.tpr_at_fpr_001),
            "yeom_advantage": float(attacks.yeom_advantage),
            "loss_gap": float(attacks.loss_gap),
        },
        "warnings": list(found.warnings),
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _said(number: float) -> str:
    return f"{number:.4g}" if math.isfinite(number) else "unbounded"


def _print(found: "StarEstimate") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"{found.members} losses of members, {found.population} of the population, delta {found.delta:g}"
    )
    table.add_column("number")
    table.add_column("value", justify="right")
    low, high = found.interval
    attacks = found.attacks
    for name, value in (
        (f"Epsilon* ({found.method}), nats", _said(found.epsilon_star)),
        (found.interval_name, f"{_said(low)} to {_said(high)}"),
        (f"Epsilon* for error rates from {found.cut:g} to 1 - {found.cut:g}", _said(found.epsilon_star_within_cut)),
        ("AUC of the loss threshold attack", f"{attacks.auc:.4f}"),
        ("TPR at FPR 0.1 %", f"{attacks.tpr_at_fpr_0001:.4f}"),
        ("TPR at FPR 1 %", f"{attacks.tpr_at_fpr_001:.4f}"),
        ("Yeom advantage", f"{attacks.yeom_advantage:.4f}"),
        ("mean loss, population less members", f"{attacks.loss_gap:.4g}"),
    ):
        table.add_row(name, value)
    console = Console()
    console.print(table)
    for warning in found.warnings:
        console.print(f"warning: {warning}", highlight=False, markup=False)
