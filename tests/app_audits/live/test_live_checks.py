"""A federation without its noise is never called consistent, nor an honest one violated, however it was set up."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fl_audit.adjacency import Relation
from fl_audit.app_audits.audit_results import live_result
from fl_audit.app_audits.live.canary import Canary
from fl_audit.app_audits.live.live_audit import LiveFinding, measure_live
from fl_audit.app_audits.live.live_checks import Inconsistency, _absent_canaries_differ
from fl_audit.app_audits.live.live_page import live_headline, live_lines, write_live_page
from fl_audit.app_audits.live.observer_store import TrainingObserver
from fl_audit.app_audits.live.reported_canary_properties import ReportedCanaryProperties, fingerprint, read_note
from fl_audit.app_audits.live.stored_rounds import MismatchedCanaryProperty
from fl_audit.array_types import Floats
from fl_audit.cli.main import app as command
from fl_audit.privacy.stated_releases import StatedReleases
from fl_audit.statistics.shift_bound import detectable_shift
from fl_audit.verdict.noise_estimate import breach_ratio
from tests.builders.refusals import assert_refused

DIRECTIONS = 11
COINS = 99
SIZE = 800
TERMS = StatedReleases("add-remove-client", 1.0, 200)
ADD_REMOVE = [Canary(canary_index, DIRECTIONS, COINS, 1.0) for canary_index in range(4)]


def play(
    directory: Path,
    canaries: list[Canary],
    added: float | Callable[[int], float] = 1.0,
    terms: StatedReleases = TERMS,
    rounds: int | None = None,
    is_seen: bool = True,
    norm: Callable[[int], float] = lambda _: 1.0,
    run: int | None = None,
    start: Floats | None = None,
    present: Callable[[int, int], bool] = lambda *_: True,
    weights: tuple[float, ...] | None = None,
) -> Floats:
    """Keep rounds of so much noise, in clipping norms, seen with the canaries' notes or without; return the model."""
    watch = TrainingObserver(directory, DIRECTIONS, len(canaries), terms)
    draw = np.random.default_rng((8, run or 0))
    model = np.zeros(SIZE) if start is None else start
    for number in range(1, (rounds or terms.rounds) + 1):
        scale = norm(number)
        there = [canary for canary in canaries if present(number, canary.number)]
        release = (added(number) if callable(added) else added) * scale * draw.normal(size=SIZE)
        factors = weights or (1.0,) * len(canaries)
        release += sum(
            (factors[canary.number] * canary.update(number, SIZE, scale) for canary in there), np.zeros(SIZE)
        )
        properties = [read_note(canary.note(SIZE, scale), f"n{canary.number}") for canary in there]
        if weights is not None:
            properties = [note and replace(note, weight=weights[note.number]) for note in properties]
        notes = filter(None, properties) if is_seen else map(ReportedCanaryProperties, range(len(canaries)))
        watch.store_scores(number, [model], [model + release], notes, run=run, models_only=not is_seen)
        model = model + release
    return model


def last_line(numbers: LiveFinding, directory: Path) -> str:
    write_live_page(live_result("canaries", numbers), numbers, directory)
    json.dumps(numbers.to_json(), allow_nan=False)
    return dict(live_lines(numbers))["Next"]


REPLACE = replace(TERMS, adjacency="replace-client")  # the noise is of 2 C then


@pytest.mark.long
@pytest.mark.parametrize("is_seen", [True, False])
def test_canaries_of_another_relation_than_the_guarantee_do_not_count(is_seen: bool, tmp_path: Path) -> None:
    """Under replace-client half of the noise passed; under add-remove-client honest noise was broken."""
    replaced = [replace(canary, is_replaced=True) for canary in ADD_REMOVE]
    cases = {"half": (ADD_REMOVE, 1.0, REPLACE), "honest": (replaced * 3, 1.0, TERMS)}
    for name, (canaries, added, terms) in cases.items():
        numbered = [replace(canary, number=number) for number, canary in enumerate(canaries)]
        play(tmp_path / name, numbered, added, terms, rounds=5 if is_seen else None, is_seen=is_seen)
        if is_seen:
            assert_refused(r"no round counts: canary 0 of node n0 .*\bis out", measure_live, tmp_path / name, COINS)
        else:
            numbers = measure_live(tmp_path / name, COINS)
            assert (numbers.verdict, numbers.doubts.keys() & {Inconsistency.OUT}) == (
                "inconclusive",
                {Inconsistency.OUT},
            ), name
            assert "`is_replaced`" in last_line(numbers, tmp_path)
    # As it should be, either way: half of the noise is found, and all of it contradicts nothing.
    for added, verdict in ((1.0, "violated"), (2.0, "consistent")):
        directory = tmp_path / str(added)
        play(directory, [replace(replaced[0], number=canary) for canary in range(8)], added, REPLACE, is_seen=is_seen)
        numbers = measure_live(directory, COINS)
        assert (numbers.verdict, numbers.doubts) == (verdict, {})
        assert (
            "was not noted" in (write_live_page(live_result("canaries", numbers), numbers, directory).read_text())
        ) == (not is_seen)


