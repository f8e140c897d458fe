"""`fl-audit training`: its words, JSON, files, ledger and exit codes."""

import json
from pathlib import Path

import pytest

from fl_audit.app_audits.audit_results import training_result
from fl_audit.app_audits.local_training.assessment import assess
from fl_audit.app_audits.local_training.assessment_messages import headline, report_lines
from fl_audit.app_audits.local_training.recorded_trainings import RecordedTrainings
from fl_audit.app_audits.local_training.training_facts import RecordedTraining
from fl_audit.app_audits.page import write_training_page
from fl_audit.verdict.verdict import Verdict
from tests.builders.commands import exit_status

MODULE = """
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset


def data():
    return TensorDataset(torch.randn(98, 5), torch.randint(3, (98,)))


def model():
    return torch.nn.Linear(5, 3)


def train(model, dataset):
    open("left_behind.txt", "w").write("written by the training")
    engine = PrivacyEngine(accountant="rdp")
    private, optimizer, loader = engine.make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(dataset, batch_size=20), noise_multiplier=1.0, max_grad_norm=1.0,
    )
    for inputs, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(private(inputs), labels).backward()
        optimizer.step()
    engine.get_epsilon(1e-3)
    return model
"""


@pytest.mark.long
def test_a_training_function_is_audited_in_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trained_here.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    arguments = ("training", "trained_here:train", "--data", "trained_here:data", "--model", "trained_here:model")
    assert exit_status(*arguments, "--json", "--out", "out") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["verdict"], summary["pitfalls"]) == ("consistent", [])
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.html", "summary.json"}
    assert not (tmp_path / "left_behind.txt").exists()
    assert exit_status(*arguments, "--rounds", "3", "--ledger", "site.ledger", "--fail-on-violation") == 4
    assert "fresh accountant" in capsys.readouterr().out
    line = json.loads((tmp_path / "site.ledger").read_text().splitlines()[0])
    assert (line["rounds"], line["sampling_rate"], line["noise_multiplier"]) == (15, 0.2, 1.0)


def test_wrong_input_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("training", "no_such_module_here:train") == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert exit_status("training", "json:dumps", "--rounds", "0") == 2
    assert "--rounds 0" in capsys.readouterr().err


def test_what_was_not_seen_is_said_on_the_page(tmp_path: Path) -> None:
    assessment = assess("train", RecordedTrainings((RecordedTraining(),), 1), ["there was nothing"])
    assert assessment.verdict is Verdict.NOT_AUDITED
    path = write_training_page(training_result(assessment), assessment, tmp_path)
    text = path.read_text()
    assert headline(assessment) in text
    assert all(about in text for about, _ in report_lines(assessment))


@pytest.mark.parametrize(("epsilon", "status", "lines"), [(11.48, 0, 1), (None, 2, 0)])
def test_a_ledger_gets_no_less_than_a_training_spends(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    epsilon: float | None,
    status: int,
    lines: int,
) -> None:
    """Of an effect that is not bounded the least is added, with a word; without any bound nothing can be added."""
    step = {"noise_multiplier": 1.0, "sampling_rate": 1.0, "steps": 5}
    summary = {
        "verdict": "violated",
        "headline": "Violated.",
        "lines": [],
        "composed": {"epsilon": epsilon, "is_least": True, "steps": [step]},
    }
    monkeypatch.setattr("fl_audit.cli.training.audit_training_in_subprocess", lambda *_: summary)
    monkeypatch.chdir(tmp_path)
    assert exit_status("training", "json:dumps", "--ledger", "site.ledger") == status
    output = capsys.readouterr()
    assert ("least" in output.out) is (status == 0)
    assert ("no finite epsilon" in output.err) is (status == 2)
    path = tmp_path / "site.ledger"
    assert (len(path.read_text().splitlines()) if path.exists() else 0) == lines
