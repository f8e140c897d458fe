"""An audit never ends the app: whatever goes wrong in it, training comes to the same model, and it is said."""

import os
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import flwr.server.strategy as old
import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard import SummaryWriter

from fl_audit.app_audits.black_box import Audit, insider
from fl_audit.app_audits.black_box.fingerprint import fingerprint
from fl_audit.app_audits.black_box.legacy_adapter import adapted_strategy
from fl_audit.app_audits.black_box.trial_messages import TargetAction, record_of
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from tests.app_audits.black_box.toy_app import CLIENTS, Noisy, reply_with, summary_of, toy_audit, toy_run
from tests.builders.strategies import central_noise

_HOOKS = {
    "fl_audit.app_audits.black_box.trials_after_training.fingerprint": "no trials",
    "fl_audit.app_audits.black_box.trials_after_training.open_transcript_store": "ended early",
    "fl_audit.app_audits.black_box.trials_after_training.WorkingCopy": "no trials",
    "fl_audit.app_audits.black_box.target_mod.client_fingerprint": "no client answered",
    "fl_audit.app_audits.black_box.trials_after_training.linear_sketch_of": "no trials",
    "fl_audit.app_audits.black_box.audited_system.StrategyStartCall.copied": "no trials",
    "fl_audit.app_audits.black_box.trials_after_training.AppTrainingRecorder.record_sent": "cannot be heard",
    "fl_audit.app_audits.black_box.trials_after_training.AppTrainingRecorder.record_received": "cannot be heard",
    "fl_audit.app_audits.black_box.trials_after_training.read_tag": "cannot be heard",
    "fl_audit.app_audits.black_box.trials_after_training.taken_answer": "cannot be heard",
    "fl_audit.app_audits.black_box.target_mod._enter": "replies of clients",
    "fl_audit.app_audits.black_box.target_mod.ClientAnswer": "no client answered",
    "fl_audit.app_audits.black_box.trials_after_training.AppTrialRunner.play": "ended early",
    "fl_audit.app_audits.black_box.trials_after_training.recorded_trial": "ended early",
    "fl_audit.app_audits.black_box.transcript_store.TranscriptStore.add": "ended early",
    "fl_audit.app_audits.black_box.trials_after_training.finish": "ended early",
}


