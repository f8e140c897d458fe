"""Private selection: the best of a random number of private trainings, each with settings that are drawn from a grid.

The number of trainings and all but the best of them stay secret. Then the choice spends less than all trainings
together (Papernot and Steinke 2022, see `privacy/private_selection.py`).
"""

import math
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fl_audit.array_types import finite
from fl_audit.atomic_files import write_bytes, write_json
from fl_audit.errors import require
from fl_audit.federation.run_plan import RunPlan
from fl_audit.learning.metric_names import is_smaller_better, metric_column, metric_text, metric_title
from fl_audit.ordinary_files import read_file
from fl_audit.parquet_files import read_frame
from fl_audit.privacy.accounting import Accountant, account
from fl_audit.privacy.accounting_enums import TrainingCount
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.private_selection import drawn_number, random_count_epsilon
from fl_audit.privacy.renyi import renyi_divergences
from fl_audit.report.guarantee_warnings import weak_claim_warning
from fl_audit.report.mechanism_messages import SIMULATION_NOTICE
from fl_audit.report.page import Banner, VerdictLook, html_page, page_table
from fl_audit.run_files import read_json
from fl_audit.runs.cluster.ray_options import RayOptions
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.progress import RunsProgress, at_work, no_runs_progress
from fl_audit.runs.stored_models import MODEL
from fl_audit.runs.sweeps.grid import Point, Settings, describe, require_distinct
from fl_audit.runs.sweeps.point_execution import derived_bytes, play_points
from fl_audit.runs.sweeps.sweep import RUNS, SELECTION, locked, plans_of, secret_of

SELECTED = "selected"
"""Directory of a private selection with all that may be published."""
_TRAININGS = "challenger/trainings"


@dataclass(frozen=True)
class SelectionRule:
    """Distribution of the number of trainings. Raises `InputError` unless its mean is a whole number from 2."""

    count: TrainingCount  # distribution of the number
    mean: int  # its mean

    def __post_init__(self) -> None:
        require(self.mean > 1, f"mean number of trainings is {self.mean}: accepted are whole numbers from 2")


@dataclass(frozen=True)
class PrivateSelection:
    """Published result of a private selection: the best training, and the epsilon of its choice."""

    rule: SelectionRule
    claim: Claim  # the weakest claim of a single training of the grid
    epsilon: float  # epsilon of the choice at the delta of the claim, by the accountant `rdp`
    metric: str  # the metric on test records by which the best is chosen
    settings: Settings | None  # settings of the best training; None if the number drawn is 0
    score: float | None  # its metric
    ledger_options: tuple[str, ...]  # options of `account --ledger`; empty if no line of a ledger covers the grid

    @property
    def single_epsilon(self) -> float:
        """Largest epsilon of a single training of the grid, which does not cover the choice."""
        return account(self.claim.profile, self.claim.accountant, self.claim.delta)

    @property
    def warning(self) -> str | None:
        """Warning if the epsilon of the choice excludes nothing that a person could object to; otherwise None."""
        return weak_claim_warning(self.epsilon, self.claim.delta, self.claim.adjacency)

    def to_json(self) -> dict[str, Any]:
        """Return the selection as JSON values."""
        return {
            "distribution": str(self.rule.count),
            "mean_trainings": self.rule.mean,
            "epsilon": finite(self.epsilon),
            "delta": self.claim.delta,
            "accountant": str(Accountant.RDP),
            "adjacency": str(self.claim.adjacency),
            "unit": str(self.claim.adjacency.unit),
            "epsilon_of_one": finite(self.single_epsilon),
            "metric": self.metric,
            "settings": None if self.settings is None else dict(self.settings),
            "score": self.score,
            "warning": self.warning,
            "ledger_options": list(self.ledger_options),
        }


