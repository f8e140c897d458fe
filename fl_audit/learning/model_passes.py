"""Single passes of a model with the parameters of many trials: outputs, losses, gradients and clipped sums.

A pass is one forward or backward computation on some trials and examples. A model of dense, convolutional and
normalisation layers runs on stacked layers, which compute all trials at once. Every other model runs through
`torch.func`. `fl_audit.learning.stacked_model.StackedModel` divides its work into such passes.
"""

from contextlib import AbstractContextManager
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fl_audit.learning import pass_budgets
from fl_audit.learning.layers import LayerCall, SharedPassState
from fl_audit.learning.microbatching import ClippedSumPass, Microbatch
from fl_audit.learning.model_error_messages import naming_layer_and_record
from fl_audit.learning.stacked_layers import ParameterLayout, PerThreadState, clipping_weights


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
        stacked, frame = self.parts.stacked, self.parts.frame
        assert stacked is not None
        frame.parameters = parameters
        frame.trials, frame.examples = len(next(iter(parameters.values()))), examples
        frame.set_input(features)
        frame.recording, frame.tape = recording, []
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

    def summed_gradients(self, models: Tensor, portion: Microbatch) -> dict[str, Tensor]:
        """Return each trial's gradient of the loss summed over one pass, (trials, *shape), keyed by parameter name.

        Shapes: `models` (trials, parameters).
        """
        views = self.layout.views(models)
        with self.naming_layer_and_record(views, portion.features):
            if len(models) > 1 and not self.fast:
                axis = 0 if portion.is_own else None
                gradients = vmap(grad(self.summed_loss), (0, axis, axis))(views, portion.features, portion.labels)
                return dict(gradients)
            leaves = {name: view.detach().requires_grad_() for name, view in views.items()}
            features, labels = portion.merged(len(models))
            with torch.enable_grad():
                if len(models) > 1:
                    merged, _ = self.run_stacked(leaves, features, portion.examples, recording=False)
                    loss = F.cross_entropy(merged, labels, reduction="sum")
                else:  # one model is run as it is: the stacked layers would only add to the work
                    alone = {name: leaf.squeeze(0) for name, leaf in leaves.items()}
                    loss = self.summed_loss(alone, features, labels)
            found = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        return dict(zip(leaves, found, strict=True))

    def summed_loss(self, parameters: dict[str, Tensor], features: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy of one model, summed over examples, as a scalar tensor.

        Shapes: `features` (n, *shape), `labels` (n,).
        """
        return F.cross_entropy(self._called(parameters, features), labels, reduction="sum")

    def _called(self, parameters: dict[str, Tensor], features: Tensor) -> Tensor:
        """Return the logits (n, classes) of one model.

        The method tells torch whether a parameter has several names, because torch would otherwise search for them
        slowly.
        """
        logits: Tensor = functional_call(self.template, parameters, (features,), tie_weights=self._is_tied)
        return logits

    def clipped_sum_fast(self, work: ClippedSumPass, total: Tensor) -> None:
        """Write each trial's sum of clipped gradients over one pass to `total`, computed by the stacked layers."""
        taped = self.backward(work.models, work.portion)
        with torch.no_grad():
            measured = [visit.layer.squared_norms(visit, signal) for visit, signal in taped]
            squared_norms = torch.stack([norms for norms, _ in measured]).sum(0)
            weights = clipping_weights(squared_norms, work.clipping_norm, work.portion.counted, work.slack)
            columns = self.layout.slices()
            for (visit, signal), (_, kept) in zip(taped, measured, strict=True):
                for name, summed in visit.layer.weighted_sum(visit, signal, weights, kept).items():
                    total[:, columns[visit.layer.prefix + name]] = summed.flatten(1)

    def clipped_sum_graphed(self, work: ClippedSumPass, total: Tensor) -> None:
        """Write each trial's sum of clipped gradients to `total` on a graphics card; a small pass runs as a CUDA
        graph.
        """

        def computed(models: Tensor, features: Tensor, labels: Tensor, counted: Tensor | None) -> Tensor:
            self.forget()  # what an earlier pass derived from other features belongs to no graph
            found = torch.empty_like(models)
            self.clipped_sum_fast(replace(work, models=models, portion=Microbatch(features, labels, counted)), found)
            self.forget()
            return found

        portion = work.portion
        if len(work.models) * portion.examples * self.activations >= pass_budgets.GRAPHED_BELOW:
            self.clipped_sum_fast(work, total)
            return
        inputs = work.models, portion.features, portion.labels, portion.counted
        total.copy_(self.parts.graphs(("clipped sum", work.clipping_norm, work.slack), computed, inputs))

    def backward(self, models: Tensor, portion: Microbatch) -> list[tuple[LayerCall, Tensor]]:
        """Run the models forward and backward on some examples, and return the calls of their stacked layers.

        Each call comes with the gradient of the summed losses with respect to the outputs of the layer. The model must
        have stacked layers (`fast`). The calls can be used until the model runs again in this thread.

        Shapes: `models` (trials, parameters).
        """
        features, labels = portion.merged(len(models))
        with torch.enable_grad():
            merged, frame = self.run_stacked(self.layout.views(models), features, portion.examples, recording=True)
            loss = F.cross_entropy(merged, labels, reduction="sum")
        tape, frame.tape = frame.tape, []
        return list(zip(tape, torch.autograd.grad(loss, [visit.outputs for visit in tape]), strict=True))

    def clipped_sum_generic(self, work: ClippedSumPass, total: Tensor) -> None:
        """Write each trial's sum of clipped gradients over one pass to `total`, computed by `torch.func`."""
        total.zero_()
        together = max(1, pass_budgets.GRADIENT_BUDGET // work.models.numel())
        for some in pass_budgets.slices(work.portion.examples, together):
            part = work.portion.take(some)
            gradients = self.example_gradients(work.models, part)
            weights = clipping_weights(gradients.square().sum(2), work.clipping_norm, part.counted, work.slack)
            total += torch.einsum("wn,wnp->wp", weights, gradients)

    def example_gradients(self, models: Tensor, portion: Microbatch) -> Tensor:
        """Return the gradient of each example's loss, float32 (trials, n, parameters), computed by `torch.func`.

        Shapes: `models` (trials, parameters).
        """

        def loss(parameters: dict[str, Tensor], example: Tensor, label: Tensor) -> Tensor:
            return self.summed_loss(parameters, example.unsqueeze(0), label.unsqueeze(0))

        trials_axis = 0 if portion.is_own else None
        per_trial = vmap(vmap(grad(loss), in_dims=(None, 0, 0)), in_dims=(0, trials_axis, trials_axis))
        views = self.layout.views(models)
        with self.naming_layer_and_record(views, portion.features):
            gradients = per_trial(views, portion.features, portion.labels)
        # A parameter that is a single number, such as a learned temperature, has no axes of its own.
        shape = (len(models), portion.examples)
        widths = [(name, columns.stop - columns.start) for name, columns in self.layout.slices().items()]
        return torch.cat([gradients[name].reshape(*shape, width) for name, width in widths], dim=2)

    def naming_layer_and_record(self, parameters: dict[str, Tensor], features: Tensor) -> AbstractContextManager[None]:
        """Convert an exception of the user's model in a `with` block into an `InputError` that names layer and record.

        Shapes: `parameters` (trials, *shape), `features` (n, *shape).
        """
        return naming_layer_and_record(self.template, parameters, features, self.feature_shape)


def _has_two_names(module: nn.Module) -> bool:
    held = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    return len({id(tensor) for _, tensor in held}) < len(held)
