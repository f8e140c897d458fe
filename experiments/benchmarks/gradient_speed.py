"""Benchmark of clipped gradient sums of stacked trials: time relative to plain batch gradients and to Opacus.

    python -m fl_audit.experiments.benchmarks.gradient_speed [--repeat N] [--threads N]

Stacked trials are trained together as arrays. The last two networks are defined outside the library, as a user's would
be. The plain gradient is the non-private gradient of the summed loss for the same trials and examples. It is computed
by `torch.func` over all trials at once, or by torch's backward pass trial by trial; the faster one counts. Opacus
computes per-sample gradients trial by trial; then they are clipped and summed. The methods take turns, so that the load
of the machine affects all of them, and every number is the median over turns. A second table shows the time of clipping
per user (a person with several records) relative to clipping per record.
"""

import copy
import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from opacus.grad_sample import GradSampleModule
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fl_audit.experiments.studies.study_commands import parser_of, table_of
from fl_audit.experiments.studies.study_runs import median_seconds
from fl_audit.learning.microbatching import GroupedRecords
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.runs.expected_errors import guarded

_NORM = 3.0
_OWN = "fl_audit.experiments.benchmarks.user_networks"


_OF_USERS = (
    ("logistic 784-10", ModelSpec("logistic", (784,), 10), 960, 20),
    ("dense 784-128-10", ModelSpec("dense-128", (784,), 10), 960, 8),
    ("104-6-6-2", ModelSpec("adult-mlp", (104,), 2), 960, 50),
    ("mnist-cnn", ModelSpec("mnist-cnn", (1, 28, 28), 10), 96, 8),
)
"""Networks whose records are clipped by user: label, network, records and trials."""
_SIZES = (1, 4, 16, 0)  # records of a user; 0 for 1 to 16, each as likely
_SLOWEST_TO_RECORDS = 1.3


class GradientSpeedSetting(NamedTuple):
    """A network with the sizes of its data and the accepted ratios of times."""

    label: str  # name in the table
    spec: ModelSpec  # the network
    examples: int  # number of examples in the batch
    trials: int  # number of trials that take part
    slowest_to_plain: float = 2.0  # largest accepted ratio of the time to that of the plain gradient
    # Smallest accepted ratio of Opacus' time to ours; None where there is no target.
    fastest_to_opacus: float | None = None


SETTINGS = (
    GradientSpeedSetting("104-6-6-2", ModelSpec("adult-mlp", (104,), 2), 1000, 100, fastest_to_opacus=3.0),
    GradientSpeedSetting("600-128-100", ModelSpec("dense-128", (600,), 100), 1000, 8, fastest_to_opacus=30.0),
    GradientSpeedSetting("mnist-cnn", ModelSpec("mnist-cnn", (1, 28, 28), 10), 100, 8),
    GradientSpeedSetting("GroupNorm CNN", ModelSpec(f"{_OWN}:group_norm_cnn", (1, 28, 28), 10), 100, 8, 1.3),
    GradientSpeedSetting("residual net", ModelSpec(f"{_OWN}:residual_net", (1, 28, 28), 10), 100, 8, 1.3),
)


def _measured(setting: GradientSpeedSetting, repeat: int) -> tuple[float, float, float, float]:
    """Return the seconds that each of four methods takes to compute the gradients of all trials.

    The methods are clipped sums by stacked layers, plain gradients of all trials at once, plain gradients trial by
    trial, and clipped sums by Opacus. Opacus is timed on at most four trials, and its time is extrapolated to all.
    """
    source = torch.Generator().manual_seed(0)
    features = torch.rand(setting.examples, *setting.spec.feature_shape, generator=source)
    labels = torch.randint(setting.spec.classes, (setting.examples,), generator=source)
    models = initial_models(setting.spec, 0, range(setting.trials))
    stacked = StackedModel.of(setting.spec)
    assert stacked.fast, "the benchmark is about the stacked layers"
    shorter_trials = min(setting.trials, 4)  # Opacus goes trial by trial, so a few tell what all would take
    clipped, at_once, one_by_one, opacus = median_seconds(
        lambda: stacked.clipped_sum(models, features, labels, _NORM),
        lambda: _plain_at_once(stacked, models, features, labels),
        lambda: _plain_one_by_one(stacked, models, features, labels),
        lambda: _opacus_sums(stacked, models[:shorter_trials], features, labels),
        repeat=repeat,
    )
    return clipped, at_once, one_by_one, opacus * setting.trials / shorter_trials


