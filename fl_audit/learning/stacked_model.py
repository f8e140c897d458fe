"""One model in many trials at once: logits, losses and clipped sums of per-example gradients."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from copy import copy
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fl_audit.device import Device
from fl_audit.errors import InputError
from fl_audit.learning.allocator import keep_freed_memory
from fl_audit.learning.dense_chain_training import dense_chain
from fl_audit.learning.frozen_prefix import FrozenPrefix, frozen_prefix
from fl_audit.learning.layers import ForwardState, LayerCall
from fl_audit.learning.microbatching import ClippedSumExamples, MicrobatchExamples
from fl_audit.learning.model_faults import explaining, names_of, refusal
from fl_audit.learning.model_inputs import inputs_of, prepare
from fl_audit.learning.model_properties import ModelProperties, saved_scalars
from fl_audit.learning.models import ModelSpec, import_factory, model_template
from fl_audit.learning.module_checks import (
    PROBE_EXAMPLES,
    check_module,
    check_outputs,
    set_aside_frozen,
    sharing_copy,
    start_from_zeros,
)
from fl_audit.learning.output_checks import NO_GRADIENT, ProbeRecords, check_outputs_of
from fl_audit.learning.padding import by_length, is_padded, lengths
from fl_audit.learning.stacked_layers import (
    ParameterLayout,
    PerThreadState,
    backward_sums,
    clipping_weights,
    is_plain,
    parameter_owners,
)

CACHE_BUDGET = 2**21
"""Scalars of activations that one pass holds: more leave the cache, and with fewer the calls of torch cost too much."""
PASS_BUDGET = 2**22
"""Scalars of activations that a pass over a single trial may hold; further examples are left to the next pass."""
GRADIENT_BUDGET = 2**25
"""Scalars of per-example gradients that may be held at once where a model runs through `torch.func`."""
ON_A_CARD = 32
"""Factor by which a pass holds more scalars on a graphics card, where calls of torch cost more than memory."""
GRAPHED_BELOW = 2**25
"""Scalars of activations of a pass below which its kernels on a graphics card are launched as one CUDA graph."""
_PROBE_TRIALS = 2
_TRIED_TEXTS = 16
"""Records on which it is tried whether outputs depend on padding."""
_ROUGHLY = 0.05
"""Relative distance of float32 sums up to which double precision decides whether stacked layers are right."""
_SMALL = 2**15
"""Trained parameters up to which gradients behind a frozen prefix are formed record by record, whatever the layers."""


class StackedModel:
    """A module that is evaluated with the parameters of any number of trials at once.

    Models of dense, convolutional and normalisation layers run on stacked layers, which need no per-example gradients
    (`fast` is then True). Their correctness is tested: when the model is made, they are compared with gradients
    computed example by example. Every other module runs through `torch.func`, example by example. `chain` holds the
    layers of a model that is a plain chain of dense layers.

    Parameters
    ----------
    template
        A module whose output for an example depends on this example only. Frozen parameters are constant in all trials;
        the others are the parameters of the model.
    feature_shape
        Shape of one example.
    records
        Records of the data, (n, *shape), on which a module with its own code is tested; None for random examples.
    known
        Properties of the module that another process has measured, and which are not measured again; None if there are
        none.

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

    def __init__(
        self,
        template: nn.Module,
        feature_shape: tuple[int, ...],
        records: Tensor | None = None,
        known: ModelProperties | None = None,
    ) -> None:
        check_module(template)
        keep_freed_memory()
        own = sharing_copy(template).eval()
        set_aside_frozen(own)
        start_from_zeros(own)
        own.requires_grad_(False)
        self._is_tied = _has_two_names(own)
        self.feature_shape = feature_shape
        self.layout = ParameterLayout.of(own)
        self._parts = PerThreadState(own)
        self.activations = self.layout.size
        self._scale = 1
        self.cautions: tuple[str, ...] = ()
        self.prefix: FrozenPrefix | None = None
        if known is None:
            self.fast = self._probe(records)
        else:
            self.fast, self.activations = known.fast, known.activations
        if (not self.fast or self.layout.size <= _SMALL) and (known is None or known.split):
            self._split_off(records, is_tried=known is not None)
        self._inputs = inputs_of(own)
        if known is not None:
            self.ignores_padding = known.ignores_padding
        else:
            self.ignores_padding = records is not None and self._ignores_padding(records)
        self.chain = dense_chain(own, feature_shape, self.layout)

    @classmethod
    def of(
        cls, spec: ModelSpec, records: ProbeRecords | None = None, known: ModelProperties | None = None
    ) -> "StackedModel":
        """Return the stacked model of a specification; raises `InputError` if it cannot be built or has wrong outputs.

        Parameters
        ----------
        spec
            Specification of the model.
        records
            Records of the data on which a user's model is tested; None for random examples.
        known
            Properties of the model that another process has measured; None if there are none.
        """
        # A factory of the user may read files or print: called once a process, however often its model is wanted.
        if ":" in spec.name:
            return _of_factory(spec, import_factory(spec.name), records, known)
        return _built(spec)

    def fitting(self, device: Device) -> "StackedModel":
        """Return this model with passes of a size that suits a device; both share everything else.

        Parameters
        ----------
        device
            The device of the parameters with which the model is evaluated.
        """
        found = copy(self)
        found._scale = 1 if device is Device.CPU else ON_A_CARD
        return found

    @property
    def properties(self) -> ModelProperties:
        """The measured properties of the model."""
        return ModelProperties(self.fast, self.activations, self.prefix is not None, self.ignores_padding)

    @property
    def template(self) -> nn.Module:
        """This thread's copy of the module."""
        return self._parts.template

    @property
    def scalars_per_example(self) -> int:
        """Number of scalars that a pass over one example uses, as a rough measure of its cost."""
        return self.activations + self.layout.size

    @property
    def examples_per_pass(self) -> int:
        """Largest number of examples per pass with which the activations of one trial fit the budget."""
        return max(1, self._scale * PASS_BUDGET // self.activations)

    def trials_per_pass(self, examples: int) -> int:
        """Return the number of trials per pass with which the activations of some examples stay in cache."""
        return max(1, self._scale * CACHE_BUDGET // (examples * self.activations))

    def clipped_sum(
        self,
        models: Tensor,
        features: Tensor,
        labels: Tensor,
        clipping_norm: float | None,
        batch_trials: int | None = None,
        taking_part: Tensor | None = None,
        slack: float = 0.0,
    ) -> Tensor:
        """Return the sum over examples of g min(1, C / ||g||), where g is the gradient of one example's cross-entropy.

        Parameters
        ----------
        models
            Parameters of the models, float32 (trials, parameters); the result has the same shape.
        features
            Features of the examples, float32 (n, *shape), n may be 0. If the examples differ between trials, (trials,
            n, *shape), of a type that may take less memory, see `ClippedSumExamples`.
        labels
            Classes of the examples, int64 (n,); (trials, n) if the examples differ between trials.
        clipping_norm
            Clipping norm C, positive, over all parameters together. None sums the gradients without clipping.
        batch_trials
            Number of trials of the original batch of trials, if only its first trials are recomputed. The computation
            then uses the shapes of the whole batch, since matrix products of other shapes differ in their last bits. It
            cannot be combined with `taking_part`, nor with examples that differ between trials.
        taking_part
            Bool tensor (trials, n): the examples over which each trial sums; None for all examples.
        slack
            See `clipping_weights`.
        """
        way = self._clipped_sum_generic
        if self.fast:
            way = self._clipped_sum_graphed if models.is_cuda else self._clipped_sum_fast
        work = ClippedSumExamples.of(features, labels, taking_part)
        is_shared = taking_part is None and not work.is_own
        assert batch_trials is None or is_shared, "a part of a batch has not the shapes of its samples or own records"
        total = torch.empty_like(models) if work.width else torch.zeros_like(models)
        for rows, some in self.passes(len(models), work.width):
            trials = rows.stop - rows.start
            full = min(self.trials_per_pass(some.stop - some.start), (batch_trials or len(models)) - rows.start)
            padded, part = models[rows], work.portion(rows, some)
            if full > trials:
                padded = torch.cat([padded, padded[-1:].expand(full - trials, -1)])
            found = total[rows] if some.start == 0 and full == trials else torch.empty_like(padded)
            way(padded, part, clipping_norm, found, slack)
            if some.start > 0:
                total[rows] += found[:trials]
            elif full > trials:
                total[rows] = found[:trials]
        return total

    def mean_gradients(self, models: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """Return the gradient of the mean cross-entropy of the examples in every trial, float32 (trials, parameters).

        No per-example norms are computed.

        Parameters
        ----------
        models
            Parameters of the models, float32 (trials, parameters).
        features
            Features of at least one example, float32 (n, *shape).
        labels
            Classes of the examples, int64 (n,).
        """
        total, work = torch.zeros_like(models), ClippedSumExamples(features, labels)
        for rows, some in self.passes(len(models), work.width):
            found = self._summed_gradients(models[rows], work.portion(rows, some))
            for name, columns in self.layout.slices().items():
                total[rows, columns] += found[name].reshape(rows.stop - rows.start, -1)
        return total.div_(work.width)

    def logits(self, models: Tensor, features: Tensor) -> Tensor:
        """Return the logits (trials, n, classes) of examples under every model.

        Parameters
        ----------
        models
            Parameters of the models, float32 (trials, parameters).
        features
            Features of the examples, shared by all trials, (n, *shape).
        """
        if not self.ignores_padding or len(features) == 0:
            return self._logits(models, features)
        groups = list(by_length(features, self._inputs, self.activations))
        places = torch.cat([numbers for numbers, _ in groups])
        try:
            return torch.cat([self._logits(models, rows) for _, rows in groups], dim=1)[:, torch.argsort(places)]
        except InputError:  # whose message has the number that a record has in its group
            return self._logits(models, features)

    def _logits(self, models: Tensor, features: Tensor) -> Tensor:
        found: dict[int, list[Tensor]] = {}
        for rows, some in self.passes(len(models), len(features)):
            found.setdefault(some.start, []).append(self._logits_pass(models[rows], features[some]))
        portions = [one[0] if len(one) == 1 else torch.cat(one) for one in found.values()]
        del found  # logits of many trials take memory: no more than two copies are held
        return portions[0] if len(portions) == 1 else torch.cat(portions, dim=1)

    def losses(self, models: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy losses (trials, n) of examples under every model.

        Parameters
        ----------
        models
            Parameters of the models, float32 (trials, parameters).
        features
            Features of the examples, shared by all trials, (n, *shape).
        labels
            Classes of the examples, int64 (n,).
        """
        return losses_of(self.logits(models, features), labels)

    def forget(self) -> None:
        """Clear this thread's cache of values derived from features, whose content may have changed."""
        self._parts.frame.forget()

    def passes(self, trials: int, examples: int) -> Iterator[tuple[slice, slice]]:
        """Yield slices of trials and of examples for passes that fit the memory budgets and together cover everything.

        This thread's cache of values derived from features is cleared first.

        Parameters
        ----------
        trials
            Number of trials.
        examples
            Number of examples in each trial.
        """
        self.forget()
        for start in range(0, examples, self.examples_per_pass):
            some = slice(start, min(examples, start + self.examples_per_pass))
            width = self.trials_per_pass(some.stop - some.start)
            for first in range(0, trials, width):
                yield slice(first, min(trials, first + width)), some

    def _run_stacked(
        self, parameters: dict[str, Tensor], features: Tensor, examples: int, recording: bool
    ) -> tuple[Tensor, ForwardState]:
        """Return the outputs of the stacked layers, and their shared state with the recorded calls, if `recording`."""
        stacked, frame = self._parts.stacked, self._parts.frame
        assert stacked is not None
        frame.parameters = parameters
        frame.trials, frame.examples = len(next(iter(parameters.values()))), examples
        frame.read(features)
        frame.recording, frame.tape = recording, []
        with self.explaining(parameters, features):
            return stacked(features), frame

    def _logits_pass(self, models: Tensor, features: Tensor) -> Tensor:
        with torch.no_grad():
            if not self.fast:
                # One trial at a time: recurrent layers have no rule for vmap without gradients.
                one_by_one = map(self.layout.of_one, models)
                with self.explaining(self.layout.views(models), features):
                    read = self._read(features)
                    return torch.stack([self._called(values, read) for values in one_by_one])
            merged, frame = self._run_stacked(self.layout.views(models), features, len(features), recording=False)
            return frame.split(merged)

    def _summed_gradients(self, models: Tensor, portion: MicrobatchExamples) -> dict[str, Tensor]:
        """Return the gradient of the summed loss of a pass with respect to each parameter, (trials, *shape)."""
        views = self.layout.views(models)
        with self.explaining(views, portion.features):
            if len(models) > 1 and not self.fast:
                axis = 0 if portion.is_own else None
                read = self._read(portion.features)
                gradients = vmap(grad(self._summed_loss), (0, axis, axis))(views, read, portion.labels)
                return dict(gradients)
            leaves = {name: view.detach().requires_grad_() for name, view in views.items()}
            features, labels = portion.merged(len(models))
            with torch.enable_grad():
                if len(models) > 1:
                    merged, _ = self._run_stacked(leaves, features, portion.examples, recording=False)
                    loss = F.cross_entropy(merged, labels, reduction="sum")
                else:  # one model is run as it is: the stacked layers would only add to the work
                    alone = {name: leaf.squeeze(0) for name, leaf in leaves.items()}
                    loss = self._summed_loss(alone, self._read(features), labels)
            found = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        return dict(zip(leaves, found, strict=True))

    def _summed_loss(self, parameters: dict[str, Tensor], features: Tensor, labels: Tensor) -> Tensor:
        """Return the summed cross-entropy of one model; `features` are those that `_read` returns."""
        return F.cross_entropy(self._called(parameters, features), labels, reduction="sum")

    def _called(self, parameters: dict[str, Tensor], features: Tensor) -> Tensor:
        """Return the logits of one model; `features` are those that `_read` returns.

        The search for parameters with two names takes longer than many a layer, so `_is_tied` is computed only once.
        """
        logits: Tensor = functional_call(self._behind, parameters, (features,), tie_weights=self._is_tied)
        return logits

    def _clipped_sum_fast(
        self,
        models: Tensor,
        portion: MicrobatchExamples,
        clipping_norm: float | None,
        total: Tensor,
        slack: float = 0.0,
    ) -> None:
        """Write the clipped sums of one pass to `total`, computed by stacked layers."""
        taped = self.backward(models, portion)
        with torch.no_grad():
            measured = [visit.layer.squared_norms(visit, signal) for visit, signal in taped]
            squared_norms = torch.stack([norms for norms, _ in measured]).sum(0)
            weights = clipping_weights(squared_norms, clipping_norm, portion.counted, slack)
            columns = self.layout.slices()
            for (visit, signal), (_, kept) in zip(taped, measured, strict=True):
                for name, summed in visit.layer.weighted_sum(visit, signal, weights, kept).items():
                    total[:, columns[visit.layer.prefix + name]] = summed.flatten(1)

    def _clipped_sum_graphed(
        self,
        models: Tensor,
        portion: MicrobatchExamples,
        clipping_norm: float | None,
        total: Tensor,
        slack: float = 0.0,
    ) -> None:
        """Write the clipped sums of one pass on a graphics card to `total`, as a CUDA graph if the pass is small."""

        def computed(models: Tensor, features: Tensor, labels: Tensor, counted: Tensor | None) -> Tensor:
            self.forget()  # what an earlier pass derived from other features belongs to no graph
            found = torch.empty_like(models)
            pass_of_graph = MicrobatchExamples(features, labels, counted)
            self._clipped_sum_fast(models, pass_of_graph, clipping_norm, found, slack)
            self.forget()
            return found

        if len(models) * portion.examples * self.activations >= GRAPHED_BELOW:
            self._clipped_sum_fast(models, portion, clipping_norm, total, slack)
            return
        inputs = models, portion.features, portion.labels, portion.counted
        total.copy_(self._parts.graphs(("clipped sum", clipping_norm, slack), computed, inputs))

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
            merged, frame = self._run_stacked(self.layout.views(models), features, portion.examples, recording=True)
            loss = F.cross_entropy(merged, labels, reduction="sum")
        tape, frame.tape = frame.tape, []
        return list(zip(tape, torch.autograd.grad(loss, [visit.outputs for visit in tape]), strict=True))

    def _clipped_sum_generic(
        self,
        models: Tensor,
        portion: MicrobatchExamples,
        clipping_norm: float | None,
        total: Tensor,
        slack: float = 0.0,
    ) -> None:
        """Write the clipped sums of one pass to `total`, computed by `torch.func`."""
        total.zero_()
        together = max(1, GRADIENT_BUDGET // models.numel())
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
            return self._summed_loss(parameters, example.unsqueeze(0), label.unsqueeze(0))

        trials_axis = 0 if portion.is_own else None
        per_trial = vmap(vmap(grad(loss), in_dims=(None, 0, 0)), in_dims=(0, trials_axis, trials_axis))
        views = self.layout.views(models)
        with self.explaining(views, portion.features):
            gradients = per_trial(views, self._read(portion.features), portion.labels)
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
    def _behind(self) -> nn.Module:
        """This thread's copy of the module to run in every trial: the template, or its part after the frozen prefix."""
        return self._parts.template if self.prefix is None else self._parts.behind(self.prefix.suffix)

    def _read(self, features: Tensor) -> Tensor:
        """Return the input of `_behind`: the records, or the frozen prefix's results for them."""
        if self.prefix is None:
            return features
        # Copied before `torch.func` begins, whose tensors a copy would keep.
        self._parts.behind(self.prefix.suffix)
        return self.prefix.rows(features)

    def _split_off(self, records: Tensor | None, is_tried: bool) -> None:
        """Evaluate the frozen prefix of the template once per record from now on, if a test gives the same results."""
        prefix = frozen_prefix(self.template, self.feature_shape)
        if prefix is None:
            return
        if is_tried:
            self.prefix, self.fast = prefix, False
            return
        source, flat = _seeded(), self.layout.flatten(dict(self.template.named_parameters()))
        models = flat + 0.1 * torch.randn(_PROBE_TRIALS, len(flat), generator=source)
        tried = torch.rand(PROBE_EXAMPLES, *self.feature_shape, generator=source) if records is None else records
        portion = MicrobatchExamples(
            tried[:PROBE_EXAMPLES], torch.zeros(len(tried[:PROBE_EXAMPLES]), dtype=torch.int64)
        )
        found = list[tuple[Tensor, Tensor]]()
        fast, self.fast = self.fast, False
        for self.prefix in (None, prefix):
            try:
                gradients = self.example_gradients(models, portion)
                found.append((gradients, self._logits_pass(models, portion.features)))
            except (Exception, SystemExit):
                break
        self.prefix, self.fast = None, fast
        if len(found) == 2 and all(_is_same(*pair) for pair in zip(*found, strict=True)):
            self.prefix, self.fast = prefix, False
            one, label = prefix.rows(portion.features[:1]), portion.labels[:1]
            held = saved_scalars(self._behind, lambda values: self._summed_loss(values, one, label))
            self.activations = max(self.layout.size, held)

    def _ignores_padding(self, records: Tensor) -> bool:
        """Return whether records of texts, some of them padded, get the same outputs without their shared padding."""
        if self.fast or self.prefix is not None or not is_padded(self._inputs):
            return False
        tried = records[:_TRIED_TEXTS]
        if bool((lengths(tried, self._inputs) == self._inputs[0].width).all()):
            return False
        flat = self.layout.flatten(dict(self.template.named_parameters()))
        models = flat + 0.1 * torch.randn(1, len(flat), generator=_seeded())
        try:
            whole = self._logits(models, tried)
            for numbers, rows in by_length(tried, self._inputs, 1, worth=1):
                if not _is_same(self._logits(models, rows), whole[:, numbers]):
                    return False
        except (Exception, SystemExit):  # the model asks for all tokens
            return False
        return True

    def _probe(self, records: Tensor | None) -> bool:
        """Return whether stacked layers give the same clipped sums on a few examples as per-example gradients do."""
        source = _seeded()
        flat = self.layout.flatten(dict(self.template.named_parameters()))
        models = flat + 0.1 * torch.randn(_PROBE_TRIALS, len(flat), generator=source)
        features = torch.rand(PROBE_EXAMPLES, *self.feature_shape, generator=source)
        portion = MicrobatchExamples(features, torch.zeros(PROBE_EXAMPLES, dtype=torch.int64))
        # The first call of `torch.func` imports torch's compiler: seconds in every process, for the same gradients.
        if is_plain(self.template):
            with suppress(Exception):
                if self._agrees(models, portion, backward_sums(self.layout, models, portion, self._summed_loss)):
                    return True
        if records is not None:
            # Random numbers show little of a model that looks up tokens: all of them would be the token 0.
            portion = MicrobatchExamples(records[:PROBE_EXAMPLES], portion.labels[: len(records)])
        expected = torch.empty_like(models)
        try:
            self._clipped_sum_generic(models, portion, 1.0, expected)
        except (Exception, SystemExit) as error:
            raise refusal(error, self.feature_shape) from error
        if records is not None and not bool(expected.any()):
            raise InputError(NO_GRADIENT)
        if self._agrees(models, portion, expected) or self._agrees_in_double(models, portion, expected):
            return True
        one, label = portion.features[:1], portion.labels[:1]
        held = saved_scalars(self.template, lambda values: self._summed_loss(values, one, label))
        self.activations = max(self.layout.size, held)
        return False

    def _agrees(self, models: Tensor, portion: MicrobatchExamples, expected: Tensor) -> bool:
        """Return whether stacked layers exist and give the expected sums; if so, set `activations`."""
        found = self._stacked_sums(models, portion)
        return found is not None and torch.allclose(found, expected, rtol=1e-4, atol=1e-5)

    def _agrees_in_double(self, models: Tensor, portion: MicrobatchExamples, expected: Tensor) -> bool:
        """Return whether stacked layers give the expected sums roughly, and those of `torch.func` in double precision.

        A ReLU whose input is zero up to rounding passes the gradient in one computation and not in the other, so that
        float32 sums may differ by 1e-2 although both are right.
        """
        found = self._stacked_sums(models, portion)
        if found is None or not float((found - expected).norm()) <= _ROUGHLY * float(expected.norm()):
            return False
        wide, read = models.double(), MicrobatchExamples(portion.features.double(), portion.labels)
        exact = torch.empty_like(wide)
        try:
            self._clipped_sum_generic(wide, read, 1.0, exact)
        except (Exception, SystemExit):  # parts of the model that are frozen or cast stay in float32
            return False
        again = self._stacked_sums(wide, read)
        return again is not None and torch.allclose(again, exact, rtol=1e-8, atol=1e-10)

    def _stacked_sums(self, models: Tensor, portion: MicrobatchExamples) -> Tensor | None:
        """Return sums of gradients clipped to norm 1, computed by stacked layers, and set `activations`.

        None if there are no stacked layers, or if they are not each called exactly once.
        """
        if self._parts.stacked is None:
            return None
        try:
            found = torch.empty_like(models)
            self._clipped_sum_fast(models, portion, 1.0, found)
        except Exception:  # the template's own code may do what stacked layers are not made for
            return None
        _, frame = self._run_stacked(self.layout.views(models), portion.features, portion.examples, recording=True)
        visited, frame.tape = frame.tape, []
        visits = [visit.layer.prefix for visit in visited]
        if not len(set(visits)) == len(visits) == sum(1 for _ in parameter_owners(self.template)):
            return None
        self.activations = sum(visit.outputs[0].numel() for visit in visited)
        return found


def _built(spec: ModelSpec, records: ProbeRecords | None = None, known: ModelProperties | None = None) -> StackedModel:
    template, shape = model_template(spec, alone=known is not None), spec.feature_shape
    prepare(template, spec.inputs)
    if known is not None:
        return StackedModel(template, shape, known=known)
    tried = records or ProbeRecords(torch.rand(PROBE_EXAMPLES, *shape, generator=_seeded()), names_of(PROBE_EXAMPLES))
    cautions = check_outputs_of(template, spec.classes, tried)
    real = None if records is None else records.features
    model = StackedModel(template, shape, real)
    check_outputs(template, shape, spec.classes, real)
    model.cautions = cautions
    return model


def losses_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy losses (trials, n) of logits.

    Parameters
    ----------
    logits
        Logits of n examples under every model, (trials, n, classes).
    labels
        Classes of the examples, int64 (n,).
    """
    losses = F.cross_entropy(logits.flatten(0, 1), labels.repeat(len(logits)), reduction="none")
    return losses.reshape(len(logits), len(labels))


def _has_two_names(module: nn.Module) -> bool:
    """Return whether a module holds some tensor under two names."""
    held = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    return len({id(tensor) for _, tensor in held}) < len(held)


def _is_same(left: Tensor, right: Tensor) -> bool:
    return torch.allclose(left, right, rtol=1e-4, atol=1e-6 * float(left.abs().max()))


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@lru_cache(maxsize=4)
def _of_factory(
    spec: ModelSpec, factory: Callable[..., nn.Module], records: ProbeRecords | None, known: ModelProperties | None
) -> StackedModel:
    """Build the model of a user's factory; the cache distinguishes different functions of the same name."""
    return _built(spec, records, known)
