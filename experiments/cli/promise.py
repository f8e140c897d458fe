"""The commands about promises, which need no run: calibrate and account."""

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, assert_never

import typer

from experiments.cli.options import ADJACENCY_HELP, AdjacencyOption, JsonOption, among
from experiments.names import OVER_BUDGET
from fl_audit.adjacency import Adjacency
from fl_audit.errors import InputError, choice
from fl_audit.privacy import defaults
from fl_audit.privacy.names import Accountant, Sensitivities
from fl_audit.privacy.terms import TrainingTerms

if TYPE_CHECKING:
    from rich.table import Table

    from fl_audit.privacy.claim import Claim
    from fl_audit.privacy.guarantee import Guarantee
    from fl_audit.privacy.targets import Target

DeltaOption = Annotated[float, typer.Option("--delta", metavar="D", help="delta of (epsilon, delta)-DP, in (0, 1).")]
RoundsOption = Annotated[int, typer.Option("--rounds", metavar="K", help="Number of releases, at least 1.")]
RateOption = Annotated[
    float, typer.Option("--sampling-rate", metavar="Q", help="Poisson sampling rate of records or clients, in (0, 1].")
]
SensitivitiesOption = Annotated[
    str,
    typer.Option(
        "--sensitivities",
        metavar="NAME",
        autocompletion=among(Sensitivities),
        help="adaptive: what a record changes may follow from earlier releases, as in every private training; fixed: "
        "every round has the same signal-to-noise ratio, which allows tighter beliefs.",
    ),
]
AccountantOption = Annotated[
    str | None,
    typer.Option(
        "--accountant",
        metavar="NAME",
        help=f"One of {', '.join(Accountant)}.  [default: the exact one, gdp, or pld with sampling, beside all others]",
        autocompletion=among(Accountant),
    ),
]
PriorOption = Annotated[float, typer.Option("--prior", metavar="P", help="The insider's prior belief, in (0, 1).")]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw epsilon, belief and advantage to a PNG, PDF or SVG.")
]


@dataclass(frozen=True)
class AccountantRow:
    """What one accountant says, or why it says nothing."""

    accountant: Accountant  # who says it
    promise: "Guarantee | None"  # what it promises; None where it refuses
    remark: str = ""  # why it refuses, or what else is to be said, in one line


def calibrate(
    delta: DeltaOption,
    rounds: RoundsOption,
    adjacency: AdjacencyOption,
    belief: Annotated[
        float | None, typer.Option("--belief", metavar="P", help="Largest belief, above the prior and below 1.")
    ] = None,
    advantage: Annotated[
        float | None, typer.Option("--advantage", metavar="A", help="Largest advantage, in (0, 1).")
    ] = None,
    epsilon: Annotated[float | None, typer.Option("--epsilon", metavar="E", help="Largest epsilon, positive.")] = None,
    reconstruction: Annotated[
        float | None,
        typer.Option(
            "--reconstruction",
            metavar="P",
            help="Largest probability that an attacker names the right one of --candidates equally likely records.",
        ),
    ] = None,
    candidates: Annotated[
        int | None,
        typer.Option("--candidates", metavar="M", help=f"Equally likely records.  [default: {defaults.CANDIDATES}]"),
    ] = None,
    singling_out: Annotated[
        float | None,
        typer.Option(
            "--singling-out",
            metavar="P",
            help="Largest probability that a description of a --population-share of all people fits its target.",
        ),
    ] = None,
    population_share: Annotated[
        float | None,
        typer.Option(
            "--population-share",
            metavar="W",
            help=f"Share of all people that a description fits.  [default: {defaults.POPULATION_SHARE}]",
        ),
    ] = None,
    sampling_rate: RateOption = defaults.SAMPLING_RATE,
    sensitivities: SensitivitiesOption = defaults.SENSITIVITIES.value,
    accountant: AccountantOption = defaults.ACCOUNTANT,
    prior: PriorOption = defaults.PRIOR,
    as_json: JsonOption = False,
    plot: PlotOption = None,
) -> None:
    """Find the noise that a promise needs, which one option names.

    Exactly one of --belief, --advantage, --epsilon, --reconstruction and --singling-out is given.
    """
    from fl_audit.privacy.accounting import exact_accountant
    from fl_audit.privacy.calibration import SMALLEST_SAMPLED_NOISE, noise_multiplier_for
    from fl_audit.privacy.claim import Claim
    from fl_audit.privacy.events import gaussian_rounds
    from fl_audit.privacy.guarantee import guarantee
    from fl_audit.privacy.targets import one_target

    asked = {
        "belief": belief,
        "advantage": advantage,
        "epsilon": epsilon,
        "reconstruction": reconstruction,
        "candidates": candidates,
        "singling-out": singling_out,
        "population-share": population_share,
    }
    target, events = one_target(asked, "--"), gaussian_rounds(1.0, rounds, sampling_rate)
    neighbours = choice(Adjacency, "--adjacency", adjacency)
    chosen_by = choice(Sensitivities, "--sensitivities", sensitivities)

    def found(name: Accountant) -> AccountantRow:
        claim = Claim(neighbours, events, delta, prior, name, chosen_by)
        noise = noise_multiplier_for(target, claim)
        at_least = sampling_rate < 1 and noise == SMALLEST_SAMPLED_NOISE
        promise = guarantee(claim.with_noise(noise))
        return AccountantRow(name, promise, _any_noise_keeps(claim) if at_least else promise.remark)

    exact = exact_accountant(events)
    rows = _rows(exact if as_json and accountant is None else accountant, found)
    best = _best(rows, accountant, exact)
    title = f"noise for {_said(target)} at delta {delta:g} over {rounds} rounds"
    _print(rows, best, as_json, title, saving=True)
    _draw(plot, best, as_json)


