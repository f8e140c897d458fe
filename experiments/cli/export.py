"""The command that hands finished runs to other tools: export."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from experiments.cli.options import argument, option
from fl_audit.errors import InputError


class Target(StrEnum):
    """What a run is exported to."""

    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"
    BADGE = "badge"


def export(
    runs: Annotated[list[Path], argument("DIR...", "Directories of finished runs.")],
    to: Annotated[str, option("--to", "NAME", f"One of {', '.join(Target)}.")],
    out: Annotated[
        str,
        option(
            "--out",
            "PLACE",
            "tensorboard: log directory; mlflow: tracking URI, such as sqlite:///mlflow.db; badge: SVG file.",
        ),
    ],
    experiment: Annotated[str, option("--experiment", "NAME", "MLflow's experiment.")] = "fl-audit",
) -> None:
    """Write rounds, findings and figures of finished runs for TensorBoard or MLflow, or the verdict as a badge."""
    if to not in list(Target):
        raise InputError(f"--to {to!r}: accepted are {', '.join(Target)}")
    if to == Target.BADGE:
        _write_badge(runs, Path(out))
        return
    from fl_audit.api.stored_run import read_run

    for run in [read_run(path) for path in runs]:
        if to == Target.TENSORBOARD:
            from experiments.exports.tensorboard import to_tensorboard

            print(f"tensorboard: {to_tensorboard(run, Path(out))}")
        else:
            from experiments.exports.mlflow import to_mlflow

            print(f"mlflow: run {to_mlflow(run, out, experiment)} in experiment {experiment} at {out}")


def _write_badge(runs: list[Path], out: Path) -> None:
    """Draw the verdict of a run; its tables, which take a second to import, are not needed."""
    if len(runs) > 1:
        raise InputError(f"--to badge with {len(runs)} runs: accepted is one run")
    from experiments.exports.badge import badge
    from fl_audit.stored_json import read_summary
    from fl_audit.whole_files import whole_file

    summary = read_summary(runs[0])
    with whole_file(out) as file:
        file.write_text(badge(summary), encoding="utf-8")
    print(f"badge: {out}")
