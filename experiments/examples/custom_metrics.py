"""A Flower app whose own strategy aggregates metrics, remembers the best round, and lowers the learning rate."""

from collections.abc import Iterable

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
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


def spread(replies: list[RecordDict], _weighted_by_key: str) -> MetricRecord:
    """Return the mean and the largest loss over the clients; every client has the same weight in the mean.

    Parameters
    ----------
    replies
        Replies of the clients, each with a metric "loss".
    _weighted_by_key
        Not used.
    """
    losses = [float(str(next(iter(reply.metric_records.values()))["loss"])) for reply in replies]
    return MetricRecord({"loss": sum(losses) / len(losses), "worst_loss": max(losses)})


class LearningRateDecayFedAvg(FedAvg):
    def __init__(self) -> None:
        super().__init__(train_metrics_aggr_fn=spread, evaluate_metrics_aggr_fn=spread)
        self.best = float("inf")

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        config["lr"] = float(str(config["lr"])) * 0.9
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        metrics = super().aggregate_evaluate(server_round, replies)
        assert metrics is not None
        self.best = min(self.best, float(str(metrics["loss"])))
        return MetricRecord(dict(metrics) | {"best": self.best})


@client_app.train()
def train_client(message: Message, context: Context) -> Message:
    seeded(message, context)
    net = DigitsNetwork()
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    records = dataset(*shard(context))
    # The number of this client's trainings is kept in its state, as momentum or a personal head would be.
    before = context.state.metric_records.get("trained", MetricRecord({"times": 0}))
    times = 1 + float(str(before["times"]))
    context.state["trained"] = MetricRecord({"times": times})
    loss = train(net, records, rate(message) / times)
    metrics = MetricRecord({"loss": loss, "num-examples": len(records)})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


@client_app.evaluate()
def evaluate_client(message: Message, context: Context) -> Message:
    net = DigitsNetwork()
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    loss, _ = evaluate(net, dataset(*shard(context)))
    metrics = MetricRecord({"loss": loss, "num-examples": 100})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(0)
    strategy = LearningRateDecayFedAvg()
    arrays = ArrayRecord(DigitsNetwork().state_dict())
    save(strategy.start(grid, arrays, num_rounds=3, train_config=train_settings(0.2)))
