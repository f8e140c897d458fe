"""Results of a finished batch of trials as tables, and the outputs of its final models on the targets' records.

A target is a unit (record, user or client) whose membership is in question.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from scipy.special import expit, logit
from torch import Tensor

from fl_audit.array_types import Flags, Floats
from fl_audit.audits.membership.record_confidences import label_log_probability, label_scores
from fl_audit.audits.membership.white_box_features import WhiteBoxFeatures, white_box_features
from fl_audit.data.attribute_to_infer import AttributeToInfer
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.result_columns import ResultTable, Table, TrialBatchColumns, columns_of, nan_columns
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.server.release_findings import ReleaseWithOutputs
from fl_audit.server.user_epsilon_star import means_by_unit
from fl_audit.trial_batches import TrialBatch


@dataclass(frozen=True)
class BatchResult:
    """All results of a batch of trials after its last round."""

    batch: TrialBatch  # the trials
    membership: TargetMembership  # membership of the targets
    rounds: int  # number of rounds
    evaluated: tuple[int, ...]  # numbers of the releases that were evaluated, 0 being the initial models
    columns: TrialBatchColumns  # all findings
    final_models: Tensor  # models after the last round (trials, parameters)
    kept: Mapping[str, Tensor]  # the clients' view of the kept trials, by name; empty if the batch has none
    checkpoints: Mapping[int, Tensor] = field(default_factory=dict)  # models of trial 0 (parameters,), by round
    targets: tuple[int, ...] = ()  # numbers of the units that are targets, ascending
    # Outputs of the final models for the targets' records, by name; empty in the identifiability audit.
    outputs: Mapping[str, Tensor] = field(default_factory=dict)

    def frames(self, prior: float) -> dict[str, pd.DataFrame]:
        """Return the tables of the batch, keyed by name: "trials", "rounds", "releases", and others that have results.

        `prior` is the insider's prior belief in D, in (0, 1). It affects beliefs and wins, because the insider guesses
        the data set with the larger posterior belief.
        """
        batch_columns = self.columns
        rounds = range(1, self.rounds + 1)
        in_rounds = {
            **nan_columns(columns_of(ResultTable.ROUNDS), (self.batch.count, self.rounds)),
            **batch_columns.rounds,
        }
        of_releases = {
            **nan_columns(columns_of(ResultTable.RELEASES), (self.batch.count, len(self.evaluated))),
            **batch_columns.releases,
        }
        frames = {"trials": self._trials_frame(prior), "rounds": self._frame(in_rounds, round=rounds)}
        frames["releases"] = self._frame(of_releases, round=self.evaluated)
        if batch_columns.clients:
            clients = next(iter(batch_columns.clients.values())).shape[2]
            frames["clients"] = self._frame(batch_columns.clients, round=self.evaluated, client=range(clients))
        if batch_columns.residuals:
            frames["residuals"] = self._frame(batch_columns.residuals, round=rounds)
        if batch_columns.targets:
            frames["targets"] = self._frame(
                {"is_in": self.membership.is_in, **batch_columns.targets}, target=self.targets
            )
        if batch_columns.canaries:  # decoys follow the canaries
            directions = next(iter(batch_columns.canaries.values())).shape[2]
            frames["canaries"] = self._frame(batch_columns.canaries, round=rounds, canary=range(directions))
        if batch_columns.opened:
            frames["opened"] = self._frame(batch_columns.opened, round=rounds)
        if batch_columns.tallies:
            frames["tallies"] = pd.DataFrame(batch_columns.tallies)
        return frames

    def _frame(self, columns: Table, **axes: Iterable[int]) -> pd.DataFrame:
        """Return a table with one row per element of the given columns, each of shape (trials, *axes).

        `axes` has for each further axis its name and the labels of its positions.
        """
        grid_axes = np.meshgrid(*(np.array(list(axis)) for axis in (self.batch.trials, *axes.values())), indexing="ij")
        index = dict(zip(("trial", *axes), grid_axes, strict=True))
        return pd.DataFrame({name: values.reshape(-1) for name, values in {**index, **columns}.items()})

    def _trials_frame(self, prior: float) -> pd.DataFrame:
        bits = self.membership.is_in[:, 0]  # with several targets, those of the first one
        columns = {**nan_columns(columns_of(ResultTable.TRIALS), (self.batch.count,)), **self.columns.trials}
        final = np.asarray(columns.pop("log_odds"), dtype=np.float64)
        index = {"bit": bits.astype(np.int8), "log_odds": final, **_believed(final, bits, prior)}
        if not np.isfinite(final).all():
            index["won"] = np.full(self.batch.count, np.nan)
        return self._frame(index | columns)


ResultSink = Callable[[BatchResult], None]  # a function that stores the result of a finished batch of trials


def _believed(log_odds: Floats, bits: Flags, prior: float) -> dict[str, Floats | Flags]:
    """Return the insider's belief in the true data set, and whether its guess is right, in the shape of `log_odds`.

    It guesses D if its belief in D exceeds 1/2, so with an even prior and no evidence it guesses D'.
    """
    posterior = log_odds + logit(prior)
    return {"belief": expit(np.where(bits, 1.0, -1.0) * posterior), "won": (posterior > 0) == (bits != 0)}


LOGITS = "logits"
POPULATION = "population"
"""Names of outputs of a batch: logits on the targets' records, and log p_y on the population sample."""
WHITE_BOX = ("signals", "inputs", "log_probabilities", "losses")
"""Names of the features of a white-box attacker, see `WhiteBoxFeatures`."""
UNDER_ASCENT = "loss_under_ascent"
"""Column of the table of targets: mean loss over the releases, if the insider attacks by gradient ascent."""
VALUES = "values"
"""Name of an output of a batch: losses for each value of an attribute."""


