"""Flower strategies as users write them, for tests of the setting `aggregation`."""

import random
from collections.abc import Iterable

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg, FedProx


class HalfOfThem(FedAvg):
    """FedAvg that asks half of the clients, and adds a draw of Python's generator to the first parameter."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        arrays, metrics = super().aggregate_train(server_round, replies)
        assert arrays is not None
        name = next(iter(arrays))
        return ArrayRecord({**arrays, name: Array(arrays[name].numpy() + np.float32(random.random()))}), metrics


class WithRate(FedAvg):
    """FedAvg that tells clients a learning rate, which ours do not understand."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return super().configure_train(server_round, arrays, ConfigRecord({"lr": 0.1}), grid)


class Speaking(FedAvg):
    """FedAvg that sends messages by itself."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = list(super().configure_train(server_round, arrays, config, grid))
        grid.push_messages(messages)
        return messages


class Failing(FedAvg):
    """FedAvg whose aggregation raises an exception."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        raise ZeroDivisionError("nothing\nto divide by")


def half() -> FedAvg:
    return HalfOfThem(fraction_train=0.5, min_train_nodes=1, min_available_nodes=2)


def prox() -> FedAvg:
    return FedProx(proximal_mu=0.5)


def waiting() -> FedAvg:
    return FedAvg(min_available_nodes=100)


def noisy() -> DifferentialPrivacyServerSideFixedClipping:
    return DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 1.0, 3)


def no_strategy() -> int:
    return 3