def test_few_rounds_are_no_doubt_that_canaries_send_their_opposite(tmp_path: Path) -> None:
    """Nobody noted it: 63 of 100 honest trainings of 20 rounds were doubted, where 1 in 1,000 is said."""
    terms = replace(REPLACE, rounds=20)
    for run in range(5):
        directory = tmp_path / str(run)
        play(
            directory,
            [replace(canary, is_replaced=True) for canary in ADD_REMOVE[:3]],
            2.0,
            terms,
            is_seen=False,
            run=run,
        )
        numbers = measure_live(directory, COINS)
        assert (numbers.verdict, numbers.doubts) == ("inconclusive", {})
        assert "Send more canaries" in last_line(numbers, directory)
    # Whatever multiplier is claimed: what is out lies where it should, or was not sent.
    draw = np.random.default_rng(3)
    doubted = {True: 0, False: 0}
    for multiplier in (0.5, 1.0, 2.0):
        for _ in range(100):
            coins = draw.integers(0, 2, (40, 3))
            noise = multiplier * draw.normal(size=(40, 23))
            for is_sent in doubted:
                sent = noise[:, :3] + coins / 2 - (1 - coins) * is_sent / 2
                has_difference = _absent_canaries_differ(sent, coins, noise[:, 3:], Relation.REPLACE, 1 / multiplier)
                doubted[is_sent] += has_difference and multiplier <= 1
    assert doubted[True] <= 2
    assert doubted[False] >= 100


@pytest.mark.long
@pytest.mark.parametrize("is_seen", [True, False])
def test_a_seed_of_coins_of_its_own_on_a_node_is_noticed(is_seen: bool, tmp_path: Path) -> None:
    """With part of the noise, the canaries together stand out as much as those of all noise do."""
    node_canaries = [replace(canary, coins=COINS + canary.number) for canary in ADD_REMOVE]
    play(tmp_path, node_canaries, added=0.65, is_seen=is_seen)
    if is_seen:
        assert_refused(r"canary 1 of node n1 .*another seed .*; canary 2", measure_live, tmp_path, COINS)
    else:
        numbers = measure_live(tmp_path, COINS)
        assert (numbers.verdict, numbers.doubts[Inconsistency.FAINT], numbers.dilution.is_seen) == (
            "inconclusive",
            (1, 2, 3),
            False,
        )
        assert "1, 2, 3" in last_line(numbers, tmp_path)


def test_rounds_of_a_node_that_came_back_with_other_coins_do_not_count(tmp_path: Path) -> None:
    watch = TrainingObserver(tmp_path, DIRECTIONS, 1, replace(TERMS, rounds=30))
    draw = np.random.default_rng(0)
    model = np.zeros(SIZE)
    for number in range(1, 31):
        canary = Canary(0, DIRECTIONS, COINS if number <= 20 else 5, 1.0)
        release = 0.1 * draw.normal(size=SIZE) + canary.update(number, SIZE, 1.0)
        properties = read_note(canary.note(SIZE, 1.0), "77")
        assert properties is not None
        watch.store_scores(number, [model], [model + release], [properties])
        model = model + release
    numbers = measure_live(tmp_path, COINS)
    assert (numbers.bounds.rounds, numbers.released, numbers.verdict) == (20, 30, "violated")
    assert [(canary.number, canary.node, canary.mismatch) for canary in numbers.misfits] == [
        (0, "77", MismatchedCanaryProperty.COINS)
    ]
    assert "node 77" in live_headline(numbers)


