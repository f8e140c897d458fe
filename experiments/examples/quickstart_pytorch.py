"""A Flower app like Flower's PyTorch quickstart: federated averaging, with clients that train and evaluate."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fl_audit.experiments.examples.shared_digits_parts import (
    DigitsNetwork,
    dataset,
    evaluate,
    rate,
    save,
    seeded,
    shard,
    train,
    train_settings,
)

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


@client_app.evaluate()
def evaluate_client(message: Message, context: Context) -> Message:
    net = DigitsNetwork()
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    records = dataset(*shard(context))
    loss, accuracy = evaluate(net, records)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(records)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(0)
    strategy = FedAvg()
    arrays = ArrayRecord(DigitsNetwork().state_dict())
    save(strategy.start(grid, arrays, num_rounds=3, train_config=train_settings(0.1)))