def run_selection(
    points: Sequence[Point],
    directory: Path,
    rule: SelectionRule,
    options: RayOptions | None = None,
    metric: str | None = None,
    progress: RunsProgress = no_runs_progress,
    engine: Engine = Engine.RAY,
) -> PrivateSelection:
    """Train a random number of points of a grid, and return the best, which is written to `selected/`.

    The same call continues an interrupted selection.

    `options`: Not used with the local engine.

    `metric`: The metric on test records by which the best is chosen; None selects the headline of the runs.
    """
    require_distinct(points)
    _require_private_trainings(points)
    with at_work("loading the data, calibrating the noise of every point"):
        plans = plans_of(points, metric)
        chosen_metric = metric or _headline(plans)
        claims = _claims(plans)
        epsilon = random_count_epsilon(claims, rule.count, rule.mean)
    ray = None if engine is Engine.LOCAL else options or RayOptions()
    with locked(directory):
        require(not (directory / RUNS).exists(), f"--out {directory} holds a sweep: accepted is another directory")
        secret = secret_of(directory)
        _store_question(directory, rule, points, chosen_metric)
        points_by_name = drawn_points(points, rule, secret)
        trainings = directory / _TRAININGS
        trainings.mkdir(exist_ok=True)
        play_points(
            {name: plans[point.name] for name, point in points_by_name.items()},
            trainings,
            ray,
            progress,
            _show_nothing,
            secret,
        )
        scores = {name: _score(trainings / name, chosen_metric) for name in points_by_name}
        best = best_of(scores, chosen_metric)
        settings = None if best is None else points_by_name[best].settings
        score = None if best is None else finite(scores[best])
        claim, ledger_options = _weakest(claims, rule)
        selection = PrivateSelection(rule, claim, epsilon, chosen_metric, settings, score, ledger_options)
        _publish(selection, directory, None if best is None else trainings / best)
    return selection


def drawn_points(points: Sequence[Point], rule: SelectionRule, secret: int) -> dict[str, Point]:
    """Return the points that are trained, by the names of their runs: as many as drawn, each uniformly from the grid.

    A point that is drawn twice is trained twice, with another seed. Equal arguments give equal points.
    """
    seed_text = repr((str(rule.count), rule.mean, [point.name for point in points]))
    generator = np.random.default_rng(int.from_bytes(derived_bytes(secret, seed_text), "big"))
    number = drawn_number(rule.count, rule.mean, generator)
    point_indices = generator.integers(len(points), size=number)
    return {f"{index:06d}": points[point_index] for index, point_index in enumerate(point_indices.tolist(), 1)}


def best_of(scores: dict[str, float], metric: str) -> str | None:
    """Return the name of the best training, the first of equals; None without any training.

    A training whose metric is not a number is the worst.
    """
    sign = -1.0 if is_smaller_better(metric) else 1.0
    ranks = {name: -math.inf if math.isnan(score) else sign * score for name, score in scores.items()}
    return max(ranks, key=ranks.__getitem__, default=None)


def _show_nothing() -> None:
    """Show nothing of a finished training, because the number of trainings is a secret."""


def _require_private_trainings(points: Sequence[Point]) -> None:
    """Raise `InputError` unless every point is one training with a guarantee and a secret seed, and no audit."""
    for point in points:
        config = point.config
        where = f"point {describe(point.settings)}"
        require(config.privacy.private, f"{where} is not private: accepted are points with a guarantee")
        is_single = config.audit.trials == 1 and not config.audit.insider
        hint = "--set audit.trials=1 --set audit.insider=false"
        require(is_single, f"{where} is an audit, or more than one training: accepted is a single training, {hint}")
        no_seed = config.run.seed is None
        require(no_seed, f"{where} has a seed, so that its noise is no secret: accepted is none, --set run.seed=")


def _headline(plans: dict[str, RunPlan]) -> str:
    headlines = sorted({plan.headline for plan in plans.values()})
    several = f"the points have the headlines {', '.join(headlines)}: accepted is one of them, --utility"
    require(len(headlines) == 1, several)
    return headlines[0]


def _claims(plans: dict[str, RunPlan]) -> list[Claim]:
    """Return the claim of each point; raise `InputError` unless all have one claim at the same adjacency and delta."""
    claims = []
    for name, plan in plans.items():
        guarantee = plan.guarantee
        is_release = plan.federation.mechanism.is_private_release
        has_one = guarantee is not None and is_release and len(set(guarantee.claims)) == 1
        require(has_one, f"point {name} has no single guarantee: accepted are private releases with one claim")
        claims.append(plan.stated_guarantee.claim)
    kinds = {(claim.adjacency, claim.delta) for claim in claims}
    require(len(kinds) == 1, "the points claim different adjacencies or deltas: accepted is one of each")
    return claims


def _store_question(directory: Path, rule: SelectionRule, points: Sequence[Point], metric: str) -> None:
    """Store what is drawn from; raise `InputError` if the directory holds the draws of another selection.

    A second selection in its place would look at the trainings of the first.
    """
    question = {
        "distribution": str(rule.count),
        "mean": rule.mean,
        "metric": metric,
        "points": [[point.name, point.config.as_public_dict()] for point in points],
    }
    path = directory / SELECTION
    if not path.exists():
        write_json(path, question, private=True)
    is_same = read_json(path) == question
    require(is_same, f"--out {directory} holds another private selection: accepted is another directory")


