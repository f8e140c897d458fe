"""Batches of trials and the waves in which they travel."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fl_audit.trial_batches import BATCHES_IN_FLIGHT, TrialBatch, remaining_batches, waves
from tests.few_examples import examples


@given(st.integers(1, 300), st.integers(1, 320))
@settings(max_examples=examples(60), derandomize=True)
def test_batches_divide_the_trials_in_order(trials: int, per_batch: int) -> None:
    batches = remaining_batches(trials, per_batch, ())
    assert [trial for batch in batches for trial in batch.trials] == list(range(trials))
    assert [batch.index for batch in batches] == list(range(len(batches)))
    assert all(batch.count == min(per_batch, trials) for batch in batches[:-1])
    assert 1 <= batches[-1].count <= per_batch


@given(st.integers(1, 40))
@settings(max_examples=examples(20), derandomize=True)
def test_waves_keep_every_batch_in_order(number: int) -> None:
    batches = remaining_batches(number, 1, ())
    grouped = waves(batches)
    assert [batch for wave in grouped for batch in wave] == list(batches)
    assert all(len(wave) == BATCHES_IN_FLIGHT for wave in grouped[:-1])
    assert 1 <= len(grouped[-1]) <= BATCHES_IN_FLIGHT


def test_names_sort_as_batches_do() -> None:
    names = [TrialBatch(index, 0, 1).name for index in (0, 9, 10, 12345)]
    assert names == ["batch-00000", "batch-00009", "batch-00010", "batch-12345"]
    assert waves([]) == []
