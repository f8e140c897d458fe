"""The ClientApp of the digits app: a client trains on its own records, and counts its rounds in its state."""

import torch
from digits_task import Network, accuracy, client_records, train
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


def _network(message: Message) -> Network:
    network = Network()
    network.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    return network


@app.train()
def train_client(message: Message, context: Context) -> Message:
    """Return the model after one epoch on the client's records, with the number of rounds that it has trained."""
    partition, partitions = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))
    rounds = int(context.state.config_records.get("rounds", ConfigRecord({"trained": 0}))["trained"]) + 1
    context.state["rounds"] = ConfigRecord({"trained": rounds})
    torch.set_num_threads(1)
    network, (images, labels) = _network(message), client_records(partition, partitions)
    loss = train(network, images, labels, float(context.run_config["lr"]), 1000 * partition + rounds)
    metrics = MetricRecord({"train_loss": loss, "rounds": rounds, "num-examples": len(labels)})
    return Message(RecordDict({"arrays": ArrayRecord(network.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate_client(message: Message, context: Context) -> Message:
    """Return the accuracy of the model on the client's records."""
    records = client_records(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))
    metrics = MetricRecord({"accuracy": accuracy(_network(message), *records), "num-examples": len(records[1])})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
