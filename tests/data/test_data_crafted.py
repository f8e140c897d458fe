import numpy as np

from fl_audit.data.records import Records, encoded_record, single_record, with_crafted

SOURCE = np.random.default_rng(0)
RECORDS = Records(
    SOURCE.random((4, 2, 3), dtype=np.float32), np.array([0, 1, 2, 0]), 3, np.array([1, 0, 1, 0]), ("a", "b")
)


def test_a_crafted_record_is_told_to_the_last_bit_and_takes_the_place_of_one() -> None:
    features = np.array([[np.nextafter(np.float32(0.1), np.float32(1)), 0, 1], [1e-30, 0.3, 0.7]], dtype=np.float32)
    crafted_record = encoded_record(features, 2)
    placed = with_crafted(RECORDS, 1, crafted_record)
    assert (placed.features[1] == features).all()
    assert placed.labels.tolist() == [0, 2, 2, 0]
    assert placed.owner is not None
    assert placed.owner.tolist() == [1, 0, 1, 0]
    other_positions = [0, 2, 3]
    assert (placed.features[other_positions] == RECORDS.features[other_positions]).all()
    assert (RECORDS.features[1] != features).any(), "the records that were given are left as they are"
    single = single_record(crafted_record, RECORDS)
    assert (single.features[0] == features).all()
    assert (single.labels.tolist(), single.classes) == ([2], 3)
