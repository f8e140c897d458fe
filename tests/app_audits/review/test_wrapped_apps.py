"""Apps with Flower's wrapper that are wrong in one way: half of the noise, or a generator with a seed."""

from pathlib import Path

import pytest

from fl_audit.app_audits.launchers.review_launcher import reviewed
from fl_audit.app_audits.review.reviewed_app import read_reviewed_app
from fl_audit.app_audits.trial_options import ReviewOptions
from tests.app_audits.review.apps import with_strategy, write_app

pytestmark = pytest.mark.usefixtures("small_working_directory", "searched_as_before")
_WRAPPER = "DifferentialPrivacyServerSideFixedClipping"
_HALF = f"""
class Half({_WRAPPER}):
    def _add_noise_to_aggregated_arrays(self, arrays):
        named, self.noise_multiplier = self.noise_multiplier, self.noise_multiplier / 2
        try:
            return super()._add_noise_to_aggregated_arrays(arrays)
        finally:
            self.noise_multiplier = named


@app.main()
"""
_CALL = "{wrapper}(FedAvg(fraction_evaluate=0.0), noise_multiplier=1.0, clipping_norm=1.0, num_sampled_clients=4)"


def _half_of_the_noise(directory: Path, name: str) -> Path:
    server = with_strategy(_CALL.format(wrapper="Half")).replace("@app.main()\n", _HALF)
    return write_app(directory / "app", name, server)


def test_an_app_without_a_number_of_clients_has_as_many_as_its_wrapper_is_made_for(tmp_path: Path) -> None:
    app = read_reviewed_app(_half_of_the_noise(tmp_path, "counted"), ReviewOptions(), is_inspected=False)
    assert (app.factory.nodes, app.count_fault, app.app_claim.clients) == (4, "", 4)


@pytest.mark.long
def test_half_of_the_named_noise_is_found(tmp_path: Path) -> None:
    """Of ten clients, Flower's usual number, the mean would hide it."""
    answer = reviewed(_half_of_the_noise(tmp_path, "halved"), ReviewOptions(is_quick=True, seconds=90.0))
    assert answer["verdict"] == "violated"
    assert answer["nodes"] == 4
    broken = [finding for finding in answer["model"]["findings"] if finding["broken"]]
    assert broken[0]["if_gaussian"]["mu"] / broken[0]["if_gaussian"]["claimed_mu"] == pytest.approx(2.0, abs=0.5)


@pytest.mark.long
@pytest.mark.parametrize("is_seeded", [True, False])
def test_a_generator_that_the_server_seeds_is_found(tmp_path: Path, is_seeded: bool) -> None:
    """Flower's wrappers draw noise from numpy's global generator."""
    server = with_strategy(_CALL.format(wrapper=_WRAPPER))
    if is_seeded:
        seed = "    import numpy\n    numpy.random.seed(42)\n"
        start = next(line for line in server.splitlines(keepends=True) if ".start(" in line)
        server = server.replace(start, seed + start)
    app = write_app(tmp_path / "app", f"server_seeded_{is_seeded}", server)
    answer = reviewed(app, ReviewOptions(is_quick=True, seconds=120.0))
    assert ("numpy.random" in answer["repeated_noise"]) is is_seeded
    assert (answer["verdict"] == "violated") is is_seeded