@pytest.mark.parametrize(
    ("changes", "round_values", "mismatch"),
    [
        ({"directions": 12}, {}, "seed of directions"),
        ({"clipping_norm": 0.5}, {"norm": 1.0}, "than the norm"),
        ({}, {"size": SIZE - 1}, "number of parameters"),
    ],
)
def test_canaries_of_other_settings_than_the_watch_are_named(
    changes: dict[str, float], round_values: dict[str, float], mismatch: str, tmp_path: Path
) -> None:
    canary = replace(ADD_REMOVE[0], **changes)  # type: ignore[arg-type]
    properties = read_note(canary.note(int(round_values.get("size", SIZE)), canary.clipping_norm), "4")
    assert properties is not None
    TrainingObserver(tmp_path, DIRECTIONS, 1, TERMS).store_scores(
        1, [np.zeros(SIZE)], [np.ones(SIZE)], [properties], norm=round_values.get("norm")
    )
    assert_refused(f"no round counts: canary 0 of node 4 .*{mismatch}", measure_live, tmp_path, COINS)


def test_what_nobody_said_of_canaries_is_taken(tmp_path: Path) -> None:
    """Numbers of canaries alone, in rounds and replies: what was not noted is taken, and said to be."""
    play(tmp_path, ADD_REMOVE, 1.0, replace(TERMS, rounds=20))
    for path in tmp_path.glob("round-*.json"):
        stored = json.loads(path.read_text())
        old = {name: stored[name] for name in ("number", "scores", "others", "size")}
        path.write_text(json.dumps(old | {"present": [{"number": note["number"]} for note in stored["present"]]}))
    numbers = measure_live(tmp_path, COINS)
    assert (numbers.verdict, numbers.knows_canaries, numbers.bounds.rounds) == ("inconclusive", False, 20)
    assert (numbers.weights, numbers.knows_weights) == ((1.0,) * 4, False)
    assert read_note('{"number": 1, "weight": 1.0}') == ReportedCanaryProperties(1)
    assert read_note('{"number": 3}', "n") == ReportedCanaryProperties(3, node="n")
    assert [
        read_note(note)
        for note in ("the first", "9" * 5000, "[1]", "3", '{"number": NaN}', '{"number": 1, "size": "x"}')
    ] == [None] * 6
    # A norm that is none would make scores none, and no look could ever be taken at what was kept.
    wrong = ({"norm": 0.0}, {"norm": -1.0}, {"norm": np.nan}, {"norm": np.inf}, {"size": 0})
    assert [read_note(json.dumps({"number": 1} | note)) for note in wrong] == [None] * 5
    assert fingerprint(5) != fingerprint(6)


def test_a_damaged_guarantee_is_one_line(tmp_path: Path) -> None:
    play(tmp_path, ADD_REMOVE[:1], rounds=1)
    path = tmp_path / "guarantee.json"
    stored = json.loads(path.read_text())
    for change in ({"canaries": np.inf}, {"canaries": 0}, {"delta": np.nan}, {"delta": None}, {"rounds": np.inf}, [1]):
        path.write_text(json.dumps(change if isinstance(change, list) else stored | change))
        assert_refused(r"guarantee\.json is no guarantee", measure_live, tmp_path, COINS)


