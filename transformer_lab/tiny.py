"""The tiny example that every chapter works through: one sentence of six tokens, four numbers each.

Small enough to check by hand: all weights are halves or whole numbers, √d_model = √d_k = 2, and one word occurs twice,
so that a reader can see what a position changes.
"""

from __future__ import annotations

import torch

SENTENCE = ("the", "cat", "saw", "the", "small", "bird")
VOCABULARY = ("<pad>", "the", "cat", "saw", "small", "bird")

D_MODEL = 4
D_K = 4

#: Token ids of the sentence, shape (6,).
TOKEN_IDS = torch.tensor([VOCABULARY.index(word) for word in SENTENCE])

#: Embedding table, one row per word of the vocabulary, shape (6, 4); the padding row is zero.
TABLE = torch.tensor(
    [
        [0.0, 0.0, 0.0, 0.0],  # <pad>
        [0.5, 0.0, 0.0, -0.5],  # the
        [0.0, 1.0, 0.5, 0.0],  # cat
        [-0.5, 0.0, 1.0, 0.5],  # saw
        [1.0, -0.5, 0.0, 0.0],  # small
        [0.0, 1.0, -0.5, 0.5],  # bird
    ]
)

#: The sentence embedded and scaled by √d_model = 2, before any position is added, shape (6, 4).
EMBEDDED = TABLE[TOKEN_IDS] * 2.0

#: Projections in PyTorch's layout (d_k, d_model): query = x @ W_Q.T.
W_Q = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
W_K = torch.tensor([[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0]])
W_V = torch.tensor([[0.5, 0.0, 0.0, 0.5], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.5, 0.0, 0.0, -0.5]])

#: Two heads of width 2 share the four features.
NUM_HEADS = 2

#: What multi-head attention does to the merged heads: half their sum, then half their difference.
W_O = torch.tensor([[0.5, 0.0, 0.5, 0.0], [0.0, 0.5, 0.0, 0.5], [0.5, 0.0, -0.5, 0.0], [0.0, 0.5, 0.0, -0.5]])

#: The feed-forward network of chapter 5, in PyTorch's layout: hidden = relu(x @ W_1.T + B_1), result = hidden @ W_2.T + B_2.
#: Rows of W_1 are what its eight hidden units look for, columns of W_2 what they answer.
D_FF = 8
W_1 = torch.tensor(
    [
        [0.0, 1.0, 0.0, 0.0],  # answers to "cat" and "bird"
        [0.0, 0.0, 0.0, -1.0],  # to "the"
        [0.0, 0.0, 1.0, 0.0],  # to "saw"
        [1.0, 0.0, 0.0, 0.0],  # to "small"
        [0.0, 1.0, 1.0, 0.0],  # to "cat"
        [0.0, 1.0, -1.0, 0.0],  # to "bird"
        [0.5, 0.5, 0.0, 0.0],  # to all but "saw"
        [0.0, 0.0, 0.5, 1.0],  # to all but "the"
    ]
)
B_1 = torch.tensor([-1.0, 0.0, -1.0, -1.0, -2.0, -2.0, 0.0, 0.5])
W_2 = torch.tensor(
    [
        [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.5, 0.0],
        [-1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, -0.5],
        [0.0, 0.0, 0.0, -1.0, -1.0, 1.0, 0.5, 0.0],
        [1.0, 0.0, -1.0, 0.0, 1.0, -1.0, 0.0, 0.0],
    ]
)
B_2 = torch.tensor([0.0, 0.0, 0.0, 0.5])
