"""A Flower app that evaluates models on the server alone, with Flower's strategy wrapper for clipping and noise."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

from fl_audit.experiments.examples.shared_digits_parts import (
    DigitsNetwork,
    dataset,
    evaluate,
    rate,
    save,
    seeded,
    shard,
    test_set,
    train,
    train_settings,
)

NOISE = 1.0
NORM = 0.5
CLIENTS = 3

client_app = ClientApp()
server_app = ServerApp()


@client_app.train()
def train_client(message: Message, context: Context) -> Message:
    seeded(message, context)
    net = DigitsNetwork()
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    records = dataset(*shard(context))
    loss = train(net, records, rate(message))
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(records)})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


def evaluate_server(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    net = DigitsNetwork()
    net.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy = evaluate(net, dataset(*test_set()))
    return MetricRecord({"loss": loss, "accuracy": accuracy})


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(0)
    averaging = FedAvg(fraction_evaluate=0.0)
    strategy = DifferentialPrivacyServerSideFixedClipping(averaging, NOISE, NORM, CLIENTS)
    arrays = ArrayRecord(DigitsNetwork().state_dict())
    settings = train_settings(0.1)
    save(strategy.start(grid, arrays, num_rounds=3, train_config=settings, evaluate_fn=evaluate_server))
