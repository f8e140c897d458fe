"""A finished run, read from its directory: verdict, summary, tables and figures."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from fl_audit.errors import require
from fl_audit.federation.run_tables import RunTables
from fl_audit.html_tables import html_table
from fl_audit.ordinary_files import read_file
from fl_audit.parquet_files import read_frame
from fl_audit.privacy.guarantee_line import guarantee_line
from fl_audit.run_files import read_json, read_summary
from fl_audit.runs.run_directory_checks import CONFIGURATION
from fl_audit.statistics.claim_comparisons import finding_text
from fl_audit.verdict.verdict import Verdict
from fl_audit.words import capital, number_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor


@dataclass(frozen=True)
class NotebookImage:
    """A figure of a run, which a notebook shows as an image."""

    name: str  # name of the figure, such as `beliefs`
    path: Path  # the PNG file

    def _repr_png_(self) -> bytes:
        return read_file(self.path)


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run, with its results: models, tables, and figures.

    Parameters
    ----------
    path
        Directory of the run.
    summary
        Content of `summary.json`: all numbers of the report, by section and name.
    tables
        Tables of the results by trial, by round, by release, and so on.
    configuration
        The configuration with all defaults, by section and key, without the challenger's seed.

    Examples
    --------
    >>> run = read_run("runs/first")  # doctest: +SKIP
    >>> run.verdict, run.summary["guarantee"]["epsilon"], run.trials["belief"].max()  # doctest: +SKIP
    """

    path: Path
    summary: Mapping[str, Any]
    tables: RunTables
    configuration: Mapping[str, Mapping[str, Any]]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the guarantee: consistent, violated, inconclusive, not audited, or no guarantee."""
        return Verdict(self.summary["verdict"])

    @property
    def trials(self) -> pd.DataFrame:
        """Table with one row per trial.

        Among its columns are bit (1 for D, 0 for D'), log_odds (of D against D', after the last round) and
        test_accuracy. Two more are belief (the insider's belief in the data set that was used) and won (whether the
        insider guessed right).
        """
        return self.tables.trials

    @property
    def rounds(self) -> pd.DataFrame:
        """Table with one row per trial and round.

        Its columns are sigma (standard deviation of the noise), local_sensitivity (length of the difference between D
        and D'), and log_odds (of D against D', after the round).
        """
        return self.tables.rounds

    @property
    def releases(self) -> pd.DataFrame:
        """Table with one row per trial and release, where release 0 is the initial model.

        Its columns are test_accuracy and epsilon_star (an estimate of Epsilon*, the model's privacy risk).
        """
        return self.tables.releases

    @property
    def history(self) -> pd.DataFrame:
        """Table with one row per evaluated release: its round, and the mean over trials of each other column."""
        return self.tables.releases.drop(columns="trial").groupby("round", as_index=False).mean()

    def model(self, trial: int = 0, round: int | None = None) -> "dict[str, Tensor]":
        """Return the parameters of a model of the run, which `torch.nn.Module.load_state_dict` takes.

        Parameters
        ----------
        trial
            Number of the trial, from 0.
        round
            Number of the round after which the model was stored, which the setting `checkpoint-every` in [run] asks
            for in trial 0. None for the final model; with early stopping this is the model that was chosen.

        Raises
        ------
        InputError
            If the run did not store the model.

        Examples
        --------
        >>> module = torch.nn.Linear(30, 2)  # doctest: +SKIP
        >>> module.load_state_dict(read_run("runs/first").model())  # doctest: +SKIP
        """
        from fl_audit.runs.stored_models import read_model  # noqa: PLC0415, a run without models needs no torch

        return read_model(self.path, trial, round)

    def final_models(self) -> "dict[int, Tensor]":
        """Return the final model of each trial that the run kept, keyed by trial, as one row of numbers.

        A row has all trained parameters, float32 (parameters,), in the order of the module's parameters. Where the
        models of all trials take more than a gigabyte, the run keeps that of trial 0 alone.

        Raises
        ------
        InputError
            If the run stored no models.

        Examples
        --------
        >>> torch.stack(list(read_run("runs/first").final_models().values())).std(dim=0)  # doctest: +SKIP
        """
        from fl_audit.runs.stored_models import final_models  # noqa: PLC0415, a run without models needs no torch

        return final_models(self.path)

    @property
    def best_round(self) -> int | None:
        """Number of the round after which the headline is best on test records; None if it was not computed.

        Test records choose it, which no guarantee covers. `model(round=...)` returns its model if `checkpoint-every`
        in [run] stored it.
        """
        best = (self.summary.get("utility") or {}).get("best_round")
        return None if best is None else int(best["round"])

    def plot(self, *columns: str) -> "Figure":
        """Return a figure of the curves of some columns of `history` over the rounds.

        Parameters
        ----------
        columns
            Names of columns, such as `test_auroc` or `epsilon`; without any, all metrics and the epsilon spent.

        Raises
        ------
        InputError
            If `history` has no such column.

        Examples
        --------
        >>> read_run("runs/first").plot("test_auroc", "epsilon")  # doctest: +SKIP
        """
        from fl_audit.runs.history_figure import history_figure  # noqa: PLC0415, matplotlib takes its time

        return history_figure(self.history, columns)

    @property
    def figures(self) -> dict[str, NotebookImage]:
        """The figures of the report by name; empty if the run has none."""
        paths = sorted((self.path / "figures").glob("*.png"))
        return {path.stem: NotebookImage(path.stem, path) for path in paths}

    @property
    def report(self) -> Path:
        """Path of the run's report, an HTML page."""
        return self.path / "report.html"

    def _repr_html_(self) -> str:
        verdict = "trained" if self.summary.get("shown_as_training") else str(self.verdict)
        title = f"{capital(verdict)}: {self.path.name}"
        return html_table(_rows(self.summary), title, [self.summary["scope"]])

    def __repr__(self) -> str:
        rows = "".join(f"\n  {name}: {value}" for name, value in _rows(self.summary))
        verdict = "trained" if self.summary.get("shown_as_training") else self.verdict
        return f"Run {self.path}: {verdict}{rows}"


def read_run(path: str | Path) -> Run:
    """Return a finished run, read from its directory.

    Nothing is computed again, and the secrets in `challenger/` are not read.
    """
    directory = Path(path)
    summary = read_summary(directory)
    configuration_path = directory / CONFIGURATION
    stored = read_json(configuration_path)
    is_there = isinstance(stored, dict) and isinstance(stored.get("configuration"), dict)
    require(is_there, f"{configuration_path} holds no configuration of a run")
    return Run(directory, summary, _tables(directory), stored["configuration"])


def _tables(directory: Path) -> RunTables:
    paths = {field.name: directory / f"{field.name}.parquet" for field in fields(RunTables)}
    missing = [path.name for name in ("trials", "rounds", "releases") if not (path := paths[name]).is_file()]
    require(not missing, f"{directory} lacks {', '.join(missing)}: accepted is the directory of a finished run")
    return RunTables(**{name: read_frame(path) for name, path in paths.items() if path.is_file()})


def _rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the main results as pairs of a name and a text."""
    guarantee, insider = (summary.get(section) or {} for section in ("guarantee", "insider"))
    rows_of_guarantee = [] if guarantee.get("adjacency") is None else [("guarantee", guarantee_line(guarantee))]
    if (trials := insider.get("trials")) is not None:
        rows_of_guarantee.append(("trials", number_text(trials, 3)))
    return rows_of_guarantee + [(row["name"], finding_text(row)) for row in summary.get("findings", [])]
