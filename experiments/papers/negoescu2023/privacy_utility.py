"""Figures 1 and 2 of Negoescu et al. 2023: Epsilon* and utility of trained models, with the claims of section 4.2.

Epsilon* is a privacy metric of one model, estimated from its losses on members and on the population.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd

from fl_audit.array_types import Floats
from fl_audit.data.catalogue import is_found
from fl_audit.errors import require
from fl_audit.experiments.papers import statistics
from fl_audit.experiments.papers.claims import PaperClaim, untested, verdicts_said
from fl_audit.experiments.papers.item_results import CONFIDENCE, ItemResult, ItemRow, measured_row, table
from fl_audit.experiments.papers.negoescu2023.studies import CANDIDATES, EpsilonStarTask, EpsilonStarTaskSettings
from fl_audit.experiments.papers.papers import NoDataError, ReproductionOptions
from fl_audit.experiments.papers.run_scheduling import spent_on
from fl_audit.plurals import plural
from fl_audit.released_model.parametric_star import epsilon_star_gaussian
from fl_audit.released_model.star_methods import PARAMETRIC_CUT
from fl_audit.runs.planning import plan_run
from fl_audit.runs.ray_engine import RayOptions
from fl_audit.runs.run_directory import RunDirectory
from fl_audit.runs.sweeps.privacy_utility_plot import UTILITY_NAMES
from fl_audit.runs.sweeps.sweep import RUNS, SweepResults, run_sweep
from fl_audit.runs.sweeps.tables import models_table
from fl_audit.statistics.interval_estimates import IntervalEstimate

PUBLISHED = {
    EpsilonStarTask.PURCHASE: {10: (2.48, 0.86), 50: (7.06, 0.904), 100: (7.79, 0.906)},
    EpsilonStarTask.ADULT: {},
}
"""Epsilon* and utility of the baselines by their epochs, as stated in section 4.2."""
LIMITS = {EpsilonStarTask.PURCHASE: ("below 1", 1.0), EpsilonStarTask.ADULT: ("below 0.3", 0.3)}
"""Upper limit of Epsilon* that section 4.2 states: for all private models of Purchase-100, for all models of Adult."""
SAMPLES = 1000  # number of pairs of samples that are drawn to see what Epsilon* is where nothing leaks
OVERFITTED_FROM = 5  # section 4.2 compares private models with baselines that were trained for at least so many epochs


@dataclass(frozen=True)
class PrivacyUtilityResults:
    """The trained models of a classification task, with the Epsilon* and the utility of each."""

    study: EpsilonStarTaskSettings  # the study
    baselines: dict[int, Floats]  # Epsilon* of the models without privacy, shape (repetitions,), by their epochs
    private: pd.DataFrame  # the private models, as rows of `models_table`
    models: pd.DataFrame  # all models, likewise


def _by_setting(models: pd.DataFrame, column: str) -> dict[str, Floats]:
    """Return the values of one column of a table of models, (repetitions,), keyed by the models' setting."""
    return {
        str(name): own.sort_values("trial")[column].to_numpy(dtype=np.float64) for name, own in models.groupby("point")
    }


def available_study(task: EpsilonStarTask, context: ReproductionOptions) -> EpsilonStarTaskSettings:
    """Return the study of a task on the first of its data sets that is available."""
    require(context.engine is None, f"--engine {context.engine}: models of this paper are points of a sweep, over Ray")
    directory = None if context.data_dir is None else str(context.data_dir.absolute())
    for study in CANDIDATES[task]:
        if is_found(study.data, directory):
            return study.in_form(context.extent)
    names = " and ".join(study.data for study in CANDIDATES[task])
    raise NoDataError(f"{names} not found: give their directory with --data-dir or FL_AUDIT_DATA")


