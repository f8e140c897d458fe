"""Tests that contributions are refused if they are missing, not finite or of a wrong shape, and nothing is released."""

from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message

import fl_audit.clients.app
from fl_audit.errors import FederationError
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.observed_rounds import ServerRound
from fl_audit.message_keys import Key, MessageRecordName
from fl_audit.runs.local_engine import local_grid
from fl_audit.server.reply_timeout_grid import ReplyTimeoutGrid, discover_clients
from fl_audit.strategies.received_contributions import _lengths_at_most
from fl_audit.strategies.secret_draws import SeededChallenger
from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy
from fl_audit.trial_batches import TrialBatch, remaining_batches
from tests.builders.mechanisms import MECHANISMS, Changes
from tests.builders.runs import small_plan

TRIALS = 4
SPOILED = ("clients", "cohorts", "sampled clients", "adaptive", "adaptive, sampled", "distributed", "banded")


def begun(changes: Changes, batch_trials: int = TRIALS) -> tuple[TrialBatchStrategy, list[ServerRound], list[Message]]:
    """Return a strategy after its first request to the clients, the rounds that it released, and the honest replies."""
    plan = small_plan(**changes)
    released: list[ServerRound] = []
    federation = load_federation(plan.federation)
    grid = local_grid(fl_audit.clients.app.build_app(), plan.federation.clients, 60.0)
    batches = remaining_batches(TRIALS, batch_trials, ())
    size = federation.model.layout.size
    roster = discover_clients(ReplyTimeoutGrid(grid, 60.0), federation)

    def note(batch: TrialBatch, server_round: ServerRound) -> None:
        released.append(server_round)

    strategy = TrialBatchStrategy(plan.federation, roster, SeededChallenger(0), batches, size, 60.0, note)
    arrays = ArrayRecord({batch.name: Array(np.zeros((batch_trials, size), dtype=np.float32)) for batch in batches})
    return strategy, released, list(grid.send_and_receive(strategy.configure_train(1, arrays, ConfigRecord(), grid)))


def changed(key: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[list[Message]], list[Message]]:
    """Return a function that changes an array of the last reply."""

    def spoil(replies: list[Message]) -> list[Message]:
        arrays = replies[-1].content.array_records[MessageRecordName.ARRAYS]
        arrays[key] = Array(change(arrays[key].numpy().copy()))
        return replies

    return spoil


def without(key: str) -> Callable[[list[Message]], list[Message]]:
    """Return a function that removes an array from the last reply."""

    def spoil(replies: list[Message]) -> list[Message]:
        del replies[-1].content.array_records[MessageRecordName.ARRAYS][key]
        return replies

    return spoil


def last_is(value: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that sets the last number of an array."""

    def change(array: np.ndarray) -> np.ndarray:
        array.reshape(-1)[-1] = value
        return array

    return change


FAULTS = {
    "no reply": (lambda replies: replies[:-1], r"no answer .*client\(s\)"),
    "no sum": (without(Key.SUM), "sent no 'sum'"),
    "NaN": (changed(Key.SUM, last_is(np.nan)), "not finite"),
    "infinity": (changed(Key.SUM, last_is(-np.inf)), "not finite"),
    "a trial too few": (changed(Key.SUM, lambda array: array[:-1]), "as float32 of shape"),
    "a parameter too many": (changed(Key.SUM, lambda array: np.pad(array, ((0, 0), (0, 1)))), "as float32 of shape"),
    "another type": (changed(Key.SUM, lambda array: array.astype(np.float64)), "as float64 of shape"),
}
ADAPTIVE_FAULTS = {
    "no bit": (without(Key.WITHIN), "sent no 'within'"),
    "a bit of 2": (changed(Key.WITHIN, last_is(2.0)), "other than 0, 1/2 and 1"),
    "a bit of -1": (changed(Key.WITHIN, last_is(-1.0)), "other than 0, 1/2 and 1"),
    "a bit that is NaN": (changed(Key.WITHIN, last_is(np.nan)), "not finite"),
    "bits of a trial too few": (changed(Key.WITHIN, lambda array: array[:-1]), "as float64 of shape"),
}


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("name", SPOILED)
def test_a_contribution_that_is_spoiled_is_refused_and_nothing_is_released(name: str) -> None:
    faults = FAULTS | (ADAPTIVE_FAULTS if "adaptive" in name else {})
    for fault, (spoil, expected_message) in faults.items():
        strategy, released, replies = begun(MECHANISMS[name])
        with pytest.raises(FederationError, match=expected_message):
            strategy.aggregate_train(1, spoil(replies))
        assert released == [], fault
        # No trace is left either: the norm of the next round is that of this one.
        (transcript,) = strategy.transcripts.values()
        assert transcript.latest_round is None
        assert len(transcript.models) == 1
        assert transcript.norms is None or (transcript.norms == 0.3).all()


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("name", SPOILED)
def test_whoever_was_asked_and_nobody_else_contributes(name: str) -> None:
    strategy, released, replies = begun(MECHANISMS[name])
    strategy.aggregate_train(1, replies)
    assert len(released) == 1
    mechanism = strategy.federation.mechanism
    challenger = SeededChallenger(0)
    replies_by_client = {strategy.roster.nodes.index(reply.metadata.src_node_id): reply for reply in replies}
    for client, reply in replies_by_client.items():
        rows = len(reply.content.array_records[MessageRecordName.ARRAYS][Key.SUM].numpy())
        if mechanism.is_sampled:
            participation = challenger.client_participation(
                range(TRIALS), 1, strategy.federation.clients, mechanism.sampling_rate
            )
            assert rows == participation[:, client].sum() > 0
        else:
            assert rows == TRIALS
    members = strategy.federation.cohort(1)
    if members is not None:
        assert sorted(replies_by_client) == members.tolist()


def test_a_round_in_which_nobody_takes_part_releases_noise_alone() -> None:
    rarely = MECHANISMS["sampled clients"]["training"] | {"sampling-rate": 1e-6}
    strategy, released, replies = begun(MECHANISMS["sampled clients"] | {"training": rarely})
    assert replies == []
    strategy.aggregate_train(1, replies)
    (server_round,) = released
    mechanism = strategy.federation.mechanism
    draws = SeededChallenger(0).standard_normals(range(TRIALS), 1, server_round.release.shape[1])
    np.testing.assert_allclose(
        server_round.release, mechanism.noise_multiplier * mechanism.global_sensitivity * draws, rtol=1e-6
    )


@pytest.mark.parametrize("numbers", [1, 2047, 2048, 2049, 101_770])
def test_a_bound_of_a_length_is_never_below_it_and_close(numbers: int) -> None:
    """Rows whose squares nearly all round down are included, and numbers whose squares exceed float32."""
    draw = np.random.default_rng(numbers)
    rows = np.concatenate(
        [
            draw.standard_normal((20, numbers)),
            np.ones((1, numbers)) * (1 + 2.0**-12),
            np.linspace(1.0, 1e-3, numbers)[None],
        ]
    ).astype(np.float32)
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    bounds = _lengths_at_most(rows)
    assert (bounds >= lengths).all()
    assert (bounds <= lengths * 1.0004).all()
    tiny = np.full((1, numbers), 1e-30, np.float32)
    huge = np.full((1, numbers), 1e30, np.float32)
    assert _lengths_at_most(tiny) >= np.linalg.norm(tiny.astype(np.float64))
    assert np.isinf(_lengths_at_most(huge)).all()
