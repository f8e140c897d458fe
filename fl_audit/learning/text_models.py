"""The built-in text model."""

from torch import Tensor, nn

_EMBEDDED = 16  # numbers of the vector of a token


class MeanEmbedding(nn.Module):
    """A text classifier: the mean of the token embeddings without padding, followed by a dense layer."""

    def __init__(self, tokens: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, _EMBEDDED)
        self.head = nn.Linear(_EMBEDDED, classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the logits (n, classes) for token ids and their attention mask, both (n, tokens)."""
        weights = attention_mask.unsqueeze(2).to(self.head.weight.dtype)
        summed = (self.embedding(input_ids) * weights).sum(1)
        logits: Tensor = self.head(summed / weights.sum(1).clamp(min=1.0))
        return logits
