"""Single passes of a module with the parameters of many trials: outputs, losses, gradients and clipped sums.

A module of dense, convolutional and normalisation layers runs on stacked layers; every other one through `torch.func`.
`fl_audit.learning.stacked_model.StackedModel` divides its work into such passes.
"""

from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fl_audit.learning import pass_budgets
from fl_audit.learning.frozen_prefix import FrozenPrefix
from fl_audit.learning.layers import ForwardState, LayerCall
from fl_audit.learning.microbatching import MicrobatchExamples
from fl_audit.learning.model_faults import explaining
from fl_audit.learning.stacked_layers import ParameterLayout, PerThreadState, clipping_weights


class ModelPasses:
    """A module that can be run with the parameters of several trials at once, as far as one pass goes.

    Parameters
    ----------
    module
        The module, whose frozen parameters are set aside; it is not copied.
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
        self.prefix: FrozenPrefix | None = None

    @property
    def template(self) -> nn.Module:
        """This thread's copy of the module."""
        return self.parts.template

    def forget(self) -> None:
        """Clear this thread's cache of values derived from features, whose content may have changed."""
        self.parts.frame.forget()

    def run_stacked(
        self, parameters: dict[str, Tensor], features: Tensor, examples: int, recording: bool
    ) -> tuple[Tensor, ForwardState]:
        """Return the outputs of the stacked layers, and their shared state with the recorded calls, if `recording`.

        Parameters
        ----------
        parameters
            Parameters of the models by name, each of shape (trials, *shape).
        features
            Features of the examples, shared by all trials or merged trial by trial.
        examples
            Number of examples of each trial.
        recording
            Whether the layers note their calls for a backward pass.
        """
        stacked, frame = self.parts.stacked, self.parts.frame
        assert stacked is not None
        frame.parameters = parameters
        frame.trials, frame.examples = len(next(iter(parameters.values()))), examples
        frame.read(features)
        frame.recording, frame.tape = recording, []
        with self.explaining(parameters, features):
            return stacked(features), frame

    def logits_pass(self, models: Tensor, features: Tensor) -> Tensor:
        """Return the logits (trials, n, classes) of the examples of one pass under every model.

        Parameters
        ----------
        models
            Parameters of the models, float32 (trials, parameters).
        features
            Features of the examples, shared by all trials, (n, *shape).
        """
        with torch.no_grad():
            if not self.fast:
                # One trial at a time: recurrent layers have no rule for vmap without gradients.
                one_by_one = map(self.layout.of_one, models)
                with self.explaining(self.layout.views(models), features):
                    read = self.read(features)
                    return torch.stack([self._called(values, read) for values in one_by_one])
            merged, frame = self.run_stacked(self.layout.views(models), features, len(features), recording=False)
            return frame.split(merged)

    def summed_gradients(self, models: Tensor, portion: MicrobatchExamples) -> dict[str, Tensor]:
        """Return the gradient of the summed loss of a pass with respect to each parameter, (trials, *shape).

        Parameters
        ----------
        models
            Parameters of the models, float32 (trials, parameters).
        portion
            The examples of the pass.
        """
        views = self.layout.views(models)
        with self.explaining(views, portion.features):
            if len(models) > 1 and not self.fast:
                axis = 0 if portion.is_own else None
                read = self.read(portion.features)
                gradients = vmap(grad(self.summed_loss), (0, axis, axis))(views, read, portion.labels)
                return dict(gradients)
            leaves = {name: view.detach().requires_grad_() for name, view in views.items()}
            features, labels = portion.merged(len(models))
            with torch.enable_grad():
                if len(models) > 1:
                    merged, _ = self.run_stacked(leaves, features, portion.examples, recording=False)
                    loss = F.cross_entropy(merged, labels, reduction="sum")
                else:  # one model is run as it is: the stacked layers would only add to the work
                    alone = {name: leaf.squeeze(0) for name, leaf in leaves.items()}
                    loss = self.summed_loss(alone, self.read(features), labels)
            found = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        return dict(zip(leaves, found, strict=True))

    def summed_loss(self, parameters: dict[str, Tensor], features: Tensor, labels: Tensor) -> Tensor:
        """Return the summed cross-entropy of one model.

        Parameters
        ----------
        parameters
            Parameters of the model by name, each of its own shape.
        features
            Features of the examples, as `read` returns them.
        labels
            Classes of the examples, int64 (n,).
        """
        return F.cross_entropy(self._called(parameters, features), labels, reduction="sum")

    def _called(self, parameters: dict[str, Tensor], features: Tensor) -> Tensor:
        """Return the logits of one model; `features` are those that `read` returns.

        The search for parameters with two names takes longer than many a layer, so `_is_tied` is computed only once.
        """
        logits: Tensor = functional_call(self.behind, parameters, (features,), tie_weights=self._is_tied)
        return logits

    def clipped_sum_fast(
        self,
        models: Tensor,
        portion: MicrobatchExamples,
        clipping_norm: float | None,
        total: Tensor,
        slack: float = 0.0,
    ) -> None:
        """Write the clipped sums of one pass to `total`, computed by stacked layers.

        Parameters
        ----------
        models
            Parameters of the models of the pass, float32 (trials, parameters).
        portion
            The examples of the pass.
        clipping_norm
            Clipping norm, positive; None for sums without clipping.
        total
            Tensor of the shape of the models, which is overwritten.
        slack
            See `clipping_weights`.
        """
        taped = self.backward(models, portion)
        with torch.no_grad():
            measured = [visit.layer.squared_norms(visit, signal) for visit, signal in taped]
            squared_norms = torch.stack([norms for norms, _ in measured]).sum(0)
            weights = clipping_weights(squared_norms, clipping_norm, portion.counted, slack)
            columns = self.layout.slices()
            for (visit, signal), (_, kept) in zip(taped, measured, strict=True):
                for name, summed in visit.layer.weighted_sum(visit, signal, weights, kept).items():
                    total[:, columns[visit.layer.prefix + name]] = summed.flatten(1)

    def clipped_sum_graphed(
        self,
        models: Tensor,
        portion: MicrobatchExamples,
        clipping_norm: float | None,
        total: Tensor,
        slack: float = 0.0,
    ) -> None:
        """Write the clipped sums of one pass on a graphics card to `total`, as a CUDA graph if the pass is small.

        Parameters
        ----------
        models
            Parameters of the models of the pass, float32 (trials, parameters).
        portion
            The examples of the pass.
        clipping_norm
            Clipping norm, positive; None for sums without clipping.
        total
            Tensor of the shape of the models, which is overwritten.
        slack
            See `clipping_weights`.
        """

        def computed(models: Tensor, features: Tensor, labels: Tensor, counted: Tensor | None) -> Tensor:
            self.forget()  # what an earlier pass derived from other features belongs to no graph
            found = torch.empty_like(models)
            pass_of_graph = MicrobatchExamples(features, labels, counted)
            self.clipped_sum_fast(models, pass_of_graph, clipping_norm, found, slack)
            self.forget()
            return found

        if len(models) * portion.examples * self.activations >= pass_budgets.GRAPHED_BELOW:
            self.clipped_sum_fast(models, portion, clipping_norm, total, slack)
            return
        inputs = models, portion.features, portion.labels, portion.counted
        total.copy_(self.parts.graphs(("clipped sum", clipping_norm, slack), computed, inputs))

    def backward(self, models: Tensor, portion: MicrobatchExamples) -> list[tuple[LayerCall, Tensor]]:
        """Return the calls of the stacked layers in a pass, each with the gradients of the losses at its outputs.

        For `fast` models only. The calls can be used until the model runs again in this thread.

        Parameters
        ----------
        models
            Parameters of the models, float32 (trials, parameters).
        portion
            The examples of the pass.
        """
        features, labels = portion.merged(len(models))
        with torch.enable_grad():
            merged, frame = self.run_stacked(self.layout.views(models), features, portion.examples, recording=True)
            loss = F.cross_entropy(merged, labels, reduction="sum")
        tape, frame.tape = frame.tape, []
        return list(zip(tape, torch.autograd.grad(loss, [visit.outputs for visit in tape]), strict=True))

    def clipped_sum_generic(
        self,
        models: Tensor,
        portion: MicrobatchExamples,
        clipping_norm: float | None,
        total: Tensor,
        slack: float = 0.0,
    ) -> None:
        """Write the clipped sums of one pass to `total`, computed by `torch.func`.

        Parameters
        ----------
        models
            Parameters of the models of the pass, float32 (trials, parameters).
        portion
            The examples of the pass.
        clipping_norm
            Clipping norm, positive; None for sums without clipping.
        total
            Tensor of the shape of the models, which is overwritten.
        slack
            See `clipping_weights`.
        """
        total.zero_()
        together = max(1, pass_budgets.GRADIENT_BUDGET // models.numel())
        for first in range(0, portion.examples, together):
            part = portion.take(slice(first, first + together))
            gradients = self.example_gradients(models, part)
            weights = clipping_weights(gradients.square().sum(2), clipping_norm, part.counted, slack)
            total += torch.einsum("wn,wnp->wp", weights, gradients)

    def example_gradients(self, models: Tensor, portion: MicrobatchExamples) -> Tensor:
        """Return the gradient of each example, float32 (trials, n, parameters), computed by `torch.func`.

        Parameters
        ----------
        models
            Parameters of the models, float32 (trials, parameters).
        portion
            The examples of the pass.
        """

        def loss(parameters: dict[str, Tensor], example: Tensor, label: Tensor) -> Tensor:
            return self.summed_loss(parameters, example.unsqueeze(0), label.unsqueeze(0))

        trials_axis = 0 if portion.is_own else None
        per_trial = vmap(vmap(grad(loss), in_dims=(None, 0, 0)), in_dims=(0, trials_axis, trials_axis))
        views = self.layout.views(models)
        with self.explaining(views, portion.features):
            gradients = per_trial(views, self.read(portion.features), portion.labels)
        # A parameter that is a single number, such as a learned temperature, has no axes of its own.
        shape = (len(models), portion.examples)
        widths = [(name, columns.stop - columns.start) for name, columns in self.layout.slices().items()]
        return torch.cat([gradients[name].reshape(*shape, width) for name, width in widths], dim=2)

    def explaining(self, parameters: dict[str, Tensor], features: Tensor) -> AbstractContextManager[None]:
        """Convert an exception of the user's code in the block into an `InputError` of one line that names the record.

        Parameters
        ----------
        parameters
            Parameters of stacked models, by name, each of shape (trials, *shape).
        features
            Features of the records on which the models run, (n, *shape), or those of all trials one after another.
        """
        return explaining(self.template, parameters, features, self.feature_shape)

    @property
    def behind(self) -> nn.Module:
        """This thread's copy of the module to run in every trial: the template, or its part after the frozen prefix."""
        return self.parts.template if self.prefix is None else self.parts.behind(self.prefix.suffix)

    def read(self, features: Tensor) -> Tensor:
        """Return the input of `behind`: the records, or the frozen prefix's results for them."""
        if self.prefix is None:
            return features
        # Copied before `torch.func` begins, whose tensors a copy would keep.
        self.parts.behind(self.prefix.suffix)
        return self.prefix.rows(features)


def _has_two_names(module: nn.Module) -> bool:
    """Return whether a module holds some tensor under two names."""
    held = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    return len({id(tensor) for _, tensor in held}) < len(held)
