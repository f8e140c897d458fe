"""A check that Opacus has a per-sample gradient for every record, and hooks for embeddings that all records share.

An embedding is shared if the model looks it up once for all records, for example for position ids.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fl_audit.learning.model_advice import refusal
from fl_audit.learning.model_faults import ModelCheck, ModelFault

_PROBE_RECORDS = 2


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
        if not lookups or len(features) < _PROBE_RECORDS:
            return
        self.records = _PROBE_RECORDS
        expected = _outputs(module, features)
        for layer in lookups:
            handle = layer.register_forward_pre_hook(self._expanded)
            # Some models give each record its row themselves, behind the lookup.
            outputs = _outputs(module, features)
            if expected is None or outputs is None or not torch.equal(outputs, expected):
                handle.remove()

    def _expanded(self, layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not inputs or not isinstance(inputs[0], Tensor) or inputs[0].dim() < 2 or len(inputs[0]) != 1:
            return None
        return (inputs[0].expand(self.records, *inputs[0].shape[1:]), *inputs[1:])


def _outputs(module: nn.Module, features: Tensor) -> Tensor | None:
    try:
        with torch.no_grad():
            outputs = module(features[:_PROBE_RECORDS])
    except (RuntimeError, ValueError, IndexError, TypeError):
        return None
    return outputs if isinstance(outputs, Tensor) else None


def require_samples(module: nn.Module, parameters: Mapping[str, nn.Parameter], records: int) -> None:
    """Raise `InputError` unless each trained parameter has one per-sample gradient per record of a mini-batch."""
    for name, parameter in parameters.items():
        gradients: Any = getattr(parameter, "grad_sample", None)
        if gradients is None:
            raise refusal(ModelCheck.OPACUS, ModelFault(module, name))
        last = gradients[-1] if isinstance(gradients, list) else gradients
        if len(last) != records:
            raise refusal(ModelCheck.OPACUS, ModelFault(module, name, count=records, detail=str(len(last))))
