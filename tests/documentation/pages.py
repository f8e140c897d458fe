"""The documentation as tests read it: pages, their code blocks, and what is said about each block.

A block is run unless an HTML comment on the line before it says why not:

    <!-- not run: needs a cluster -->

A block whose first line is a comment with the name of a file, such as `# audit.toml`, is that file. A `text` block
shows what the block before it prints; `<!-- not compared: why -->` before it leaves it alone.
"""

import re
import shlex
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES_OF_THE_SITE = [page for page in sorted(DOCS.rglob("*.md")) if not page.with_suffix(".ipynb").exists()]
"""Pages in the repository; a build writes one more beside each notebook."""
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES_OF_THE_SITE)
KINDS = ("toml", "python", "sh", "text", "json")
PROGRAMS = ("fl-audit", "python")

_FENCE = re.compile(
    r"(?:<!-- (?P<mark>not run|not compared): (?P<why>[^>]+) -->\n)?^```(?P<kind>\S*)\n(?P<body>.*?)^```$", re.M | re.S
)
_FILE = re.compile(r"# ([\w./-]+\.\w+)$")


@dataclass(frozen=True)
class Block:
    """A code block."""

    page: str  # where it stands, as a path below the repository
    kind: str  # what it is written in, one of `KINDS`
    body: str
    reason: str | None  # why it is not run, or not compared; None where it is

    @property
    def file(self) -> str | None:
        """The name of the file that the block is, if it is one."""
        match = _FILE.match(self.body.split("\n")[0])
        return match[1] if match and self.kind in ("toml", "python") else None

    @property
    def commands(self) -> list[str]:
        """The commands of a block of the shell, each on one line."""
        lines = self.body.replace("\\\n", " ").split("\n") if self.kind == "sh" else []
        return [line for line in lines if shlex.split(line, comments=True)]


_GENERATED = re.compile(r"<!-- generated: ([\w-]+) -->.*?<!-- end: \1 -->", re.DOTALL)


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page in their order."""
    # What the code writes into a page is held against the code as a whole.
    matches = _FENCE.finditer(_GENERATED.sub("", page.read_text()))
    name = str(page.relative_to(ROOT))
    return [Block(name, match["kind"], match["body"], match["why"]) for match in matches]


BLOCKS = {str(page.relative_to(ROOT)): blocks_of(page) for page in PAGES}
FILES = {block.file: block for blocks in BLOCKS.values() for block in blocks if block.file}


def commands_that_make() -> dict[str, list[str]]:
    """Return the commands of all pages that make a directory, by the directory's name."""
    commands = dict[str, list[str]]()
    for block in chain.from_iterable(BLOCKS.values()):
        for command in () if block.reason else block.commands:
            words = shlex.split(command, comments=True)
            if "--out" in words and command not in (
                page_commands := commands.setdefault(words[words.index("--out") + 1], [])
            ):
                page_commands.append(command)
    return commands


def makers() -> dict[str, str]:
    """Return the command that makes each directory, by the directory's name: a page may read a run of another one."""
    return {directory: commands[0] for directory, commands in commands_that_make().items()}
