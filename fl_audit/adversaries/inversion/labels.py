"""Which classes an update was made of: the last bias tells, before any picture is sought."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fl_audit.adversaries.inversion.shared import SharedUpdate
from fl_audit.errors import InputError


def inferred_labels(shared: SharedUpdate, seen: Tensor, count: int, like: Tensor, like_labels: Tensor) -> Tensor:
    """Return which classes the records of every owner have, int64 (owners, count), in ascending order.

    Parameters
    ----------
    shared
        How records become updates.
    seen
        What each owner shared, (owners, parameters).
    count
        How many records each shared, at least 1.
    like
        Records that the attacker has, of the population, float32 (records, *shape): how sure the model is of them, and
        how much of their gradients clipping leaves, stands for the owners' records.
    like_labels
        Their classes.

    Raises
    ------
    InputError
        If the last parameter of the model is no bias of its classes.

    Notes
    -----
    The gradient of class k's bias is the sum over records of p_k - [label is k]. With the mean p of the population in
    place of theirs it says how many records have the class: they are taken one by one from where most are missing. For
    one record this is the only class whose bias has a negative gradient (Zhao et al. 2020, "iDLG"); for several it is
    the rule of Wainakh et al. 2022, "User-level label leakage from gradients in federated learning".
    """
    logits = shared.model.logits(shared.start.unsqueeze(0), like)[0]
    name, shape = shared.model.layout.names[-1], shared.model.layout.shapes[-1]
    if shape != logits.shape[1:]:
        raise InputError(
            f"the last parameter of the model is {name} of shape {shape}: accepted for inferring labels is a bias of "
            f"its {logits.shape[1]} classes"
        )
    chances = F.softmax(logits, dim=1).mean(0).double()
    missing = count * chances - seen[:, -len(chances) :].double() / _weight(shared, count, like, like_labels)
    found = np.zeros((len(seen), count), dtype=np.int64)
    for place in range(count):
        chosen = missing.argmax(dim=1)
        missing[torch.arange(len(seen)), chosen] -= 1
        found[:, place] = chosen.cpu().numpy()
    return torch.from_numpy(np.sort(found, axis=1)).to(seen.device)


def _weight(shared: SharedUpdate, count: int, like: Tensor, like_labels: Tensor) -> float:
    """Return by what a record's gradient is multiplied on average before it is added to an update."""
    if shared.schedule is not None:
        return shared.schedule.learning_rate * len(shared.batches) / count
    if shared.clipping_norm is None:
        return 1.0
    whole = SharedUpdate(shared.model, shared.start)
    lengths = whole.of_many(like[:100].unsqueeze(1), like_labels[:100].unsqueeze(1)).norm(dim=1)
    return float((shared.clipping_norm / lengths).clamp(max=1).mean())
