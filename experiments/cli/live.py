"""The command about one training that is its own audit: live."""

import json
from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.options import JsonOption
from experiments.names import VIOLATED


def live(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where the observer keeps the rounds; training may go on.")
    ],
    coins: Annotated[
        Path, typer.Option("--coins", metavar="FILE", help="Holds the seed of the canaries' coins, a whole number.")
    ],
    finished: Annotated[
        bool, typer.Option("--finished", help="The training is over, though its last promised round is missing.")
    ] = False,
    confidence: Annotated[float, typer.Option("--confidence", metavar="P", help="Of the bounds, in (0.5, 1).")] = 0.95,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The page.  [default: DIR/report.html]")
    ] = None,
    fail_on_violation: Annotated[
        bool, typer.Option("--fail-on-violation", help=f"Exit with status {VIOLATED} if the promise is violated.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say what the canaries of a running or finished training certify."""
    from fl_audit.canaries.kept import seed_in
    from fl_audit.evidence.live import measure_live

    numbers = measure_live(directory, seed_in(coins), confidence, finished)
    if as_json:
        print(json.dumps(numbers.to_json(), allow_nan=False))
    else:
        from fl_audit.report.live_page import live_lines, write_live_page

        for line in live_lines(numbers):
            print(line)
        print(f"report: {write_live_page(numbers, out or directory / 'report.html')}")
    if fail_on_violation and numbers.verdict == "violated":
        raise typer.Exit(VIOLATED)
