"""User-level clipping: the gradients of all records of a user are summed, and the sum is clipped.

The unit is a user with several records. Its contribution is the sum g of the gradients of its records, clipped to the
norm C. So only the norm of a sum is needed, and a model of stacked layers, which compute all trials at once, does not
compute any record's gradient (see `user_norms`). For other models, per-record gradients are computed.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fl_audit.learning import pass_budgets
from fl_audit.learning.convolutions import StackedConv2d
from fl_audit.learning.gradient_norms_and_products import GradientNormsAndProducts, gradient_products
from fl_audit.learning.layers import LayerCall, StackedLinear, weighted_gradient_sum
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.learning.user_batching import MicrobatchByUser, RecordsSortedByUser
from fl_audit.learning.user_norms import user_norms_of_layer


class ClippedUsersSum(NamedTuple):
    """Sum of the clipped gradients of users, and sum of users' centred quantile bits."""

    total: Tensor  # sum of the users' clipped gradients, float32 (trials, parameters)
    # Sum over participating users of 1/2 if the norm of the user's gradient is at most C, and of -1/2 otherwise,
    # float64 (trials,). Adaptive clipping moves C by it.
    centred_bits: Tensor


def clipped_user_sum(
    model: StackedModel,
    models: Tensor,
    records: RecordsSortedByUser,
    clipping_norm: float | Tensor | None,
    batch_trials: int | None = None,
    taking_part: Tensor | None = None,
) -> ClippedUsersSum:
    """Return each trial's sum over users of g min(1, C / ||g||), where g is the sum of a user's gradients.

    For adaptive clipping, the result also contains the sum over users of a bit: 1/2 if ||g|| is at most C, else -1/2.

    Shapes: `models` (trials, parameters), `clipping_norm` (trials,), `taking_part` (trials, n).

    `clipping_norm`: None for no clipping.

    `batch_trials`: It is needed because the last bits of a result depend on the shapes of the whole batch. It cannot be
    combined with `taking_part`.

    `taking_part`: A user with only some records in a trial contributes the clipped sum of these.

    Examples
    --------
    >>> model = StackedModel(torch.nn.Linear(2, 2, bias=False), (2,))
    >>> features, labels, users = torch.tensor([[3.0, 4.0], [3.0, 4.0]]), torch.tensor([0, 0]), torch.tensor([7, 7])
    >>> records = RecordsSortedByUser.of(features, labels, users)
    >>> clipped_user_sum(model, torch.zeros(1, 4), records, None).total.tolist()
    [[-3.0, -4.0, 3.0, 4.0]]
    >>> round(float(clipped_user_sum(model, torch.zeros(1, 4), records, 1.0).total.norm()), 6)
    1.0
    """
    assert batch_trials is None or taking_part is None, "a part of a batch has not the shapes of its samples"
    norms = None if clipping_norm is None else torch.as_tensor(clipping_norm, device=models.device)
    total, bits = torch.zeros_like(models), torch.zeros(len(models), dtype=torch.float64, device=models.device)
    for place, block in enumerate(records.blocks(_examples_at_once(model, models), taking_part)):
        for rows in block.passes(model, len(models)):
            trials = rows.stop - rows.start
            full = min(block.trials_per_pass(model), (batch_trials or len(models)) - rows.start)
            places: slice | Tensor = rows
            if full > trials:  # copies of the last trial fill up the shapes of the whole batch
                places = torch.arange(rows.start, rows.start + full).clamp(max=rows.stop - 1)
            limit = norms if norms is None or norms.dim() == 0 else norms[places].unsqueeze(1)
            users_of = block.users_of(rows, max(full, trials))
            summed, within = (_fast_sum if model.fast else _formed_sum)(model, models[places], users_of, limit)
            total[rows] = total[rows] + summed[:trials] if place else summed[:trials]
            bits[rows] += within[:trials]
    return ClippedUsersSum(total, bits)