@pytest.mark.long
def test_light_canaries_do_not_hide_what_is_told_of_a_heavier_client(tmp_path: Path) -> None:
    """Two thirds of the noise for the heaviest client look like all of it to canaries of .68 of its weight."""
    for added, lightest_weight in ((2 / 3, 0.68), (1.0, 0.4)):
        light = (0.7 * lightest_weight / 0.68, lightest_weight, lightest_weight, lightest_weight)
        directory = tmp_path / str(added)
        play(directory, ADD_REMOVE, added, weights=light)
        numbers = measure_live(directory, COINS)
        assert (numbers.verdict, numbers.rounds_needed, numbers.weights) == ("inconclusive", None, light)
        assert not numbers.doubts
        assert f"{lightest_weight:g} of" in last_line(numbers, directory)
        assert f"{1 / lightest_weight:.3g} times" in (directory / "report.html").read_text()
    # Hardly lighter ones find as much as they would of a smaller breach.
    eight = [replace(entry, number=number) for number, entry in enumerate(ADD_REMOVE * 2)]
    for name, weight in (("even", 1.0), ("near", 0.98)):
        play(tmp_path / name, eight, weights=(weight,) * 8)
    even, near = (measure_live(tmp_path / name, COINS) for name in ("even", "near"))
    assert (even.verdict, near.verdict, near.knows_weights) == ("consistent", "consistent", True)
    for entry, weight in ((even, 1.0), (near, 0.98)):
        assert entry.rounds_needed is not None
        for rounds, is_enough in ((entry.rounds_needed, True), (entry.rounds_needed - 1, False)):
            shift = detectable_shift(rounds * 4, rounds * 24, 1.0, entry.level)
            sought = weight / np.hypot(breach_ratio(entry.guarantee), np.sqrt(4 / SIZE))
            assert (shift <= sought) == is_enough
    assert near.limit > even.limit
    stored = tmp_path / "near" / "round-000001.json"
    stored.write_text(stored.read_text().replace('"weight": 0.98', '"weight": 1.5'))
    assert_refused(r"is no round .* weight ", measure_live, tmp_path / "near", COINS)


@pytest.mark.long
def test_noise_that_is_missing_from_some_rounds_is_not_averaged_away(tmp_path: Path) -> None:
    """None in every second round, and more in the others: as much as claimed on the whole."""
    terms = replace(TERMS, rounds=120)
    play(tmp_path / "some", ADD_REMOVE, lambda number: 1.5 * (number % 2), terms)
    numbers = measure_live(tmp_path / "some", COINS)
    assert numbers.verdict != "consistent"
    play(tmp_path / "one", ADD_REMOVE, lambda number: float(number != 77), TERMS)
    numbers = measure_live(tmp_path / "one", COINS)
    assert (numbers.verdict, numbers.doubts[Inconsistency.UNEVEN]) == ("inconclusive", (77,))
    assert "round 77" in last_line(numbers, tmp_path)


@pytest.mark.long
def test_canaries_that_take_part_more_often_than_clients_are_sampled_are_noticed(tmp_path: Path) -> None:
    """All take part in each round of a training that guarantees a tenth: the epsilon that is claimed is not kept."""
    sampled = replace(TERMS, sampling_rate=0.1)
    draw = np.random.default_rng(3)
    play(tmp_path / "all", ADD_REMOVE, 1.0, sampled)
    numbers = measure_live(tmp_path / "all", COINS)
    assert (numbers.verdict, numbers.doubts.keys()) == ("inconclusive", {Inconsistency.ATTENDANCE})
    assert "10\xa0% of" in last_line(numbers, tmp_path)
    play(tmp_path / "tenth", ADD_REMOVE[:1], 1.0, sampled, present=lambda *_: draw.random() < 0.1)
    assert measure_live(tmp_path / "tenth", COINS).doubts == {}


@pytest.mark.long
def test_a_norm_that_moves_is_followed(tmp_path: Path) -> None:
    """Half of the noise passed as all of it where the norm fell to a hundredth: few rounds made all of the spread."""
    played = {"seen": TERMS, "half": TERMS}
    for name, added in zip(played, (1.0, 0.5), strict=True):
        play(tmp_path / name, ADD_REMOVE, added, norm=lambda number: 0.97**number)
    assert measure_live(tmp_path / "seen", COINS).verdict == "consistent"
    assert measure_live(tmp_path / "half", COINS).verdict == "violated"


@pytest.mark.long
def test_rounds_before_a_server_that_goes_on_count_as_released(tmp_path: Path) -> None:
    """150 rounds, a crash, and 200 more from the model that was reached; a new start from the first model is new."""
    model = play(tmp_path, ADD_REMOVE, rounds=150, run=1)
    play(tmp_path, ADD_REMOVE, run=2)
    numbers = measure_live(tmp_path, COINS)
    assert (numbers.verdict, numbers.released, numbers.carried_on) == ("consistent", 200, 0)
    play(tmp_path, ADD_REMOVE, run=3, rounds=100, start=model)
    numbers = measure_live(tmp_path, COINS)
    assert (numbers.verdict, numbers.released, numbers.carried_on) == ("violated", 250, 150)
    assert numbers.is_overrun
    assert "after 150 rounds" in live_headline(numbers)
    assert all(f"{count} " in last_line(numbers, tmp_path) for count in (250, 200))


