"""Checks of a model leave nothing of its passes in memory."""

import gc

import torch
from torch import Tensor, nn

from fl_audit.learning import model_checks
from fl_audit.learning.fast_path_checks import saved_scalars
from fl_audit.learning.model_checks import ModelCheckRecords, check_logits

WIDTH, CLASSES = 997, 3


def module() -> nn.Module:
    # A softmax keeps its own result for the backward pass.
    return nn.Sequential(nn.Linear(5, WIDTH), nn.Softmax(1), nn.Linear(WIDTH, CLASSES))


def alive(count: int) -> int:
    """Return the number of tensors in memory that hold the hidden values of some records."""
    gc.collect()
    sizes = [tensor.untyped_storage().nbytes() for tensor in gc.get_objects() if type(tensor) is Tensor]
    return sizes.count(4 * count * WIDTH)


def test_a_check_of_outputs_leaves_no_pass_in_memory() -> None:
    model = module()
    records = torch.rand(7, 5)
    check_logits(model, CLASSES, ModelCheckRecords(records, tuple(map(str, range(7)))))
    assert alive(7) == alive(1) == 0


def test_a_measure_of_activations_leaves_no_pass_in_memory() -> None:
    model = module()
    record = torch.rand(6, 5)

    def run(values: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(model, values, (record,)).sum()  # type: ignore[no-any-return]

    assert saved_scalars(model, run) >= 6 * WIDTH
    assert alive(6) == 0


def test_a_model_is_given_a_few_probe_records_at_once() -> None:
    batch_sizes = list[int]()
    model = module()
    model.register_forward_pre_hook(lambda layer, inputs: batch_sizes.append(len(inputs[0])))
    records = torch.rand(50, 5)
    check_logits(model, CLASSES, ModelCheckRecords(records, tuple(map(str, range(50)))))
    assert max(batch_sizes) <= model_checks._RECORDS_PER_PASS
    assert sum(batch_sizes) == 50 + 1  # and the first one alone
