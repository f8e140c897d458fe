"""Runs for TensorBoard and MLflow, each through a package of its own, which a user of it has installed."""

from pathlib import Path

from experiments.exports.series import findings_of, series_of, settings_of
from fl_audit.api.stored_run import Run
from fl_audit.errors import InputError


def to_tensorboard(run: Run, directory: Path) -> Path:
    """Write the rounds, findings and figures of a run where `tensorboard --logdir` finds them; return its directory.

    Parameters
    ----------
    run, directory
        The run, and the log directory, in which it gets a directory of its own name, which must be new.

    Raises
    ------
    InputError
        If the package is missing, or the run is there already.
    """
    from matplotlib.image import imread

    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("tensorboard is not installed: install it with pip install 'fl-audit[tensorboard]'") from None
    place = directory / run.path.resolve().name
    if place.exists() and any(place.iterdir()):
        raise InputError(f"{place} exists: accepted is a log directory without a run of this name")
    with SummaryWriter(str(place)) as writer:
        for series in series_of(run):
            for step, value in zip(series.steps, series.values, strict=True):
                writer.add_scalar(series.name, value, step)
        for name, value in findings_of(run).items():
            writer.add_scalar(f"findings/{name}", value, 0)
        writer.add_text("verdict", f"**{run.verdict}**. {run.summary['scope']}")
        writer.add_text("configuration", "\n".join(f"    {name} = {text}" for name, text in settings_of(run).items()))
        for name, figure in run.figures.items():
            writer.add_image(f"figures/{name}", imread(figure.path)[..., :3], dataformats="HWC")
    return place


_LONGEST_PARAMETER = 500
_PUBLIC_FILES = ("report.html", "report.pdf", "summary.json")


def to_mlflow(run: Run, tracking_uri: str, experiment: str) -> str:
    """Write settings, rounds, findings, figures and report of a run to an MLflow tracking store; return its name there.

    Parameters
    ----------
    run, tracking_uri
        The run, and where to, such as `sqlite:///mlflow.db` or the address of a server.
    experiment
        Name of the experiment; made where it is missing.

    Raises
    ------
    InputError
        If the package is missing, or MLflow refuses.
    """
    try:
        import mlflow
    except ImportError:
        raise InputError("mlflow is not installed: install it with pip install 'fl-audit[mlflow]'") from None
    try:
        client = mlflow.MlflowClient(tracking_uri=tracking_uri)
        found = client.get_experiment_by_name(experiment)
        place = client.create_experiment(experiment) if found is None else found.experiment_id
        begun = client.create_run(place, run_name=run.path.resolve().name).info.run_id
        _log(client, begun, run)
        client.set_terminated(begun)
    except mlflow.exceptions.MlflowException as error:
        raise InputError(f"MLflow at {tracking_uri} refused: {str(error).splitlines()[0]}") from error
    return str(begun)


def _log(client: "object", begun: str, run: Run) -> None:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag

    assert isinstance(client, MlflowClient)
    parameters = [Param(name, text[:_LONGEST_PARAMETER]) for name, text in settings_of(run).items()]
    metrics = [
        Metric(series.name, value, 0, step)
        for series in series_of(run)
        for step, value in zip(series.steps, series.values, strict=True)
    ]
    metrics += [Metric(f"findings/{name}", value, 0, 0) for name, value in findings_of(run).items()]
    tags = [RunTag("verdict", str(run.verdict)), RunTag("scope", str(run.summary["scope"]))]
    # One call takes at most 1000 metrics and 100 parameters.
    for start in range(0, len(metrics), 900):
        client.log_batch(begun, metrics=metrics[start : start + 900])
    for start in range(0, len(parameters), 90):
        client.log_batch(begun, params=parameters[start : start + 90])
    client.log_batch(begun, tags=tags)
    for path in [*(figure.path for figure in run.figures.values()), *(run.path / name for name in _PUBLIC_FILES)]:
        if path.is_file():
            client.log_artifact(begun, str(path), "figures" if path.suffix == ".png" else None)
