"""A check that Opacus has a per-sample gradient for every record, and hooks for embeddings that all records share.

An embedding is shared if the model looks it up once for all records, for example for position ids.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fl_audit.errors import InputError, require

_ACCEPTED = (
    "accepted with strategy 'dp-sgd-clients' are models that train it no more, by .requires_grad_(False); strategy "
    "'dp-fedsgd' has no such limit"
)


_TRIED = 2


class PerRecordLookupHooks:
    """Hooks that repeat an embedding lookup for each record, if a model makes a single lookup for all records.

    Opacus assumes that the first axis of a layer's input counts the records. Position ids, of shape (1, tokens), would
    therefore count as a single record.

    Parameters
    ----------
    module
        Model whose embeddings get hooks. An embedding gets none if its hook would change the outputs of the model.
    features
        Records on which the outputs are compared, (n, ...).
    """

    def __init__(self, module: nn.Module, features: Tensor) -> None:
        self.records = 0  # number of records in the next mini-batch
        lookups = [layer for layer in module.modules() if isinstance(layer, nn.Embedding)]
        if not lookups or len(features) < _TRIED:
            return
        self.records = _TRIED
        expected = _outputs(module, features)
        for layer in lookups:
            handle = layer.register_forward_pre_hook(self._expanded)
            # Some models give each record its row themselves, behind the lookup.
            if expected is None or (found := _outputs(module, features)) is None or not torch.equal(found, expected):
                handle.remove()

    def _expanded(self, layer: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not given or not isinstance(given[0], Tensor) or given[0].dim() < 2 or len(given[0]) != 1:
            return None
        return (given[0].expand(self.records, *given[0].shape[1:]), *given[1:])


def _outputs(module: nn.Module, features: Tensor) -> Tensor | None:
    try:
        with torch.no_grad():
            found = module(features[:_TRIED])
    except (RuntimeError, ValueError, IndexError, TypeError):
        return None
    return found if isinstance(found, Tensor) else None


def require_samples(parameters: Mapping[str, nn.Parameter], records: int) -> None:
    """Raise `InputError` unless each trained parameter has one per-sample gradient per record of a mini-batch."""
    for name, parameter in parameters.items():
        found: Any = getattr(parameter, "grad_sample", None)
        if found is None:
            raise InputError(
                f"Opacus has no gradient of single records for parameter {name!r}, which is used outside of the "
                f"layer that holds it: {_ACCEPTED}"
            )
        last = found[-1] if isinstance(found, list) else found
        said = f"Opacus forms {len(last)} gradients of parameter {name!r} for {records} records, which share it"
        require(len(last) == records, f"{said}: {_ACCEPTED}")
