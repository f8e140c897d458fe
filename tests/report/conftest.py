"""Synthetic runs whose law is known exactly: the log-odds are drawn, not trained."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit

from fl_audit.report import LawFacts, RunContents

MakeContents = Callable[..., RunContents]


@pytest.fixture
def make_contents() -> MakeContents:
    return synthetic_contents


def synthetic_contents(
    worlds: int = 300,
    rounds: int = 30,
    mu: float = 0.55,
    exact: bool = True,
    with_epsilon_star: bool = True,
    with_membership: bool = True,
    with_clients: bool = True,
    prior: float = 0.5,
    verdict: str = "consistent",
    model: str = "adult-mlp",
    seed: int = 3,
) -> RunContents:
    """Return the contents of a made-up run of `rounds` rounds under local (exact) or global scaling."""
    generator = np.random.default_rng(seed)
    clipping_norm, noise_multiplier = 3.0, rounds**0.5 / mu
    bits = generator.integers(0, 2, worlds)
    sensitivity = clipping_norm * (0.3 + 1.4 * generator.random((worlds, rounds)))
    sigma = noise_multiplier * (sensitivity if exact else np.full_like(sensitivity, 2 * clipping_norm))
    signal = sensitivity / sigma
    sign = np.where(bits == 1, 1.0, -1.0)
    log_odds = np.cumsum(sign[:, None] * signal**2 / 2 + signal * generator.standard_normal(signal.shape), axis=1)
    belief = expit(sign * (log_odds[:, -1] + logit(prior)))
    accuracy = 0.5 + 0.3 * generator.random((worlds, rounds + 1))
    epsilon_star = generator.random((worlds, rounds + 1)) if with_epsilon_star else np.full_like(accuracy, np.nan)
    table = pd.DataFrame(
        {
            "world": np.arange(worlds),
            "bit": bits,
            "log_odds": log_odds[:, -1],
            "belief": belief,
            "won": belief > 0.5,
            "test_accuracy": accuracy[:, -1],
            "epsilon_star": epsilon_star[:, -1],
        }
    )
    law = LawFacts(
        mu=mu,
        exact_final_law=exact,
        scaling="local" if exact else "global",
        relation="replace-record",
        clipping_norm=clipping_norm,
        global_sensitivity=2 * clipping_norm,
        rounds=rounds,
        prior=prior,
        is_private_release=not exact,
        optimizer="sgd",
        data_name="adult",
        records=1000,
        clients=10,
        model=model,
        view="update",
        partition="iid",
    )
    return RunContents(
        summary=synthetic_summary(table, noise_multiplier, rounds, with_epsilon_star, with_membership, verdict)
        | {"client_epsilon_star": synthetic_clients(worlds) if with_clients else None},
        worlds=table,
        rounds=long_table(1, sigma=sigma, local_sensitivity=sensitivity, log_odds=log_odds),
        releases=long_table(0, test_accuracy=accuracy, epsilon_star=epsilon_star),
        configuration={"data": {"name": "adult", "records": 1000}, "run": {"keep-releases": 4}},
        law=law,
    )


def synthetic_clients(worlds: int) -> list[dict[str, Any]]:
    """Five clients; client 3 has too few records, client 4 is apart from the population in some worlds."""
    found: list[dict[str, Any]] = [
        {"client": c, "worlds": worlds, "low": 0.11 * c, "median": 0.21 * c, "high": 0.31 * c, "max": 0.41 * c}
        for c in range(5)
    ]
    found[3] |= {"worlds": 0, "low": None, "median": None, "high": None, "max": None}
    found[4] |= {"high": None, "max": None}
    return found


def long_table(first: int, **columns: np.ndarray) -> pd.DataFrame:
    worlds, rounds = next(iter(columns.values())).shape
    keys = {"world": np.repeat(np.arange(worlds), rounds), "round": np.tile(np.arange(first, first + rounds), worlds)}
    return pd.DataFrame(keys | {name: values.ravel() for name, values in columns.items()})


def synthetic_summary(
    worlds: pd.DataFrame,
    noise_multiplier: float,
    rounds: int,
    with_epsilon_star: bool,
    with_membership: bool,
    verdict: str,
) -> dict[str, Any]:
    count, wins = len(worlds), int(worlds["won"].sum())
    advantage = 2 * wins / count - 1
    return {
        "schema": 1,
        "guarantee": {
            "epsilon": 2.19722,
            "delta": 0.00123,
            "accountant": "rdp-classic",
            "noise_multiplier": noise_multiplier,
            "rounds": rounds,
            "belief_bound": 0.9,
            "advantage_bound": 0.22931,
            "advantage_bound_exact": 0.21671,
        },
        "insider": {
            "worlds": count,
            "wins": wins,
            "advantage": advantage,
            "advantage_low": advantage - 0.1234,
            "advantage_high": advantage + 0.1345,
            "max_belief": float(worlds["belief"].max()),
            "belief_violations": int((worlds["belief"] > 0.9).sum()),
        },
        "empirical_epsilon": {
            "from_sensitivity": 2.1968,
            "from_belief": 2.7182,
            "from_advantage": 2.0519,
            "lower_bound": 1.1234 if count > 3 else None,
            "confidence": 0.95,
            "method": "gaussian-shift",
            "assumption": "The log-odds are normal with the same spread.",
            "limit_of_detection": 3.4567 if count > 3 else None,
            "lower_bound_at_violation_level": 0.8765 if count > 3 else None,
            "violation_level": 0.00101,
        },
        "innovations": {
            "holds": True,
            "groups": [
                {
                    "bit": 1,
                    "count": 4511,
                    "mean": 0.0123,
                    "variance": 0.9987,
                    "serial_correlation": -0.0045,
                    "ks_p": 0.432,
                },
                {
                    "bit": 0,
                    "count": 4489,
                    "mean": -0.0023,
                    "variance": 1.0087,
                    "serial_correlation": 0.0145,
                    "ks_p": 0.654,
                },
            ],
        },
        "epsilon_star": {"mean": 0.32114, "max": 0.65438, "delta": 0.00234} if with_epsilon_star else None,
        "membership": synthetic_membership(count) if with_membership else None,
        "utility": {"test_accuracy": 0.84312},
        "verdict": verdict,
        "scope": "'consistent' covers this pair of neighbours and this seed only.",
        "timing": {"setup_seconds": 4.213, "training_seconds": 18.94, "worlds_per_second": 15.87, "engine": "ray"},
    }


def synthetic_membership(worlds: int) -> dict[str, Any]:
    wins = (8 * worlds) // 15
    advantage = 2 * wins / worlds - 1
    return {
        "advantage": 0.01789,
        "low": 0.01456,
        "high": 0.02123,
        "confidence": 0.95,
        "yeom_bound": 7.99995,
        "tradeoff_bound": 0.80024,
        "bound": 0.21777,
        "bound_scope": "The bounds hold on average over data sets.",
        "record": {
            "wins": wins,
            "advantage": advantage,
            "low": advantage - 0.1212,
            "high": advantage + 0.1313,
            "bound": 0.21671,
        },
    }
