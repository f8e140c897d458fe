"""Audits and attacks on texts: each works on token ids and their padding mask, or is refused in one line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from fl_audit.array_types import Floats, Integers
from fl_audit.data.data_setting_enums import Dissimilarity
from fl_audit.data.dissimilarity_ranking import ranked_pairs, ranked_records
from fl_audit.data.multi_array_records import packed
from fl_audit.data.records import Records
from fl_audit.federation.run_plan import RunPlan
from fl_audit.report.report_elements import ReportContents
from fl_audit.runs.config import parse_config
from fl_audit.runs.planned_run_check import check_plan
from fl_audit.runs.planning import plan_run
from fl_audit.verdict.verdict import Verdict
from tests.audits.text_adapters import SERVERS, settings_of, verdict_of, write_texts
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally

Sections = dict[str, dict[str, Any]]

BY_SETS = [dissimilarity for dissimilarity in Dissimilarity if dissimilarity is not Dissimilarity.SSIM]
VOCABULARY = 40


@pytest.fixture(scope="module")
def text_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a table of texts and a public vocabulary."""
    directory = tmp_path_factory.mktemp("texts")
    write_texts(directory, 400)
    return directory


def plan_of(text_directory: Path, changes: Sections) -> RunPlan:
    sections = settings_of(text_directory, 1, 6, **changes)
    sections["model"] = {"name": "mean-embedding"}
    sections["training"]["rounds"] = 2
    del sections["run"]["trials-per-batch"]
    clean_sections = {
        name: {key: value for key, value in section.items() if value is not None} for name, section in sections.items()
    }
    return plan_run(parse_config(clean_sections))


def jaccard(left_sets: Floats, right: Floats) -> Floats:
    """Return the Jaccard distances of sets of tokens."""
    assert set(np.unique(left_sets)) <= {0.0, 1.0}
    return np.asarray(cdist(left_sets > 0, right > 0, "jaccard"))


def records_of(ids: Integers, name: str = "input_ids") -> Records:
    rows, inputs = packed({name: ids, "attention_mask": (ids > 0).astype(np.int64)}, "here")
    return Records(rows, np.arange(len(ids)) % 2, 2, inputs=inputs)


@pytest.fixture
def ids() -> Integers:
    """Ids of texts of unequal lengths."""
    draw = np.random.default_rng(4)
    token_ids = draw.integers(1, VOCABULARY, size=(30, 8))
    token_ids[np.arange(8) >= draw.integers(2, 9, size=(30, 1))] = 0
    return token_ids


@pytest.mark.parametrize("measure", [*BY_SETS, f"{__name__}:jaccard"])
def test_no_choice_by_dissimilarity_depends_on_how_tokens_are_numbered(measure: str, ids: Integers) -> None:
    numbers = np.concatenate([[0], 1 + np.random.default_rng(5).permutation(VOCABULARY - 1)])
    measure = Dissimilarity(measure) if measure in BY_SETS else measure
    original_records = records_of(ids)
    renumbered_records = records_of(numbers[ids])
    assert ranked_records(original_records, measure, 10) == ranked_records(renumbered_records, measure, 10)
    inside = np.arange(20)
    outside = np.arange(20, 30)
    pairs = [
        ranked_pairs(record_set.take(inside), record_set.take(outside), measure, 10)
        for record_set in (original_records, renumbered_records)
    ]
    assert pairs[0] == pairs[1]


def test_the_farthest_text_has_the_most_tokens_of_its_own() -> None:
    ids = np.array([[3, 4, 5, 6], [4, 3, 6, 5], [3, 4, 5, 39], [7, 8, 9, 10], [3, 3, 4, 5]])
    for measure in [*BY_SETS, f"{__name__}:jaccard"]:
        assert ranked_records(records_of(ids), measure, 1) == (3,)


def test_whole_numbers_that_may_be_ids_are_not_compared_as_numbers(ids: Integers) -> None:
    unclear = records_of(ids, name="words")
    named = r"words, attention_mask .*: .*_ids.* neighbour = 'random'"
    assert_refused(named, ranked_records, unclear, Dissimilarity.EUCLIDEAN, 1)
    measure_name = f"{__name__}:of_numbers"
    assert ranked_records(unclear, measure_name, 1) == ranked_records(unclear, measure_name, 1)
    real = packed({"amounts": ids / 7}, "here")
    amounts = Records(real[0], np.arange(30) % 2, 2, inputs=real[1])
    assert len(ranked_records(amounts, Dissimilarity.EUCLIDEAN, 3)) == 3


