"""Results of a finished batch of trials, and the outputs of its final models for the records of the targets."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from scipy.special import expit, logit
from torch import Tensor

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.audits.membership.record_confidences import Queries, label_log_probability, scaled_confidence
from fl_audit.audits.membership.white_box_features import WhiteBoxFeatures, white_box_features
from fl_audit.data.encoding import Attribute
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.result_columns import ResultColumns, Table, nan_columns
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.server.evaluator import EvaluatedRelease
from fl_audit.trials import TrialBatch

TRIAL_FINDINGS = (
    "test_accuracy",
    "epsilon_star",
    "membership_advantage",
    "record_membership_guess",
    "record_score",
    "test_auroc",
)
ROUND_FINDINGS = ("sigma", "local_sensitivity", "log_odds", "increment", "measured_sigma")
RELEASE_FINDINGS = ("test_accuracy", "epsilon_star")  # columns that every run has; those that nobody found are NaN


@dataclass(frozen=True)
class BatchResult:
    """Everything that is known after the last round of a batch."""

    batch: TrialBatch  # the trials
    membership: TargetMembership  # membership of the targets
    rounds: int  # number of rounds
    evaluated: tuple[int, ...]  # numbers of the releases that were evaluated, 0 being the initial models
    columns: ResultColumns  # all findings
    final_models: Tensor  # models after the last round (trials, parameters)
    kept: Mapping[str, Tensor]  # the clients' view of the kept trials, by name; empty if the batch has none
    targets: tuple[int, ...] = ()  # numbers of the units that are targets, ascending
    # Outputs of the final models for the targets' records, by name; empty in the identifiability audit.
    outputs: Mapping[str, Tensor] = field(default_factory=dict)

    def frames(self, prior: float) -> dict[str, pd.DataFrame]:
        """Return the tables of the batch by name: those that every run has, and those that this run filled.

        The insider's prior belief in D also affects its wins, because it names the data set with the larger posterior
        belief.
        """
        found, rounds = self.columns, range(1, self.rounds + 1)
        in_rounds = {**nan_columns(ROUND_FINDINGS, (self.batch.count, self.rounds)), **found.rounds}
        of_releases = {**nan_columns(RELEASE_FINDINGS, (self.batch.count, len(self.evaluated))), **found.releases}
        frames = {"trials": self._trials_frame(prior), "rounds": self._frame(in_rounds, round=rounds)}
        frames["releases"] = self._frame(of_releases, round=self.evaluated)
        if found.clients:
            clients = next(iter(found.clients.values())).shape[2]
            frames["clients"] = self._frame(found.clients, round=self.evaluated, client=range(clients))
        if told := found.insiders:
            if "log_odds" in told:  # columns of each insider, its belief in the truth, and whether it was right
                odds = told["log_odds"]
                told = {"log_odds": odds, **_believed(odds, self.membership.bits[:, None], prior)}
            frames["insiders"] = self._frame(told, insider=found.insider_clients)
        if found.residuals:
            frames["residuals"] = self._frame(found.residuals, round=rounds)
        if found.targets:
            frames["targets"] = self._frame({"is_in": self.membership.is_in, **found.targets}, target=self.targets)
        if found.canaries:  # decoys follow the canaries
            directions = next(iter(found.canaries.values())).shape[2]
            frames["canaries"] = self._frame(found.canaries, round=rounds, canary=range(directions))
        if found.opened:
            frames["opened"] = self._frame(found.opened, round=rounds)
        if found.tallies:
            frames["tallies"] = pd.DataFrame(found.tallies)
        return frames

    def _frame(self, columns: Table, **axes: Iterable[int]) -> pd.DataFrame:
        """Return one row for every trial and every position along the axes that columns have after the trials."""
        places = np.meshgrid(*(np.array(list(one)) for one in (self.batch.trials, *axes.values())), indexing="ij")
        index = dict(zip(("trial", *axes), places, strict=True))
        return pd.DataFrame({name: values.reshape(-1) for name, values in {**index, **columns}.items()})

    def _trials_frame(self, prior: float) -> pd.DataFrame:
        bits = self.membership.is_in[:, 0]  # of many targets the first
        found = {**nan_columns(("log_odds", *TRIAL_FINDINGS), (self.batch.count,)), **self.columns.trials}
        final = np.asarray(found.pop("log_odds"), dtype=np.float64)
        index = {"bit": bits.astype(np.int8), "log_odds": final, **_believed(final, bits, prior)}
        if not np.isfinite(final).all():
            index["won"] = np.full(self.batch.count, np.nan)
        return self._frame(index | found)


ResultSink = Callable[[BatchResult], None]  # takes finished batches, and stores them for good


def _believed(log_odds: Floats, bits: Flags, prior: float) -> dict[str, Floats | Flags]:
    """Return the belief in the truth, and whether the insider, which names D if it is likelier and else D', is right.

    An insider that learns nothing, because the record took part in no round that it saw, names D' and is right by
    chance, not never.
    """
    posterior = log_odds + logit(prior)
    return {"belief": expit(np.where(bits, 1.0, -1.0) * posterior), "won": (posterior > 0) == (bits != 0)}


LOGITS, POPULATION = "logits", "population"
"""Names of outputs of a batch: logits of the targets' records, and log p_y of the population sample."""
WHITE_BOX = ("signals", "inputs", "log_probabilities", "losses")
"""Names of the features of a white-box attacker, see `WhiteBoxFeatures`."""
UNDER_ASCENT = "loss_under_ascent"  # column of the table of targets
QUERIES, VALUES = "queries", "values"
"""Names of the confidences of all queries about the targets, and of the losses with each value of an attribute."""


