"""The commands about scores or losses without a run: `bound` and `epsilon-star`.

`bound` takes scores of an attack, or of canaries (data inserted into a training to test it). `epsilon-star` takes
losses of a model.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from fl_audit.array_types import finite
from fl_audit.audits.canaries.one_run_methods import OneRunMethod
from fl_audit.cli.options import JsonOption, print_json
from fl_audit.cli.score_files import columns_for, read_numbers
from fl_audit.errors import InputError
from fl_audit.released_model.star_methods import StarMethod
from fl_audit.runs.option_declarations import argument, option, switch
from fl_audit.runs.progress import at_work
from fl_audit.runs.terminal import print_table
from fl_audit.statistics.lower_bound_methods import BoundMethod, ScoreDistribution
from fl_audit.value_checks import choice
from fl_audit.words import interval_text

if TYPE_CHECKING:
    from fl_audit.audits.canaries.bounds import OneRunBound
    from fl_audit.released_model.star_estimate import StarEstimate
    from fl_audit.statistics.lower_bounds import LowerBound

_METHOD = BoundMethod.CLOPPER_PEARSON
"""The method of a single answer by default: the one that assumes nothing about the scores."""

_ONE_RUN = OneRunMethod.TRADE_OFF
"""The default for canaries of one run: a method that holds even if a mechanism leaks coins together."""

_OUT_SCORES = "Scores of non-members, likewise. With --one-run, COINS: 1 for each canary that was in, else 0."
ColumnOption = Annotated[
    list[str] | None, option("NAME", "Column of a table, or array of an .npz; twice for one of each file.")
]
_VALID_FOR = {
    ScoreDistribution.ANY: "any scores",
    ScoreDistribution.GAUSSIAN_TRADEOFF: "Gaussian mechanisms",
    ScoreDistribution.NORMAL_EQUAL_SPREAD: "log-odds of Gaussian mechanisms",
}


def bound(
    in_scores: Annotated[
        Path,
        argument(
            "IN_SCORES",
            "Scores of members: one a line, a column of a table, .npy or .npz. With --one-run, of all canaries.",
        ),
    ],
    out_scores: Annotated[Path, argument("OUT_SCORES", _OUT_SCORES)],
    delta: Annotated[float, option("D", "delta that the bound refers to, in [0, 1).")],
    confidence: Annotated[float, option("P", "Confidence, in (0.5, 1).")] = 0.95,
    method: Annotated[
        str | None,
        option(
            "NAME",
            f"One of {', '.join(BoundMethod)}.  [default: all; with --json, {_METHOD}] With --one-run, one of "
            f"{', '.join(OneRunMethod)}.  [default: those for any mechanism; with --json, {_ONE_RUN}]",
            among=[*BoundMethod, *OneRunMethod],
        ),
    ] = None,
    one_run: Annotated[
        bool, switch("--one-run", "Canaries of one training, in or out by fair coins: SCORES and COINS.")
    ] = False,
    guesses: Annotated[int | None, option("R", "With --one-run: coins to guess, fixed before scores are seen.")] = None,
    dimension: Annotated[int | None, option("N", "With --one-run --method cosines: parameters of the release.")] = None,
    column: ColumnOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bound epsilon from below by the scores of an attack; higher scores mean members.

    The scores come from two files: scores of members, and scores of non-members. With --one-run, one file has the
    scores of canaries, which were in or out of a single training by the toss of a coin. The other file says which of
    them were in.
    """

    methods: type[OneRunMethod | BoundMethod] = OneRunMethod if one_run else BoundMethod
    if not one_run and (guesses is not None or dimension is not None):
        raise InputError("--guesses and --dimension belong to --one-run: accepted are none without it")
    if method is not None:
        choice(methods, "--method with --one-run" if one_run else "--method", method)
    names = columns_for(column)
    members = read_numbers(in_scores, names[0])
    nonmembers = read_numbers(out_scores, names[1])
    title = f"epsilon at delta {delta:g}, {len(members)}"

    from fl_audit.audits.canaries.bounds import one_run_bound

    if one_run:
        # If no method is named, all methods that hold for any mechanism are used.
        is_open = method is None and not as_json
        any_mechanism = [method for method in OneRunMethod if method.is_for_any_mechanism]
        chosen_methods = any_mechanism if is_open else [OneRunMethod(method or _ONE_RUN)]
        of_canaries = [
            one_run_bound(members, nonmembers, delta, confidence, method, guesses, (), dimension)
            for method in chosen_methods
        ]
        if as_json:
            print_json(of_canaries[0].to_json())
        else:
            _print_one_run(of_canaries, f"{title} canaries of one run")
        return

    from fl_audit.statistics.lower_bounds import applicable_bounds, bound_json, epsilon_lower_bound

    if as_json or method is not None:
        bounds = [epsilon_lower_bound(members, nonmembers, delta, confidence, BoundMethod(method or _METHOD))]
    else:
        bounds = list(applicable_bounds(members, nonmembers, delta, confidence))
    if as_json:
        print_json(bound_json(bounds[0]))
    else:
        _print(bounds, f"{title} members and {len(nonmembers)} non-members")


