"""The ledger of a site: its chain, what all trainings spend together, its budget, and the client that keeps to it."""

import json
import math
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fl_audit.app_audits.live.budget_guard import REFUSED, budget_mod
from fl_audit.cli.main import main
from fl_audit.privacy.accounting_enums import TrainingCount
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.privacy.guarantee_line import GUARANTEE_NAMES, guarantee_line
from fl_audit.privacy.ledger import LedgerTraining, add_to_ledger, composed_epsilon, read_ledger
from fl_audit.privacy.renyi import RDP_ORDERS
from fl_audit.privacy.stated_releases import StatedReleases
from tests.builders.refusals import assert_refused

DELTA = 1e-5


def line(
    name: str, noise: float = 2.0, rounds: int = 30, rate: float = 1.0, adjacency: str = "add-remove-record"
) -> LedgerTraining:
    return LedgerTraining(name, StatedReleases(adjacency, noise, rounds, rate))


def history(seed: int) -> list[LedgerTraining]:
    """Return one to six trainings, sampled or not."""
    draw = np.random.default_rng(seed)
    lines = []
    for number in range(int(draw.integers(1, 7))):
        rate = 1.0 if draw.random() < 0.3 else float(draw.uniform(0.01, 0.5))
        noise = float(draw.uniform(0.8, 4)) * (4 if rate == 1 else 1)
        lines.append(line(str(number), noise, int(draw.integers(1, 80)), rate))
    return lines


def of_dp_accounting(lines: list[LedgerTraining]) -> float:
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    for training in lines:
        event: Any = GaussianDpEvent(training.terms.noise_multiplier)
        if training.terms.sampling_rate < 1:
            event = PoissonSampledDpEvent(training.terms.sampling_rate, event)
        accountant.compose(SelfComposedDpEvent(event, training.terms.rounds))
    return float(accountant.get_epsilon(DELTA))


def compared(seeds: range) -> None:
    for seed in seeds:
        lines = history(seed)
        expected = of_dp_accounting(lines)
        assert composed_epsilon(lines, DELTA).epsilon == pytest.approx(expected, abs=1e-3, rel=1e-3), f"history {seed}"


@pytest.mark.parametrize(
    "histories", [1, pytest.param(10, marks=pytest.mark.long), pytest.param(50, marks=pytest.mark.campaign)]
)
def test_totals_are_those_of_dp_accounting(histories: int) -> None:
    compared(range(histories))


def test_nothing_is_spent_without_a_training_and_gaussian_trainings_add_up() -> None:
    assert composed_epsilon((), DELTA).epsilon == 0
    composition = composed_epsilon((line("a", 5.0, 30), line("b", 7.0, 12)), DELTA)
    assert composition.epsilon == pytest.approx(gdp_epsilon(DELTA, math.sqrt(30 / 25 + 12 / 49)), rel=1e-9)


