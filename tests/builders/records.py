"""Small random records for trainings with Opacus."""

import torch
from torch.utils.data import TensorDataset


def labelled_records(records: int = 98, seed: int = 0) -> TensorDataset:
    """Return records of five normal features with a label of three classes."""
    source = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(records, 5, generator=source), torch.randint(3, (records,), generator=source))
