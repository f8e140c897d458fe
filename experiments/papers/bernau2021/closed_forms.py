"""Table 3 of Bernau et al. 2021, which needs no runs: epsilon and the bounds rho_beta and rho_alpha.

rho_beta bounds the adversary's belief in the true data set, and rho_alpha its advantage.
"""

from collections.abc import Iterator, Mapping
from math import inf, log, sqrt

import numpy as np
from scipy.special import logit, ndtr

from fl_audit.adjacency import Adjacency
from fl_audit.experiments.papers.bernau2021.discrepancies import explained
from fl_audit.experiments.papers.bernau2021.insider_runs import CANDIDATES, MAIN_BELIEF, PRINTED, ROUNDS
from fl_audit.experiments.papers.bernau2021.noisy_query import DELTAS, EPSILONS, NoisyQuery
from fl_audit.experiments.papers.claims import PaperClaim, exact, read_claims
from fl_audit.experiments.papers.item_results import ItemResult, ItemRow, table
from fl_audit.experiments.papers.papers import StoredPaperRuns
from fl_audit.experiments.papers.plot_style import draw_published, legend_below
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.calibration import noise_multiplier_for
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.guarantee import Guarantee, derive_guarantee
from fl_audit.privacy.identifiability_bounds import epsilon_from_belief, rho_alpha
from fl_audit.privacy.targets import BeliefTarget
from fl_audit.report.figure_style import INK, finish_axes, new_figure

_LOOKS_OF_TABLE_3 = {0.01: ("-", "#12426e"), 0.001: ("--", "#b35806")}  # by delta


Column = Mapping[str, str]
"""A column of Table 3: delta, epsilon and rho_alpha as printed."""
CLAIMS = read_claims(__file__)


def printed_columns() -> dict[tuple[str, float], Column]:
    """Return the columns of Table 3 by data set and rho_beta."""
    columns: dict[tuple[str, float], dict[str, str]] = {}
    for number in PRINTED.at("Table 3"):
        belief = float(number.setting.removeprefix("rho_beta "))
        columns.setdefault((number.data, belief), {})[number.quantity] = number.printed
    return dict(columns)


def table_3(_: StoredPaperRuns | None = None) -> ItemResult:
    """Return Table 3: printed values, closed forms, and the guarantee of the noise, by rho_beta and delta."""
    columns = printed_columns()
    rows = [row for key, column in columns.items() for row in _rows_of_column(*key, column)]
    figure = new_figure(4.1)
    left_axes, right_axes = figure.subplots(1, 2)
    beliefs = np.linspace(0.515, 0.995, 200)
    left_axes.plot(beliefs, [epsilon_from_belief(x) for x in beliefs], color=INK, linewidth=1.8, label="Eq. (5)")
    for delta, (line, colour) in _LOOKS_OF_TABLE_3.items():
        bounds = [rho_alpha(epsilon_from_belief(x), delta) for x in beliefs]
        right_axes.plot(beliefs, bounds, line, color=colour, linewidth=1.8, label=f"Theorem 3, delta {delta:g}")
        coarse = beliefs[beliefs > 0.53][::8]
        exact = [calibrated(float(x), delta).advantage_bound_exact for x in coarse]
        right_axes.plot(coarse, exact, ":", color=colour, linewidth=2.2, label=f"exact, rdp-classic, {delta:g}")
    for study in CANDIDATES:
        column_by_belief = {belief: column for (data, belief), column in columns.items() if data == study}
        draw_published(
            left_axes, list(column_by_belief), [float(column["epsilon"]) for column in column_by_belief.values()]
        )
        draw_published(
            right_axes, list(column_by_belief), [float(column["rho_alpha"]) for column in column_by_belief.values()]
        )
    finish_axes(left_axes, "(a) epsilon", "rho_beta (probability)", "epsilon (nats)")
    finish_axes(right_axes, "(b) Advantage bound", "rho_beta (probability)", "Advantage")
    legend_below(figure, (left_axes, right_axes), columns=3)
    return ItemResult(
        table(rows),
        figure,
        f"Dotted: the exact advantage under the noise that rdp-classic calibrates over {ROUNDS} rounds. Diamonds: "
        "Table 3.",
        (
            "rho_alpha is Theorem 3, for noise by Eq. (1). Classic Rényi accounting, as in the runs, gives larger "
            "noise: its exact advantage 2 Phi(mu / 2) - 1 is smaller everywhere here.",
            *explained(("order-cap",)),
        ),
    )


def calibrated(belief: float, delta: float) -> Guarantee:
    """Calibrate the noise, by the paper's accountant, to a belief after all 30 rounds, and return its guarantee."""
    # Without sampling the adjacency changes only the sensitivity, and the noise is stated in units of that.
    claim = Claim(Adjacency.REPLACE_RECORD, gaussian_rounds(1.0, ROUNDS), delta, 0.5, Accountant.RDP_CLASSIC)
    return derive_guarantee(claim.with_noise(noise_multiplier_for(BeliefTarget(belief), claim)))


