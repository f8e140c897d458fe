"""Results of the runs of Bernau et al. 2019: what attacks find in the models of a setting, and how good models are.

The paper measures the trade-off of privacy and accuracy by phi: the relative loss of the attack's AUC, divided by the
relative loss of accuracy.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf, nan
from typing import Any, assert_never

import numpy as np
import torch
from safetensors.torch import load_file
from scipy.stats import rankdata

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.audits.membership.findings_attacks import SCORE
from fl_audit.audits.membership.roc_metrics import RocCurve, _areas_between_trials, roc_curve
from fl_audit.experiments.papers.bernau2019.hyperparameters import SKEWED
from fl_audit.experiments.papers.bernau2019.membership_runs import (
    BLACK_BOX,
    INSIDER,
    WHITE_BOX,
    PrivacyMethod,
    position_of,
)
from fl_audit.experiments.papers.papers import PaperDataset, PaperRun, StoredPaperRun, StoredPaperRuns
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.parquet_files import read_frame
from fl_audit.runs.attacks import by_target
from fl_audit.runs.config import RunConfig
from fl_audit.runs.mechanism_of_config import rounds_of, sampling_rate
from fl_audit.runs.run_directory import RunDirectory, read_plan
from fl_audit.server.trial_batch_results import LOGITS

BINS = np.linspace(0.0, 1.0, 26)  # of the largest confidence, in a histogram
_RATES = np.linspace(0.0, 1.0, 401)  # false-positive rates at which ROC curves are kept


@dataclass(frozen=True)
class ConfidenceByAttackGuess:
    """Models' maximum class probabilities on the targets' true records, for targets called members or non-members.

    Row 0 holds targets that the black-box attack calls members, and row 1 the others.
    """

    counts: Integers  # targets by the largest confidence, in `BINS`, (2, bins)
    means: Floats  # the mean largest confidence, (2,); NaN where none is called so


@dataclass(frozen=True, eq=False)
class AttackedModels:
    """The models of one setting (data set, kind of privacy, noise level), joined over its runs and reduced in size."""

    run: PaperRun  # the first of its runs
    config: RunConfig  # the configuration of the first run
    # Epsilon of a whole record; infinite without DP. Under central DP the accountant computes it. Under local DP it is
    # the epsilon of one value times the number of values.
    epsilon: float
    areas_of_trials: Mapping[str, Floats]  # AUC of each attack in each trial, (trials,), by its name
    rocs: Mapping[str, RocCurve]  # ROC of each attack, its TPR as the mean over parts at each FPR of `_RATES`
    train_accuracy: Floats  # share of each trial's members whose true record its model classifies right, (trials,)
    test_accuracy: Floats  # share of the test records that the model of each trial classifies right, (trials,)
    chosen_epoch: Floats  # after how many passes each trial's model was taken, (trials,)
    confidence: Floats  # mean over targets of the model's largest confidence in their true records, (trials,)
    called: ConfidenceByAttackGuess | None  # None without the black-box attack
    # AUC of the loss in each trial of members against *test* records, as the paper asks, (trials,). None where test
    # records have the distribution of the targets, so that it makes no difference.
    areas_against_test: Floats | None = None

    @property
    def trials(self) -> int:
        """Number of target models. To attack one model of a run, all its other models serve as shadow models."""
        return len(self.train_accuracy)

    @property
    def name(self) -> str:
        """Name of the setting: that of its runs without the number of a part."""
        return self.run.name.rpartition("-part")[0]

    @property
    def label(self) -> str:
        """Name of the setting in tables."""
        return self.run.label

    @property
    def method(self) -> PrivacyMethod:
        """The kind of privacy."""
        method: PrivacyMethod = self.run["method"]
        return method

    @property
    def level(self) -> float:
        """The noise level: epsilon_i of local DP, z of central DP."""
        return float(self.run["level"])


@dataclass(frozen=True)
class DatasetModels:
    """The models on one data set: without DP (`original`), and under local and central DP, largest epsilon first."""

    data: PaperDataset
    original: AttackedModels
    local: tuple[AttackedModels, ...]
    central: tuple[AttackedModels, ...]

    @property
    def private(self) -> tuple[AttackedModels, ...]:
        """The models of all settings with DP: local DP, then central DP."""
        return (*self.local, *self.central)

    @property
    def settings(self) -> tuple[AttackedModels, ...]:
        """The models of all settings: without DP, then under local DP and under central DP."""
        return (self.original, *self.private)

    @property
    def attacks(self) -> tuple[str, ...]:
        """Names of the paper's attacks that were run: black-box, and white-box if it was run."""
        return tuple(attack for attack in (BLACK_BOX, WHITE_BOX) if attack in self.original.areas_of_trials)

    @property
    def attack_of_phi(self) -> str:
        """The attack from which phi is computed: white-box if it was run, else black-box."""
        return self.attacks[-1]

    def of(self, method: PrivacyMethod) -> tuple[AttackedModels, ...]:
        """Return the models under local DP if `method` is local, else those under central DP."""
        return self.local if method is PrivacyMethod.LOCAL else self.central

    def side(self, method: PrivacyMethod) -> tuple[AttackedModels, ...]:
        """Return the models without DP, followed by the models under the given kind of DP."""
        return (self.original, *self.of(method))


