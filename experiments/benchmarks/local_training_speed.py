"""Benchmark of a client's local training: updates per second in one trial and in many, next to a plain torch loop.

    python -m fl_audit.experiments.benchmarks.local_training_speed [--repeat N] [--threads N]

A client update is one epoch of a client on its own records, from the round's model to the clipped difference. The plain
loop does the same with `torch.optim.SGD`, one trial after the other. The methods take turns, so that the load of the
machine affects all of them; every number is the median over turns.
"""

import copy
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

from fl_audit.array_types import Integers
from fl_audit.experiments.studies.study_commands import parser_of, table_of
from fl_audit.experiments.studies.study_runs import median_seconds
from fl_audit.learning.local_training import LocalSchedule, clip_updates, local_batches, local_updates
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.randomness import Purpose, generator
from fl_audit.runs.expected_errors import guarded

_NORM = 0.5
_MANY_TRIALS = 50


class LocalTrainingSetting(NamedTuple):
    """A network, the number of a client's records, and the smallest accepted speeds relative to a plain torch loop."""

    label: str  # name in the table
    spec: ModelSpec  # the network
    records: int = 50  # records of a client
    # Smallest accepted ratios of client updates a second to those of the plain loop, in one trial and in many; None
    # where there is no target.
    fewest_to_loop: tuple[float, float] | None = None


SETTINGS = (
    LocalTrainingSetting("784-128-10", ModelSpec("dense-128", (784,), 10), fewest_to_loop=(1.0, 2.0)),
    LocalTrainingSetting("784-10", ModelSpec("logistic", (784,), 10)),
    LocalTrainingSetting("784-128-10", ModelSpec("dense-128", (784,), 10), records=500),
    LocalTrainingSetting("mnist-cnn", ModelSpec("mnist-cnn", (1, 28, 28), 10)),
)
SCHEDULE = LocalSchedule(learning_rate=0.1, batch=10, epochs=1)


def _measured(setting: LocalTrainingSetting, repeat: int) -> tuple[float, float, float]:
    """Return client updates per second of a plain torch loop, of a single trial, and of many trials together.

    Each speed is the median of `repeat` measurements.
    """
    source = torch.Generator().manual_seed(0)
    model = StackedModel.of(setting.spec)
    features = torch.rand(setting.records, *setting.spec.feature_shape, generator=source)
    labels = torch.randint(setting.spec.classes, (setting.records,), generator=source)
    batches = local_batches(setting.records, SCHEDULE, generator(0, Purpose.LOCAL_ORDER))
    module = copy.deepcopy(model.template).requires_grad_(True)
    models = initial_models(setting.spec, 0, range(_MANY_TRIALS))
    alone = models[:1].clone()

    def stacked(starts: Tensor) -> Tensor:
        return clip_updates(local_updates(model, starts, features, labels, SCHEDULE, batches), _NORM)[0]

    # One trial takes as many turns in a row as the loop, so that both have their weights in cache.
    in_a_row = 5
    loop, one_trial, many_trials = median_seconds(
        lambda: torch.stack([_plain_update(module, start, features, labels, batches) for start in models[:in_a_row]]),
        lambda: [stacked(alone) for _ in range(in_a_row)],
        lambda: stacked(models),
        repeat=repeat,
    )
    return in_a_row / loop, in_a_row / one_trial, _MANY_TRIALS / many_trials


def _plain_update(
    module: nn.Module, start: Tensor, features: Tensor, labels: Tensor, batches: Sequence[Integers]
) -> Tensor:
    """Return one trial's clipped update, shape (parameters,), by a plain torch loop over mini-batches.

    `start` holds the initial parameters, and `batches` the indices of the records of each step.
    """
    parameters = list(module.parameters())
    nn.utils.vector_to_parameters(start.clone(), parameters)
    optimizer = torch.optim.SGD(parameters, lr=SCHEDULE.learning_rate)
    for batch in batches:
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(module(features[batch]), labels[batch]))
        optimizer.step()
    update = start - nn.utils.parameters_to_vector(parameters).detach()
    return update.mul_((_NORM / update.norm()).clamp(max=1.0))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--repeat", type=int, default=7, help="turns that count (default: 7)")
    parser.add_argument("--threads", type=int, default=1, help="threads (default: 1)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    label = f"{_MANY_TRIALS} trials"
    columns = ("network", "records", "torch loop", "1 trial", "1 trial / loop", label, f"{label} / loop")
    table = table_of(columns, f"Client updates (clients x trials) a second, {options.threads} thread(s)")
    for setting in SETTINGS:
        loop, *ours = _measured(setting, options.repeat)
        row = [setting.label, str(setting.records), f"{loop:.0f}"]
        for speed, fewest in zip(ours, setting.fewest_to_loop or (None, None), strict=True):
            target = "" if fewest is None else f" (target >= {fewest:g})"
            row += [f"{speed:.0f}", f"{speed / loop:.1f}{target}"]
        table.add_row(*row)
    Console(width=130).print(table)


if __name__ == "__main__":
    guarded(main)
