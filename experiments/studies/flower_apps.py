"""Flower's own example apps, reviewed as they are: `python -m experiments.studies.flower_apps --repository DIR`.

The apps are taken from the public repository github.com/adap/flower at the commit below, unchanged; their code is
unpacked to a temporary folder and belongs to nobody's repository but theirs. Beside every verdict stands what reading
the app says. With `--out FILE` the table is kept in that file, app by app, so that it can be made in parts; the page
`docs/how-to/reviewed-apps.md` shows it.
"""

import argparse
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments.trials.review_process import reviewed
from fl_audit.errors import InputError
from fl_audit.whole_files import whole_file
from strategies.review.options import ReviewOptions

REPOSITORY, COMMIT = "github.com/adap/flower", "fdef7afb1dca3030553be302366cfd285ed6632c"


@dataclass(frozen=True)
class Example:
    """One app, and what it has to come to."""

    path: str  # its directory in the repository
    expected: str  # the verdict, or part of the line with which it is refused
    reading: str  # why, as the app's code says


_PLAIN = "FedAvg of plain updates: nothing is promised"
EXAMPLES = (
    Example("examples/quickstart-pytorch", "no promise", _PLAIN),
    Example("examples/advanced-pytorch", "no promise", f"{_PLAIN}; a start of its own, files and a tracker"),
    Example("examples/custom-mods", "no promise", f"{_PLAIN}; mods that write"),
    Example("examples/opacus", "no promise", "clients train with Opacus: nothing is promised of clients"),
    Example("examples/quickstart-sklearn", "no promise", _PLAIN),
    Example("examples/fl-tabular", "no promise", _PLAIN),
    Example("examples/quickstart-numpy", "no promise", _PLAIN),
    Example("examples/federated-vae", "no promise", _PLAIN),
    Example("examples/embedded-devices", "no promise", _PLAIN),
    Example("examples/flower-secure-aggregation", "no promise", "the sum of masked updates carries no noise"),
    Example("examples/fl-dp-sa", "violated", "noise 0.2 for equal weights, and FedAvg weights by examples"),
    Example("examples/quickstart-xgboost", "floating-point parameters", "trees in bytes are no vector"),
    Example("examples/quickstart-pandas", "without a strategy", "asks its clients for histograms by itself"),
    Example("examples/vertical-fl", "the ServerApp of vertical-fl raised", "loads its data before it trains"),
    Example("examples/quickstart-huggingface", "transformers", "the server builds its model with transformers"),
)


def unpacked(repository: Path, path: str, room: Path) -> Path:
    """Unpack one directory of a clone, at the commit of this study.

    Parameters
    ----------
    repository
        The clone.
    path
        The directory in it.
    room
        Where it is put.

    Raises
    ------
    InputError
        If the clone does not have it.
    """
    command = ["git", "-C", str(repository), "ls-tree", "-r", "--name-only", COMMIT, path]
    listed = subprocess.run(command, capture_output=True, text=True)
    if listed.returncode or not listed.stdout:
        raise InputError(f"{repository} has no {path} at {COMMIT}: accepted is a clone of {REPOSITORY}")
    for name in listed.stdout.splitlines():
        if name.endswith((".py", ".toml", ".json", ".yaml")):
            show = ["git", "-C", str(repository), "show", f"{COMMIT}:{name}"]
            (room / name).parent.mkdir(parents=True, exist_ok=True)
            (room / name).write_bytes(subprocess.run(show, capture_output=True, check=True).stdout)
    return room / path


COLUMNS = ("app", "minutes", "verdict", "right by reading", "worst obstacle")


def row(example: Example, directory: Path, minutes: float, is_quick: bool) -> tuple[str, ...]:
    """Review an app, and return its row of the table.

    Parameters
    ----------
    example
        The app with what is known of it.
    directory
        Where it lies.
    minutes
        Time limit.
    is_quick
        Whether few games are enough.
    """
    began = time.monotonic()
    try:
        found = reviewed(directory, ReviewOptions(is_quick=is_quick, seconds=60 * minutes))
        verdict, obstacle = found["verdict"], found["remarks"][0] if found["remarks"] else "none"
        said = verdict
    except InputError as error:
        verdict, obstacle, said = "refused", str(error).replace(str(directory), directory.name), str(error)
    minutes_taken = (time.monotonic() - began) / 60
    is_right = "yes" if example.expected in said else "**no**"
    return directory.name, f"{minutes_taken:.1f}", verdict, f"{is_right}: {example.reading}", obstacle


def main(arguments: Sequence[str] | None = None) -> None:
    """Review every app, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repository", type=Path, required=True, help=f"a clone of {REPOSITORY}, or its git directory")
    parser.add_argument("--only", nargs="*", default=None, help="names of apps")
    parser.add_argument("--minutes", type=float, default=5.0, help="time limit of a review")
    parser.add_argument("--out", type=Path, default=None, help="a Markdown table, whose rows of other apps are kept")
    parser.add_argument("--quick", action="store_true", help="fewer games")
    chosen = parser.parse_args(arguments)
    with TemporaryDirectory() as room:
        for example in EXAMPLES:
            if chosen.only is None or Path(example.path).name in chosen.only:
                directory = unpacked(chosen.repository, example.path, Path(room))
                cells = row(example, directory, chosen.minutes, chosen.quick)
                print(" | ".join(cells), flush=True)
                if chosen.out is not None:
                    keep(cells, chosen.out)


def keep(cells: Sequence[str], path: Path) -> None:
    """Put a row into a table in a file, in the place of the row of the same app.

    Parameters
    ----------
    cells
        The row.
    path
        The file; made where it is missing.
    """
    lines = path.read_text(encoding="utf-8").splitlines()[2:] if path.is_file() else []
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in lines}
    rows[cells[0]] = f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
    head = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    ordered = [rows[name] for name in (Path(example.path).name for example in EXAMPLES) if name in rows]
    with whole_file(path) as file:
        file.write_text("\n".join([*head, *ordered]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
