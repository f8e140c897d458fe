"""Audits in place: the app does not notice, its trials are fair, and what they find is true."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Error, Message
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
from flwr.clientapp.typing import Mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    FedMedian,
    Strategy,
)

from fl_audit.app_audits.black_box import StatedClaim, held, insider
from fl_audit.app_audits.black_box.in_app_verdict import _ZERO
from fl_audit.app_audits.live.budget_guard import budget_mod
from fl_audit.privacy.stated_releases import StatedReleases
from fl_audit.verdict.verdict import Verdict
from tests.app_audits.black_box.toy_app import (
    CLIENTS,
    Heard,
    Noisy,
    kept_in,
    reply_with,
    summary_of,
    toy_audit,
    toy_run,
)
from tests.builders.strategies import central_noise


class Seeing(FedAvg):
    """Remembers the records and group ids of all replies."""

    replies: ClassVar[list[tuple[list[str], str]]] = []

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        replies = list(replies)
        Seeing.replies += [(sorted(reply.content), reply.metadata.group_id) for reply in replies]
        return super().aggregate_train(server_round, replies)


def test_the_app_sees_what_it_sees_without_an_audit(tmp_path: Path) -> None:
    """Messages and state of its own training are the same, and trials begin with the state of a new run."""
    alone = Heard()
    watched = Heard()
    expected = toy_run(Seeing, None, mods=[], heard=alone)
    result = toy_run(Seeing, toy_audit(tmp_path, trials=21, contribution="own"), heard=watched)
    message_count = len(alone.messages)
    assert Seeing.replies == [(["arrays", "metrics"], "")] * len(Seeing.replies)
    assert len(Seeing.replies) == 2 * message_count + CLIENTS * 22
    assert sorted(watched.messages[:message_count]) == sorted(alone.messages)
    assert set(watched.messages[message_count:]) == {
        (partition, ("arrays", "config"), "") for partition in range(CLIENTS)
    }
    # Two rounds of its own training count on; trials of one round each, one to try zero, begin anew.
    assert watched.states[message_count:] == [0] * (len(watched.states) - message_count)
    assert len(watched.states) - message_count == CLIENTS * 22
    assert result.arrays == expected.arrays
    assert result.train_metrics_clientapp == expected.train_metrics_clientapp
    assert result.evaluate_metrics_clientapp == expected.evaluate_metrics_clientapp


@pytest.mark.long
def test_no_noise_is_caught_and_the_limit_is_what_right_guesses_allow(tmp_path: Path) -> None:
    audit = toy_audit(tmp_path)
    toy_run(FedAvg, audit)
    summary = summary_of(tmp_path)
    assert summary["verdict"] == "violated"
    # Forty right guesses: 0.05 ** (1 / 40) of them are certain, ln(0.9278 / 0.0722) = 2.55.
    share = 0.05 ** (1 / 40)
    assert summary["lower_bound"] == pytest.approx(np.log(share / (1 - share)), abs=1e-4)
    assert summary["trial"] == "removed"
    assert audit.verdict().verdict is Verdict.VIOLATED


def flowers_wrapper() -> Strategy:
    return central_noise(1.0, 0.1, CLIENTS)


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("strategy", [lambda: Noisy(0.1 / CLIENTS), flowers_wrapper])
def test_true_noise_is_not_called_violated(tmp_path: Path, strategy: Callable[[], Strategy]) -> None:
    """A level of 5 % over seeds: of the first eight, under Flower's wrapper, the first one is called violated.

    One app has a generator of its own, which copies would repeat. Under Flower's wrapper the contribution is crafted,
    and clipped to the norm.
    """
    claim = StatedClaim("add-remove-client", noise_multiplier=1.0)
    toy_run(strategy, toy_audit(tmp_path, trials=120, seed=5, claim=claim), rounds=1)
    summary = summary_of(tmp_path)
    assert summary["verdict"] == "consistent"
    reading = summary["findings"][0]["if_gaussian"]
    assert reading["mu"] == pytest.approx(1.0, abs=0.35)


def test_too_little_noise_is_called_violated(tmp_path: Path) -> None:
    claim = StatedClaim("replace-client", noise_multiplier=2.0)
    toy_run(lambda: Noisy(0.1 / CLIENTS), toy_audit(tmp_path, trials=120, claim=claim))
    # An update against its opposite is twice as far: mu 2 where the claim allows 0.5.
    summary = summary_of(tmp_path)
    assert (summary["verdict"], summary["trial"]) == ("violated", "replaced")


@pytest.mark.long
def test_client_side_modifiers_bear_the_insider_wherever_it_stands(tmp_path: Path) -> None:
    """A crafted update of length 1000 is clipped by the modifier if the insider stands within, else it is not."""

    def strategy() -> DifferentialPrivacyClientSideFixedClipping:
        return DifferentialPrivacyClientSideFixedClipping(FedAvg(fraction_evaluate=0.0), 1.0, 0.1, CLIENTS)

    shifts = {}
    for name, mods in {"within": [fixedclipping_mod, insider], "around": [insider, fixedclipping_mod]}.items():
        audit = toy_audit(tmp_path / name, contribution="crafted", trials=40)
        toy_run(strategy, audit, mods=mods)
        along = audit.verdict().tests[0].along
        present = audit.verdict().tests[0].present
        shifts[name] = along[present].mean() - along[~present].mean()
    assert 0 < shifts["within"] < 0.1
    assert shifts["around"] == pytest.approx(1000 / CLIENTS, rel=0.01)


class Refusing(FedAvg):
    """Raises at an update of nothing, and in every tenth trial."""

    trials = 0

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        replies = list(replies)
        Refusing.trials += 1
        if Refusing.trials > 2 and Refusing.trials % 10 == 0:
            raise RuntimeError("tenth trial")
        if min(np.abs(reply.content["arrays"].to_numpy_ndarrays()[0]).max() for reply in replies) == 0:
            raise ZeroDivisionError("by zero")
        return super().aggregate_train(server_round, replies)


@pytest.mark.long
def test_what_a_strategy_raises_in_trials_is_a_finding(tmp_path: Path) -> None:
    toy_run(Refusing, toy_audit(tmp_path))
    refusals = {refusal["trial"]: refusal["said"] for refusal in summary_of(tmp_path)["refusals"]}
    assert refusals == {"removed": "RuntimeError: tenth trial", _ZERO: "ZeroDivisionError: by zero"}


class Failing(FedAvg):
    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        raise RuntimeError("as without an audit")


def test_what_the_own_training_raises_is_raised(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="without an audit"):
        toy_run(Failing, toy_audit(tmp_path))
    assert not list(tmp_path.iterdir())


class GloballyNoisy(Noisy):
    def noise(self, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        return np.random.normal(0, self.spread, shape)  # noqa: NPY002  # as Flower's wrappers do


@pytest.mark.long
def test_trials_over_several_runs_are_the_trials_of_one(tmp_path: Path) -> None:
    """Noise follows a global generator here, which each trial seeds: so trials do not depend on the run they are in."""

    toy_run(lambda: GloballyNoisy(0.05), toy_audit(tmp_path / "one", trials=30, contribution="own"))
    for _ in range(3):
        toy_run(
            lambda: GloballyNoisy(0.05), toy_audit(tmp_path / "three", trials=30, contribution="own", trials_per_run=12)
        )
        # A file that a killed writer left is no trial.
        (kept_in(tmp_path / "three") / "trials" / ".000030.1.part.npz").write_bytes(b"half")
    assert summary_of(tmp_path / "one") == summary_of(tmp_path / "three")
    for file in sorted((kept_in(tmp_path / "one") / "trials").glob("*.npz")):
        with np.load(file) as expected_arrays, np.load(kept_in(tmp_path / "three") / "trials" / file.name) as right:
            assert all(
                np.array_equal(expected_arrays[name], right[name], equal_nan=expected_arrays[name].dtype == float)
                for name in expected_arrays
            )


@pytest.mark.long
def test_other_settings_play_trials_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audits = [
        toy_audit(tmp_path, trials=21, contribution="own"),
        toy_audit(tmp_path, trials=21, contribution="own", numbers="withheld"),
    ]
    for audit in (*audits, audits[0]):
        toy_run(FedAvg, audit)
    assert len(list(tmp_path.iterdir())) == 2
    assert capsys.readouterr().err.count("change of numbers: ") == 1
    assert [audit.verdict().tests[0].trials for audit in audits] == [1, 1]


class Telling(Noisy):
    """Far more noise than is claimed on the model, and none on the loss that it aggregates."""

    def __init__(self) -> None:
        super().__init__(10.0)


@pytest.mark.few_cases(1)
@pytest.mark.parametrize(("numbers", "expected"), [("kept", "consistent"), ("withheld", "violated")])
def test_numbers_that_clients_report_count_if_the_claim_covers_them(
    tmp_path: Path, numbers: str, expected: str
) -> None:
    toy_run(Telling, toy_audit(tmp_path, numbers=numbers), rounds=1)
    summary = summary_of(tmp_path)
    assert summary["verdict"] == expected
    if numbers == "withheld":
        assert summary["findings"][0]["told_by"] == "metrics: loss"


def test_a_client_app_without_insider_trains_and_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heard = Heard()
    result = toy_run(FedAvg, toy_audit(tmp_path), mods=[], heard=heard)
    assert result.arrays == toy_run(FedAvg, None, mods=[]).arrays
    assert "ClientApp(mods=[audit.insider()])" in capsys.readouterr().err


def test_the_insider_does_nothing_without_a_watched_strategy() -> None:
    heard = Heard()
    assert toy_run(FedAvg, None, heard=heard).arrays == toy_run(FedAvg, None, mods=[]).arrays
    assert heard.states == [0] * CLIENTS + [1] * CLIENTS


@pytest.mark.long
def test_so_many_trials_as_are_accepted_are_enough_for_every_strategy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Flower's wrapper tries two contributions in turn; 21 trials with one, as the message says, are enough as well."""
    for name, changes in (("two", {"trials": 41}), ("one", {"trials": 21, "contribution": "own"})):
        toy_run(flowers_wrapper, toy_audit(tmp_path / name, **changes), rounds=1)
        assert (kept_in(tmp_path / name) / "summary.json").exists(), capsys.readouterr().err
    assert toy_audit(tmp_path, trials=21, claim=StatedClaim("add-remove-record", epsilon=1.0)).trials == 21


