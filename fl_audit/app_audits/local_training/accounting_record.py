"""Record of the accountants of a training with Opacus: the steps that they counted, and the epsilon reported."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from fl_audit.app_audits.local_training.opacus_introspection import history_of
from fl_audit.app_audits.local_training.training_facts import History, ReportedEpsilon


class AccountingRecord:
    """Record of what accountants counted and reported in one training; patches of Opacus write it."""

    def __init__(self) -> None:
        self.accountant: Any = None  # the last that an engine was made with, or that counted a step
        self.answers = list[ReportedEpsilon]()
        self._answering: Any = None  # the last accountant that reported epsilon
        self._counts = dict[int, int]()  # steps that each accountant counted, by its identity
        self._alive = list[object]()  # keeps identities from being used twice
        self._depth = 0  # number of calls of `get_epsilon` that are at work

    def record_step(self, accountant: Any) -> None:
        """Record that an accountant counted a step."""
        self._counts[id(accountant)] = self._counts.get(id(accountant), 0) + 1
        self._alive.append(accountant)
        self.accountant = accountant

    @contextmanager
    def answering(self) -> Iterator[bool]:
        """Open a `with` block for a call of `get_epsilon`, and yield True if the training made it.

        The value is False if an accountant made the call while it answered another one.
        """
        self._depth += 1
        try:
            yield self._depth == 1
        finally:
            self._depth -= 1

    def record_epsilon(self, accountant: Any, delta: object, epsilon: object, after: int) -> None:
        """Record an epsilon that an accountant returned, unless Opacus searches for a noise multiplier.

        `after` is the number of steps that were taken before.
        """
        frame = sys._getframe(3)  # the frame that asked: between are the two of a patched method
        for _ in range(4):
            if frame.f_code.co_name == "get_noise_multiplier":
                return
            if frame.f_back is None:
                break
            frame = frame.f_back
        with suppress(TypeError, ValueError):
            numbers = float(epsilon), float(delta)  # type: ignore[arg-type]
            mechanism = str(accountant.mechanism())
            self.answers.append(ReportedEpsilon(*numbers, history_of(accountant), after, mechanism))
            self._answering = accountant

    @property
    def history(self) -> History:
        """History of the accountant that stands for the training: the one that reported epsilon last, else the last."""
        return history_of(self._standing)

    @property
    def counted(self) -> int:
        """Steps that this accountant counted; all of its history if it was given that as a whole."""
        whole = sum(count for _, _, count in self.history)
        return self._counts.get(id(self._standing), 0 if self._answering is None else whole)

    @property
    def _standing(self) -> Any:
        return self.accountant if self._answering is None else self._answering
