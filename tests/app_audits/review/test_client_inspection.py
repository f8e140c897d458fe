"""A review looks into clients that train with Opacus, and gives one verdict for both sides."""

import os
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch

from fl_audit.app_audits.local_training.assessment import Assessment
from fl_audit.app_audits.local_training.pitfalls import Pitfall
from fl_audit.app_audits.review.app_loading import StubImportFinder, read_app
from fl_audit.app_audits.review.client_inspection import inspect_clients
from fl_audit.app_audits.review.strategy_capture import capture_strategy
from fl_audit.cli.main import main
from fl_audit.verdict.verdict import Verdict
from tests.app_audits.review.apps import write_app
from tests.builders.refusals import assert_refused

SERVER = """
import torch
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid, context):
    torch.manual_seed(0)
    FedAvg(fraction_evaluate=0.0).start(grid, ArrayRecord(torch.nn.Linear(5, 3).state_dict()), num_rounds=2)
"""
CLIENT = """
import json
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

app = ClientApp()


def load_data(partition, partitions):
    {load}


@app.train()
def train(message, context):
    net = torch.nn.Linear(5, 3)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    engine = PrivacyEngine(accountant="rdp")
    {before}
    dataset = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    private, optimizer, loader = engine.make_private(
        module=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        data_loader=DataLoader(dataset, batch_size=20), noise_multiplier=1.0, max_grad_norm=1.0, {asked}
    )
    for inputs, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(private(inputs), labels).backward()
        optimizer.step()
    epsilon = engine.get_epsilon(1e-3)
    context.state["spent"] = ConfigRecord({{"history": json.dumps(engine.accountant.history)}})
    metrics = MetricRecord({{"epsilon": epsilon, "num-examples": {count}}})
    return Message(RecordDict({{"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}}), reply_to=message)
"""
DATA = "return TensorDataset(torch.randn(98, 5), torch.randint(3, (98,)))"
KEPT = (
    'engine.accountant.history = [tuple(one) for one in json.loads(context.state["spent"]["history"])]'
    ' if "spent" in context.state else []'
)


def _looked(directory: Path, name: str, data: str | None = None, seconds: float = 120.0, **snippets: str) -> Assessment:
    usual = {"load": DATA, "before": KEPT, "asked": "", "count": "1"}
    app = read_app(write_app(directory / name, name, SERVER, dedent(CLIENT).format(**(usual | snippets))))
    return inspect_clients(app, capture_strategy(app, 3, StubImportFinder(app.directory)), 3, data, seconds)