def models_by_dataset(paper_runs: StoredPaperRuns) -> list[DatasetModels]:
    """Return the models on each data set, joined over the runs of each setting."""
    models: dict[str, list[AttackedModels]] = {}
    for run, paper_run in paper_runs.runs.items():
        if run.data in paper_runs.data:
            models.setdefault(run.label, []).append(_read(paper_run))
    settings = [joined(of_setting) for of_setting in models.values()]
    return [dataset_models(data, settings) for data in paper_runs.data]


def dataset_models(dataset: PaperDataset, settings: Iterable[AttackedModels]) -> DatasetModels:
    """Return the models on one data set, grouped by kind of privacy and sorted by falling epsilon."""
    scores_of_run = sorted(
        (models for models in settings if models.run.data == dataset), key=lambda models: position_of(models.run)
    )
    local, central = (
        tuple(models for models in scores_of_run if models.method is method)
        for method in (PrivacyMethod.LOCAL, PrivacyMethod.CENTRAL)
    )
    return DatasetModels(dataset, scores_of_run[0], local, central)


_BY_TRIAL = ("train_accuracy", "test_accuracy", "chosen_epoch", "confidence", "areas_against_test")


def joined(models: Sequence[AttackedModels]) -> AttackedModels:
    """Return the models of one setting, joined from its runs: trials are concatenated and ROC curves are averaged.

    There is at least one run, and all have the same number of trials.
    """
    first = models[0]

    def of_all(name: str) -> Any:
        values = [getattr(group_models, name) for group_models in models]
        return None if values[0] is None else np.concatenate(values)

    attacks = first.areas_of_trials
    return replace(
        first,
        areas_of_trials={
            attack: np.concatenate([group_models.areas_of_trials[attack] for group_models in models])
            for attack in attacks
        },
        rocs={
            attack: RocCurve(_RATES, np.mean([group_models.rocs[attack].tpr for group_models in models], axis=0))
            for attack in attacks
        },
        called=_called_together([group_models.called for group_models in models if group_models.called is not None]),
        **{name: of_all(name) for name in _BY_TRIAL},
    )


def _called_together(guess: Sequence[ConfidenceByAttackGuess]) -> ConfidenceByAttackGuess | None:
    if not guess:
        return None
    counts = np.sum([trial_guess.counts for trial_guess in guess], axis=0)
    sums = np.nansum([trial_guess.counts.sum(axis=1) * trial_guess.means for trial_guess in guess], axis=0)
    with np.errstate(invalid="ignore"):
        return ConfidenceByAttackGuess(counts, sums / counts.sum(axis=1))


