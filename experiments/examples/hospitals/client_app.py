"""The ClientApp of a hospital, which trains logistic regression on its own records.

If the node's configuration says so, the hospital sends canaries: known updates in secretly drawn rounds.
"""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fl_audit.app_audits.live.canary import canary_of_node

app = ClientApp(mods=[canary_of_node(directions=11, clipping_norm=1.0)])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the received model for 20 gradient steps on the hospital's records, and return its weights as a reply."""
    weight = message.content.array_records["arrays"]["weight"].numpy().astype(np.float64)
    with np.load(str(context.node_config["data"])) as shard:
        pixels = shard["pixels"]
        digits = np.eye(10)[shard["digits"]]
    for _ in range(20):
        scores = pixels @ weight
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        weight -= 0.5 * pixels.T @ (odds / odds.sum(axis=1, keepdims=True) - digits) / len(pixels)
    arrays = ArrayRecord({"weight": Array(weight.astype(np.float32))})
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)
