"""The documentation is followed: files are written where a reader would write them, and commands typed as printed."""

import importlib.util
import json
import re
import shlex
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import generated
import pandas as pd
import pictures
import pytest
import yaml
from typer.main import get_command

from fl_audit.audits.membership.attacks.registry import ATTACKS
from fl_audit.cli.main import app
from fl_audit.runs.config.settings_reference import settings as described
from fl_audit.user_modules import searched_last
from tests.documentation.pages import BLOCKS, FILES, KINDS, PAGES, PAGES_OF_THE_SITE, PROGRAMS, ROOT, commands_that_make
from tests.documentation.workspace import Workspace, read

NOT_RUN = 32
"""Setting up (3), another builder of the site, the tests themselves, Jupyter, MLflow, a cluster (4), Flower's own
command and what follows it, a part of an app, a federation that is run as one script (5), an app that test_flower_app
runs as a whole (5), apps and modules that are not here (3), a benchmark of minutes, pages of papers and a minute of
audits, a signed review of an app and the programs that check it."""
WORDS_OF_THE_README = 1000
READ = ("tutorials", "how-to", "explanation", "extend")
"""Kinds of pages that a reader looks for on the home page."""
FOLDERS = ("clients", "docs", "experiments", "fl_audit", "packaging", "server", "strategies", "tests", ".ci", ".github")
"""Of the repository."""
SLOW = [
    f"docs/{name}.md"
    for name in (
        "explanation/reconstruction",
        "how-to/compare-and-ci",
        "how-to/differing-record",
        "how-to/epsilon-star",
        "how-to/membership-attacks",
        "how-to/one-model",
        "how-to/own-aggregation",
        "how-to/pictures-and-hub",
        "how-to/private-strategy",
        "how-to/protect-clients",
        "how-to/release",
        "how-to/resume",
        "how-to/review",
        "how-to/sampled-rounds",
        "how-to/sweeps",
        "papers/errors",
        "papers/index",
        "tutorials/choosing-a-guarantee",
        "tutorials/simulation",
    )
]
"""Pages whose commands take seconds, for what other tests show more quickly: each day they are only read."""
NEEDS = {"docs/tutorials/texts.md": ("peft", "text")}
"""Pages that take half a minute and need a package, and the extra that brings it."""


def _pages_with_blocks() -> list[Any]:
    group = pytest.mark.xdist_group("documentation")
    return [
        pytest.param(page, marks=[group, *[pytest.mark.long] * (page in SLOW or page in NEEDS), *_needs(page)])
        for page, blocks in BLOCKS.items()
        if blocks
    ]


def _needs(page: str) -> list[Any]:
    """The mark of a page that needs a package which is not installed."""
    package, extra = NEEDS.get(page, ("", ""))
    lacks = bool(package) and importlib.util.find_spec(package) is None
    return [pytest.mark.skip(reason=f"the extra {extra!r}, which brings {package}, is not installed")] if lacks else []


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    directory = tmp_path_factory.mktemp("documentation")
    modules = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        patch.setattr(sys, "path", [*sys.path])
        patch.setenv("COLUMNS", "100")
        with searched_last(directory):
            yield Workspace(directory)
    # Other tests of this process write modules with the same names elsewhere.
    for name in set(sys.modules) - modules:
        if Path(getattr(sys.modules[name], "__file__", None) or ROOT).is_relative_to(directory):
            del sys.modules[name]


def test_no_two_commands_make_one_directory() -> None:
    """A reader who follows two pages in one directory is not refused by the second because the directory exists."""
    shared = {directory: commands for directory, commands in commands_that_make().items() if len(commands) > 1}
    assert not {
        directory: commands
        for directory, commands in shared.items()
        if not any("--resume" in command for command in commands)
    }


