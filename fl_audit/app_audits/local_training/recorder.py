"""Recorder of a training with Opacus; it stores facts about the training and does not change it.

Patches of Opacus and torch call the recorder (`patches.recorded`). In a replay, the recorder can also repeat the
mini-batches, random states and weights of an earlier training, so that single steps can be compared.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from opacus.optimizers import AdaClipDPOptimizer
from torch import Tensor, nn

from fl_audit.app_audits.local_training.accounting_record import AccountingRecord
from fl_audit.app_audits.local_training.model_snapshots import PrivateModels
from fl_audit.app_audits.local_training.opacus_introspection import (
    count_multiplier_of,
    count_of,
    coupled_layers,
    inner_sampler,
    is_part,
    make_private_call,
    multiplier_of,
    noise_of,
    positions_of,
    put_release,
    record_gradients_of,
    sampling_of,
)
from fl_audit.app_audits.local_training.training_facts import (
    Batch,
    MakePrivateCall,
    NonPrivateStep,
    PrivateStep,
    RecordedTraining,
    ReplayInputs,
    StopReplay,
    TrainingOutputs,
    UnaccountedTensorChange,
    batches_of_one_loader,
)
from fl_audit.generator_states import GeneratorStates

_PER_STEP = 20  # largest number of batches that are stored for each stored step


class Recorder:
    """Collector of the facts of one training; the patches of `patches.recorded` call its methods.

    Parameters
    ----------
    kept_steps
        Number of steps, from the first, whose sums, gradients and initial weights are stored.
    followed
        An earlier training that this one follows in a replay; None if there is none.
    is_short
        Whether the exception `StopReplay` ends the training after `kept_steps` steps.
    has_given_releases
        Whether public random numbers take the place of the gradients that private steps release.
    without
        Position of a record that is left out of every mini-batch; None to leave none out.
    """

    def __init__(
        self,
        kept_steps: int = 0,
        followed: ReplayInputs | None = None,
        is_short: bool = False,
        has_given_releases: bool = False,
        without: int | None = None,
    ) -> None:
        self._without = without
        self.before_draw = _nothing  # called before a loader begins a pass, and before it draws
        self.after_draw = _nothing  # called after a loader has drawn
        self.after_last_draw = _nothing  # called where a loader has nothing more to draw
        self._has_given_releases = has_given_releases
        self.edit: Callable[[Any], Any] | None = None  # modifies the data set given to an engine; None for no change
        self.track = ReplayInputs()
        self._kept = kept_steps
        self._followed = followed
        self.dataset: Any = None  # the data set of the first engine
        self._is_short = is_short
        self.engines, self.batches, self.steps = list[MakePrivateCall](), list[Batch](), list[PrivateStep]()
        self.outside = list[NonPrivateStep]()
        self.moved = list[UnaccountedTensorChange]()
        self._noised = self._applied = 0  # the last: number of steps without Opacus
        self._measures = list[float]()
        self._start_seed = torch.initial_seed()
        self.target: tuple[float, float] | None = None  # epsilon and delta that an engine is asked for
        self.accounting = AccountingRecord()
        self._loaders, self._fresh = dict[int, int](), list[int]()
        self._batches_of_step: tuple[int, ...] = ()  # mini-batches of the last step without Opacus
        self._pending = set[int]()  # optimizers that have noised gradients to apply
        self.models = PrivateModels()
        self._ahead = dict[int, deque[Batch]]()  # batches that workers of a loader prepare, by its pass
        self._coupled = dict[str, None]()
        self._stepped = list[tuple[NonPrivateStep, list[Tensor]]]()
        self._inside = self.is_random = False  # the latter: whether code between a batch and its step drew
        self._alive = list[object]()  # keeps identities from being used twice

    # Calls from the patches.

    def record_private_model(self, module: nn.Module) -> None:
        """Record a model that Opacus makes private."""
        self.models.modules.append(module)

    def knows_optimizer(self, optimizer: Any) -> None:
        """Record an optimizer of Opacus, and the optimizer that it wraps."""
        self.models.optimizers[id(optimizer.original_optimizer)] = optimizer
        self._alive.append(optimizer)

    def makes_engine(self, engine: Any, request: Mapping[str, Any], returned: tuple[Any, ...]) -> None:
        """Record a call of Opacus's `PrivacyEngine.make_private`."""
        self.accounting.accountant = engine.accountant
        if self.dataset is None:
            self.dataset = request["data_loader"].dataset
        self.track.private = self.dataset
        self.engines.append(make_private_call(engine, request, returned, self.target))
        self._match_before(request["module"])
        self.models.keep(returned[1])

    @property
    def is_of_replay(self) -> bool:
        """Whether steps are compared with another training; workers of data loaders must then not load data ahead."""
        return self._kept > 0

    def record_draws(self, iterator: Any, sample: Any) -> Any:
        """Record the positions of the records that a data loader has drawn, and return the positions to be used.

        In a training the drawn positions are used. In a replay, the positions that the earlier training has used at
        this draw take their place.

        `sample`: Anything else is returned unchanged and not recorded.
        """
        positions = positions_of(sample)
        if positions is None:
            return sample
        if iterator._num_workers:
            # Workers prepare batches ahead of the step that is made of them.
            self._alive.append(iterator)
            self._ahead.setdefault(id(iterator), deque()).append(self._batch(iterator, positions))
            return sample
        number = len(self.batches)
        chosen = None
        if self._followed is not None and number < len(self._followed.batches):
            chosen = list(self._followed.batches[number])
        if self._without in positions:
            chosen = [position for position in positions if position != self._without]
        self._follow(number)
        self._note_batch(self._batch(iterator, positions if chosen is None else chosen), positions, iterator._dataset)
        return sample if chosen is None else chosen

    def record_batch(self, iterator: Any) -> None:
        """Record a mini-batch when a data loader with workers hands it out to the training.

        Such a loader draws several mini-batches in advance, and hands out the oldest one first.
        """
        if waiting := self._ahead.get(id(iterator)):
            batch = waiting.popleft()
            self._note_batch(batch, list(batch.indices), iterator._dataset)

    def _batch(self, iterator: Any, chosen: list[int]) -> Batch:
        sampler = iterator._index_sampler
        if id(iterator) not in self._loaders:
            self._loaders[id(iterator)] = len(self._loaders)
            self._alive.append(iterator)
        inner = inner_sampler(sampler)
        return Batch(
            tuple(chosen),
            self._loaders[id(iterator)],
            sampling_of(sampler),
            type(inner).__name__,
            getattr(inner, "sample_rate", None),
            count_of(iterator._dataset),
            not is_part(sampler),
        )

    def _note_batch(self, batch: Batch, positions: list[int], dataset: object) -> None:
        self._fresh.append(len(self.batches))
        self.batches.append(batch)
        track = self.track
        if len(track.batches) < _PER_STEP * self._kept:
            track.batches.append(positions)
            track.datasets.append(dataset)
            track.norms.append([float(optimizer.max_grad_norm) for optimizer in self._adaptive()])
            track.states.append(GeneratorStates.current())
            # Weights are needed for the steps that are compared; those of many batches would fill the memory.
            live = self.models.tensors() if self._keeps else {}
            track.weights.append({name: value.detach().cpu().clone() for name, value in live.items()})

    def _follow(self, number: int) -> None:
        """Set random states, weights and clipping norms to those that an earlier training had at mini-batch `number`.

        Nothing is done unless this training replays an earlier one.
        """
        track = self._followed
        if track is None or number >= len(track.states):
            return
        track.states[number].restore()
        self.models.set_to(track.weights[number])
        for optimizer, norm in zip(self._adaptive(), track.norms[number], strict=False):
            optimizer.max_grad_norm = norm

    def _adaptive(self) -> list[Any]:
        return [optimizer for optimizer in self.models.optimizers.values() if isinstance(optimizer, AdaClipDPOptimizer)]

    def makes_step(self, optimizer: Any, call: Callable[[], Any]) -> Any:
        """Execute a call of Opacus's `DPOptimizer.pre_step`, record the step, and return the result of the call."""
        if self._inside:
            return call()
        if self._is_short and not self._keeps:
            raise StopReplay
        self._inside = True
        try:
            return self._made_step(optimizer, call)
        finally:
            self._inside = False

    def _made_step(self, optimizer: Any, call: Callable[[], Any]) -> Any:
        self.knows_optimizer(optimizer)
        self.moved += self.models.changed_tensors(optimizer, is_at_end=False)
        if len(self.track.states) == len(self.batches) > 0:
            self.is_random |= not GeneratorStates.current().is_same(self.track.states[-1])
        self._coupled |= dict.fromkeys(name for module in self.models.modules for name in coupled_layers(module))
        is_kept = self._keeps
        rows, gradients = record_gradients_of(optimizer, is_kept)
        multiplier, norm = multiplier_of(optimizer), float(optimizer.max_grad_norm)
        result = call()
        is_noised = bool(result) and bool(optimizer.params)
        noise, total, sizes = noise_of(optimizer, self._start_seed) if is_noised else (None, None, ())
        self.steps.append(
            PrivateStep(
                type(optimizer).__name__,
                self._fed(rows),
                bool(self._fresh),
                rows,
                is_noised,
                False,
                multiplier,
                norm,
                float(optimizer.param_groups[0]["lr"]),
                noise,
                total if is_kept else None,
                gradients,
                sizes,
                optimizer.expected_batch_size,
                count_multiplier_of(optimizer),
            )
        )
        self._fresh = []
        if is_noised and self._has_given_releases:
            put_release(optimizer, self._noised, norm)
        if is_noised:
            self._noised += 1
            self._pending.add(id(optimizer))
        return result

    def inner_step(self, inner: Any, *_: Any) -> None:
        """Record that a torch optimizer has taken a step, with or without privacy."""
        optimizer = self.models.optimizers.get(id(inner))
        if optimizer is not None and id(optimizer) in self._pending:
            self._pending.discard(id(optimizer))
            self._apply(optimizer)
            return
        moved = [param for group in inner.param_groups for param in group["params"] if param.grad is not None]
        step = NonPrivateStep(type(inner).__name__, not self.engines, optimizer is not None, 0)
        if self.engines:
            parameters = {id(parameter) for module in self.models.modules for parameter in module.parameters()}
            self.outside.append(replace(step, tensors=sum(id(parameter) in parameters for parameter in moved)))
            return
        self._stepped.append((step, [parameter.detach() for parameter in moved]))

    @property
    def steps_taken(self) -> int:
        """Number of steps with noise so far; without any, that of the steps without Opacus."""
        return self._noised or self._applied

    def batches_of_applied_step(self) -> tuple[tuple[int, ...], bool]:
        """Return the mini-batches of a step without Opacus, and whether there are any new ones.

        Without new ones, the step has that of the step before; () if that had several, as where all are drawn at once.
        """
        self._applied += 1
        is_fresh = bool(self._fresh)
        if is_fresh:
            self._batches_of_step = self._fed(None)
        elif len(self._batches_of_step) > 1:
            self._batches_of_step = ()
        self._fresh = []
        return self._batches_of_step, is_fresh

    def record_measure(self, measure: Any) -> None:
        """Record a loss, or another measure, by which a scheduler sets the learning rate."""
        self._measures.append(float(measure))

    # The resulting facts.

    def training(self, outputs: TrainingOutputs | None = None, client: int = 0, number: int = 1) -> RecordedTraining:
        """Return all recorded facts of the training, after it has ended."""
        for optimizer in self.models.optimizers.values():
            self.moved += self.models.changed_tensors(optimizer, is_at_end=True)
        return RecordedTraining(
            tuple(self.engines),
            tuple(self.batches),
            tuple(self.steps),
            tuple(self.accounting.answers),
            tuple(self.outside),
            tuple(dict.fromkeys(self.moved)),
            self.accounting.counted,
            self.accounting.history,
            tuple(self._coupled),
            tuple(self._measures),
            outputs or TrainingOutputs(),
            client,
            number,
        )

    def outputs_of(self, arrays: Mapping[str, Tensor], numbers: Mapping[str, float]) -> TrainingOutputs:
        """Return a client's outputs: its metrics, and whether its returned tensors are those that Opacus made
        private."""
        unknown, earlier = self.models.compared(arrays)
        return TrainingOutputs(dict(numbers), unknown=unknown, earlier=earlier)

    # Helpers.

    def _fed(self, rows: int | None) -> tuple[int, ...]:
        if not self._fresh:
            return self.steps[-1].batches if self.steps else ()
        return batches_of_one_loader(self._fresh, self.batches, rows)

    def _apply(self, optimizer: Any) -> None:
        number_of_step = next(number for number in reversed(range(len(self.steps))) if self.steps[number].is_noised)
        step = self.steps[number_of_step]
        self.steps[number_of_step] = replace(step, is_applied=True)
        self.models.keep(optimizer, is_step=True)

    @property
    def _keeps(self) -> bool:
        """Whether sums and gradients of the present step are stored."""
        return self._noised < self._kept

    def _match_before(self, module: nn.Module) -> None:
        """Record the optimizer steps that trained a model before it was made private, and therefore without privacy.

        For each earlier step, the number of its tensors that are parameters of `module` is stored.
        """
        for step, moved in self._stepped:
            tensors = [value.detach() for value in module.parameters()]
            same = sum(
                any(tensor.shape == mine.shape and torch.equal(tensor, mine) for mine in tensors) for tensor in moved
            )
            self.outside.append(replace(step, tensors=same))
        self._stepped = []


def _nothing() -> None:
    """Do nothing."""
