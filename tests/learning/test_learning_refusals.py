"""Refusals of models, losses and trainings: each names what is wrong."""

import math

import torch
from torch import nn

from fl_audit.learning.local_training import LocalSchedule, clip_updates
from fl_audit.learning.losses import TrainingLoss
from fl_audit.learning.model_checks import check_module
from fl_audit.learning.models import ModelSpec, build_model
from fl_audit.learning.optimizers import ExponentialDecay
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.trial_batches import remaining_batches
from tests.builders.refusals import Refusal, refusal_test, refusals
from tests.learning.test_learning_frozen_parts import CLASSES, built
from tests.learning.test_learning_models import _around

_LAYERS = (
    (lambda: nn.BatchNorm1d(4), "layer '1.0' is a BatchNorm1d, which mixes .* torch.nn.GroupNorm"),
    (lambda: nn.BatchNorm2d(4, track_running_stats=False), "BatchNorm2d.*GroupNorm"),
    (lambda: nn.BatchNorm1d(4, affine=False), "BatchNorm1d.*GroupNorm"),
    (lambda: nn.SyncBatchNorm(4), "SyncBatchNorm.*GroupNorm"),
    (lambda: nn.Dropout(0.1), r"layer '1\.0' .*Dropout, .* p = 0"),
    (lambda: nn.Dropout2d(0.5), "Dropout2d"),
    (lambda: nn.AlphaDropout(0.5), "AlphaDropout"),
    (lambda: nn.InstanceNorm1d(4, track_running_stats=True), r"layer '1\.0' .*running statistics"),
    (lambda: nn.InstanceNorm2d(4, track_running_stats=True), "track_running_stats=False"),
)
"""Layers in which a record has no gradient of its own, and what the refusal must name."""

REFUSALS = [
    # A trained part is in float32.
    Refusal(lambda: built(lambda: nn.Linear(6, CLASSES).to(torch.bfloat16)), r"type bfloat16: .*float32"),
    # Schedules that make no sense are refused.
    *refusals(
        lambda wrong: LocalSchedule(**({"learning_rate": 0.1, "batch": 10, "epochs": 1} | wrong)),
        ({"learning_rate": 0.0}, r"learning rate .*\b0\.0"),
        ({"learning_rate": math.inf}, r"learning rate .*\binf"),
        ({"batch": 0}, "batch is 0"),
        ({"epochs": 0}, "epochs are 0"),
        ({"epochs": None, "steps": 0}, "steps are 0"),
        ({"steps": 3}, "exactly one"),
        ({"epochs": None}, "exactly one"),
    ),
    # Norms that clip to nothing are refused.
    *refusals(
        lambda norm: clip_updates(torch.ones(2, 3), norm),
        (0.0, "accepted are positive"),
        (-1.0, "accepted are positive"),
        (math.nan, "accepted are positive"),
    ),
    # Mnist cnn refuses what is no image.
    *refusals(
        lambda shape: build_model(ModelSpec("mnist-cnn", shape, 10)),
        ((784,), r"examples .*\(784,\)"),
        ((1, 9, 28), "9x28: accepted are 10x10 and larger"),
    ),
    # Any unknown name has a nearest.
    *refusals(
        lambda name: build_model(ModelSpec(name, (4,), 2)),
        ("", "nearest: '"),
        ("?", "nearest: '"),
        ("resnet", "nearest: '"),
    ),
    # Refuses layers without per example gradients.
    *refusals(lambda layer: StackedModel(_around(layer()), (4,)), *_LAYERS),
    *refusals(lambda layer: check_module(_around(layer())), *_LAYERS),
    # Refuses a model that cannot learn.
    Refusal(lambda: StackedModel(nn.Flatten(), (4,)), "no parameters"),
    # Constants out of range are refused.
    Refusal(lambda: TrainingLoss((1.0, 0.0)), r"class weight is 0\.0: accepted are positive finite numbers"),
    Refusal(
        lambda: TrainingLoss(label_smoothing=1.0), r"label smoothing is 1\.0: accepted are numbers from 0 to below 1"
    ),
    Refusal(lambda: ExponentialDecay(1.5), r"decay is 1\.5: accepted are numbers above 0 up to 1"),
    # Refuses no trials.
    *refusals(
        lambda trials, per_batch: remaining_batches(trials, per_batch, ()),
        (0, 5, "accepted are 1 and more"),
        (-1, 5, "accepted are 1 and more"),
        (5, 0, "accepted are 1 and more"),
        (5, -2, "accepted are 1 and more"),
    ),
]

test_it_is_refused = refusal_test(REFUSALS)