@pytest.mark.long
def test_the_server_sees_one_client_through_its_local_noise(tmp_path: Path) -> None:
    """LocalDpMod at epsilon 10: mu = sensitivity / sigma = 10 / sqrt(2 ln(1.25e5)) = 2.06, in any message."""
    mods = [LocalDpMod(clipping_norm=0.1, sensitivity=0.1, epsilon=10.0, delta=1e-5), insider]
    claim = StatedClaim("add-remove-client", epsilon=1.0)
    toy_run(FedAvg, toy_audit(tmp_path, claim=claim, observer="server", contribution="crafted", trials=80), mods=mods)
    summary = summary_of(tmp_path)
    assert summary["verdict"] == "violated"
    assert summary["findings"][0]["if_gaussian"]["mu"] == pytest.approx(2.06, abs=0.9)


def recorded(message: Message, context: Context, call_next: Any) -> Message:
    """A client that sends the mean of its records, in the place of the toy app's training."""
    if message.metadata.message_type != "train":
        return call_next(message, context)
    mean = held(np.array([[3.0], [1.0], [1.0]])).mean() * np.ones(6, np.float32)
    return reply_with(message, ArrayRecord([mean.astype(np.float32)]), examples=1)


@pytest.mark.long
@pytest.mark.parametrize("adjacency", ["add-remove-record", "replace-record"])
def test_claims_about_records_ask_the_app(tmp_path: Path, adjacency: str) -> None:
    toy_run(FedAvg, toy_audit(tmp_path, claim=StatedClaim(adjacency, epsilon=1.0)), mods=[insider, recorded])
    assert summary_of(tmp_path)["verdict"] == "violated"


