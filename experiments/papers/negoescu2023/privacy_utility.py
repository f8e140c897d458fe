"""Figures 1 and 2 of Negoescu et al. 2023: Epsilon* and utility of trained models, with the claims of section 4.2.

Epsilon* is a privacy metric of one model, estimated from its losses on members and on the population.
"""

from collections.abc import Iterator, Mapping
from dataclasses import astuple
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from fl_audit.array_types import Floats
from fl_audit.experiments.papers import statistics
from fl_audit.experiments.papers.claims import NOTHING, PaperClaim
from fl_audit.experiments.papers.item_results import CONFIDENCE, ItemResult, ItemRow, measured_row, table
from fl_audit.experiments.papers.negoescu2023.epsilon_star_runs import (
    ADULT,
    BASE,
    CLAIMS,
    PRINTED,
    PURCHASE,
    all_runs,
    point_of,
)
from fl_audit.experiments.papers.papers import PaperDataset, StoredPaperRuns
from fl_audit.learning.metric_names import Metric, metric_column
from fl_audit.released_model.parametric_star import epsilon_star_gaussian
from fl_audit.released_model.star_methods import PARAMETRIC_CUT
from fl_audit.runs.sweeps.privacy_utility_plot import utility_name
from fl_audit.runs.sweeps.sweep import SweepResults, results_of
from fl_audit.runs.sweeps.tables import models_table
from fl_audit.statistics.interval_estimates import IntervalEstimate
from fl_audit.words import plural

SAMPLES = 1000  # number of pairs of samples that are drawn to see what Epsilon* is where nothing leaks
OVERFITTED_FROM = 5  # section 4.2 compares private models with baselines that were trained for at least so many epochs


def _by_setting(models: pd.DataFrame, column: str) -> dict[str, Floats]:
    """Return the values of one column of a table of models, (repetitions,), keyed by the models' setting."""
    return {
        str(name): frame.sort_values("trial")[column].to_numpy(dtype=np.float64)
        for name, frame in models.groupby("point")
    }


def baselines_of(models: pd.DataFrame) -> dict[int, Floats]:
    """Return Epsilon* of the models without DP, (repetitions,), by their epochs."""
    plain = models[~models["private"]]
    return {
        int(float(str(epochs))): frame["epsilon_star"].to_numpy(dtype=np.float64)
        for epochs, frame in plain.groupby("training.epochs")
    }


def figure_of(paper_runs: StoredPaperRuns) -> ItemResult:
    """Return the figure of the privacy and utility of one task's models."""
    (data,) = paper_runs.data
    utility = Metric.ACCURACY if data.study == PURCHASE.study else Metric.AUROC
    points = [point_of(run) for run in all_runs(data)]
    utility_title = f"Privacy and utility: {data.title}"
    sweep = results_of(points, directory_of(paper_runs, data), utility, utility_title, by_guarantee=False)
    rows = [*_point_rows(data, sweep), *_level_rows(data, sweep.models)]
    claims = claims_of_figure(paper_runs)
    return ItemResult(
        table(rows),
        sweep.figure,
        f"Each point is the mean of {data['audit.trials']} models, with the range from the smallest to the largest; "
        "the frontier is convex.",
        _remarks(data, sweep.models),
        shown_rows=len(rows),
        procedure=training_description(data),
        data=(data.title,),
        claims=claims,
    )


def training_description(dataset: PaperDataset) -> str:
    """Return a description of the training of all models on a data set, in sentences."""
    private = len(dataset["epsilons"]) * len(dataset["clipping-norms"]) * len(dataset["batches"])
    baseline_epochs = ", ".join(map(str, dataset["baseline-epochs"]))
    return (
        f"{dataset['model.name']} on {dataset['data.records']:,} records of {dataset.title} at {BASE['data.clients']} "
        f"clients, {dataset['data.test-records']:,} test records, SGD with momentum {BASE['training.momentum']:g} and "
        f"learning rate {BASE['training.learning-rate']:g}. Without privacy: {baseline_epochs} epochs, batches of "
        f"{dataset['batches'][0]} on average. Private: {private} settings, {dataset['training.epochs']} epochs each, "
        f"RDP accountant, add-or-remove, delta {dataset['privacy.delta']:g}."
    )


