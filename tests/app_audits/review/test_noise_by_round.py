"""Noise that ends in a round that no trial plays keeps a review from being consistent."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fl_audit.app_audits.black_box.later_rounds import rounds_without_noise
from tests.app_audits.review.apps import with_strategy, write_app


def differences(scales: list[float], parameters: int) -> list[np.ndarray]:
    draws = np.random.default_rng(5)
    return [scale * draws.normal(size=parameters) for scale in scales]


@pytest.mark.parametrize(
    ("scales", "late"),
    [
        ([2.0] * 12, ()),
        ([2.0] * 5 + [0.0] * 7, tuple(range(6, 13))),
        ([2.0, 2.0, 0.01, 2.0], (3,)),
        ([2.0, 1.0, 0.5], ()),  # an adaptive norm may shrink the noise
        ([0.0, 0.0], ()),  # no noise at all is what the trials see
    ],
)
def test_rounds_without_the_noise_of_the_first_are_named(scales: list[float], late: tuple[int, ...]) -> None:
    assert rounds_without_noise(differences(scales, 9)) == late


def test_chance_names_no_round_of_a_small_model() -> None:
    """At 10^-6 a round: of 3,000 honest rounds with one parameter none is named with probability .997."""
    assert rounds_without_noise(differences([1.0] * 3000, 1)) == ()


ENDING = """
class Ending(DifferentialPrivacyServerSideFixedClipping):
    def aggregate_train(self, server_round, replies):
        named = self.noise_multiplier
        self.noise_multiplier = named if server_round <= {last} else 0.0
        try:
            return super().aggregate_train(server_round, replies)
        finally:
            self.noise_multiplier = named


@app.main()
"""
WRAPPED = "Ending(FedAvg(fraction_evaluate=0.0, min_train_nodes=4, min_available_nodes=4), 2.0, 1.0, 4)"


@pytest.mark.long
@pytest.mark.parametrize(("last", "is_named"), [(3, True), (5, False)])
def test_a_review_names_rounds_without_noise(last: int, is_named: bool, tmp_path: Path) -> None:
    server = with_strategy(WRAPPED).replace("@app.main()\n", ENDING.format(last=last))
    app = write_app(tmp_path / "app", f"noise_until_{last}", server)
    command = [sys.executable, "-m", "fl_audit.cli.main", "review", str(app), "--quick", "--minutes", "1", "--json"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    review = json.loads(result.stdout)
    assert review["verdict"] != "consistent"
    assert any("from round 4 on" in reason for reason in review["not_loaded"]) is is_named, review["not_loaded"]
