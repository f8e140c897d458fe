"""One released model: bounds, Epsilon*, the members that stand out, ceilings, and a page that can be signed."""

import itertools
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from typer.testing import CliRunner

from fl_audit.app_audits.model_release.release_audit import read_checkpoint
from fl_audit.cli.main import app
from fl_audit.errors import InputError
from fl_audit.released_model.empirical_star import loss_attacks, outstanding_members
from fl_audit.runs.signed_statement import new_key, verify
from tests.builders.commands import printed_by
from tests.builders.refusals import assert_refused

CLAIM = ["--claim-epsilon", "1", "--adjacency", "add-remove-record"]
POLICY = """
[claim]
largest-epsilon = 3.0
units = ["record"]
[model]
largest-epsilon-star = 4.5
largest-lower-bound = 1.0
largest-outstanding-share = 0.05
"""


@dataclass(frozen=True)
class TrainedModel:
    """The files of a model that was trained in this test: its parameters, and losses of members and of others."""

    model: Path
    members: Path
    others: Path

    def arguments(self, *options: str) -> list[str]:
        return ["release", str(self.model), str(self.members), str(self.others), "--delta", "1e-5", *options]


def trained(directory: Path, records: int, steps: int, seed: int = 0) -> TrainedModel:
    """Train a network on random labels of the records that fair coins drew, and store its losses.

    Random labels of 200 classes are learned by heart: many steps make members' losses vanish, and none leak nothing.
    """
    torch.manual_seed(seed)
    features = torch.randn(records, 30)
    labels = torch.randint(0, 200, (records,))
    is_member = torch.rand(records) < 0.5
    network = torch.nn.Sequential(torch.nn.Linear(30, 64), torch.nn.ReLU(), torch.nn.Linear(64, 200))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.autograd.backward(torch.nn.functional.cross_entropy(network(features[is_member]), labels[is_member]))
        optimizer.step()
    losses = torch.nn.functional.cross_entropy(network(features), labels, reduction="none").detach().double().numpy()
    directory.mkdir()
    save_file({name: value.numpy() for name, value in network.state_dict().items()}, directory / "model.safetensors")
    np.save(directory / "members.npy", losses[is_member.numpy()])
    np.savetxt(directory / "others.txt", losses[~is_member.numpy()])
    return TrainedModel(directory / "model.safetensors", directory / "members.npy", directory / "others.txt")


