"""Which classes an update was made of: the last bias tells, before any picture is sought."""

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fl_audit.adversaries.inversion.shared import SharedUpdate
from fl_audit.errors import require
from fl_audit.learning.stacked import StackedModel


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
        Records that the attacker has, of the population, float32 (records, *shape), at least `count`: how sure the
        model is of them, and how much of their gradients clipping leaves, stands for the owners' records.
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
    require_last_bias(shared.model, logits.shape[1])
    chances = F.softmax(logits, dim=1).mean(0).double()
    missing = count * chances - seen[:, -len(chances) :].double() / _weight(shared, count, like, like_labels)
    found = np.zeros((len(seen), count), dtype=np.int64)
    for place in range(count):
        chosen = missing.argmax(dim=1)
        missing[torch.arange(len(seen)), chosen] -= 1
        found[:, place] = chosen.cpu().numpy()
    return torch.from_numpy(np.sort(found, axis=1)).to(seen.device)


def require_last_bias(model: StackedModel, classes: int) -> None:
    """Refuse a model whose updates do not tell labels.

    Parameters
    ----------
    model
        The model.
    classes
        How many classes it has.

    Raises
    ------
    InputError
        If its last parameter is no bias of its classes.
    """
    name, shape = model.layout.names[-1], model.layout.shapes[-1]
    require(
        tuple(shape) == (classes,),
        f"the last parameter of the model is {name} of shape {tuple(shape)}: accepted for inferring labels is a bias "
        f"of its {classes} classes",
    )


def _weight(shared: SharedUpdate, count: int, like: Tensor, like_labels: Tensor) -> float:
    """Return by what a record's gradient is multiplied on average before it is added to an update."""
    schedule = shared.schedule
    alone = 1.0 if schedule is None else schedule.learning_rate * len(shared.batches) / count
    if shared.clipping_norm is None:
        return alone
    clipped = 1 if schedule is None else count  # records whose contribution is clipped as one
    groups = min(100, len(like) // clipped)
    records, labels = (one[: groups * clipped].reshape(groups, clipped, *one.shape[1:]) for one in (like, like_labels))
    lengths = replace(shared, clipping_norm=None).of_many(records, labels).norm(dim=1)
    return alone * float((shared.clipping_norm / lengths).clamp(max=1).mean())
