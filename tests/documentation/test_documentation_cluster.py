"""The blocks of the cluster page have no mistake that can be seen without a cluster."""

import subprocess
from pathlib import Path

import pytest
import yaml

PLACE = Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "cluster"
INSTRUCTIONS = {"FROM", "COPY", "RUN", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}


def test_the_batch_script_is_good_shell() -> None:
    subprocess.run(["bash", "-n", PLACE / "slurm.sh"], check=True)


def test_every_container_of_the_manifest_has_the_token_and_only_the_head_has_the_data() -> None:
    claim, cluster = yaml.safe_load_all((PLACE / "raycluster.yaml").read_text())
    assert cluster["apiVersion"] == "ray.io/v1"
    assert cluster["kind"] == "RayCluster"
    spec = cluster["spec"]
    pods = [group["template"]["spec"] for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"])]
    for pod in pods:
        (container,) = pod["containers"]
        variables = {variable["name"]: variable for variable in container["env"]}
        assert variables["RAY_AUTH_MODE"]["value"] == "token"
        assert variables["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": "fl-audit-token", "key": "token"}
    (volume,) = pods[0]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert not any("volumes" in pod for pod in pods[1:])


def test_the_image_is_made_of_known_instructions() -> None:
    joined = (PLACE / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    assert {line.split()[0] for line in lines} == INSTRUCTIONS
    assert lines[0] == "FROM python:3.11-slim"
    assert any("*.whl" in line for line in lines)


@pytest.mark.parametrize("name", ["slurm.sh", "raycluster.yaml", "Dockerfile"])
def test_the_page_links_to_it(name: str) -> None:
    assert f"(cluster/{name})" in PLACE.with_suffix(".md").read_text()
