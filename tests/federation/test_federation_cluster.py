"""A run on a Ray cluster of two nodes: both take clients, and the worlds are those of this process."""

import os
import signal
import time
from pathlib import Path

import pandas as pd
import pytest
from audits import MakePlan
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from clients.app import build_app
from experiments.runs.engines import Engine
from experiments.runs.run import Parties, run_audit
from fl_audit.protocol import Key, Record
from strategies.errors import FederationError

FROZEN_CLIENT, FROZEN_ROUND = 1, 2
TIME_LIMIT = 5.0


def noting_app(directory: Path) -> ClientApp:
    """Return an app whose clients note on which node they run; one of them freezes in a round of the second batch."""

    def note(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        import ray

        (directory / f"node-{ray.get_runtime_context().get_node_id()}").touch()
        config, client = message.content.config_records[Record.CONFIG], context.node_config["partition-id"]
        if (client, config[Key.ROUND]) == (FROZEN_CLIENT, FROZEN_ROUND):
            if (directory / "first-batch").exists():
                (directory / "frozen").touch()
                os.kill(os.getpid(), signal.SIGSTOP)
            (directory / "first-batch").touch()
        return call_next(message, context)

    return build_app(mods=[note])


@pytest.mark.ray
def test_two_nodes_share_the_clients_and_a_frozen_one_ends_the_run(small_plan: MakePlan, tmp_path: Path) -> None:
    """A client that neither answers nor dies ends the run, also where its process is not ours to end."""
    from ray.cluster_utils import Cluster

    notes = tmp_path / "notes"
    notes.mkdir()
    run = {"client-time-limit": TIME_LIMIT, "worlds-per-batch": 3, "batches-in-flight": 1}
    plan = small_plan(data={"clients": 4}, run=run)
    parties = Parties(client_app=noting_app(notes))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        with pytest.raises(FederationError, match="no answer in time"):
            run_audit(plan, tmp_path / "run", Engine.RAY, cluster.address, parties=parties, with_report=False)
        assert time.time() - (notes / "frozen").stat().st_mtime < 10.0 + 15.0
    finally:
        cluster.shutdown()
    assert len(list(notes.glob("node-*"))) == 2
    first = tmp_path / "run" / "challenger" / "batches" / "batch-00000" / "worlds.parquet"
    written = first.stat().st_mtime_ns
    found = run_audit(plan, tmp_path / "run", Engine.LOCAL, resume=True, with_report=False)
    assert first.stat().st_mtime_ns == written
    alone = run_audit(plan, tmp_path / "alone", Engine.LOCAL, with_report=False)
    for label in ("worlds", "rounds", "releases"):
        pd.testing.assert_frame_equal(getattr(found, label), getattr(alone, label), check_exact=True)
