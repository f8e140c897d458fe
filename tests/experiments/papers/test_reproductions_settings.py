"""Settings of the reproductions, and the command that plays them."""

import math
import re
import sys
from pathlib import Path

import pytest

from fl_audit.adjacency import Adjacency
from fl_audit.data.data_setting_enums import NeighbourChoice
from fl_audit.errors import InputError
from fl_audit.experiments.papers import runner
from fl_audit.experiments.papers.bernau2019.membership_runs import PRINTED as PRINTED_2019
from fl_audit.experiments.papers.bernau2021.insider_runs import (
    ADULT,
    CANDIDATES,
    LOCATION,
    MNIST,
    PRINTED,
    PURCHASE,
    all_runs,
    audit_runs,
    insider_run,
    main_runs,
    neighbour_runs,
)
from fl_audit.experiments.papers.bernau2021.paper import PAPER
from fl_audit.experiments.papers.negoescu2023.epsilon_star_runs import PRINTED as PRINTED_2023
from fl_audit.experiments.papers.papers import ComputeExtent
from fl_audit.experiments.papers.reproduce import PAPERS, chosen_items
from fl_audit.experiments.papers.reproduction_names import item_names
from fl_audit.experiments.papers.runner import find_data
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.privacy.calibration import noise_multiplier_for
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.targets import BeliefTarget
from tests.builders.commands import RunCommand, command_runner
from tests.builders.refusals import assert_refused

B = Adjacency.REPLACE_RECORD
U = Adjacency.ADD_REMOVE_RECORD
LS = SensitivityKind.LOCAL
GS = SensitivityKind.GLOBAL
ALL = (MNIST, PURCHASE, ADULT)
OF_2019 = ("table2", "table3", *(f"fig{number}" for number in range(3, 8)), "adversaries", "claims")


def test_names() -> None:
    numbered = ["table1", "table2", "table3", *(f"fig{number}" for number in range(1, 10)), "claims"]
    names = item_names()
    first = names.index("bernau2021")
    assert names[first : first + 14] == ("bernau2021", *(f"bernau2021-{key}" for key in numbered))
    assert names[:10] == ("bernau2019", *(f"bernau2019-{key}" for key in OF_2019))
    assert chosen_items("bernau2021") == (PAPER, PAPER.items)
    assert [item.key for item in chosen_items("bernau2021-fig4")[1]] == ["fig4"]


def test_an_unknown_name_gets_the_nearest_and_the_list() -> None:
    error = assert_refused(r"'bernau2021-fig10' .*'bernau2021-fig1'", chosen_items, "bernau2021-fig10")
    assert all(name in str(error) for name in item_names())


@pytest.mark.parametrize(
    ("data", "records", "delta", "model", "measure"),
    [
        (MNIST, 100, 0.01, "mnist-cnn", "ssim"),
        (PURCHASE, 1000, 0.001, "dense-128", "hamming"),
        (LOCATION, 1000, 0.001, "dense-128", "hamming"),
        (ADULT, 1000, 0.001, "adult-mlp", "manhattan"),
    ],
)
def test_configurations_are_those_of_the_paper(data, records, delta, model, measure) -> None:  # type: ignore[no-untyped-def]
    config = insider_run(data, LS, B).config().as_dict()
    assert (config["data"]["records"], config["privacy"]["delta"]) == (records, delta)
    assert (config["model"]["name"], config["audit"]["dissimilarity"]) == (model, measure)
    expected = {"strategy": "dp-fedsgd", "rounds": 30, "learning-rate": 0.005, "optimizer": "adam", "momentum": 0}
    assert expected.items() <= (config["training"] | {"momentum": 0}).items()
    assert config["privacy"]["clipping-norm"] == 3.0
    assert config["privacy"]["accountant"] == "rdp-classic"
    assert (config["privacy"]["sensitivity"], config["privacy"]["adjacency"]) == ("local", "replace-record")
    assert (config["privacy"]["belief"], config["audit"]["neighbour"]) == (0.9, "most-dissimilar")
    assert (config["audit"]["trials"], config["audit"]["view"], config["data"]["clients"]) == (1000, "update", 10)


def test_noise_at_the_smallest_beliefs_shows_the_cap_of_the_orders() -> None:
    for data, noise in ((MNIST, 404.84), (ADULT, 329.03)):
        target = BeliefTarget(data["beliefs"][0])
        claim = Claim(B, gaussian_rounds(1.0, 30), data["privacy.delta"], 0.5, Accountant.RDP_CLASSIC)
        assert noise_multiplier_for(target, claim) == pytest.approx(noise, abs=0.005)


def test_which_runs_an_item_needs() -> None:
    main, audit, neighbours = (
        {run for data in ALL for run in of(data)} for of in (main_runs, audit_runs, neighbour_runs)
    )
    assert (len(main), len(audit), len(neighbours)) == (12, 24, 16)
    assert len(main & audit) == 6
    assert len(main & neighbours) == 6
    assert {run["audit.trials"] for run in audit - main} == {250}
    assert {run["audit.trials"] for run in neighbours - main} == {100}
    assert {run["audit.trials"] for run in main} == {1000}
    assert sorted({run["privacy.belief"] for run in audit if run.data is MNIST}) == [0.52, 0.75, 0.9, 0.99]
    assert sorted({run["privacy.belief"] for run in audit if run.data is ADULT}) == [0.53, 0.75, 0.9, 0.99]
    assert {run["privacy.adjacency"] for run in audit} == {B}