def account(
    delta: DeltaOption,
    noise_multiplier: Annotated[
        float | None, typer.Option("--noise-multiplier", metavar="Z", help="Noise over sensitivity, positive.")
    ] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", metavar="K", help="Number of releases, at least 1.")] = None,
    adjacency: Annotated[
        str | None, typer.Option("--adjacency", metavar="NAME", help=ADJACENCY_HELP, autocompletion=among(Adjacency))
    ] = None,
    sampling_rate: RateOption = defaults.SAMPLING_RATE,
    sensitivities: SensitivitiesOption = defaults.SENSITIVITIES.value,
    accountant: AccountantOption = defaults.ACCOUNTANT,
    prior: PriorOption = defaults.PRIOR,
    sensitivity: Annotated[
        float | None,
        typer.Option("--sensitivity", metavar="S", help="What the noise multiplier refers to, beside --clipping-norm."),
    ] = None,
    clipping_norm: Annotated[
        float | None, typer.Option("--clipping-norm", metavar="C", help="Norm to which contributions are clipped.")
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            "--ledger",
            metavar="FILE",
            help="Say what all trainings of this file spend together; one that is named by noise, rounds and adjacency "
            "is added first.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="With --ledger: what the training is called.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            metavar="E",
            help=f"With --ledger: largest epsilon of all together; a training that passes it is not added (status "
            f"{OVER_BUDGET}).",
        ),
    ] = None,
    as_json: JsonOption = False,
    plot: PlotOption = None,
) -> None:
    """Say what a noise multiplier promises, or what the trainings of a ledger spend together.

    --noise-multiplier, --rounds and --adjacency are given together; only with --ledger may they be left out.
    """
    from experiments.cli.ledger import account_ledger, real_noise

    terms = None
    if (noise_multiplier, rounds, adjacency) != (None, None, None) or ledger is None:
        given = {"--noise-multiplier": noise_multiplier, "--rounds": rounds, "--adjacency": adjacency}
        missing = [repr(flag) for flag, value in given.items() if value is None]
        if noise_multiplier is None or rounds is None or adjacency is None:
            raise InputError(f"Missing option {' and '.join(missing)}: accepted are all of {', '.join(given)}")
        neighbours = choice(Adjacency, "--adjacency", adjacency)
        terms = TrainingTerms(neighbours, noise_multiplier, rounds, sampling_rate)
    if ledger is not None:
        account_ledger(ledger, terms, delta, name, sensitivity, clipping_norm, budget, as_json)
        return
    assert terms is not None, "asked for above"
    stray = name is not None or budget is not None
    if stray:
        raise InputError("--name and --budget belong to --ledger: accepted are none without it")
    from fl_audit.privacy.accounting import exact_accountant
    from fl_audit.privacy.claim import Claim
    from fl_audit.privacy.events import gaussian_rounds
    from fl_audit.privacy.guarantee import guarantee
    from fl_audit.privacy.ledger import LedgerLine

    noise, said = real_noise(LedgerLine("", terms, sensitivity, clipping_norm), delta)
    neighbours, events = terms.adjacency, gaussian_rounds(noise, terms.rounds, sampling_rate)
    chosen_by = choice(Sensitivities, "--sensitivities", sensitivities)

    def found(name: Accountant) -> AccountantRow:
        promise = guarantee(Claim(neighbours, events, delta, prior, name, chosen_by))
        return AccountantRow(name, promise, promise.remark)

    exact = exact_accountant(events)
    rows = _rows(exact if as_json and accountant is None else accountant, found)
    best = _best(rows, accountant, exact)
    title = f"what noise multiplier {noise:g} promises at delta {delta:g} over {terms.rounds} rounds"
    _print(rows, best, as_json, title, saving=False)
    if said:
        print(said, file=sys.stderr if as_json else sys.stdout)
    _draw(plot, best, as_json)


def _best(rows: list[AccountantRow], accountant: str | None, exact: Accountant) -> "Guarantee":
    """Return the promise that counts: by the accountant that is named, otherwise by the exact one."""
    promises = [row.promise for row in rows if row.promise and (accountant or row.accountant is exact)]
    assert len(promises) == 1, "a named accountant that refuses is an error, and the exact one refuses nothing"
    return promises[0]


def _noise(promise: "Guarantee") -> float:
    assert promise.noise_multiplier is not None, "the command line claims Gaussian noise only"
    return promise.noise_multiplier


