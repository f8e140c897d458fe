"""Figure 6 of Negoescu et al. 2023: fits of normal mixtures to the transformed training losses of models on Adult.

From such fits Epsilon*, a privacy metric of models, is computed.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from safetensors.torch import load_file

from fl_audit.array_types import Floats
from fl_audit.experiments.papers.claims import PaperClaim
from fl_audit.experiments.papers.item_results import ItemResult, ItemRow, table
from fl_audit.experiments.papers.negoescu2023.epsilon_star_runs import CLAIMS, extreme_runs, point_of
from fl_audit.experiments.papers.papers import ComputeExtent, PaperRun, StoredPaperRun, StoredPaperRuns
from fl_audit.experiments.papers.plot_style import legend_below
from fl_audit.experiments.papers.statistics import mean_of_shares, t_interval
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.released_model.normal_mixture import ks_check
from fl_audit.released_model.parametric_star import scores_of_pair
from fl_audit.report.figure_style import INK, finish_axes, new_figure
from fl_audit.runs.run_directory import read_public

LEVEL = 0.05  # the paper asks whether p-values exceed this level
COMPONENTS = {ComputeExtent.FULL: (1, 2, 3, 5, 10, 20), ComputeExtent.QUICK: (1, 3, 10)}
SIZES = {ComputeExtent.FULL: (100, 300, 1000), ComputeExtent.QUICK: (100, 1000)}
_FITTED = 10_000
"""Number of randomly drawn scores that a mixture is fitted to; the paper fits all outside its evaluation set."""
_LOOKS = {100: ("-", "o", "#12426e"), 300: ("--", "s", "#5c5c5c"), 1000: (":", "v", "#b35806")}


def figure_6(paper_runs: StoredPaperRuns) -> ItemResult:
    """Return Figure 6: p-values of two-sample Kolmogorov-Smirnov tests, by number of mixture components.

    The models are some of those of Figure 2.
    """
    (data,) = paper_runs.data
    runs = extreme_runs(data)
    checks = _all_checks(paper_runs)
    figure = new_figure(6.0)
    panels = figure.subplots(2, 2, sharex=True, sharey=True).ravel()
    for letter, axes, run in zip("abcd", panels, runs, strict=True):
        _draw(axes, checks[checks["point"] == point_of(run).name])
        finish_axes(axes, f"({letter}) {run.label}", "Components (count)", "p-value (probability)")
        axes.label_outer()
    legend_below(figure, list(panels), columns=2)
    return ItemResult(
        table(_rows(checks, runs)),
        figure,
        f"Median p-value over {data['audit.trials']} models, and their range. Above the line at {LEVEL:g} the test "
        "finds no difference between the fit and the losses.",
        (
            f"Mixtures are fitted to at most {_FITTED:,} scores drawn at random; a component is no narrower than a "
            "thousandth of their spread.",
            *_findings(checks),
        ),
        data=(data.title,),
        procedure=f"Models of figure 2: {'; '.join(run.label for run in runs)}.",
    )


def claims_of_figure_6(paper_runs: StoredPaperRuns) -> tuple[PaperClaim, ...]:
    """Return the claims of section 8.2."""
    return tuple(_claims(_all_checks(paper_runs)))


def _all_checks(paper_runs: StoredPaperRuns) -> pd.DataFrame:
    (data,) = paper_runs.data
    return pd.concat([_checks(paper_runs[run], paper_runs.extent) for run in extreme_runs(data)])


@cache
def _checks(paper_run: StoredPaperRun, extent: ComputeExtent) -> pd.DataFrame:
    """Fit mixtures to the scores of one setting, and return the p-values of their Kolmogorov-Smirnov tests.

    There is one row for each model, number of scores and number of components.
    """
    rows = []
    point = point_of(paper_run.run)
    for trial, scores in enumerate(_training_scores(paper_run.path)):
        random = np.random.default_rng([trial, *point.name.encode()])
        for size in SIZES[extent]:
            used = random.permutation(scores)[: _FITTED + size]
            for components in COMPONENTS[extent]:
                p_value = ks_check(used, components, size, random)
                rows.append((point.name, point.config.privacy.private, trial, components, size, p_value))
    return pd.DataFrame(rows, columns=["point", "private", "trial", "components", "size", "p_value"])


def _training_scores(run: Path) -> list[Floats]:
    """Return the scores (transformed losses) that each trial's final model gives to the records of D.

    Models that were trained on D' are included.
    """
    public, _ = read_public(run)
    federation = load_federation(public)
    models = torch.cat([load_file(path)["models"] for path in sorted((run / "public").glob("models-*.safetensors"))])
    training = federation.losses(models, federation.training)
    population = federation.losses(models, federation.population)
    return [scores_of_pair(*pair)[0] for pair in zip(training, population, strict=True)]


def _draw(axes: Axes, checks: pd.DataFrame) -> None:
    for size, frame in checks.groupby("size"):
        line, marker, colour = _LOOKS[int(str(size))]
        groups = frame.groupby("components")["p_value"]
        middle = groups.median()
        spread = np.stack([middle - groups.min(), groups.max() - middle])
        axes.errorbar(
            middle.index,
            middle,
            yerr=spread,
            linestyle=line,
            marker=marker,
            color=colour,
            markersize=4.5,
            capsize=2,
            label=f"{size} scores kept back",
        )
    axes.axhline(LEVEL, color=INK, linestyle="-.", linewidth=1.1, label=f"p = {LEVEL:g}")
    axes.set(xscale="log", ylim=(-0.03, 1.03))
    axes.set_xticks(sorted(checks["components"].unique()), [str(n) for n in sorted(checks["components"].unique())])
    axes.minorticks_off()


def _rows(checks: pd.DataFrame, runs: Sequence[PaperRun]) -> list[ItemRow]:
    return [
        ItemRow(
            run.label,
            f"p-value, {components} components, {size} scores",
            measured=values.median(),
            low=values.min(),
            high=values.max(),
            repetitions=len(values),
            note="median, smallest, largest",
        )
        for run in runs
        for (size, components), values in checks[checks["point"] == point_of(run).name].groupby(["size", "components"])[
            "p_value"
        ]
    ]


def _claims(checks: pd.DataFrame) -> Iterator[PaperClaim]:
    """Yield the claims of section 8.2. Their intervals are over trials; only that of the last claim is over models."""
    trials = checks["trial"].nunique()
    private = checks["private"]
    series = checks["components"] == 1
    is_largest = checks["components"] == checks["components"].max()
    yield CLAIMS["p-values-above"].on("Adult", mean_of_shares(_by_trial(checks)), trials)
    gain = t_interval(_by_trial(checks[is_largest]) - _by_trial(checks[series]))
    yield CLAIMS["components-raise-p-values"].on("Adult", gain, trials)
    gain = t_interval(_by_trial(checks[private]) - _by_trial(checks[~private]))
    yield CLAIMS["privacy-raises-p-values"].on("Adult", gain, trials)
    shares = _by_model(checks[private & series])
    yield CLAIMS["one-component-suffices"].on("Adult", mean_of_shares(shares), shares.size)


def _by_model(checks: pd.DataFrame) -> Floats:
    """Return, for each model, the share of its p-values that are above the significance level, (models,).

    `checks` has one row for each tested fit of a mixture.
    """
    above = (checks["p_value"] > LEVEL).groupby([checks["point"], checks["trial"]])
    return np.asarray(above.mean().sort_index(), dtype=np.float64)


def _by_trial(checks: pd.DataFrame) -> Floats:
    """Return the share of each trial's p-values above the significance level, over all settings, (trials,)."""
    above = (checks["p_value"] > LEVEL).groupby(checks["trial"])
    return np.asarray(above.mean().sort_index(), dtype=np.float64)


def _findings(checks: pd.DataFrame) -> tuple[str, ...]:
    frame = checks[checks["components"] == 1]
    frames = {"all": checks, "private": frame[frame["private"]], "without privacy": frame[~frame["private"]]}
    shares = {name: float((frame["p_value"] > LEVEL).mean()) for name, frame in frames.items()}
    return (
        f"The paper finds most p-values above {LEVEL:g}, and more so with more components and with privacy. Here "
        f"{shares['all']:.0%} of all p-values are above it. Of those for a single normal it is {shares['private']:.0%} "
        f"for private models and {shares['without privacy']:.0%} for others.",
    )
