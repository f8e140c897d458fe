"""Functions of tensors on a graphics card whose kernels are launched at once, as a CUDA graph.

A pass over a small network launches some fifty kernels that take less time on the card than their launches take on the
processor. A graph holds the kernels of one call with the addresses of their inputs: the inputs of a later call are
copied there, and the whole graph is launched by one call of the driver.
"""

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_CAPTURED_AT = 3
"""The call with equal shapes at which a graph is made: most shapes that come once or twice never come again."""
_MOST_KEPT = 8
"""Graphs that a thread makes; each holds the memory of one pass. Further shapes are computed kernel by kernel."""
_MOST_COUNTED = 1000
"""Shapes of which the calls are counted, since samples of ever new sizes may follow each other."""
_WARM_UP = 2
_CAPTURING = threading.Lock()
"""Lock of the thread that makes a graph: the synchronisation before a capture would end that of another thread."""

Inputs = Sequence[Tensor | None]
Compute = Callable[..., Tensor]


class CapturedCall(NamedTuple):
    """A call whose kernels can be launched again on other values of the same shapes."""

    inputs: tuple[Tensor | None, ...]  # tensors into which the values of a later call are copied
    launch: Callable[[], None]  # function that computes the output of the values that the inputs hold
    output: Tensor  # tensor that the launch overwrites


class GraphedCalls:
    """Calls of functions of tensors, of which those that come often are launched as CUDA graphs; not for two threads.

    Parameters
    ----------
    capture
        Function that makes a call ready to be launched again, `captured_graph` where it is left out.
    """

    def __init__(self, capture: "Callable[[Compute, Inputs], CapturedCall] | None" = None) -> None:
        self._capture = capture or captured_graph
        self._seen: dict[Hashable, int] = {}
        self._made: dict[Hashable, CapturedCall] = {}

    def __call__(self, name: Hashable, compute: Compute, inputs: Inputs) -> Tensor:
        """Return `compute(*inputs)`; the next call may overwrite the tensor that is returned.

        Parameters
        ----------
        name
            Everything beside the inputs on which the result depends.
        compute
            Function whose kernels depend on the name and on the shapes and types of its inputs alone. It waits for
            nothing that the card computes.
        inputs
            Its inputs, None for those that are left out.
        """
        key = name, tuple(None if one is None else (one.shape, one.dtype) for one in inputs)
        if key not in self._made:
            if not self._is_due(key):
                return compute(*inputs)
            self._made[key] = self._capture(compute, inputs)
        call = self._made[key]
        for held, value in zip(call.inputs, inputs, strict=True):
            if held is not None and value is not None:
                held.copy_(value, non_blocking=True)
        call.launch()
        return call.output

    def _is_due(self, key: Hashable) -> bool:
        """Count a call, and return whether a graph of it is to be made."""
        if len(self._made) >= _MOST_KEPT or (key not in self._seen and len(self._seen) >= _MOST_COUNTED):
            return False
        self._seen[key] = self._seen.get(key, 0) + 1
        return self._seen[key] >= _CAPTURED_AT


def captured_graph(compute: Compute, inputs: Inputs) -> CapturedCall:
    """Return the CUDA graph of a call, with memory of its own for inputs, output and everything in between.

    Parameters
    ----------
    compute
        The function, see `GraphedCalls`.
    inputs
        Inputs on a graphics card, whose shapes and types later inputs have too.
    """
    held = tuple(None if one is None else one.detach().clone(memory_format=torch.contiguous_format) for one in inputs)
    beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with _CAPTURING:
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(_WARM_UP):  # libraries make their workspaces at a first call, which no graph may hold
                compute(*held)
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        # Another thread may compute on the card meanwhile: it evaluates the previous release.
        with torch.cuda.graph(graph, stream=beside, capture_error_mode="thread_local"):
            output = compute(*held)
    return CapturedCall(held, graph.replay, output)
