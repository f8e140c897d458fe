"""Remarks on Figures 4 and 5 of Negoescu et al. 2023: which estimator of Epsilon* is nearer to the truth, and why."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from fl_audit.experiments.papers.negoescu2023.simulation import EMPIRICAL, PARAMETRIC, PaperAndLongSimulation, summary


def errors_of_size(simulation: PaperAndLongSimulation, size: int) -> dict[str, float]:
    """Return the RMSE of each estimator over all separations, in nats, keyed by estimator."""
    errors = summary(simulation.ten)
    return {
        name: float(
            np.sqrt(np.mean([errors[apart, size, name].rmse ** 2 for apart in simulation.settings.separations]))
        )
        for name in (PARAMETRIC, EMPIRICAL)
    }


def loss_pair_name(separation: float) -> str:
    """Return the name of a pair of loss distributions by their distance: "identical distributions" for 0."""
    return f"separation {separation:g}" if separation else "identical distributions"


def remarks_of_figure_4(simulation: PaperAndLongSimulation) -> tuple[str, ...]:
    """Return remarks on the estimators in the case that members and population have the same distribution of losses."""
    errors = summary(simulation.ten)
    falls = []
    for name in (PARAMETRIC, EMPIRICAL):
        values = [errors[0.0, size, name].bias for size in simulation.settings.sizes]
        falling = all(first > second for first, second in pairwise(values))
        falls.append(f"the {name} one {'always' if falling else 'not always'} ({_between(values)})")
    return (
        f"The paper finds the parametric form nearer to 0. By means: {_nearer_in_both(simulation, 'bias')}.",
        f"It finds both forms to shrink as the sets grow. Here, from each size to the next: {', '.join(falls)}.",
    )


def remarks_of_figure_5(simulation: PaperAndLongSimulation) -> tuple[str, ...]:
    """Return remarks on how near the estimators are to the true Epsilon*.

    In figure 5 the loss distributions of members and population differ by several distances, the separations.
    """
    return (
        "The paper finds the parametric form nearer to the truth throughout. By root mean squared error: "
        f"{_nearer_in_both(simulation, 'rmse')}.",
        *_remarks_on_bias(simulation),
    )


def _remarks_on_bias(simulation: PaperAndLongSimulation) -> tuple[str, ...]:
    """Return remarks on two biases that more losses do not remove.

    One comes from fitting normal distributions, the other from ignoring error rates below the stability cut.
    """
    size = max(simulation.settings.sizes)
    wide = summary(simulation.ten)
    narrow = summary(simulation.ten, "narrow_truth")
    apart = [separation for separation in simulation.settings.separations if separation > 0]

    fit = [wide[separation, size, PARAMETRIC] for separation in apart]
    bias = [errors.bias for errors in fit]
    spread = [errors.std for errors in fit]
    cut = [wide[separation, size, EMPIRICAL].bias for separation in apart]
    bias_of_size = [narrow[separation, size, EMPIRICAL].bias for separation in apart]
    return (
        f"The normal fit to losses that are not normal has a bias of its own: at {size:,} losses {_between(bias)} nats "
        f"over the separations, {'always' if min(bias) > 0 else 'not always'} above the truth, beside a standard "
        f"deviation of {_between(spread)}{'; more losses do not cure it' if min(bias) > 2 * max(spread) else ''}.",
        f"How much of the empirical form's distance is its cut: at {size:,} losses its bias is {_between(cut)} nats "
        f"against the truth, and {_between(bias_of_size)} against the truth within the same cut.",
    )


def _between(values: Sequence[float]) -> str:
    return f"{values[0]:.2f}" if len(values) == 1 else f"{min(values):.2f} to {max(values):.2f}"


def _nearer_in_both(simulation: PaperAndLongSimulation, column: str) -> str:
    simulations = ((simulation.ten, simulation.settings), (simulation.more, simulation.many))
    return "; ".join(_nearer(estimates, column, settings.repetitions) for estimates, settings in simulations)


def _nearer(estimates: pd.DataFrame, column: str, repetitions: int) -> str:
    """Return a phrase that says in which cells the parametric estimator is nearer to the truth than the empirical one.

    A cell is a pair of loss distributions, given by their separation, with a number of losses. `column` is the kind of
    error, such as `rmse`.
    """
    errors = summary(estimates)
    pairs = {
        key[:2]: (abs(getattr(error, column)), abs(getattr(errors[*key[:2], EMPIRICAL], column)))
        for key, error in errors.items()
        if key[-1] == PARAMETRIC
    }
    farther = {key: pair for key, pair in pairs.items() if pair[0] >= pair[1]}
    text = f"nearer in {len(pairs) - len(farther)} of {len(pairs)} cells ({repetitions} repetitions)"
    cells_text = "; ".join(
        f"{loss_pair_name(separation)}, {size:,} losses ({ours:.2f} against {empirical:.2f} nats)"
        for (separation, size), (ours, empirical) in farther.items()
    )
    return f"{text}, not at {cells_text}" if farther else text