def directory_of(paper_runs: StoredPaperRuns, dataset: PaperDataset) -> Path:
    """Return the directory of all runs on a data set."""
    return paper_runs[all_runs(dataset)[0]].path.parent


def claims_of_figure(paper_runs: StoredPaperRuns) -> tuple[PaperClaim, ...]:
    """Return the claims on one task, and on Adult also one that compares it with the other task, if that was run."""
    (data,) = paper_runs.data
    models = _models(paper_runs, data)
    many_classes = (
        {run.data for run in paper_runs.runs if run.data.study == PURCHASE.study} if data.study == ADULT.study else ()
    )
    contrasts = (_contrast((dataset, _models(paper_runs, dataset)), (data, models)) for dataset in many_classes)
    return (*_claims(data, models), *contrasts)


def _models(paper_runs: StoredPaperRuns, dataset: PaperDataset) -> pd.DataFrame:
    return models_table([point_of(run) for run in all_runs(dataset)], directory_of(paper_runs, dataset))


def _point_rows(dataset: PaperDataset, sweep: SweepResults) -> Iterator[ItemRow]:
    points = {run["point"].name: run for run in all_runs(dataset)}
    for row in sweep.points.itertuples():
        run = points[str(row.point)]
        models = sweep.models[sweep.models["point"] == row.point]
        epochs = "" if row.private else plural(run["training.epochs"], "epoch")
        for quantity, column in (
            ("Epsilon*", "epsilon_star"),
            (utility_name(sweep.utility), metric_column(sweep.utility)),
        ):
            values = models[column].to_numpy(dtype=np.float64)
            printed = PRINTED(dataset.study, epochs, quantity)
            note = ["on the frontier"] if row.on_frontier else []
            note += [f"{printed:g} in print, on {dataset.study}"] if dataset.stands_in and np.isfinite(printed) else []
            published = np.nan if dataset.stands_in else printed
            setting = f"{dataset.title}, {epochs or str(row.settings)}"
            mean = statistics.t_interval(values)
            yield measured_row(setting, quantity, mean, len(values), "; ".join(note), published=published)


def _claims(dataset: PaperDataset, models: pd.DataFrame) -> Iterator[PaperClaim]:
    """Yield the claims on one task: those of section 4.2, and one of section 1 that compares Epsilon* with epsilon.

    Intervals hold for all settings at the same time (Bonferroni). In each repetition all settings have the same initial
    weights and samples, so differences of settings are paired.
    """
    title = dataset.title
    baselines = baselines_of(models)
    all_private = models[models["private"]]
    trials = dataset["audit.trials"]
    for fewer, larger in pairwise(sorted(baselines)):
        rise = baselines[larger] - baselines[fewer]
        quantity = f"Epsilon* at {larger} epochs less that at {fewer}"
        claim = CLAIMS["epochs-raise-epsilon-star"]
        yield claim.on(title, statistics.t_interval(rise), trials, quantity=quantity)
    private = _by_setting(all_private, "epsilon_star")
    claimed = all_private.groupby("point")["epsilon"].first()
    excess = _largest({name: values - claimed[name] for name, values in private.items()})
    yield CLAIMS["private-below-epsilon"].on(title, excess, trials)
    has_many_classes = dataset.study == PURCHASE.study
    key, considered = (
        ("private-below-one", private) if has_many_classes else ("all-below-0-3", _by_setting(models, "epsilon_star"))
    )
    yield CLAIMS[key].on(title, _largest(considered), trials)
    trained = {number: values for number, values in baselines.items() if number >= OVERFITTED_FROM}
    if trained and not has_many_classes:
        lowest = min(trained.values(), key=lambda values: float(values.mean()))
        excess = _largest({name: values - lowest for name, values in private.items()})
        yield CLAIMS["private-below-baselines"].on(title, excess, trials)
    yield from _claims_of_utility(dataset, models)