def _figure(task: EpsilonStarTask, context: ReproductionOptions) -> ItemResult:
    """Train the models of a task if needed, and return the figure of their privacy and utility.

    Figure 2 is also compared with figure 1 if the models of figure 1 are trained already.
    """
    study = available_study(task, context)
    if study.is_substitute:
        context.announce(f"{task} is not there: {study.title}")
    points = study.points(context.data_dir)
    sweep = run_sweep(
        points, context.runs / study.key, RayOptions(context.ray_address), progress=context.progress,
        title=f"Privacy and utility: {study.title}", by_guarantee=False,
    )  # fmt: skip
    found = _landscape_of(study, sweep.models, context)
    rows, claims = [*_point_rows(sweep, found), *_level_rows(found)], list(_claims(found))
    # Figure 1 is made first, so only figure 2 can compare the two.
    many = _finished_landscape(EpsilonStarTask.PURCHASE, context) if task is EpsilonStarTask.ADULT else None
    claims += [_contrast(many, found)] if many else []
    runs = context.runs / study.key / RUNS
    return ItemResult(
        table(rows),
        sweep.figure,
        f"Each point is the mean of {study.repetitions} models, with the range from the smallest to the largest; the "
        f"frontier is convex. Horizontal: Epsilon* at delta {study.delta:g}; vertical: {UTILITY_NAMES[sweep.utility]}.",
        _remarks(study, found, claims),
        shown_rows=len(rows),
        played=study.training_description,
        data=(study.title,),
        claims=tuple(claims),
        spent=spent_on({runs / one.name: study.repetitions for one in points}),
    )


figure_1, figure_2 = partial(_figure, EpsilonStarTask.PURCHASE), partial(_figure, EpsilonStarTask.ADULT)


def _landscape_of(
    study: EpsilonStarTaskSettings, models: pd.DataFrame, context: ReproductionOptions
) -> PrivacyUtilityResults:
    """Return the models of a study, split into those without and with DP."""
    names = {one.name: int(dict(one.settings)["training.epochs"]) for one in study.baselines(context.data_dir)}
    star = {epochs: models.loc[models["point"] == name, "epsilon_star"] for name, epochs in names.items()}
    baselines = {epochs: values.to_numpy(dtype=np.float64) for epochs, values in star.items()}
    return PrivacyUtilityResults(study, baselines, models[models["private"]], models)


def _finished_landscape(task: EpsilonStarTask, context: ReproductionOptions) -> PrivacyUtilityResults | None:
    """Return the trained models of the study of a task; None if the data or some models are missing."""
    try:
        study = available_study(task, context)
    except NoDataError:
        return None
    points, runs = study.points(context.data_dir), context.runs / study.key / RUNS
    if not all(RunDirectory(runs / one.name).is_finished(plan_run(one.config).config) for one in points):
        return None
    return _landscape_of(study, models_table(points, runs), context)


def _point_rows(sweep: SweepResults, found: PrivacyUtilityResults) -> Iterator[ItemRow]:
    task, epochs_of = found.study.task, {one: f"training.epochs = {one}" for one in found.baselines}
    for row in sweep.points.itertuples():
        models = sweep.models[sweep.models["point"] == row.point]
        epochs = 0 if row.private else next(one for one, said in epochs_of.items() if str(row.settings).endswith(said))
        setting = f"{found.study.title}, {str(row.settings) if row.private else plural(epochs, 'epoch')}"
        printed = PUBLISHED[task].get(epochs, (np.nan, np.nan))
        for quantity, column, value in (
            ("Epsilon*", "epsilon_star", printed[0]),
            (UTILITY_NAMES[sweep.utility], sweep.utility.column, printed[1]),
        ):
            values = models[column].to_numpy(dtype=np.float64)
            note = ["on the frontier"] if row.on_frontier else []
            note += [f"{value:g} in print, on {task}"] if found.study.is_substitute and np.isfinite(value) else []
            published = np.nan if found.study.is_substitute else value
            mean = statistics.t_interval(values)
            yield measured_row(setting, quantity, mean, len(values), "; ".join(note), published=published)


def _claims(found: PrivacyUtilityResults) -> Iterator[PaperClaim]:
    """Yield the claims on one task: those of section 4.2, and one of section 1 that compares Epsilon* with epsilon.

    Intervals hold for all settings at the same time (Bonferroni). In each repetition all settings have the same initial
    weights and samples, so differences of settings are paired.
    """
    study, title, epochs = found.study, found.study.title, sorted(found.baselines)
    claim = partial(PaperClaim, trials=study.repetitions)
    for fewer, more in pairwise(epochs):
        yield claim("4.2", "more epochs without privacy give a larger Epsilon*", title,
                    f"Epsilon* at {more} epochs less that at {fewer}",
                    statistics.t_interval(found.baselines[more] - found.baselines[fewer]), 0.0)  # fmt: skip
    private = _by_setting(found.private, "epsilon_star")
    claimed = found.private.groupby("point")["epsilon"].first()
    yield claim("1", "Epsilon* of private models lies below their epsilon", title,
                "largest Epsilon* less epsilon, over private settings",
                _largest({name: values - claimed[name] for name, values in private.items()}), highest=0.0)  # fmt: skip
    many = study.task is EpsilonStarTask.PURCHASE
    name, limit = LIMITS[study.task]
    considered = private if many else _by_setting(found.models, "epsilon_star")
    yield claim("4.2", f"Epsilon* of {'private models' if many else 'all models'} is {name}", title,
                "largest Epsilon*, over settings", _largest(considered), highest=limit)  # fmt: skip
    trained = {number: values for number, values in found.baselines.items() if number >= OVERFITTED_FROM}
    if trained and not many:
        lowest = min(trained.values(), key=lambda values: float(values.mean()))
        yield claim("4.2", f"private models have a lower Epsilon* than baselines from {OVERFITTED_FROM} epochs", title,
                    "largest Epsilon* of private settings less the lowest of these baselines",
                    _largest({name: values - lowest for name, values in private.items()}), highest=0.0)  # fmt: skip
    yield from _claims_of_utility(found, claim)


