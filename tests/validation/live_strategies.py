"""Validation of the audit of one training on three strategies of the hospitals' app, in this process.

    python -m tests.validation live_strategies [--repetitions N]

Honest noise; a tenth of it; and noise for four hospitals where two answer, so that each weighs twice what was claimed.
`python -m fl_audit.experiments.examples.local_superlink` plays the same app on a SuperLink and SuperNodes. The exit
status is 1 where a strategy is judged wrongly.
"""

import json
import tempfile
from pathlib import Path
from typing import NamedTuple

from flwr.app import Context, Message, RecordDict, UserConfig
from rich.console import Console
from rich.progress import track

from fl_audit.app_audits.live.live_audit import LiveFinding, measure_live
from fl_audit.experiments.examples.hospitals.client_app import app as client_app
from fl_audit.experiments.examples.hospitals.server_app import app as server_app
from fl_audit.experiments.examples.local_superlink import HOSPITALS, write_shards
from fl_audit.experiments.studies.study_commands import exit_with, parser_of, table_of
from fl_audit.runs.local_engine import local_grid
from fl_audit.runs.verbosity import settle_flower
from fl_audit.verdict.verdict import Verdict


class Case(NamedTuple):
    """A strategy and its expected verdict."""

    name: str  # in words
    rounds: int  # number of rounds of a training
    canaries: int  # number of canaries of a training
    added: float = 1.0  # noise that is added, over the noise that is claimed
    down: int = 0  # hospitals that never come
    least: float = 0.0  # smallest share of trainings that has to be violated
    most: float = 0.0  # largest share of trainings that may be violated


CASES = (
    Case("honest, nobody sends canaries", rounds=20, canaries=0),
    Case("honest", rounds=20, canaries=1),
    Case("noise ten times too small", rounds=20, canaries=1, added=0.1, least=0.9, most=1.0),
    Case("noise for four where two answer", rounds=80, canaries=2, down=2, least=0.9, most=1.0),
)


def _play(case: Case, place: Path, coins: int) -> tuple[LiveFinding | None, float]:
    """Return the finding on the canaries of one training, None without canaries, and the accuracy of its model.

    `place` is the directory of the hospitals' shards, in which a training has one of its own, `coins` the seed of the
    coins.
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
    grid = local_grid(hospital, answering, time_limit=60.0)  # type: ignore[arg-type]
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
    parser = parser_of(__doc__)
    parser.add_argument("--repetitions", type=int, default=200, help="trainings of each strategy (%(default)s)")
    repetitions, wrong = parser.parse_args().repetitions, []
    settle_flower()
    columns = ("strategy", "rounds", "canaries", "violated", "first look", "mu at least", "claimed", "accuracy")
    title = f"Trainings of {HOSPITALS} hospitals, {repetitions} of each strategy"
    table = table_of(columns, title, ("strategy",))
    for case in CASES:
        with tempfile.TemporaryDirectory() as place:
            write_shards(Path(place), HOSPITALS)
            seeds = track(range(101, 101 + repetitions), case.name, console=Console(stderr=True))
            found = [_play(case, Path(place), seed) for seed in seeds]
        heard = [one for one, _ in found if one is not None]
        broken = [one for one in heard if one.verdict is Verdict.VIOLATED]
        first = [min(look.rounds for look in one.looks if look.is_violated) for one in broken]
        if not case.least <= len(broken) / repetitions <= case.most:
            wrong.append(f"{case.name}: {len(broken)} of {repetitions} trainings are violated")
        looks = f"{sum(first) / len(first):.1f}" if first else ""
        lower = f"{sum(one.bounds.mu_lower for one in heard) / repetitions:.3f}" if heard else ""
        accuracy = f"{sum(one for _, one in found) / repetitions:.3f}"
        violated = f"{len(broken)} of {repetitions}"
        table.add_row(case.name, str(case.rounds), str(case.canaries), violated, looks, lower, "1", accuracy)
    Console(width=140).print(table)
    exit_with(wrong, "every strategy is judged rightly")