def test_every_run_has_its_own_name_and_seed() -> None:
    every = {run for data in ALL for run in all_runs(data)}
    assert len({run.name for run in every}) == len({run["run.seed"] for run in every}) == len(every)
    assert len({paper_run.label for paper_run in every}) == len(every)


def test_neighbours_of_figure_4() -> None:
    """Three of either kind where a record of MNIST is replaced, which is what the paper drew; else the extremes."""
    third = insider_run(MNIST, LS, B, 0.9, NeighbourChoice.LEAST_DISSIMILAR, 3)
    every = {run for data in ALL for run in neighbour_runs(data)}
    assert third in every
    audit = third.config().audit
    assert (audit.neighbour, audit.neighbour_rank) == ("least-dissimilar", 3)
    further = {(run.data, run["privacy.adjacency"]) for run in every if (run["audit.neighbour-rank"] or 1) > 1}
    assert further == {(MNIST, B)}


def test_every_printed_number_stands_beside_a_run() -> None:
    runs = {(run.data.study, run.label.removeprefix(f"{run.data.title}, ")) for data in ALL for run in all_runs(data)}
    of_runs = [number for number in PRINTED.rows if number.place != "Table 3"]  # which needs no runs
    assert [(number.data, number.setting) for number in of_runs if (number.data, number.setting) not in runs] == []
    for numbers in (PRINTED.rows, PRINTED_2019.rows, PRINTED_2023.rows):
        keys = [(number.data, number.setting, number.quantity) for number in numbers]
        assert len(set(keys)) == len(keys)


def test_the_quick_form_changes_little() -> None:
    full_runs, quick_runs = (
        [run for data in ALL if (form := data.in_form(extent)) for run in (*main_runs(form), *audit_runs(form))]
        for extent in ComputeExtent
    )
    for full_run, quick_run in zip(full_runs, quick_runs, strict=True):
        full = full_run.config().as_dict()
        quick = quick_run.config().as_dict()
        assert quick["audit"]["trials"] < full["audit"]["trials"] / 8 + 30
        for section, key in (("audit", "trials"), ("audit", "dissimilarity"), ("data", "test-records")):
            del full[section][key], quick[section][key]
        assert quick == full


def test_what_stands_in_and_what_is_left_out(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    datasets, remarks = find_data(PAPER, CANDIDATES, tmp_path)
    assert datasets == ()
    assert [line.partition(" ")[0] for line in remarks] == ["MNIST", "Purchase-100", "Adult"]
    assert all("is left out" in line for line in remarks)

    def load(spec):  # type: ignore[no-untyped-def]
        if spec.name not in ("location30", "adult"):
            raise InputError(f"{spec.name} is not found")

    monkeypatch.setattr(runner, "load_source", load)
    datasets, remarks = find_data(PAPER, CANDIDATES, tmp_path)
    assert datasets == (LOCATION, ADULT)
    assert re.fullmatch(r"Purchase-100 .*\(purchase100: purchase100 is not found\): location30 .*", remarks[1])
    assert LOCATION.stands_in
    assert not ADULT.stands_in
    assert "Location-30 for Purchase-100" in insider_run(LOCATION, GS, U).label
    assert LOCATION.study == PURCHASE.study
    assert math.isclose(LOCATION["privacy.delta"], PURCHASE["privacy.delta"])


@pytest.fixture
def run_reproduce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunCommand:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("FL_AUDIT_DATA", raising=False)

    return command_runner(capsys, "reproduce")


@pytest.mark.long
def test_an_item_without_runs(run_reproduce: RunCommand, tmp_path: Path) -> None:
    finished = run_reproduce("bernau2021-table3", "--quick")
    output_directory = tmp_path / "runs" / "reproduce-bernau2021-table3-quick"
    assert finished.returncode == 0
    assert "bernau2021-table3" in finished.stdout
    assert sorted(path.name for path in output_directory.iterdir()) == [
        "bernau2021-table3.html",
        "table3.csv",
        "table3.json",
        "table3.png",
        "table3.svg",
    ]


@pytest.mark.parametrize(
    ("arguments", "expected_message"),
    [
        (["bernau2021-tabel2"], "nearest is 'bernau2021-table2'"),
        (["negoescu2023-fig33"], "nearest is 'negoescu2023-fig3'"),
        (["bernau2021-fig9", "--data-dir", "gone"], "none of its"),
        (["bernau2021-fig9", "--engine", "cloud"], ": accepted are ray and local"),
    ],
)
def test_wrong_arguments_get_one_line(
    run_reproduce: RunCommand, tmp_path: Path, arguments: list[str], expected_message: str
) -> None:
    finished = run_reproduce(*arguments)
    assert finished.returncode == 2
    assert expected_message in finished.stderr
    assert "Traceback" not in finished.stderr
    assert not (tmp_path / "runs").exists()


def test_the_help_names_every_paper_and_item(run_reproduce: RunCommand) -> None:
    finished = run_reproduce("--help")
    assert finished.returncode == 0
    words = " ".join(finished.stdout.split())
    for paper in PAPERS:
        assert paper.key in words
        assert paper.heading in words
        assert paper.items[-1].key in words
