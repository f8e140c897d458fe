"""The folders of tests mirror the packages: the tests of a package are in the folder of its name."""

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
_OF_THE_WHOLE = {"documentation", "validation", "toy_attack", "toy_audit", "toy_noise", "toy_participation"}
"""Folders that test no package: the pages, the campaigns that check the auditor, and extensions added by tests."""


def test_every_folder_of_tests_is_named_after_a_package() -> None:
    folders = [path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")]
    folders = sorted({folder for folder in folders if folder.parts and folder.parts[0] not in _OF_THE_WHOLE})
    missing = [str(folder) for folder in folders if not (ROOT / "fl_audit" / folder / "__init__.py").is_file()]
    assert len(folders) > 20
    assert missing == []


def test_a_test_of_one_package_is_in_its_folder() -> None:
    """A file beside the folders tests a module of `fl_audit` itself, or the whole."""
    inner = {path.stem for path in (ROOT / "fl_audit").glob("*/*.py")}
    beside = {path.stem.removeprefix("test_") for path in TESTS.glob("test_*.py")}
    assert len(beside) > 10
    assert beside & inner == set()