def of_numbers(left_values: Floats, right: Floats) -> Floats:
    """Return the number of places in which two records differ."""
    return np.asarray((left_values[:, np.newaxis] != right).sum(axis=2))


def test_such_an_archive_is_audited_by_the_remedy_of_its_refusal(ids: Integers, tmp_path: Path) -> None:
    labels = np.arange(30) % 2
    np.savez(tmp_path / "texts.npz", words=ids, labels=labels)
    changes: Sections = {
        "data": {"name": "npz", "path": str(tmp_path / "texts.npz"), "records": 12, "clients": 2, "test-records": 6},
        "model": {"name": f"{__name__}:of_words"},
        "training": {"rounds": 1},
        "privacy": {"epsilon": 2.0, "delta": 1e-3, "adjacency": "add-remove-record"},
        "audit": {"trials": 2, "epsilon-star": False, "membership": False},
    }
    assert_refused("neighbour = 'random'", lambda: plan_run(parse_config(changes)))
    run = plan_run(parse_config(changes | {"audit": changes["audit"] | {"neighbour": "random"}}))
    assert run_locally(run, tmp_path / "run").summary["verdict"] == "inconclusive"


def of_words(classes: int) -> Any:
    """Return a model of an archive that calls its ids words."""
    from torch import Tensor, nn

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(VOCABULARY, 4), nn.Linear(4, classes)

        def forward(self, words: Tensor) -> Tensor:
            return self.head(self.table(words).mean(1))  # type: ignore[no-any-return]

    return Words()


RECORD: dict[str, Any] = {"adjacency": "add-remove-record"}
ATTACKED: dict[str, Any] = {"kind": "membership", "targets": 60, "trials": 24, "epsilon-star": None}
AVERAGED: dict[str, Any] = {
    "strategy": "dp-fedavg",
    "local-learning-rate": 0.1,
    "local-batch": 10,
    "local-epochs": 1,
    "rounds": 2,
}
CLIENT: dict[str, Any] = {"adjacency": "add-remove-client"}
CANARIES: dict[str, Any] = {"kind": "canaries", "trials": 1, "canaries": 4, "epsilon-star": None}
ALL_ATTACKS = ["loss", "shadow", "lira", "rmia", "white-box", "white-box-rounds"]

PLAYED: dict[str, Sections] = {
    "membership of texts, every attack": {
        "data": {"records": 100},
        "privacy": RECORD,
        "audit": ATTACKED | {"attacks": ALL_ATTACKS},
    },
    "an active insider": {"data": {"records": 100}, "privacy": RECORD, "audit": ATTACKED | {"attacks": ["active"]}},
    "membership of clients": {
        "data": {"records": 120, "clients": 60},
        "training": AVERAGED,
        "privacy": CLIENT,
        "audit": ATTACKED,
    },
    "reconstruction": {"privacy": RECORD, "audit": {"kind": "reconstruction", "candidates": 10, "trials": 12}},
    "epsilon star": {"audit": {"epsilon-star": True, "evaluate-every": 1}},
    "epsilon star of owners": {"audit": {"epsilon-star": True, "epsilon-star-losses": "federated"}},
    "canaries": {"privacy": RECORD, "audit": CANARIES},
    "canaries, one trial at a time": {"privacy": RECORD, "audit": CANARIES, "run": {"trials-per-batch": 1}},
    "canaries beside clients that train": {"training": AVERAGED, "privacy": CLIENT, "audit": CANARIES},
    "clients that train privately": {
        "training": AVERAGED | {"strategy": "dp-sgd-clients"},
        "privacy": RECORD | {"noise": "inside-training", "accountant": "pld"},
    },
    "a server that sees every contribution": {"privacy": {"noise": "distributed"}, "audit": {"adversary": "server"}},
    "a client in question": {"training": AVERAGED, "privacy": {"adjacency": "replace-client"}},
    "a secret sample": {"training": {"sampling-rate": 0.2}},
}
"""Audits and attacks that are played on texts."""

