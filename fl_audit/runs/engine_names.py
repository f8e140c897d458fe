"""The engines that run the clients, for modules that need only their names."""

from enum import StrEnum


class Engine(StrEnum):
    """The engine that runs the clients: Flower's simulation on Ray, or threads of this process ("local")."""

    RAY = "ray"
    LOCAL = "local"