def user_gradients(
    model: StackedModel, models: Tensor, features: Tensor, labels: Tensor, users: Tensor, vectors: Tensor | None = None
) -> GradientNormsAndProducts:
    """Return ||g|| and <v, g> for each user and trial, (trials, users), where g is the sum of a user's gradients.

    Raises `InputError` if shapes do not match.

    Shapes: `models` (trials, parameters), `features` (n, *shape), `labels` (n,), `users` (n,), `vectors` (trials,
    parameters).

    `features`: The records of each user are adjacent, and the users of the result are in the same order.
    """
    records = RecordsSortedByUser.of(features, labels, users)
    norms, products = [], []
    for block in records.blocks(_examples_at_once(model, models)):
        own_norms, own_products = [], []
        for rows in block.passes(model, len(models)):
            own, users_of = models[rows], block.users_of(rows, rows.stop - rows.start)
            along = None if vectors is None else vectors[rows].float()
            squares, told = (_fast_summary if model.fast else _formed_summary)(model, own, users_of, along)
            own_norms.append(squares.sqrt().float())
            own_products.append(told)
        norms.append(torch.cat(own_norms))
        products.append(torch.cat(own_products))
    none = models.new_zeros(len(models), 0)
    found = [torch.cat([none, *one], dim=1) for one in (norms, products)]
    if records.order is not None:
        back = torch.argsort(records.order)
        found = [one[:, back] for one in found]
    return GradientNormsAndProducts(*found)


