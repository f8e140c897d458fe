"""Command-line options: functions that define them, and options that several commands share."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from fl_audit.adjacency import Adjacency
from fl_audit.errors import require
from fl_audit.privacy.accounting_enums import MultiplierReference
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.expected_errors import VIOLATED
from fl_audit.runs.option_declarations import argument, option, switch
from fl_audit.value_checks import choice
from fl_audit.words import capital


def print_json(values: object) -> None:
    """Print a value as JSON in one line; raise `ValueError` if it contains NaN or infinite numbers."""
    print(json.dumps(values, allow_nan=False))


def end_if_violated(verdict: str, is_failure: bool) -> None:
    """End the command with exit status 4 if the verdict is "violated" and the user asked for this status.

    Parameters
    ----------
    verdict
        The verdict, as reports name it.
    is_failure
        Whether the user wants a violation to be a failure of the command.
    """
    if is_failure and verdict == "violated":
        raise typer.Exit(VIOLATED)


def complete_setting(incomplete: str) -> list[str]:
    """Return the shell completions of a text that begins a setting of the form `section.key=value`.

    Before "=", keys are completed; after "=", values of settings that accept a fixed list of words.
    """

    key, equals, value = incomplete.partition("=")

    from fl_audit.runs.config.settings_reference import settings

    if not equals:
        return [f"{setting.key}=" for setting in settings() if setting.key.startswith(key)]
    words = next((setting.choices or () for setting in settings() if setting.key == key), ())
    return [f"{key}={word}" for word in words if word.startswith(value)]


def engine_for(engine: str, ray_address: str | None) -> Engine:
    """Return the engine of the given name.

    Raises `InputError` if there is no such engine, or if a Ray cluster is named for the local engine.

    Parameters
    ----------
    engine
        "ray" or "local".
    ray_address
        HOST:PORT of a running Ray cluster, or None.
    """
    chosen = choice(Engine, "--engine", engine)
    fits = ray_address is None or chosen is Engine.RAY
    require(fits, f"--ray-address {ray_address!r} with --engine {engine}: it goes with --engine ray")
    return chosen


def noise_over_of(noise_over: str, noise_multiplier: float | None, flag: str) -> MultiplierReference:
    """Return the quantity, sensitivity or clipping norm, to which a noise multiplier is relative.

    Raises `InputError` if there is no such quantity, or if the clipping norm is named without a noise multiplier.

    Parameters
    ----------
    noise_over
        "sensitivity" or "clipping-norm".
    noise_multiplier
        Given noise multiplier, or None.
    flag
        Name of the option that gives the noise multiplier, for the message.
    """
    over = choice(MultiplierReference, "noise-over", noise_over)
    fits = noise_multiplier is not None or over is MultiplierReference.SENSITIVITY
    require(fits, f"noise-over {over} without {flag}: accepted is it beside {flag}")
    return over


ConfigArgument = Annotated[Path, argument("CONFIG.toml", "Configuration of the run.")]
DirectoryArgument = Annotated[Path, argument("DIR", "Directory of a run.")]
SetOption = Annotated[
    list[str] | None,
    option(
        "SECTION.KEY=VALUE",
        "Replace a setting of the file; may be repeated.",
        names=("--set",),
        autocompletion=complete_setting,
    ),
]
EngineOption = Annotated[
    str, option("ray|local", "Client calls in processes of Ray, or in threads of this one.", among=Engine)
]
AddressOption = Annotated[str | None, option("ADDRESS", "Address of a running Ray cluster (HOST:PORT).")]
DataDirOption = Annotated[Path | None, option("DIR", "Data directory.  [default: FL_AUDIT_DATA]")]
ADJACENCY_HELP = f"How neighbours differ: one of {', '.join(Adjacency)}."
NoiseOverOption = Annotated[
    str,
    option(
        "NAME",
        "What the noise multiplier multiplies: the sensitivity, which is 2 x clipping norm where a unit is replaced, "
        "or the clipping-norm, as Opacus, TensorFlow Privacy, dp-accounting and Flower quote it.",
        among=MultiplierReference,
    ),
]
FailOption = Annotated[bool, switch("--fail-on-violation", "End with status 4 if the verdict is violated: for CI.")]
JsonOption = Annotated[bool, switch("--json", "Print one JSON object and nothing else.")]


@dataclass(frozen=True)
class ResultOptions:
    """Command-line options of the output: a directory for files, and JSON instead of text."""

    HELP_GROUP: ClassVar[str] = "Result"

    out: Annotated[Path | None, option("DIR", "Write report.html and summary.json there.")] = None
    as_json: JsonOption = False

    def show(self, result: Mapping[str, Any]) -> None:
        """Print the result of an audit: as JSON with `--json`, else as a headline, lines and the path of a page.

        Parameters
        ----------
        result
            The content of `summary.json`, and perhaps `report`, the path of the page.
        """
        if self.as_json:
            print_json(result)
            return
        verdict, headline, warning = capital(result["verdict"]), result["headline"], result.get("warning")
        print(headline if headline.startswith(verdict) else f"{verdict}. {headline}")
        if warning:
            print(f"warning: {warning}")
        for subject, text in result["lines"]:
            if text != f"{warning}.":
                print(f"* {subject}: {text}")
        if result.get("report") is not None:
            print(f"report: {result['report']}")
