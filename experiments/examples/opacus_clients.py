"""A Flower app like Flower's Opacus example: every client trains by DP-SGD, so that its update is already private."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from opacus import PrivacyEngine
from torch.utils.data import DataLoader

from fl_audit.experiments.examples.shared_digits_parts import (
    DigitsNetwork,
    dataset,
    evaluate,
    rate,
    save,
    seeded,
    shard,
    test_set,
    train_settings,
)

NOISE, NORM, BATCH = 1.0, 1.0, 20
# Opacus divides by the mean batch, rounded down: 19 with 99 records and with 98, while 100 would tell from 99.
RECORDS = 99

client_app = ClientApp()
server_app = ServerApp()


@client_app.train()
def train_client(message: Message, context: Context) -> Message:
    seeded(message, context)
    net = DigitsNetwork()
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    records = dataset(*shard(context, RECORDS))
    engine = PrivacyEngine()
    optimizer = torch.optim.SGD(net.parameters(), lr=rate(message))
    private, optimizer, loader = engine.make_private(
        module=net,
        optimizer=optimizer,
        data_loader=DataLoader(records, batch_size=BATCH),
        noise_multiplier=NOISE,
        max_grad_norm=NORM,
    )
    for images, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(private(images), labels).backward()
        optimizer.step()
    metrics = MetricRecord({"epsilon": engine.get_epsilon(delta=1e-3), "num-examples": 1})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


@client_app.evaluate()
def evaluate_client(message: Message, context: Context) -> Message:
    net = DigitsNetwork()
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    loss, accuracy = evaluate(net, dataset(*test_set()))
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": 1})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(0)
    strategy = FedAvg()
    arrays = ArrayRecord(DigitsNetwork().state_dict())
    save(strategy.start(grid, arrays, num_rounds=2, train_config=train_settings(0.1)))
