"""Observe the gradients that torch's optimizers apply in a training without Opacus, or put public numbers there.

With public numbers in the place of every gradient, the models of a training are the same whatever its records and its
noise are. So the gradients of each step can be compared between trainings that differ in a record, or in the noise.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from types import MethodType
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode

from fl_audit.app_audits.local_training.opacus_introspection import is_predictable
from fl_audit.app_audits.local_training.recorder import Recorder
from fl_audit.app_audits.local_training.training_facts import StopReplay
from fl_audit.array_types import Floats32
from fl_audit.generator_states import GeneratorStates, seed_generators

_COMMON, _REDRAWN, _OWN, _GIVEN = range(4)
"""Purposes of seeds: common to all runs, at a backward pass, for a training's own generators, for public numbers."""


@dataclass(frozen=True)
class ObservationPlan:
    """Instructions for an observer of gradients; by default it keeps no gradients and changes nothing."""

    kept_steps: int = 0  # number of steps, from the first, whose gradients are kept
    # Root mean squares of the public numbers that take the place of each step's gradient; None to leave gradients as
    # they are. The generators then get states that all runs have in common, after each step or before each draw.
    given_scales: tuple[float, ...] | None = None
    is_reset_at_draws: bool = False  # whether they get them before a loader draws a mini-batch, and not after a step
    redraw: int | None = None  # number of the redraw of the noise; None for the noise of the first training
    without: int | None = None  # position of a record that is left out of every mini-batch; None for no record
    last_step: int | None = None  # number of steps after which the training is ended; None for its own end
    seed: int = 0  # of all states and public numbers that runs have in common, and of redraws


@dataclass(frozen=True)
class AppliedGradient:
    """Gradient that one of torch's optimizers applied in a step."""

    optimizer: str  # class of the optimizer
    number: int  # number of the optimizer, from 0, in the order of their first steps
    learning_rate: float
    batches: tuple[int, ...]  # numbers of the mini-batches that were drawn for the step
    is_fresh: bool  # whether a mini-batch was drawn for the step
    shapes: tuple[tuple[int, ...], ...]  # shapes of the tensors that have a gradient
    scale: float  # root mean square of the gradient
    passes: int  # number of backward passes since the generators had states that all runs have in common
    is_random: bool  # whether torch's generator was drawn from between these states and the first backward pass
    seed: int  # initial seed of torch's generator
    is_predictable: bool  # whether the training gave that generator a seed that others can try
    values: Floats32 | None = None  # (parameters,); None if it is not kept