@pytest.mark.few_cases(14)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", _pages_with_blocks())
def test_every_block_of_a_page_runs(page: str, workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {"__name__": "documentation"}
    before = None
    for block in BLOCKS[page]:
        if block.reason is None:
            workspace.run(block, before, namespace, capsys)
        before = block if block.kind == "sh" else before


@pytest.mark.parametrize("page", SLOW)
def test_blocks_of_slow_pages_have_settings_options_and_names_that_there_are(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, block in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(block.body)
    for block in [page_block for page_block in BLOCKS[page] if page_block.reason is None]:
        read(block, tmp_path)


@pytest.mark.xdist_group("documentation")
def test_the_reference_names_every_file_column_and_number(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    run = workspace.make("runs/first", capsys)
    files = (ROOT / "docs" / "reference" / "run-directory.md").read_text()
    for path in [path for path in run.iterdir() if path.is_file()]:
        assert f"`{path.name}`" in files
    for table in ("trials", "rounds", "releases"):
        for column in pd.read_parquet(run / f"{table}.parquet").columns:
            assert re.search(rf"[`,]\s?{column}[`,]", files), f"{table}.parquet has {column}"
    numbers = (ROOT / "docs" / "reference" / "summary.md").read_text()
    assert all(f"| `{key}` |" in numbers for key in json.loads((run / "summary.json").read_text()))


def test_generated_pages_have_every_setting_and_command() -> None:
    settings = generated.settings()
    commands = generated.commands()
    assert all(f"<dt id='{setting.key.replace('.', '-')}'>" in settings for setting in described())
    program = get_command(app)
    assert isinstance(program, click.Group)
    assert all(f"## {name}\n" in commands for name in program.commands)
    page = generated.page_of("reference/commands")
    assert commands in generated.complete_page(page.read_text(encoding="utf-8"), page.parent)


@pytest.mark.parametrize(("part_name", "page"), generated.COPIED.items())
def test_the_copy_in_the_repository_is_what_the_code_says(part_name: str, page: str) -> None:
    stored = generated.page_of(page).read_text(encoding="utf-8")
    assert stored == generated.with_copies(stored), "make reference writes it anew"
    section_text = generated.PARTS[part_name]()
    assert stored.count(section_text) == 1
    assert generated.complete_page(stored, generated.page_of(page).parent).count(section_text) == 1, (
        "the site has it once"
    )


@pytest.mark.parametrize("name", ["bernau2019", "bernau2021", "negoescu2023"])
def test_the_site_shows_the_rows_of_every_table_and_figure_of_a_paper(name: str) -> None:
    papers = ROOT / "docs" / "papers"
    page = (papers / f"{name}.md").read_text(encoding="utf-8")
    files = {path.relative_to(papers).as_posix() for path in (papers / name).glob("*.csv")}
    assert set(generated.ROWS.findall(page)) == files
    assert "<table>" not in page, "the repository has the rows once, in CSV files"
    assert generated.with_rows(page, papers).count("<table>") == len(files)


def test_blocks_say_what_they_are() -> None:
    files = defaultdict(set)
    for block in [block for blocks in BLOCKS.values() for block in blocks]:
        assert block.kind in KINDS, f"{block.page}: a block of {block.kind or 'no kind'}"
        for command in [] if block.reason else block.commands:
            assert shlex.split(command)[0] in PROGRAMS, f"{block.page}: {command}: say why it is not run"
        if block.file is not None:
            files[block.file].add(block.body)
    assert all(len(bodies) == 1 for bodies in files.values()), "a file of one name has one content on all pages"
    assert {"audit.toml", "clients.toml", "membership.toml", "make_data.py", "my_strategies.py"} <= set(FILES)
    assert sum(block.reason is not None for blocks in BLOCKS.values() for block in blocks) == NOT_RUN


def test_the_navigation_leads_to_every_page_and_to_no_other() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    navigation_pages = re.findall(r"([\w/-]+\.md)\s*$", nav, re.MULTILINE)
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in PAGES_OF_THE_SITE}
    assert pages - set(navigation_pages) == set()
    # Pages of notebooks are made from these when the site is built.
    assert {page for page in navigation_pages if not page.startswith("notebooks/")} - pages == set()
    assert len(navigation_pages) == len(set(navigation_pages))


def test_the_readme_is_short_and_names_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= WORDS_OF_THE_README
    assert f"| {len(ATTACKS)} attacks |" in text
    assert "make demo" in text
    assert "make test" in text


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md"])
def test_links_out_of_the_site_lead_somewhere(page: str) -> None:
    """Links between pages of the site are checked when it is built."""
    for link in re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text()):
        assert link.startswith("https://") or (ROOT / link).exists(), link


def _words_in_the_text(path: Path) -> list[list[str]]:
    without_blocks = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)
    return [code_text.split() for code_text in re.findall(r"`([^`\n]+)`", without_blocks)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_commands_in_sentences_exist(path: Path) -> None:
    program = get_command(app)
    assert isinstance(program, click.Group)
    for words in _words_in_the_text(path):
        match words:
            case ["python", "-m", module, *_]:
                assert importlib.util.find_spec(module), f"{path}: {shlex.join(words)}"
            case ["fl-audit", name, *rest] if name.islower() and not name.startswith("-"):
                assert name in program.commands, f"{path}: {shlex.join(words)}"
                options = {option for parameter in program.commands[name].params for option in parameter.opts} | {
                    "--help"
                }
                used_options = {word for word in rest if word.startswith("--")}
                assert used_options <= options, f"{path}: {shlex.join(words)}"


@pytest.mark.parametrize("path", [*PAGES, ROOT / "SECURITY.md"], ids=lambda path: path.stem)
def test_paths_in_sentences_exist(path: Path) -> None:
    """Paths that begin with a folder of the repository; for contributors, modules that are named alone, too."""
    for word in (word.strip("'\"") for words in _words_in_the_text(path) for word in words):
        if word.partition("/")[0] in FOLDERS:
            assert next(ROOT.glob(word.rstrip("/")), None), f"{path}: {word}"
        elif word.endswith(".py") and (path.name == "CONTRIBUTING.md" or path.parent.name == "extend"):
            assert any(next((ROOT / folder).rglob(word), None) for folder in FOLDERS), f"{path}: {word}"


def test_paths_in_docstrings_and_comments_exist() -> None:
    path_pattern = re.compile(rf"`((?:{'|'.join(map(re.escape, FOLDERS))})/[\w./*-]+)`")
    sources = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    mentions = [(path, word) for path in sources for word in path_pattern.findall(path.read_text(encoding="utf-8"))]
    assert len(mentions) > 3
    assert [(str(path), word) for path, word in mentions if not next(ROOT.glob(word.rstrip("/")), None)] == []


def test_contributors_and_builders_are_told_of_every_package_of_the_library_in_the_order_of_imports() -> None:
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    library = [
        package_path
        for package_path in (ROOT / "fl_audit").iterdir()
        if (package_path / "__init__.py").is_file() and not package_path.is_symlink()
    ]
    packages = {package_path.name for package_path in library}
    order = [name for layer in reversed(layers) for name in sorted(layer.split(" | ")) if name in packages]
    architecture = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    assert re.findall(r"^\| `(\w+)/` \|", architecture, re.M) == order
    for page in ("CONTRIBUTING.md", "docs/reference/modules.md"):
        assert "explanation/architecture.md)" in (ROOT / page).read_text()


def test_the_citation_names_the_version_that_there_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (project["version"], "Apache-2.0")


def test_the_home_page_leads_to_every_tutorial_how_to_and_explanation() -> None:
    home = (ROOT / "docs" / "index.md").read_text()
    pages = [f"{kind}/{page_path.name}" for kind in READ for page_path in sorted((ROOT / "docs" / kind).glob("*.md"))]
    assert len(pages) > 25
    assert [page for page in pages if f"]({page})" not in home] == []


def test_every_tutorial_has_a_picture() -> None:
    for path in (ROOT / "docs" / "tutorials").glob("*.md"):
        assert "](../pictures/" in path.read_text(), path.name


def test_pictures_are_of_the_report_as_it_is() -> None:
    picture_record = json.loads(pictures.MADE.read_text())
    assert picture_record == {"page": pictures.page_schema()}, f"{pictures.COMMAND} draws the pictures anew"
    files = {path.stem for path in pictures.PICTURES.glob("*.png")}
    assert files == set(pictures.DRAWN)
    assert sum(path.stat().st_size for path in pictures.PICTURES.iterdir()) < 1_000_000