def _score(run: Path, metric: str) -> float:
    return float(read_frame(run / "trials.parquet")[metric_column(metric)].iloc[0])


def _weakest(claims: Sequence[Claim], rule: SelectionRule) -> tuple[Claim, tuple[str, ...]]:
    """Return the claim with the largest epsilon, and the options of the ledger's line that covers all claims.

    The options are empty if no claim has the largest Renyi divergences at all orders, or the line would not state it.
    """
    weakest = max(claims, key=lambda claim: account(claim.profile, claim.accountant, claim.delta))
    curve = renyi_divergences(weakest.events, None, weakest.adjacency)
    covers = all(bool((renyi_divergences(claim.events, None, claim.adjacency) <= curve).all()) for claim in claims)
    noise = weakest.noise_multiplier
    if not covers or noise is None:
        return weakest, ()
    if gaussian_rounds(noise, weakest.rounds, weakest.sampling_rate) != weakest.events:
        return weakest, ()
    options = {
        "adjacency": weakest.adjacency,
        "noise-multiplier": repr(noise),
        "rounds": weakest.rounds,
        "sampling-rate": repr(weakest.sampling_rate),
        "delta": repr(weakest.delta),
        "trainings": rule.mean,
        "selection": rule.count,
    }
    return weakest, tuple(word for name, value in options.items() for word in (f"--{name}", str(value)))


def _publish(selection: PrivateSelection, directory: Path, best: Path | None) -> None:
    """Write all that may be published to the directory `selected`: the choice, the model and its configuration."""
    selected = directory / SELECTED
    shutil.rmtree(selected, ignore_errors=True)
    selected.mkdir()
    write_json(selected / "selection.json", selection.to_json())
    if best is not None:
        write_bytes(selected / MODEL, read_file(best / MODEL))
        write_bytes(selected / "configuration.json", read_file(best / "public" / "configuration.json"))


PUBLISH = (
    f"All files in {SELECTED} may be published. Nothing else may: not challenger/, which holds the other trainings, "
    "not what the terminal showed while they were trained, and not how long that took; each tells how many there were."
)
_STEP = "Add the selection to the ledger of these records; a second selection on them spends as much again."


def selection_rows(selection: PrivateSelection) -> list[tuple[str, str]]:
    """Return the names and texts of what a private selection publishes."""
    claim = selection.claim
    number = f"drawn in secret, {selection.rule.count} with the mean {selection.rule.mean:,}"
    return [
        ("Chosen settings", "none" if selection.settings is None else describe(selection.settings)),
        (f"Test {metric_title(selection.metric)}", metric_text(selection.metric, selection.score)),
        ("Number of trainings", number),
        ("Epsilon of the choice", f"{selection.epsilon:.6g} at delta {claim.delta:g} by rdp"),
        ("Epsilon of one training", f"{selection.single_epsilon:.6g}, which does not cover the choice"),
        ("Neighbours", f"by {claim.adjacency} (the unit is a {claim.adjacency.unit})"),
    ]


def ledger_command(selection: PrivateSelection) -> str:
    """Return the command that adds a private selection to a ledger."""
    if not selection.ledger_options:
        return "none: the releases of the trainings differ, so that no one line states them"
    return f"fl-audit account --ledger FILE {shlex.join(selection.ledger_options)}"


def outcome_text(selection: PrivateSelection) -> str:
    """Return a sentence on what a private selection chose and spends."""
    if selection.settings is None:
        return (
            f"The number of trainings that was drawn is 0, which {selection.rule.count} draws now and then: no model "
            f"is published, and epsilon {selection.epsilon:.4g} is spent all the same."
        )
    return (
        f"The best of a secret number of private trainings, by {metric_title(selection.metric)} on test records, "
        f"spends epsilon {selection.epsilon:.4g}, and not the {selection.single_epsilon:.4g} of one training (Papernot "
        "and Steinke 2022)."
    )


def selection_page(selection: PrivateSelection, title: str) -> str:
    """Return the HTML page about a private selection, which may be published itself."""
    return html_page(
        title=title,
        heading=title,
        subtitle=f"Chosen by {metric_title(selection.metric)} on test records, which the guarantee does not cover",
        opening=PUBLISH,
        body=page_table(
            ("What", "Result"), [*selection_rows(selection), ("Line of the ledger", ledger_command(selection))]
        ),
        footer=SIMULATION_NOTICE,
        banner=Banner("Private selection", outcome_text(selection), VerdictLook.NONE),
        step=_STEP,
        warning=selection.warning,
    )


def page_path(directory: Path) -> Path:
    """Return the path of the page in the directory of a private selection."""
    return directory / SELECTED / "selection.html"
