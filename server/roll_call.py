"""The roll call: which node holds which partition, before the first round."""

import time

from flwr.app import ConfigRecord, Message, RecordDict

from fl_audit.game.game import Game
from fl_audit.protocol import Key, Query, Record
from server.watched_grid import WatchedGrid
from strategies.contributors import Roster
from strategies.errors import FederationError
from strategies.replies import reason_line

_REGISTRATION_SECONDS = 60.0
_START_SECONDS = 120.0  # how long the first call of a client may take: its process starts and imports first


def call_the_roll(grid: WatchedGrid, game: Game) -> Roster:
    """Wait until all clients have registered, and ask each which partition it holds.

    Parameters
    ----------
    grid, game
        Who is asked, and the game that says how many there are.

    Raises
    ------
    FederationError
        If clients are missing, cannot start, or hold other partitions than the configuration names.
    """
    expected, deadline = game.public.nodes, time.monotonic() + _REGISTRATION_SECONDS
    while len(nodes := list(grid.get_node_ids())) < expected and time.monotonic() < deadline:
        if grid.is_interrupted:
            raise FederationError("the run was interrupted while its clients started")
        time.sleep(0.05)
    if len(nodes) != expected:
        raise FederationError(f"{len(nodes)} clients registered, the configuration names {expected}")
    config = RecordDict({Record.CONFIG: ConfigRecord({Key.GAME: game.public.to_json()})})
    questions = [Message(config, node, f"query.{Query.IDENTIFY}") for node in nodes]
    partitions = {}
    for reply in grid.patient(_START_SECONDS).send_and_receive(questions):
        if reply.has_error():
            raise FederationError(f"a client could not start: {reason_line(reply.error.reason)}")
        answer = reply.content.config_records.get(Record.CONFIG)
        if answer is None or Key.PARTITION not in answer:
            raise FederationError("a client did not say which partition it holds")
        partitions[int(str(answer[Key.PARTITION]))] = reply.metadata.src_node_id
    if sorted(partitions) != list(range(expected)):
        raise FederationError(
            f"clients hold partitions {sorted(partitions)}, the configuration names 0 to {expected - 1}"
        )
    targets = tuple(() if game.public.is_canary(client) else game.targets_of(client) for client in range(expected))
    colluders = {insider: game.colluders(insider) for insider in game.insiders}
    return Roster(partitions, targets, colluders, game.shards, game.units)