def _claims_of_utility(dataset: PaperDataset, models: pd.DataFrame) -> Iterator[PaperClaim]:
    """Yield the claims of section 4.2 about utility and its trade-off."""
    title = dataset.title
    has_many_classes = dataset.study == PURCHASE.study
    baselines = baselines_of(models)
    all_private = models[models["private"]]
    trials = dataset["audit.trials"]
    column, text = ("test_accuracy", "test accuracy") if has_many_classes else ("test_auroc", "test auroc")
    plain = _by_setting(models[~models["private"]], column)
    private = _by_setting(all_private, column)
    if has_many_classes:
        for fewer, larger in pairwise(sorted(baselines)):
            few_epochs, many_epochs = (
                next(plain[name] for name in plain if name.endswith(f"epochs={n}")) for n in (larger, fewer)
            )
            rise = statistics.t_interval(few_epochs - many_epochs)
            quantity = f"test accuracy at {larger} epochs less that at {fewer}"
            yield CLAIMS["epochs-raise-accuracy"].on(title, rise, trials, quantity=quantity)
        best = np.max(list(baselines.values()), axis=0)
        ratio = np.log(best / np.min(list(_by_setting(all_private, "epsilon_star").values()), axis=0))
        ends = map(float, np.exp(astuple(statistics.t_interval(ratio))))
        yield CLAIMS["eight-times"].on(title, IntervalEstimate(*ends), trials)
    else:
        first = next(values for name, values in plain.items() if name.endswith(f"epochs={min(baselines)}"))
        beaten = np.mean([first > values for values in private.values()], axis=0)
        yield CLAIMS["one-epoch-is-useful"].on(title, statistics.mean_of_shares(beaten), trials)
    lost = np.mean(list(plain.values()), axis=0) - np.mean(list(private.values()), axis=0)
    quantity = f"mean {text}, baselines less private models"
    yield CLAIMS["privacy-costs-utility"].on(title, statistics.t_interval(lost), trials, quantity=quantity)
    largest = all_private["privacy.epsilon"].max()
    utilities = _by_setting(all_private[all_private["privacy.epsilon"] == largest], column)
    if len(utilities) > 1:
        spread = np.ptp(list(utilities.values()), axis=0)
        quantity = f"largest less smallest {text} at epsilon {largest:g}"
        yield CLAIMS["utility-by-settings"].on(title, statistics.t_interval(spread), trials, quantity=quantity)
    if has_many_classes and dataset.stands_in:
        why = "the data of Purchase-100 cannot be had"
        yield CLAIMS["printed-baselines"].on(dataset.study, NOTHING, why=why)


def _largest(settings: Mapping[str, Floats]) -> IntervalEstimate:
    """Return the largest mean over settings, with an interval that accounts for all of them (Bonferroni)."""
    confidence = 1 - (1 - CONFIDENCE) / len(settings)
    return statistics.end_by_end(max, [statistics.t_interval(values, confidence) for values in settings.values()])


def _level_rows(dataset: PaperDataset, models: pd.DataFrame) -> Iterator[ItemRow]:
    """Yield a row of the Epsilon* that chance alone gives, and a row of mean Epsilon* for each claimed epsilon."""
    yield _floor(dataset)
    for epsilon, frame in models[models["private"]].groupby("privacy.epsilon"):
        values = frame.groupby("trial")["epsilon_star"].mean().to_numpy(dtype=np.float64)
        quantity = f"Epsilon* of private models at epsilon = {float(str(epsilon)):g}"
        mean = statistics.t_interval(values)
        note = "mean over clipping norms and batches"
        yield measured_row(dataset.title, quantity, mean, len(values), note)


