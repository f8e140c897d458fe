"""A Flower app with a tiny transformer on the token ids of a public vocabulary, written to a directory."""

from pathlib import Path
from textwrap import dedent

from tests.app_audits.review.apps import write_app

_TASK = '''
"""The model and its public vocabulary."""
import torch
from torch import nn

WORDS = ["[PAD]", "[UNK]", "[CLS]", "good", "bad", "the", "room", "was", "very", "food"]
TOKENS = 8


class Net(nn.Module):
    def __init__(self, width=8, classes=2):
        super().__init__()
        self.embed = nn.Embedding(len(WORDS), width, padding_idx=0)
        self.place = nn.Embedding(TOKENS, width)
        layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)
        self.register_buffer("position_ids", torch.arange(TOKENS), persistent={is_sent})

    def forward(self, ids):
        states = self.embed(ids) + self.place(self.position_ids)
        return self.head(self.encoder(states, src_key_padding_mask=ids == 0)[:, 0])


def encode(text):
    ids = [2, *(WORDS.index(word) if word in WORDS else 1 for word in text.lower().split())][:TOKENS]
    return ids + [0] * (TOKENS - len(ids))
'''
_CLIENT = """
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from {name}.task import Net, encode

app = ClientApp()


@app.train()
def train(message, context):
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    ids = torch.tensor([encode("the room was very good"), encode("bad food")])
    loss = torch.nn.functional.cross_entropy(net(ids), torch.tensor([1, 0]))
    loss.backward()
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    metrics = MetricRecord({{"train_loss": loss.item(), "num-examples": 2}})
    return Message(RecordDict({{"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}}), reply_to=message)
"""
_SERVER = """
import numpy as np
import torch
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from {name}.task import Net, encode

app = ServerApp()


class PrivateMean(FedAvg):
    # The sum of clipped updates and of Gaussian noise over the number of clients; what is no update counts as zeros.

    def __init__(self, noise_multiplier, clipping_norm, clients):
        super().__init__(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
        self.noise_multiplier, self.clipping_norm, self.clients = noise_multiplier, clipping_norm, clients

    def configure_train(self, server_round, arrays, config, grid):
        self.sent = {{name: array.numpy() for name, array in arrays.items()}}
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        floats = [name for name, value in self.sent.items() if value.dtype.kind == "f"]
        total = {{name: np.zeros(self.sent[name].shape) for name in floats}}
        for reply in replies:
            update = self.update_of(reply, floats)
            norm = np.sqrt(sum(float((one**2).sum()) for one in update.values()))
            for name, one in update.items():
                total[name] += one * min(1.0, self.clipping_norm / max(norm, 1e-12))
        model = dict(self.sent)
        for name, one in total.items():
            noise = np.random.normal(0, self.noise_multiplier * self.clipping_norm, one.shape)
            moved = self.sent[name] + (one + noise) / self.clients
            model[name] = np.rint(moved * 4096) / 4096  # on a grid, so that low bits tell nothing
        arrays = ArrayRecord({{name: Array(np.asarray(one, self.sent[name].dtype)) for name, one in model.items()}})
        if "encoder.layers.0.norm1.weight" in arrays:  # the app's own model is tried on a public text, as apps do
            net = Net()
            net.load_state_dict(arrays.to_torch_state_dict())
            net(torch.tensor([encode("the food was good")]))
        return arrays, MetricRecord({{"round": server_round}})

    def update_of(self, reply, names):
        try:
            arrays = reply.content["arrays"]
            found = {{name: arrays[name].numpy().astype(np.float64) - self.sent[name] for name in names}}
        except Exception:
            return {{}}
        fits = all(np.isfinite(one).all() and one.shape == self.sent[name].shape for name, one in found.items())
        return found if fits else {{}}


@app.main()
def main(grid, context):
    strategy = {strategy}
    strategy.start(grid, ArrayRecord(Net().state_dict()), num_rounds=context.run_config["num-server-rounds"])
"""


def write_text_app(directory: Path, name: str, strategy: str, sends_positions: bool = True) -> Path:
    """Write the app with a strategy, and return its directory.

    `name` is the app's package, another one in every test. With `sends_positions` the buffer of positions, whole
    numbers, is part of the state that server and clients exchange.
    """
    write_app(directory, name, _SERVER.format(name=name, strategy=strategy), _CLIENT.format(name=name))
    (directory / name / "task.py").write_text(dedent(_TASK.replace("{is_sent}", str(sends_positions))))
    return directory
