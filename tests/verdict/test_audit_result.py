"""The result of an audit is stored and read again without a difference, whatever was audited."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_audit.verdict.audit_result import AuditedKind, AuditResult, AuditScope, read_result, result_of_json
from fl_audit.verdict.verdict import Verdict
from tests.builders.refusals import assert_refused

_TEXTS = st.text(max_size=8)
_SCOPES = st.builds(
    AuditScope,
    rounds=st.none() | st.integers(1, 50),
    played_rounds=st.none() | st.integers(0, 50),
    made=st.lists(_TEXTS, max_size=3).map(tuple),
    not_made=st.dictionaries(_TEXTS, _TEXTS, max_size=3),
    unseen=st.lists(_TEXTS, max_size=3).map(tuple),
)
_RESULTS = st.builds(
    AuditResult,
    kind=st.sampled_from(AuditedKind),
    name=st.text(min_size=1, max_size=8),
    verdict=st.sampled_from(Verdict),
    headline=_TEXTS,
    lines=st.lists(st.tuples(_TEXTS, _TEXTS), max_size=3).map(tuple),
    guarantee=st.none() | st.just({"epsilon": 1.5, "delta": 1e-5}),
    scope=_SCOPES,
    warning=st.none() | _TEXTS,
    versions=st.dictionaries(_TEXTS, _TEXTS, max_size=2),
    bundle=st.none() | st.just("ab" * 32),
)


@given(_RESULTS)
def test_a_result_that_is_stored_is_read_as_it_was(result: AuditResult) -> None:
    values = json.loads(json.dumps(result.to_json(), allow_nan=False))
    read = result_of_json(values, "other", "there")
    assert read.to_json() == result.to_json()
    assert (read.scope, read.lines, read.verdict) == (result.scope, result.lines, result.verdict)


@pytest.mark.parametrize(
    ("rounds", "played", "covers"), [(3, 3, True), (3, 2, False), (None, 2, None), (3, None, None)]
)
def test_rounds_that_nobody_counted_are_not_taken_for_played(
    rounds: int | None, played: int | None, covers: bool | None
) -> None:
    assert AuditScope(rounds, played).covers_all_rounds is covers


@pytest.mark.parametrize("content", ["[]", "{}", '{"kind": "app", "verdict": "well", "guarantee": null, "checks": {}}'])
def test_what_is_no_result_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "summary.json").write_text(content)
    assert_refused("no result of an audit", read_result, tmp_path)
