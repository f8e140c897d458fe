"""Runs for TensorBoard, through torch and the package `tensorboard`."""

from pathlib import Path

from experiments.exports.series import findings_of, series_of, settings_of
from fl_audit.api.stored_run import Run
from fl_audit.errors import InputError


def to_tensorboard(run: Run, directory: Path) -> Path:
    """Write the rounds, findings and figures of a run where `tensorboard --logdir` finds them.

    Parameters
    ----------
    run
        The run.
    directory
        Log directory; the run gets a directory of its own name in it, which must be new.

    Returns
    -------
    Path
        Directory of the run.

    Raises
    ------
    InputError
        If the package is missing, or the run is there already.
    """
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
            writer.add_image(f"figures/{name}", _pixels(figure.path), dataformats="HWC")
    return place


def _pixels(path: Path) -> object:
    from matplotlib.image import imread

    return imread(path)[..., :3]
