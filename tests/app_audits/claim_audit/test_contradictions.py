"""A verdict agrees with the readings beside it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fl_audit.statistics.claim_comparisons import Reading
from fl_audit.verdict.verdict import Verdict, without_contradiction

STRATEGY = """
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg


def wrapped(clients):
    plain = FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
    return DifferentialPrivacyServerSideFixedClipping(
        plain, noise_multiplier={multiplier}, clipping_norm=1.0, num_sampled_clients=clients)
"""


@pytest.mark.parametrize("verdict", list(Verdict))
@pytest.mark.parametrize("reading", list(Reading))
def test_nothing_is_consistent_beside_a_broken_reading(verdict: Verdict, reading: Reading) -> None:
    shown = without_contradiction(verdict, [Reading.NO_CONTRADICTION, reading])
    contradicts = verdict is Verdict.CONSISTENT and reading is Reading.BROKEN
    assert shown is (Verdict.INCONCLUSIVE if contradicts else verdict)


@pytest.mark.long
@pytest.mark.parametrize(("multiplier", "verdict", "status"), [(1.0, "inconclusive", 0), (0.1, "violated", 4)])
def test_a_quick_audit_with_too_little_noise_is_not_consistent(
    multiplier: float, verdict: str, status: int, tmp_path: Path
) -> None:
    """Epsilon 1 at delta .001 allows mu .39; multiplier 1 has mu 1, of which quick trials see too little."""
    (tmp_path / "quick_strategy.py").write_text(STRATEGY.format(multiplier=multiplier))
    claim = ["--claim-epsilon", "1", "--claim-delta", "1e-3", "--adjacency", "add-remove-client"]
    words = ["strategy", "quick_strategy:wrapped", *claim, "--quick", "--include", "removed"]
    command = [sys.executable, "-m", "fl_audit.cli.main", *words, "--fail-on-violation", "--json"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert json.loads(result.stdout)["verdict"] == verdict, result.stderr
    assert result.returncode == status