@dataclass(frozen=True)
class FinalQueries:
    """Further questions about the targets to the final models."""

    queries: int = 1  # number of queries about each target; 1 is its records alone
    ways: Queries | None = None  # the variations of the queries; None with one
    attribute: Attribute | None = None  # the attribute whose values are tried; None if none are


@dataclass
class TargetOutputs:
    """Collects the models' outputs for the records of the targets.

    For the final models these are the outputs for them, and for the population sample.
    """

    evaluated: Sequence[int]  # numbers of the releases that are shown
    sees_weights: bool = False  # whether what a white-box attacker sees is kept, of three releases, the last among them
    is_active: bool = False  # whether the losses of all releases are, because an insider pushes them up
    more: FinalQueries = field(default_factory=FinalQueries)  # further queries
    _outputs: dict[str, dict[str, Tensor]] = field(init=False, default_factory=dict)
    _seen: dict[str, list[WhiteBoxFeatures]] = field(init=False, default_factory=lambda: defaultdict(list))
    _losses: dict[str, list[Floats]] = field(init=False, default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        places = [len(self.evaluated) * third // 3 - 1 for third in (1, 2, 3)] if self.sees_weights else []
        self._looked_at = {self.evaluated[place] for place in places}

    def __call__(self, release: EvaluatedRelease) -> ResultColumns:
        """Query a release; for the last one return log p_y and scaled confidence of every target, (trials, targets).

        For clients these are means over records.
        """
        federation, records, name = release.federation, release.federation.differing, release.batch.name
        if release.number in self._looked_at:
            self._seen[name] += [white_box_features(federation.model, release.models, records.features, records.labels)]
        if self.is_active and release.number > 0:
            self._losses[name].append(release.differing_losses)
        return self._of_last(release) if release.is_last else ResultColumns()

    def _of_last(self, release: EvaluatedRelease) -> ResultColumns:
        federation, records, name = release.federation, release.federation.differing, release.batch.name
        logits = federation.model.logits(release.models, records.features).cpu()
        wide, labels = logits.double().numpy(), records.labels.cpu().numpy()
        asked = {"log_probability": label_log_probability(wide, labels), "confidence": scaled_confidence(wide, labels)}
        told = {what: _by_target(values, federation.target_of_records) for what, values in asked.items()}
        if self.is_active:
            told[UNDER_ASCENT] = _by_target(np.mean(self._losses.pop(name), axis=0), federation.target_of_records)
        population = torch.from_numpy(-release.population_losses).float()
        self._outputs[name] = {LOGITS: logits, POPULATION: population, **self._answers(federation, release.models)}
        if self._seen:
            found = WhiteBoxFeatures.over_releases(self._seen.pop(name))
            self._outputs[name] |= {part: torch.from_numpy(getattr(found, part)).float() for part in WHITE_BOX}
        return ResultColumns(targets=told)

    def _answers(self, federation: LoadedFederation, models: Tensor) -> dict[str, Tensor]:
        """Return the models' outputs for all further questions."""
        found, records, more = dict[str, Tensor](), federation.differing, self.more
        labels = records.labels.cpu().numpy()
        if more.ways is not None:
            ways = more.ways.asked(records.features, more.queries)
            asked = (scaled_confidence(_logits(federation, models, features), labels) for features in ways)
            confidences = [torch.from_numpy(_by_target(one, federation.target_of_records)).float() for one in asked]
            found[QUERIES] = torch.stack(confidences, dim=2)
        if more.attribute is not None:
            place, losses = more.attribute.column.places, list[Tensor]()
            for value in torch.from_numpy(more.attribute.values):
                features = records.features.clone()
                features[:, place] = value.to(features.device)
                losses.append(
                    torch.from_numpy(-label_log_probability(_logits(federation, models, features), labels)).float()
                )
            found[VALUES] = torch.stack(losses, dim=2)
        return found

    def outputs(self, batch: TrialBatch) -> dict[str, Tensor]:
        """Return logits (trials, records, classes), log p_y of the population (trials, p), and the further outputs."""
        return self._outputs[batch.name]


def _logits(federation: LoadedFederation, models: Tensor, features: Tensor) -> Floats:
    """Return logits (trials, records, classes) in float64."""
    return np.asarray(federation.model.logits(models, features).cpu().double().numpy(), dtype=np.float64)


def _by_target(values: Floats, target_of_records: Integers) -> Floats:
    """Return the mean over the records of each target, (trials, targets)."""
    counts = np.bincount(target_of_records)
    sums = np.add.reduceat(values, np.append(0, np.cumsum(counts)[:-1]), axis=1)
    return np.asarray(sums / counts, dtype=np.float64)
