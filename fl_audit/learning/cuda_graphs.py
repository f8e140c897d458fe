"""Run tensor functions on a graphics card as CUDA graphs, which launch all kernels of a call at once.

A pass over a small network launches some fifty kernels, and launching them takes longer than computing them. A graph
holds the kernels of one call and the addresses of their inputs. The inputs of a later call are copied to these
addresses, and one call of the driver launches the whole graph.
"""

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_CAPTURED_AT = 3
"""Number of the call with equal shapes at which a graph is made; most shapes that occur once or twice never recur."""
_MOST_KEPT = 8
"""Largest number of graphs of a thread; each holds the memory of one pass. Other calls launch kernel by kernel."""
_MOST_COUNTED = 1000
"""Largest number of shapes whose calls are counted; more may occur, because samples differ in size."""
_WARM_UP = 2  # number of calls before a graph is made
_CAPTURING = threading.Lock()
"""Lock held while a graph is made, because synchronising in one thread would end the capture in another thread."""

Inputs = Sequence[Tensor | None]  # inputs of a function; None for one that is left out
Compute = Callable[..., Tensor]  # function of these inputs


class CapturedCall(NamedTuple):
    """A call of a tensor function whose kernels can be launched again on other values of the same shapes."""

    inputs: tuple[Tensor | None, ...]  # tensors into which the inputs of a later call are copied; None if left out
    launch: Callable[[], None]  # function that computes `output` from the current values of `inputs`
    output: Tensor  # tensor that each launch overwrites


def _captured_graph(compute: Compute, inputs: Inputs) -> CapturedCall:
    """Capture the call `compute(*inputs)` as a CUDA graph, which has its own memory for inputs, output and the rest."""
    static_inputs = tuple(
        None if value is None else value.detach().clone(memory_format=torch.contiguous_format) for value in inputs
    )
    beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with _CAPTURING:
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(_WARM_UP):  # libraries make their workspaces at a first call, which no graph may hold
                compute(*static_inputs)
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        # Another thread may compute on the card meanwhile: it evaluates the previous release.
        with torch.cuda.graph(graph, stream=beside, capture_error_mode="thread_local"):
            output = compute(*static_inputs)
    return CapturedCall(static_inputs, graph.replay, output)


class GraphedCalls:
    """Caller of tensor functions; from a certain number of equal calls on, it launches a call as a CUDA graph.

    Calls are equal if they have the same name and input shapes. An object is for a single thread.

    Parameters
    ----------
    capture
        Function that turns a call into a CUDA graph, which can be launched again.
    """

    def __init__(self, capture: Callable[[Compute, Inputs], CapturedCall] = _captured_graph) -> None:
        self._capture = capture
        self._seen: dict[Hashable, int] = {}
        self._made: dict[Hashable, CapturedCall] = {}

    def __call__(self, name: Hashable, compute: Compute, inputs: Inputs) -> Tensor:
        """Return `compute(*inputs)`, launched as a CUDA graph if the same call has occurred often enough.

        A later call may overwrite the returned tensor.

        `name`: Calls with equal names and input shapes are the same.
        """
        key = name, tuple(None if x is None else (x.shape, x.dtype) for x in inputs)
        if key not in self._made:
            if not self._is_due(key):
                return compute(*inputs)
            self._made[key] = self._capture(compute, inputs)
        call = self._made[key]
        for static_input, value in zip(call.inputs, inputs, strict=True):
            if static_input is not None and value is not None:
                static_input.copy_(value, non_blocking=True)
        call.launch()
        return call.output

    def _is_due(self, key: Hashable) -> bool:
        """Count a call, and return whether it has occurred often enough to make a graph of it."""
        if len(self._made) >= _MOST_KEPT or (key not in self._seen and len(self._seen) >= _MOST_COUNTED):
            return False
        self._seen[key] = self._seen.get(key, 0) + 1
        return self._seen[key] >= _CAPTURED_AT
