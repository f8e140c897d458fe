"""Metrics of models on test records are those of scikit-learn, and a user's own function is called."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as reference

from fl_audit.learning.metric_names import Metric, metric_column, metrics_of_task
from fl_audit.learning.metrics import TestOutputs, metric_function, require_metrics
from tests.builders.refusals import assert_refused

TRIALS = 3


def outputs(seed: int, classes: int, records: int = 40, levels: int = 6) -> TestOutputs:
    """Return outputs with many equal scores, and labels of which one class may be rare or missing."""
    draw = np.random.default_rng(seed)
    logits = torch.from_numpy(draw.integers(0, levels, (TRIALS, records, classes)).astype(np.float32))
    weights = draw.dirichlet(np.full(classes, 0.5))
    return TestOutputs(logits, torch.from_numpy(draw.choice(classes, records, p=weights)))


def expected(metric: Metric, scores: np.ndarray, labels: np.ndarray) -> float:
    """Return a metric of one model by scikit-learn."""
    margin = scores[:, 1] - scores[:, 0]
    match metric:
        case Metric.ACCURACY:
            return float(reference.accuracy_score(labels, scores.argmax(axis=1)))
        case Metric.BALANCED_ACCURACY:
            return float(np.mean([np.mean(scores.argmax(axis=1)[labels == label] == label) for label in set(labels)]))
        case Metric.LOSS:
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
            return float(reference.log_loss(labels, shares, labels=range(scores.shape[1])))
        case Metric.AUROC:
            return float(reference.roc_auc_score(labels, margin)) if len(set(labels)) == 2 else float("nan")
        case Metric.AVERAGE_PRECISION:
            return float(reference.average_precision_score(labels, margin)) if len(set(labels)) == 2 else float("nan")
        case Metric.RMSE | Metric.R2:
            raise AssertionError("not defined for classes")


@given(st.integers(0, 10**6), st.sampled_from(Metric), st.sampled_from([2, 5]))
def test_each_metric_is_that_of_scikit_learn(seed: int, metric: Metric, classes: int) -> None:
    if not metric.suits(classes):
        return
    test_outputs = outputs(seed, classes)
    scores = test_outputs.logits.double().numpy()
    labels = test_outputs.labels.numpy()
    values = metric_function(metric)(test_outputs)
    np.testing.assert_allclose(values, [expected(metric, of_one, labels) for of_one in scores], atol=1e-6)


def test_balanced_accuracy_is_that_of_scikit_learn_where_every_class_is_predicted_or_present() -> None:
    test_outputs = outputs(1, 3, records=200)
    predicted = test_outputs.logits.argmax(dim=2).numpy()
    labels = test_outputs.labels.numpy()
    expected_values = [reference.balanced_accuracy_score(labels, of_one) for of_one in predicted]
    np.testing.assert_allclose(metric_function(Metric.BALANCED_ACCURACY)(test_outputs), expected_values)


def test_the_headline_follows_the_labels() -> None:
    assert metrics_of_task(2, 0.94, is_audit=True)[0] == Metric.AUROC
    assert metrics_of_task(2, 0.76, is_audit=False)[0] == Metric.ACCURACY
    assert metrics_of_task(7, 0.9, is_audit=True) == (Metric.BALANCED_ACCURACY, Metric.ACCURACY)


OWN = """
import numpy as np

def specificity(outputs, labels):
    return np.mean(outputs[labels == 0].argmax(axis=1) == 0)

def words(outputs, labels):
    return "good"

def fails(outputs, labels):
    raise ValueError("no such class")

def loss(outputs, labels):
    return 0.0
"""


def test_own_metrics_get_outputs_and_labels_of_one_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_metrics.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    test_outputs = outputs(3, 2)
    right = test_outputs.right.numpy()[:, test_outputs.labels.numpy() == 0]
    values = metric_function("own_metrics:specificity")(test_outputs)
    np.testing.assert_allclose(values, right.mean(axis=1))
    assert metric_column("own_metrics:specificity") == "test_specificity"
    for name, expected_message in (("words", "accepted is a number"), ("fails", "no such class")):
        assert_refused(expected_message, metric_function(f"own_metrics:{name}"), test_outputs)
    for chosen, expected_message in (
        (("loss", "own_metrics:loss"), "test_loss"),
        (("own_metrics:missing",), "missing"),
    ):
        assert_refused(expected_message, require_metrics, chosen, 2)
    assert_refused("accepted are accuracy, balanced-accuracy, loss", require_metrics, ("auroc",), 5)
