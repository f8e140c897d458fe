"""Campaigns that check the auditor: `python -m tests.validation NAME [OPTIONS]`; without a name, they are listed."""

import ast
import sys
from importlib import import_module
from pathlib import Path

from fl_audit.errors import InputError
from fl_audit.runs.expected_errors import guarded

CAMPAIGNS = {
    "breaches": "breaches",
    "chaos": "chaos",
    "corpus": "corpus.campaign",
    "coverage": "coverage",
    "device_equality": "device_equality",
    "equality": "equality",
    "false_alarms": "faulty_mechanisms.false_alarms",
    "faulty_mechanisms": "faulty_mechanisms.campaign",
    "guarantees": "guarantees",
    "honest_runs": "honest_runs",
    "honest_trainings": "honest_trainings",
    "llr_distribution": "llr_distribution",
    "mutants": "mutants",
    "public_trainings": "public_trainings.campaign",
    "star_estimators": "star_estimators",
    "tried_models": "tried_models",
    "verdicts": "verdicts",
}
"""Modules of the campaigns, each with a function `main` that reads its options from the command line."""


def title(name: str) -> str:
    """Return the first sentence of a campaign's docstring, without its command."""
    path = Path(__file__).parent.joinpath(*CAMPAIGNS[name].split(".")).with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].partition(": `python")[0].rstrip(".")


def play(name: str, *options: str) -> None:
    """Play a campaign with the options of its command line."""
    if name not in CAMPAIGNS:
        raise InputError(f"campaign is {name!r}: accepted are {', '.join(CAMPAIGNS)}")
    sys.argv[:] = [f"python -m tests.validation {name}", *options]
    import_module(f"tests.validation.{CAMPAIGNS[name]}").main()


def main() -> None:
    """Play the campaign that the command line names, or list all."""
    name, *options = sys.argv[1:] or ["--help"]
    if name not in ("--help", "-h"):
        guarded(lambda: play(name, *options))
        return
    print(__doc__)
    for campaign in CAMPAIGNS:
        print(f"  {campaign:22}{title(campaign)}")


if __name__ == "__main__":
    main()
