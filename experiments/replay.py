"""Replay: the insider's beliefs from the stored releases alone, which proves that it has no side channel."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from experiments.run_directory import read_public
from fl_audit.adversaries.identifiability import weigh_models, weigh_release
from fl_audit.errors import InputError
from fl_audit.game import Game, View, load_game
from fl_audit.learning.optimizers import OptimizerState, step


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
    torch.set_num_threads(public.threads)
    game = load_game(public)
    files = sorted((directory / "public").glob("releases-*.safetensors"))
    if not files:
        raise InputError(
            f"{directory / 'public'} holds no releases: accepted is a run with keep-releases of 1 and more"
        )
    parts = [_replay_batch(game, load_file(path)) for path in files]
    return Replay(np.concatenate([part.worlds for part in parts]), np.concatenate([part.log_odds for part in parts]))


def _replay_batch(game: Game, stored: dict[str, Tensor]) -> Replay:
    law, batch_worlds = game.public.law, int(stored["batch_worlds"])
    models, optimizer, increments = [stored["initial"]], OptimizerState(), []
    for number in range(game.public.rounds):
        match game.public.view:
            case View.UPDATE:
                release = stored["releases"][number]
                evidence = weigh_release(game, models[-1], release, batch_worlds)
                moved, optimizer = step(law.optimizer, models[-1], release / law.denominator, optimizer)
            case View.MODEL:
                moved = stored["models"][number]
                evidence = weigh_models(game, [*models, moved], batch_worlds)
        models = [*models[-1:], moved]
        increments.append(evidence.log_odds)
    return Replay(stored["worlds"].numpy(), np.stack(increments, axis=1).cumsum(axis=1))