def _print_one_run(bounds: "list[OneRunBound]", title: str) -> None:
    rows = []
    notes = list[str]()
    estimates = list[str]()
    for bound in bounds:
        numbers = [f"{number:.4g}" for number in (bound.epsilon, bound.confidence, bound.limit_of_detection)]
        right = f"{bound.guesses.right} of {bound.guesses.guessed}" if bound.method.guesses else ""
        rows.append((str(bound.method), *numbers, "" if bound.mu is None else f"{bound.mu:.4g}", right))
        notes += [f"{bound.method}: {note}" for note in (bound.method.assumption, f"Limit: {bound.limit_meaning}.")]
        if bound.estimate is not None:
            estimates.append(f"{bound.method}: estimate of epsilon {bound.estimate:.4g}, without a confidence.")
    columns = ("method", "epsilon at least", "confidence", "limit", "mu at least", "right guesses")
    print_table(columns, rows, title, range(1, len(columns)), notes + estimates)


def _print(bounds: "list[LowerBound]", title: str) -> None:
    rows = []
    notes = list[str]()
    for bound in bounds:
        limit = f"{bound.limit_of_detection:.4g}"
        valid = _VALID_FOR[bound.method.needs]
        rows.append((str(bound.method), f"{bound.epsilon:.4g}", f"{bound.confidence:.4g}", limit, valid))
        remarks = (bound.assumption, f"Limit: {bound.limit_meaning}.", *bound.warnings)
        notes += [f"{bound.method}: {note}" for note in remarks]
    print_table(("method", "epsilon at least", "confidence", "limit", "valid for"), rows, title, range(1, 4), notes)


