"""The command for an auditor who has losses and nothing else: epsilon-star."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from experiments.cli.evidence import read_numbers
from experiments.cli.options import JsonOption, argument, option, print_json, print_table
from fl_audit.errors import InputError
from fl_audit.evidence.star.methods import StarMethod

if TYPE_CHECKING:
    from fl_audit.evidence.star.star_estimate import StarEstimate


def epsilon_star(
    members: Annotated[Path, argument("MEMBERS", "Losses on members: one a line, or .npy.")],
    population: Annotated[Path, argument("POPULATION", "Losses on a population sample, likewise.")],
    delta: Annotated[float, option("--delta", "D", "delta of Epsilon*, in [0, 1).")],
    method: Annotated[
        str, option("--method", "NAME", f"One of {', '.join(StarMethod)}.", among=StarMethod)
    ] = StarMethod.PARAMETRIC.value,
    confidence: Annotated[float, option("--confidence", "P", "Of the interval, in (0, 1).")] = 0.95,
    cut: Annotated[
        float | None,
        option("--cut", "C", "Leave out error rates beyond C and 1 - C.  [default: 0.001 empirical, else 1e-6]"),
    ] = None,
    seed: Annotated[int, option("--seed", "N", "Seed of bootstrap and mixtures.")] = 0,
    as_json: JsonOption = False,
    plot: Annotated[
        Path | None, option("--plot", "FILE", "Draw densities, ROC and epsilon over thresholds: PNG, PDF or SVG.")
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
        from experiments.figures.epsilon_star import epsilon_star_figure
        from experiments.figures.paths import save_figure

        save_figure(epsilon_star_figure(found, member_losses, population_losses), plot, dpi=150)
    if as_json:
        print_json(_estimate_json(found))
        return
    _print(found)
    if plot is not None:
        print(f"figure: {plot}")


def _estimate_json(found: "StarEstimate") -> dict[str, Any]:
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
    (low, high), attacks = found.interval, found.attacks
    rows = (
        (f"Epsilon* ({found.method}), nats", _said(found.epsilon_star)),
        (found.interval_name, f"{_said(low)} to {_said(high)}"),
        (f"Epsilon* for error rates from {found.cut:g} to 1 - {found.cut:g}", _said(found.epsilon_star_within_cut)),
        ("AUC of the loss threshold attack", f"{attacks.auc:.4f}"),
        ("TPR at FPR 0.1 %", f"{attacks.tpr_at_fpr_0001:.4f}"),
        ("TPR at FPR 1 %", f"{attacks.tpr_at_fpr_001:.4f}"),
        ("Yeom advantage", f"{attacks.yeom_advantage:.4f}"),
        ("mean loss, population less members", f"{attacks.loss_gap:.4g}"),
    )
    title = f"{found.members} losses of members, {found.population} of the population, delta {found.delta:g}"
    warnings = [f"warning: {warning}" for warning in found.warnings]
    print_table(("number", "value"), rows, title, numbers=(1,), notes=warnings)
