"""The command about evidence that needs no run: bound, for the scores of any attack."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli.options import JsonOption, among
from fl_audit.errors import InputError
from fl_audit.evidence.bounds.methods import BoundMethod, ScoreLaw

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fl_audit.evidence.bounds.lower_bounds import LowerBound

DEFAULT_METHOD = BoundMethod.CLOPPER_PEARSON
"""The method of a single answer where none is named: the one that assumes nothing of the scores."""

_VALID_FOR = {
    ScoreLaw.ANY: "any scores",
    ScoreLaw.GAUSSIAN_TRADEOFF: "Gaussian mechanisms",
    ScoreLaw.NORMAL_EQUAL_SPREAD: "log-odds of Gaussian mechanisms",
}


def bound(
    in_scores: Annotated[Path, typer.Argument(metavar="IN_SCORES", help="Scores of members: one a line, or .npy.")],
    out_scores: Annotated[Path, typer.Argument(metavar="OUT_SCORES", help="Scores of non-members, likewise.")],
    delta: Annotated[float, typer.Option("--delta", metavar="D", help="delta that the bound refers to, in [0, 1).")],
    confidence: Annotated[float, typer.Option("--confidence", metavar="P", help="Confidence, in (0.5, 1).")] = 0.95,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="NAME",
            help=f"One of {', '.join(BoundMethod)}.  [default: all; with --json, {DEFAULT_METHOD}]",
            autocompletion=among(BoundMethod),
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Bound epsilon from below by the scores of an attack; higher scores mean members."""
    from fl_audit.evidence.bounds.lower_bounds import bound_json, epsilon_lower_bound

    if method is not None and method not in list(BoundMethod):
        raise InputError(f"--method {method!r}: accepted are {', '.join(BoundMethod)}")
    members, nonmembers = read_numbers(in_scores), read_numbers(out_scores)
    if as_json or method is not None:
        chosen = BoundMethod(method) if method is not None else DEFAULT_METHOD
        found = [epsilon_lower_bound(members, nonmembers, delta, confidence, chosen)]
    else:
        found = _all_that_apply(members, nonmembers, delta, confidence)
    if as_json:
        print(json.dumps(bound_json(found[0]), allow_nan=False))
        return
    _print(found, f"epsilon at delta {delta:g}, {len(members)} members and {len(nonmembers)} non-members")


def _all_that_apply(
    members: "NDArray[np.float64]", nonmembers: "NDArray[np.float64]", delta: float, confidence: float
) -> "list[LowerBound]":
    """Ask every method; one that cannot take these scores is left out, unless none can."""
    from fl_audit.evidence.bounds.lower_bounds import epsilon_lower_bound

    found, refusals = [], []
    for method in BoundMethod:
        try:
            found.append(epsilon_lower_bound(members, nonmembers, delta, confidence, method))
        except InputError as error:
            refusals.append(error)
    if not found:
        raise refusals[0]
    return found


def _print(found: "list[LowerBound]", title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for column in ("method", "epsilon at least", "confidence", "limit", "valid for"):
        table.add_column(column, justify="left" if column in ("method", "valid for") else "right")
    for bound in found:
        epsilon, limit = f"{bound.epsilon:.4g}", f"{bound.limit_of_detection:.4g}"
        certainty = f"{bound.confidence:.4g}" if bound.method.has_confidence else "none"
        table.add_row(str(bound.method), epsilon, certainty, limit, _VALID_FOR[bound.method.needs])
    console = Console()
    console.print(table)
    for bound in found:
        for note in (bound.assumption, f"Limit: {bound.limit_meaning}.", *bound.warnings):
            console.print(f"{bound.method}: {note}", highlight=False)


def read_numbers(path: Path) -> "NDArray[np.float64]":
    """Read one number a line, or a .npy file.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    InputError
        If it cannot be read, is empty, or holds something else.
    """
    import numpy as np

    try:
        if path.suffix == ".npy":
            values = np.load(path, allow_pickle=False)
        else:
            lines = path.read_text(encoding="utf-8").split("\n")
            values = np.array([_number(path, index, line) for index, line in enumerate(lines, 1) if line.strip()])
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if values.size == 0:
        raise InputError(f"{path} is empty: accepted is one number a line, or a .npy file of numbers")
    if values.ndim != 1 or values.dtype.kind not in "fiu":
        raise InputError(f"{path} holds {values.dtype} of shape {values.shape}: accepted are numbers in one dimension")
    return values.astype(np.float64)


def _number(path: Path, line_number: int, line: str) -> float:
    try:
        return float(line)
    except ValueError:
        raise InputError(f"{path} line {line_number} is {line.strip()[:40]!r}: accepted is one number a line") from None