def failing(message: Message, context: Context, call_next: Any) -> Message:
    """A client that fails where its model has moved."""
    if np.abs(message.content["arrays"].to_numpy_ndarrays()[0]).max() > 0 and message.metadata.message_type == "train":
        raise RuntimeError("no such model")
    return call_next(message, context)


def test_errors_of_clients_in_trials_are_findings(tmp_path: Path) -> None:
    claim = StatedClaim("add-remove-client", epsilon=1.0, rounds=2)
    toy_run(FedAvg, toy_audit(tmp_path, claim=claim, trials=21, contribution="own"), mods=[insider, failing], rounds=1)
    refusals = {refusal["trial"]: refusal["said"] for refusal in summary_of(tmp_path)["refusals"]}
    assert "no such model" in refusals["replies of clients"]


@pytest.mark.long
@pytest.mark.parametrize("failure", ["fails", "learns nothing", "has spent its rounds"])
def test_trials_without_the_targets_contribution_are_none(tmp_path: Path, failure: str) -> None:
    """The target's client answers its own training alone, or has nothing to say."""
    terms = StatedReleases("add-remove-client", 1.0, 2)
    calls = [0]

    def target(message: Message, context: Context, call_next: Any) -> Message:
        if context.node_config["partition-id"] != 0:
            return call_next(message, context)
        calls[0] += 1
        if failure == "has spent its rounds":
            return budget_mod(tmp_path / "ledger", terms, 100.0, 1e-5)(message, context, call_next)
        if failure == "fails" and calls[0] > 2:
            return Message(Error(1, "busy"), reply_to=message)
        reply = call_next(message, context)
        if failure == "learns nothing":
            reply.content["arrays"] = message.content["arrays"]
        return reply

    # An app without noise is found even by the smallest change of one value, which stands for nothing.
    noise = 0.1 if failure == "learns nothing" else 0.0
    toy_run(lambda: Noisy(noise), toy_audit(tmp_path / "audit"), mods=[insider, target])
    summary = summary_of(tmp_path / "audit")
    assert summary["verdict"] == "inconclusive"
    text = (kept_in(tmp_path / "audit") / "verdict.txt").read_text()
    assert re.search("none of the 40 trials", text)
    if failure == "has spent its rounds":
        assert re.search(r"answered in 2 rounds: .*claimed", text)


