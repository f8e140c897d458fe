"""A recorder of Opacus at work: it writes down facts about one training, and changes nothing of it.

`recorded` patches the classes of Opacus and torch for the time of a block, and puts them back afterwards. A replay may
be led: batches, random states and weights then follow those of an earlier training, so that single steps are compared.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from fl_audit.local_training.facts import (
    Batch,
    Moved,
    NamedEpsilon,
    OutsideStep,
    PrivateEngine,
    PrivateStep,
    RecordedTraining,
    WhatLeft,
)
from fl_audit.local_training.readings import (
    are_same,
    coupled_layers,
    history_of,
    inner_sampler,
    is_part,
    named_tensors,
    noise_of,
    sampling_of,
)
from fl_audit.local_training.replay import Enough, ReplayLead, Track, random_states, set_random_states

_PER_STEP = 20  # batches at most that are kept for each step that is
_MOST_ROWS = 5_000_000  # numbers of the gradients of single records that are kept of a step
_PREFIX = "_module."  # of names within the module that Opacus puts around a model


class Recorder:
    """Collects the facts of one training; see `patches.recorded` for what calls it.

    Parameters
    ----------
    kept_steps
        Of how many first steps the sums and gradients are kept, and the weights at so many first batches.
    lead
        An earlier training to follow; None for none.
    is_short
        Whether the training is ended by `Enough` after the steps that are kept.
    edit
        Changes the data set that an engine is given; None for no change.
    """

    def __init__(
        self,
        kept_steps: int = 0,
        lead: ReplayLead | None = None,
        is_short: bool = False,
        edit: Callable[[Any], Any] | None = None,
    ) -> None:
        self.edit, self.track, self._kept, self._lead = edit, Track(), kept_steps, lead
        self.dataset: Any = None  # that of the first engine
        self._is_short = is_short
        self.engines, self.batches, self.steps = list[PrivateEngine](), list[Batch](), list[PrivateStep]()
        self.answers, self.outside, self.moved = list[NamedEpsilon](), list[OutsideStep](), list[Moved]()
        self.counted = self.plateaus = self._asked = 0
        self.target: tuple[float, float] | None = None  # epsilon and delta that an engine is asked for
        self._accountant: Any = None
        self._loaders, self._fresh = dict[int, int](), list[int]()
        self._optimizers = dict[int, Any]()  # what Opacus put around an optimizer, by the identity of the latter
        self._pending = set[int]()  # optimizers that have noised gradients to apply
        self._modules = list[nn.Module]()
        self._after: dict[str, Tensor] | None = None  # tensors of the model after the last step
        self._after_of = 0  # identity of the optimizer that took it
        self._snapshots = list[dict[str, Tensor]]()
        self._stepped = list[tuple[OutsideStep, list[Tensor]]]()
        self._inside = self.is_random = False  # the latter: whether code between a batch and its step drew
        self._alive = list[object]()  # keeps identities from being used twice

    # What the patches tell.

    def knows_module(self, module: nn.Module) -> None:
        """Note a model that is made private."""
        self._modules.append(module)

    def knows_optimizer(self, optimizer: Any) -> None:
        """Note an optimizer of Opacus, and which optimizer it wraps."""
        self._optimizers[id(optimizer.original_optimizer)] = optimizer
        self._alive.append(optimizer)

    def makes_engine(self, engine: Any, asked: Mapping[str, Any], made: tuple[Any, ...], target: Any) -> None:
        """Note one call of `make_private`.

        Parameters
        ----------
        engine, asked, made, target
            The engine, its arguments by name, what it returned, and the epsilon and delta that it is to reach or None.
        """
        loader, optimizer, given = made[-1], made[1], asked["data_loader"]
        sampler = getattr(loader, "batch_sampler", None) or getattr(loader, "sampler", None)
        norms = asked["max_grad_norm"]
        module = asked["module"]
        self._accountant = engine.accountant
        self.dataset = given.dataset if self.dataset is None else self.dataset
        self.engines.append(
            PrivateEngine(
                float(optimizer.noise_multiplier),
                tuple(map(float, norms)) if isinstance(norms, (list, tuple)) else (float(norms),),
                str(asked.get("clipping", "flat")), bool(asked.get("poisson_sampling", True)), sampling_of(sampler),
                type(inner_sampler(sampler)).__name__, 1 / max(len(loader), 1), optimizer.expected_batch_size,
                len(loader.dataset), len(loader), given.batch_size, bool(given.drop_last),
                str(engine.accountant.mechanism()), history_of(engine.accountant), target,
            )
        )  # fmt: skip
        self._match_before(module)
        self._after, self._after_of = self._tensors(optimizer), id(optimizer)

    def draws(self, iterator: Any, drawn: Any) -> Any:
        """Note the positions that a loader has drawn, and return those that it hands out.

        Parameters
        ----------
        iterator, drawn
            The pass over the loader, and the positions.
        """
        number = len(self.batches)
        if not isinstance(drawn, list):
            return drawn
        chosen = drawn if self._lead is None else self._lead.batch(number)
        chosen = drawn if chosen is None else chosen
        if self._lead is not None and number < len(self._lead.track.states):
            set_random_states(self._lead.track.states[number])
            self._set_weights(self._lead.track.weights[number])
        sampler, dataset = iterator._index_sampler, iterator._dataset
        if id(iterator) not in self._loaders:
            self._loaders[id(iterator)] = len(self._loaders)
            self._alive.append(iterator)
        inner = inner_sampler(sampler)
        is_whole = not is_part(sampler)
        self.batches.append(
            Batch(
                tuple(map(int, chosen)), self._loaders[id(iterator)], sampling_of(sampler), type(inner).__name__,
                getattr(inner, "sample_rate", None), len(dataset), is_whole,
            )
        )  # fmt: skip
        self._fresh.append(number)
        if len(self.track.batches) < _PER_STEP * self._kept:
            self.track.batches.append(list(map(int, drawn)))
            self.track.states.append(random_states())
            self.track.weights.append({name: value.detach().cpu().clone() for name, value in self._own().items()})
        return chosen

    def makes_step(self, optimizer: Any, call: Callable[[], Any]) -> Any:
        """Note one call of `pre_step`, which this makes.

        Parameters
        ----------
        optimizer, call
            The optimizer of Opacus, and the call.

        Raises
        ------
        Enough
            If enough steps of a replay have been compared.
        """
        if self._inside:
            return call()
        if self._is_short and not self._keeps:
            raise Enough
        self._inside = True
        try:
            return self._made_step(optimizer, call)
        finally:
            self._inside = False

    def _made_step(self, optimizer: Any, call: Callable[[], Any]) -> Any:
        self.knows_optimizer(optimizer)
        self._note_moved(optimizer, is_at_end=False)
        if len(self.track.states) == len(self.batches) > 0:
            self.is_random |= not torch.equal(self.track.states[-1]["torch"], torch.get_rng_state())
        rows, gradients = self._rows(optimizer)
        multiplier, norm, counted = float(optimizer.noise_multiplier), float(optimizer.max_grad_norm), self.counted
        made = call()
        is_noised = bool(made) and bool(optimizer.params)
        noise, total, sizes = noise_of(optimizer) if is_noised else (None, None, ())
        is_kept = self._keeps
        self.steps.append(
            PrivateStep(
                type(optimizer).__name__, self._fed(), bool(self._fresh), rows, is_noised, False, multiplier, norm,
                float(optimizer.param_groups[0]["lr"]), self.counted - counted, noise, total if is_kept else None,
                gradients if is_kept else None, sizes, optimizer.expected_batch_size,
            )
        )  # fmt: skip
        self._fresh = []
        if is_noised:
            self._pending.add(id(optimizer))
        return made

    def inner_step(self, inner: Any, *_: Any) -> None:
        """Note a step of any optimizer of torch, after it was made."""
        optimizer = self._optimizers.get(id(inner))
        if optimizer is not None and id(optimizer) in self._pending:
            self._pending.discard(id(optimizer))
            self._apply(optimizer)
            return
        moved = [one for group in inner.param_groups for one in group["params"] if one.grad is not None]
        found = OutsideStep(type(inner).__name__, not self.engines, optimizer is not None, 0)
        if self.engines:
            own = {id(one) for module in self._modules for one in module.parameters()}
            found = OutsideStep(
                found.optimizer, False, found.is_wrapped, sum(id(one) in own for one in moved)
            )  # fmt: skip
            self.outside.append(found)
            return
        self._stepped.append((found, [one.detach() for one in moved]))

    def counts(self, accountant: Any) -> None:
        """Note that an accountant counted a step."""
        self.counted += 1
        self._accountant = accountant

    @contextmanager
    def answering(self) -> Iterator[bool]:
        """Give whether an accountant is asked by code other than an accountant."""
        self._asked += 1
        try:
            yield self._asked == 1
        finally:
            self._asked -= 1

    def answers_epsilon(self, accountant: Any, delta: object, epsilon: object) -> None:
        """Note an epsilon that an accountant named; those of a search for a noise multiplier are no claims.

        Parameters
        ----------
        accountant, delta, epsilon
            The accountant, what it was asked for, and what it named.
        """
        frame = sys._getframe(2)
        for _ in range(4):
            if frame.f_code.co_name == "get_noise_multiplier":
                return
            if frame.f_back is None:
                break
            frame = frame.f_back
        with suppress(TypeError, ValueError):
            done = sum(step.is_noised for step in self.steps)
            self.answers.append(NamedEpsilon(float(epsilon), float(delta), history_of(accountant), done))  # type: ignore[arg-type]

    # What is made of it.

    def training(self, left: WhatLeft | None = None, client: int = 0, number: int = 1) -> RecordedTraining:
        """Return the facts of the training that has ended.

        Parameters
        ----------
        left, client, number
            What left the client, as of `left_of`; the number of the client, from 0; and the round, from 1.
        """
        for optimizer in list(self._optimizers.values())[-1:]:
            self._note_moved(optimizer, is_at_end=True)
        return RecordedTraining(
            tuple(self.engines), tuple(self.batches), tuple(self.steps), tuple(self.answers), tuple(self.outside),
            tuple(dict.fromkeys(self.moved)), self.counted, history_of(self._accountant),
            tuple(dict.fromkeys(name for module in self._modules for name in coupled_layers(module))), self.plateaus,
            left or WhatLeft(), client, number,
        )  # fmt: skip

    def left_of(
        self, arrays: Mapping[str, Tensor], numbers: Mapping[str, float], evaluation: Mapping[str, float]
    ) -> WhatLeft:
        """Return what left, seen beside the private model.

        Parameters
        ----------
        arrays, numbers, evaluation
            Tensors by name, metrics of the training, and metrics of an evaluation.
        """
        known = {} if self._after is None else self._after
        names = {name.removeprefix(_PREFIX): value.detach().cpu() for name, value in arrays.items()}
        own = {name: value for name, value in names.items() if name in known}
        unknown = tuple(name for name in names if known and own and name not in known)
        earlier = None
        if own and not are_same(own, known):
            found = (place for place, shot in enumerate(self._snapshots, 1) if are_same(own, shot))
            earlier = next(found, None)
        return WhatLeft(dict(numbers), dict(evaluation), unknown, earlier)

    # How it is found out.

    def _fed(self) -> tuple[int, ...]:
        """Return the batches of a step: of those drawn since the last one, those of the loader that drew last."""
        if not self._fresh:
            return self.steps[-1].batches if self.steps else ()
        last = self.batches[self._fresh[-1]].loader
        return tuple(number for number in self._fresh if self.batches[number].loader == last)

    def _rows(self, optimizer: Any) -> tuple[int | None, Any]:
        """Return how many gradients of records a step has, and these if they are kept."""
        with suppress(Exception):  # modes without gradients of single records
            found = [value.detach() for value in optimizer.grad_samples]
            rows = len(found[0])
            size = sum(value.numel() for value in found)
            if not self._keeps or size > _MOST_ROWS:
                return rows, None
            flat = torch.cat([value.reshape(rows, -1) for value in found], dim=1)
            return rows, flat.double().cpu().numpy().copy()
        return None, None

    def _apply(self, optimizer: Any) -> None:
        place = max(number for number, step in enumerate(self.steps) if step.is_noised)
        step = self.steps[place]
        self.steps[place] = PrivateStep(**{**vars(step), "is_applied": True})
        self._after, self._after_of = self._tensors(optimizer), id(optimizer)
        self._snapshots.append(self._after)

    @property
    def _keeps(self) -> bool:
        """Whether sums and gradients of the step that is made are kept."""
        return sum(step.is_noised for step in self.steps) < self._kept

    def _own(self) -> dict[str, Tensor]:
        """Return the tensors of the model that is trained, by name; none before an engine or optimizer is made."""
        return self._live(next(reversed(self._optimizers.values()))) if self._optimizers else {}

    def _set_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Give the model the weights that it had in the earlier training."""
        live = self._own()
        with torch.no_grad():
            for name, value in weights.items():
                if name in live and live[name].shape == value.shape:
                    live[name].copy_(value)
        if weights and self._after is not None:
            self._after = {name: value.detach().cpu().clone() for name, value in live.items()}

    def _live(self, optimizer: Any) -> dict[str, Tensor]:
        """Return the tensors of the model whose parameters an optimizer has, by name."""
        own = {id(one) for one in optimizer.params}
        for module in reversed(self._modules):
            if any(id(one) in own for one in module.parameters()):
                return {name.removeprefix(_PREFIX): value for name, value in named_tensors(module)}
        return {str(place): value for place, value in enumerate(optimizer.params)}

    def _tensors(self, optimizer: Any) -> dict[str, Tensor]:
        return {name: value.detach().cpu().clone() for name, value in self._live(optimizer).items()}

    def _note_moved(self, optimizer: Any, is_at_end: bool) -> None:
        """Note tensors that changed since the last step."""
        if self._after is None or self._after_of != id(optimizer):
            return
        for name, value in self._live(optimizer).items():
            old = self._after.get(name)
            # Weights that are no numbers any more are equal to themselves here.
            if old is None or torch.allclose(old, value.detach().cpu(), rtol=0, atol=0, equal_nan=True):
                continue
            is_parameter = isinstance(value, nn.Parameter)
            self.moved.append(Moved(name, is_parameter, is_parameter and not value.requires_grad, is_at_end))

    def _match_before(self, module: nn.Module) -> None:
        """Note the steps that were taken on a model before it was made private."""
        for found, moved in self._stepped:
            own = [value.detach() for value in module.parameters()]
            same = sum(any(one.shape == mine.shape and torch.equal(one, mine) for mine in own) for one in moved)
            self.outside.append(OutsideStep(found.optimizer, True, found.is_wrapped, same))
        self._stepped = []
