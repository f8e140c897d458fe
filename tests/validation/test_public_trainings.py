"""Copies of public code: what is edited, what is refused, and what is skipped."""

import sys
from pathlib import Path

from fl_audit.app_audits.local_training.pitfalls import Pitfall
from tests.builders.refusals import assert_refused
from tests.validation.public_trainings.copies import Edit, applied, module_of, stand_in
from tests.validation.public_trainings.edits import PLANTED, SITES, Place
from tests.validation.public_trainings.trainings import TRAININGS


def test_an_edit_needs_its_place_once(tmp_path: Path) -> None:
    edit = Edit("noise = 1", "noise = 0", "train.py")
    assert applied("noise = 1\n", [edit], "folder/train.py") == "noise = 0\n"
    assert applied("noise = 1\n", [edit], "folder/other.py") == "noise = 1\n"
    for text in ("", "noise = 1\nnoise = 1\n"):
        assert_refused("accepted is the commit", applied, text, [edit], "folder/train.py")


def test_a_copy_finds_its_stand_ins_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import not_installed\nnoise = 1\nmade = not_installed.value + noise\n")
    before = set(sys.modules)
    beside = {"not_installed": stand_in("not_installed", value=4)}
    module = module_of(tmp_path / "train.py", "a_copy", [Edit("noise = 1", "noise = 2", "train.py")], beside)
    assert module.made == 6
    assert set(sys.modules) == before


def test_copies_that_are_not_there_are_named(tmp_path: Path) -> None:
    for training in TRAININGS:
        assert "is not there: clone" in training.missing(tmp_path)
        assert training.source in training.missing(tmp_path)


def test_pitfalls_are_planted_into_two_trainings() -> None:
    needless = {Pitfall.FRESH_ACCOUNTANT, Pitfall.CLAIMED_EPSILON, Pitfall.PRIVATE_SIZE}
    assert len(set(PLANTED) | needless) >= 25
    assert set(SITES) <= {training.name for training in TRAININGS}
    for sites in SITES.values():
        assert set(sites.places) == set(Place)
        for lines in PLANTED.values():
            assert len(sites.edits(lines)) == len(lines)
