"""Patch classes of Opacus and torch so that they report their calls to a recorder while a training is recorded."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from inspect import signature
from types import MethodType
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

from fl_audit.app_audits.local_training.recorder import Recorder

_Replacement = Callable[..., Any]
"""Function called in place of a method: with the object, the bound original method, and the arguments of the call."""


@contextmanager
def recorded(recorder: Recorder) -> Iterator[None]:
    """Patch Opacus and torch in a `with` block, so that their calls are reported to a recorder.

    All patches are removed at the end of the block.
    """
    with ExitStack() as stack:
        patched = set[type]()

        def put(holder: type, name: str, replacement: _Replacement) -> None:
            stack.enter_context(patch.object(holder, name, _replaced(vars(holder)[name], replacement)))

        def patch_optimizer_class(kind: type) -> None:
            """Patch an Opacus optimizer class so that its steps are reported; do nothing if it is already patched."""
            if kind in patched:
                return
            patched.add(kind)
            if "pre_step" in vars(kind):
                put(kind, "pre_step", calls.step)

        calls = _ReportingWrappers(recorder, patch_optimizer_class)
        for kind in _kinds(DPOptimizer):
            patch_optimizer_class(kind)
        for kind in _kinds(IAccountant):
            if "step" in vars(kind):
                put(kind, "step", calls.count)
            if "get_epsilon" in vars(kind):
                put(kind, "get_epsilon", calls.answer)
        put(DPOptimizer, "__init__", calls.new_optimizer)
        put(GradSampleModule, "__init__", calls.new_module)
        put(PrivacyEngine, "make_private", calls.make_private)
        put(PrivacyEngine, "make_private_with_epsilon", calls.make_private_with_epsilon)
        put(_BaseDataLoaderIter, "_next_index", calls.draw)
        put(_BaseDataLoaderIter, "__next__", calls.hand_out)
        put(DataLoader, "_get_iterator", calls.new_pass)
        put(ReduceLROnPlateau, "step", calls.plateau)
        handle = register_optimizer_step_post_hook(recorder.inner_step)
        stack.callback(handle.remove)
        yield


def _replaced(function: Callable[..., Any], replacement: _Replacement) -> Callable[..., Any]:
    @wraps(function)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return replacement(self, MethodType(function, self), *args, **kwargs)

    return call


def _kinds(kind: type[Any]) -> list[type[Any]]:
    kinds = {kind: None}
    for below in type.__subclasses__(kind):
        kinds |= dict.fromkeys(_kinds(below))
    return list(kinds)


class _ReportingWrappers:
    """Replacements of patched methods: each calls the original `method` of `owner`, and reports to the recorder."""

    def __init__(self, recorder: Recorder, patch_optimizer_class: Callable[[type], None]) -> None:
        self._recorder, self._adopt = recorder, patch_optimizer_class

    def step(self, owner: Any, method: MethodType, /, *args: Any, **kwargs: Any) -> Any:
        return self._recorder.makes_step(owner, lambda: method(*args, **kwargs))

    def new_optimizer(self, owner: Any, method: MethodType, /, *args: Any, **kwargs: Any) -> None:
        method(*args, **kwargs)
        for kind in type(owner).__mro__:
            if issubclass(kind, DPOptimizer):
                self._adopt(kind)
        self._recorder.knows_optimizer(owner)

    def new_module(self, owner: Any, method: MethodType, /, *args: Any, **kwargs: Any) -> None:
        method(*args, **kwargs)
        self._recorder.record_private_model(args[0] if args else kwargs["m"])

    def make_private(self, owner: Any, method: MethodType, /, *args: Any, **kwargs: Any) -> Any:
        request = dict(signature(method).bind(*args, **kwargs).arguments)
        if self._recorder.edit is not None:
            kwargs["data_loader"] = _with_dataset(kwargs["data_loader"], self._recorder.edit)
        self._recorder.record_private_model(request["module"])
        returned = method(*args, **kwargs)
        request["data_loader"] = kwargs["data_loader"]
        self._recorder.makes_engine(owner, request, returned)
        return returned

    def make_private_with_epsilon(self, owner: Any, method: MethodType, /, *args: Any, **kwargs: Any) -> Any:
        self._recorder.target = float(kwargs["target_epsilon"]), float(kwargs["target_delta"])
        try:
            return method(*args, **kwargs)
        finally:
            self._recorder.target = None

    def count(self, owner: Any, method: MethodType, /, *args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        self._recorder.accounting.record_step(owner)
        return result

    def answer(self, owner: Any, method: MethodType, /, *args: Any, **kwargs: Any) -> Any:
        with (
            self._recorder.accounting.answering() as is_outermost
        ):  # an accountant asks others for a range to search in
            answer = _remembered(method, args, kwargs)
        if is_outermost:
            delta = kwargs["delta"] if "delta" in kwargs else args[0]
            self._recorder.accounting.record_epsilon(owner, delta, answer, after=self._recorder.steps_taken)
        return answer

    def draw(self, owner: Any, method: MethodType, /) -> Any:
        self._recorder.before_draw()
        try:
            iterator = self._recorder.record_draws(owner, method())
        except StopIteration:
            self._recorder.after_last_draw()
            raise
        self._recorder.after_draw()
        return iterator

    def hand_out(self, owner: Any, method: MethodType, /) -> Any:
        result = method()
        self._recorder.record_batch(owner)
        return result

    def new_pass(self, owner: Any, method: MethodType, /) -> Any:
        self._recorder.before_draw()
        if not self._recorder.is_of_replay or not owner.num_workers:
            return method()
        with patch.multiple(owner, num_workers=0, timeout=0):
            return method()

    def plateau(self, owner: Any, method: MethodType, /, *args: Any, **kwargs: Any) -> Any:
        self._recorder.record_measure(args[0] if args else kwargs["metrics"])
        return method(*args, **kwargs)


_epsilons: dict[object, Any] = {}
"""Cached answers of Opacus' accountants: computing one for the same history takes longer than a small training."""


def _remembered(get_epsilon: MethodType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return an accountant's epsilon, from a cache if an Opacus accountant answered for an equal history before."""
    accountant: Any = get_epsilon.__self__
    kind = type(accountant)
    if not kind.__module__.startswith("opacus."):
        return get_epsilon(*args, **kwargs)
    try:
        key = (kind, tuple(map(tuple, accountant.history)), args, tuple(sorted(kwargs.items())))
        if key not in _epsilons:
            _epsilons[key] = get_epsilon(*args, **kwargs)
        return _epsilons[key]
    except TypeError:  # something that no dictionary takes as a key
        return get_epsilon(*args, **kwargs)


def _with_dataset(loader: Any, edit: Callable[[Any], Any]) -> Any:
    """Return a loader with the settings of a given one, over the data set that `edit` returns."""
    dataset = edit(loader.dataset)
    shuffles = type(loader.sampler).__name__ == "RandomSampler"
    return DataLoader(
        dataset,
        batch_size=loader.batch_size or 1,
        shuffle=shuffles,
        num_workers=0,
        collate_fn=loader.collate_fn,
        drop_last=loader.drop_last,
        generator=loader.generator,
    )
