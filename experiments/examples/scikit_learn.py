"""A Flower app like Flower's scikit-learn example: logistic regression, with coefficients as NumPy arrays."""

import warnings

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from fl_audit.experiments.examples.shared_digits_parts import save, shard

client_app = ClientApp()
server_app = ServerApp()


def model_of(arrays: ArrayRecord) -> LogisticRegression:
    model = LogisticRegression(max_iter=1, warm_start=True)
    model.coef_, model.intercept_ = arrays.to_numpy_ndarrays()
    model.classes_ = np.arange(10)
    return model


@client_app.train()
def train_client(message: Message, context: Context) -> Message:
    model = model_of(message.content.array_records["arrays"])
    images, labels = shard(context)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(images, labels)
    metrics = MetricRecord({"train_loss": log_loss(labels, model.predict_proba(images)), "num-examples": len(labels)})
    content = RecordDict({"arrays": ArrayRecord([model.coef_, model.intercept_]), "metrics": metrics})
    return Message(content=content, reply_to=message)


@client_app.evaluate()
def evaluate_client(message: Message, context: Context) -> Message:
    images, labels = shard(context)
    accuracy = model_of(message.content.array_records["arrays"]).score(images, labels)
    metrics = MetricRecord({"accuracy": accuracy, "num-examples": len(labels)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = FedAvg()
    arrays = ArrayRecord([np.zeros((10, 64)), np.zeros(10)])
    save(strategy.start(grid, arrays, num_rounds=3))
