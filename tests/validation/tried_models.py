"""Models of today's libraries, tried one after the other: taken or refused, how exact, how fast, in how much memory.

    python -m tests.validation tried_models [--only NAME] [--write]

Each is built from a configuration, small and with random weights, in a process of its own. `exactness` is the relative
distance of the sum of clipped gradients from that of torch's own gradients of single records in double precision.
`time` is that of the clipped sums of five trials, in units of two plain passes: twice the forward and backward pass of
the summed loss, trial by trial, by torch alone. `memory` is what the peak of the process lies above its base meanwhile.
Needs transformers, peft and timm. With `--write` the table goes to the documentation.
"""

import argparse
import copy
import csv
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn

from fl_audit.errors import InputError
from fl_audit.learning import model_initialisation, models, stacked_model
from fl_audit.learning.model_checks import ModelCheckRecords
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.stacked_layers import ParameterLayout
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.randomness import Purpose, generator
from tests.learning import library_models as library
from tests.validation.tried_factories import FACTORIES, TriedModel

TABLE = Path(__file__).parents[2] / "docs" / "reference" / "tried-models.csv"
COLUMNS = ("model", "weights", "trained", "answer", "exactness", "time", "memory in MB")
_RECORDS = 20
_TRIALS = 5
_REPEAT = 3


class Outcome(NamedTuple):
    """The findings about a model; numbers are None where it was refused."""

    model: str
    weights: int | None
    trained: int | None
    answer: str  # "accepted", or the line by which it was refused
    exactness: float | None = None
    time: float | None = None
    memory: float | None = None

    def cells(self) -> list[str]:
        """Return the cells of a row of the table."""
        whole = (f"{count:,}" if count is not None else "" for count in (self.weights, self.trained))
        exact = "" if self.exactness is None else f"{self.exactness:.0e}"
        cost_cells = (
            "" if self.time is None else f"{self.time:.1f}",
            "" if self.memory is None else f"{self.memory:.0f}",
        )
        return [self.model, *whole, self.answer, exact, *cost_cells]


def tried(name: str, case: TriedModel) -> Outcome:
    """Try a model, in a process that does nothing else."""
    records = case.records(_RECORDS)
    labels = torch.arange(_RECORDS) % library.CLASSES
    spec = ModelSpec("tried:build", tuple(records.shape[1:]), library.CLASSES, case.inputs)
    module = _drawn(case.make)
    weights = sum(parameter.numel() for parameter in module.parameters())
    trained = sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
    try:
        names = tuple(f"record {number}" for number in range(_RECORDS))
        with mock.patch.object(models, "import_factory", return_value=case.make):
            model = stacked_model._built(spec, ModelCheckRecords(records, names))
    except InputError as refused:
        return Outcome(name, weights, trained, f"refused: {refused}")
    flat = ParameterLayout.of_trained(module).flatten(dict(module.named_parameters()))
    gradients = _truth(module, case, records, labels)
    norm = float(gradients.norm(dim=1).median())
    expected = (gradients * (norm / gradients.norm(dim=1, keepdim=True)).clamp(max=1.0)).sum(0)
    computed_sum = model.clipped_sum(flat.unsqueeze(0), records, labels, norm)[0]
    off = float((computed_sum.double() - expected).norm() / expected.norm())
    return Outcome(name, weights, trained, "accepted", off, *_costs(model, module, case, flat, records, labels, norm))


def _drawn(make: Callable[[], nn.Module]) -> nn.Module:
    with model_initialisation._drawing(generator(0, Purpose.INITIAL_WEIGHTS)):
        return make()


def _truth(module: nn.Module, case: TriedModel, records: Tensor, labels: Tensor) -> Tensor:
    """Return the gradient of every record, (n, trained), by torch alone in double precision."""
    exact = copy.deepcopy(module).double().eval()
    trained = [tensor for tensor in exact.parameters() if tensor.requires_grad]
    gradients = []
    for record, label in zip(records, labels, strict=True):
        loss = nn.functional.cross_entropy(case.call(exact, record.unsqueeze(0).double()), label.unsqueeze(0))
        tensor_gradients = torch.autograd.grad(loss, trained, materialize_grads=True)
        gradients.append(torch.cat([tensor.flatten() for tensor in tensor_gradients]))
    return torch.stack(gradients)


def _costs(
    model: StackedModel, module: nn.Module, case: TriedModel, flat: Tensor, records: Tensor, labels: Tensor, norm: float
) -> tuple[float, float]:
    """Return the time of clipped sums in units of two plain passes, and the peak of memory above the base, in MB."""
    rows = flat.repeat(_TRIALS, 1)
    plain = copy.deepcopy(module).float().eval()
    trained = [item for item in plain.parameters() if item.requires_grad]

    def passes() -> None:
        for _ in range(_TRIALS):
            loss = nn.functional.cross_entropy(case.call(plain, records), labels, reduction="sum")
            torch.autograd.grad(loss, trained, materialize_grads=True)

    def sums() -> None:
        model.clipped_sum(rows, records, labels, norm)

    sums()
    base = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the peak until now
    sums()
    peak = _memory("VmHWM") - base
    passes()
    times = [(_seconds(sums), _seconds(passes)) for _ in range(_REPEAT)]
    return min(item for item, _ in times) / (2 * min(two for _, two in times)), max(0.0, peak)


def _seconds(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _memory(name: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def _in_process(name: str) -> Outcome:
    case = FACTORIES[name]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        return tried(name, case)
    except Exception as error:  # a traceback is what no model may end in
        return Outcome(name, None, None, f"FAILED: {type(error).__name__}: {str(error).splitlines()[0]}")


def outcomes(names: Iterable[str]) -> Iterable[Outcome]:
    """Yield what was found of some models, each in a process of its own."""
    import peft  # noqa: F401  # imported once, for all processes
    import timm  # noqa: F401
    import transformers  # noqa: F401

    context = multiprocessing.get_context("fork")
    for name in names:
        with context.Pool(1) as process:
            yield process.apply(_in_process, (name,))


def main() -> None:
    """Try the models, and print what was found."""
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--only", nargs="+", choices=list(FACTORIES), default=list(FACTORIES), metavar="NAME")
    reader.add_argument("--write", action="store_true", help="write the table to the documentation")
    options: Any = reader.parse_args()
    rows = [list(COLUMNS)]
    for outcome in outcomes(options.only):
        rows.append(outcome.cells())
        print(" | ".join(rows[-1]), flush=True)
    if options.write:
        with TABLE.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
