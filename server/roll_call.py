"""The roll call: which node holds which partition, before the first round."""

import time
from itertools import islice

from flwr.app import ConfigRecord, Message, RecordDict

from fl_audit.game.game import Game
from fl_audit.protocol import Key, Query, Record
from server.watched_grid import WatchedGrid
from strategies.contributors import Roster
from strategies.errors import FederationError
from strategies.replies import reason_line

_REGISTRATION_SECONDS = 60.0
_START_SECONDS = 120.0
"""How long the first call of a client may take: its process starts and imports first."""
_MOST_ASKED = 256
"""Most clients that get ready before the first round; on a larger cluster the other processes start in it."""


def call_the_roll(grid: WatchedGrid, game: Game) -> Roster:
    """Wait until all clients have registered, learn which partition each holds, and let them get ready.

    Where the engine does not know who holds what, each is asked; where it does, no more than are needed first.

    Parameters
    ----------
    grid
        Sends messages to the clients and receives their replies.
    game
        Says how many clients there are.

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
    known = grid.nodes_in_order()
    if known is None:
        answers = _ask(grid, game, nodes)
        known = [answers[partition] for partition in sorted(answers)]
        if sorted(answers) != list(range(expected)):
            raise FederationError(
                f"clients hold partitions {sorted(answers)}, the configuration names 0 to {expected - 1}"
            )
    else:
        _ask(grid, game, [known[client] for client in _first_needed(game)])
    colluders = {insider: game.colluders(insider) for insider in game.insiders}
    return Roster(known, game.holders, colluders, game.shards, game.units)


def _first_needed(game: Game) -> list[int]:
    """Return clients whose processes should be ready before the first round: attackers, holders, and some others."""
    cohort = game.public.cohort(1)
    apart = {*game.insiders, *islice(game.holders, _MOST_ASKED // 2)}
    others = range(game.public.nodes) if cohort is None else cohort.tolist()
    return [*apart, *islice((one for one in others if one not in apart), _MOST_ASKED - len(apart))]


def _ask(grid: WatchedGrid, game: Game, nodes: list[int]) -> dict[int, int]:
    """Ask nodes which partition they hold, and return them by partition."""
    config = RecordDict({Record.CONFIG: ConfigRecord({Key.GAME: game.public.to_json()})})
    questions = [Message(config, node, f"query.{Query.IDENTIFY}") for node in nodes]
    found = {}
    for reply in grid.patient(_START_SECONDS).send_and_receive(questions):
        if reply.has_error():
            raise FederationError(f"a client could not start: {reason_line(reply.error.reason)}")
        answer = reply.content.config_records.get(Record.CONFIG)
        if answer is None or Key.PARTITION not in answer:
            raise FederationError("a client did not say which partition it holds")
        found[int(str(answer[Key.PARTITION]))] = reply.metadata.src_node_id
    return found
