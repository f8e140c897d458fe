"""One model in many trials at once: logits, losses and clipped sums of per-example gradients.

A trial is one of many independent trainings of the same model.
"""

from collections.abc import Callable, Iterator
from copy import copy
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fl_audit.device import Device
from fl_audit.learning import pass_budgets
from fl_audit.learning.dense_chain_training import dense_chain
from fl_audit.learning.fast_path_checks import seeded, stacked_layers_agree
from fl_audit.learning.frozen_backbones import Backbone, frozen_backbone, split_backbone
from fl_audit.learning.glibc_allocator import keep_freed_memory
from fl_audit.learning.microbatching import ClippedSumInputs, ClippedSumPass
from fl_audit.learning.model_adaptation import prepare
from fl_audit.learning.model_error_messages import names_of
from fl_audit.learning.model_execution_profile import ModelExecutionProfile
from fl_audit.learning.model_initialisation import model_template
from fl_audit.learning.model_passes import ModelPasses
from fl_audit.learning.models import ModelSpec, import_factory
from fl_audit.learning.module_checks import PROBE_EXAMPLES, check_module, check_outputs
from fl_audit.learning.module_preparation import set_aside_frozen, sharing_copy, start_from_zeros
from fl_audit.learning.output_checks import ModelCheckRecords, check_outputs_of


class StackedModel(ModelPasses):
    """A model that is evaluated with the parameters of any number of trials at once.

    Models of dense, convolutional and normalisation layers run on stacked layers (`fast` is then True), after a
    comparison with gradients of single examples. Every other model runs through `torch.func`, example by example.
    `chain` holds the layers of a plain chain of dense layers, and is None otherwise. `backbone` is the frozen first
    part of a user's model, which every record passes once before it reaches this model; None without one.

    Parameters
    ----------
    template
        Module whose output for an example depends on this example only. Its frozen parameters are constant in all
        trials; all others are the parameters of the model.
    feature_shape
        Shape of one example.
    records
        Records on which the module is tested, (n, *shape); None for random examples.
    known
        Properties of the model that another process has measured; None to measure them.

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
        known: ModelExecutionProfile | None = None,
    ) -> None:
        check_module(template)
        keep_freed_memory()
        own = sharing_copy(template).eval()
        set_aside_frozen(own)
        start_from_zeros(own)
        own.requires_grad_(False)
        super().__init__(own, feature_shape)
        self._scale = 1
        self.cautions: tuple[str, ...] = ()
        self.backbone: Backbone | None = None
        if known is None:
            self.fast = stacked_layers_agree(self, records)
        else:
            self.fast, self.activations = known.fast, known.activations
        self.chain = dense_chain(own, feature_shape, self.layout)

    @classmethod
    def of(
        cls, spec: ModelSpec, records: ModelCheckRecords | None = None, known: ModelExecutionProfile | None = None
    ) -> "StackedModel":
        """Return the stacked model of a specification; raises `InputError` if it cannot be built or has wrong outputs.

        Parameters
        ----------
        spec
            Specification of the model.
        records
            Records on which a user's model is tested; None for random examples.
        known
            Properties of the model's execution, if another process has measured them; None to measure them here.
        """
        # A user's factory may read files or print, so it is called once in a process, and its model is cached.
        if ":" in spec.name:
            return _of_factory(spec, import_factory(spec.name), records, known)
        return _built(spec)

    def sized_for_device(self, device: Device) -> "StackedModel":
        """Return a copy of this model that runs as many examples per pass as suits a device.

        The two models share everything else.

        Parameters
        ----------
        device
            Device on which the parameters are.
        """
        found = copy(self)
        found._scale = 1 if device is Device.CPU else pass_budgets.ON_A_CARD
        return found

    @property
    def record_shape(self) -> tuple[int, ...]:
        """Shape of one record, before it passes through the backbone if there is one."""
        return self.feature_shape if self.backbone is None else self.backbone.input_shape

    @property
    def frozen_module(self) -> nn.Module | None:
        """The backbone as a module; None if the model has none."""
        return None if self.backbone is None else self.backbone.module

    @property
    def properties(self) -> ModelExecutionProfile:
        """Properties of the model that were found by running it on data, to be sent to processes without data."""
        return ModelExecutionProfile(self.fast, self.activations, self.backbone is not None)

    @property
    def scalars_per_example(self) -> int:
        """Number of scalars that a pass over one example stores or reads, as a rough measure of its cost."""
        return self.activations + self.layout.size

    @property
    def examples_per_pass(self) -> int:
        """Largest number of examples whose activations in one trial fit the memory budget of a pass."""
        return max(1, self._scale * pass_budgets.PASS_BUDGET // self.activations)

    def trials_per_pass(self, examples: int) -> int:
        """Return the number of trials whose activations for `examples` examples together fit the cache, at least 1."""
        return max(1, self._scale * pass_budgets.CACHE_BUDGET // (examples * self.activations))

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
        """Return each trial's sum over examples of g min(1, C / ||g||), (trials, parameters).

        Here g is the gradient of one example's cross-entropy with respect to all parameters.

        Parameters
        ----------
        models
            Parameters of the models, float32 (trials, parameters).
        features
            Features of the examples, float32 (n, *shape), n may be 0. If the examples differ between trials, (trials,
            n, *shape), of any numeric type.
        labels
            Classes of the examples, int64 (n,), or (trials, n) if the examples differ between trials.
        clipping_norm
            Clipping norm C (L2), positive; None sums the gradients without clipping.
        batch_trials
            Set only to compute sums again for the first trials of an earlier batch, whose number of trials this is. The
            last bits of a sum depend on the size of the batch; with this number the sums equal the earlier ones
            exactly. It cannot be combined with `taking_part`, or with examples that differ between trials.
        taking_part
            Whether an example is in a trial's sum, bool (trials, n); None for all examples.
        slack
            Number that is added to each gradient's norm before clipping, at least 0; Opacus adds one to avoid a
            division by 0.
        """
        way = self.clipped_sum_generic
        if self.fast:
            way = self.clipped_sum_graphed if models.is_cuda else self.clipped_sum_fast
        work = ClippedSumInputs.of(features, labels, taking_part)
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
            way(ClippedSumPass(padded, part, clipping_norm, slack), found)
            if some.start > 0:
                total[rows] += found[:trials]
            elif full > trials:
                total[rows] = found[:trials]
        return total

    def mean_gradients(self, models: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """Return the gradient of the mean cross-entropy over the examples in every trial, float32 (trials, parameters).

        Parameters
        ----------
        models
            Parameters of the models, float32 (trials, parameters).
        features
            Features of at least one example, float32 (n, *shape), or (trials, n, *shape) if the examples differ between
            trials.
        labels
            Classes of the examples, int64 (n,), or (trials, n) if the examples differ between trials.
        """
        total, work = torch.zeros_like(models), ClippedSumInputs(features, labels)
        for rows, some in self.passes(len(models), work.width):
            found = self.summed_gradients(models[rows], work.portion(rows, some))
            for name, columns in self.layout.slices().items():
                total[rows, columns] += found[name].reshape(rows.stop - rows.start, -1)
        return total.div_(work.width)

    def logits(self, models: Tensor, features: Tensor) -> Tensor:
        """Return the logits of examples under every model, (trials, n, classes).

        Parameters
        ----------
        models
            Parameters of the models, float32 (trials, parameters).
        features
            Features of the examples, which all trials share, (n, *shape).
        """
        by_start: dict[int, list[Tensor]] = {}
        for rows, some in self.passes(len(models), len(features)):
            by_start.setdefault(some.start, []).append(self.logits_pass(models[rows], features[some]))
        portions = [parts[0] if len(parts) == 1 else torch.cat(parts) for parts in by_start.values()]
        del by_start  # logits of many trials take memory: no more than two copies are held
        return portions[0] if len(portions) == 1 else torch.cat(portions, dim=1)

    def losses(self, models: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy losses of examples under every model, (trials, n).

        Parameters
        ----------
        models
            Parameters of the models, float32 (trials, parameters).
        features
            Features of the examples, which all trials share, (n, *shape).
        labels
            Classes of the examples, int64 (n,).
        """
        return losses_of(self.logits(models, features), labels)

    def passes(self, trials: int, examples: int) -> Iterator[tuple[slice, slice]]:
        """Divide a computation into passes that fit into memory, and yield each pass: its trials and its examples.

        All passes together cover every trial with every example. Before the first pass, this thread's cache of values
        computed from features is cleared.

        Parameters
        ----------
        trials
            Number of trials.
        examples
            Number of examples per trial.
        """
        self.forget()
        for some in pass_budgets.slices(examples, self.examples_per_pass):
            for rows in pass_budgets.slices(trials, self.trials_per_pass(some.stop - some.start)):
                yield rows, some