def epsilon_star(
    members: Annotated[Path, argument("MEMBERS", "Losses on members: one a line, a column of a table, .npy or .npz.")],
    population: Annotated[Path, argument("POPULATION", "Losses on a population sample, likewise.")],
    delta: Annotated[float, option("D", "delta of Epsilon*, in [0, 1).")],
    method: Annotated[
        str | None,
        option(
            "NAME",
            f"One of {', '.join(StarMethod)}.  [default: parametric where its fit holds, else empirical]",
            among=StarMethod,
        ),
    ] = None,
    confidence: Annotated[float, option("P", "Confidence of the interval, in (0, 1).")] = 0.95,
    cut: Annotated[
        float | None, option("C", "Leave out error rates beyond C and 1 - C.  [default: 0.001 empirical, else 1e-6]")
    ] = None,
    column: ColumnOption = None,
    seed: Annotated[int, option("N", "Seed of bootstrap and mixtures.")] = 0,
    as_json: JsonOption = False,
    plot: Annotated[
        Path | None, option("FILE", "Draw densities, ROC and epsilon over thresholds: PNG, PDF or SVG.")
    ] = None,
) -> None:
    """Measure the privacy risk of one model from its losses: Epsilon* of Negoescu et al. 2023.

    The losses come from two files: losses on members of the training set, and losses on a population sample.
    """

    chosen = None if method is None else choice(StarMethod, "--method", method)
    if seed < 0:
        raise InputError(f"--seed {seed}: accepted are whole numbers from 0")

    from fl_audit.cli.figures.figure_files import require_figure_path, save_figure

    if plot is not None:
        require_figure_path(plot)
    names = columns_for(column)
    member_losses = read_numbers(members, names[0])
    population_losses = read_numbers(population, names[1])

    from fl_audit.released_model.star_estimate import estimate_epsilon_star

    with at_work(f"fitting, {member_losses.size + population_losses.size} losses"):
        estimate = estimate_epsilon_star(
            member_losses, population_losses, delta, np.random.default_rng(seed), chosen, confidence, cut
        )

    from fl_audit.cli.figures.epsilon_star import epsilon_star_figure

    if plot is not None:
        save_figure(epsilon_star_figure(estimate, member_losses, population_losses), plot, dpi=150)
    if as_json:
        print_json(_estimate_json(estimate))
        return
    _print_star(estimate)
    if plot is not None:
        print(f"figure: {plot}")


def _estimate_json(estimate: "StarEstimate") -> dict[str, Any]:
    """Return an estimate of Epsilon* as JSON values; infinite numbers are null."""

    attacks = estimate.attacks
    return {
        "epsilon_star": finite(estimate.epsilon_star),
        "unbounded": math.isinf(estimate.epsilon_star),
        "delta": estimate.delta,
        "method": str(estimate.method),
        "interval": [finite(end) for end in estimate.interval],
        "confidence": estimate.confidence,
        "cut": estimate.cut,
        "epsilon_star_within_cut": finite(estimate.epsilon_star_within_cut),
        "epsilon_star_without_cut": finite(estimate.epsilon_star_without_cut),
        "is_lower_bound": estimate.is_lower_bound,
        "members": estimate.members,
        "population": estimate.population,
        "components": None
        if estimate.distributions is None
        else [distribution.components for distribution in estimate.distributions],
        "attacks": {
            "auc": float(attacks.auc),
            "tpr_at_fpr_0.001": float(attacks.tpr_at_fpr_0001),
            "tpr_at_fpr_0.01": float(attacks.tpr_at_fpr_001),
            "yeom_advantage": float(attacks.yeom_advantage),
            "loss_gap": float(attacks.loss_gap),
        },
        "warnings": list(estimate.warnings),
    }


def _said(number: float) -> str:
    return f"{number:.4g}" if math.isfinite(number) else "unbounded"


def _print_star(estimate: "StarEstimate") -> None:

    attacks = estimate.attacks
    name = "Epsilon* is at least" if estimate.is_lower_bound else f"Epsilon* ({estimate.method})"
    rows = (
        (f"{name}, {estimate.cut_name}, nats", _said(estimate.epsilon_star)),
        (estimate.interval_name, interval_text(*estimate.interval)),
        ("AUC of the loss threshold attack", f"{attacks.auc:.4f}"),
        ("TPR at FPR 0.1 %", f"{attacks.tpr_at_fpr_0001:.4f}"),
        ("TPR at FPR 1 %", f"{attacks.tpr_at_fpr_001:.4f}"),
        ("Yeom advantage", f"{attacks.yeom_advantage:.4f}"),
        ("mean loss, population less members", f"{attacks.loss_gap:.4g}"),
    )
    title = f"{estimate.members} losses of members, {estimate.population} of the population, delta {estimate.delta:g}"
    warnings = [f"warning: {warning}" for warning in estimate.warnings]
    print_table(("number", "value"), rows, title, numbers=(1,), notes=warnings)
