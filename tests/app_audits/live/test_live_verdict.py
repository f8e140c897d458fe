"""The verdict of canaries on a running training: bounds, declared looks, the command and its page."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fl_audit.app_audits.audit_results import live_result
from fl_audit.app_audits.live.canary import Canary
from fl_audit.app_audits.live.live_audit import declared_looks, measure_live
from fl_audit.app_audits.live.live_page import live_headline, live_lines, write_live_page
from fl_audit.app_audits.live.observer_store import TrainingObserver, seed_in
from fl_audit.app_audits.live.reported_canary_properties import ReportedCanaryProperties
from fl_audit.audits.canaries.canary_draws import canary_coin, canary_direction
from fl_audit.cli.main import main
from fl_audit.privacy.gaussian import gdp_epsilon, gdp_mu
from fl_audit.privacy.guarantee import derive_guarantee
from fl_audit.privacy.stated_releases import StatedReleases
from fl_audit.statistics.shift_bound import detectable_shift
from fl_audit.verdict.declared_tests import FAMILY_LEVEL
from tests.builders.canary_trainings import Training
from tests.builders.refusals import assert_refused

DIRECTIONS = 11
COINS = 12
SIZE = 650
DELTA = 1e-5


def train(
    directory: Path,
    rounds: int,
    added: float,
    canaries: int = 2,
    claimed: int | None = None,
    seed: int = 0,
    other_clients: int = 0,
    are_seen: bool = True,
) -> Path:
    """Keep rounds of unit sensitivity with so much of the claimed noise; others send one and the same update."""
    terms = StatedReleases("add-remove-client", 1.0, claimed or rounds)
    watch = TrainingObserver(directory, DIRECTIONS, canaries, terms, DELTA)
    draw = np.random.default_rng(seed)
    model = np.zeros(SIZE)
    for number in range(1, rounds + 1):
        release = added * draw.normal(size=SIZE)
        release[0] += other_clients
        for canary in range(canaries):
            release += canary_coin(COINS, number, canary) * canary_direction(DIRECTIONS, number, canary, SIZE)
        present = map(ReportedCanaryProperties, range(canaries))
        watch.store_scores(number, [model], [model + release], present, other_clients if are_seen else None)
        model = model + release
    np.save(directory / "model.npy", model)
    return directory


def test_the_numbers_are_those_of_the_guarantee_and_of_what_is_certified(tmp_path: Path) -> None:
    numbers = measure_live(train(tmp_path, 40, added=1.0), COINS)
    finding = numbers.bounds
    guarantee = numbers.guarantee
    assert guarantee.epsilon == pytest.approx(gdp_epsilon(DELTA, np.sqrt(40)), rel=1e-9)
    assert finding.epsilon_lower == pytest.approx(gdp_epsilon(DELTA, finding.mu_lower * np.sqrt(40)), rel=1e-9)
    assert 0.5 < finding.mu_lower < 1 < 1.4 < finding.mu + 0.6
    assert 0.5 < numbers.belief_lower <= guarantee.belief_bound
    assert [look.rounds for look in numbers.looks] == [5, 10, 20, 40]
    assert numbers.verdict == "inconclusive"
    assert numbers.is_over
    # The bounds of the looks hold together; that of all rounds is for one look.
    assert [look.bounds.confidence for look in numbers.looks] == pytest.approx([1 - 0.05 / 4] * 4)
    assert (finding.confidence, numbers.looks[-1].bounds.mu_lower < finding.mu_lower) == (0.95, True)
    assert re.search("95\xa0% confidence .*one look", live_headline(numbers))
    assert "together with 95\xa0%" in write_live_page(live_result("canaries", numbers), numbers, tmp_path).read_text()
    # So many rounds find mu that 1.5 times the epsilon stands for, and one round less does not.
    # Of two canaries the other one lies in the way half the time, along a direction of its own.
    noise = np.sqrt(40) / gdp_mu(1.5 * guarantee.epsilon, DELTA)
    sought = 1 / np.hypot(noise, np.sqrt(1 / SIZE))
    needed = numbers.rounds_needed
    assert needed is not None
    for rounds, is_enough in ((needed, True), (needed - 2, False)):
        reached = detectable_shift(rounds, rounds * 21, 1.0, FAMILY_LEVEL / 4)
        assert (reached <= sought) == is_enough


@pytest.mark.parametrize("rounds", [1, 20])
def test_a_claim_that_excludes_nothing_is_said_to(rounds: int, tmp_path: Path) -> None:
    """20 rounds at noise 1 come to epsilon 28: nobody is to read their "no contradiction" as protection."""
    numbers = measure_live(train(tmp_path, 20, added=1.0, claimed=20), COINS)
    numbers = replace(numbers, guarantee=derive_guarantee(numbers.guarantee.claim.with_noise(20 / rounds)))
    is_weak = rounds == 20
    result = live_result("canaries", numbers)
    page = write_live_page(result, numbers, tmp_path).read_text()
    assert [("next to nothing" in text) for text in (str(result.warning), page)] == [is_weak] * 2
    assert any("the claim excludes nothing" in text for _, text in result.lines) == is_weak
    assert "almost 100" not in page


@pytest.mark.long
def test_noise_ten_times_too_small_is_found_in_twenty_rounds_by_one_canary(tmp_path: Path) -> None:
    """In nearly every training: the limit of detection is far below."""
    for seed in range(10):
        numbers = measure_live(train(tmp_path / str(seed), 20, added=0.1, canaries=1, seed=seed), COINS)
        assert numbers.verdict == "violated"


def test_the_page_says_how_many_rounds_find_what() -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "one-training.md"
    lines = page.read_text().split("| canaries |")[1].splitlines()[2:6]
    rows = [line.strip("| ").split(" | ") for line in lines]
    claimed = gdp_epsilon(DELTA, 10.0)
    level = FAMILY_LEVEL / len(declared_looks(100))
    sought = (gdp_mu(1.5 * claimed, DELTA) / 10, 2.0, 4.0, 10.0)
    for row in rows:
        canaries = int(row[0])
        for mu, round_count in zip(sought, map(int, row[1:]), strict=True):
            detections = [
                detectable_shift(count * canaries // 2, count * (canaries + 20) - count * canaries // 2, 1.0, level)
                <= mu
                for count in (round_count - 1, round_count)
            ]
            assert detections == [False, True] or (round_count == 1 and detections[1]), row
    assert [row[0] for row in rows] == ["1", "2", "4", "10"]


def test_looks_are_declared_and_what_one_has_found_stays_found(tmp_path: Path) -> None:
    assert declared_looks(100) == (5, 10, 20, 40, 80, 100)
    assert declared_looks(3) == (3,)
    directory = train(tmp_path, 12, added=0.1, claimed=100)
    assert [look.rounds for look in measure_live(directory, COINS).looks] == [5, 10]
    assert [look.rounds for look in measure_live(directory, COINS, is_over=True).looks] == [5, 10, 12]
    early = measure_live(directory, COINS)
    assert (early.verdict, early.is_over, early.last) == ("violated", False, 12)
    # Rounds with far more noise follow: the bound falls below the guarantee, the verdict stands.
    terms = StatedReleases("add-remove-client", 1.0, 100)
    model = np.load(directory / "model.npy")
    for number in range(13, 80):
        far = model + 100 * np.random.default_rng(number).normal(size=SIZE)
        TrainingObserver(directory, DIRECTIONS, 2, terms, DELTA).store_scores(
            number, [model], [far], map(ReportedCanaryProperties, (0, 1))
        )
        model = far
    late = measure_live(directory, COINS)
    assert late.bounds.mu_lower < 1
    assert late.verdict == "violated"


def test_more_rounds_than_claimed_break_the_guarantee_without_statistics(tmp_path: Path) -> None:
    """With honest noise; they are in no look, and in what the training is certified to tell."""
    longer = train(tmp_path / "longer", 30, 1.0, claimed=20)
    whole = train(tmp_path / "whole", 20, 1.0)
    numbers = measure_live(longer, COINS)
    declared = measure_live(whole, COINS)
    assert (numbers.verdict, declared.verdict) == ("violated", "inconclusive")
    assert [look.rounds for look in numbers.looks] == [5, 10, 20]
    assert [look.bounds.mu_lower for look in numbers.looks] == [look.bounds.mu_lower for look in declared.looks]
    assert not any(look.is_violated for look in numbers.looks)
    finding = numbers.bounds
    assert (finding.rounds, numbers.guarantee.rounds) == (30, 20)
    assert finding.epsilon_lower == pytest.approx(gdp_epsilon(DELTA, finding.mu_lower * np.sqrt(30)), rel=1e-9)
    assert re.search(r"\b30 rounds .*released", dict(live_lines(numbers))["Next"])


def test_a_later_round_than_claimed_leaves_open_how_many_there_were(tmp_path: Path) -> None:
    directory = train(tmp_path, 101, 1.0, canaries=8, claimed=100)
    (directory / "round-000050.json").unlink()
    numbers = measure_live(directory, COINS)
    assert (numbers.released, numbers.last, numbers.verdict) == (100, 101, "inconclusive")
    assert "round 101 was kept" in dict(live_lines(numbers))["Next"]
    (directory / "round-000101.json").unlink()
    assert measure_live(directory, COINS, is_over=True).verdict == "consistent"


def test_rounds_in_which_two_clients_send_one_canary_or_a_strange_one_do_not_count(tmp_path: Path) -> None:
    """Twice the canary stands out of honest noise as one does of half the noise."""
    directory = train(tmp_path, 20, 1.0, canaries=3, claimed=60)
    terms = StatedReleases("add-remove-client", 1.0, 60)
    draw = np.random.default_rng(1)
    model = np.load(directory / "model.npy")
    for number in range(21, 61):
        release = draw.normal(size=SIZE)
        for canary in range(3):
            release += 2 * canary_coin(COINS, number, canary) * canary_direction(DIRECTIONS, number, canary, SIZE)
        present = (0, 0, 1, 1, 2, 2) if number < 60 else (0, 1, 2, 7)
        TrainingObserver(directory, DIRECTIONS, 3, terms, DELTA).store_scores(
            number, [model], [model + release], map(ReportedCanaryProperties, present)
        )
        model = model + release
    numbers = measure_live(directory, COINS)
    assert (numbers.bounds.rounds, numbers.misnamed, numbers.verdict) == (20, (0, 1, 2, 7), "inconclusive")
    assert re.search(r"\b40 rounds .*: .*\bnamed canaries twice", live_headline(numbers))
    assert re.search(r"\bevery node .*\bnumber\b", dict(live_lines(numbers))["Next"])
    for number in range(1, 21):
        (directory / f"round-{number:06d}.json").unlink()
    assert_refused(r"\b3 canaries .*name 0, 1, 2, 7 twice", measure_live, directory, COINS)


@pytest.mark.long
@pytest.mark.parametrize(("added", "verdict"), [(2.0, "consistent"), (0.5, "violated")])
def test_a_guarantee_whose_epsilon_is_0_is_held_against_two_thirds_of_its_noise(
    added: float, verdict: str, tmp_path: Path
) -> None:
    terms = StatedReleases("add-remove-client", 2.0, 60)
    train(tmp_path, 60, added, canaries=64)
    guarantee = json.loads((tmp_path / "guarantee.json").read_text()) | terms.to_json() | {"delta": 0.96}
    (tmp_path / "guarantee.json").write_text(json.dumps(guarantee))
    numbers = measure_live(tmp_path, COINS)
    assert (numbers.guarantee.epsilon, numbers.verdict) == (0.0, verdict)
    needed = numbers.rounds_needed
    assert needed is not None
    level = FAMILY_LEVEL / 5
    mu = 1 / np.hypot(2 / 1.5, np.sqrt(32 / SIZE))
    for rounds, is_enough in ((needed, True), (needed - 1, False)):
        assert (detectable_shift(rounds * 32, rounds * 52, 0.5, level) <= mu) == is_enough


@pytest.mark.long
@pytest.mark.parametrize("are_seen", [True, False])
def test_no_noise_behind_the_updates_of_many_others_is_not_called_consistent(are_seen: bool, tmp_path: Path) -> None:
    """Their number tells that they may hide it; where nobody saw it, canaries that stand out too little do."""
    directory = train(tmp_path / "none", 100, 0.0, canaries=8, other_clients=40, are_seen=are_seen)
    numbers = measure_live(directory, COINS)
    assert (numbers.verdict, numbers.limit, numbers.rounds_needed) == ("inconclusive", np.inf, None)
    assert numbers.dilution.is_seen == (not are_seen)
    reason = "many other clients" if are_seen else "the claimed noise"
    assert reason in dict(live_lines(numbers))["Next"]
    sparse_finding = measure_live(
        train(tmp_path / "few", 100, 1.0, canaries=8, other_clients=2, are_seen=are_seen), COINS
    )
    assert (sparse_finding.verdict, sparse_finding.dilution.is_seen) == ("consistent", False)
    assert sparse_finding.dilution.spread == pytest.approx(np.sqrt((4 * are_seen + 4) / SIZE))


@pytest.mark.long
@pytest.mark.parametrize("trainings", [100, 400])
def test_nobody_is_called_violated_however_often_somebody_looks(trainings: int) -> None:
    """The level is held over all looks: trainings of 80 rounds at 500 times the level, 1e-4 for a false alarm."""
    from scipy.stats import binom

    from fl_audit.audits.canaries.epsilon_from_scores import certify

    training = Training(canaries=3, rounds=80)
    alarms = 0
    level = 0.5
    looks = declared_looks(80)
    for seed in range(trainings):
        scores, coins, decoys = training.scores(np.random.default_rng((7, seed)))
        findings = [
            certify(scores[:look], coins[:look], training.claim, 1 - level / len(looks), decoys=decoys[:look])
            for look in looks
        ]
        alarms += any(look.is_violated for look in findings)
    assert binom.ppf(1e-4, trainings, 0.1) <= alarms <= binom.ppf(1 - 1e-4, trainings, level)


def test_the_command_says_it_and_writes_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = train(tmp_path / "kept", 20, added=0.1)
    coins = tmp_path / "coins"
    coins.write_text(f"{COINS}\n")

    def said(*arguments: str) -> tuple[str, int]:
        monkeypatch.setattr("sys.argv", ["fl-audit", "live", *arguments])
        status = 0
        try:
            main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        captured = capsys.readouterr()
        return captured.out + captured.err, status

    text, status = said(str(directory), "--coins", str(coins), "--fail-on-violation")
    assert status == 4
    assert re.match(r"Violated: 20 .*of 20 claimed", text)
    assert "Violated" in (directory / "report.html").read_text()
    text, status = said(str(directory), "--coins", str(coins), "--json")
    numbers = json.loads(text)
    assert (status, numbers["verdict"], numbers["whole_rounds"]) == (0, "violated", 20)
    assert numbers["epsilon_lower"] > numbers["epsilon_claimed"]
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert said(str(directory), "--coins", str(coins), "--out", ".")[1] == 0
    assert "Violated" in (tmp_path / "here" / "report.html").read_text()
    text, status = said(str(tmp_path), "--coins", str(coins))
    assert status == 2
    assert "guarantee.json is missing" in text
    text, status = said(str(directory), "--coins", str(tmp_path / "none"))
    assert status == 2
    assert "holds no seed" in text


@pytest.mark.parametrize(
    "content", [b"1234567890123456789x", b"", b"12\n13\n", b"9" * 30, b"\xff\xfe12", b"-5", b"1_0", "\u0663".encode()]
)
def test_a_file_that_holds_no_seed_is_refused_without_its_content(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "coins").write_bytes(content)
    error = assert_refused("holds no seed", seed_in, tmp_path / "coins")
    error_text = str(error).replace(str(tmp_path), "")
    for word in content.decode("latin-1").split():
        assert len(word) < 2 or word not in error_text
    assert "\n" not in error_text


def test_coins_out_of_range_are_not_repeated() -> None:
    error = assert_refused(r"coins .*of type", Canary, 0, 11, 2**64 + 123456789, 1.0)
    assert "123456789" not in str(error)
    assert_refused("directions is 18446744073709551617", Canary, 0, 2**64 + 1, 5, 1.0)


def test_terms_that_cannot_be_are_refused(tmp_path: Path) -> None:
    assert_refused("multiplier is 0", StatedReleases, "add-remove-client", 0.0, 3)
    assert_refused("rounds is 0", StatedReleases, "add-remove-client", 1.0, 0)
    assert_refused("rate is 2", StatedReleases, "add-remove-client", 1.0, 3, 2.0)
    assert_refused("delta is 0", TrainingObserver, tmp_path, 1, 1, delta=0.0)
    train(tmp_path, 5, 1.0)
    (tmp_path / "guarantee.json").write_text('{"delta": 0.1, "canaries": 1}')
    assert_refused("states no training", measure_live, tmp_path, COINS)