def _any_noise_keeps(claim: "Claim") -> str:
    from fl_audit.privacy.calibration import SMALLEST_SAMPLED_NOISE

    return (
        f"the promise holds with any noise, because a {claim.adjacency.unit} takes part in any of the {claim.rounds} "
        f"rounds with a probability of {claim.participation:.3g} only; {SMALLEST_SAMPLED_NOISE:g} is the smallest "
        "noise multiplier offered"
    )


def _said(target: "Target") -> str:
    from fl_audit.privacy.targets import (
        AdvantageTarget,
        BeliefTarget,
        EpsilonTarget,
        NoiseMultiplierTarget,
        ReconstructionTarget,
        SinglingOutTarget,
    )

    match target:
        case BeliefTarget(belief):
            return f"a belief of at most {belief:g}"
        case AdvantageTarget(advantage):
            return f"an advantage of at most {advantage:g}"
        case EpsilonTarget(epsilon):
            return f"epsilon of at most {epsilon:g}"
        case ReconstructionTarget(probability, candidates):
            return f"at most {probability:g} to name the right one of {candidates} records"
        case SinglingOutTarget(probability, share):
            return f"at most {probability:g} that a description of a share {share:g} of all people fits its target"
        case NoiseMultiplierTarget(noise):
            return f"a noise multiplier of {noise:g}"
        case _:
            assert_never(target)


def _rows(accountant: str | None, found: Callable[[Accountant], AccountantRow]) -> list[AccountantRow]:
    """Ask one accountant, whose refusal is an error, or all, whose refusals are rows."""
    if accountant is not None:
        return [found(choice(Accountant, "--accountant", accountant))]
    rows = []
    for name in Accountant:
        try:
            rows.append(found(name))
        except InputError as error:
            rows.append(AccountantRow(name, None, str(error)))
    if all(row.promise is None for row in rows):
        raise InputError(rows[0].remark)
    return rows


def _print(rows: list[AccountantRow], best: "Guarantee", as_json: bool, title: str, saving: bool) -> None:
    remarks = {row.accountant: row.remark for row in rows}
    if as_json:
        found = promise_json(best) | ({"remark": remarks[best.accountant]} if remarks[best.accountant] else {})
        print(json.dumps(found, allow_nan=False))
        return
    from rich.console import Console

    console = Console()
    console.print(_table(rows, f"{title}\n{_setting(best)}", saving))
    named = best.reconstruction_bound(1 / defaults.CANDIDATES)
    if named is not None:
        console.print(
            f"Of {defaults.CANDIDATES:,} equally likely records an attacker who knows all others names the right one "
            f"with probability at most {named:.2g}.",
            highlight=False,
            soft_wrap=True,
        )
    for name, remark in remarks.items():
        if remark:
            said = remark if remark.startswith(f"{name} ") else f"{name}: {remark}"
            console.print(said, highlight=False, soft_wrap=True)


def _setting(promise: "Guarantee") -> str:
    """Return what the table holds for: neighbours, sampling, prior and sensitivities."""
    rate = "" if promise.sampling_rate == 1 else f", sampling rate {promise.sampling_rate:g}"
    sensitivities = promise.claim.sensitivities
    return (
        f"neighbours: {promise.adjacency}{rate}, prior {promise.prior:g}, sensitivities: {sensitivities}; "
        f"what counts: {promise.accountant}"
    )


def _table(rows: list[AccountantRow], title: str, saving: bool) -> "Table":
    from rich.table import Table

    most = max(_noise(row.promise) for row in rows if row.promise)
    table = Table(title=title)
    for column in ("accountant", "noise multiplier", "epsilon", "belief at most", "advantage at most"):
        table.add_column(column, justify="left" if column == "accountant" else "right")
    if saving:
        table.add_column("noise saved", justify="right")
    for row in rows:
        table.add_row(str(row.accountant), *_cells(row.promise, most if saving else None))
    return table


def _cells(promise: "Guarantee | None", most: float | None) -> list[str]:
    if promise is None:
        return ["-"] * (4 if most is None else 5)
    cells = [
        f"{promise.noise_multiplier:.6g}",
        f"{promise.epsilon:.6g}",
        f"{promise.belief_bound:.4f}",
        f"{promise.advantage_bound_exact:.4f}",
    ]
    return cells if most is None else [*cells, f"{1 - _noise(promise) / most:.1%}"]


def promise_json(promise: "Guarantee") -> dict[str, Any]:
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
        "belief_fixed": promise.belief_bound_fixed,
        "adjacency": str(promise.adjacency),
        "sensitivities": str(promise.claim.sensitivities),
        "reconstruction": promise.reconstruction_bound(1 / defaults.CANDIDATES),
        "candidates": defaults.CANDIDATES,
    }


def _draw(plot: Path | None, promise: "Guarantee", as_json: bool) -> None:
    if plot is None:
        return
    from experiments.figures.promise import draw_promise

    draw_promise(promise, plot)
    if not as_json:
        print(f"figure: {plot}")