def _rows_of_column(study: str, belief: float, column: Column) -> list[ItemRow]:
    delta = float(column["delta"])
    epsilon = epsilon_from_belief(belief)
    guarantee = calibrated(belief, delta)
    bound = rho_alpha(epsilon, delta)
    setting = f"{study}, rho_beta {belief:g}"
    used = "measured: what the accountant reports of the calibrated noise"
    return [
        ItemRow(
            setting,
            "delta",
            published=delta,
            theory=CANDIDATES[study][0][0]["privacy.delta"],
            note="as printed; given, not derived",
        ),
        ItemRow(
            setting,
            "epsilon",
            published=float(column["epsilon"]),
            theory=epsilon,
            measured=guarantee.epsilon,
            note=f"{_agreement(epsilon, column['epsilon'])}; Eq. (5); {used}",
        ),
        ItemRow(
            setting,
            "rho_alpha",
            published=float(column["rho_alpha"]),
            theory=bound,
            measured=guarantee.rho_alpha or 0.0,
            note=f"{_agreement(bound, column['rho_alpha'])}; Theorem 3; {used}",
        ),
        ItemRow(
            setting,
            "exact advantage",
            theory=guarantee.advantage_bound_exact,
            note="2 Phi(mu / 2) - 1 of the calibrated noise; not in the paper",
        ),
        ItemRow(
            setting,
            "noise multiplier",
            theory=guarantee.noise_multiplier or np.nan,
            note="rdp-classic, orders up to 63; not in the paper",
        ),
    ]


def _agreement(value: float, printed: str) -> str:
    decimals = len(printed.partition(".")[2])
    return "as printed" if f"{value:.{decimals}f}" == printed else f"{value:.{decimals}f}, not {printed} as printed"


def closed_forms() -> Iterator[PaperClaim]:
    """Yield the claims that are tested by formulas alone, without runs."""
    frame = table_3().frame
    printed = frame[frame["published"].notna() & (frame["quantity"] != "delta")]
    agree = float(printed["note"].str.startswith("as printed").mean())
    yield CLAIMS["table-3"].on("Table 3", exact(agree))
    columns = {(belief, float(column["delta"])) for (_, belief), column in printed_columns().items()}
    ratios = {
        (belief, delta): (calibrated(belief, delta).advantage_bound_exact or 0.0)
        / rho_alpha(epsilon_from_belief(belief), delta)
        for belief, delta in sorted(columns)
    }
    largest = max(ratios.values())
    smallest = min(ratio for (belief, _), ratio in ratios.items() if belief >= 0.75)
    yield CLAIMS["rho-alpha-not-exceeded"].on("noise of the figures, every column of Table 3", exact(largest))
    yield CLAIMS["rho-alpha-reached"].on("noise of the figures, rho_beta from .75", exact(smallest))
    yield from noise_of_the_figures()
    queries = [NoisyQuery(epsilon, delta) for delta in DELTAS for epsilon in EPSILONS]
    passed = max(query.exceeded / query.delta for query in queries)
    yield CLAIMS["belief-exceeds-with-delta"].on("Figure 3, noise of Eq. (1)", exact(passed))
    apart = min(rho_alpha(epsilon, DELTAS[0]) / rho_alpha(epsilon, DELTAS[-1]) for epsilon in EPSILONS)
    yield CLAIMS["rho-alpha-by-delta"].on("Figure 3", exact(apart))
    yield CLAIMS["renyi-composition"].on("30 rounds, rho_beta .9", exact(_sequential_over_renyi()))


def noise_of_the_figures() -> Iterator[PaperClaim]:
    """Yield the claims at rho_beta = 0.9 that follow from the noise in the paper's figures.

    The claims do not depend on the data.
    """
    guarantees = [(delta, calibrated(MAIN_BELIEF, delta)) for delta in (0.01, 0.001)]
    apart = [
        (guarantee.advantage_bound_exact or 0.0) - rho_alpha(epsilon_from_belief(MAIN_BELIEF), delta)
        for delta, guarantee in guarantees
    ]
    where = "noise of the figures, rho_beta .9"
    quantity = "exact advantage less rho_alpha, farthest from 0"
    yield CLAIMS["advantage-is-rho-alpha"].on(where, exact(max(apart, key=abs)), quantity=quantity)
    over = [
        _largest_exceedance(sqrt(ROUNDS) / (guarantee.noise_multiplier or inf), MAIN_BELIEF) / delta
        for delta, guarantee in guarantees
    ]
    quantity = "largest probability that the noise allows, over delta"
    yield CLAIMS["beliefs-within-delta"].on(where, exact(max(over)), quantity=quantity, highest=1.0)


def _sequential_over_renyi() -> float:
    """Return the ratio of epsilon by sequential composition to epsilon by Rényi composition, for 30 rounds.

    The result is the smaller one of the ratios at delta 0.01 and 0.001. Sequential composition adds the epsilons of 30
    rounds, each by Eq. (1) at delta / 30.
    """
    ratios = []
    for delta in (0.01, 0.001):
        guarantee = calibrated(0.9, delta)
        assert guarantee.noise_multiplier is not None
        ratios.append(ROUNDS * sqrt(2 * log(1.25 * ROUNDS / delta)) / guarantee.noise_multiplier / guarantee.epsilon)
    return min(ratios)


def _largest_exceedance(mu: float, belief: float) -> float:
    """Return the worst-case probability that the belief in the truth exceeds `belief`, which is above 0.5.

    The belief may exceed it after any round. `mu` bounds the root of the sum of the squared mu_i of Gaussian DP of the
    rounds, which may depend on earlier rounds. The log-odds are a Brownian motion with drift 1/2 that stops by time
    mu^2, and the reflection principle gives the probability that its maximum exceeds a level.
    """
    passed = float(logit(belief))
    return float(ndtr(mu / 2 - passed / mu) + np.exp(passed) * ndtr(-mu / 2 - passed / mu))
