"""Tests of the message of a federation to clients: it replaces all files, and has no other client's records."""

import pickle
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from fl_audit.federation import loaded_federation as federations
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.serialization import sent_federation, sent_shard
from fl_audit.sent_modules import make_importable, sent_modules
from tests.builders.refusals import assert_refused
from tests.builders.runs import small_plan


def brought(federation: LoadedFederation, client: int, knows_all: bool, knows_differing: bool) -> LoadedFederation:
    """Return the federation that a process builds from what it was sent."""
    for payload in (sent_federation(federation, knows_all, knows_differing), sent_shard(federation, client)):
        pickle.loads(pickle.dumps(payload))()
    return load_federation(federation.public)


@pytest.fixture(autouse=True)
def forget() -> Any:
    yield
    federations._BROUGHT.clear()
    load_federation.cache_clear()


@pytest.mark.parametrize(
    "changes",
    [
        {"privacy": {"adjacency": "replace-record"}},
        {"privacy": {"adjacency": "add-remove-client", "sensitivity": "global"}, "training": {"strategy": "dp-fedavg"}},
        {
            "privacy": {"sensitivity": "global"},
            "audit": {"kind": "membership", "targets": 9, "epsilon-star": False, "attacks": ["loss"]},
        },
    ],
)
def test_a_client_has_its_own_shard_and_nobody_elses(changes: dict[str, Any]) -> None:
    federation = load_federation(small_plan(data={"clients": 4}, **changes).federation)
    for client in range(4):
        federations._BROUGHT.clear()
        load_federation.cache_clear()
        client_federation = brought(federation, client, knows_all=False, knows_differing=client == federation.victim)
        assert client_federation is not federation
        for own_shard, really in (
            (client_federation.shard(client), federation.shard(client)),
            (client_federation.shard_without_targets(client), federation.shard_without_targets(client)),
        ):
            torch.testing.assert_close(own_shard.features, really.features, rtol=0, atol=0)
            assert own_shard.labels.equal(really.labels)
        assert client_federation.targets_of(client) == federation.targets_of(client)
        assert (client_federation.units, client_federation.insider, client_federation.victim) == (
            federation.units,
            federation.insider,
            federation.victim,
        )
        with pytest.raises(IndexError):
            client_federation.shard((client + 1) % 4)
        if client == federation.victim and federation.public.targets == 1:
            assert client_federation.differing.features.equal(federation.differing.features)
            assert (client_federation.replacement is None) == (federation.replacement is None)
        else:
            assert client_federation.replacement is None


def test_what_is_sent_holds_no_record_of_another() -> None:
    federation = load_federation(small_plan(data={"clients": 4}, privacy={"adjacency": "replace-record"}).federation)
    records = {client: [row.tobytes() for row in federation.shard(client).features.numpy()] for client in range(4)}
    payload = pickle.dumps([sent_federation(federation, False, False), sent_shard(federation, 0)])
    assert all(row in payload for row in records[0])
    assert not any(row in payload for client in (1, 2, 3) for row in records[client] if row not in records[0])
    assert all(
        row in pickle.dumps(sent_federation(federation, True, True)) for client in range(4) for row in records[client]
    )


def test_an_insider_has_all_of_both_data_sets() -> None:
    federation = load_federation(small_plan(data={"clients": 4}, privacy={"adjacency": "replace-record"}).federation)
    insider_federation = brought(federation, federation.insider, knows_all=True, knows_differing=True)
    assert insider_federation.common.features.equal(federation.common.features)
    assert insider_federation.replacement is not None
    assert federation.replacement is not None
    assert insider_federation.replacement.features.equal(federation.replacement.features)
    with pytest.raises(AssertionError, match="does not have"):
        _ = insider_federation.test


def test_modules_of_the_user_are_imported_without_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sent_parts").mkdir()
    (tmp_path / "sent_parts" / "__init__.py").write_text("")
    (tmp_path / "sent_parts" / "deep.py").write_text("NUMBER = 7\n")
    (tmp_path / "sent_helper.py").write_text("from sent_parts.deep import NUMBER\n")
    (tmp_path / "sent_net.py").write_text(
        "import sent_helper\n\ndef make():\n    from sent_later import FIVE\n    return sent_helper.NUMBER + FIVE\n"
    )
    (tmp_path / "sent_later.py").write_text("FIVE = 5\n")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("sent_net")
    modules = sent_modules(["sent_net:make", "logistic", "hub:x", "numpy:array", ":"])
    sent = pickle.loads(pickle.dumps(partial(make_importable, modules)))
    assert {"sent_net", "sent_helper", "sent_later", "sent_parts", "sent_parts.deep"} == set(modules)
    for name in list(sys.modules):
        if name.startswith("sent_"):
            monkeypatch.delitem(sys.modules, name)
    for file in tmp_path.rglob("*.py"):
        file.unlink()
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    sys.path.remove(str(tmp_path))
    sent()
    sent()
    import inspect

    import sent_net  # type: ignore[import-not-found]

    assert sent_net.make() == 12
    assert "sent_later" in inspect.getsource(sent_net.make)


def test_too_much_beside_a_module_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sent_small.py").write_text("")
    (tmp_path / "sent_large.py").write_text("#" * (2**24 + 1))
    monkeypatch.syspath_prepend(tmp_path)
    assert_refused(r"sent_small .*16,777,217 characters", sent_modules, ["sent_small:x"])
    assert sent_modules(["fl_audit.federation:x"]) == {}
