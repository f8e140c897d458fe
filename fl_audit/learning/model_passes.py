"""Single passes of a model with the parameters of many trials: outputs, losses, gradients and clipped sums.

A pass is one forward or backward computation on some trials and examples. A model of dense, convolutional and
normalisation layers runs on stacked layers, which compute all trials at once. Every other model runs through
`torch.func`. `fl_audit.learning.stacked_model.StackedModel` divides its work into such passes.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import assert_never

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fl_audit.learning import pass_budgets
from fl_audit.learning.layers import LayerCall, SharedPassState
from fl_audit.learning.losses import PLAIN_LOSS, loss_of
from fl_audit.learning.microbatching import ClippedSumPass, Microbatch
from fl_audit.learning.model_failures import naming_layer_and_record
from fl_audit.learning.stacked_layers import ParameterLayout, PerThreadState, clipping_weights
from fl_audit.learning.unit_norms import unit_norms
from fl_audit.privacy.accounting_enums import VectorNorm


class ModelPasses:
    """Runs a model with the parameters of several trials at once, on examples that all fit into memory (one pass).

    Parameters
    ----------
    module
        Model to run, which is not copied. Its frozen parameters must be plain tensors, as after `set_aside_frozen`.
    feature_shape
        Shape of one example.
    """

    def __init__(self, module: nn.Module, feature_shape: tuple[int, ...]) -> None:
        self._is_tied = _has_two_names(module)
        self.feature_shape = feature_shape
        self.layout = ParameterLayout.of(module)
        self.parts = PerThreadState(module)
        self.activations = self.layout.size
        self.fast = False
        self.norm = VectorNorm.L2  # norm ||g|| in which gradients g are clipped
        self.loss = PLAIN_LOSS  # loss of training, whose gradients these are

    @property
    def is_fast_when_clipping(self) -> bool:
        """Whether stacked layers compute clipped sums: they know the L2 norms of gradients without the gradients."""
        return self.fast and self.norm is VectorNorm.L2

    @property
    def template(self) -> nn.Module:
        """This thread's copy of the model."""
        return self.parts.template

    def forget(self) -> None:
        """Clear this thread's cache of values that were computed from an input tensor.

        The cache must be cleared before a pass if the content of the records' tensor may have changed.
        """
        self.parts.frame.forget()

    def run_stacked(
        self, parameters: dict[str, Tensor], features: Tensor, examples: int, recording: bool
    ) -> tuple[Tensor, SharedPassState]:
        """Return the outputs of the stacked layers, (trials * examples, classes), and the layers' common state.

        Shapes: `parameters` (trials, *shape), `features` (examples, *shape).
        """
        stacked = self.parts.stacked
        frame = self.parts.frame
        assert stacked is not None
        frame.parameters = parameters
        frame.trials = len(next(iter(parameters.values())))
        frame.examples = examples
        frame.set_input(features)
        frame.recording = recording
        frame.tape = []
        with self.naming_layer_and_record(parameters, features):
            return stacked(features), frame

    def logits_pass(self, models: Tensor, features: Tensor) -> Tensor:
        """Return the logits of examples under every model, (trials, n, classes), computed in a single pass.

        Shapes: `models` (trials, parameters), `features` (n, *shape).

        `features`: There must be memory for all examples at once.
        """
        with torch.no_grad():
            if not self.fast:
                # One trial at a time: recurrent layers have no rule for vmap without gradients.
                one_by_one = map(self.layout.of_one, models)
                with self.naming_layer_and_record(self.layout.views(models), features):
                    return torch.stack([self._called(values, features) for values in one_by_one])
            merged, frame = self.run_stacked(self.layout.views(models), features, len(features), recording=False)
            return frame.split(merged)

    def summed_gradients(self, models: Tensor, microbatch: Microbatch) -> dict[str, Tensor]:
        """Return each trial's gradient of the loss summed over one pass, (trials, *shape), keyed by parameter name.

        Shapes: `models` (trials, parameters).
        """
        views = self.layout.views(models)
        with self.naming_layer_and_record(views, microbatch.features):
            if len(models) > 1 and not self.fast:
                axis = 0 if microbatch.is_own else None
                gradients = vmap(grad(self.summed_loss), (0, axis, axis))(views, microbatch.features, microbatch.labels)
                return dict(gradients)
            leaves = {name: view.detach().requires_grad_() for name, view in views.items()}
            features, labels = microbatch.merged(len(models))
            with torch.enable_grad():
                if len(models) > 1:
                    merged, _ = self.run_stacked(leaves, features, microbatch.examples, recording=False)
                    loss = loss_of(merged, labels, "sum", self.loss)
                else:  # one model is run as it is: the stacked layers would only add to the work
                    alone = {name: leaf.squeeze(0) for name, leaf in leaves.items()}
                    loss = self.summed_loss(alone, features, labels)
            leaf_gradients = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        return dict(zip(leaves, leaf_gradients, strict=True))

    def summed_loss(self, parameters: dict[str, Tensor], features: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of one model, summed over examples, as a scalar tensor.

        Shapes: `features` (n, *shape), `labels` (n,).
        """
        return loss_of(self._called(parameters, features), labels, "sum", self.loss)

    def _called(self, parameters: dict[str, Tensor], features: Tensor) -> Tensor:
        """Return the logits (n, classes) of one model.

        The method tells torch whether a parameter has several names, because torch would otherwise search for them
        slowly.
        """
        logits: Tensor = functional_call(self.template, parameters, (features,), tie_weights=self._is_tied)
        return logits

    def clipped_sum_fast(self, sum_pass: ClippedSumPass, total: Tensor, centred_bits: Tensor | None = None) -> None:
        """Write each trial's sum of users' clipped gradients over one pass to `total`, computed by stacked layers.

        If `centred_bits`, float64 (trials,), is given, the sums of the users' quantile bits are written to it.
        """
        microbatch = sum_pass.microbatch
        calls = self.backward(sum_pass.models, microbatch)
        with torch.no_grad():
            norms = [unit_norms(microbatch, call, signal) for call, signal in calls]
            squares = torch.stack([layer_norms.squares for layer_norms in norms]).sum(0)
            weights = _record_weights(sum_pass, squares, microbatch.sample_weights, centred_bits)
            columns = self.layout.slices()
            for (call, signal), layer_norms in zip(calls, norms, strict=True):
                sums = call.layer.weighted_sum(call, signal, weights, layer_norms.intermediates)
                for name, summed in sums.items():
                    total[:, columns[call.layer.prefix + name]] = summed.flatten(1)

    def clipped_sum_graphed(self, sum_pass: ClippedSumPass, total: Tensor, centred_bits: Tensor | None = None) -> None:
        """Write the results of `clipped_sum_fast` on a graphics card; a small pass of records runs as a CUDA graph."""

        def computed(models: Tensor, features: Tensor, labels: Tensor, sample_weights: Tensor | None) -> Tensor:
            self.forget()  # what an earlier pass derived from other features belongs to no graph
            graph_total = torch.empty_like(models)
            microbatch = Microbatch(features, labels, sample_weights)
            self.clipped_sum_fast(replace(sum_pass, models=models, microbatch=microbatch), graph_total)
            self.forget()
            return graph_total

        microbatch = sum_pass.microbatch
        is_large = len(sum_pass.models) * microbatch.examples * self.activations >= pass_budgets.GRAPHED_BELOW
        # Class weights are copied to the card in every pass, which no graph may do.
        is_changing = isinstance(sum_pass.clipping_norm, Tensor) or bool(self.loss.class_weights)
        if is_large or microbatch.groups is not None or is_changing:
            self.clipped_sum_fast(sum_pass, total, centred_bits)
            return
        inputs = sum_pass.models, microbatch.features, microbatch.labels, microbatch.sample_weights
        key = ("clipped sum", sum_pass.clipping_norm, sum_pass.slack, self.loss)
        total.copy_(self.parts.graphs(key, computed, inputs))

    def backward(self, models: Tensor, microbatch: Microbatch) -> list[tuple[LayerCall, Tensor]]:
        """Run the models forward and backward on some examples, and return the calls of their stacked layers.

        Each call comes with the gradient of the summed losses with respect to the outputs of the layer. The model must
        have stacked layers (`fast`). The calls can be used until the model runs again in this thread.

        Shapes: `models` (trials, parameters).
        """
        features, labels = microbatch.merged(len(models))
        with torch.enable_grad():
            merged, frame = self.run_stacked(self.layout.views(models), features, microbatch.examples, recording=True)
            loss = loss_of(merged, labels, "sum", self.loss)
        tape = frame.tape
        frame.tape = []
        return list(zip(tape, torch.autograd.grad(loss, [call.outputs for call in tape]), strict=True))

    def clipped_sum_generic(self, sum_pass: ClippedSumPass, total: Tensor, centred_bits: Tensor | None = None) -> None:
        """Write the results of `clipped_sum_fast`, computed by `torch.func`."""
        total.zero_()
        if centred_bits is not None:
            centred_bits.zero_()
        for part_of_pass in self.generic_parts(len(sum_pass.models), sum_pass.microbatch):
            gradients = self.user_gradients(sum_pass.models, part_of_pass)
            squares = self._squared_norms(gradients if part_of_pass.groups is None else gradients.double())
            part_bits = None if centred_bits is None else torch.empty_like(centred_bits)
            # Sums of users hold only what counts.
            sample_weights = part_of_pass.sample_weights if part_of_pass.groups is None else None
            weights = _record_weights(replace(sum_pass, microbatch=part_of_pass), squares, sample_weights, part_bits)
            total += _weighted_users(part_of_pass, weights, gradients, total)
            if centred_bits is not None and part_bits is not None:
                centred_bits += part_bits

    def _squared_norms(self, gradients: Tensor) -> Tensor:
        """Return the squared norms of gradients, (trials, users); they have the shape (trials, users, parameters)."""
        match self.norm:
            case VectorNorm.L1:
                return gradients.abs().sum(2).square()
            case VectorNorm.L2:
                return gradients.square().sum(2)
            case _:
                assert_never(self.norm)

    def generic_parts(self, trials: int, microbatch: Microbatch) -> Iterator[Microbatch]:
        """Yield parts of a microbatch whose per-user gradients fit the memory budget; users are one part."""
        if microbatch.groups is not None:
            yield microbatch
            return
        together = max(1, pass_budgets.GRADIENT_BUDGET // (trials * self.layout.size))
        for examples in pass_budgets.slices(microbatch.examples, together):
            yield microbatch.take(examples)

    def user_gradients(self, models: Tensor, microbatch: Microbatch) -> Tensor:
        """Return each user's sum of per-record gradients, float32 (trials, users, parameters), by `torch.func`.

        If users have samples of their own in each trial, the users of all trials are concatenated, and the shape is
        (1, users, parameters).
        """
        groups = microbatch.groups
        if groups is None:
            return self.example_gradients(models, microbatch)
        axis = 1 if groups.is_own else len(models)
        total = models.new_zeros(axis, groups.count, models.shape[1])
        user_of_record = groups.user_of_record_and_counts[0].view(groups.user_numbers.shape)
        together = max(1, pass_budgets.GRADIENT_BUDGET // models.numel())
        for examples in pass_budgets.slices(microbatch.examples, together):
            part_of_pass = microbatch.take(examples)
            gradients = self.example_gradients(models, part_of_pass)
            if part_of_pass.sample_weights is not None:
                gradients = gradients * part_of_pass.sample_weights.unsqueeze(2)
            total.index_add_(1, user_of_record[..., examples].flatten(), groups.on_user_axis(gradients))
        return total

    def example_gradients(self, models: Tensor, microbatch: Microbatch) -> Tensor:
        """Return the gradient of each example's loss, float32 (trials, n, parameters), computed by `torch.func`.

        Shapes: `models` (trials, parameters).
        """

        def loss(parameters: dict[str, Tensor], example: Tensor, label: Tensor) -> Tensor:
            return self.summed_loss(parameters, example.unsqueeze(0), label.unsqueeze(0))

        trials_axis = 0 if microbatch.is_own else None
        per_trial = vmap(vmap(grad(loss), in_dims=(None, 0, 0)), in_dims=(0, trials_axis, trials_axis))
        views = self.layout.views(models)
        with self.naming_layer_and_record(views, microbatch.features):
            gradients = per_trial(views, microbatch.features, microbatch.labels)
        # A parameter that is a single number, such as a learned temperature, has no axes of its own.
        shape = (len(models), microbatch.examples)
        widths = [(name, columns.stop - columns.start) for name, columns in self.layout.slices().items()]
        return torch.cat([gradients[name].reshape(*shape, width) for name, width in widths], dim=2)

    def naming_layer_and_record(self, parameters: dict[str, Tensor], features: Tensor) -> AbstractContextManager[None]:
        """Convert an exception of the user's model in a `with` block into an `InputError` that names layer and record.

        Shapes: `parameters` (trials, *shape), `features` (n, *shape).
        """
        return naming_layer_and_record(self.template, parameters, features, self.feature_shape)


def _record_weights(
    sum_pass: ClippedSumPass, squares: Tensor, sample_weights: Tensor | None, centred_bits: Tensor | None
) -> Tensor:
    """Return the clipping factor of each record's user, (trials, n), times `sample_weights`.

    If `centred_bits`, float64 (trials,), is given, it takes the trials' sums of the users' centred quantile bits. A bit
    is 1/2 if the norm of the user's gradient is at most the clipping norm, otherwise -1/2.

    Shapes: `squares` (axis, users), `sample_weights` (trials, n).
    """
    microbatch = sum_pass.microbatch
    groups = microbatch.groups
    if groups is not None:
        squares = groups.values_per_record(squares.clamp(min=0.0))
    if centred_bits is not None:
        assert isinstance(sum_pass.clipping_norm, Tensor), "only adaptive clipping takes the bits"
        bits = (squares.double().sqrt() <= sum_pass.clipping_norm).double() - 0.5
        centred_bits.copy_((bits * _participation(microbatch)).sum(1))
    return clipping_weights(squares, sum_pass.clipping_norm, sample_weights, sum_pass.slack).to(sum_pass.models.dtype)


def _participation(microbatch: Microbatch) -> Tensor | float:
    """Return 1 at the first record of each user of whom a record counts in a trial, else 0, (trials, n)."""
    sample_weights = microbatch.sample_weights
    groups = microbatch.groups
    if groups is None:
        return 1.0 if sample_weights is None else sample_weights
    if sample_weights is None:
        return groups.is_first
    has_record = groups.summed(sample_weights).clamp(max=1.0)
    return groups.values_per_record(has_record) * groups.is_first


def _weighted_users(microbatch: Microbatch, weights: Tensor, gradients: Tensor, like: Tensor) -> Tensor:
    """Return the weighted sum of users' gradients in each trial, with the shape of `like`, (trials, parameters).

    Shapes: `weights` (trials, n), `gradients` (axis, users, parameters).
    """
    groups = microbatch.groups
    if groups is None:
        return torch.einsum("wn,wnp->wp", weights, gradients)
    user_weights = groups.on_user_axis(weights)[:, groups.first_positions]
    if not groups.is_own:
        return torch.einsum("wu,wup->wp", user_weights, gradients)
    trial_of_user = groups.first_positions // microbatch.examples
    return torch.zeros_like(like).index_add_(0, trial_of_user, user_weights[0].unsqueeze(1) * gradients[0])


def _has_two_names(module: nn.Module) -> bool:
    tensors = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    return len({id(tensor) for _, tensor in tensors}) < len(tensors)