def _built(
    spec: ModelSpec, records: ModelCheckRecords | None = None, known: ModelExecutionProfile | None = None
) -> StackedModel:
    template = model_template(spec, alone=known is not None)
    prepare(template, spec.inputs)
    if known is not None:
        backbone = split_backbone(template, spec.feature_shape) if known.has_backbone else None
        shape = spec.feature_shape if backbone is None else backbone.output_shape
        model = StackedModel(template, shape, known=known)
        model.backbone = backbone
        return model
    tried = records or ModelCheckRecords(
        torch.rand(PROBE_EXAMPLES, *spec.feature_shape, generator=seeded()), names_of(PROBE_EXAMPLES)
    )
    cautions = check_outputs_of(template, spec.classes, tried)
    real = None if records is None else records.features
    backbone = None if spec.inputs else frozen_backbone(template, tried.features)
    if backbone is None:
        whole = template
        model = StackedModel(template, spec.feature_shape, real)
    else:
        whole = nn.Sequential(backbone.module, template)
        model = StackedModel(template, backbone.output_shape, backbone.outputs(tried.features))
    check_outputs(whole, spec.feature_shape, spec.classes, real)
    model.backbone = backbone
    model.cautions = cautions
    return model


def losses_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy losses of n examples under every model, (trials, n).

    Parameters
    ----------
    logits
        Logits of the examples, (trials, n, classes).
    labels
        Classes of the examples, int64 (n,).
    """
    losses = F.cross_entropy(logits.flatten(0, 1), labels.repeat(len(logits)), reduction="none")
    return losses.reshape(len(logits), len(labels))


@lru_cache(maxsize=4)
def _of_factory(
    spec: ModelSpec,
    factory: Callable[..., nn.Module],
    records: ModelCheckRecords | None,
    known: ModelExecutionProfile | None,
) -> StackedModel:
    """Build the stacked model of a user's factory; for each factory, a process builds and checks the model once."""
    return _built(spec, records, known)
