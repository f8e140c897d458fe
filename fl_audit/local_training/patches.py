"""Patch classes of Opacus and torch so that they report their calls to a recorder while a training is recorded."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from inspect import signature
from typing import Any
from unittest.mock import patch

from opacus import PrivacyEngine
from opacus.accountants.accountant import IAccountant
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from fl_audit.local_training.recorder import Recorder

_Method = Callable[..., Any]


@contextmanager
def recorded(recorder: Recorder) -> Iterator[None]:
    """Patch Opacus and torch in a `with` block, so that their calls are reported to a recorder.

    All patches are removed at the end of the block.

    Parameters
    ----------
    recorder
        A new recorder, which receives the calls.
    """
    with ExitStack() as stack:
        patched = set[type]()

        def put(holder: type, name: str, around: Callable[[_Method], _Method]) -> None:
            stack.enter_context(patch.object(holder, name, around(vars(holder)[name])))

        def adopt(kind: type) -> None:
            """Report the steps of an Opacus optimizer class; does nothing if it is already patched."""
            if kind in patched:
                return
            patched.add(kind)
            if "pre_step" in vars(kind):
                put(kind, "pre_step", lambda method: _around_step(method, recorder))

        for kind in _kinds(DPOptimizer):
            adopt(kind)
        for kind in _kinds(IAccountant):
            if "step" in vars(kind):
                put(kind, "step", lambda method: _around_count(method, recorder))
            if "get_epsilon" in vars(kind):
                put(kind, "get_epsilon", lambda method: _around_answer(method, recorder))
        put(DPOptimizer, "__init__", lambda method: _around_optimizer(method, recorder, adopt))
        put(GradSampleModule, "__init__", lambda method: _around_module(method, recorder))
        put(PrivacyEngine, "make_private", lambda method: _around_engine(method, recorder))
        put(PrivacyEngine, "make_private_with_epsilon", lambda method: _around_target(method, recorder))
        put(_BaseDataLoaderIter, "_next_index", lambda method: _around_draw(method, recorder))
        put(_BaseDataLoaderIter, "__next__", lambda method: _around_hand_out(method, recorder))
        put(DataLoader, "_get_iterator", lambda method: _around_pass(method, recorder))
        put(ReduceLROnPlateau, "step", lambda method: _around_plateau(method, recorder))
        handle = register_optimizer_step_post_hook(recorder.inner_step)
        stack.callback(handle.remove)
        yield


def _kinds(kind: type[Any]) -> list[type[Any]]:
    """Return a class and all its direct and indirect subclasses."""
    found = {kind: None}
    for below in type.__subclasses__(kind):
        found |= dict.fromkeys(_kinds(below))
    return list(found)


def _around_step(method: _Method, recorder: Recorder) -> _Method:
    @wraps(method)
    def pre_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        return recorder.makes_step(self, lambda: method(self, *args, **kwargs))

    return pre_step


def _around_optimizer(method: _Method, recorder: Recorder, adopt: Callable[[type], None]) -> _Method:
    @wraps(method)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        method(self, *args, **kwargs)
        for kind in type(self).__mro__:
            if issubclass(kind, DPOptimizer):
                adopt(kind)
        recorder.knows_optimizer(self)

    return init


def _around_module(method: _Method, recorder: Recorder) -> _Method:
    @wraps(method)
    def init(self: Any, m: Any, *args: Any, **kwargs: Any) -> None:
        method(self, m, *args, **kwargs)
        recorder.knows_module(m)

    return init


def _around_engine(method: _Method, recorder: Recorder) -> _Method:
    @wraps(method)
    def make_private(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked = dict(signature(method).bind(self, *args, **kwargs).arguments)
        if recorder.edit is not None:
            kwargs["data_loader"] = with_dataset(kwargs["data_loader"], recorder.edit)
        recorder.knows_module(asked["module"])
        made = method(self, *args, **kwargs)
        recorder.makes_engine(self, {**asked, "data_loader": kwargs["data_loader"]}, made, recorder.target)
        return made

    return make_private


def _around_target(method: _Method, recorder: Recorder) -> _Method:
    @wraps(method)
    def make_private_with_epsilon(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.target = float(kwargs["target_epsilon"]), float(kwargs["target_delta"])
        try:
            return method(self, *args, **kwargs)
        finally:
            recorder.target = None

    return make_private_with_epsilon


def _around_count(method: _Method, recorder: Recorder) -> _Method:
    @wraps(method)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = method(self, *args, **kwargs)
        recorder.counts(self)
        return found

    return step


def _around_answer(method: _Method, recorder: Recorder) -> _Method:
    @wraps(method)
    def get_epsilon(self: Any, *args: Any, **kwargs: Any) -> Any:
        with recorder.answering() as is_outermost:  # an accountant asks others for a range to search in
            found = _remembered(method, self, args, kwargs)
        if not is_outermost:
            return found
        delta = kwargs["delta"] if "delta" in kwargs else args[0]
        recorder.answers_epsilon(self, delta, found)
        return found

    return get_epsilon


_epsilons: dict[object, Any] = {}
"""Cached answers of Opacus' accountants: computing one for the same history takes longer than a small training."""


def _remembered(method: _Method, accountant: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the answer of an accountant's `get_epsilon` (`method`) to the given arguments.

    For Opacus's own accountants, answers are cached: equal class, history and arguments give the cached answer. Other
    accountants are always asked, and so is an accountant of Opacus if the arguments cannot be a key.
    """
    kind = type(accountant)
    if not kind.__module__.startswith("opacus."):
        return method(accountant, *args, **kwargs)
    try:
        key = (kind, tuple(map(tuple, accountant.history)), args, tuple(sorted(kwargs.items())))
        if key not in _epsilons:
            _epsilons[key] = method(accountant, *args, **kwargs)
        return _epsilons[key]
    except TypeError:  # something that no dictionary takes as a key
        return method(accountant, *args, **kwargs)


def _around_draw(method: _Method, recorder: Recorder) -> _Method:
    @wraps(method)
    def next_index(self: Any) -> Any:
        return recorder.draws(self, method(self))

    return next_index


def _around_hand_out(method: _Method, recorder: Recorder) -> _Method:
    @wraps(method)
    def following(self: Any) -> Any:
        found = method(self)
        recorder.hands_out(self)
        return found

    return following


def _around_pass(method: _Method, recorder: Recorder) -> _Method:
    @wraps(method)
    def get_iterator(self: Any) -> Any:
        if not recorder.is_of_replay or not self.num_workers:
            return method(self)
        with patch.multiple(self, num_workers=0, timeout=0):
            return method(self)

    return get_iterator


def _around_plateau(method: _Method, recorder: Recorder) -> _Method:
    @wraps(method)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.plateaus += 1
        return method(self, *args, **kwargs)

    return step


def with_dataset(loader: Any, edit: Callable[[Any], Any]) -> Any:
    """Return a loader with the settings of a given one, over a modified data set.

    Parameters
    ----------
    loader
        A `DataLoader` of torch, which stays unchanged.
    edit
        Function that takes a data set and returns the modified one.
    """
    dataset = edit(loader.dataset)
    shuffles = type(loader.sampler).__name__ == "RandomSampler"
    return DataLoader(
        dataset, batch_size=loader.batch_size or 1, shuffle=shuffles, num_workers=0, collate_fn=loader.collate_fn,
        drop_last=loader.drop_last, generator=loader.generator,
    )  # fmt: skip
