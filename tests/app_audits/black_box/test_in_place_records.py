"""Claims about records: what a client may hand over, and that no error which the audit may have caused is evidence."""

import re
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset, DatasetDict, IterableDataset
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray
from opacus import PrivacyEngine
from scipy.sparse import csr_array
from torch.utils.data import DataLoader, SequentialSampler, Subset, TensorDataset, WeightedRandomSampler

from fl_audit.app_audits.black_box import StatedClaim, held, insider
from fl_audit.app_audits.black_box.dataset_subsets import data_set_of
from fl_audit.app_audits.black_box.recorder import FAILED, TrialRecorder
from fl_audit.app_audits.black_box.target_mod import applying_action
from fl_audit.app_audits.black_box.trial_messages import Observer, TargetAction, TrialTag
from fl_audit.strategies.flower_grids import make_messages_for
from tests.app_audits.black_box.toy_app import kept_in, summary_of, toy_audit, toy_run
from tests.builders.refusals import assert_refused

VALUES = np.arange(8.0, dtype=np.float32).reshape(4, 2)


class Own(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return len(VALUES)

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        return VALUES[index]


class Plain:
    """As many apps have them: no class of any library."""

    shape = (2,)  # of a record
    names: tuple[str, ...] = ("a", "b")

    def __len__(self) -> int:
        return len(VALUES)

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        return VALUES[index]


def hugging_face() -> Dataset:
    return Dataset.from_dict({"x": VALUES, "y": [0, 1, 0, 1]}).with_format("torch")


def rows_of(dataset: Any) -> NDArray[np.float64]:
    """Return the records of any data set of `KINDS` as rows."""
    match dataset:
        case DatasetDict():
            return rows_of(dataset["train"])
        case Dataset():
            return np.asarray(dataset["x"])
        case DataLoader():
            return np.concatenate([np.asarray(batch) for batch in dataset])
        case TensorDataset():
            return np.asarray(dataset.tensors[0])
        case csr_array():
            return dataset.toarray()
        case pd.DataFrame():
            return dataset.to_numpy()
    return np.stack([np.asarray(dataset[index]) for index in range(len(dataset))])


KINDS: dict[str, Callable[[], Any]] = {
    "array": lambda: VALUES,
    "tensor": lambda: torch.tensor(VALUES),
    "frame": lambda: pd.DataFrame(VALUES, index=list("dcba")),
    "sparse": lambda: csr_array(VALUES),
    "list": lambda: list(VALUES),
    "own of torch": Own,
    "own": Plain,
    "tensors": lambda: TensorDataset(torch.tensor(VALUES)),
    "subset": lambda: Subset(TensorDataset(torch.tensor(VALUES[::-1].copy())), [3, 2, 1, 0]),
    "loader": lambda: DataLoader(Own(), batch_size=3),
    "loader of hugging face": lambda: DataLoader(hugging_face(), 3, collate_fn=lambda rows: [row["x"] for row in rows]),
    "hugging face": hugging_face,
    "splits": lambda: DatasetDict({"test": hugging_face(), "train": hugging_face()}),
}


@pytest.mark.few_cases(5)
@pytest.mark.parametrize("kind", KINDS)
def test_every_usual_data_set_keeps_its_kind_under_d_and_under_d_prime(kind: str) -> None:
    """Without its first record, with the last one in its place, and with all: each is of the class of the original."""
    whole = KINDS[kind]()
    if kind == "subset":  # of records that are tuples
        whole = Subset(Own(), [0, 1, 2, 3])
    rows = rows_of(whole) if kind != "tensors" else VALUES
    for action, indices in (
        (TargetAction.OWN, [0, 1, 2, 3]),
        (TargetAction.WITHOUT_RECORD, [1, 2, 3]),
        (TargetAction.OTHER_RECORD, [3, 1, 2, 3]),
    ):
        with applying_action(action) as shard:
            dataset = held(whole)
        assert shard.records == 4
        assert shard.fault is None
        np.testing.assert_array_equal(rows_of(dataset), rows[indices])
        if kind not in ("own", "own of torch"):
            assert type(dataset) is type(whole)
        if kind.startswith("loader"):
            assert dataset.batch_size == 3
            assert isinstance(dataset.sampler, SequentialSampler)
        if kind == "splits":
            assert len(dataset["test"]) == 4
    assert held(whole) is whole
    with applying_action(None) as own_training:
        assert held(whole) is whole
    assert (own_training.records, own_training.fault) == (4, None)


def test_a_shuffling_loader_draws_as_the_one_that_was_handed_over() -> None:
    def order(loader: DataLoader[Any]) -> list[float]:
        torch.manual_seed(0)
        return [float(value) for batch in loader for value in batch[:, 0]]

    whole = DataLoader(Own(), batch_size=3, shuffle=True)
    with applying_action(TargetAction.OWN):
        assert order(held(whole)) == order(whole)
    with applying_action(TargetAction.WITHOUT_RECORD):
        assert sorted(order(held(whole))) == [2.0, 4.0, 6.0]


def _batches(records: Any) -> Any:
    """Return records as Keras has them: batches under a class of its name."""
    kind = type("PyDataset", (), {"__len__": lambda _: 2, "__getitem__": lambda _, index: records[index]})
    kind.__module__ = "keras.utils"
    return kind()


NO_DATA_SETS: dict[str, tuple[Callable[[], Any], str]] = {
    "columns": (lambda: {"x": VALUES, "y": VALUES}, "given a dict: hand over"),
    "tuple": (lambda: (VALUES, VALUES), "given a tuple: hand over"),
    "number": (lambda: 3, "given a int"),
    "nothing": (lambda: None, "held() was given a NoneType"),
    "name": (lambda: "train.csv", "given a str"),
    "generator": (lambda: (row for row in VALUES), "given a generator"),
    "scalar": (lambda: np.float32(3.0), "given a float32"),
    "stream": (lambda: IterableDataset.from_generator(lambda: iter([{"x": 1}])), "held() was given a IterableDataset"),
    "splits": (lambda: DatasetDict({"a": hugging_face(), "b": hugging_face()}), "no split 'train'"),
    "weighted": (lambda: DataLoader(Own(), sampler=WeightedRandomSampler([1.0] * 4, 4)), "its data set"),
    "batches": (lambda: _batches(VALUES), "entries are batches"),
}


@pytest.mark.parametrize("case", NO_DATA_SETS)
def test_what_is_no_data_set_is_refused_in_one_line(case: str) -> None:
    """In trials by an error; in the app's own training, which goes on as ever, by what the server is told."""
    make, expected_message = NO_DATA_SETS[case]
    dataset = make()
    for action in (TargetAction.OWN, TargetAction.WITHOUT_RECORD):
        with applying_action(action):
            assert_refused(re.escape(expected_message), held, dataset)
    with applying_action(None) as shard:
        assert held(dataset) is dataset
    assert expected_message in (shard.fault or "")


def test_parts_of_other_records_are_refused() -> None:
    """A second data set in the same message would differ in a second record."""
    with applying_action(TargetAction.WITHOUT_RECORD):
        assert_refused("parts of 4 and 3 records", held, VALUES, VALUES[1:])
    with applying_action(None) as shard:
        held(VALUES)
        held(VALUES[1:])
    assert "parts of 3 and 4 records" in (shard.fault or "")
    assert_refused("given nothing", held)


def test_a_module_of_the_app_may_have_the_name_of_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasets", types.ModuleType("datasets"))
    assert data_set_of(VALUES).records == 4


def client(train: Callable[[], NDArray[np.float32]]) -> Any:
    """Return a modifier that trains in the place of the target's client."""

    def trained(message: Message, context: Any, call_next: Any) -> Message:
        if message.metadata.message_type != "train" or context.node_config["partition-id"] != 0:
            return call_next(message, context)
        metrics = MetricRecord({"loss": 0.0, "num-examples": 10})
        return Message(RecordDict({"arrays": ArrayRecord([train()]), "metrics": metrics}), reply_to=message)

    return trained


def verdict_of(directory: Path) -> tuple[dict[str, Any], str]:
    return summary_of(directory), (kept_in(directory) / "verdict.txt").read_text()


def weights(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return a sum of clipped records with noise of eight times the norm, in the first of six parameters."""
    noise = np.random.normal(0, 8.0, 6)  # noqa: NPY002  # the trials seed it
    noise[0] += np.clip(rows[:, 0], -1, 1).sum()
    return noise.astype(np.float32)


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("adjacency", ["add-remove-record", "replace-record"])
def test_an_honest_app_with_a_data_set_of_hugging_face_keeps_its_claim(adjacency: str, tmp_path: Path) -> None:
    """Indexed by a list, such a data set is a dict of columns: the client would fail under D' alone."""
    data = Dataset.from_dict({"x": np.linspace(-1, 1, 99)[:, None]}).with_format("numpy")
    claim = StatedClaim(adjacency, epsilon=1.0)
    train = client(lambda: weights(np.stack([row["x"] for row in held(data)])))
    audit = toy_audit(tmp_path, trials=50, claim=claim)
    mods = [insider, train]
    toy_run(lambda: FedAvg(fraction_evaluate=0.0), audit, mods=mods, rounds=1)
    summary, text = verdict_of(tmp_path)
    assert summary["verdict"] == "consistent"
    assert summary["refusals"] == []
    assert summary["findings"][0]["share_of_trials"] == 1.0
    assert "error" not in text


@pytest.mark.long
@pytest.mark.parametrize("failure", ["raises", "has no answer under D alone"])
def test_an_error_under_one_hypothesis_alone_is_no_evidence(failure: str, tmp_path: Path) -> None:
    """The app insists on its 99 records: whoever changes them makes it fail, which says nothing of the noise."""
    data = np.linspace(-1, 1, 99)[:, None]

    def train() -> NDArray[np.float32]:
        rows = held(data)
        is_changed = len(rows) != 99
        if failure == "raises" and is_changed:
            raise ValueError(f"{len(rows)} records, and 99 are expected")
        if failure.endswith("alone") and not is_changed and rows is not data:
            raise KeyError("images")
        return weights(rows)

    audit = toy_audit(tmp_path, trials=50, claim=StatedClaim("add-remove-record", epsilon=1.0))
    toy_run(lambda: FedAvg(fraction_evaluate=0.0), audit, mods=[insider, client(train)])
    summary, text = verdict_of(tmp_path)
    assert summary["verdict"] == "inconclusive"
    assert summary["lower_bound"] == 0
    first = text.partition("\n")[0]
    assert "with an error" in first
    assert "be the cause" in first
    shares = (
        "100% of trials with D and 0% with D'" if failure.endswith("alone") else "0% of trials with D and 100% with D'"
    )
    assert shares in first
    assert not summary["floating_point"]
    assert audit.verdict().verdict == "inconclusive"


def test_a_reply_that_never_comes_is_no_answer() -> None:
    """Nor is one of some rounds alone; who is not asked owes none."""
    make_messages_for(1, 1)
    for answered in ((2, 3), (2,), (3,)):
        recorder = TrialRecorder(
            {"0": VALUES}, 1, 2, 3, Observer.CLIENT, lambda _, learned: np.zeros(8), tag=TrialTag(1)
        )
        for node in (2, 3):
            message = Message(RecordDict({"arrays": ArrayRecord([VALUES])}), node, "train")
            recorder.record_sent(message)
            if node in answered:
                recorder.record_received(Message(RecordDict({"arrays": ArrayRecord([VALUES])}), reply_to=message))
        assert (FAILED in recorder.transcript(None, "timed out").numbers) is (2 not in answered)


@pytest.mark.long
def test_a_leak_is_found_beside_rare_errors(tmp_path: Path) -> None:
    """Without noise a claim is broken, though every fifteenth trial of either truth ends with an error."""
    data = np.linspace(-1, 1, 99)[:, None]
    calls = [0]

    def train() -> NDArray[np.float32]:
        calls[0] += 1
        if calls[0] % 15 == 0:
            raise ConnectionError("a hiccup")
        return np.full(6, held(data).sum(), np.float32)

    audit = toy_audit(tmp_path, trials=60, claim=StatedClaim("add-remove-record", epsilon=1.0))
    toy_run(lambda: FedAvg(fraction_evaluate=0.0), audit, mods=[insider, client(train)])
    summary, text = verdict_of(tmp_path)
    assert summary["verdict"] == "violated"
    assert summary["findings"][0]["right"] < summary["findings"][0]["trials"]
    assert "replies of clients: " in text


@pytest.mark.long
def test_an_honest_opacus_app_of_hugging_face_records_is_not_called_violated(tmp_path: Path) -> None:
    """99 records in batches of 20, as most of Flower's examples hold them, at noise 1: epsilon 4 is kept."""
    draws = np.random.default_rng(0)
    columns = {"x": draws.normal(size=(99, 5)).astype(np.float32), "y": draws.integers(0, 2, 99)}
    data = Dataset.from_dict(columns).with_format("torch")

    def train() -> NDArray[np.float32]:
        net = torch.nn.Linear(5, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        private, optimizer, loader = PrivacyEngine().make_private(
            module=net,
            optimizer=optimizer,
            data_loader=DataLoader(held(data), batch_size=20),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )
        for batch in loader:
            optimizer.zero_grad()
            scores = private(batch["x"].float())[:, 0]
            torch.nn.functional.binary_cross_entropy_with_logits(scores, batch["y"].float()).backward()
            optimizer.step()
        return np.concatenate([parameter.detach().numpy().ravel() for parameter in net.parameters()]).astype(np.float32)

    audit = toy_audit(tmp_path, trials=200, claim=StatedClaim("add-remove-record", epsilon=4.0))
    toy_run(lambda: FedAvg(fraction_evaluate=0.0), audit, mods=[insider, client(train)], rounds=1)
    summary, _ = verdict_of(tmp_path)
    assert summary["verdict"] == "consistent"
    assert summary["refusals"] == []


@pytest.mark.parametrize(
    ("adjacency", "given", "said"),
    [
        ("add-remove-record", None, r"calls held\(records\)"),
        ("replace-record", np.zeros((1, 1)), r"holds 1 record: .*replace-record .*\b2 at least"),
        ("add-remove-record", np.zeros((0, 1)), r"holds 0 records: .*add-remove-record .*\b1 at least"),
        ("add-remove-record", {"x": VALUES}, "given a dict"),
    ],
)
def test_what_cannot_be_played_is_said_before_any_trial(
    adjacency: str, given: Any, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(message: Message, context: Context, call_next: Any) -> Message:
        if given is not None:
            held(given)
        return call_next(message, context)

    audit = toy_audit(tmp_path, claim=StatedClaim(adjacency, epsilon=1.0))
    result = toy_run(FedAvg, audit, mods=[insider, train])
    assert np.isfinite(result.arrays.to_numpy_ndarrays()[0]).all()
    assert re.search(said, capsys.readouterr().err)
    assert not list(tmp_path.iterdir())