ONE = StatedClaim("add-remove-client", noise_multiplier=1.0)


def varying(spread: float) -> Mod:
    """A modifier that adds something else to every update: a share of noise outside of the insider, training within."""
    draws = np.random.default_rng(0)

    def vary(message: Message, context: Context, call_next: Any) -> Message:
        reply = call_next(message, context)
        if message.metadata.message_type.startswith("train") and not reply.has_error():
            value = reply.content["arrays"].to_numpy_ndarrays()[0]
            noisy = value + draws.normal(0, spread, value.shape)
            reply.content["arrays"] = ArrayRecord([noisy.astype(np.float32)])
        return reply

    return vary


@pytest.mark.long
@pytest.mark.parametrize("of_the_guarantee", [1.0, 0.9])
def test_noise_in_shares_is_not_violated_where_only_known_shares_tell(tmp_path: Path, of_the_guarantee: float) -> None:
    """Each of three clients adds a third of the variance, outside of the insider: two shares are known of three.

    Then mu is 1.73 where the whole noise gives 1: 81 % of trials can be told, and the claim allows 69 %. With a tenth
    less noise the claim does not hold, and mu 1.11 is too little to be seen without the others' replies.
    """
    audit = toy_audit(tmp_path, trials=300, claim=ONE)
    share = varying(of_the_guarantee * 0.1 / np.sqrt(CLIENTS))
    toy_run(lambda: FedAvg(fraction_evaluate=0.0), audit, mods=[share, insider])
    summary = summary_of(tmp_path)
    assert summary["verdict"] == "inconclusive"
    assert summary["lower_bound_knowing_others"] is not None
    assert summary["knowing_others_refutes_nothing"] == "shares"
    text = (kept_in(tmp_path) / "verdict.txt").read_text()
    assert "knows_others=True" in text
    assert "such shares" in text
    # The same trials, of a claim that covers who knows the others' replies.
    assert replace(audit, knows_others=True).verdict().verdict is Verdict.VIOLATED