def reduced(
    run: PaperRun,
    config: RunConfig,
    epsilon: float,
    membership: TargetMembership,
    scores: Mapping[str, Floats],
    confidence: Floats,
    by_trial: Mapping[str, Floats | None],
) -> AttackedModels:
    """Return the models of one run. Scores, high for likely members, and confidences have shape (trials, targets).

    `by_trial` holds further fields of the result, each of shape (trials,).
    """
    curves = {attack: roc_curve(values, membership) for attack, values in scores.items()}
    called = None
    if BLACK_BOX in scores:
        of_members = scores[BLACK_BOX] > 0  # log-odds of membership
        kinds = [confidence[chosen] for chosen in (of_members, ~of_members)]
        called = ConfidenceByAttackGuess(
            np.stack([np.histogram(values, BINS)[0] for values in kinds]),
            np.array([values.mean() if values.size else nan for values in kinds]),
        )
    return AttackedModels(
        run,
        config,
        epsilon,
        {
            # An insider that knows all other coins of a trial is compared with insiders of other trials.
            attack: _areas_between_trials(values, membership) if attack == INSIDER else areas(values, membership.is_in)
            for attack, values in scores.items()
        },
        {attack: RocCurve(_RATES, np.interp(_RATES, curve.fpr, curve.tpr)) for attack, curve in curves.items()},
        confidence=confidence.mean(axis=1),
        called=called,
        **by_trial,  # type: ignore[arg-type]
    )


def areas(scores: Floats, is_in: Flags) -> Floats:
    """Return the AUC of an attack in each trial, (trials,), by the Mann-Whitney rank sum; ties count half."""
    members = is_in.sum(axis=1)
    nonmembers = (~is_in).sum(axis=1)
    ranks = np.where(is_in, rankdata(scores, axis=1), 0.0).sum(axis=1)
    return np.asarray((ranks - members * (members + 1) / 2) / (members * nonmembers), dtype=np.float64)


@cache
def _read(paper_run: StoredPaperRun) -> AttackedModels:
    """Return the models of one run, read from its directory."""
    run = paper_run.run
    config = paper_run.config
    path = paper_run.path
    targets = read_frame(path / "targets.parquet")
    federation = load_federation(read_plan(path).federation)
    membership = TargetMembership(by_target(targets, "is_in").astype(np.bool_))
    logits = torch.cat([output[LOGITS] for output in RunDirectory(path).store(config).outputs(config.audit.trials)])
    right = (logits.argmax(dim=2) == federation.differing.labels.cpu()).numpy()
    is_in = membership.is_in
    columns = {name.removeprefix(SCORE): name for name in map(str, targets.columns) if name.startswith(SCORE)}
    if config.audit.insider:
        columns[INSIDER] = "log_odds"
    against_test = None
    if run.data.study == SKEWED:
        models = torch.cat([load_file(file)["models"] for file in sorted((path / "public").glob("models-*"))])
        losses = federation.losses(models, federation.test)
        against_test = _areas_against_test(is_in, -by_target(targets, "log_probability"), losses)
    return reduced(
        run,
        config,
        _epsilon(paper_run),
        membership,
        {attack: by_target(targets, name) for attack, name in columns.items()},
        torch.softmax(logits.double(), dim=2).amax(dim=2).numpy(),
        {
            "train_accuracy": np.asarray((right & is_in).sum(axis=1) / is_in.sum(axis=1), dtype=np.float64),
            "test_accuracy": paper_run.trials["test_accuracy"].to_numpy(dtype=np.float64),
            "chosen_epoch": paper_run.trials["chosen_release"].to_numpy(dtype=np.float64) * _epochs_a_round(config),
            "areas_against_test": against_test,
        },
    )


def _epsilon(paper_run: StoredPaperRun) -> float:
    method: PrivacyMethod = paper_run.run["method"]
    match method:
        case PrivacyMethod.ORIGINAL:
            return inf
        case PrivacyMethod.LOCAL:
            return float(paper_run.run["values"] * paper_run.run["level"])
        case PrivacyMethod.CENTRAL:
            return float(paper_run.summary["guarantee"]["epsilon"])
        case _:
            assert_never(method)


def _areas_against_test(is_in: Flags, member_losses: Floats, test_losses: Floats) -> Floats:
    """Return the AUC of the loss in each trial, (trials,), of its members against test records."""
    by_trial = []
    for chosen, members, loss in zip(is_in, member_losses, test_losses, strict=True):
        losses = np.concatenate([members[chosen], loss])
        by_trial.append(areas(-losses[np.newaxis], (np.arange(len(losses)) < chosen.sum())[np.newaxis])[0])
    return np.array(by_trial)


def _epochs_a_round(config: RunConfig) -> float:
    epochs = config.training.local_epochs
    return float(sampling_rate(config)) if epochs is None else float(epochs)


def most_epochs(config: RunConfig) -> float:
    """Return the maximum number of epochs of a training."""
    return rounds_of(config) * _epochs_a_round(config)