def test_a_changed_a_missing_and_a_foreign_line_are_found(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    assert read_ledger(path) == ()
    for name in "abc":
        assert add_to_ledger(path, line(name))
    assert [training.name for training in read_ledger(path)] == ["a", "b", "c"]
    texts = path.read_text().splitlines()
    damaged = {
        "line 1 was changed": [texts[0].replace('"rounds": 30', '"rounds": 3'), *texts[1:]],
        "line 2 was changed": [texts[0], texts[2]],
        "line 3 is no training": [*texts[:2], "{"],
    }
    for message, remaining_lines in damaged.items():
        path.write_text("\n".join(remaining_lines) + "\n")
        assert_refused(message, read_ledger, path)
    path.write_text("\n".join(texts) + "\n")
    assert_refused("one ledger", lambda: add_to_ledger(path, line("d", adjacency="add-remove-client")))


def test_a_training_over_the_budget_is_not_added(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    whole = composed_epsilon((line("a"),), DELTA).epsilon
    assert add_to_ledger(path, line("a"), budget=whole * 1.01, delta=DELTA)
    assert not add_to_ledger(path, line("b"), budget=whole * 1.01, delta=DELTA)
    assert len(read_ledger(path)) == 1
    assert_refused("budget is 0", lambda: add_to_ledger(path, line("b"), budget=0.0, delta=DELTA))


def test_a_sensitivity_below_what_clipping_lets_pass_is_counted_in_its_effect() -> None:
    noise = math.sqrt(2 * math.log(1.25 / DELTA)) / 10
    terms = StatedReleases("add-remove-client", noise, 1)
    wrong = LedgerTraining("hospital", terms, sensitivity=1e-4, clipping_norm=1.0)
    assert composed_epsilon((wrong,), DELTA).epsilon == pytest.approx(2.13e8, rel=0.01)
    assert composed_epsilon((LedgerTraining("hospital", terms),), DELTA).epsilon == pytest.approx(10, abs=0.5)
    replaced = LedgerTraining("r", StatedReleases("replace-client", 1.0, 1), sensitivity=1.0, clipping_norm=1.0)
    assert replaced.noise_multiplier == 0.5
    assert_refused("sensitivity without clipping", LedgerTraining, "half", terms, sensitivity=1.0)


def test_the_command_adds_refuses_and_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ledger"

    def said(*arguments: str) -> tuple[str, int]:
        monkeypatch.setattr("sys.argv", ["fl-audit", "account", "--delta", "1e-5", *arguments])
        try:
            main()
        except SystemExit as ended:
            captured = capsys.readouterr()
            return captured.out + captured.err, int(ended.code or 0)
        return capsys.readouterr().out, 0

    training = ("--noise-multiplier", "2", "--rounds", "30", "--adjacency", "add-remove-record", "--ledger", str(path))
    text, status = said(*training, "--name", "first", "--budget", "20", "--json")
    answer = json.loads(text)
    assert (status, answer["added"], answer["over_budget"], len(answer["trainings"])) == (0, True, False, 1)
    assert answer["epsilon"] == pytest.approx(gdp_epsilon(DELTA, math.sqrt(30) / 2), rel=1e-9)
    alone = json.loads(said(*training[: training.index("--ledger")], "--json")[0])
    assert {name: answer[name] for name in GUARANTEE_NAMES} == {name: alone[name] for name in GUARANTEE_NAMES}
    assert guarantee_line(answer) in said("--ledger", str(path))[0]
    text, status = said(*training, "--name", "second", "--budget", "20")
    assert status == 5
    would = re.search(r"^not added: .*epsilon would be ([0-9.]+),.* 20$", text, re.MULTILINE)
    assert would
    assert float(would[1]) == pytest.approx(gdp_epsilon(DELTA, math.sqrt(60) / 2), rel=1e-5)
    terms = StatedReleases("add-remove-record", 2.0, 30)
    add_to_ledger(path, LedgerTraining("third", terms, sensitivity=1e-4, clipping_norm=1.0))
    assert re.search(r"sum by 1\b", said("--ledger", str(path))[0])
    text, status = said("--ledger", str(path), "--budget", "20")
    assert (status, "2 trainings spend" in text) == (5, True)
    path.write_text(path.read_text().replace('"name": "first"', '"name": "other"'))
    text, status = said("--ledger", str(path))
    assert (status, "was changed" in text) == (2, True)
    text, status = said("--rounds", "3")
    assert (status, "Missing option '--noise-multiplier' and '--adjacency'" in text) == (2, True)


def train_message(run: int, kind: str = "train") -> tuple[Message, Context]:
    content = RecordDict(
        {"arrays": ArrayRecord({"w": Array(np.zeros(3))}), "config": ConfigRecord({"server-round": 1})}
    )
    TaskIdentity.task_id = 1
    TaskIdentity.run_id = run
    TaskIdentity.node_id = 2
    message = Message(content, dst_node_id=1, message_type=kind)
    TaskIdentity.node_id = 1
    return message, Context(run_id=run, node_id=1, node_config={}, state=RecordDict(), run_config={})


def test_a_client_sends_nothing_once_the_budget_is_spent(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    terms = StatedReleases("add-remove-client", 5.0, 3)
    mod = budget_mod(
        path, terms, budget=1.2 * composed_epsilon((LedgerTraining("", terms),), DELTA).epsilon, delta=DELTA
    )
    trained: list[int] = []

    def train(message: Message, context: Context) -> Message:
        trained.append(context.run_id)
        return Message(RecordDict(), reply_to=message)

    # Whatever action of the app a message names, it is a round like every other.
    replies = [
        mod(*train_message(7, kind), train) for kind in ("train", "train.default", "train.mine", "train.default")
    ]
    assert [entry.has_error() for entry in replies] == [False, False, False, True]
    assert "in 3 rounds" in replies[3].error.reason
    second_reply = mod(*train_message(8), train)
    assert (second_reply.error.code, trained) == (REFUSED, [7, 7, 7])
    assert "more than epsilon" in second_reply.error.reason
    assert [entry.name for entry in read_ledger(path)] == ["7"]


def test_messages_that_come_at_once_are_counted_one_by_one_and_a_lost_count_is_no_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ledger"
    terms = StatedReleases("add-remove-client", 5.0, 3)
    mod, (message, context), at_once = budget_mod(path, terms, 99.0, DELTA), train_message(7), threading.Barrier(8)

    def one(_: int) -> bool:
        at_once.wait()
        return mod(message, context, lambda got, _: Message(RecordDict(), reply_to=got)).has_error()

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(one, range(8))) == [False] * 3 + [True] * 5
    assert [training.name for training in read_ledger(path)] == ["7"]
    (tmp_path / "ledger.rounds" / "7").unlink()
    # What is raised goes to the server: the site's own log has the rest, and neither what a damaged file holds.
    for damage, expected_error in ("rounds/7", "no number of rounds"), ("ledger", "is no training"):
        path.parent.joinpath("ledger." + damage if "/" in damage else damage).write_text("private words")
        error = assert_refused("cannot be used", mod, message, context, lambda got, _: got)
        assert "private" not in str(error)
        assert str(tmp_path) not in str(error)
        assert expected_error in capsys.readouterr().err


@pytest.mark.parametrize("count", [2, 40])
def test_a_sweep_is_one_line_that_spends_as_its_trainings_one_by_one(tmp_path: Path, count: int) -> None:
    terms = StatedReleases("add-remove-record", 20.0, 10, 0.5)
    add_to_ledger(tmp_path / "sweep", LedgerTraining("sweep", terms, trainings=count))
    for number in range(count):
        add_to_ledger(tmp_path / "each", LedgerTraining(str(number), terms))
    together, separate_epsilon = (
        composed_epsilon(read_ledger(tmp_path / name), 1e-5).epsilon for name in ("sweep", "each")
    )
    assert together == pytest.approx(separate_epsilon, rel=1e-12)
    assert together > composed_epsilon([LedgerTraining("one", terms)], 1e-5).epsilon * 1.2
    assert [line.trainings for line in read_ledger(tmp_path / "sweep")] == [count]
    # The number is part of what the digest covers.
    edited = (tmp_path / "sweep").read_text().replace(f'"trainings": {count}', '"trainings": 1')
    (tmp_path / "sweep").write_text(edited)
    assert_refused("was changed", read_ledger, tmp_path / "sweep")
    assert_refused("trainings are 0", LedgerTraining, "none", terms, trainings=0)


def test_who_only_reads_a_ledger_loads_numpy_alone(tmp_path: Path) -> None:
    heavy = ("torch", "pandas", "scipy", "sklearn", "ray", "opacus", "filelock")
    add_to_ledger(tmp_path / "ledger", line("a"))
    code = (
        "import sys, pathlib, fl_audit.app_audits.live.budget_guard; from fl_audit.privacy.ledger import read_ledger\n"
        f"read_ledger(pathlib.Path({str(tmp_path / 'ledger')!r}))\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    command_result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ.copy()
    )
    assert command_result.stdout.strip() == "[]"


def test_a_selection_is_one_line_that_adds_up_with_trainings_as_dp_accounting_does(tmp_path: Path) -> None:
    terms = StatedReleases("add-remove-record", 20.0, 10)
    path = tmp_path / "ledger"
    add_to_ledger(path, LedgerTraining("best of 40", terms, trainings=40, selection=TrainingCount.GEOMETRIC))
    add_to_ledger(path, LedgerTraining("twice", StatedReleases("add-remove-record", 8.0, 3), trainings=2))
    accountant = RdpAccountant(RDP_ORDERS.tolist())
    accountant.compose(RepeatAndSelectDpEvent(SelfComposedDpEvent(GaussianDpEvent(20.0), 10), 40.0, 1.0))
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(8.0), 6))
    assert composed_epsilon(read_ledger(path), 1e-5).epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-6)
    path.write_text(path.read_text().replace("geometric", "logarithmic"))
    assert_refused("was changed", read_ledger, path)
    assert_refused("from 2", LedgerTraining, "one", terms, selection=TrainingCount.GEOMETRIC)