def server_side(inner: type[FedAvg], multiplier: float, norm: float = 0.1) -> Callable[[], Strategy]:
    return lambda: DifferentialPrivacyServerSideFixedClipping(inner(fraction_evaluate=0.0), multiplier, norm, CLIENTS)


@pytest.mark.long
@pytest.mark.parametrize(
    ("inner", "multiplier", "held"),
    [(FedAvg, 1.0, "consistent"), (FedAvg, 0.4, "violated"), (FedMedian, 1.0, "violated")],
)
def test_the_servers_noise_alone_has_to_keep_the_claim(
    inner: type[FedAvg], multiplier: float, held: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that train at random hide what a median tells from all but those who know their replies."""
    mods = [insider, varying(0.3)]
    audit = toy_audit(tmp_path / "held", trials=120, seed=21, claim=ONE, contribution="crafted")
    toy_run(server_side(inner, multiplier), audit, mods=mods, rounds=1)
    summary = summary_of(tmp_path / "held")
    text = (kept_in(tmp_path / "held") / "verdict.txt").read_text()
    assert summary["verdict"] == held
    assert "replied the same" in text
    assert "client that knows" in text
    if inner is not FedMedian:
        return
    monkeypatch.setattr(
        "fl_audit.app_audits.black_box.trials_after_training.clips_and_adds_noise", lambda strategy: False
    )
    toy_run(server_side(inner, multiplier), toy_audit(tmp_path / "unheld", trials=120, seed=21, claim=ONE), mods=mods)
    assert summary_of(tmp_path / "unheld")["verdict"] != "violated"


def test_who_is_held_still_trains_once_and_sends_the_same_in_every_trial(tmp_path: Path) -> None:
    heard = Heard()
    replies = list[tuple[int, bytes]]()

    def listening(message: Message, context: Context, call_next: Any) -> Message:
        reply = call_next(message, context)
        partition = int(context.node_config["partition-id"])
        if message.metadata.message_type.startswith("train"):
            replies.append((partition, reply.content["arrays"].to_numpy_ndarrays()[0].tobytes()))
        return reply

    audit = toy_audit(tmp_path, trials=30, claim=ONE, contribution="own")
    toy_run(server_side(FedAvg, 1.0), audit, mods=[listening, insider, varying(0.3)], heard=heard, rounds=1)
    # Of 30 trials and one that tries zero, after the app's own training.
    trained = [partition for partition, _, _ in heard.messages]
    assert [trained.count(partition) for partition in range(CLIENTS)] == [32, 3, 3]
    for partition in range(1, CLIENTS):
        sent = [value for number, value in replies if number == partition]
        assert len(set(sent[-30:])) == 1
        assert len(set(sent)) == 3
    assert len({value for number, value in replies if number == 0}) > 10


@pytest.mark.long
def test_shares_under_a_wrapper_of_the_server_are_noticed_and_nobody_is_held_still(tmp_path: Path) -> None:
    """An honest federation, whose wrapper clips and adds next to nothing: its clients' shares make the noise."""
    audit = toy_audit(tmp_path, trials=60, claim=ONE, contribution="own")
    mods = [varying(0.1 / np.sqrt(CLIENTS)), insider]
    toy_run(server_side(FedAvg, 1e-3, norm=10.0), audit, mods=mods)
    assert summary_of(tmp_path)["verdict"] != "violated"
    assert json.loads((kept_in(tmp_path) / "still.json").read_text()) == {"not_covered": "shares outside"}
    assert "does not know" in (kept_in(tmp_path) / "verdict.txt").read_text()


def test_others_that_are_the_same_in_every_trial_add_no_noise(tmp_path: Path) -> None:
    toy_run(lambda: Noisy(0.1 / CLIENTS), toy_audit(tmp_path, trials=40, contribution="own", claim=ONE))
    assert "client that knows" in (kept_in(tmp_path) / "verdict.txt").read_text()
