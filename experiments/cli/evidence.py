"""The command about evidence that needs no run: bound, for the scores of any attack or of one run's canaries."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from experiments.cli.options import JsonOption, argument, option, print_json, print_table, switch
from fl_audit.canaries.methods import OneRunMethod
from fl_audit.errors import InputError
from fl_audit.evidence.bounds.methods import BoundMethod, ScoreLaw

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fl_audit.canaries.bounds import OneRunBound
    from fl_audit.evidence.bounds.lower_bounds import LowerBound

_METHOD = BoundMethod.CLOPPER_PEARSON
"""The method of a single answer where none is named: the one that assumes nothing of the scores."""

_ONE_RUN = OneRunMethod.TRADE_OFF
"""The same for canaries of one run: never one that a mechanism which leaks coins together breaks."""

_VALID_FOR = {
    ScoreLaw.ANY: "any scores",
    ScoreLaw.GAUSSIAN_TRADEOFF: "Gaussian mechanisms",
    ScoreLaw.NORMAL_EQUAL_SPREAD: "log-odds of Gaussian mechanisms",
}


def bound(
    in_scores: Annotated[
        Path, argument("IN_SCORES", "Scores of members: one a line, or .npy. With --one-run, of all canaries.")
    ],
    out_scores: Annotated[
        Path,
        argument(
            "OUT_SCORES",
            "Scores of non-members, likewise. With --one-run, COINS: 1 for each canary that was in, else 0.",
        ),
    ],
    delta: Annotated[float, option("--delta", "D", "delta that the bound refers to, in [0, 1).")],
    confidence: Annotated[float, option("--confidence", "P", "Confidence, in (0.5, 1).")] = 0.95,
    method: Annotated[
        str | None,
        option(
            "--method",
            "NAME",
            f"One of {', '.join(BoundMethod)}.  [default: all; with --json, {_METHOD}] With "
            f"--one-run, one of {', '.join(OneRunMethod)}.  [default: those for any mechanism; with "
            f"--json, {_ONE_RUN}]",
            among=[*BoundMethod, *OneRunMethod],
        ),
    ] = None,
    one_run: Annotated[
        bool, switch("--one-run", "Canaries of one training, in or out by fair coins: SCORES and COINS.")
    ] = False,
    guesses: Annotated[
        int | None, option("--guesses", "R", "With --one-run: coins to guess, fixed before scores are seen.")
    ] = None,
    dimension: Annotated[
        int | None, option("--dimension", "N", "With --one-run --method cosines: parameters of the release.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Bound epsilon from below by the scores of an attack; higher scores mean members."""
    if one_run:
        _bound_one_run(in_scores, out_scores, delta, confidence, method, guesses, dimension, as_json)
        return
    if guesses is not None or dimension is not None:
        raise InputError("--guesses and --dimension belong to --one-run: accepted are none without it")
    from fl_audit.evidence.bounds.lower_bounds import bound_json, epsilon_lower_bound

    if method is not None and method not in list(BoundMethod):
        raise InputError(f"--method {method!r}: accepted are {', '.join(BoundMethod)}")
    members, nonmembers = read_numbers(in_scores), read_numbers(out_scores)
    if as_json or method is not None:
        chosen = BoundMethod(method) if method is not None else _METHOD
        found = [epsilon_lower_bound(members, nonmembers, delta, confidence, chosen)]
    else:
        found = _all_that_apply(members, nonmembers, delta, confidence)
    if as_json:
        print_json(bound_json(found[0]))
        return
    _print(found, f"epsilon at delta {delta:g}, {len(members)} members and {len(nonmembers)} non-members")


def _bound_one_run(
    scores: Path,
    coins: Path,
    delta: float,
    confidence: float,
    method: str | None,
    guesses: int | None,
    dimension: int | None,
    as_json: bool,
) -> None:
    """Bound epsilon by the canaries of one training; unless named, by the methods that hold for any mechanism."""
    from fl_audit.canaries.bounds import one_run_bound

    if method is not None and method not in list(OneRunMethod):
        raise InputError(f"--method {method!r} with --one-run: accepted are {', '.join(OneRunMethod)}")
    values, tossed = read_numbers(scores), read_numbers(coins)
    if method is None and not as_json:
        methods = [one for one in OneRunMethod if one.is_for_any_mechanism]
    else:
        methods = [OneRunMethod(method or _ONE_RUN)]
    found = [one_run_bound(values, tossed, delta, confidence, one, guesses, (), dimension) for one in methods]
    if as_json:
        print_json(found[0].to_json())
        return
    _print_one_run(found, f"epsilon at delta {delta:g}, {len(values)} canaries of one run")


def _print_one_run(found: "list[OneRunBound]", title: str) -> None:
    rows = [
        (
            str(one.method),
            *(f"{number:.4g}" for number in (one.epsilon, one.confidence, one.limit_of_detection)),
            "" if one.mu is None else f"{one.mu:.4g}",
            f"{one.guesses.right} of {one.guesses.guessed}" if one.method.guesses else "",
        )
        for one in found
    ]
    notes = [
        f"{one.method}: {note}" for one in found for note in (one.method.assumption, f"Limit: {one.limit_meaning}.")
    ]
    notes += [
        f"{one.method}: estimate of epsilon {one.estimate:.4g}, without a confidence."
        for one in found
        if one.estimate is not None
    ]
    columns = ("method", "epsilon at least", "confidence", "limit", "mu at least", "right guesses")
    print_table(columns, rows, title, range(1, len(columns)), notes)


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
    rows = [
        (
            str(bound.method),
            f"{bound.epsilon:.4g}",
            f"{bound.confidence:.4g}" if bound.method.has_confidence else "none",
            f"{bound.limit_of_detection:.4g}",
            _VALID_FOR[bound.method.needs],
        )
        for bound in found
    ]
    notes = [
        f"{bound.method}: {note}"
        for bound in found
        for note in (bound.assumption, f"Limit: {bound.limit_meaning}.", *bound.warnings)
    ]
    print_table(("method", "epsilon at least", "confidence", "limit", "valid for"), rows, title, range(1, 4), notes)


def read_numbers(path: Path) -> "NDArray[np.float64]":
    """Read one number a line, or a .npy file.

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