REFUSED: dict[str, tuple[Sections, str]] = {
    "a column": (
        {"data": {"records": 100}, "privacy": RECORD, "audit": ATTACKED | {"attacks": ["attribute"]}},
        "texts, .*no columns .*: .*attribute .*tables; leave it out",
    ),
    "a column of candidates": (
        {"privacy": RECORD, "audit": {"kind": "reconstruction", "attribute": "stars", "trials": 12}},
        "texts, .*no columns .*: .*attribute .*tables; leave it out",
    ),
    "pictures": ({"audit": {"reconstruct-samples": 2}}, "reconstruct-samples .*texts .*: leave it"),
    "a crafted record": ({"audit": {"neighbour": "crafted"}}, "none .*crafted: leave it out"),
    "similarity of pictures": (
        {"audit": {"dissimilarity": "ssim"}},
        "ssim .*texts, .*no pictures: .* euclidean, manhattan, hamming, cosine and",
    ),
    "bits": (
        {"privacy": {"local-randomizer": "randomised-response", "record-epsilon": 1.0}},
        "texts, whose bits .*no answers.*: leave it out",
    ),
    "pixels": (
        {"privacy": {"local-randomizer": "pixelation", "record-epsilon": 1.0, "pixelation-pixels": 1}},
        "texts, .*no images: leave it out",
    ),
}
"""Settings that are refused for texts, and the end of the message."""


def play(text_directory: Path, changes: Sections, directory: Path) -> ReportContents:
    return run_locally(plan_of(text_directory, changes), directory / "run")


@pytest.mark.long
@pytest.mark.parametrize("name", PLAYED)
def test_texts_are_audited(name: str, text_directory: Path, tmp_path: Path) -> None:
    contents = play(text_directory, PLAYED[name], tmp_path)
    # So few trials prove nothing, and nothing is wrong.
    assert contents.summary["verdict"] == "inconclusive"
    attacks = PLAYED[name].get("audit", {}).get("attacks", [])
    assert set((contents.summary["attacks"] or {"by_name": {}})["by_name"]) >= set(attacks)


OF_AUTHORS: dict[str, Sections] = {
    "authors": {"privacy": {"adjacency": "add-remove-user"}},
    "authors who are replaced": {"privacy": {"adjacency": "replace-user"}},
    "membership of authors": {
        "data": {"records": 200},
        "privacy": {"adjacency": "add-remove-user"},
        "audit": ATTACKED | {"targets": 20},
    },
}
"""Audits of all texts of an author together."""


@pytest.mark.long
@pytest.mark.parametrize("name", OF_AUTHORS)
def test_texts_of_an_author_are_audited_together(name: str, text_directory: Path, tmp_path: Path) -> None:
    head, *texts = (text_directory / "texts.csv").read_text().splitlines()
    written = [f"{head},author", *(f"{text},author {number % 60}" for number, text in enumerate(texts))]
    (tmp_path / "texts.csv").write_text("\n".join(written) + "\n")
    (tmp_path / "vocabulary.txt").write_text((text_directory / "vocabulary.txt").read_text())
    data = {"records": 100, "user": "author"} | OF_AUTHORS[name].get("data", {})
    contents = play(tmp_path, OF_AUTHORS[name] | {"data": data}, tmp_path)
    assert contents.summary["verdict"] == "inconclusive"


@pytest.mark.parametrize("name", REFUSED)
def test_what_texts_do_not_have_is_refused_in_one_line(name: str, text_directory: Path) -> None:
    changes, expected_message = REFUSED[name]
    assert_refused(expected_message, lambda: check_plan(plan_of(text_directory, changes), with_probe=False))


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [name for name, (_, expected_message) in REFUSED.items() if expected_message.endswith("leave it out")]
)
def test_leaving_it_out_is_a_remedy(name: str, text_directory: Path) -> None:
    changes = {section: dict(values) for section, values in REFUSED[name][0].items()}
    if "attacks" in changes.get("audit", {}):
        changes["audit"]["attacks"] = ["loss"]
    for idle in ("attribute", "reconstruct-samples", "neighbour"):
        changes.get("audit", {}).pop(idle, None)
    for idle in ("local-randomizer", "record-epsilon", "pixelation-pixels"):
        changes.get("privacy", {}).pop(idle, None)
    assert check_plan(plan_of(text_directory, changes), with_probe=False).plan.federation.rounds == 2


@pytest.mark.long
@pytest.mark.parametrize("server", SERVERS, ids=lambda server_case: server_case.name)
def test_the_audit_of_an_adapter_bites(server: Any, tmp_path: Path) -> None:
    """Half of the noise is found at 25 trials, and the full noise is not accused."""
    pytest.importorskip("peft")
    write_texts(tmp_path)
    assert (verdict_of(tmp_path, 0, 25, server) is Verdict.VIOLATED) is not server.is_honest