def _plain_at_once(stacked: StackedModel, models: Tensor, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return the gradients of the summed loss by torch.func, with the trials in the first dimension."""

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(functional_call(stacked.template, parameters, (features,)), labels, reduction="sum")

    gradients: dict[str, Tensor] = vmap(grad(loss))(stacked.layout.views(models))
    return gradients


def _plain_one_by_one(stacked: StackedModel, models: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    """Return the gradients of the summed loss, shape (trials, parameters), by one backward pass per trial."""
    module = copy.deepcopy(stacked.template).requires_grad_(True)
    rows = []
    for model in models:
        nn.utils.vector_to_parameters(model, module.parameters())
        loss = F.cross_entropy(module(features), labels, reduction="sum")
        rows.append(torch.cat([tensor.flatten() for tensor in torch.autograd.grad(loss, list(module.parameters()))]))
    return torch.stack(rows)


def _opacus_sums(stacked: StackedModel, models: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    """Return the sums of clipped per-sample gradients by Opacus, shape (trials, parameters)."""
    rows = []
    for model in models:
        module = copy.deepcopy(stacked.template).requires_grad_(True).train()
        nn.utils.vector_to_parameters(model, module.parameters())
        sampled = GradSampleModule(module, loss_reduction="sum")
        torch.autograd.backward(F.cross_entropy(sampled(features), labels, reduction="sum"))
        gradients = [value.grad_sample for value in sampled.parameters()]
        norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
        weights = (_NORM / norms).clamp(max=1.0)
        rows.append(torch.cat([torch.einsum("n,n...->...", weights, gradient).flatten() for gradient in gradients]))
    return torch.stack(rows)


def _over_records(spec: ModelSpec, records: int, trials: int, repeat: int) -> tuple[float, list[float]]:
    """Return the seconds of clipping per record, and times of clipping per user relative to it.

    There is one relative time for each number of records of a user in `_SIZES`.
    """
    source = torch.Generator().manual_seed(0)
    features = torch.rand(records, *spec.feature_shape, generator=source)
    labels = torch.randint(spec.classes, (records,), generator=source)
    order = torch.randperm(records, generator=source)
    models = initial_models(spec, 0, range(trials))
    stacked = StackedModel.of(spec)

    def of_users(size: int) -> Callable[[], object]:
        sizes = torch.full((records,), size) if size else torch.randint(1, 17, (records,), generator=source)
        users = torch.repeat_interleave(torch.arange(records), sizes)[:records][order]
        grouped = GroupedRecords.of(features, labels, users)  # sorted once for all rounds, as by a client
        return lambda: stacked.clipped_sums(models, grouped, _NORM)

    of_records, *other_seconds = median_seconds(
        lambda: stacked.clipped_sum(models, features, labels, _NORM), *map(of_users, _SIZES), repeat=repeat
    )
    return of_records, [seconds / of_records for seconds in other_seconds]


def _table_of_users(repeat: int) -> Table:
    columns = ("network", "records", "ms of records", *(f"users of {size or '1 to 16'} / records" for size in _SIZES))
    table = table_of(columns, f"Clipped sums of users beside those of records (target <= {_SLOWEST_TO_RECORDS:g})")
    for label, spec, records, trials in _OF_USERS:
        seconds, ratios = _over_records(spec, records, trials, repeat)
        table.add_row(label, str(records), f"{1000 * seconds / trials:.2f}", *(f"{ratio:.2f}" for ratio in ratios))
    return table


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--repeat", type=int, default=7, help="turns that count (default: 7)")
    parser.add_argument("--threads", type=int, default=1, help="threads (default: 1)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", "Full backward hook")  # Opacus hooks modules whose inputs need no gradients
    columns = ("network", "examples", "clipped", "plain", "clipped / plain", "opacus", "opacus / clipped")
    table = table_of(columns, f"Milliseconds a trial and step, {options.threads} thread(s)")
    for setting in SETTINGS:
        clipped, at_once, one_by_one, opacus = _measured(setting, options.repeat)
        plain = min(at_once, one_by_one)
        a_trial = 1000 / setting.trials
        target = "" if setting.fastest_to_opacus is None else f" (target >= {setting.fastest_to_opacus:g})"
        to_plain = f"{clipped / plain:.2f} (target <= {setting.slowest_to_plain:g})"
        times = [f"{seconds * a_trial:.2f}" for seconds in (clipped, plain, opacus)]
        table.add_row(
            setting.label, str(setting.examples), *times[:2], to_plain, times[2], f"{opacus / clipped:.1f}{target}"
        )
    Console(width=130).print(table)
    Console(width=130).print(_table_of_users(options.repeat))


if __name__ == "__main__":
    guarded(main)
