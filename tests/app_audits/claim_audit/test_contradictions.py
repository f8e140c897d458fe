"""A verdict agrees with the readings beside it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fl_audit.verdict.verdict import Verdict, with_doubt

STRATEGY = """
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg


def wrapped(clients):
    plain = FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
    return DifferentialPrivacyServerSideFixedClipping(
        plain, noise_multiplier={multiplier}, clipping_norm=1.0, num_sampled_clients=clients)
"""


@pytest.mark.parametrize("verdict", list(Verdict))
@pytest.mark.parametrize("is_doubted", [True, False])
def test_a_doubt_makes_a_consistent_verdict_inconclusive_and_changes_no_other(
    verdict: Verdict, is_doubted: bool
) -> None:
    is_changed = is_doubted and verdict is Verdict.CONSISTENT
    assert with_doubt(verdict, is_doubted) is (Verdict.INCONCLUSIVE if is_changed else verdict)


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
