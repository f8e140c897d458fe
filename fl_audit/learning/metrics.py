"""Metrics of the models of many trials on test records: accuracy, loss, AUROC and others, and the user's own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor

from fl_audit.array_types import Floats, Labels
from fl_audit.errors import InputError, require
from fl_audit.learning.losses import losses_of
from fl_audit.learning.metric_names import Metric, metric_column
from fl_audit.released_model.empirical_star import ThresholdCounts, area_under_roc, threshold_counts
from fl_audit.user_modules import import_function


@dataclass(frozen=True)
class TestOutputs:
    """Outputs of the models of several trials on the test records; what several metrics use is computed once."""

    __test__ = False  # no class of tests

    logits: Tensor  # (trials, n, classes), or (trials, n, 1) of quantities
    labels: Tensor  # classes of the records, int64 (n,), or quantities, float32 (n,)
    label_range: tuple[float, float] = (0.0, 1.0)  # quantities that the labels 0 and 1 stand for

    @property
    def trials(self) -> int:
        """Number of trials."""
        return len(self.logits)

    @cached_property
    def errors(self) -> Floats:
        """Predicted less true quantities, in units of the data, float64 (trials, n)."""
        low, high = self.label_range
        return np.asarray((high - low) * (self.logits[..., 0].double() - self.labels.double()).cpu().numpy())

    @cached_property
    def right(self) -> Tensor:
        """Whether the class with the largest logit, the first one at ties, is the right one; bool (trials, n)."""
        if self.logits.shape[-1] == 2:  # four times as fast as `argmax`
            return (self.logits[..., 1] > self.logits[..., 0]).long() == self.labels
        return self.logits.argmax(dim=-1) == self.labels

    @cached_property
    def ranking(self) -> ThresholdCounts | None:
        """Counts of records of class 1 (as members) and class 0 at each threshold; None if a class is missing."""
        positive = self.labels == 1
        if bool(positive.all()) or not bool(positive.any()):
            return None
        # The sign is reversed, since `threshold_counts` takes small values for positives.
        falling = (self.logits[..., 0] - self.logits[..., 1]).double()
        return threshold_counts(falling[:, positive].cpu().numpy(), falling[:, ~positive].cpu().numpy())


MetricFunction = Callable[[TestOutputs], Floats]
"""A function that returns a metric of the model of each trial, float64 (trials,); NaN where it is not defined."""


def accuracy(outputs: TestOutputs) -> Floats:
    """Return the share of records that each model classifies right; NaN if the labels are quantities."""
    if outputs.labels.is_floating_point():
        return np.full(outputs.trials, np.nan)
    return np.asarray((outputs.right.sum(dim=1).double() / len(outputs.labels)).cpu().numpy())


def balanced_accuracy(outputs: TestOutputs) -> Floats:
    """Return the mean, over the classes that occur, of the share of a class that each model classifies right."""
    right = outputs.right.cpu().numpy()
    labels = outputs.labels.cpu().numpy()
    return np.asarray(np.mean([right[:, labels == label].mean(axis=1) for label in np.unique(labels)], axis=0))


def mean_loss(outputs: TestOutputs) -> Floats:
    """Return the mean loss of each model: the cross-entropy in nats, or the squared error of scaled quantities."""
    return np.asarray(losses_of(outputs.logits, outputs.labels).double().mean(dim=1).cpu().numpy())


def auroc(outputs: TestOutputs) -> Floats:
    """Return the area under the ROC curve of each model of two classes; NaN if the records are of one class."""
    counts = outputs.ranking
    return np.full(outputs.trials, np.nan) if counts is None else area_under_roc(counts)


def average_precision(outputs: TestOutputs) -> Floats:
    """Return the average precision of class 1 of each model: precision at each threshold, weighted by gained recall.

    It is the sum over thresholds of (recall - recall before) x precision, without interpolation. NaN if the records are
    of one class.
    """
    counts = outputs.ranking
    if counts is None:
        return np.full(outputs.trials, np.nan)
    precision = counts.members / (counts.members + counts.population)
    # Records of equal score share the precision at the last of them.
    positions = np.where(counts.last, np.arange(precision.shape[-1]), precision.shape[-1])
    end_of_ties = np.minimum.accumulate(positions[..., ::-1], axis=-1)[..., ::-1]
    gained = np.diff(counts.members, axis=-1, prepend=0)
    shared = np.take_along_axis(precision, end_of_ties, axis=-1)
    return np.asarray((gained * shared).sum(axis=-1) / counts.member_total)


def rmse(outputs: TestOutputs) -> Floats:
    """Return the root of the mean squared error of each model, in units of the data."""
    return np.asarray(np.sqrt(np.mean(outputs.errors**2, axis=1)))


def r2(outputs: TestOutputs) -> Floats:
    """Return the share of the labels' variance that each model explains, at most 1; NaN if all labels are equal.

    It is 1 less the sum of squared errors over the sum of squared distances of the labels from their mean.
    """
    low, high = outputs.label_range
    labels = (high - low) * outputs.labels.double().cpu().numpy()
    spread = np.sum((labels - labels.mean()) ** 2)
    if spread == 0:
        return np.full(outputs.trials, np.nan)
    return np.asarray(1 - np.sum(outputs.errors**2, axis=1) / spread)


_FUNCTIONS: Mapping[Metric, MetricFunction] = {
    Metric.ACCURACY: accuracy,
    Metric.BALANCED_ACCURACY: balanced_accuracy,
    Metric.AUROC: auroc,
    Metric.AVERAGE_PRECISION: average_precision,
    Metric.LOSS: mean_loss,
    Metric.RMSE: rmse,
    Metric.R2: r2,
}


def metric_function(metric: str) -> MetricFunction:
    """Return the function of a metric; raise `InputError` if it is the user's own and cannot be imported.

    A user's own function gets the outputs of one model, float64 (n, classes), and the labels, int64 (n,), and returns a
    number. Quantities, float64 (n, 1) and (n,), are in units of the data.
    """
    if metric in list(Metric):
        return _FUNCTIONS[Metric(metric)]
    function = import_function(metric, "metric")

    def of_trials(outputs: TestOutputs) -> Floats:
        labels: Labels = outputs.labels.cpu().numpy()
        logits = outputs.logits.double().cpu().numpy()
        if outputs.labels.is_floating_point():
            low, high = outputs.label_range
            labels = low + (high - low) * labels.astype(np.float64)
            logits = low + (high - low) * logits
        return np.array([_number(metric, function(of_one.copy(), labels.copy())) for of_one in logits])

    return of_trials


def _number(metric: str, value: object) -> float:
    number = value.item() if isinstance(value, np.generic | np.ndarray | Tensor) and np.size(value) == 1 else value
    if not isinstance(number, int | float):
        raise InputError(f"metric {metric!r} returned a {type(value).__name__}: accepted is a number")
    return float(number)


def require_metrics(metrics: Sequence[str], classes: int) -> None:
    """Raise `InputError` if a metric does not suit the labels, cannot be imported, or is named as another is."""
    for metric in metrics:
        if metric in list(Metric):
            accepted = ", ".join(accepted_metric for accepted_metric in Metric if accepted_metric.suits(classes))
            labels = f"{classes} classes" if classes > 1 else "labels that are quantities"
            is_suited = Metric(metric).suits(classes)
            require(is_suited, f"metric {metric} is not defined for {labels}: accepted are {accepted}")
        else:
            import_function(metric, "metric")
    columns = [metric_column(metric) for metric in metrics]
    twice = sorted({column for column in columns if columns.count(column) > 1})
    require(not twice, f"two metrics have the name {', '.join(twice)}: accepted are metrics of different names")