EIGHT_TIMES = 'privacy lowers Epsilon* "by up to 800 %", read as: the largest ratio of two settings is 8 or more'
EIGHT_TIMES_NUMBER = "largest Epsilon* of baselines over the smallest of private settings, geometric mean"


def _claims_of_utility(found: PrivacyUtilityResults, claim: "partial[PaperClaim]") -> Iterator[PaperClaim]:
    """Yield the claims of section 4.2 about utility and its trade-off; `claim` fills in the number of trials."""
    study, title, many = found.study, found.study.title, found.study.task is EpsilonStarTask.PURCHASE
    column, said = ("test_accuracy", "test accuracy") if many else ("test_auroc", "test auroc")
    plain = _by_setting(found.models[~found.models["private"]], column)
    private = _by_setting(found.private, column)
    if many:
        for fewer, more in pairwise(sorted(found.baselines)):
            one, other = (next(plain[name] for name in plain if name.endswith(f"epochs={n}")) for n in (more, fewer))
            yield claim("4.2", "more epochs without privacy give a higher accuracy", title,
                        f"test accuracy at {more} epochs less that at {fewer}", statistics.t_interval(one - other),
                        0.0)  # fmt: skip
        best = np.max(list(found.baselines.values()), axis=0)
        ratio = np.log(best / np.min(list(_by_setting(found.private, "epsilon_star").values()), axis=0))
        yield claim("abstract", EIGHT_TIMES, title, EIGHT_TIMES_NUMBER,
                    IntervalEstimate(*map(float, np.exp(astuple(statistics.t_interval(ratio))))), 8.0)  # fmt: skip
    else:
        first = next(values for name, values in plain.items() if name.endswith(f"epochs={min(found.baselines)}"))
        beaten = np.mean([first > values for values in private.values()], axis=0)
        yield claim("4.2", "the model of one epoch is more useful than most private models", title,
                    "share of private settings with a lower utility", statistics.mean_of_shares(beaten),
                    0.5)  # fmt: skip
    lost = np.mean(list(plain.values()), axis=0) - np.mean(list(private.values()), axis=0)
    yield claim("4.2", "privacy costs utility", title,
                f"mean {said}, baselines less private models", statistics.t_interval(lost), 0.0)  # fmt: skip
    largest = found.private["privacy.epsilon"].max()
    alike = _by_setting(found.private[found.private["privacy.epsilon"] == largest], column)
    if len(alike) > 1:
        apart = np.ptp(list(alike.values()), axis=0)
        yield claim("4.2", "at one epsilon utility depends strongly on the other settings", title,
                    f"largest less smallest {said} at epsilon {largest:g}", statistics.t_interval(apart),
                    0.1)  # fmt: skip
    if many and study.is_substitute:
        yield untested("4.2", "Epsilon* is 2.48, 7.06 and 7.79, accuracy .86, .904 and .906 at 10, 50 and 100 epochs",
                       "the data of Purchase-100 cannot be had", str(study.task))  # fmt: skip


def _largest(settings: Mapping[str, Floats]) -> IntervalEstimate:
    """Return the largest mean over settings, with an interval that accounts for all of them (Bonferroni)."""
    confidence = 1 - (1 - CONFIDENCE) / len(settings)
    return statistics.end_by_end(max, [statistics.t_interval(values, confidence) for values in settings.values()])


def _level_rows(found: PrivacyUtilityResults) -> Iterator[ItemRow]:
    """Yield a row of the Epsilon* that chance alone gives, and a row of mean Epsilon* for each claimed epsilon."""
    yield _floor(found.study)
    for epsilon, own in found.private.groupby("privacy.epsilon"):
        values = own.groupby("trial")["epsilon_star"].mean().to_numpy(dtype=np.float64)
        quantity = f"Epsilon* of private models at epsilon = {float(str(epsilon)):g}"
        mean, note = statistics.t_interval(values), "mean over clipping norms and batches"
        yield measured_row(found.study.title, quantity, mean, len(values), note)


