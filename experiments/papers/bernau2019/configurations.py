"""Configurations of the runs behind the figures of Bernau et al. 2019."""

import zlib
from functools import cache
from itertools import count
from math import ceil, sqrt
from pathlib import Path
from typing import Any, assert_never

from fl_audit.audits.membership.attack_names import USUAL, Attack
from fl_audit.audits.membership.shadow_sums import FEWEST, fewest_on_a_side
from fl_audit.experiments.papers.bernau2019 import settings
from fl_audit.experiments.papers.bernau2019.published import Hyperparameters
from fl_audit.experiments.papers.papers import ComputeExtent
from fl_audit.strategies.secret_draws import SeededChallenger

ATTACKS = tuple(str(attack) for attack in (*USUAL, Attack.WHITE_BOX))
CLIENTS = 2
"""Number of clients, which changes nothing: in every round all records of the sample take part, whoever holds them."""
PATIENCE = 8  # epochs without a smaller loss that end the training of a trial; the paper does not state its own
EPOCHS_A_ROUND = 2
"""Epochs between two evaluations of the loss where no noise is added; Adam's moments start anew there."""


def _seed_of(part: settings.SettingRun, size: settings.DataSetRunExtent) -> int:
    """Return the seed of a run, derived from its name.

    A seed is skipped if it makes some target a member in too few or too many trials for shadow models.
    """
    return _first_seed(part.name, size.records, size.trials)


@cache  # the digest of the paper's settings asks for it in every comparison, and it takes draws for all records
def _first_seed(name: str, records: int, trials: int) -> int:
    for more in count():
        seed = zlib.crc32(f"{name}{f'-seed{more}' if more else ''}".encode())
        if fewest_on_a_side(SeededChallenger(seed, records).membership(range(trials))).min() >= FEWEST:
            break
    return seed


def all_values(extent: ComputeExtent) -> dict[str, Any]:
    """Return the configuration of the first run of each setting, keyed by the run's name.

    The settings include those of the data sets that substitute for the paper's.
    """
    data = [one for groups in settings.CANDIDATES.values() for forms in groups for one in forms]
    parts = [settings.SettingRun(setting) for one in data for setting in settings.settings_of(one, extent)]
    return {part.name: values_of(part, extent, None) for part in parts}


def values_of(part: settings.SettingRun, extent: ComputeExtent, data_dir: Path | None) -> dict[str, dict[str, Any]]:
    """Return the configuration of a run as nested dictionaries, by section and setting, that are not validated yet."""
    setting = part.setting
    data, size = setting.data, setting.data.size(extent)
    assert size is not None, setting
    seed = _seed_of(part, size)
    is_central = setting.method is settings.PrivacyMethod.CENTRAL
    training, evaluate_every = _with_noise(data.recipe, size) if is_central else _without_noise(data.recipe, size)
    return {
        "data": {
            "name": data.name,
            "records": size.records,
            "test-records": size.test_records,
            "population-records": size.population_records,
            "clients": CLIENTS if is_central else 1,
            **data.options,
            **({} if data_dir is None else {"data-dir": str(data_dir.absolute())}),
        },
        "model": {"name": data.model, "seed": seed},
        "training": training,
        "privacy": _privacy(setting, size),
        "audit": {
            "kind": "membership",
            "trials": size.trials,
            "targets": size.records,
            "attacks": list(ATTACKS),
            "insider": is_central and data.study in settings.WITH_INSIDER,
            "epsilon-star": False,
            "evaluate-every": evaluate_every,
        },
        "run": {
            "seed": seed,
            "trials-per-batch": size.trials,
            "keep-releases": 0,
            "keep-final-models": True,
            "actors": 1,  # runs are played side by side instead
        },
    }


def _with_noise(recipe: Hyperparameters, size: settings.DataSetRunExtent) -> tuple[dict[str, Any], int]:
    """Return the training settings of central DP, and the number of rounds in an epoch; each round is one step.

    The paper samples batches of b from n members. Here each of 2n targets is a member with probability 1/2. To get the
    same sampling rate, the batch is 2b, but at most a quarter of the records.
    """
    batch = min(2 * recipe.central_batch, size.records // 4)
    training = {
        "optimizer": "adam",
        "learning-rate": recipe.central_rate,
        "expected-batch": batch,
        "epochs": size.central_epochs,
        "early-stopping": PATIENCE,
    }
    return training, max(1, round(size.records / batch))


def _without_noise(recipe: Hyperparameters, size: settings.DataSetRunExtent) -> tuple[dict[str, Any], int]:
    """Return the training settings without central DP, and 1, the number of rounds per evaluation."""
    epochs = min(EPOCHS_A_ROUND, size.epochs)
    training = {
        "strategy": "dp-fedavg",
        "rounds": ceil(size.epochs / epochs),
        "local-epochs": epochs,
        "local-batch": min(recipe.batch, size.records // 8),
        "local-optimizer": "adam",
        "local-learning-rate": recipe.rate,
        "early-stopping": ceil(PATIENCE / epochs),
    }
    return training, 1


def _privacy(setting: settings.MembershipSetting, size: settings.DataSetRunExtent) -> dict[str, Any]:
    data = setting.data
    common = {"delta": 2 / size.records, "adjacency": "add-remove-record"}
    match setting.method:
        case settings.PrivacyMethod.ORIGINAL:
            return common | {"private": False}
        case settings.PrivacyMethod.CENTRAL:
            return common | {
                "noise-multiplier": setting.level,
                "clipping-norm": data.recipe.clipping_norm,
                "accountant": "rdp-classic",
            }
        case settings.PrivacyMethod.LOCAL:
            local = {"private": False, "local-randomizer": str(data.local_randomizer), "record-epsilon": setting.level}
            if data.local_randomizer is settings.Randomizer.PIXELS:
                # b = 1 keeps every pixel; m is the square root of the number of pixels (section 4.4).
                local |= {"pixelation-block": 1, "pixelation-pixels": round(sqrt(data.values))}
            return common | local
        case _:
            assert_never(setting.method)