@dataclass
class TargetOutputsCollector:
    """Collector of models' outputs on the targets' records, and of final models' outputs on the population sample."""

    evaluated: Sequence[int]  # numbers of the evaluated releases
    keeps_white_box_features: bool = (
        False  # whether the features of a white-box attacker are collected, for three releases
    )
    is_active: bool = False  # whether losses are collected for all releases, because the insider uses gradient ascent
    attribute: AttributeToInfer | None = None  # the attribute of which every value is tried; None for no attribute
    _outputs: dict[str, dict[str, Tensor]] = field(init=False, default_factory=dict)
    _features: dict[str, list[WhiteBoxFeatures]] = field(init=False, default_factory=lambda: defaultdict(list))
    _losses: dict[str, list[Floats]] = field(init=False, default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        thirds = [len(self.evaluated) * third // 3 - 1 for third in (1, 2, 3)] if self.keeps_white_box_features else []
        self._looked_at = {self.evaluated[index] for index in thirds}

    def __call__(self, release: ReleaseWithOutputs) -> TrialBatchColumns:
        """Collect the outputs of a release; for the last release, return two columns for the table of targets.

        The columns are those of `label_scores`: log p_y and log p_y - log(1 - p_y), where p_y is the probability of the
        true class, or what stands for them where labels are quantities. They have
        one value for each trial and target. If a target has several records, their values are averaged. With
        `is_active`, a third column holds the mean loss over the releases.
        """
        federation = release.federation
        records = release.federation.differing
        name = release.batch.name
        if release.number in self._looked_at:
            self._features[name] += [
                white_box_features(federation.model, release.models, records.features, records.labels)
            ]
        if self.is_active and release.number > 0:
            self._losses[name].append(release.differing_losses)
        return self._of_last(release) if release.is_last else TrialBatchColumns()

    def _of_last(self, release: ReleaseWithOutputs) -> TrialBatchColumns:
        federation = release.federation
        records = release.federation.differing
        name = release.batch.name
        logits = federation.model.logits(release.models, records.features).cpu()
        wide = logits.double().numpy()
        labels = records.labels.cpu().numpy()
        scores = label_scores(wide, labels)
        means = {name: means_by_unit(values, federation.target_of_records) for name, values in scores.items()}
        if self.is_active:
            means[UNDER_ASCENT] = means_by_unit(np.mean(self._losses.pop(name), axis=0), federation.target_of_records)
        population = torch.from_numpy(-release.population_losses).float()
        self._outputs[name] = {
            LOGITS: logits,
            POPULATION: population,
            **self._losses_by_value(federation, release.models),
        }
        if self._features:
            features = WhiteBoxFeatures.over_releases(self._features.pop(name))
            self._outputs[name] |= {
                output_name: torch.from_numpy(getattr(features, output_name)).float() for output_name in WHITE_BOX
            }
        return TrialBatchColumns(targets=means)

    def _losses_by_value(self, federation: LoadedFederation, models: Tensor) -> dict[str, Tensor]:
        """Return the losses of the final models with each possible value of the attribute, under the name `VALUES`.

        They are float32, (trials, records, values). Without an attribute to infer, the dictionary is empty.
        """
        if self.attribute is None:
            return {}
        records = federation.differing
        losses = list[Tensor]()
        labels = records.labels.cpu().numpy()
        for value in torch.from_numpy(self.attribute.values):
            features = records.features.clone()
            features[:, self.attribute.column.places] = value.to(features.device)
            log_probability = label_log_probability(_logits(federation, models, features), labels)
            losses.append(torch.from_numpy(-log_probability).float())
        return {VALUES: torch.stack(losses, dim=2)}

    def outputs(self, batch: TrialBatch) -> dict[str, Tensor]:
        """Return the collected outputs of a batch of trials, keyed by name.

        They are logits on the targets' records (trials, records, classes), the log-probability of the true class on the
        population (trials, p), and what white-box attackers and the attack on an attribute see, if configured.
        """
        return self._outputs[batch.name]


def _logits(federation: LoadedFederation, models: Tensor, features: Tensor) -> Floats:
    """Return float64 logits, shape (trials, records, classes)."""
    return np.asarray(federation.model.logits(models, features).cpu().double().numpy(), dtype=np.float64)
