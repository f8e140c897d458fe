"""Gradient inversion by the code of Geiping et al. 2020, as a script for an environment of its own.

The environment has torch and, on its path, a checkout of github.com/JonasGeiping/invertinggradients. The script reads
an archive with the weights of a network, what each owner shared, labels, and the numbers of iterations and smoothness;
it writes one with the pictures.
"""

REFERENCE_SCRIPT = """
import contextlib
import io
import sys
from unittest.mock import MagicMock

import numpy as np
import torch
from torch import nn

try:
    import torchvision
except Exception:  # it serves their models and data sets alone, which nothing here needs
    for name in ("", ".models", ".models.resnet", ".transforms", ".datasets"):
        sys.modules["torchvision" + name] = MagicMock()
    sys.modules["torchvision.models.resnet"].Bottleneck = nn.Module
    sys.modules["torchvision.models"].ResNet = nn.Module
    sys.modules["torchvision"].models.ResNet = nn.Module
import inversefed

table = np.load(sys.argv[1])
networks = {
    "dense-128": lambda: [nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)],
    "mnist-cnn": lambda: [
        nn.Conv2d(1, 16, 3), nn.GroupNorm(4, 16), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(16, 16, 3), nn.GroupNorm(4, 16), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(400, 10),
    ],
}
torch.set_num_threads(1)
torch.manual_seed(int(table["seed"]))
model = nn.Sequential(*networks[str(table["network"])]())
sizes = [parameter.numel() for parameter in model.parameters()]


def parts(flat):
    pieces = torch.from_numpy(np.array(flat)).split(sizes)
    return [piece.view_as(one) for piece, one in zip(pieces, model.parameters())]


with torch.no_grad():
    for parameter, value in zip(model.parameters(), parts(table["start"])):
        parameter.copy_(value)
config = dict(
    signed=True, boxed=True, cost_fn="sim", indices="def", weights="equal", lr=0.1, optim="adam", restarts=1,
    max_iterations=int(table["iterations"]), total_variation=float(table["smoothness"]), init="randn", filter="none",
    lr_decay=True, scoring_choice="loss",
)
pictures, box = [], (torch.tensor(0.0), torch.tensor(1.0))
for seen, labels in zip(table["seen"], torch.from_numpy(table["labels"])):
    with contextlib.redirect_stdout(io.StringIO()):
        attack = inversefed.GradientReconstructor(model, box, dict(config), num_images=len(labels))
        found, _ = attack.reconstruct(parts(seen), labels, img_shape=(1, 28, 28))
    pictures.append(found.numpy())
np.savez(sys.argv[2], pictures=np.stack(pictures))
"""
