"""One model in many trials at once: logits, losses and clipped sums of per-example gradients.

A trial is one of many independent trainings of the same model.
"""

from collections.abc import Callable, Iterator
from copy import copy
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fl_audit.device import Device
from fl_audit.learning import pass_budgets
from fl_audit.learning.dense_chain_training import dense_chain
from fl_audit.learning.fast_path_checks import ModelExecutionProfile, seeded, stacked_layers_agree
from fl_audit.learning.frozen_backbones import Backbone, frozen_backbone, split_backbone
from fl_audit.learning.glibc_allocator import keep_freed_memory
from fl_audit.learning.losses import TrainingLoss, losses_of
from fl_audit.learning.microbatching import ClippedSumInputs, ClippedSumPass, GroupedRecords
from fl_audit.learning.model_adaptation import prepare
from fl_audit.learning.model_checks import PROBE_EXAMPLES, ModelCheckRecords, check_logits, check_module, check_outputs
from fl_audit.learning.model_failures import names_of
from fl_audit.learning.model_initialisation import model_template
from fl_audit.learning.model_passes import ModelPasses
from fl_audit.learning.models import ModelSpec, import_factory
from fl_audit.learning.module_preparation import set_aside_frozen, sharing_copy, start_from_zeros
from fl_audit.privacy.accounting_enums import VectorNorm