class GradientObserver:
    """Observer of the steps that torch's optimizers take without Opacus, in one training."""

    def __init__(self, recorder: Recorder, plan: ObservationPlan) -> None:
        self._recorder, self.plan = recorder, plan
        self.applied = list[AppliedGradient]()
        self.own_optimizers = dict[str, None]()  # classes of optimizers that change parameters by code of their own
        self.reads_numpy = False  # whether arrays of numpy came in between a backward pass and its step
        self._start_seed = torch.initial_seed()
        self._passes = self._draws = self._resets = 0
        self.passes = 0  # number of all backward passes
        self._is_inside = self._is_random = self._is_moved = False
        self._state = _torch_state()  # state of torch's generator after the last reset or draw
        if self.plan.given_scales is not None and self.plan.is_reset_at_draws:
            recorder.before_draw, recorder.after_draw = self._reset, self._keep_state
            recorder.after_last_draw = self._undo_reset
        self._after = dict[int, tuple[Tensor, Tensor]]()  # parameters with copies of them after their last step
        self._standard = dict[int, Optimizer]()  # optimizers that took a step of torch's own, by their identity
        self._is_predictable = dict[int, tuple[torch.Generator, bool]]()

    def step(self, optimizer: Optimizer, method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Observe the step of one of torch's optimizers, and return its result."""
        self._standard[id(optimizer)] = optimizer
        if self._is_inside or id(optimizer) in self._recorder.models.optimizers:
            return method(*args, **kwargs)
        closure = args[0] if args else kwargs.get("closure")
        self._is_inside = True
        try:
            if closure is None:
                self._observe(optimizer)
                result = method(*args, **kwargs)
            else:
                result = method(lambda: self._closed(optimizer, closure))
        finally:
            self._is_inside = False
        self._end_step(optimizer)
        return result

    def _closed(self, optimizer: Optimizer, closure: Callable[[], Any]) -> Any:
        loss = closure()
        self._observe(optimizer)
        return loss

    def _observe(self, optimizer: Optimizer) -> None:
        parameters = [param for group in optimizer.param_groups for param in group["params"] if param.grad is not None]
        if not parameters:
            return
        self._is_moved = self.moves_weights
        number = len(self.applied)
        flat = torch.cat([_dense(parameter.grad).reshape(-1).float() for parameter in parameters]).cpu().numpy().copy()
        batches, is_fresh = self._recorder.batches_of_applied_step()
        seed, is_first = torch.initial_seed(), number == 0 and self.plan.given_scales is None
        kind = type(optimizer).__name__, list(self._standard).index(id(optimizer))
        rate = float(optimizer.param_groups[0]["lr"])
        is_known = is_first and seed != self._start_seed and is_predictable(torch.default_generator)
        self.applied.append(
            AppliedGradient(
                *kind,
                rate,
                batches,
                is_fresh,
                tuple(tuple(parameter.shape) for parameter in parameters),
                float(np.sqrt(np.mean(flat.astype(np.float64) ** 2))),
                self._passes,
                self._is_random,
                seed,
                is_known,
                flat if number < self.plan.kept_steps else None,
            )
        )
        if self.plan.given_scales:
            self._put(parameters, self.plan.given_scales[min(number, len(self.plan.given_scales) - 1)], number)

    def _put(self, tensors: list[Tensor], scale: float, number: int) -> None:
        source = torch.Generator().manual_seed(_seed(self.plan.seed, _GIVEN, number))
        with torch._C.DisableTorchFunction():  # these draws are no draws of the training
            for tensor in tensors:
                tensor.grad = (scale * torch.randn(tensor.shape, generator=source)).to(tensor)

    @property
    def moves_weights(self) -> bool:
        """Whether code beside the steps has changed parameters since the first step."""
        return self._is_moved or any(not torch.equal(value, copy) for value, copy in self._after.values())

    def _end_step(self, optimizer: Optimizer) -> None:
        is_whole_run = self.plan.redraw is None and self.plan.last_step is None
        if self.plan.given_scales is not None and is_whole_run:
            stepped = [param for group in optimizer.param_groups for param in group["params"]]
            self._after |= {id(parameter): (parameter, parameter.detach().clone()) for parameter in stepped}
        scales = self.plan.given_scales
        # What is drawn after the last step is noise, if anything.
        if scales is not None and not self.plan.is_reset_at_draws and len(self.applied) < len(scales):
            self._reset()
        if self.plan.last_step is not None and len(self.applied) >= self.plan.last_step:
            raise StopReplay

    def _reset(self) -> None:
        """Give the generators the states that all runs have in common here."""
        self._before_reset = GeneratorStates.current(), self._passes
        self._passes = 0
        self._resets += 1
        seed_generators(np.random.default_rng([self.plan.seed, _COMMON, self._resets]))
        self._keep_state()

    def _undo_reset(self) -> None:
        """Give the generators the states that they had before the last reset: what is drawn next may be noise."""
        states, self._passes = self._before_reset
        states.restore()

    def _keep_state(self) -> None:
        self._state, self._is_random = _torch_state(), False

    def end_of_any_step(self, optimizer: Any, *_: Any) -> None:
        """Note an optimizer that changes parameters without a step of one of torch's optimizers."""
        if id(optimizer) not in self._standard:
            self.own_optimizers[type(optimizer).__name__] = None

    def backward(self, call: Callable[[], Any]) -> Any:
        """Compute gradients; a redraw gives the generators new states before and after the first ones of a step."""
        if self._passes == 0 and self.plan.given_scales is not None:
            self._is_random = _torch_state() != self._state
        # Later passes of a step, as of one for each record, draw what follows.
        is_redrawn = self.plan.redraw is not None and self._passes == 0
        if is_redrawn:
            self._redraw_shared()
        result = call()
        self._passes += 1
        self.passes += 1
        if is_redrawn:
            self._redraw_shared()
        return result

    def _redraw_shared(self) -> None:
        self._draws += 1
        numbers = [self.plan.seed, _REDRAWN, self.plan.redraw or 0, len(self.applied), self._draws]
        seed_generators(np.random.default_rng(numbers))

    def draw(self, source: torch.Generator, call: Callable[[], Any]) -> Any:
        """Draw from a generator of the training's own; a redraw draws anew unless others can predict the generator."""
        if self.plan.redraw is None or not self._passes or self._is_known(source):
            return call()
        call()
        after = source.get_state()
        self._draws += 1
        source.manual_seed(_seed(self.plan.seed, _OWN, self.plan.redraw, len(self.applied), self._draws))
        result = call()
        source.set_state(after)
        return result

    def _is_known(self, source: torch.Generator) -> bool:
        if id(source) not in self._is_predictable:
            self._is_predictable[id(source)] = source, is_predictable(source)
        return self._is_predictable[id(source)][1]

    def numpy_enters(self) -> None:
        """Note that an array of numpy became a tensor."""
        self.reads_numpy |= self._passes > 0


def _dense(gradient: Tensor) -> Tensor:
    tensor = gradient.detach()
    return tensor.to_dense() if tensor.is_sparse else tensor


def _torch_state() -> bytes:
    with torch._C._DisableFuncTorch(), torch._C.DisableTorchFunction():  # a transform of functions may be at work
        return torch.default_generator.get_state().numpy().tobytes()


def _seed(*numbers: int) -> int:
    return int(np.random.default_rng(numbers).integers(2**62))


_active: list[GradientObserver] = []
"""The observers at work, the innermost last. A class of a training's own may keep a replaced step of its base class."""


@contextmanager
def observed_gradients(observer: GradientObserver) -> Iterator[None]:
    """Patch torch in a `with` block, so that its optimizers' steps and backward passes are reported to an observer."""
    with ExitStack() as stack:
        for kind in _standard_optimizers():
            stack.enter_context(patch.object(kind, "step", _observed_step(vars(kind)["step"])))
        run_backward, from_numpy = vars(torch.autograd)["_engine_run_backward"], torch.from_numpy

        def backward(*args: Any, **kwargs: Any) -> Any:
            return observer.backward(lambda: run_backward(*args, **kwargs))

        def read(array: Any) -> Tensor:
            observer.numpy_enters()
            return from_numpy(array)

        stack.enter_context(patch.object(torch.autograd, "_engine_run_backward", backward))
        if observer.plan.redraw is not None:
            stack.enter_context(patch.object(torch, "from_numpy", read))
            stack.enter_context(_OwnDraws(observer))
        stack.callback(register_optimizer_step_post_hook(observer.end_of_any_step).remove)
        _active.append(observer)
        stack.callback(_active.remove, observer)
        yield


def _standard_optimizers() -> list[type]:
    kinds = [kind for kind in vars(torch.optim).values() if isinstance(kind, type) and issubclass(kind, Optimizer)]
    return [kind for kind in dict.fromkeys(kinds) if kind is not Optimizer and "step" in vars(kind)]


def _observed_step(function: Any) -> Any:
    """Return a method `step` that reports to the observer at work; hooks that a training registers run before it."""
    is_hooked = getattr(function, "hooked", False)
    inner = function.__wrapped__ if is_hooked else function

    @wraps(inner)
    def step(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not _active:
            return inner(self, *args, **kwargs)
        return _active[-1].step(self, MethodType(inner, self), args, kwargs)

    if not is_hooked:
        return step
    hooked: Any = Optimizer.profile_hook_step(step)
    hooked.hooked = True
    return hooked


class _OwnDraws(TorchFunctionMode):
    """Mode in which draws from a training's own generators, and arrays of numpy, are reported to an observer."""

    def __init__(self, observer: GradientObserver) -> None:
        super().__init__()
        self._observer = observer

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        arguments = kwargs or {}
        source = arguments.get("generator")
        if any(isinstance(value, np.ndarray) for value in args):
            self._observer.numpy_enters()
        if isinstance(source, torch.Generator) and source is not torch.default_generator:
            return self._observer.draw(source, lambda: func(*args, **arguments))
        return func(*args, **arguments)