@pytest.mark.few_cases(5)
@pytest.mark.parametrize("hook", _HOOKS)
def test_whatever_fails_in_the_audit_the_app_finishes_with_the_same_model(
    hook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = toy_run(FedAvg, None, mods=[])

    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("broken by the test")

    import_module(
        "fl_audit.app_audits.black_box.trials_after_training"
    )  # which is loaded late, and holds half of the hooks
    module = max((name for name in sys.modules if hook.startswith(f"{name}.")), key=len)
    owner, _, name = hook.removeprefix(f"{module}.").rpartition(".")
    monkeypatch.setattr(attrgetter(owner)(sys.modules[module]) if owner else sys.modules[module], name, broken)
    result = toy_run(FedAvg, toy_audit(tmp_path, trials=21, contribution="own"))
    assert result.arrays == expected.arrays
    assert result.train_metrics_clientapp == expected.train_metrics_clientapp
    assert _HOOKS[hook] in capsys.readouterr().err


def growing(message: Message, _context: Any, _call_next: Any) -> Message:
    """A client whose model is bytes that grow, as trees do."""
    model_bytes = message.content["arrays"].to_numpy_ndarrays()[0]
    grown = np.concatenate([model_bytes, np.array([1, 2, 3], np.uint8)])
    return reply_with(message, ArrayRecord([grown]), examples=1)


class Longest(FedAvg):
    """Takes the longest reply, as boosting takes a tree."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0)

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        return max((reply.content["arrays"] for reply in replies), key=lambda record: record.count_bytes()), None


def test_models_that_change_their_shape_train_as_ever(tmp_path: Path) -> None:
    expected = _run(Longest, None, growing)
    assert _run(Longest, toy_audit(tmp_path, trials=21, contribution="own"), growing) == expected
    assert len(expected["0"].numpy()) == 6 + 2 * 3


def _run(strategy: Callable[[], FedAvg], audit: Any, client: Any) -> ArrayRecord:
    return toy_run(strategy, audit, mods=[insider, client], start={"0": np.zeros(6, np.uint8)}).arrays


@pytest.mark.parametrize("start", [np.zeros(0, np.float32), np.array(["a"])])
def test_what_cannot_be_watched_trains_as_ever(
    tmp_path: Path, start: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    """Clients reply with what they were sent: the audit is no reason why there is no model."""

    def echo(message: Message, _context: Any, _call_next: Any) -> Message:
        return reply_with(message, message.content["arrays"], examples=1)

    def trained(audit: Any) -> str:
        try:
            return str(toy_run(lambda: FedAvg(fraction_evaluate=0.0), audit, mods=[echo], start={"0": start}).arrays)
        except Exception as error:
            return repr(error)

    assert trained(toy_audit(tmp_path)) == trained(None)
    assert "fl_audit: no trials" in capsys.readouterr().err


class Silent(FedAvg):
    """Asks for something without arrays, and releases nothing."""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any) -> Any:
        return [Message(RecordDict(), node, "train") for node in grid.get_node_ids()]

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        assert list(replies)
        return None, None


def test_messages_without_arrays_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def empty(message: Message, _context: Any, _call_next: Any) -> Message:
        return Message(RecordDict(), reply_to=message)

    toy_run(
        lambda: Silent(fraction_evaluate=0.0), toy_audit(tmp_path, trials=21, contribution="own"), mods=[insider, empty]
    )
    assert "trials" in capsys.readouterr().err


class Tracked(FedAvg):
    """Writes to a tracker in every round, as many apps do."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        sys.modules["wandb"].log({"round": server_round, "mode": os.environ.get("WANDB_MODE")})
        return super().aggregate_train(server_round, replies)


def test_a_tracker_has_the_rows_of_the_training_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Any] = []
    tracker = ModuleType("wandb")
    tracker.log = rows.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", tracker)
    toy_run(lambda: Tracked(fraction_evaluate=0.0), toy_audit(tmp_path, trials=30, contribution="own"))
    assert rows == [{"round": 1, "mode": None}, {"round": 2, "mode": None}]
    assert "WANDB_MODE" not in os.environ
    tracker.log({"round": 3})
    assert len(rows) == 3
    assert summary_of(tmp_path)["verdict"] == "violated"


class OnABoard(FedAvg):
    """Opens a writer of TensorBoard in every round, and closes none; another is there from the beginning."""

    kept: SummaryWriter

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        writer = SummaryWriter(f"{self.fraction_train}/{server_round}")
        writer.add_scalar("round", server_round, server_round)
        writer.add_text("round", str(server_round))
        writer.add_scalars("rounds", {"now": server_round})
        writer.add_hparams({"rounds": server_round}, {"round": server_round})
        writer.add_text("place", writer.file_writer.get_logdir())
        writer.flush()
        self.kept.add_scalar("kept", server_round)
        return super().aggregate_train(server_round, replies)


def late(write: Callable[[RecordWriter, bytes], None]) -> Callable[[RecordWriter, bytes], None]:
    """Return a function that writes a row of TensorBoard's file `kept` once this process is in another directory.

    It waits for half a second at most.
    """
    home = os.getcwd()

    def write_late(writer: RecordWriter, row: bytes) -> None:
        until = time.monotonic() + 0.5 * (b"kept" in writer._writer.filename)
        while os.getcwd() == home and time.monotonic() < until:
            time.sleep(0.0005)
        write(writer, row)

    return write_late


def test_a_board_has_the_writers_of_the_training_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer has a thread of its own: thousands of trials would have thousands.

    The thread opens its file by a relative path for each row. Here it is so late that the row of the last round would
    be written during the trials, which are in another directory.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(RecordWriter, "write", late(RecordWriter.write))
    monkeypatch.setattr(OnABoard, "kept", SummaryWriter("kept"), raising=False)
    before = threading.active_count()
    toy_run(lambda: OnABoard(fraction_evaluate=0.0), toy_audit(tmp_path / "audit", trials=30, contribution="own"))
    assert threading.active_count() - before <= 6  # three in a round
    assert len(list(tmp_path.glob("1.0/*/events.*"))) == 2
    OnABoard.kept.close()
    rows = EventAccumulator(str(tmp_path / "kept")).Reload().Scalars("kept")
    assert [row.value for row in rows] == [1, 2]
    assert summary_of(tmp_path / "audit")["verdict"] == "violated"


