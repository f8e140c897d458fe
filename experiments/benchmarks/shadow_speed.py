"""Benchmark of shadow models trained as trials of a membership audit: time per model, next to a plain torch loop.

    python -m fl_audit.experiments.benchmarks.shadow_speed [--quick] [--repeat N]

One client holds all records, and in every trial about half of them are members. A trial trains on its members for some
epochs with Adam in mini-batches of 64, like a shadow model. The loop and the trials use the same mini-batches and take
turns, in one thread each. CPU seconds are measured besides wall-clock seconds, because the machine may be shared. With
`--whole` a complete run through Flower's app on the local engine is timed too, including evaluation and the attack
LiRA.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor

from fl_audit.array_types import Integers
from fl_audit.experiments.studies.study_commands import parser_of, table_of
from fl_audit.experiments.studies.study_runs import results_of_run
from fl_audit.learning.local_training import LocalOptimizer, LocalSchedule, member_batches, member_updates
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.runs.expected_errors import guarded

_RATE = 0.001
_BATCH = 64


class ShadowSpeedSetting(NamedTuple):
    """A case of the benchmark: a model, the sizes of its data, and the accepted speed-up.

    `target` is the smallest accepted speed-up: the time of a plain loop over models divided by the time of stacked
    models.
    """

    name: str
    model: str
    features: int
    classes: int
    records: int
    target: float


SHAPES = (
    ShadowSpeedSetting("446-128-30", "dense-128", 446, 30, 1600, 2.0),
    ShadowSpeedSetting("104-6-6-2", "adult-mlp", 104, 2, 1600, 10.0),
)


class ModelTimes(NamedTuple):
    """Seconds to train one model: wall-clock time (`clock`) and CPU time (`processor`)."""

    clock: float
    processor: float


def _timed(work: Callable[[], object], count: int) -> ModelTimes:
    """Return the seconds per model of `work`, which trains `count` models."""
    clock = time.perf_counter()
    processor = time.process_time()
    work()
    return ModelTimes((time.perf_counter() - clock) / count, (time.process_time() - processor) / count)


def _compared(setting: ShadowSpeedSetting, trials: int, epochs: int, loops: int) -> tuple[ModelTimes, ModelTimes]:
    """Measure the time per model in seconds: in a plain loop over `loops` models, and in `trials` trained together."""
    torch.set_num_threads(1)
    spec = ModelSpec(setting.model, (setting.features,), setting.classes)
    model = StackedModel.of(spec)
    source = np.random.default_rng(0)
    features = torch.from_numpy(source.random((setting.records, setting.features), dtype=np.float32))
    labels = torch.from_numpy(source.integers(setting.classes, size=setting.records))
    present = source.random((trials, setting.records)) < 0.5
    schedule = LocalSchedule(_RATE, _BATCH, epochs=epochs, optimizer=LocalOptimizer.ADAM)
    models = initial_models(spec, 0, range(trials))
    batches = member_batches(present, schedule, source)

    def one_by_one() -> None:
        for trial in range(loops):
            _loop(model, models[trial], [batch[trial] for batch in batches], features, labels)

    alone = _timed(one_by_one, loops)
    return alone, _timed(lambda: member_updates(model, models, features, labels, schedule, batches), trials)


def _loop(model: StackedModel, start: Tensor, batches: list[Integers], features: Tensor, labels: Tensor) -> None:
    """Train one model with Adam in a plain torch loop; negative indices in a mini-batch are left out."""
    template = model.template
    template.load_state_dict(model.layout.of_one(start))
    template.requires_grad_(True)
    optimizer = torch.optim.Adam(template.parameters(), lr=_RATE)
    for batch in batches:
        index = torch.from_numpy(batch[batch >= 0])
        if len(index) == 0:
            continue
        optimizer.zero_grad()
        F.cross_entropy(template(features[index]), labels[index]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    template.requires_grad_(False)


def _whole(epochs: int, trials: int) -> None:
    """Run a complete audit with the attack LiRA on Location-30."""
    local = {"local-epochs": epochs, "local-batch": _BATCH, "local-optimizer": "adam", "local-learning-rate": _RATE}
    audit = {"kind": "membership", "targets": 2000, "trials": trials, "attacks": ["lira"], "epsilon-star": False}
    results_of_run(
        {
            "data": {"name": "location30", "records": 2000, "clients": 1, "test-records": 1000},
            "model": {"name": "dense-128"},
            "training": {"strategy": "dp-fedavg", "rounds": 1} | local,
            "privacy": {"private": False, "adjacency": "add-remove-record"},
            "audit": audit,
        }
    )


def main() -> None:
    parser = parser_of(__doc__, "fewer trials and epochs")
    parser.add_argument("--repeat", type=int, default=3, help="turns (default: 3)")
    whole = "time a whole run of LiRA with 65 trials on Location-30 too"
    parser.add_argument("--whole", action="store_true", help=whole)
    options = parser.parse_args()
    columns = ("network", "loop, clock", "trials, clock", "loop, processor", "trials, processor", "ratio", "target")
    console = Console(width=120)
    table = table_of(columns, "Seconds of a shadow model, one thread")
    trials, epochs, loops = (32, 3, 4) if options.quick else (64, 20, 6)
    for shape in SHAPES:
        turns = [_compared(shape, trials, epochs, loops) for _ in range(options.repeat)]
        loop, ours = (ModelTimes(*map(median, zip(*times, strict=True))) for times in zip(*turns, strict=True))
        ratio = median(turn[0].processor / turn[1].processor for turn in turns)
        cells = [f"{value:.4f}" for value in (loop.clock, ours.clock, loop.processor, ours.processor)]
        table.add_row(shape.name, *cells, f"{ratio:.1f}", f">= {shape.target:g}")
    console.print(table)
    if options.whole:
        seconds = _timed(lambda: _whole(50, 65), 1)
        console.print(f"LiRA, 65 trials, Location-30, 50 epochs: {seconds.clock:.0f} s (target: under 180 s)")


if __name__ == "__main__":
    guarded(main)