def test_honest_clients_are_not_accused(tmp_path: Path) -> None:
    assessment = _looked(tmp_path, "clients_honest")
    assert (assessment.pitfalls, assessment.verdict) == ((), Verdict.CONSISTENT)
    assert len(assessment.trainings.by_client) == 2
    file_names = {path.name for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert file_names == {"pyproject.toml", "__init__.py", "server_app.py", "client_app.py"}


@pytest.mark.few_cases(1)
@pytest.mark.parametrize(
    ("snippets", "pitfall"),
    [
        ({"before": "pass"}, Pitfall.FRESH_ACCOUNTANT),
        ({"asked": "poisson_sampling=False"}, Pitfall.NO_POISSON),
        ({"before": f"{KEPT}\n    torch.manual_seed(3)"}, Pitfall.SHARED_NOISE),
        ({"count": "len(dataset)"}, Pitfall.EXACT_COUNT),
    ],
)
def test_pitfalls_of_clients_are_named(tmp_path: Path, snippets: dict[str, str], pitfall: Pitfall) -> None:
    assessment = _looked(tmp_path, f"clients_{pitfall.name.lower()}", **snippets)
    assert pitfall in {finding.pitfall for finding in assessment.pitfalls}


OF_TEXTS = """
import torch


class Texts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = torch.nn.Embedding(40, 6, padding_idx=0), torch.nn.Linear(6, 3)

    def forward(self, input_ids, attention_mask):
        read = attention_mask.unsqueeze(-1).float()
        return self.head((self.table(input_ids) * read).sum(1) / read.sum(1).clamp(min=1.0))

"""
IDS = """
    class Reviews(torch.utils.data.Dataset):
        def __len__(self):
            return 98

        def __getitem__(self, number):
            mask = (torch.arange(8) < 2 + number % 7).long()
            ids = (1 + (number * torch.arange(1, 9)) % 39) * mask
            return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor(number % 3)}

    return Reviews()"""


@pytest.mark.long
@pytest.mark.parametrize(("option", "is_honest"), [("", True), ("poisson_sampling=False", False)])
def test_clients_that_learn_from_texts_are_looked_into(tmp_path: Path, option: str, is_honest: bool) -> None:
    """Their batches are token ids and a padding mask, by name."""
    step = 'private(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]), batch["labels"]'
    client = CLIENT.replace("private(inputs), labels", step).replace("for inputs, labels in", "for batch in")
    client = dedent(client).format(load="{load}", before=KEPT, asked=option, count="1").replace("{load}", IDS)
    client, server = (OF_TEXTS + item.replace("torch.nn.Linear(5, 3)", "Texts()") for item in (client, SERVER))
    name = f"clients_texts_{is_honest}".lower()
    app = read_app(write_app(tmp_path / name, name, server, client))
    assessment = inspect_clients(app, capture_strategy(app, 3, StubImportFinder(app.directory)), 3, None, 120.0)
    assert (assessment.verdict is Verdict.CONSISTENT) is is_honest
    assert (Pitfall.NO_POISSON in {item.pitfall for item in assessment.pitfalls}) is not is_honest


def test_clients_without_their_data_are_not_seen_and_the_offer_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = {"load": 'raise FileNotFoundError("no data here")'}
    assert_refused(r"no data here.*--client-data my_data:load_data", _looked, tmp_path, "clients_without", **missing)
    head = "import torch\nfrom torch.utils.data import TensorDataset\n"
    mine = f"{head}\n\ndef load_data(partition, partitions):\n    {DATA}\n"
    (tmp_path / "clients_own_data.py").write_text(mine)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "clients_own_data", raising=False)
    helped = _looked(tmp_path, "clients_helped", "clients_own_data:load_data", **missing)
    assert helped.verdict is Verdict.CONSISTENT


@pytest.mark.long
def test_clients_that_take_too_long_are_not_seen(tmp_path: Path) -> None:
    slow = {"load": f"import time\n    time.sleep(20)\n    {DATA}"}
    assert_refused("within 1 s", _looked, tmp_path, "clients_slow", seconds=1.0, **slow)


@pytest.mark.parametrize(("clients", "rounds"), [(3, 2), (2, 1)])
def test_looking_into_clients_takes_at_most_three_times_the_steps_of_the_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clients: int, rounds: int
) -> None:
    steps = [0]
    step = torch.optim.SGD.step

    def counted(self: torch.optim.SGD, *arguments: Any, **options: Any) -> Any:
        steps[0] += 1
        return step(self, *arguments, **options)

    monkeypatch.setattr(torch.optim.SGD, "step", counted)
    name = f"clients_timed_{clients}_{rounds}"
    snippets = {"load": DATA, "before": KEPT, "asked": "", "count": "1"}
    server = SERVER.replace("num_rounds=2", f"num_rounds={rounds}")
    app = read_app(write_app(tmp_path / name, name, server, dedent(CLIENT).format(**snippets)))
    caught = capture_strategy(app, clients, StubImportFinder(app.directory))
    steps[0] = 0
    inspect_clients(app, caught, clients, None, 120.0)
    app_steps = clients * rounds * 5  # of 98 records in batches of 20
    # The seconds that a review may take beside three times the app's own rounds are enough for these steps.
    assert 0 < steps[0] <= 3 * app_steps + 15


@pytest.mark.long
def test_what_clients_write_is_written_in_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A client that writes a file, moves away and draws from the generator of torch leaves none of it here."""
    writing = f"import os\n    open('written.txt', 'a').write('left')\n    os.environ['LEFT'] = '1'\n    {DATA}"
    snippets = {"load": writing, "before": KEPT, "asked": "", "count": "1"}
    directory = write_app(tmp_path / "clients_writing", "clients_writing", SERVER, dedent(CLIENT).format(**snippets))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    words = ["fl-audit", "review", str(directory), "--quick", "--set", "clients=2", "--minutes", "1", "--json"]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit):
        main()
    assert '"training"' in (output := capsys.readouterr().out) or "consistent" in output
    after = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert after == {path: content for path, content in before.items() if path.suffix != ".pyc"}
    assert list(here.iterdir()) == []
    assert "LEFT" not in os.environ
