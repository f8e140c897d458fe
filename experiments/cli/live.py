"""The command about one training that is its own audit: live."""

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.options import JsonOption, argument, option, print_json, switch
from experiments.names import VIOLATED


def live(
    directory: Annotated[Path, argument("DIR", "Where the observer keeps the rounds; training may go on.")],
    coins: Annotated[Path, option("--coins", "FILE", "Holds the seed of the canaries' coins, a whole number.")],
    finished: Annotated[
        bool, switch("--finished", "The training is over, though its last promised round is missing.")
    ] = False,
    confidence: Annotated[float, option("--confidence", "P", "Of the bounds, in (0.5, 1).")] = 0.95,
    out: Annotated[Path | None, option("--out", "FILE", "The page.  [default: DIR/report.html]")] = None,
    fail_on_violation: Annotated[
        bool, switch("--fail-on-violation", f"Exit with status {VIOLATED} if the promise is violated.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say what the canaries of a running or finished training certify."""
    from fl_audit.canaries.kept import seed_in
    from fl_audit.evidence.live import measure_live

    numbers = measure_live(directory, seed_in(coins), confidence, finished)
    if as_json:
        print_json(numbers.to_json())
    else:
        from fl_audit.report.live_page import live_lines, write_live_page

        for line in live_lines(numbers):
            print(line)
        print(f"report: {write_live_page(numbers, out or directory / 'report.html')}")
    if fail_on_violation and numbers.verdict == "violated":
        raise typer.Exit(VIOLATED)
