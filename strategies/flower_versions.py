"""What differs between the versions of Flower that are supported: 1.32 and newer."""


def make_messages_for(run: int, node: int) -> None:
    """Say which run and node this process makes messages for; before 1.38 Flower does not ask.

    Parameters
    ----------
    run
        Number of the run.
    node
        Number of the node.
    """
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ModuleNotFoundError:
        return
    # Flower lets nobody make a message who is no task of a run.
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, run, node
