"""The part of a model before its first trained parameter (the frozen prefix), evaluated once per record.

The output of frozen layers for a record is the same in all trials and rounds. The operations that a model runs on one
record are traced once. The operations that depend on no trained parameter are the prefix. All others read some results
of the prefix, and are run in every trial. Results of the prefix are cached under a hash of the record, so that all
callers share them. Records beyond the limits on memory and disk are computed at every use.
"""

import hashlib
import threading
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.func import functional_call, functionalize, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

from fl_audit.learning.module_preparation import without_hints
from fl_audit.learning.prefix_cache import PrefixOutputCache

_WORTH, _FEWEST = 0.2, 2**20
"""The prefix is used only if it has at least this share of a forward pass, and this number of arithmetic operations."""


@dataclass(frozen=True)
class _PrefixOutputLayout:
    """Layout of one result of the frozen layers for one record; later layers of the model read this result."""

    shape: tuple[int, ...]  # shape for one record, including an axis of length 1 for the record
    kind: torch.dtype  # type of the values

    @property
    def width(self) -> int:
        return prod(self.shape)


class _UncopiedGraph:
    """Holder of a traced graph, which is not copied when its module is: the graph has no state."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.run = module

    def __deepcopy__(self, memo: object) -> "_UncopiedGraph":
        return self


class Suffix(nn.Module):
    """The rest of a model after its frozen prefix, as a module with the trained parameters.

    Its inputs are the results of the prefix.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        like: dict[str, Tensor],
        graph: fx.GraphModule,
        cuts: tuple[_PrefixOutputLayout, ...],
    ):
        super().__init__()
        self._graph, self._cuts, self._names = _UncopiedGraph(graph), cuts, names
        for name in names:
            path, _, last = name.rpartition(".")
            place: nn.Module = self
            for step in path.split(".") if path else ():
                if step not in place._modules:
                    place.add_module(step, nn.Module())
                place = place.get_submodule(step)
            place.register_parameter(last, nn.Parameter(like[name].detach().clone(), requires_grad=False))

    def forward(self, rows: Tensor) -> Tensor:
        """Return the logits (n, classes) of n records; `rows`, (n, width), holds the outputs of the frozen layers."""
        named = [self._parameter(name) for name in self._names]
        if len(rows) == 1:
            return self._of_one(named, rows[0]).unsqueeze(0)
        found: Tensor = vmap(lambda row: self._of_one(named, row))(rows)
        return found

    def _of_one(self, named: list[Tensor], row: Tensor) -> Tensor:
        parts = torch.split(row, [cut.width for cut in self._cuts])
        cuts = [part.reshape(cut.shape).to(cut.kind) for cut, part in zip(self._cuts, parts, strict=True)]
        found: Tensor = self._graph.run(*named, *cuts)[0]
        return found

    def _parameter(self, name: str) -> Tensor:
        path, _, last = name.rpartition(".")
        found = self.get_submodule(path)._parameters[last]
        assert found is not None, "every trained parameter has a place"
        return found


class FrozenPrefix:
    """The part of a model before its first trained parameter, with a cache of its results for each record."""

    def __init__(
        self, graph: fx.GraphModule, cuts: tuple[_PrefixOutputLayout, ...], shape: tuple[int, ...], suffix: Suffix
    ) -> None:
        self.width = sum(cut.width for cut in cuts)
        self.suffix = suffix
        self._graph, self._shape, self._lock = graph, shape, threading.Lock()
        self._places: dict[bytes, int] = {}
        self._kept = PrefixOutputCache(self.width)

    @property
    def records(self) -> int:
        """Number of records for which the results of the frozen layers are cached."""
        return len(self._places)

    def rows(self, features: Tensor) -> Tensor:
        """Return the frozen layers' results for records, flattened to one row per record, float32 (..., width).

        Parameters
        ----------
        features
            Records, (..., *shape), with any number of leading axes.
        """
        records = features.detach().cpu().reshape(-1, *self._shape).float().contiguous()
        keys = [hashlib.blake2b(row, digest_size=16).digest() for row in np.asarray(records.flatten(1))]
        leading = features.shape[: features.dim() - len(self._shape)]
        with self._lock:
            self._learn(records, keys)
            places = [self._places.get(key, -1) for key in keys]
            found = self._kept.take(places)
        for number, place in enumerate(places):
            if place < 0:
                found[number] = self.of_record(records[number])
        return found.reshape(*leading, self.width).to(features.device)

    def of_record(self, record: Tensor) -> Tensor:
        """Return the frozen layers' results for one record, flattened, float32 (width,).

        The record is evaluated alone, so that every process computes the same numbers.
        """
        with torch.no_grad(), without_hints():
            found = self._graph(record.unsqueeze(0))
        return torch.cat([one.reshape(-1).float() for one in found])

    def _learn(self, records: Tensor, keys: list[bytes]) -> None:
        for record, key in zip(records, keys, strict=True):
            if key in self._places or self._kept.is_full:
                continue
            if self._kept.add(self.of_record(record)):
                self._places[key] = len(self._places)


