"""Canaries in a running app: mods of clients, an observer around strategies of both interfaces, a client watching."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import adaptiveclipping_mod
from flwr.common import Code, FitRes, Parameters, Status, ndarrays_to_parameters
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.server.strategy import DifferentialPrivacyServerSideFixedClipping as OldFixedClipping
from flwr.server.strategy import FedAvg as OldFedAvg
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedMedian,
    QFedAvg,
)
from flwr.simulation import run_simulation

from fl_audit.app_audits.live.canary import Canary, canary_mod, watching_mod
from fl_audit.app_audits.live.live_audit import measure_live
from fl_audit.app_audits.live.live_checks import Inconsistency
from fl_audit.app_audits.live.live_page import live_lines
from fl_audit.app_audits.live.observed_strategies import watched
from fl_audit.app_audits.live.observer_store import TrainingObserver
from fl_audit.app_audits.live.reported_canary_properties import NOTE, ReportedCanaryProperties, fingerprint
from fl_audit.app_audits.live.stored_rounds import scores_and_coins, whole_rounds
from fl_audit.audits.canaries.canary_draws import canary_coin, canary_direction
from fl_audit.privacy.stated_releases import StatedReleases
from fl_audit.runs.local_engine import run_locally
from fl_audit.strategies.flower_grids import make_messages_for
from tests.builders.refusals import assert_refused

ADVERTISED = '{"number": 0, "weight": 0.1}'  # only the server says what a reply weighs
DIRECTIONS = 11
COINS = 12
SIZES = ((40, 60), (100,), (50, 10))
CLIENTS, CANARIES = 6, 3


def initial() -> ArrayRecord:
    tensors = {str(index): Array(np.zeros(size, dtype=np.float32)) for index, size in enumerate(SIZES)}
    return ArrayRecord(tensors | {"buffer": Array(np.array(7, dtype=np.int64))})


def client_app(observer_directory: Path | None = None, before: tuple[Any, ...] = ()) -> ClientApp:
    """Return an app whose first clients send canaries, with a mod each that all clients have."""

    def choose(message: Message, context: Context, call_next: Any) -> Message:
        number = int(context.node_config["partition-id"])
        if number < CANARIES:
            return canary_mod(Canary(number, DIRECTIONS, COINS, 1.0))(message, context, call_next)
        if observer_directory is not None and number >= CLIENTS - 2:
            return watching_mod(TrainingObserver(observer_directory, DIRECTIONS, CANARIES))(message, context, call_next)
        return call_next(message, context)

    app = ClientApp(mods=[*before, choose])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model = next(iter(message.content.array_records.values()))
        moved = {}
        for name, array in model.items():
            value = array.numpy()
            moved[name] = Array(np.asarray(value + np.float32(1e-4)) if value.dtype.kind == "f" else value)
        content = RecordDict({"arrays": ArrayRecord(moved), "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    return app


def server_app(strategy: Any, rounds: int) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy.start(grid, initial(), num_rounds=rounds, train_config=ConfigRecord())

    return app


def private(noise_multiplier: float = 1.0) -> DifferentialPrivacyServerSideFixedClipping:
    averaged = FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
    return DifferentialPrivacyServerSideFixedClipping(averaged, noise_multiplier, 1.0, CLIENTS)


def played(strategy: Any, rounds: int, app: ClientApp) -> None:
    run_locally(server_app(strategy, rounds), app, CLIENTS, 60.0, 1)


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("noise_multiplier", [1.0, 0.1])
def test_an_observer_certifies_the_noise_of_flowers_own_wrapper(noise_multiplier: float, tmp_path: Path) -> None:
    watch = TrainingObserver(
        tmp_path / "kept", DIRECTIONS, CANARIES, StatedReleases("add-remove-client", 1.0, 60), 1e-3
    )
    played(watched(private(noise_multiplier), watch), 60, client_app(tmp_path / "models"))
    numbers = measure_live(watch.directory, COINS)
    finding = numbers.bounds
    assert not numbers.doubts
    assert (finding.canaries, finding.rounds) == (CANARIES, 60)
    assert (numbers.verdict == "violated") == (noise_multiplier < 1)
    assert finding.mu * noise_multiplier == pytest.approx(1, abs=0.35)
    assert {
        (round_record.norm, round_record.directions) for round_record in whole_rounds(watch.directory, CANARIES)[0]
    } == {(1.0, fingerprint(DIRECTIONS))}
    # Two clients who see models alone read the same, but for the last round.
    assert list((tmp_path / "models").glob("earlier-*")) == []
    model_rounds, same = (whole_rounds(tmp_path / name, CANARIES)[0] for name in ("models", "kept"))
    assert [round_record.number for round_record in model_rounds] == list(range(1, 60))
    for model_round, right in zip(model_rounds, same, strict=False):
        np.testing.assert_allclose(model_round.scores, right.scores, rtol=0, atol=1e-9)


def test_who_watches_inside_of_what_adds_the_noise_calls_nothing_violated(tmp_path: Path) -> None:
    """An observation there has no noise, and is not what clients are sent."""
    watch = TrainingObserver(tmp_path, DIRECTIONS, CANARIES, StatedReleases("add-remove-client", 1.0, 20), 1e-3)
    averaged = FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
    inside = DifferentialPrivacyServerSideFixedClipping(watched(averaged, watch), 1.0, 1.0, CLIENTS)
    played(inside, 20, client_app())
    numbers = measure_live(tmp_path, COINS)
    assert any(look.is_violated for look in numbers.looks)
    assert (numbers.verdict, Inconsistency.GAPS in numbers.doubts) == ("inconclusive", True)
    assert "`watched` goes around" in dict(live_lines(numbers))["Next"]


def test_without_noise_a_score_is_the_canary_and_the_model_is_else_unchanged(tmp_path: Path) -> None:
    watch = TrainingObserver(tmp_path / "kept", DIRECTIONS, CANARIES)
    averaged = FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
    played(watched(averaged, watch), 4, client_app())
    scores, coins, _ = scores_and_coins(whole_rounds(watch.directory, CANARIES)[0], COINS, CANARIES)
    for row, number in enumerate(range(1, 5)):
        # Averaging makes a number of the counter, which counts as one more parameter from then on.
        dimension = sum(int(np.prod(size)) for size in SIZES) + (number > 1)
        sent = [
            Canary(canary_number, DIRECTIONS, COINS, 1.0).update(number, dimension, 1.0)
            for canary_number in range(CANARIES)
        ]
        total = sum(sent) + (CLIENTS - CANARIES) * np.float32(1e-4)
        for canary_number in range(CANARIES):
            assert coins[row, canary_number] == canary_coin(COINS, number, canary_number)
            direction = canary_direction(DIRECTIONS, number, canary_number, dimension)
            assert scores[row, canary_number] == pytest.approx(total @ direction / CLIENTS, abs=1e-6)


def test_what_cannot_be_kept_ends_no_training_and_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A file lies where rounds are to be kept; and two clients name their canaries in words and in 5,000 digits."""
    (tmp_path / "kept").write_text("")

    def in_words(message: Message, context: Context, call_next: Any) -> Message:
        reply = call_next(message, context)
        names = {0: "the first", 1: "9" * 5000}
        if NOTE in reply.content.config_records and (number := int(context.node_config["partition-id"])) in names:
            reply.content[NOTE] = ConfigRecord({NOTE: names[number]})
        return reply

    finals = []
    for watch in (
        None,
        TrainingObserver(tmp_path / "kept", DIRECTIONS, CANARIES),
        TrainingObserver(tmp_path / "more", DIRECTIONS, CANARIES),
    ):
        averaged = FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
        strategy = averaged if watch is None else watched(averaged, watch)

        @(server := ServerApp()).main()
        def main(grid: Grid, context: Context, strategy: Any = strategy) -> None:
            result = strategy.start(grid, initial(), num_rounds=2, train_config=ConfigRecord())
            finals.append(np.concatenate([array.ravel() for array in result.arrays.to_numpy_ndarrays()]))

        run_locally(server, client_app(before=(in_words,)), CLIENTS, 60.0, 1)
    for final in finals[1:]:  # but for the order in which clients were drawn, and summed up
        np.testing.assert_allclose(final, finals[0], rtol=0, atol=1e-6)
    messages = [line for line in capfd.readouterr().err.splitlines() if line.startswith("fl_audit: round")]
    assert [line.split(" is not kept")[0] for line in messages] == ["fl_audit: round 1", "fl_audit: round 2"]
    canary_numbers = [
        [canary["number"] for canary in json.loads(path.read_text())["present"]]
        for path in sorted((tmp_path / "more").glob("round-*.json"))
    ]
    assert canary_numbers == [[2], [2]]


