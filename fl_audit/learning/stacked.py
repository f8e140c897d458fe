"""One model in many worlds: logits, losses and clipped per-example gradient sums of stacked models."""

import copy
import threading
from collections.abc import Iterator
from contextlib import suppress
from math import ceil

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fl_audit.errors import InputError
from fl_audit.learning.layers import Frame, Visit
from fl_audit.learning.layout import ParameterLayout
from fl_audit.learning.memory import keep_freed_memory
from fl_audit.learning.models import ModelSpec, build_model
from fl_audit.learning.module_checks import PROBE_EXAMPLES, check_module, check_outputs, said, without_hints
from fl_audit.learning.sampling import Portion, Workload
from fl_audit.learning.stacking import is_plain, parameter_owners, stack_layers

CACHE_BUDGET = 2**21
"""Scalars of activations that one pass may hold: fewer leave the processor waiting for the next call of torch."""
PASS_BUDGET = 2**22
"""Scalars of activations that one pass over one world may hold: examples beyond it wait for the next pass."""
GRADIENT_BUDGET = 2**25
"""Scalars of per-example gradients that the generic way may hold at once."""
_PROBE_WORLDS = 2


class StackedModel:
    """A model's template, run in any number of worlds at once.

    Models made of dense, convolutional and normalising layers run on stacked layers that need no gradient per example
    (`fast` is True); this is not assumed but probed: they are run once and compared with gradients taken example by
    example. Every other module runs through `torch.func`, example by example.

    Parameters
    ----------
    template
        A module whose loss treats examples one by one.
    feature_shape
        Shape of one example.

    Raises
    ------
    InputError
        If a layer mixes examples or draws random numbers, or the module cannot be run example by example.

    Examples
    --------
    >>> model = StackedModel(nn.Linear(3, 2), (3,))
    >>> model.clipped_sum(torch.zeros(5, 8), torch.ones(4, 3), torch.zeros(4, dtype=torch.long), 1.0).shape
    torch.Size([5, 8])
    """

    def __init__(self, template: nn.Module, feature_shape: tuple[int, ...]) -> None:
        check_module(template)
        keep_freed_memory()
        own = copy.deepcopy(template).eval().requires_grad_(False)
        self.feature_shape = feature_shape
        self.layout = ParameterLayout.of(own)
        self._parts = _Parts(own)
        self.activations = self.layout.size
        self.fast = self._probe()

    @classmethod
    def of(cls, spec: ModelSpec) -> "StackedModel":
        """Return the stacked model of a specification, refused if `check_outputs` refuses its outputs."""
        template = build_model(spec)
        model = cls(template, spec.feature_shape)
        check_outputs(template, spec.feature_shape, spec.classes)
        return model

    @property
    def template(self) -> nn.Module:
        """This thread's copy of the module."""
        return self._parts.template

    @property
    def scalars_per_example(self) -> int:
        """Scalars that a pass of one example touches: a rough measure of its cost."""
        return self.activations + self.layout.size

    @property
    def examples_per_pass(self) -> int:
        """How many examples run together at most, so that one world's activations stay within bounds."""
        return max(1, PASS_BUDGET // self.activations)

    def worlds_per_pass(self, examples: int) -> int:
        """Return how many worlds run together on so many examples, so that the work stays in cache."""
        return max(1, CACHE_BUDGET // (examples * self.activations))

    def clipped_sum(
        self,
        models: Tensor,
        features: Tensor,
        labels: Tensor,
        clipping_norm: float | None,
        batch_worlds: int | None = None,
        taking_part: Tensor | None = None,
    ) -> Tensor:
        """Return the sum over examples of g min(1, C / ||g||), g the gradient of one example's cross-entropy.

        Parameters
        ----------
        models
            Float32 tensor (worlds, parameters).
        features, labels
            Examples (n, *shape) in float32 and their classes (n,) in int64; n may be 0.
        clipping_norm
            C, positive; the norm runs over all parameters together. None sums the gradients as they are.
        batch_worlds
            If the models are the first of a batch of so many, work in the shapes that the whole batch would have:
            matrix products of other shapes differ in their last bits. Not together with `taking_part`.
        taking_part
            Bool tensor (worlds, n): over which examples each world sums; None is over all.

        Returns
        -------
        Tensor
            Float32 tensor (worlds, parameters).
        """
        assert batch_worlds is None or taking_part is None, "samples of a part of a batch are not of its shapes"
        self._parts.frame.forget()
        way = self._clipped_sum_fast if self.fast else self._clipped_sum_generic
        work = Workload.of(features, labels, taking_part)
        if work.width == 0:
            return torch.zeros_like(models)
        total = torch.empty_like(models)
        for some in self._portions(work.width):
            for rows in self._passes(len(models), some.stop - some.start):
                worlds = rows.stop - rows.start
                full = min(self.worlds_per_pass(some.stop - some.start), (batch_worlds or len(models)) - rows.start)
                padded, part = _repeat_last(models[rows], full - worlds), work.portion(rows, some)
                found = total[rows] if some.start == 0 and full == worlds else torch.empty_like(padded)
                way(padded, part, clipping_norm, found)
                if some.start > 0:
                    total[rows] += found[:worlds]
                elif full > worlds:
                    total[rows] = found[:worlds]
        return total

    def logits(self, models: Tensor, features: Tensor) -> Tensor:
        """Return the logits (worlds, n, classes) of examples under every model."""
        self._parts.frame.forget()
        portions = []
        for some in self._portions(len(features)):
            passes = self._passes(len(models), some.stop - some.start)
            found = [self._logits_pass(models[rows], features[some]) for rows in passes]
            portions.append(found[0] if len(found) == 1 else torch.cat(found))
        return portions[0] if len(portions) == 1 else torch.cat(portions, dim=1)

    def losses(self, models: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy losses (worlds, n) of examples under every model."""
        logits = self.logits(models, features)
        losses = F.cross_entropy(logits.flatten(0, 1), labels.repeat(len(models)), reduction="none")
        return losses.reshape(len(models), len(labels))

    def _portions(self, examples: int) -> Iterator[slice]:
        width = self.examples_per_pass
        for first in range(0, examples, width):
            yield slice(first, min(examples, first + width))

    def _passes(self, worlds: int, examples: int) -> Iterator[slice]:
        width = self.worlds_per_pass(examples)
        for index in range(ceil(worlds / width)):
            yield slice(index * width, min(worlds, (index + 1) * width))

    def _run_stacked(self, models: Tensor, features: Tensor, examples: int, recording: bool) -> tuple[Tensor, Frame]:
        """Return what the stacked layers put out, and the frame with their visits if it was recording."""
        stacked, frame = self._parts.stacked, self._parts.frame
        assert stacked is not None
        frame.parameters = self.layout.views(models)
        frame.worlds, frame.examples = len(models), examples
        frame.read(features)
        frame.recording, frame.tape = recording, []
        with without_hints():
            return stacked(features), frame

    def _logits_pass(self, models: Tensor, features: Tensor) -> Tensor:
        with torch.no_grad():
            if not self.fast:
                # One world at a time: recurrent layers have no rule for vmap without gradients.
                views = [self.layout.views(model.unsqueeze(0)) for model in models]
                one_by_one = [{name: value[0] for name, value in parameters.items()} for parameters in views]
                with without_hints():
                    return torch.stack([functional_call(self.template, values, (features,)) for values in one_by_one])
            merged, frame = self._run_stacked(models, features, len(features), recording=False)
            return frame.split(merged)

    def _clipped_sum_fast(self, models: Tensor, portion: Portion, clipping_norm: float | None, total: Tensor) -> None:
        """Write the sums of a pass to `total`, through stacked layers."""
        features, labels = portion.merged(len(models))
        with torch.enable_grad():
            merged, frame = self._run_stacked(models, features, portion.examples, recording=True)
            loss = F.cross_entropy(merged, labels, reduction="sum")
        tape = frame.tape
        signals = torch.autograd.grad(loss, [visit.outputs for visit in tape])
        with torch.no_grad():
            measured = [visit.layer.squared_norms(visit, signal) for visit, signal in zip(tape, signals, strict=True)]
            squared_norms = torch.stack([norms for norms, _ in measured]).sum(0)
            weights = _weights(squared_norms, clipping_norm, portion.counted)
            columns = self.layout.slices()
            for visit, signal, (_, kept) in zip(tape, signals, measured, strict=True):
                for name, summed in visit.layer.weighted_sum(visit, signal, weights, kept).items():
                    total[:, columns[visit.layer.prefix + name]] = summed.flatten(1)
        frame.tape = []

    def _clipped_sum_generic(
        self, models: Tensor, portion: Portion, clipping_norm: float | None, total: Tensor
    ) -> None:
        """Write the sums of a pass to `total`, through `torch.func`."""
        total.zero_()
        together = max(1, GRADIENT_BUDGET // models.numel())
        for first in range(0, portion.examples, together):
            part = portion.take(slice(first, first + together))
            gradients = self._example_gradients(models, part)
            weights = _weights(gradients.square().sum(2), clipping_norm, part.counted)
            total += torch.einsum("wn,wnp->wp", weights, gradients)

    def _example_gradients(self, models: Tensor, portion: Portion) -> Tensor:
        """Return every example's gradient (worlds, n, parameters) through torch.func."""

        def loss(parameters: dict[str, Tensor], example: Tensor, label: Tensor) -> Tensor:
            logits = functional_call(self.template, parameters, (example.unsqueeze(0),))
            return F.cross_entropy(logits, label.unsqueeze(0))

        worlds_axis = 0 if portion.is_own else None
        per_world = vmap(vmap(grad(loss), in_dims=(None, 0, 0)), in_dims=(0, worlds_axis, worlds_axis))
        with without_hints():
            gradients = per_world(self.layout.views(models), portion.features, portion.labels)
        # A parameter of one number, such as a learned temperature, has no axes of its own.
        shape = (len(models), portion.examples)
        widths = {name: columns.stop - columns.start for name, columns in self.layout.slices().items()}
        return torch.cat([gradients[name].reshape(*shape, widths[name]) for name in self.layout.names], dim=2)

    def _probe(self) -> bool:
        """Run the stacked layers on a small example and return whether they do what gradients of single examples do."""
        source = torch.Generator().manual_seed(0)
        flat = self.layout.flatten(dict(self.template.named_parameters()))
        models = flat + 0.1 * torch.randn(_PROBE_WORLDS, len(flat), generator=source)
        features = torch.rand(PROBE_EXAMPLES, *self.feature_shape, generator=source)
        portion = Portion(features, torch.zeros(PROBE_EXAMPLES, dtype=torch.int64))
        # The first call of `torch.func` imports torch's compiler: seconds in every process, for the same gradients.
        if is_plain(self.template):
            with suppress(Exception):
                if self._agrees(models, portion, self._backward_sum(models, portion)):
                    return True
        try:
            expected = torch.empty_like(models)
            self._clipped_sum_generic(models, portion, 1.0, expected)
        except (Exception, SystemExit) as error:
            raise InputError(
                f"the model cannot be run example by example on features of shape {self.feature_shape} "
                f"({said(error)}): accepted are modules for torch.func.vmap, without random draws and .item()"
            ) from error
        return self._agrees(models, portion, expected)

    def _backward_sum(self, models: Tensor, portion: Portion) -> Tensor:
        """Return the sums of gradients clipped to norm 1, by a backward pass for each example of each world."""
        sums = torch.zeros_like(models)
        for total, model in zip(sums, models, strict=True):
            values = {name: value[0] for name, value in self.layout.views(model.unsqueeze(0)).items()}
            parameters = {name: value.detach().requires_grad_() for name, value in values.items()}
            for example, label in zip(portion.features, portion.labels, strict=True):
                logits = functional_call(self.template, parameters, (example.unsqueeze(0),))
                loss = F.cross_entropy(logits, label.unsqueeze(0))
                gradients = torch.autograd.grad(loss, list(parameters.values()))
                gradient = self.layout.flatten(dict(zip(parameters, gradients, strict=True)))
                total += _weights(gradient.square().sum(), 1.0, None) * gradient
        return sums

    def _agrees(self, models: Tensor, portion: Portion, expected: Tensor) -> bool:
        """Return whether there are stacked layers that give these sums; if so, note what they hold of one example."""
        if self._parts.stacked is None:
            return False
        try:
            found = torch.empty_like(models)
            self._clipped_sum_fast(models, portion, 1.0, found)
        except Exception:  # the template's own code may do anything that stacked layers do not foresee
            return False
        visited = self._visits(models, portion.features)
        visits = [visit.layer.prefix for visit in visited]
        once_each = len(set(visits)) == len(visits) == sum(1 for _ in parameter_owners(self.template))
        if not once_each or not torch.allclose(found, expected, rtol=1e-4, atol=1e-5):
            return False
        self.activations = sum(visit.outputs[0].numel() for visit in visited)
        return True

    def _visits(self, models: Tensor, features: Tensor) -> list[Visit]:
        _, frame = self._run_stacked(models, features, len(features), recording=True)
        visits, frame.tape = frame.tape, []
        return visits


class _Parts(threading.local):
    """What a pass changes while it runs: each thread has its own, so passes of several threads never meet."""

    def __init__(self, template: nn.Module) -> None:
        self.template = copy.deepcopy(template)
        self.frame = Frame()
        self.stacked = stack_layers(copy.deepcopy(template), self.frame)


def _repeat_last(models: Tensor, times: int) -> Tensor:
    return torch.cat([models, models[-1:].expand(times, -1)]) if times > 0 else models


def _weights(squared_norms: Tensor, clipping_norm: float | None, counted: Tensor | None) -> Tensor:
    """Return min(1, C / norm), 1 without clipping, of gradients that count; one of zero keeps its weight of one."""
    if clipping_norm is None:
        return torch.ones_like(squared_norms) if counted is None else counted
    weights = torch.clamp(clipping_norm * torch.rsqrt(squared_norms), max=1.0)
    return weights if counted is None else weights * counted