@pytest.mark.long
def test_trials_of_another_strategy_are_left_and_new_ones_are_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Noise 0 tells all, noise 50 nothing; trials of equal strategies go on where they were."""
    audit = toy_audit(tmp_path, trials=40, contribution="own")
    verdicts = []
    for spread in (0.0, 0.0, 50.0):
        toy_run(lambda spread=spread: Noisy(spread), audit, rounds=1)
        verdicts.append(summary_of(tmp_path)["verdict"])
    assert verdicts == ["violated", "violated", "consistent"]
    assert len(list(tmp_path.iterdir())) == 2
    assert capsys.readouterr().err.count("of the code") == 1


def test_a_fingerprint_follows_code_and_numbers_and_nothing_else() -> None:
    plain = fingerprint(Noisy(1.0))
    assert plain == fingerprint(Noisy(1.0))
    assert len({plain, fingerprint(Noisy(2.0)), fingerprint(FedAvg(fraction_evaluate=0.0))}) == 3
    wrapped = [DifferentialPrivacyServerSideFixedClipping(Noisy(spread), 1.0, 1.0, CLIENTS) for spread in (1.0, 2.0)]
    assert fingerprint(wrapped[0]) != fingerprint(wrapped[1])
    configs = [
        {"train_config": ConfigRecord(config)} for config in ({"lr": 0.1}, {"lr": 0.2}, {"by": "adam"}, {"by": "sgd"})
    ]
    assert len({plain, *(fingerprint(Noisy(1.0), config) for config in configs)}) == 5
    files = [{"train_config": ConfigRecord({"log": f"runs/2026-01-0{day}"})} for day in (1, 2)]
    assert len({fingerprint(Noisy(1.0), config) for config in files}) == 1


COUNTER = "bn.num_batches_tracked"


def counting(message: Message, _context: Any, _call_next: Any) -> Message:
    """A client whose model has the counter of a batch normalisation beside its weights."""
    arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
    moved = arrays | {"weight": arrays["weight"] + np.float32(0.1), COUNTER: arrays[COUNTER] + 5}
    return reply_with(message, record_of(moved))


@pytest.mark.long
@pytest.mark.parametrize(("model", "expected"), [((COUNTER, "weight"), "violated"), (("weight",), "consistent")])
def test_counters_under_flowers_wrapper_are_found_by_default(
    tmp_path: Path, model: tuple[str, ...], expected: str
) -> None:
    """Noise five times the norm: of the weights 54 % of trials can be told, and the claim allows 73 %."""
    whole = {"weight": np.zeros(6, np.float32), COUNTER: np.zeros((), np.int64)}
    audit = Audit(StatedClaim("add-remove-client", epsilon=1.0), directory=tmp_path, seed=1)

    def strategy() -> DifferentialPrivacyServerSideFixedClipping:
        return central_noise(5.0, 1.0, CLIENTS)

    mods = [insider, counting] if COUNTER in model else None
    toy_run(strategy, audit, mods=mods, rounds=1, start={name: whole[name] for name in model})
    summary = summary_of(tmp_path)
    assert summary["verdict"] == expected
    assert (COUNTER in summary["findings"][0]["cause"]) if expected == "violated" else "cause" in summary["findings"][0]


def test_flowers_wrappers_get_crafted_updates_wherever_they_stand() -> None:
    """Theirs of the old interface too, behind the bridge, and within a strategy of one's own."""
    audit = Audit(StatedClaim("add-remove-client", epsilon=1.0))
    model = {"weight": np.zeros(6, np.float32), COUNTER: np.zeros((), np.int64)}
    kinds: list[Any] = [old.DifferentialPrivacyServerSideFixedClipping, DifferentialPrivacyServerSideFixedClipping]
    for wrapper, inner in zip(kinds, (old.FedAvg(), FedAvg()), strict=True):
        strategy = adapted_strategy(wrapper(inner, 1.0, 1.0, CLIENTS))
        assert audit.contributions(strategy, model) == ("crafted", "own")
        around = FedAvg()
        around._inner = strategy  # type: ignore[attr-defined]
        assert audit.contributions(around, model) == ("crafted", "own")
    assert audit.contributions(FedAvg(), model) == (TargetAction.OWN, TargetAction.OWN_WHOLE)
    assert audit.contributions(FedAvg(), {"weight": model["weight"]}) == ("own",)


