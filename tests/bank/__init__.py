"""Known wrong and right implementations of the pieces: one table, from which tests of every kind are made.

from tests.bank import entries, load

for entry in entries("softmax", "wrong"):
    piece = getattr(load(entry), entry.piece)
"""

from __future__ import annotations

import linecache
import sys
import types

from . import (
    ch01_one_hot_lookup,
    ch01_token_embedding,
    ch02_positional_encoding,
    ch02_shift_matrix,
    ch02_transformer_embedding,
    ch03_scaled_dot_product_attention,
    ch03_self_attention,
    ch03_softmax,
    ch04_merge_heads,
    ch04_multi_head_attention,
    ch04_split_heads,
    ch05_count_parameters,
    ch05_positionwise_feed_forward,
    ch06_encoder_layer,
    ch06_layer_norm,
    ch06_residual,
    ch07_causal_mask,
    ch07_decoder_layer,
    ch07_padding_mask,
    ch07_target_mask,
    ch08_encoder,
    ch08_masked_mean_pool,
    ch08_sequence_classifier,
    ch09_beam_search,
    ch09_corpus_bleu,
    ch09_decoder,
    ch09_greedy_decode,
    ch09_label_smoothed_cross_entropy,
    ch09_noam_lr,
    ch09_shift_targets,
    ch09_transformer,
    ch10_accumulate,
    ch10_attend_with_cache,
    ch10_batches_by_tokens,
    ch10_diagnosis,
)
from .entry import Entry

__all__ = ["Entry", "entries", "load"]

_ALL: tuple[Entry, ...] = tuple(
    entry
    for module in (
        ch01_one_hot_lookup,
        ch01_token_embedding,
        ch02_positional_encoding,
        ch02_shift_matrix,
        ch02_transformer_embedding,
        ch03_softmax,
        ch03_scaled_dot_product_attention,
        ch03_self_attention,
        ch04_split_heads,
        ch04_merge_heads,
        ch04_multi_head_attention,
        ch05_positionwise_feed_forward,
        ch05_count_parameters,
        ch06_layer_norm,
        ch06_residual,
        ch06_encoder_layer,
        ch07_padding_mask,
        ch07_causal_mask,
        ch07_target_mask,
        ch07_decoder_layer,
        ch08_masked_mean_pool,
        ch08_encoder,
        ch08_sequence_classifier,
        ch09_shift_targets,
        ch09_label_smoothed_cross_entropy,
        ch09_noam_lr,
        ch09_decoder,
        ch09_transformer,
        ch09_greedy_decode,
        ch09_beam_search,
        ch09_corpus_bleu,
        ch10_batches_by_tokens,
        ch10_accumulate,
        ch10_attend_with_cache,
        ch10_diagnosis,
    )
    for entry in module.BANK.entries
)


def entries(piece: str | None = None, verdict: str | None = None) -> list[Entry]:
    """The entries of ``piece`` (of all pieces by default) with ``verdict`` (``"right"``, ``"wrong"`` or both).

    Raises ``KeyError`` for a piece that has no entries and ``ValueError`` for another verdict, so that a misspelt test
    cannot pass on an empty list.
    """
    if piece is not None and piece not in {entry.piece for entry in _ALL}:
        raise KeyError(f"the bank has no piece {piece}")
    if verdict not in (None, "right", "wrong"):
        raise ValueError(f'verdict must be "right" or "wrong", not {verdict!r}')
    return [e for e in _ALL if piece in (None, e.piece) and verdict in (None, e.verdict)]


def load(entry: Entry) -> types.SimpleNamespace:
    """A fresh namespace with what the source of ``entry`` defines; ``inspect.getsource`` works on it."""
    filename = f"<bank {entry.id}>"
    linecache.cache[filename] = (len(entry.source), None, entry.source.splitlines(keepends=True), filename)
    module = types.ModuleType("bank_" + entry.id.replace("-", "_"))
    module.__file__ = filename
    sys.modules[module.__name__] = module  # where inspect looks for the file of a class
    exec(compile(entry.source, filename, "exec", dont_inherit=True), module.__dict__)
    return types.SimpleNamespace(**{name: value for name, value in vars(module).items() if not name.startswith("__")})