def test_a_release_that_is_no_number_is_not_kept(tmp_path: Path) -> None:
    watch = TrainingObserver(tmp_path, DIRECTIONS, 1, TERMS)
    model = [np.zeros(SIZE)]
    watch.store_scores(1, model, [np.full(SIZE, np.nan)], [ReportedCanaryProperties(0)])
    assert list(tmp_path.glob("round-*")) == []
    watch.store_scores(1, model, [np.ones(SIZE)], [ReportedCanaryProperties(0)])
    path = tmp_path / "round-000001.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"scores": [float("nan")] * 21}))
    assert_refused(r"is no round .* scores .*not finite", measure_live, tmp_path, COINS)


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [("round-000001.json", "number", number) for number in (-4, 0, 1.5, 1e30, 10**30, "1", True)]
    + [("guarantee.json", "canaries", count) for count in (10**9, 0, 1.5, "1")],
)
def test_stored_numbers_out_of_their_range_are_refused_at_once(
    tmp_path: Path, file: str, key: str, value: object
) -> None:
    watch = TrainingObserver(tmp_path, DIRECTIONS, 1, TERMS)
    watch.store_scores(1, [np.zeros(SIZE)], [np.ones(SIZE)], [ReportedCanaryProperties(0)])
    path = tmp_path / file
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    assert_refused(rf"{file} is no .*accepted are whole numbers from 1 to ", measure_live, tmp_path, COINS)


@pytest.mark.parametrize("file", ["round-000001.json", "guarantee.json"])
def test_a_stored_file_that_never_ends_is_refused(tmp_path: Path, file: str) -> None:
    watch = TrainingObserver(tmp_path, DIRECTIONS, 1, TERMS)
    watch.store_scores(1, [np.zeros(SIZE)], [np.ones(SIZE)], [ReportedCanaryProperties(0)])
    (tmp_path / file).unlink()
    os.mkfifo(tmp_path / file)
    assert_refused(file, measure_live, tmp_path, COINS)


def test_a_file_is_no_directory_and_is_refused_before_the_audit(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    arguments = ["live", str(tmp_path / "none"), "--coins", "x", "--out", str(tmp_path / "file")]
    assert_refused(r"--out .* is a file", lambda: CliRunner().invoke(command, arguments, catch_exceptions=False))


def test_clients_that_watch_share_a_directory_or_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each round is kept once, whoever misses it; who sees other models, or looks for others, keeps nothing."""
    draw = np.random.default_rng(0)
    models: list[Floats] = [np.zeros(SIZE), *draw.normal(size=(8, SIZE))]

    def note(number: int, directions: int = DIRECTIONS, shift: float = 0.0, run: int = 5) -> None:
        before = models[number - 1] + shift
        after = models[number] + shift
        TrainingObserver(tmp_path, directions, 1, TERMS).store_scores(
            number, [before], [after], [ReportedCanaryProperties(0)], run=run, models_only=True
        )

    def lie() -> Iterator[tuple[str, str]]:
        return ((path.name, path.read_text()) for path in sorted(tmp_path.glob("round-*")))

    for number in (1, 1, 2, 4, 2, 3, 4, 5):
        note(number)
    stored_rounds = list(lie())
    assert [name for name, _ in stored_rounds] == [f"round-00000{number}.json" for number in range(1, 6)]
    assert list(tmp_path.glob("earlier-*")) == []
    note(5, directions=12)
    note(6, directions=12)
    note(6, shift=1.0)
    TrainingObserver(tmp_path, DIRECTIONS, 1, replace(TERMS, rounds=300)).store_scores(
        6, [models[5]], [models[6]], [ReportedCanaryProperties(0)], run=5, models_only=True
    )
    assert list(lie()) == stored_rounds
    error_lines = capsys.readouterr().err.splitlines()
    assert len(error_lines) == 4
    assert all("not the same" in line for line in error_lines[:3])
    assert "another guarantee" in error_lines[3]
    note(3, run=6)  # another run starts: nothing of the first one stays beside it
    assert [name for name, _ in lie()] == ["round-000003.json"]
    assert len(list((tmp_path / "earlier-1").iterdir())) == 5
