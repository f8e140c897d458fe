"""Output of the commands `calibrate` and `account`: a table of accountants, JSON, and a figure."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from fl_audit.cli.options import JsonOption, print_json
from fl_audit.errors import InputError
from fl_audit.privacy import defaults
from fl_audit.privacy.accounting_enums import Accountant
from fl_audit.runs.option_declarations import option
from fl_audit.runs.terminal import print_table
from fl_audit.value_checks import choice

if TYPE_CHECKING:
    from fl_audit.privacy.events import ReleaseEvent
    from fl_audit.privacy.guarantee import Guarantee


class AccountantResult(NamedTuple):
    """The guarantee by one accountant; None, with a remark on the reason, if the accountant cannot compute it."""

    accountant: Accountant
    guarantee: "Guarantee | None"
    remark: str


@dataclass(frozen=True)
class OutputFormatOptions:
    """Command-line options of the output: JSON, and a figure."""

    HELP_GROUP: ClassVar[str] = "Result"

    as_json: JsonOption = False
    plot: Annotated[Path | None, option("FILE", "Draw epsilon, belief and advantage to a PNG, PDF or SVG.")] = None


def print_guarantee(
    account: Callable[[Accountant], AccountantResult],
    events: "tuple[ReleaseEvent, ...]",
    accountant: str | None,
    title: str,
    options: OutputFormatOptions,
    saving: bool = False,
    spent: Callable[[int, Accountant], float] | None = None,
) -> None:
    """Print the guarantee of releases, and draw it if requested.

    Parameters
    ----------
    account
        Function that returns the guarantee by a given accountant.
    events
        The releases of all rounds.
    accountant
        Name of the accountant. None prints a table of all accountants; the exact accountant is then the main result.
    title
        Title above the table.
    options
        Options of the output.
    saving
        Whether the table has a column of the noise that each accountant saves.
    spent
        Function that returns the epsilon of a number of rounds by an accountant, to print it for every round; None
        prints none.
    """
    from fl_audit.privacy.accounting import exact_accountant

    exact = exact_accountant(events)
    rows = _rows(exact if options.as_json and accountant is None else accountant, account, exact)
    [best] = [row for row in rows if row.guarantee and (accountant or row.accountant is exact)]
    assert best.guarantee is not None, "rows without a guarantee are left out"
    by_round = {} if spent is None else _epsilon_by_round(best, spent)
    if options.as_json:
        remark = {"remark": best.remark} if best.remark else {}
        print_json(_guarantee_json(best.guarantee) | remark | ({"epsilon_by_round": by_round} if by_round else {}))
    else:
        _print(rows, best.guarantee, title, saving)
        if by_round:
            cells = [(str(number), f"{epsilon:.6g}") for number, epsilon in by_round.items()]
            print_table(("round", "epsilon"), cells, f"epsilon after each round, by {best.accountant}", (0, 1))

    if options.plot is None:
        return

    # Matplotlib takes longer to import than the numbers take to compute.
    from fl_audit.cli.figures.figure_files import save_figure
    from fl_audit.cli.figures.guarantee_curves import guarantee_figure

    save_figure(guarantee_figure(best.guarantee), options.plot, dpi=150)
    if not options.as_json:
        print(f"figure: {options.plot}")


_MOST_CURVES = 50  # rounds whose epsilon is computed from loss distributions, each of which takes up to a second


def _epsilon_by_round(best: AccountantResult, spent: Callable[[int, Accountant], float]) -> dict[int, float]:
    """Return the epsilon of the first rounds, keyed by their number; with `pld`, of at most 50 evenly spread ones."""
    assert best.guarantee is not None, "the main result has a guarantee"
    last = best.guarantee.rounds
    step = -(-last // _MOST_CURVES) if best.accountant is Accountant.PLD else 1
    return {number: spent(number, best.accountant) for number in sorted({*range(step, last + 1, step), last})}


def _rows(
    accountant: str | None, account: Callable[[Accountant], AccountantResult], exact: Accountant
) -> list[AccountantResult]:
    """Return the guarantee by the named accountant; without a name, one row for every accountant.

    Such a row has the guarantee or the reason why there is none. `account` computes the row of an accountant. An error
    of the accountant `exact` is raised.
    """
    if accountant is not None:
        return [account(choice(Accountant, "--accountant", accountant))]
    rows = []
    for name in Accountant:
        try:
            rows.append(account(name))
        except InputError as error:
            if name is exact:  # the main result; another accountant may fail for an irrelevant reason
                raise
            rows.append(AccountantResult(name, None, str(error)))
    return rows


def _print(rows: list[AccountantResult], best: "Guarantee", title: str, saving: bool) -> None:

    columns = ["accountant", "noise multiplier", "epsilon", "belief at most", "advantage at most"]
    columns += ["noise saved"] * saving
    largest_noise = max(_noise(row.guarantee) for row in rows if row.guarantee)
    rows_shown = [(str(row.accountant), *_cells(row.guarantee, largest_noise))[: len(columns)] for row in rows]
    # The title says what the table holds for: neighbours, sampling, prior and sensitivities.
    rate = "" if best.sampling_rate == 1 else f", sampling rate {best.sampling_rate:g}"
    holds = f"neighbours: {best.adjacency}{rate}, prior {best.prior:g}, sensitivities: {best.claim.sensitivities}"
    print_table(columns, rows_shown, f"{title}\n{holds}; the guarantee is by {best.accountant}", range(1, len(columns)))
    print(_multiplied(best))

    from fl_audit.privacy.guarantee_line import guarantee_line, guarantee_values

    values = guarantee_values(best.epsilon, best.claims)
    print(f"Guarantee: {guarantee_line(values)}.")

    from fl_audit.report.guarantee_warnings import weakness_warning

    if (weak := weakness_warning(best)) is not None:
        print(f"warning: {weak}")
    if best.rho_alpha is not None:
        print(
            f"rho_alpha is {best.rho_alpha:.4f}: the score of Bernau et al. 2021 (theorem 3), a bound for noise by the "
            "classic formula only. The advantage above is exact."
        )
    named_bound = best.reconstruction_bound(1 / defaults.CANDIDATES)
    if named_bound is not None:
        likely = f"Of {defaults.CANDIDATES:,} equally likely {best.adjacency.unit}s an attacker who knows all others"
        print(f"{likely} names the right one with probability at most {named_bound:.2g}.")
    for name, _, remark in rows:
        if remark:
            print(remark if remark.startswith(f"{name} ") else f"{name}: {remark}")


def _multiplied(guarantee: "Guarantee") -> str:
    """Return sentences on the quantity that the noise multiplier multiplies, here and in other libraries."""
    unit = guarantee.adjacency.unit
    usage = "as Opacus, TensorFlow Privacy and dp-accounting quote it"
    over = guarantee.noise_over_clipping_norm
    if over == guarantee.noise_multiplier:
        added = f"which a {unit} that comes or goes adds at most"
        return f"The noise multiplier is over the clipping norm, {added}, {usage}."
    sentence = f"The noise multiplier is over the sensitivity, {guarantee.adjacency.sensitivity_words}."
    return f"{sentence} Over the clipping norm, {usage}, it is {over:.6g}."


def _cells(guarantee: "Guarantee | None", largest_noise: float) -> list[str]:
    if guarantee is None:
        return ["-"] * 5
    noise = _noise(guarantee)
    belief = guarantee.belief_bound
    advantage = guarantee.advantage_bound_exact
    return [
        f"{noise:.6g}",
        f"{guarantee.epsilon:.6g}",
        f"{belief:.4f}",
        f"{advantage:.4f}",
        f"{1 - noise / largest_noise:.1%}",
    ]


def _noise(guarantee: "Guarantee") -> float:
    assert guarantee.noise_multiplier is not None, "the command line claims Gaussian noise only"
    return guarantee.noise_multiplier


def _guarantee_json(guarantee: "Guarantee") -> dict[str, Any]:
    from fl_audit.privacy.guarantee_line import guarantee_values
    from fl_audit.report.guarantee_warnings import weakness_warning

    return {
        **guarantee_values(guarantee.epsilon, guarantee.claims),
        "noise_multiplier": guarantee.noise_multiplier,
        "noise_over_clipping_norm": guarantee.noise_over_clipping_norm,
        "sensitivity": guarantee.adjacency.sensitivity_words,
        "rounds": guarantee.rounds,
        "sampling_rate": guarantee.sampling_rate,
        "advantage": guarantee.advantage_bound_exact,
        "rho_alpha": guarantee.rho_alpha,
        "belief": guarantee.belief_bound,
        "belief_fixed": guarantee.belief_bound_fixed,
        "sensitivities": str(guarantee.claim.sensitivities),
        "reconstruction": guarantee.reconstruction_bound(1 / defaults.CANDIDATES),
        "candidates": defaults.CANDIDATES,
        "warning": weakness_warning(guarantee),
    }