class ClippedSums(NamedTuple):
    """Sums of the clipped gradients of users in each trial, and sums of the users' quantile bits."""

    total: Tensor  # sums of the users' clipped gradients, float32 (trials, parameters)
    # Sum over participating users of 1/2 if the norm of the user's gradient is at most the trial's clipping norm, and
    # of -1/2 otherwise, float64 (trials,). Adaptive clipping moves the norm by it; None if the norm is not given by
    # trial.
    centred_bits: Tensor | None


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
    profile
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
        profile: ModelExecutionProfile | None = None,
    ) -> None:
        check_module(template)
        keep_freed_memory()
        network = sharing_copy(template).eval()
        set_aside_frozen(network)
        start_from_zeros(network)
        network.requires_grad_(False)
        super().__init__(network, feature_shape)
        self._scale = 1
        self.cautions: tuple[str, ...] = ()
        self.backbone: Backbone | None = None
        if profile is None:
            self.fast = stacked_layers_agree(self, records)
        else:
            self.fast = profile.fast
            self.activations = profile.activations
        self.chain = dense_chain(network, feature_shape, self.layout)

    @classmethod
    def of(
        cls, spec: ModelSpec, records: ModelCheckRecords | None = None, profile: ModelExecutionProfile | None = None
    ) -> "StackedModel":
        """Return the stacked model of a specification; raises `InputError` if it cannot be built or has wrong outputs.

        Parameters
        ----------
        spec
            Specification of the model.
        records
            Records on which a user's model is tested; None for random examples.
        profile
            Properties of the model's execution, if another process has measured them; None to measure them here.
        """
        # A user's factory may read files or print, so it is called once in a process, and its model is cached.
        if ":" in spec.name:
            return _of_factory(spec, import_factory(spec.name), records, profile)
        return _built(spec)

    def clipping_in(self, norm: VectorNorm) -> "StackedModel":
        """Return a copy of this model whose clipped sums measure gradients in a norm.

        The two models share everything else. Sums in the L1 norm need the gradient of every user, so they are computed
        user by user.

        Parameters
        ----------
        norm
            Norm ||g|| of a gradient g.
        """
        clipped_model = copy(self)
        clipped_model.norm = norm
        return clipped_model

    def trained_with(self, loss: TrainingLoss) -> "StackedModel":
        """Return a copy of this model whose gradients are those of a loss; `losses` remains the plain cross-entropy.

        The two models share everything else.

        Parameters
        ----------
        loss
            Loss of a record in training.
        """
        trained_model = copy(self)
        trained_model.loss = loss
        return trained_model

    def sized_for_device(self, device: Device) -> "StackedModel":
        """Return a copy of this model that runs as many examples per pass as suits a device.

        The two models share everything else.

        Parameters
        ----------
        device
            Device on which the parameters are.
        """
        resized = copy(self)
        resized._scale = 1 if device is Device.CPU else pass_budgets.ON_A_CARD
        return resized

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
        examples = self._scale * pass_budgets.PASS_BUDGET // self.activations
        if not self.is_fast_when_clipping:  # the gradient of each user is formed
            examples = min(examples, pass_budgets.GRADIENT_BUDGET // self.layout.size)
        return max(1, examples)

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

        Here g is the gradient of one example's training loss with respect to all parameters.

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
            Clipping norm C in the norm `norm`, positive; None sums the gradients without clipping.
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
        records = GroupedRecords(features, labels)
        return self.clipped_sums(models, records, clipping_norm, batch_trials, taking_part, slack).total

    def clipped_sums(
        self,
        models: Tensor,
        records: GroupedRecords,
        clipping_norm: float | Tensor | None,
        batch_trials: int | None = None,
        taking_part: Tensor | None = None,
        slack: float = 0.0,
    ) -> ClippedSums:
        """Return each trial's sum over users of g min(1, C / ||g||), where g is the sum of a user's gradients.

        A user who has only some records in a trial contributes the clipped sum of these.

        Parameters
        ----------
        models
            Parameters of the models, float32 (trials, parameters).
        records
            Records, grouped by user; without users, each record is a user.
        clipping_norm
            Clipping norm C in the norm `norm`, positive, or one for each trial, float64 (trials,), which the sums of
            quantile bits belong to; None for no clipping.
        batch_trials
            As for `clipped_sum`.
        taking_part
            Whether a record is in a trial's sum, bool (trials, n), in the order before grouping; None for all records.
        slack
            As for `clipped_sum`.

        Examples
        --------
        >>> model = StackedModel(nn.Linear(2, 2, bias=False), (2,))
        >>> features, labels, users = torch.tensor([[3.0, 4.0], [3.0, 4.0]]), torch.tensor([0, 0]), torch.tensor([7, 7])
        >>> records = GroupedRecords.of(features, labels, users)
        >>> model.clipped_sums(torch.zeros(1, 4), records, None).total.tolist()
        [[-3.0, -4.0, 3.0, 4.0]]
        >>> round(float(model.clipped_sums(torch.zeros(1, 4), records, 1.0).total.norm()), 6)
        1.0
        """
        is_shared = taking_part is None and not records.is_own
        assert batch_trials is None or is_shared, "a part of a batch has not the shapes of its samples or own records"
        total = torch.zeros_like(models)
        is_adaptive = isinstance(clipping_norm, Tensor)
        bits = torch.zeros(len(models), dtype=torch.float64, device=models.device) if is_adaptive else None
        self.forget()
        for number, block in enumerate(records.blocks(self.examples_per_pass, taking_part)):
            width = self.trials_per_pass(block.width)
            for rows in pass_budgets.slices(len(models), width):
                full = min(width, (batch_trials or len(models)) - rows.start)
                index = _padded_rows(rows, full)
                norm = clipping_norm[index].unsqueeze(1) if isinstance(clipping_norm, Tensor) else clipping_norm
                sum_pass = ClippedSumPass(models[index], block.grouped_microbatch(rows), norm, slack)
                is_direct = number == 0 and index is rows  # the first pass writes its sums where they belong
                sums = total[rows] if is_direct else torch.empty_like(sum_pass.models)
                sums_of_bits = None if bits is None else bits.new_empty(len(sums))
                self._clipped_sum_pass(sum_pass, sums, sums_of_bits)
                trials = rows.stop - rows.start
                if not is_direct:
                    total[rows] += sums[:trials]
                if bits is not None and sums_of_bits is not None:
                    bits[rows] += sums_of_bits[:trials]
        return ClippedSums(total, bits)

    def _clipped_sum_pass(self, sum_pass: ClippedSumPass, total: Tensor, centred_bits: Tensor | None) -> None:
        if not self.is_fast_when_clipping:
            self.clipped_sum_generic(sum_pass, total, centred_bits)
        elif sum_pass.models.is_cuda:
            self.clipped_sum_graphed(sum_pass, total, centred_bits)
        else:
            self.clipped_sum_fast(sum_pass, total, centred_bits)

    def mean_gradients(self, models: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """Return the gradient of the mean training loss over the examples in every trial, float32 (trials, parameters).

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
        total = torch.zeros_like(models)
        inputs = ClippedSumInputs(features, labels)
        for rows, examples in self.passes(len(models), inputs.width):
            gradients = self.summed_gradients(models[rows], inputs.microbatch(rows, examples))
            for name, columns in self.layout.slices().items():
                total[rows, columns] += gradients[name].reshape(rows.stop - rows.start, -1)
        return total.div_(inputs.width)

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
        for rows, slice_of_examples in self.passes(len(models), len(features)):
            by_start.setdefault(slice_of_examples.start, []).append(
                self.logits_pass(models[rows], features[slice_of_examples])
            )
        portions = [batches[0] if len(batches) == 1 else torch.cat(batches) for batches in by_start.values()]
        del by_start  # logits of many trials take memory: no more than two copies are held
        return portions[0] if len(portions) == 1 else torch.cat(portions, dim=1)

    def losses(self, models: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """Return the plain cross-entropy losses of examples under every model, (trials, n).

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
        for slice_of_examples in pass_budgets.slices(examples, self.examples_per_pass):
            for rows in pass_budgets.slices(
                trials, self.trials_per_pass(slice_of_examples.stop - slice_of_examples.start)
            ):
                yield rows, slice_of_examples


def _built(
    spec: ModelSpec, records: ModelCheckRecords | None = None, profile: ModelExecutionProfile | None = None
) -> StackedModel:
    template = model_template(spec, alone=profile is not None)
    prepare(template, spec.inputs)
    if profile is not None:
        backbone = split_backbone(template, spec.feature_shape) if profile.has_backbone else None
        shape = spec.feature_shape if backbone is None else backbone.output_shape
        model = StackedModel(template, shape, profile=profile)
        model.backbone = backbone
        return model
    tried = records or ModelCheckRecords(
        torch.rand(PROBE_EXAMPLES, *spec.feature_shape, generator=seeded()), names_of(PROBE_EXAMPLES)
    )
    cautions = check_logits(template, spec.classes, tried)
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


def _padded_rows(rows: slice, count: int) -> slice | Tensor:
    """Return the indices of `count` trials: those of `rows`, and copies of the last one to fill up a batch's shapes."""
    if count <= rows.stop - rows.start:
        return rows
    return torch.arange(rows.start, rows.start + count).clamp(max=rows.stop - 1)


@lru_cache(maxsize=4)
def _of_factory(
    spec: ModelSpec,
    factory: Callable[..., nn.Module],
    records: ModelCheckRecords | None,
    profile: ModelExecutionProfile | None,
) -> StackedModel:
    """Build the stacked model of a user's factory; for each factory, a process builds and checks the model once."""
    return _built(spec, records, profile)
