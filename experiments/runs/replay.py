"""Replay: the insider's beliefs from the stored releases alone, which proves that it has no side channel."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from experiments.runs.run_directory import read_public
from fl_audit.adversaries.identifiability import weigh_models, weigh_release
from fl_audit.errors import InputError
from fl_audit.game import Game, View, load_game
from fl_audit.learning.optimizers import OptimizerState, recover_gradient, step


@dataclass(frozen=True)
class Replay:
    """Log-odds recomputed from public files.

    Parameters
    ----------
    worlds
        The kept worlds.
    log_odds
        Cumulative log-odds after each round, float64 (worlds, rounds).
    """

    worlds: NDArray[np.int64]
    log_odds: NDArray[np.float64]


def replay(directory: Path) -> Replay:
    """Recompute the insider's log-odds of all kept worlds from `public/` alone.

    Parameters
    ----------
    directory
        A run directory; `challenger/` may be gone.

    Raises
    ------
    InputError
        If the directory holds no run, or kept no releases.
    """
    public, _ = read_public(directory)
    if not public.with_insider:
        raise InputError(f"{directory} holds a run without the insider: accepted is one with [audit] insider = true")
    torch.set_num_threads(public.threads)
    game = load_game(public)
    files = sorted((directory / "public").glob("releases-*.safetensors"))
    if not files:
        raise InputError(
            f"{directory / 'public'} holds no releases: accepted is a run with keep-releases of 1 and more"
        )
    parts = [_replay_batch(game, read_tensors(path)) for path in files]
    return Replay(np.concatenate([part.worlds for part in parts]), np.concatenate([part.log_odds for part in parts]))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read what a run kept of a batch.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    try:
        stored: dict[str, Tensor] = load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    return stored


def _replay_batch(game: Game, stored: dict[str, Tensor]) -> Replay:
    batch_worlds = int(stored["batch_worlds"])
    increments = []
    for models, release in stored_rounds(game, stored):
        match game.public.view:
            case View.UPDATE:
                evidence = weigh_release(game, models[-2], release, batch_worlds)
            case View.MODEL:
                evidence = weigh_models(game, models, batch_worlds)
        increments.append(evidence.log_odds)
    return Replay(stored["worlds"].numpy(), np.stack(increments, axis=1).cumsum(axis=1))


def stored_rounds(game: Game, stored: dict[str, Tensor]) -> Iterator[tuple[list[Tensor], Tensor]]:
    """Walk through the stored rounds of a batch.

    Parameters
    ----------
    game
        The game.
    stored
        What a run kept: `initial`, and `releases` or `models` by round.

    Yields
    ------
    tuple
        Up to three successive models, theta_i last and theta_{i-1} before it, and r_i. Under the view `update` the
        models follow from the releases by the public optimizer, under `model` the releases from the models.
    """
    law, models, state = game.public.law, [stored["initial"]], OptimizerState()
    for number in range(game.public.rounds):
        match game.public.view:
            case View.UPDATE:
                release = stored["releases"][number]
                moved, state = step(law.optimizer, models[-1], release, state, law.denominator)
                models = [*models[-2:], moved]
            case View.MODEL:
                models = [*models[-2:], stored["models"][number]]
                release = recover_gradient(law.optimizer, models) * law.denominator
        yield models, release
