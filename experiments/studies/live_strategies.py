"""The audit of one training on three strategies of the hospitals' app, in this process: how often each is violated.

Honest noise; a tenth of it; and noise for four hospitals where two answer, so that each weighs twice what was promised.
`python -m experiments.examples.loopback` plays the same app on a SuperLink and SuperNodes.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from flwr.app import Context, Message, RecordDict, UserConfig
from rich.console import Console
from rich.progress import track
from rich.table import Table

from experiments.cli.main import guarded
from experiments.examples.hospitals.client_app import app as client_app
from experiments.examples.hospitals.server_app import app as server_app
from experiments.examples.loopback import HOSPITALS, write_shards
from experiments.runs.local_engine import LocalGrid
from experiments.talk import settle_flower
from fl_audit.evidence.belief.verdict import Verdict
from fl_audit.evidence.live import LiveNumbers, measure_live

REPETITIONS = 200


@dataclass(frozen=True)
class Case:
    """A strategy and what becomes of it."""

    name: str  # in words
    # `rounds`, `canaries`: of a training.
    rounds: int
    canaries: int
    added: float = 1.0  # noise that is added, over the noise that is promised
    down: int = 0  # hospitals that never come
    # `least`, `most`: share of trainings that are to be violated.
    least: float = 0.0
    most: float = 0.0


CASES = (
    Case("honest, nobody sends canaries", rounds=20, canaries=0),
    Case("honest", rounds=20, canaries=1),
    Case("noise ten times too small", rounds=20, canaries=1, added=0.1, least=0.9, most=1.0),
    Case("noise for four where two answer", rounds=80, canaries=2, down=2, least=0.9, most=1.0),
)


def play(case: Case, place: Path, coins: int) -> tuple[LiveNumbers | None, float]:
    """Return what the canaries of one training say, None without canaries, and the accuracy of its model.

    Parameters
    ----------
    case
        What is played.
    place
        Directory with the hospitals' shards; the training has one of its own in it.
    coins
        Seed of the coins.
    """
    out = place / f"{coins}"
    out.mkdir()
    (out / "coins").write_text(str(coins))

    def hospital(message: Message, context: Context) -> Message:
        number = int(str(context.node_config["partition-id"]))
        context.node_config["data"] = str(place / f"shard-{number}.npz")
        if number < case.canaries:
            context.node_config |= {"canary": number, "canary-coins": str(out / "coins")}
        return client_app(message, context)

    answering = HOSPITALS - case.down
    grid = LocalGrid(hospital, answering, time_limit=60.0)  # type: ignore[arg-type]
    config: dict[str, str | int | float] = {
        "rounds": case.rounds, "hospitals": HOSPITALS, "answering": answering, "noise-multiplier": 1.0,
        "added": case.added, "canaries": case.canaries, "answer-seconds": 120, "data": str(place / "test.npz"),
        "out": str(out),
    }  # fmt: skip
    server_app(grid, Context(1, 1, UserConfig(), RecordDict(), UserConfig(config)))
    accuracy = json.loads((out / "rounds.jsonl").read_text().splitlines()[-1])["accuracy"]
    return measure_live(out / "canaries", coins) if case.canaries else None, accuracy


def main() -> None:
    """Print the table; the exit status is 1 where a strategy is judged wrongly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    repetitions = parser.parse_args().repetitions
    settle_flower()
    table = Table(title=f"Trainings of {HOSPITALS} hospitals, {repetitions} of each strategy")
    for column in ("strategy", "rounds", "canaries", "violated", "first look", "mu at least", "claimed", "accuracy"):
        table.add_column(column, justify="left" if column == "strategy" else "right")
    wrong = []
    for case in CASES:
        with tempfile.TemporaryDirectory() as directory:
            write_shards(Path(directory), HOSPITALS)
            numbers = range(1, repetitions + 1)
            found = [
                play(case, Path(directory), 100 + one)
                for one in track(numbers, case.name, console=Console(stderr=True))
            ]
        heard = [one for one, _ in found if one is not None]
        broken = [one for one in heard if one.verdict is Verdict.VIOLATED]
        first = [min(look.rounds for look in one.looks if look.is_violated) for one in broken]
        lower = f"{sum(one.finding.mu_lower for one in heard) / repetitions:.3f}" if heard else ""
        accuracy = sum(one for _, one in found) / repetitions
        share = len(broken) / repetitions
        if not case.least <= share <= case.most:
            wrong.append(f"{case.name}: {len(broken)} of {repetitions} trainings are violated")
        looks = f"{sum(first) / len(first):.1f}" if first else ""
        cells = (f"{len(broken)} of {repetitions}", looks, lower, "1", f"{accuracy:.3f}")
        table.add_row(case.name, str(case.rounds), str(case.canaries), *cells)
    Console(width=140).print(table)
    print("\n".join(wrong) or "every strategy is judged rightly")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    guarded(main)