def frozen_prefix(module: nn.Module, shape: tuple[int, ...]) -> FrozenPrefix | None:
    """Return the part of a model before its first trained parameter, which caches its results per record.

    Return None if no tensor is frozen, or if this part is cheap, draws random numbers or cannot be traced.

    Parameters
    ----------
    module
        Model in evaluation mode; its registered parameters are the trained ones.
    shape
        Shape of a record.
    """
    if not any(isinstance(value, Tensor) for layer in module.modules() for value in vars(layer).values()):
        return None  # nothing is frozen
    own = {name: value.detach().clone().requires_grad_() for name, value in module.named_parameters()}
    try:
        graph = _noted(module, own, torch.zeros(1, *shape))
        return None if graph is None else _split(graph, own, shape)
    except Exception:  # what cannot be noted runs as it did
        return None


def _noted(module: nn.Module, own: dict[str, Tensor], record: Tensor) -> fx.GraphModule | None:
    """Trace a module on a record (1, *shape), as a function of the record and of the trained parameters `own`.

    The result is None if an operation changes its inputs in place.
    """
    names = tuple(own)

    def run(*given: Tensor) -> Tensor:
        return functional_call(module, dict(zip(names, given, strict=False)), (given[-1],))  # type: ignore[no-any-return]

    given = (*own.values(), record)
    # With gradients, so that layers of torch take the way that they take where a loss is differentiated.
    with torch.enable_grad(), torch.random.fork_rng(devices=[]), without_hints():
        graph = make_fx(run)(*given)
        if any(_schema(node) is not None and _schema(node).is_mutable for node in graph.graph.nodes):
            graph = make_fx(functionalize(run))(*given)
    graph.graph.eliminate_dead_code()
    calls = [node for node in graph.graph.nodes if _schema(node) is not None]
    return None if any(_schema(node).is_mutable for node in calls) else graph


def _schema(node: fx.Node) -> Any:
    return getattr(node.target, "_schema", None) if node.op == "call_function" else None


def _split(graph: fx.GraphModule, own: dict[str, Tensor], shape: tuple[int, ...]) -> FrozenPrefix | None:
    nodes = list(graph.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    trained, of_record = set(inputs[: len(own)]), {inputs[len(own)]}
    for node in nodes:
        if node.op == "output":
            continue
        if any(one in trained for one in node.all_input_nodes):
            trained.add(node)
        elif any(one in of_record for one in node.all_input_nodes):
            of_record.add(node)
    end = nodes[-1]
    (answer,) = end.all_input_nodes
    if answer not in trained:
        return None
    read = [node for node in nodes if node not in trained and any(one in trained for one in node.users)]
    cuts = [node for node in read if node in of_record]
    first = _part(graph, [inputs[len(own)]], [node for node in nodes if node not in trained and node is not end], cuts)
    # What is made of constants alone, such as a transposed weight, is computed again: it is a view, or small.
    rest = [node for node in nodes if node in trained or node not in of_record]
    last = _part(graph, [*inputs[: len(own)], *cuts], [node for node in rest if node is not end], [answer])
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), torch.random.fork_rng(devices=[]), without_hints(), counter:
        found = first(torch.zeros(1, *shape))
        again = first(torch.zeros(1, *shape))
    # Half of what was counted in two runs. Layers may draw numbers that nobody marks as such, so they are run twice.
    if not all(torch.allclose(*pair, rtol=0, atol=0, equal_nan=True) for pair in zip(found, again, strict=True)):
        return None
    before = counter.get_total_flops() // 2
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), without_hints(), counter:
        last(*own.values(), *found)
    if not cuts or before < max(_FEWEST, _WORTH * (before + counter.get_total_flops())):
        return None
    said = tuple(_PrefixOutputLayout(tuple(one.shape), one.dtype) for one in found)
    return FrozenPrefix(first, said, shape, Suffix(tuple(own), own, _answering_alone(last), said))


def _part(graph: fx.GraphModule, inputs: list[fx.Node], body: list[fx.Node], outputs: list[fx.Node]) -> fx.GraphModule:
    """Return the part of a graph that computes the nodes `outputs` from the nodes `inputs`, using the nodes `body`."""
    made, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for number, node in enumerate(inputs):
        copies[node] = made.placeholder(f"given_{number}")
    for node in body:
        if node not in copies and node.op != "placeholder":
            copies[node] = made.node_copy(node, lambda one: copies[one])
    made.output(tuple(copies[node] for node in outputs))
    made.eliminate_dead_code()
    return fx.GraphModule(graph, made)


def _answering_alone(graph: fx.GraphModule) -> fx.GraphModule:
    """Change a graph in place so that it returns logits (classes,) instead of (1, classes), and return it."""
    end = next(iter(reversed(graph.graph.nodes)))
    (answer,) = end.all_input_nodes
    with graph.graph.inserting_before(end):
        alone = graph.graph.call_function(torch.ops.aten.select.int, (answer, 0, 0))
    end.args = ((alone,),)
    graph.recompile()
    return graph
