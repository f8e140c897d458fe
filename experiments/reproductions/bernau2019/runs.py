"""The runs that the figures share: each is carried out once, attacked, and then read from its directory."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, assert_never

import numpy as np
import torch
from safetensors.torch import load_file
from scipy.stats import rankdata

from experiments.reproductions.bernau2019.configurations import configuration
from experiments.reproductions.bernau2019.published import MembershipStudy
from experiments.reproductions.bernau2019.settings import MembershipSetting, Method
from experiments.reproductions.papers import Context
from experiments.reproductions.playing import PlannedRun, planned_runs
from experiments.reproductions.statistics import resampling
from experiments.runs.attacks import by_target
from experiments.runs.config import RunConfig
from experiments.runs.engines import Engine
from experiments.runs.laws import rounds_of, sampling_rate
from experiments.runs.run_directory import RunDirectory, read_plan
from experiments.runs.store import read_frame
from fl_audit.arrays import Flags, Floats
from fl_audit.evidence.findings.attacks import SCORE
from fl_audit.evidence.membership.rates import Interval, RocCurve, membership_rates, roc_curve
from fl_audit.game.game import load_game
from fl_audit.game.membership import Membership
from fl_audit.stored_json import read_json
from server.target_outputs import LOGITS

_RESAMPLES = 300
_MOST_PROCESSES = 8
CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class MembershipFindings:
    """What one run found, as read from its directory."""

    setting: MembershipSetting  # what was run
    config: RunConfig  # its configuration
    summary: Mapping[str, Any]  # contents of `summary.json`
    membership: Membership  # who was in
    scores: Mapping[str, Floats]  # scores of each attack (worlds, targets), by its name
    train_accuracy: Floats  # share of each world's members whose true record its model classifies right, (worlds,)
    test_accuracy: Floats  # the same of the test records, (worlds,)
    chosen_epoch: Floats  # after how many passes each world's model was taken, (worlds,)
    # Largest confidence of each world's model in a class, for the true record of each target (worlds, targets).
    confidence: Floats
    member_losses: Floats  # losses of all targets (worlds, targets)
    # Losses of the test records (worlds, test records) where these are of another law than the targets, else None.
    test_losses: Floats | None

    @property
    def worlds(self) -> int:
        """Number of target models, each attacked with all others as its shadows."""
        return self.membership.worlds

    @property
    def epsilon(self) -> float:
        """Epsilon of a record as the paper has it: counted over values, or by its accountant; infinite without DP."""
        match self.setting.method:
            case Method.ORIGINAL:
                return inf
            case Method.LOCAL:
                return self.setting.data.values * self.setting.level
            case Method.CENTRAL:
                return float(self.summary["guarantee"]["epsilon"])
            case _:
                assert_never(self.setting.method)

    @cached_property
    def areas(self) -> Mapping[str, Interval]:
        """AUC of each attack over pairs of the same world, with an interval over worlds."""
        return {
            attack: membership_rates(
                scores, self.membership, resampling(f"{self.setting.name} {attack}"), CONFIDENCE, _RESAMPLES
            ).auc
            for attack, scores in self.scores.items()
        }

    @cached_property
    def areas_of_worlds(self) -> Mapping[str, Floats]:
        """AUC of each attack in each world, (worlds,)."""
        return {attack: areas(scores, self.membership.is_in) for attack, scores in self.scores.items()}

    @cached_property
    def areas_against_test(self) -> Floats | None:
        """AUC of the loss in each world of members against *test* records, as the paper asks, (worlds,).

        None where test records have the law of the targets, so that it makes no difference.
        """
        if self.test_losses is None:
            return None
        found = []
        for is_in, members, others in zip(self.membership.is_in, self.member_losses, self.test_losses, strict=True):
            asked = np.concatenate([members[is_in], others])
            found.append(areas(-asked[np.newaxis], (np.arange(len(asked)) < is_in.sum())[np.newaxis])[0])
        return np.array(found)

    def roc(self, attack: str) -> RocCurve:
        """Return the ROC of an attack over all worlds."""
        return roc_curve(self.scores[attack], self.membership)


def areas(scores: Floats, is_in: Flags) -> Floats:
    """Return the area under the ROC in each world (worlds,), from the rank sum of members; ties count half.

    Parameters
    ----------
    scores, is_in
        Scores, higher for a likelier member, and who is one: shape (worlds, targets), both kinds in every world.
    """
    members, others = is_in.sum(axis=1), (~is_in).sum(axis=1)
    ranks = np.where(is_in, rankdata(scores, axis=1), 0.0).sum(axis=1)
    return np.asarray((ranks - members * (members + 1) / 2) / (members * others), dtype=np.float64)


def play(settings: Iterable[MembershipSetting], context: Context) -> dict[MembershipSetting, MembershipFindings]:
    """Carry out the runs that are not finished yet, and read what all of them found.

    Parameters
    ----------
    settings
        The settings to run; a setting that occurs several times is run once.
    context
        Where the runs are kept, how much is computed, where clients run: in this process, or in one for every core,
        unless Ray is named.

    Raises
    ------
    InputError
        If a setting cannot be run, or its directory holds something else.
    FederationError
        If a federation had to stop; the runs that were finished are kept.
    """
    planned = planned_runs(settings, configuration, context)
    if pending := [run for run in planned.values() if not run.is_finished]:
        with context.progress(sum(run.world_rounds for run in pending)) as begin:
            if context.engine is Engine.RAY or min(len(pending), _cores()) == 1:
                _play_in_turn(pending, context, begin)
            else:
                _play_side_by_side(pending, begin)
    return {one: read_findings(one, run.config, run.directory) for one, run in planned.items()}


_Begin = Callable[[str], Callable[[int], None]]


def _play_in_turn(tasks: Sequence[PlannedRun], context: Context, begin: _Begin) -> None:
    engine = context.engine or Engine.LOCAL
    for number, task in enumerate(tasks, start=1):
        on_round = begin(f"{number}/{len(tasks)} {task.label}")
        task.carry_out(engine, context.ray_address, on_round)


def _play_side_by_side(tasks: Sequence[PlannedRun], begin: _Begin) -> None:
    """Carry out as many runs at a time as there are cores, each in a process: attacks and small models use one."""
    on_round = begin(f"0/{len(tasks)} runs")
    processes = ProcessPoolExecutor(min(len(tasks), _cores()), multiprocessing.get_context("spawn"))
    try:
        waiting = {processes.submit(task.carry_out, Engine.LOCAL): task for task in tasks}
        for number, done in enumerate(as_completed(waiting), start=1):
            done.result()
            on_round(waiting[done].world_rounds)
            on_round = begin(f"{number}/{len(tasks)} {waiting[done].label}")
    finally:
        processes.shutdown(cancel_futures=True)


def _cores() -> int:
    """Return how many runs may be carried out at the same time; each holds a gigabyte or two."""
    return min(_MOST_PROCESSES, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)


def read_findings(setting: MembershipSetting, config: RunConfig, run: RunDirectory) -> MembershipFindings:
    """Read what a finished run found.

    Parameters
    ----------
    setting, config, run
        Which run it is, its configuration and its directory.

    Raises
    ------
    InputError
        If the run is not finished.
    """
    targets, worlds = (read_frame(run.path / f"{label}.parquet") for label in ("targets", "worlds"))
    plan = read_plan(run.path)
    game, is_in = load_game(plan.public), by_target(targets, "is_in").astype(np.bool_)
    outputs = run.store(config).outputs(config.audit.worlds)
    logits = torch.cat([one[LOGITS] for one in outputs])
    right = logits.argmax(dim=2) == game.differing.labels.cpu()
    models = torch.cat([load_file(path)["models"] for path in sorted((run.path / "public").glob("models-*"))])
    attacked = [name for name in map(str, targets.columns) if name.startswith(SCORE)]
    return MembershipFindings(
        setting=setting,
        config=config,
        summary=read_json(run.summary),
        membership=Membership(is_in),
        scores={name.removeprefix(SCORE): by_target(targets, name) for name in attacked},
        train_accuracy=_mean_where(right.numpy(), is_in),
        test_accuracy=worlds["test_accuracy"].to_numpy(dtype=np.float64),
        chosen_epoch=worlds["chosen_release"].to_numpy(dtype=np.float64) * epochs_a_round(config),
        confidence=torch.softmax(logits.double(), dim=2).amax(dim=2).numpy(),
        member_losses=-by_target(targets, "log_probability"),
        test_losses=game.losses(models, game.test) if setting.data.study is MembershipStudy.SKEWED else None,
    )


def epochs_a_round(config: RunConfig) -> float:
    """Return how often a record is used in a round, on average."""
    epochs = config.training.local_epochs
    return float(sampling_rate(config)) if epochs is None else float(epochs)


def most_epochs(config: RunConfig) -> float:
    """Return after how many epochs training ends at the latest."""
    return rounds_of(config) * epochs_a_round(config)


def _mean_where(values: Flags, chosen: Flags) -> Floats:
    """Return the share of chosen entries that are true, row by row."""
    return np.asarray((values & chosen).sum(axis=1) / chosen.sum(axis=1), dtype=np.float64)