class OfWeights(Noisy):
    """Adds noise to the weights, and passes the counter on."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        arrays, metrics = FedAvg.aggregate_train(self, server_round, replies)
        values = {name: array.numpy() for name, array in arrays.items()}
        noisy = values["weight"] + self.noise(values["weight"].shape).astype(np.float32)
        return record_of(values | {"weight": noisy}), metrics


@pytest.mark.long
@pytest.mark.parametrize(
    ("relation", "length", "beside"),
    [
        ("add-remove-client", 1000.0, {COUNTER: np.full((), 7, np.int64)}),
        ("replace-client", 1.0, {COUNTER: np.full((), 7, np.int64)}),
        ("add-remove-client", 1000.0, {"mask": np.zeros(4, np.bool_)}),
    ],
)
def test_whole_numbers_and_switches_carry_a_canary_by_default_under_any_strategy(
    tmp_path: Path, relation: str, length: float, beside: dict[str, np.ndarray]
) -> None:
    """No client of this app ever moves what is beside its weights: only a crafted one shows that it is passed on.

    Its own contribution is nothing at all, under D too, and nothing follows from such trials.
    """

    def idle(message: Message, _context: Any, _call_next: Any) -> Message:
        return reply_with(message, message.content["arrays"])

    start = {"weight": np.zeros(6, np.float32), **beside}
    verdicts = []
    for contribution in (None, "own"):
        claim = StatedClaim(relation, epsilon=1.0)
        audit = toy_audit(tmp_path, claim=claim, trials=100, contribution=contribution, length=length)
        toy_run(lambda: OfWeights(10.0), audit, mods=[insider, idle], start=start)
        verdicts.append(str(audit.verdict().verdict))
    assert verdicts == ["violated", "inconclusive"]


MIXED: dict[str, np.ndarray] = {
    "blocks.0.weight": np.zeros((2, 3), np.float16),
    "blocks.0.bias": np.zeros(3, np.float64),
    "blocks.0.empty": np.zeros((0, 3), np.float32),
    "bn.weight": np.ones(2, np.float32),
    "bn.running_mean": np.zeros(2, np.float32),
    COUNTER: np.zeros((), np.int64),
    "levels": np.zeros(2, np.uint8),
    "mask": np.ones(2, np.bool_),
    "temperature": np.ones((), np.float32),
}


def mixed_client(message: Message, _context: Any, _call_next: Any) -> Message:
    arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
    moved = {
        name: array + array.dtype.type(0.125) if array.dtype.kind == "f" else array for name, array in arrays.items()
    }
    return reply_with(message, record_of(moved))


class OfFloats(Noisy):
    """The mean of what is a float, with noise if it has any, each in its own form; all else stays as it was."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        arrays, metrics = FedAvg.aggregate_train(self, server_round, replies)
        return record_of({name: self._released(name, array.numpy()) for name, array in arrays.items()}), metrics

    def _released(self, name: str, mean: np.ndarray) -> np.ndarray:
        start = MIXED[name]
        return start if start.dtype.kind != "f" else np.asarray(mean + self.noise(start.shape), start.dtype)


@pytest.mark.long
@pytest.mark.parametrize(("spread", "expected"), [(0.0, "violated"), (10.0, "consistent")])
def test_models_of_many_forms_train_as_ever_and_are_judged(tmp_path: Path, spread: float, expected: str) -> None:
    """Half and double precision, no axes, no entries, counters, bytes, switches, and the names of normalisations."""
    plain = toy_run(lambda: OfFloats(0.0), None, mods=[mixed_client], start=MIXED)
    audit = toy_audit(tmp_path, trials=100)
    watched = toy_run(lambda: OfFloats(spread), audit, mods=[insider, mixed_client], start=MIXED)
    array_forms = {name: (array.dtype, array.shape) for name, array in watched.arrays.items()}
    assert array_forms == {name: (array.dtype, array.shape) for name, array in plain.arrays.items()}
    assert (watched.arrays == plain.arrays) is (spread == 0)
    assert str(audit.verdict().verdict) == expected
