"""A factory's draws are computed again to the bit, in no more memory than the tensors that are still to be read."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fl_audit.learning import model_factory_replay, model_initialisation
from fl_audit.learning.model_factory_replay import DrawRecorder, compute_again
from fl_audit.randomness import Purpose, generator

LAYERS, WIDTH = 6, 32
ONE_LAYER = 4 * WIDTH * (WIDTH + 1)  # bytes


def initialised_twice() -> nn.Module:
    """Return layers that draw their weights, and which are drawn anew afterwards, as a library does."""
    net = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    for value in net.parameters():
        nn.init.normal_(value)
    return net


def initialised_in_part() -> nn.Module:
    """Return layers of which half is drawn anew, and whose drawn numbers are used before they are drawn again."""
    net = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    with torch.no_grad():
        for layer in net:
            before = layer.weight[:3].clone()  # type: ignore[index, operator, union-attr]
            layer.weight[: WIDTH // 2].normal_()  # type: ignore[index, operator, union-attr]
            layer.bias.uniform_()  # type: ignore[operator, union-attr]
            layer.bias[:3] += before[:, 0]  # type: ignore[index, operator, union-attr]
            layer.weight.t().mul_(2.0)  # type: ignore[operator, union-attr]
    return net


@pytest.mark.parametrize(("made", "layers"), [(initialised_twice, 1), (initialised_in_part, LAYERS)])
def test_draws_are_computed_again_without_what_is_drawn_anew(
    made: Callable[[], nn.Module], layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, given, most = DrawRecorder(), model_factory_replay._given, [0]
    with model_initialisation._drawing(generator(0, Purpose.INITIAL_WEIGHTS)):
        net = recorder.run(made)
    places = {name: place for name, value in net.named_parameters() if (place := recorder.place(value)) is not None}

    def watched(noted: object, held: dict[int, Tensor]) -> object:
        found = given(noted, held)
        most[0] = max(most[0], sum(one.untyped_storage().nbytes() for one in held.values()))
        return found

    monkeypatch.setattr(model_factory_replay, "_given", watched)
    found = dict[str, Tensor]()
    with model_initialisation._drawing(generator(1, Purpose.INITIAL_WEIGHTS)), torch.no_grad():
        compute_again(recorder.steps, places, lambda name, value: found.update({name: value.clone()}))
    with model_initialisation._drawing(generator(1, Purpose.INITIAL_WEIGHTS)):
        expected = dict(made().named_parameters())
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name].numpy(), expected[name].detach().numpy()) for name in expected)
    assert most[0] <= layers * ONE_LAYER + 4 * WIDTH * 4
