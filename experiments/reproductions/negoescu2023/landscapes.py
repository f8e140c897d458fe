"""Figures 1 and 2 of Negoescu et al. 2023: privacy and utility of trained models, and what section 4.2 says of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.engines import RayOptions
from experiments.reproductions.items import ItemResult, Row, table
from experiments.reproductions.negoescu2023.studies import (
    CANDIDATES,
    Study,
    Task,
    all_points,
    baseline_points,
    study_for,
)
from experiments.reproductions.papers import Context, NoDataError
from experiments.reproductions.statistics import resampling, share_interval, t_interval, welch_interval
from experiments.sweeps.landscape import UTILITY_NAMES
from experiments.sweeps.sweep import Sweep, run_sweep
from experiments.sweeps.tables import models_table
from fl_audit.data.catalogue import is_found
from fl_audit.evidence.epsilon_star import epsilon_star_gaussian
from fl_audit.evidence.star_estimate import PARAMETRIC_CUT

Floats = NDArray[np.float64]

PUBLISHED = {
    Task.PURCHASE: {10: (2.48, 0.86), 50: (7.06, 0.904), 100: (7.79, 0.906)},
    Task.ADULT: {},
}
"""Epsilon* and utility of the baselines by epochs, as section 4.2 gives them."""
LIMITS = {
    Task.PURCHASE: ("private models with Epsilon* below 1", 1.0),
    Task.ADULT: ("models with Epsilon* below 0.3", 0.3),
}
"""What section 4.2 says of all private models, or of all models."""
SAMPLES = 1000
"""Pairs of samples in which nothing leaks."""
OVERFITTED_FROM = 5
"""Section 4.2 compares private Adult models with baselines of so many epochs and more."""


@dataclass(frozen=True)
class Landscape:
    """A study with its models.

    Parameters
    ----------
    study
        What was trained.
    baselines
        Epsilon* (repetitions,) by epochs.
    private
        The models with a promise, rows of `models_table`.
    models
        All of them.
    """

    study: Study
    baselines: dict[int, Floats]
    private: pd.DataFrame
    models: pd.DataFrame


def available_study(task: Task, context: Context) -> Study:
    """Return the study of a task on the first of its data sets that is there.

    Raises
    ------
    NoDataError
        If none is.
    """
    directory = None if context.data_dir is None else str(context.data_dir.absolute())
    names = [study.data for study in CANDIDATES[task]]
    for study in CANDIDATES[task]:
        if is_found(study.data, directory):
            return study_for(study, context.extent)
    raise NoDataError(f"{' and '.join(names)} not found: give their directory with --data-dir or FL_AUDIT_DATA")


def figure_1(context: Context) -> ItemResult:
    """Return the landscape of the many-class task."""
    return _figure(Task.PURCHASE, context)


def figure_2(context: Context) -> ItemResult:
    """Return the landscape of Adult, and what sets it apart from the many-class task where that was trained."""
    return _figure(Task.ADULT, context)


def _figure(task: Task, context: Context) -> ItemResult:
    study = available_study(task, context)
    points = all_points(study, context.data_dir)
    title = f"Privacy and utility: {study.title}"
    options = RayOptions(context.ray_address)
    sweep = run_sweep(points, context.runs / study.key, options, progress=context.progress, title=title)
    found = landscape_of(study, sweep.models, context)
    other = other_landscape(task, context)
    rows = [*_point_rows(sweep, found), *_claim_rows(found), *(_contrast_rows(found, other) if other else ())]
    return ItemResult(
        table(rows),
        sweep.figure,
        f"Each point is the mean of {study.repetitions} models, with the range from the smallest to the largest; the "
        f"frontier is convex. {UTILITY_NAMES[sweep.utility].capitalize()} against Epsilon* at delta {study.delta:g}.",
        _remarks(study, found),
        shown_rows=len(rows),
        played=study.played,
    )


def landscape_of(study: Study, models: pd.DataFrame, context: Context) -> Landscape:
    """Return the models of a study, sorted."""
    names = {one.name: int(dict(one.settings)["training.epochs"]) for one in baseline_points(study, context.data_dir)}
    star = {epochs: models.loc[models["point"] == name, "epsilon_star"] for name, epochs in names.items()}
    baselines = {epochs: values.to_numpy(dtype=np.float64) for epochs, values in star.items()}
    return Landscape(study, baselines, models[models["private"]], models)


def other_landscape(task: Task, context: Context) -> Landscape | None:
    """Return the finished landscape of the other task in the same directory; None where there is none."""
    other = next(one for one in Task if one is not task)
    try:
        study = available_study(other, context)
    except NoDataError:
        return None
    points = all_points(study, context.data_dir)
    models = models_table(points, context.runs / study.key / "points")
    if models.empty or models["point"].nunique() < len(points):
        return None
    return landscape_of(study, models, context)


def _point_rows(sweep: Sweep, found: Landscape) -> Iterator[Row]:
    baselines = {f"training.epochs = {epochs}": epochs for epochs in found.baselines}
    for row in sweep.points.itertuples():
        models = sweep.models[sweep.models["point"] == row.point]
        epochs = baselines.get(str(row.settings), 0) if not row.private else 0
        printed = PUBLISHED[found.study.task].get(epochs, (np.nan, np.nan))
        setting = f"{found.study.title}, {row.settings}" if row.private else f"{found.study.title}, {epochs} epochs"
        note = "on the frontier" if row.on_frontier else ""
        for quantity, column, value in (
            ("Epsilon*", "epsilon_star", printed[0]),
            (UTILITY_NAMES[sweep.utility], sweep.utility.column, printed[1]),
        ):
            values = models[column].to_numpy(dtype=np.float64)
            yield Row(setting, quantity, value, np.nan, float(values.mean()), *t_interval(values), len(values), note)


def _claim_rows(found: Landscape) -> Iterator[Row]:
    """Yield what section 4.2 claims of one landscape, as numbers with intervals."""
    title, epochs = found.study.title, sorted(found.baselines)
    for fewer, more in pairwise(epochs):
        difference, low, high = welch_interval(found.baselines[more], found.baselines[fewer])
        yield Row(title, f"Epsilon* at {more} epochs less that at {fewer}", measured=difference, low=low, high=high,
                  repetitions=found.study.repetitions, note="claim: positive")  # fmt: skip
    star, promised = (found.private[name].to_numpy(dtype=np.float64) for name in ("epsilon_star", "epsilon"))
    yield _share(title, "private models with Epsilon* below their epsilon", star < promised)
    yield _floor(found.study)
    for epsilon in np.unique(np.round(promised, 2)):
        own = star[np.round(promised, 2) == epsilon]
        yield Row(title, f"Epsilon* of private models at epsilon = {epsilon:g}", measured=float(own.mean()),
                  low=t_interval(own)[0], high=t_interval(own)[1], repetitions=len(own),
                  note="mean over clipping norms and batches")  # fmt: skip
    name, limit = LIMITS[found.study.task]
    considered = star if found.study.task is Task.PURCHASE else found.models["epsilon_star"].to_numpy(dtype=np.float64)
    yield _share(title, name, considered < limit)
    trained = [values for number, values in found.baselines.items() if number >= OVERFITTED_FROM]
    if trained:
        difference, low, high = welch_interval(np.concatenate(trained), star)
        yield Row(title, f"Epsilon* of baselines from {OVERFITTED_FROM} epochs less that of private models",
                  measured=difference, low=low, high=high, repetitions=len(star), note="claim: positive")  # fmt: skip


def _floor(study: Study) -> Row:
    """Return what Epsilon* is by chance alone: members and population of one normal law, in the study's numbers."""
    random, counts = resampling(f"negoescu2023-{study.data}"), np.array([study.records, study.population_records])
    # Mean and variance of a normal sample are independent; their laws are known, so no sample is drawn.
    means = random.standard_normal((SAMPLES, 2)) / np.sqrt(counts)
    stds = np.sqrt(random.chisquare(counts - 1, (SAMPLES, 2)) / counts)
    star = epsilon_star_gaussian(means[:, 0], stds[:, 0], means[:, 1], stds[:, 1], study.delta, PARAMETRIC_CUT)
    low, high = (float(value) for value in np.quantile(star, (0.025, 0.975)))
    return Row(study.title, "Epsilon* by chance, of samples of one normal law", measured=float(star.mean()), low=low,
               high=high, repetitions=SAMPLES, note="mean and middle 95 %; numbers of losses as here")  # fmt: skip