def _floor(dataset: PaperDataset) -> ItemRow:
    """Return the row of the Epsilon* that chance alone gives to a model without a leak.

    The losses of members and of the population are simulated from the same normal distribution.
    """
    random = statistics.reproducible_generator(f"negoescu2023-{dataset.name}")
    counts = np.array([dataset["data.records"], dataset["data.population-records"]])
    # Mean and variance of a normal sample are independent with known distributions, so they are drawn instead of
    # samples.
    means = random.standard_normal((SAMPLES, 2)) / np.sqrt(counts)
    stds = np.sqrt(random.chisquare(counts - 1, (SAMPLES, 2)) / counts)
    star = epsilon_star_gaussian(
        means[:, 0], stds[:, 0], means[:, 1], stds[:, 1], dataset["privacy.delta"], PARAMETRIC_CUT
    )
    low, high = (float(value) for value in np.quantile(star, (0.025, 0.975)))
    return measured_row(
        dataset.title,
        "Epsilon* by chance, of samples of one normal distribution",
        IntervalEstimate(float(star.mean()), low, high),
        SAMPLES,
        "mean and middle 95 %; numbers of losses as here",
    )


Models = tuple[PaperDataset, pd.DataFrame]  # a data set with the table of all models on it


def _contrast(many_classes: Models, adult: Models) -> PaperClaim:
    """Return the claim that Epsilon* of Purchase-100 exceeds that of Adult, both without DP at the most epochs."""
    of_many = baselines_of(many_classes[1])
    of_adult = baselines_of(adult[1])
    longest = max(of_many), max(of_adult)
    difference = statistics.welch_interval(of_many[longest[0]], of_adult[longest[1]])
    where = f"{many_classes[0].title}, {longest[0]} epochs, and Adult, {longest[1]} epochs"
    return CLAIMS["tasks-apart"].on(where, difference, min(many_classes[0]["audit.trials"], adult[0]["audit.trials"]))


def _remarks(dataset: PaperDataset, models: pd.DataFrame) -> tuple[str, ...]:
    remarks = [
        "Lost settings: the paper's text has lost delta and the cut of Epsilon*, and it does not state the epochs of "
        "private training, the batch size of baselines and the network for Adult. The paper also tries 1 and 32 "
        "microbatches; here every record is clipped by itself.",
        f"Largest Epsilon*: Epsilon* is the supremum over thresholds whose error rates lie between {PARAMETRIC_CUT:g} "
        f"and 1 minus that, so it cannot exceed {-np.log(PARAMETRIC_CUT):.1f}; near this limit differences say little. "
        "The paper's largest value, 7.79, needs a cut of e^-7.79 = 0.0004 or less.",
        "Epsilon* of a sample: it is above 0 even where nothing leaks; a row says how large it is by chance if scores "
        "are normal. Intervals are over repeated training on the same records, so they do not include what other "
        "records would change.",
    ]
    private = models[models["private"]]
    if (private["epsilon_star"] >= private["epsilon"]).any():
        remarks.append(_remark_on_exceeding(private))
    if dataset.stands_in:
        remarks.append(
            f"{dataset.title} has {dataset['data.records']:,} training records instead of 208,731, so the noise for "
            "the same epsilon costs more utility, and Epsilon* of a private model has a larger error. The printed "
            "numbers, of other data, stand in the column Note of the table."
        )
    return tuple(remarks)


def _remark_on_exceeding(private: pd.DataFrame) -> str:
    exceeding_models = private[private["epsilon_star"] >= private["epsilon"]]
    gained = exceeding_models["membership_advantage"].to_numpy(dtype=np.float64)
    return (
        f"{len(exceeding_models)} of {len(private)} private models have an Epsilon* at or above the epsilon they "
        "guarantee. That refutes no guarantee, which is about the mechanism and not about one model. The membership "
        f"adversary's advantage on them is {gained.mean():.3f} on average ({gained.max():.3f} at most): where it is "
        "close to 0, Epsilon* is an artefact of normals that do not fit."
    )
