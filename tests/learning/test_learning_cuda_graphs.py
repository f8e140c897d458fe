"""Calls captured as graphs: they give the same values, and those that come often are captured, up to a number."""

import pytest
import torch
from torch import Tensor

from fl_audit.device import Device
from fl_audit.learning.cuda_graphs import CapturedCall, GraphedCalls
from fl_audit.learning.microbatching import ClippedSumInputs, ClippedSumPass
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.stacked_model import StackedModel


class CountedCaptures:
    """A capture on the CPU: the call is made again on the tensors that it holds, as a graph would."""

    def __init__(self) -> None:
        self.captured, self.launched = 0, 0

    def __call__(self, compute, inputs) -> CapturedCall:  # type: ignore[no-untyped-def]
        self.captured += 1
        input_buffers = tuple(None if tensor is None else tensor.clone() for tensor in inputs)
        output = compute(*input_buffers)

        def launch() -> None:
            self.launched += 1
            output.copy_(compute(*input_buffers))

        return CapturedCall(input_buffers, launch, output)


def _sum(first_term: Tensor, second_term: Tensor | None) -> Tensor:
    return first_term + (0 if second_term is None else second_term)


def test_calls_of_equal_shapes_are_captured_once_and_give_the_same_values() -> None:
    capture = CountedCaptures()
    calls = GraphedCalls(capture)
    for number in range(6):
        inputs = torch.full((2,), float(number)), torch.ones(2)
        assert calls("sum", _sum, inputs).tolist() == [number + 1.0] * 2
    assert (capture.captured, capture.launched) == (1, 4)


def test_another_shape_name_or_missing_input_is_another_call() -> None:
    capture = CountedCaptures()
    calls = GraphedCalls(capture)
    kinds = 4
    for _ in range(3):
        assert calls("sum", _sum, (torch.ones(2), None)).tolist() == [1.0, 1.0]
        assert calls("sum", _sum, (torch.ones(3), None)).tolist() == [1.0, 1.0, 1.0]
        assert calls("sum", _sum, (torch.ones(2), torch.ones(2))).tolist() == [2.0, 2.0]
        assert calls("twice", lambda tensor: 2 * tensor, (torch.ones(2),)).tolist() == [2.0, 2.0]
    assert capture.captured == kinds


def test_shapes_beyond_those_that_are_kept_are_computed_as_they_come() -> None:
    """Eleven shapes in turn: eight of them have graphs, and none is made twice."""
    capture = CountedCaptures()
    calls = GraphedCalls(capture)
    for number in range(30):
        for size in range(1, 12):
            assert calls("sum", _sum, (torch.full((size,), float(number)), None)).tolist() == [float(number)] * size
    assert capture.captured == 8
    assert capture.launched == 8 * 28


def test_shapes_that_never_come_again_are_not_counted_for_ever() -> None:
    calls = GraphedCalls(CountedCaptures())
    for size in range(1, 1500):
        calls("sum", _sum, (torch.ones(size), None))
    assert len(calls._seen) == 1000


@pytest.mark.parametrize("name", ["adult-mlp", "dense-128", "mnist-cnn"])
@pytest.mark.parametrize("clipping_norm", [None, 0.5])
def test_clipped_sums_by_graphs_are_those_of_plain_passes(name: str, clipping_norm: float | None) -> None:
    """Round after round, with other models, other records and other samples."""
    shape = (1, 12, 12) if name == "mnist-cnn" else (9,)
    spec = ModelSpec(name, shape, 3)
    capture = CountedCaptures()
    plain = StackedModel.of(spec)
    graphed = StackedModel.of(spec).sized_for_device(Device.CUDA)
    graphed.parts.graphs = GraphedCalls(capture)
    source = torch.Generator().manual_seed(0)
    for number in range(6):
        models = initial_models(spec, number, range(4))
        features = torch.rand(7, *shape, generator=source)
        labels = torch.arange(7) % 3
        sample_mask = None if number % 2 else torch.rand(4, 7, generator=source) < 0.8
        microbatch = ClippedSumInputs(features, labels, None if sample_mask is None else sample_mask.float())
        graphed_sum = torch.empty_like(models)
        plain_sum = torch.empty_like(models)
        whole = microbatch.microbatch(slice(0, 4), slice(0, 7))
        graphed.clipped_sum_graphed(ClippedSumPass(models, whole, clipping_norm), graphed_sum)
        plain.clipped_sum_fast(ClippedSumPass(models, whole, clipping_norm), plain_sum)
        assert torch.equal(graphed_sum, plain_sum)
    assert capture.captured == 2


def test_passes_on_a_card_are_larger_and_give_the_same_sums() -> None:
    spec = ModelSpec("dense-128", (9,), 3)
    on_cpu = StackedModel.of(spec)
    on_card = on_cpu.sized_for_device(Device.CUDA)
    assert on_card.trials_per_pass(1000) == 32 * 2**21 // (1000 * on_cpu.activations)
    assert on_cpu.sized_for_device(Device.CPU).trials_per_pass(1000) == on_cpu.trials_per_pass(1000)
    models = initial_models(spec, 0, range(40))
    features = torch.rand(1000, 9, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(1000) % 3
    sums = [model.clipped_sum(models, features, labels, 1.0) for model in (on_cpu, on_card)]
    assert torch.allclose(*sums, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no graphics card")
def test_graphs_of_a_card_follow_their_inputs() -> None:
    spec = ModelSpec("dense-128", (9,), 3)
    model = StackedModel.of(spec).sized_for_device(Device.CUDA)
    source = torch.Generator().manual_seed(0)
    for number in range(8):
        models = initial_models(spec, number, range(4))
        features = torch.rand(7, 9, generator=source)
        labels = torch.arange(7) % 3
        card_sum = model.clipped_sum(models.cuda(), features.cuda(), labels.cuda(), 0.5)
        cpu_sum = StackedModel.of(spec).clipped_sum(models, features, labels, 0.5)
        assert torch.allclose(card_sum.cpu(), cpu_sum, rtol=1e-4, atol=1e-6)