def _share(title: str, name: str, holds: NDArray[np.bool_]) -> Row:
    low, high = share_interval(int(holds.sum()), len(holds))
    return Row(title, f"share of {name}", 1.0, np.nan, float(holds.mean()), low, high, len(holds), "claim: all")


def _contrast_rows(found: Landscape, other: Landscape) -> Iterator[Row]:
    """Yield how far the two tasks lie apart, at their longest training."""
    both = {one.study.task: one for one in (found, other)}
    many, adult = both[Task.PURCHASE], both[Task.ADULT]
    difference, low, high = welch_interval(many.baselines[max(many.baselines)], adult.baselines[max(adult.baselines)])
    yield Row(f"{many.study.title}, {max(many.baselines)} epochs, and Adult, {max(adult.baselines)} epochs",
              "Epsilon*, the former less the latter", measured=difference, low=low, high=high,
              repetitions=found.study.repetitions, note="claim: Adult far below")  # fmt: skip


def _remarks(study: Study, found: Landscape) -> tuple[str, ...]:
    star, promised = (found.private[name].to_numpy(dtype=np.float64) for name in ("epsilon_star", "epsilon"))
    exceeding = star >= promised
    above, gained = int(exceeding.sum()), found.private["membership_advantage"].to_numpy(dtype=np.float64)[exceeding]
    remarks = [
        "The paper leaves open delta, the epochs of private training, the batch of baselines and the network of Adult; "
        "those here are named above. It also tries 1 and 32 microbatches, here every record is clipped by itself.",
        "Epsilon* is the supremum over thresholds whose error rates lie between 1e-6 and 1 - 1e-6, so it cannot exceed "
        "ln 1e6 = 13.8. The paper's own cut is lost from its text; its largest value, 7.79, needs one of e^-7.79 = "
        "0.0004 or less. Over all thresholds, Epsilon* of overfitted models is far larger: it is found in tails of the "
        "fitted normals that no sample reaches.",
        "Epsilon* of a sample is above 0 where nothing leaks; a row says how far by chance, where scores are normal.",
        f"Of {len(star)} private models {above} have an Epsilon* at or above the epsilon they promise, against the "
        "paper. A single model may: the promise bounds a mechanism over its noise and any two neighbours, Epsilon* is "
        "an estimate for one model from samples and fitted normals. The membership adversary's advantage on these "
        f"models is {gained.mean():.3f} on average (largest {gained.max():.3f}): where it is small, the tails of "
        "normals that do not fit make the number, not a leak."
        if above
        else f"All {len(star)} private models have an Epsilon* below the epsilon they promise, as in the paper.",
    ]
    if study.task is Task.PURCHASE and study.data != "purchase100":
        remarks.append(
            f"Purchase-100 is not here. {study.title} has {study.records:,} training records where the paper has "
            "208,731, so that noise for the same epsilon costs more utility, and Epsilon* of a private model has a "
            "larger error; published numbers are those of Purchase-100."
        )
    return tuple(remarks)