@pytest.fixture(scope="module")
def leaking(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    return trained(tmp_path_factory.mktemp("release") / "leaking", 1000, 200)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    return trained(tmp_path_factory.mktemp("release") / "fresh", 1000, 0)


def measured(model: TrainedModel, *options: str) -> dict[str, object]:
    done = CliRunner().invoke(app, model.arguments(*options, "--json"))
    assert done.exit_code in (0, 4), done.exception
    summary: dict[str, object] = json.loads(done.stdout)
    return summary


def test_a_model_that_learned_by_heart_is_found_and_a_fresh_one_is_not(
    leaking: TrainedModel, fresh: TrainedModel, tmp_path: Path
) -> None:
    (tmp_path / "policy.toml").write_text(POLICY)
    policy = ["--policy", str(tmp_path / "policy.toml")]
    summary = measured(leaking, *CLAIM, "--coins", *policy)
    assert summary["verdict"] == "violated"
    assert summary["epsilon_at_least"] > 1  # type: ignore[operator]
    assert summary["outstanding"]["share"] > 0.5  # type: ignore[index]
    standings = {answer["rule"]: answer["standing"] for answer in summary["ceilings"]}  # type: ignore[attr-defined]
    assert standings == {
        "claim.largest-epsilon": "met",
        "claim.units": "met",
        "model.largest-epsilon-star": "broken",
        "model.largest-lower-bound": "broken",
        "model.largest-outstanding-share": "broken",
    }
    summary = measured(fresh, *CLAIM, "--coins", *policy)
    assert summary["verdict"] == "inconclusive", "losses never confirm a claim"
    assert summary["epsilon_at_least"] == 0
    assert summary["outstanding"]["p_value"] > 0.01  # type: ignore[index]
    assert {answer["standing"] for answer in summary["ceilings"]} == {"met"}  # type: ignore[attr-defined]


def test_only_coins_let_losses_refute_a_claim(leaking: TrainedModel) -> None:
    summary = measured(leaking, *CLAIM)
    assert summary["verdict"] == "inconclusive"
    assert max(bound["epsilon"] for bound in summary["bounds"]) > 1  # type: ignore[attr-defined]
    assert measured(leaking)["verdict"] == "no guarantee"


def test_the_page_names_places_and_shows_no_loss(leaking: TrainedModel, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, leaking.arguments(*CLAIM, "--out", str(tmp_path / "out")))
    assert done.exit_code == 0, done.exception
    losses = np.concatenate([np.load(leaking.members), np.loadtxt(leaking.others)])
    for name in ("report.html", "summary.json"):
        text = (tmp_path / "out" / name).read_text()
        assert not [loss for loss in losses.tolist() if loss and f"{loss:.5f}" in text]
    stored = json.loads((tmp_path / "out" / "summary.json").read_text())
    members = np.load(leaking.members)
    smallest = np.argsort(members)[: len(stored["outstanding"]["indices"])]
    assert sorted(smallest.tolist()) == stored["outstanding"]["indices"], "those that stand out have small losses"


def test_the_result_is_signed_verified_judged_and_reported(leaking: TrainedModel, tmp_path: Path) -> None:
    new_key(tmp_path / "key")
    out = tmp_path / "out"
    done = CliRunner().invoke(
        app, leaking.arguments(*CLAIM, "--coins", "--out", str(out), "--key", str(tmp_path / "key"))
    )
    assert done.exit_code == 0, done.exception
    (statement,) = verify(out, tmp_path / "key.pub")
    assert statement.agrees
    predicate = statement.statement["predicate"]
    assert (predicate["kind"], predicate["verdict"]) == ("model", "violated")
    assert predicate["scope"]["not_made"]
    assert json.loads((out / "summary.json").read_text())["model"]["sha256"] == read_checkpoint(leaking.model).sha256
    policy = tmp_path / "policy.toml"
    digest = read_checkpoint(leaking.model).sha256
    for checkpoint, status in ((digest, 0), ("ab" * 32, 4)):
        policy.write_text(f'[claim]\nlargest-epsilon = 1.0\n[model]\ncheckpoints = ["{checkpoint}"]\n')
        assert CliRunner().invoke(app, ["gate", str(policy), str(out)]).exit_code == status
    before = (out / "report.html").read_bytes()
    command_result = CliRunner().invoke(app, ["report", str(out)])
    assert command_result.exit_code == 0, command_result.exception
    assert command_result.stdout.startswith("Violated")
    assert (out / "report.html").read_bytes() == before, "a signed page stays as it is"
    assert CliRunner().invoke(app, ["report", str(out), "--fail-on-violation"]).exit_code == 4


def test_a_violation_and_a_broken_ceiling_end_with_status_4_where_asked(
    leaking: TrainedModel, fresh: TrainedModel, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[claim]\nlargest-epsilon = 0.5\n")
    fail = ["--fail-on-violation", "--json"]
    statuses = [
        CliRunner().invoke(app, model.arguments(*CLAIM, *options, *fail)).exit_code
        for model, options in ((leaking, ["--coins"]), (fresh, ["--coins"]), (fresh, ["--policy", str(policy)]))
    ]
    assert statuses == [4, 0, 4]


@pytest.mark.parametrize(
    ("change", "expected_error"),
    [
        (["--claim-epsilon", "1"], "--claim-epsilon and --adjacency"),
        (["--claim-epsilon", "1", "--adjacency", "replace-record", "--coins"], "add-remove"),
        (["--key", "k"], "--out"),
        (["--policy", "gone.toml"], r"gone\.toml is missing"),
    ],
)
def test_wrong_options_are_refused_in_one_line(change: list[str], expected_error: str, fresh: TrainedModel) -> None:
    assert_refused(expected_error, printed_by, *fresh.arguments(*change))


def test_wrong_files_are_refused_in_one_line(fresh: TrainedModel, tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(2)}, tmp_path / "model.pt")
    (tmp_path / "text.safetensors").write_text("no tensors")
    np.savez(tmp_path / "none.npz")
    np.savez(tmp_path / "objects.npz", w=np.array([{}]))
    for name, expected_error in (
        ("gone.npz", "missing"),
        ("model.pt", r"accepted is \.safetensors or \.npz"),
        ("text.safetensors", "file of tensors"),
        ("none.npz", "no tensors"),
        ("objects.npz", "objects"),
    ):
        assert_refused(expected_error, read_checkpoint, tmp_path / name)
    (tmp_path / "nan.txt").write_text("0.1\nnan\n")
    done = CliRunner().invoke(
        app, ["release", str(fresh.model), str(tmp_path / "nan.txt"), str(fresh.others), "--delta", "1e-5"]
    )
    assert isinstance(done.exception, InputError)


def test_few_losses_have_no_value_of_epsilon_star_and_a_ceiling_asks_for_the_upper_end(tmp_path: Path) -> None:
    small_model = trained(tmp_path / "few", 80, 0)
    (tmp_path / "policy.toml").write_text("[model]\nlargest-epsilon-star = 3.0\n")
    summary = measured(small_model, "--policy", str(tmp_path / "policy.toml"))
    assert summary["epsilon_star"]["is_lower_bound"]  # type: ignore[index]
    assert summary["ceilings"][0]["standing"] != "met"  # type: ignore[index]


def test_the_checkpoint_of_a_run_is_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "model.npz", w=np.zeros((3, 4)), b=np.zeros(4))
    checkpoint = read_checkpoint(tmp_path / "model.npz")
    assert (checkpoint.tensors, checkpoint.parameters, len(checkpoint.sha256)) == (2, 16, 64)


def test_members_that_stand_out_are_those_that_the_attack_counts() -> None:
    draw = np.random.default_rng(0)
    for _ in range(200):
        members = draw.integers(0, 40, draw.integers(1, 300)) / 8  # with ties
        non_members = draw.integers(0, 40, draw.integers(1, 300)) / 8
        outstanding_result = outstanding_members(members, non_members, 0.01)
        assert len(outstanding_result.indices) / members.size == loss_attacks(members, non_members).tpr_at_fpr_001


def test_the_chance_of_members_that_stand_out_is_that_of_all_orders() -> None:
    """Hold mean and p-value against the list of all orders of three members and four others, with one false alarm."""
    counts = []
    for member_indices in itertools.combinations(range(7), 3):
        members = np.array(member_indices, dtype=np.float64)
        non_members = np.array([index for index in range(7) if index not in member_indices], dtype=np.float64)
        counts.append((len(outstanding_members(members, non_members, 0.25).indices), members, non_members))
    numbers = np.array([count for count, _, _ in counts])
    for count, members, non_members in counts:
        outstanding_result = outstanding_members(members, non_members, 0.25)
        assert math.isclose(outstanding_result.expected, numbers.mean())
        assert math.isclose(outstanding_result.p_value, (numbers >= count).mean())