def _floor(study: EpsilonStarTaskSettings) -> ItemRow:
    """Return the row of the Epsilon* that chance alone gives to a model without a leak.

    The losses of members and of the population are simulated from the same normal distribution.
    """
    random = statistics.reproducible_generator(f"negoescu2023-{study.data}")
    counts = np.array([study.records, study.population_records])
    # Mean and variance of a normal sample are independent with known distributions, so they are drawn instead of
    # samples.
    means = random.standard_normal((SAMPLES, 2)) / np.sqrt(counts)
    stds = np.sqrt(random.chisquare(counts - 1, (SAMPLES, 2)) / counts)
    star = epsilon_star_gaussian(means[:, 0], stds[:, 0], means[:, 1], stds[:, 1], study.delta, PARAMETRIC_CUT)
    low, high = (float(value) for value in np.quantile(star, (0.025, 0.975)))
    return measured_row(study.title, "Epsilon* by chance, of samples of one normal distribution",
                        IntervalEstimate(float(star.mean()), low, high), SAMPLES,
                        "mean and middle 95 %; numbers of losses as here")  # fmt: skip


def _contrast(many: PrivacyUtilityResults, adult: PrivacyUtilityResults) -> PaperClaim:
    """Return the claim that Epsilon* of Purchase-100 exceeds that of Adult, both without DP at the most epochs."""
    longest = max(many.baselines), max(adult.baselines)
    apart = statistics.welch_interval(many.baselines[longest[0]], adult.baselines[longest[1]])
    return PaperClaim("4.2", "Epsilon* of Adult lies far below that of the many-class task",
                      f"{many.study.title}, {longest[0]} epochs, and Adult, {longest[1]} epochs",
                      "Epsilon*, the former less the latter", apart, 0.0,
                      trials=min(many.study.repetitions, adult.study.repetitions))  # fmt: skip


def _remarks(
    study: EpsilonStarTaskSettings, found: PrivacyUtilityResults, claims: Sequence[PaperClaim]
) -> tuple[str, ...]:
    remarks = [
        "Lost settings: the paper's text has lost delta and the cut of Epsilon*, and it does not state the epochs of "
        "private training, the batch size of baselines and the network for Adult. Ours are named above. The paper "
        "also tries 1 and 32 microbatches; here every record is clipped by itself.",
        f"Largest Epsilon*: Epsilon* is the supremum over thresholds whose error rates lie between {PARAMETRIC_CUT:g} "
        f"and 1 minus that, so it cannot exceed {-np.log(PARAMETRIC_CUT):.1f}. A value near this limit is saturated, "
        "and differences there say little. The paper's largest value, 7.79, needs a cut of e^-7.79 = 0.0004 or less.",
        "Epsilon* of a sample: it is above 0 even where nothing leaks; a row says how large it is by chance if scores "
        "are normal. Intervals are over repeated training on the same records, so they do not include what other "
        "records would change.",
        verdicts_said(claims),
    ]  # fmt: skip
    if (found.private["epsilon_star"] >= found.private["epsilon"]).any():
        remarks.append(_remark_on_exceeding(found.private))
    if study.is_substitute:
        remarks.append(
            f"{study.task} is not available. {study.title} has {study.records:,} training records where the paper has "
            "208,731, so the noise for the same epsilon costs more utility, and Epsilon* of a private model has a "
            "larger error. The printed numbers stand in the column Note of the table below, because they belong to "
            "other data."
        )
    return tuple(remarks)


def _remark_on_exceeding(private: pd.DataFrame) -> str:
    over = private[private["epsilon_star"] >= private["epsilon"]]
    gained = over["membership_advantage"].to_numpy(dtype=np.float64)
    return (
        f"{len(over)} of {len(private)} private models have an Epsilon* at or above the epsilon they guarantee. That "
        "refutes no guarantee, since a guarantee is about the mechanism with all its noise and not about one model. "
        f"The membership adversary has an advantage of {gained.mean():.3f} on them on average ({gained.max():.3f} at "
        "most). Where its advantage is close to 0, Epsilon* is an artefact: the fitted normals do not fit, and are "
        "followed to error rates that so few losses cannot show. `epsilon-star --method empirical` on the losses of "
        "such a model tells whether it is."
    )
