"""The notebooks run from beginning to end, and stand in the repository with their outputs."""

import re
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from notebooks import write_pages

from fl_audit.runs.config.settings_reference import settings as described
from tests.documentation.pages import DOCS, PAGES, Block
from tests.documentation.workspace import check_configuration

NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
_SETTING = re.compile(r"`\[([a-z]+)\] ([a-z-]+)(?: = ([^`]+))?`")


def _pictures(notebook: Any) -> int:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def _printed(notebook: Any) -> list[str]:
    """Return the words that the cells print, without numbers."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    texts = [output["text"] for output in outputs if output.get("name") == "stdout"]
    return re.sub(r"-?\d[\d.,e+-]*", "", "\n".join(texts)).split()


def test_there_are_four_notebooks() -> None:
    assert len(NOTEBOOKS) == 4


def test_a_page_is_written_beside_a_notebook(tmp_path: Path) -> None:
    path = Path(shutil.copy(NOTEBOOKS[0], tmp_path))
    write_pages(tmp_path)
    page = path.with_suffix(".md").read_text(encoding="utf-8")
    assert page.startswith("# ")
    assert f"]({path.name})" in page
    pictures = re.findall(r"!\[[^]]+\]\(([\w-]+\.png)\)", page)
    assert len(pictures) == _pictures(nbformat.read(path, as_version=4)) >= 2
    assert {name for name in pictures if not (tmp_path / name).is_file()} == set()


def test_settings_that_texts_name_are_accepted(tmp_path: Path) -> None:
    """Both `[section] key` and `[section] key = value`, in notebooks and pages."""
    cells = [cell.source for path in NOTEBOOKS for cell in nbformat.read(path, as_version=4).cells]
    setting_mentions = [
        mention for text in (*cells, *(page.read_text() for page in PAGES)) for mention in _SETTING.findall(text)
    ]
    assert len(setting_mentions) >= 5, "the pattern finds settings in texts"
    keys = {setting.key for setting in described()}
    for section, key, value in setting_mentions:
        assert f"{section}.{key}" in keys, f"[{section}] {key} is no setting"
        if value:
            check_configuration(Block("", "toml", f"[{section}]\n{key} = {value}\n", None), tmp_path)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_draws(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # Two workers share the machine.
    notebook = nbformat.read(path, as_version=4)
    stored = _pictures(notebook)
    printed = _printed(notebook)
    client = NotebookClient(notebook, timeout=500, kernel_name="python3", resources={"metadata": {"path": tmp_path}})
    client.execute()
    assert _pictures(notebook) == stored >= 2
    assert _printed(notebook) == printed, "its stored outputs are those of another version"
