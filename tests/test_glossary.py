"""No retired word is a part of a name, and none stands in a sentence.

Names are those of modules, classes, functions, parameters, variables, settings, flags and keys. Sentences are those of
pages, docstrings, comments and messages. Sources are searched as text, since it takes several times as long to parse
them all.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from typer.main import get_command

from fl_audit.cli.main import app
from fl_audit.runs.config.settings_reference import settings

ROOT = Path(__file__).parents[1]
SOURCES = ("fl_audit", "clients", "server", "strategies", "experiments", "tests")
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "Makefile", "pyproject.toml", "mkdocs.yml")
RETIRED = (
    "world",
    "game",
    "promise",
    "law",
    "inquiry",
    "standpoint",
    "randomiser",
    "findable",
    "hearing",
    "ears",
    "deed",
    "luggage",
    "freight",
    "zoo",
    "animal",
    "hunt",
    "chores",
    "mend",
    "laboratory",
)
"""Words that are not used for what the glossary names otherwise."""
RENAMING = ("tests/test_glossary.py", "tests/validation/equality.py", "tests/validation/test_equality.py")
"""Files that name what has a retired name in old digests."""


def words_of(name: str) -> set[str]:
    """Return the words of a name in snake case, camel case or with hyphens, in lower case and without a plural s."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return {part.lower() for part in parts} | {part.lower().removesuffix("s") for part in parts}


def sources() -> Iterator[Path]:
    """Yield the Python files of the package, of the parties beside it and of the tests, each once."""
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            # The parties stand beside the package, and are met there.
            if (
                not any(parent.is_symlink() for parent in path.parents)
                and path.relative_to(ROOT).as_posix() not in RENAMING
            ):
                yield path


def test_no_retired_word_is_part_of_a_name_in_camel_case() -> None:
    """The search in sentences finds it in every other name."""
    pattern, found = camel_case_pattern(), {}
    for path in sources():
        if names := set(pattern.findall(path.read_text(encoding="utf-8"))):
            found[path.relative_to(ROOT).as_posix()] = sorted(names)
    assert found == {}


def test_no_retired_word_is_part_of_a_setting_or_flag() -> None:
    names = {setting.key for setting in settings()}
    for command in get_command(app).commands.values():  # type: ignore[attr-defined]
        names |= {flag for parameter in command.params for flag in parameter.opts}
    assert {name for name in names if words_of(name).intersection(RETIRED)} == set()


def sentence_pattern() -> re.Pattern[str]:
    """Return what finds a retired word in a sentence, in any case and with a plural s."""
    return re.compile(rf"(?<![A-Za-z])(?:{'|'.join(RETIRED)})s?(?![A-Za-z])", re.IGNORECASE)


def camel_case_pattern() -> re.Pattern[str]:
    """Return what finds the whole names that have a retired word as a part in camel case."""
    words = "|".join(word.capitalize() for word in RETIRED)
    return re.compile(rf"\w*(?:{words})s?(?![a-z])\w*")


def test_no_retired_word_stands_in_a_sentence_or_in_the_name_of_a_file() -> None:
    pages = [path for path in (ROOT / "docs").rglob("*") if path.suffix in (".md", ".py")]
    pattern, found = sentence_pattern(), {}
    for path in [*sources(), *pages, *(ROOT / page for page in PAGES)]:
        where = path.relative_to(ROOT).as_posix()
        if words := {
            word.lower()
            for text in (where, path.read_text(encoding="utf-8"))
            # Folders of other repositories have names of their own.
            for word in pattern.findall(text.replace("hello-world", ""))
        }:
            found[where] = sorted(words)
    assert found == {}


def test_the_search_for_retired_words_finds_them() -> None:
    assert words_of("WorldBatch") & {"world"} == words_of("of_worlds") & {"world"} == {"world"}
    assert "world" not in words_of("worldwide")
    assert camel_case_pattern().findall("class WorldBatch(OfWorlds): Worldwide") == ["WorldBatch", "OfWorlds"]
    assert sentence_pattern().findall("world_batch, the WORLDS") == ["world", "WORLDS"]
    assert sentence_pattern().findall("Worlds worldwide: a `world_batch` is no game.") == ["Worlds", "world", "game"]


def test_no_text_of_a_report_is_the_name_of_a_class() -> None:
    files = [path for top in SOURCES[:-1] for path in (ROOT / top).rglob("*.py")]
    classes = {name for path in files for name in re.findall(r"^ *class (\w+)", path.read_text("utf-8"), re.MULTILINE)}
    shown = [
        path
        for path in files
        if path.stem.startswith("sections") or {"page", "report"} & {*path.relative_to(ROOT).parts, path.stem}
    ]
    trees = [ast.parse(path.read_text("utf-8")) for path in shown]
    texts = {
        one.value
        for tree in trees
        for one in ast.walk(tree)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    }
    # Names of one word, such as Claim, are words that a heading may have.
    assert len(shown) > 20
    assert not {text for text in texts & classes if re.search("[a-z][A-Z]", text)}
