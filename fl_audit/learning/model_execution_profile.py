"""Properties of a model that are measured before training: how it runs, and its memory per example."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fl_audit.learning.module_preparation import constants_of, without_hints

_BYTES = 4  # bytes of a scalar


@dataclass(frozen=True)
class ModelExecutionProfile:
    """Properties of a model, such as the memory per example, for processes that have no data to measure them."""

    fast: bool  # whether the model runs on stacked layers, which compute all trials at once
    activations: int  # number of scalars that a pass stores for one example
    has_backbone: bool = False  # whether records pass through a frozen backbone before they reach the model


def saved_scalars(module: nn.Module, run: Callable[[dict[str, Tensor]], Tensor]) -> int:
    """Return the number of scalars that autograd saves for a computation, besides parameters and constants."""
    parameters = {name: value.detach().requires_grad_() for name, value in module.named_parameters()}
    known_addresses = {_address(value) for value in (*parameters.values(), *module.buffers(), *constants_of(module))}
    tensors = list[Tensor]()
    sizes = dict[int, int]()

    def note(saved: Tensor) -> Tensor:
        address = _address(saved)
        if address is not None and address not in known_addresses:
            # Tensors are kept alive here: several that took one address in turn would be counted as one.
            tensors.append(saved.detach())
            sizes[address] = saved.untyped_storage().nbytes() // _BYTES
        return saved.detach()  # a result that the graph kept as it is would keep the graph, for ever

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved), without_hints():
        run(parameters)
    return sum(sizes.values())


def _address(value: Tensor) -> int | None:
    """Return the address of a tensor's memory; None if the tensor has no memory of its own, as within `torch.func`."""
    try:
        return value.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return None
