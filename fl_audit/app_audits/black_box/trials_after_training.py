"""Wrapper around a Flower app's strategy that first trains as usual, and then runs trials of the app."""

import sys
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fl_audit.app_audits.black_box.app_trial_runner import AppTrialRunner
from fl_audit.app_audits.black_box.audit_config import AuditConfig
from fl_audit.app_audits.black_box.audited_system import StrategyStartCall, start_of
from fl_audit.app_audits.black_box.fingerprint import fingerprint
from fl_audit.app_audits.black_box.message_tensors import arrays_of, shapes_of
from fl_audit.app_audits.claim_audit.transcript import linear_sketch_of
from fl_audit.app_audits.console_output import no_news_from_flower, say
from fl_audit.errors import InputError, in_a_line, require
from fl_audit.generator_states import spared_generators
from fl_audit.strategies.flower_grids import MessageInterceptor, RecordedGrid


class TrialsAfterTrainingStrategy(Strategy):
    """A Flower strategy whose `start` trains with the app's own strategy, and then runs trials of the app.

    All other attributes and methods are those of the app's strategy.
    """

    def __init__(self, strategy: Strategy, audit: AuditConfig) -> None:
        self._inner = strategy
        self._audit = audit

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_inner", "_audit"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def start(self, *args: Any, **kwargs: Any) -> Result:
        """Train with the app's strategy, then run trials with it; return the training's result.

        An error of the audit is printed and changes neither the training nor its result.
        """
        start = start_of(self._inner, args, kwargs)
        grid: Grid = start.arguments["grid"]
        try:
            runner = self._prepared(start, grid)
        except Exception as error:  # a failure of the audit must not stop the training
            why = str(error) if isinstance(error, InputError) else in_a_line(error)
            say(f"no trials are played, the app trains as ever: {why}")
            return start.call_start(grid)
        recorder = SafeRecorder(runner.training_recorder)
        with closing(runner):
            result = start.call_start(RecordedGrid(grid, recorder))
            with spared_generators(), no_news_from_flower():
                try:
                    unheard = "no trials were played, the app's own training cannot be heard"
                    require(recorder.fault is None, f"{unheard}: {recorder.fault}")
                    runner.play()
                except (InputError, OSError) as error:
                    say(str(error))
                except Exception as error:  # the training has ended, so its result is returned in any case
                    say(f"the trials ended early: {in_a_line(error)}")
        return result

    def _prepared(self, start: StrategyStartCall, grid: Grid) -> AppTrialRunner:
        """Return the runner of the trials, with copies of the strategy and its arguments from before the training."""
        model = start.arguments.get("initial_arrays")
        accepted = "accepted is an ArrayRecord with at least one parameter"
        if not isinstance(model, ArrayRecord):
            raise InputError(f"initial_arrays is {type(model).__name__}, which cannot be watched: {accepted}")
        arrays = arrays_of(model)
        for name, value in arrays.items():
            wrong = f"{name} has values of type {value.dtype}: accepted are numbers and switches"
            require(value.dtype.kind in "fiub", wrong)
        audit = replace(self._audit, directory=self._audit.directory.absolute())
        tried = audit.contributions(self._inner, arrays)
        code = fingerprint(self._inner, start.arguments)
        sketched = linear_sketch_of(shapes_of(arrays))
        return AppTrialRunner(audit, tried, _app_of(grid), code, start.copied(), grid, sketched)

    # For apps that call these methods themselves instead of `start`.
    summary = property(lambda self: self._inner.summary)
    configure_train = property(lambda self: self._inner.configure_train)
    aggregate_train = property(lambda self: self._inner.aggregate_train)
    configure_evaluate = property(lambda self: self._inner.configure_evaluate)
    aggregate_evaluate = property(lambda self: self._inner.aggregate_evaluate)


class SafeRecorder:
    """Wrapper around a message recorder that stores its first exception in `fault` instead of raising it."""

    def __init__(self, interceptor: MessageInterceptor) -> None:
        self._recorder = interceptor
        self.fault: str | None = None

    def record_sent(self, message: Message) -> None:
        self._safely(self._recorder.record_sent, message)

    def record_received(self, reply: Message) -> None:
        self._safely(self._recorder.record_received, reply)

    def _safely(self, hook: Callable[[Message], None], message: Message) -> None:
        try:
            hook(message)
        except Exception as error:  # an error of the audit must not stop the app's own training
            self.fault = self.fault or in_a_line(error)


def _app_of(grid: Grid) -> str:
    """Return a name for the running app: its Flower App Bundle ID, or else its script's folder and name, or "app"."""
    with suppress(Exception):  # custom grids have no run
        if grid.run.fab_id:
            return str(grid.run.fab_id)
    script = getattr(sys.modules["__main__"], "__file__", None)
    return "/".join(Path(script).resolve().with_suffix("").parts[-2:]) if script else "app"