def _examples_at_once(model: StackedModel, models: Tensor) -> int:
    if model.fast:
        return model.examples_per_pass
    return max(1, min(model.examples_per_pass, pass_budgets.GRADIENT_BUDGET // models[:1].numel()))


def _fast_sum(
    model: StackedModel, models: Tensor, users: MicrobatchByUser, norm: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the sum of users' clipped gradients over one pass, (trials, parameters), and of their quantile bits.

    A bit is 1/2 if the user's gradient is within the clipping norm, else -1/2; the sums of bits are (trials,).
    Per-record gradients are not computed.
    """
    taped, total, portion = model.backward(models, users.portion), torch.empty_like(models), users.portion
    with torch.no_grad():
        found = [user_norms_of_layer(users, visit, signal) for visit, signal in taped]
        squares = torch.stack([one.squares for one in found]).sum(0) if len(found) > 1 else found[0].squares
        is_whole = portion.counted is None and not portion.is_own
        if is_whole:
            of_users, bits = _clipped_users(squares, norm)
            weights = (
                of_users.index_select(1, users.groups.user_of_record_and_counts[0])
                if users.groups.count < portion.examples
                else of_users
            )
        else:
            of_users, (wide, bits) = squares, _clipped(users, users.values_per_record(squares), norm, portion.counted)
            weights = wide.float()
        columns = model.layout.slices()
        for (visit, signal), one in zip(taped, found, strict=True):
            if is_whole and one.sums is not None:
                summed = {name: weighted_gradient_sum(own, of_users) for name, own in one.sums.items()}
            else:
                summed = visit.layer.weighted_sum(visit, signal, weights, _intermediates(visit, signal))
            for name, own in summed.items():
                total[:, columns[visit.layer.prefix + name]] = own.flatten(1)
    return total, bits


def _clipped_users(squares: Tensor, norm: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the users' clipping factors, (trials, users), and the sum of the users' centred bits, (trials,).

    A user's centred bit is 1/2 if the gradient is within the clipping norm, otherwise -1/2. All users are taken to
    participate. `squares` holds the squared norms of the gradients and may be overwritten.
    """
    if norm is None:
        return torch.ones_like(squares, dtype=torch.float32), squares.new_full((len(squares),), squares.shape[1] / 2)
    lengths, limit = squares.clamp_(min=0.0).sqrt_(), norm.double()
    within = (lengths <= limit).sum(1).double() - squares.shape[1] / 2
    return (limit / lengths).clamp_(max=1.0).float(), within


def _clipped(
    users: MicrobatchByUser, squares: Tensor, norm: Tensor | None, counted: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the clipping factor of each record's user, (trials, n), and the sums of users' quantile bits, (trials,).

    `squares` holds the squared norm of the gradient of each record's user, (trials, n). A user has the bit 1/2 if this
    norm is within the clipping norm, else -1/2. `counted` is 0 at all records of a user who is left out: then these
    records have the factor 0, and the user has no bit.
    """
    flags = torch.ones_like(squares) if counted is None else counted.double()
    if norm is None:
        return flags, (0.5 * flags * users.groups.is_first).sum(1)
    lengths = squares.clamp(min=0.0)
    weights = (norm.double() * torch.rsqrt(lengths)).clamp(max=1.0) * flags
    within = (lengths.sqrt() <= norm.double()).double() - 0.5
    return weights, (within * flags * users.groups.is_first).sum(1)


def _intermediates(visit: LayerCall, signal: Tensor) -> object:
    """Return the intermediate values that a layer's `weighted_sum` needs besides the clipping factors."""
    layer = visit.layer
    if isinstance(layer, StackedLinear):
        return None
    if isinstance(layer, StackedConv2d) and layer.groups == 1:
        signals = layer.frame.split(signal.flatten(2))
        return None, signals.sum(3) if layer.parameter("bias") is not None else None
    return layer.squared_norms(visit, signal)[1]


def _formed_users(model: StackedModel, models: Tensor, users: MicrobatchByUser) -> Tensor:
    """Return each user's sum of per-record gradients, float32 (trials, users, parameters).

    If each trial has its own sample, the users of all trials are concatenated, and the shape is (1, users, parameters).
    """
    portion = users.portion
    axis = 1 if portion.is_own else users.trials
    total = models.new_zeros(axis, users.groups.count, models.shape[1])
    together = max(1, pass_budgets.GRADIENT_BUDGET // models.numel())
    place = users.groups.user_of_record_and_counts[0].view(users.groups.users.shape)
    for some in pass_budgets.slices(portion.examples, together):
        part = portion.take(some)
        gradients = model.example_gradients(models, part)
        if part.counted is not None:
            gradients = gradients * part.counted.unsqueeze(2)
        total.index_add_(1, place[..., some].flatten(), users.on_user_axis(gradients))
    return total


def _formed_sum(
    model: StackedModel, models: Tensor, users: MicrobatchByUser, norm: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return each trial's sum of the users' clipped gradients, and the sum of their centred quantile bits.

    The results equal those of `_fast_sum`, but per-record gradients are computed, for models without stacked layers.
    """
    formed = _formed_users(model, models, users)
    squares = formed.double().square().sum(2)
    weights, bits = _clipped(users, users.values_per_record(squares), norm, users.portion.counted)
    if not users.portion.is_own:
        first = users.groups.is_first.nonzero().flatten()
        return torch.einsum("wu,wup->wp", weights[:, first].float(), formed), bits
    first = users.groups.is_first.flatten().nonzero().flatten()
    weighted = weights.flatten()[first].float().unsqueeze(1) * formed[0]
    return torch.zeros_like(models).index_add_(0, users.groups.trial_of_user, weighted), bits


def _fast_summary(
    model: StackedModel, models: Tensor, users: MicrobatchByUser, vectors: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return ||g|| squared, float64, and <v, g>, float32, for each user, where g is the sum of the user's gradients.

    Both have the shape (trials, users). No per-record gradients are computed. Without vectors v the products are 0.
    """
    taped = model.backward(models, users.portion)
    with torch.no_grad():
        squares = torch.stack([user_norms_of_layer(users, *one).squares for one in taped]).sum(0).clamp(min=0.0)
        if vectors is None:
            return squares, torch.zeros_like(squares).float()
        return squares, users.summed(gradient_products(model, taped, vectors))


def _formed_summary(
    model: StackedModel, models: Tensor, users: MicrobatchByUser, vectors: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the results of `_fast_summary`, computed from per-record gradients."""
    formed = _formed_users(model, models, users)
    squares = formed.double().square().sum(2)
    if vectors is None:
        return squares, torch.zeros_like(squares).float()
    return squares, torch.bmm(formed, vectors.unsqueeze(2)).squeeze(2)