def test_models_that_are_no_arrays_are_passed_on_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As trees in bytes: for strategies of both interfaces, and a client that watches."""
    make_messages_for(1, 1)
    watch = TrainingObserver(tmp_path, DIRECTIONS, 1)
    trees = Parameters([b"trees"], "trees")
    old = OldFedAvg()
    # type: ignore[method-assign]
    old.configure_fit = lambda *_: []
    old.aggregate_fit = lambda *_: (trees, {})
    observed = watched(old, watch)
    observed.configure_fit(1, trees, None)
    assert observed.aggregate_fit(1, [], []) == (trees, {})
    model = ArrayRecord({"trees": Array("bytes", (5,), "trees", b"trees")})
    new = FedAvg()
    # type: ignore[method-assign]
    new.configure_train = lambda *_: []
    new.aggregate_train = lambda *_: (model, None)
    observed = watched(new, watch)
    observed.configure_train(2, model, ConfigRecord(), None)
    assert observed.aggregate_train(2, []) == (model, None)
    message = Message(RecordDict({"arrays": model, "config": ConfigRecord({"server-round": 3})}), 1, "train")
    assert watching_mod(watch)(message, Context(1, 1, {}, RecordDict(), {}), lambda message, _: message) is message
    messages = [line.split(" is not kept")[0] for line in capsys.readouterr().err.splitlines()]
    assert messages[:2] == ["fl_audit: round 1", "fl_audit: round 2"]
    assert ["last round" in line for line in messages] == [False, False, True]
    assert list(tmp_path.glob("round-*")) == []


def test_the_older_interface_tells_of_canaries_nodes_and_the_norm_as_well(tmp_path: Path) -> None:
    start = ndarrays_to_parameters([np.zeros(9, np.float32)])
    strategy = OldFixedClipping(OldFedAvg(), 1.0, 0.5, 2)
    observed = watched(strategy, TrainingObserver(tmp_path, DIRECTIONS, 1))
    strategy.configure_fit = lambda *_: []  # type: ignore[method-assign]
    strategy.current_round_params = [np.zeros(9, np.float32)]
    observed.configure_fit(1, start, None)
    note = Canary(0, DIRECTIONS, COINS, 1.0).note(9, 1.0)
    results = []
    for cid, metrics in (("41", {NOTE: note}), ("42", {NOTE: "no number"}), ("43", {})):
        examples = 8 if cid == "43" else 2
        reply = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([np.ones(9, np.float32)]), examples, metrics)
        results.append((GridClientProxy(int(cid), None, 77), reply))
    observed.aggregate_fit(1, results, [])
    assert all(NOTE not in reply.metrics for _, reply in results)
    (round_record,), _ = whole_rounds(tmp_path, 1)
    assert (round_record.norm, round_record.run, round_record.others, round_record.models_only) == (0.5, 77, 2, False)
    (properties,) = round_record.present  # of the others one wrote a note that says nothing
    assert properties.weight == 0.25
    assert (properties.number, properties.node, properties.norm, properties.size, properties.is_replaced) == (
        0,
        "41",
        1.0,
        9,
        False,
    )


@pytest.mark.parametrize(
    ("strategy_class", "key", "weight"),
    [
        (FedAvg, "num-examples", 0.68),
        (FedAvg, "size", 0.5),
        (FedAdam, "num-examples", 0.68),
        (FedMedian, "size", 1.0),
        (partial(QFedAvg, 1.0), "size", None),
    ],
)
def test_what_a_canary_weighs_is_kept_as_the_strategy_weighs(
    strategy_class: Callable[..., FedAvg], key: str, weight: float | None, tmp_path: Path
) -> None:
    """Beside the heaviest reply, also inside of a wrapper; losses are not followed, and a median counts all alike."""
    make_messages_for(1, 1)
    wrapped = DifferentialPrivacyServerSideFixedClipping(strategy_class(weighted_by_key=key), 1.0, 1.0, 4)
    observed = watched(wrapped, TrainingObserver(tmp_path, DIRECTIONS, 1))
    model = ArrayRecord([np.zeros(9, np.float32)])
    wrapped.configure_train = lambda *_: []  # type: ignore[method-assign]
    wrapped.current_arrays = model
    if isinstance(inner := wrapped.strategy, FedAdam):
        inner.current_arrays = {name: array.numpy() for name, array in model.items()}
    elif isinstance(inner, QFedAvg):
        inner.current_arrays = model.copy()
    observed.configure_train(1, model, ConfigRecord(), None)
    replies = []
    for index, examples in enumerate((17, 25, 20, 18)):
        metrics = MetricRecord({"num-examples": examples, "size": 2 if index else 1, "train_loss": 1.0})
        content = RecordDict({"arrays": ArrayRecord([np.ones(9, np.float32)]), "metrics": metrics})
        if index == 0:
            content[NOTE] = ConfigRecord({NOTE: ADVERTISED})
        replies.append(Message(content, reply_to=Message(RecordDict(), 1, "train")))
    released, _ = observed.aggregate_train(1, replies)
    assert released is not None
    ((round_record,), _) = whole_rounds(tmp_path, 1)
    assert round_record.present[0].weight == (None if weight is None else pytest.approx(weight))


def test_a_canary_is_sent_whatever_action_of_the_app_a_message_names() -> None:
    make_messages_for(1, 1)
    context = Context(1, 1, {}, RecordDict(), {})
    canary = Canary(0, DIRECTIONS, COINS, 1.0)
    is_in = next(number for number in range(1, 99) if canary_coin(COINS, number, 0))
    for kind, expected in (("train", 1.0), ("train.default", 1.0), ("train.mine", 1.0), ("evaluate.mine", 0.0)):
        model = ArrayRecord({"weight": Array(np.zeros(9, np.float32))})
        content = RecordDict({"arrays": model, "config": ConfigRecord({"server-round": is_in})})
        reply = canary_mod(canary)(
            Message(content, 1, kind), context, lambda request, _: Message(request.content, reply_to=request)
        )
        sent = next(iter(reply.content.array_records.values()))["weight"].numpy()
        assert np.linalg.norm(sent) == pytest.approx(expected, rel=1e-5), kind


def test_canaries_follow_the_norm_that_an_adaptive_strategy_announces(tmp_path: Path) -> None:
    averaged = FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
    strategy = DifferentialPrivacyClientSideAdaptiveClipping(averaged, 1e-6, CLIENTS, initial_clipping_norm=0.25)
    watch = TrainingObserver(tmp_path / "kept", DIRECTIONS, CANARIES)
    played(watched(strategy, watch), 2, client_app(before=(adaptiveclipping_mod,)))
    first = whole_rounds(watch.directory, CANARIES)[0][0]
    is_in = [canary_number for canary_number in range(CANARIES) if canary_coin(COINS, 1, canary_number)]
    assert is_in
    for canary_number in is_in:
        assert first.scores[canary_number] == pytest.approx(0.25 / CLIENTS, rel=0.3)


class Trainer(NumPyClient):
    """A client of the old interface."""

    def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
        return [value + np.float32(1e-4) for value in parameters], 1, {}


@pytest.mark.long
@pytest.mark.ray
def test_both_interfaces_under_flowers_simulation(tmp_path: Path) -> None:
    new = TrainingObserver(tmp_path / "new", DIRECTIONS, CANARIES)
    # One process for all clients: each would import everything anew.
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 1}}
    run_simulation(server_app(watched(private(), new), 3), client_app(), CLIENTS, backend_config=resources)
    assert [round_record.numbers for round_record in whole_rounds(new.directory, CANARIES)[0]] == [(0, 1, 2)] * 3
    old = TrainingObserver(tmp_path / "old", DIRECTIONS, 1)
    start = ndarrays_to_parameters([np.zeros(size, dtype=np.float32) for size in SIZES])
    strategy = watched(
        OldFedAvg(fraction_evaluate=0.0, min_fit_clients=2, min_available_clients=2, initial_parameters=start), old
    )

    def components(context: Context) -> ServerAppComponents:
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=3))

    def send(message: Message, context: Context, call_next: Any) -> Message:
        if int(context.node_config["partition-id"]) > 0:
            return call_next(message, context)
        return canary_mod(Canary(0, DIRECTIONS, COINS, 1.0))(message, context, call_next)

    app = ClientApp(client_fn=lambda context: Trainer().to_client(), mods=[send])
    run_simulation(ServerApp(server_fn=components), app, 2, backend_config=resources)
    rounds, _ = whole_rounds(old.directory, 1)
    assert [round_record.number for round_record in rounds] == [1, 2, 3]
    for round_record in rounds:
        assert round_record.scores[0] == pytest.approx(0.5 * canary_coin(COINS, round_record.number, 0), abs=0.02)


def test_only_rounds_in_which_every_canary_answered_count(tmp_path: Path) -> None:
    watch = TrainingObserver(tmp_path, DIRECTIONS, 2)
    model = [np.zeros(9)]
    for number, present in ((1, (0, 1)), (3, (1, 0)), (4, (0,))):
        watch.store_scores(number, model, [entry + number for entry in model], map(ReportedCanaryProperties, present))
    rounds, every = whole_rounds(tmp_path, 2)
    assert ([entry.number for entry in rounds], [entry.number for entry in every]) == ([1, 3], [1, 3, 4])
    last = tmp_path / "round-000004.json"
    stored = json.loads(last.read_text())
    wrong = ({"size": -9}, {"others": -1}, {"norm": 0}, {"norm": float("inf")}, {"number": float("inf")})
    for text in ("{", "[" * 10**5, *(json.dumps(stored | entry) for entry in wrong)):
        last.write_text(text)
        assert_refused(r"round-000004\.json is no round", whole_rounds, tmp_path, 2)
    assert_refused(r"no round .*\b2 canaries", whole_rounds, tmp_path / "nowhere", 2)


def test_a_client_that_watches_keeps_no_round_that_it_missed_or_that_released_nothing(tmp_path: Path) -> None:
    make_messages_for(1, 1)
    look = watching_mod(TrainingObserver(tmp_path, DIRECTIONS, 1))
    context = Context(1, 1, {}, RecordDict(), {})
    for number, level in ((1, 0.0), (2, 1.0), (3, 1.0), (5, 2.0), (6, 3.0)):
        model = ArrayRecord({"weight": Array(np.full(9, level, np.float32))})
        content = RecordDict({"arrays": model, "config": ConfigRecord({"server-round": number})})
        look(Message(content, 1, "train.default" if number > 1 else "train"), context, lambda message, _: message)
    assert [round_record.number for round_record in whole_rounds(tmp_path, 1)[0]] == [1, 5]


def test_rounds_of_a_training_that_was_started_again_count_no_more(tmp_path: Path) -> None:
    watch = TrainingObserver(tmp_path, DIRECTIONS, 1)
    model = [np.zeros(9)]
    for number in (1, 2, 3, 1, 2, 2):
        watch.store_scores(number, model, [entry + 1 for entry in model], [ReportedCanaryProperties(0)])
    assert [entry.number for entry in whole_rounds(tmp_path, 1)[0]] == [1, 2]
    aside = {path.name: len(list(path.iterdir())) for path in tmp_path.glob("earlier-*")}
    assert aside == {"earlier-1": 3, "earlier-2": 1}
    shutil.rmtree(tmp_path / "earlier-1")
    watch.store_scores(1, model, [entry + 1 for entry in model], [ReportedCanaryProperties(0)])
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == ["earlier-2", "earlier-3", "round-000001.json"]
