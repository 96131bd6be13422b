"""Hidden checks of chapter 2. The oracle is the paper's formula (Vaswani et al. 2017, section 3.5) in float64 NumPy."""

import numpy as np

from autograder.compare import expect, require, require_array
from autograder.registry import check
from transformer_lab.driver import cotangent

POSITIONS = "the table of positions"


def encoding(positions, d_model: int) -> np.ndarray:
    """PE[p, 2i] = sin(p / 10000^(2i/d_model)), PE[p, 2i+1] = cos(…), for any real positions (L,) → (L, d_model)."""
    frequencies = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)  # (D/2,)
    angles = np.asarray(positions, dtype=float)[:, None] * frequencies  # (L, D/2)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(len(angles), d_model)


def sizes(rng, low=6, high=40):
    """A length and an even width that differ from each other."""
    d_model = 2 * int(rng.integers(3, 17))
    length = int(rng.integers(low, high))
    return (length + 1 if length == d_model else length), d_model


# ------------------------------------------------------------------------------------------------ positional_encoding


@check("positional_encoding", points=1)
def has_the_stated_shape_and_dtype(student, rng):
    """The table is a float32 tensor of shape (seq_len, d_model), for lengths above and below the width."""
    for length, d_model in ((5, 8), (12, 6), sizes(rng)):
        got = student.run("positional_encoding", length, d_model)
        require_array(got, POSITIONS)
        shape = tuple(got.shape)
        require(shape == (length, d_model), f"For seq_len={length}, d_model={d_model} the shape is {shape}.")
        require(str(got.dtype) == "float32", f"The table's dtype is {got.dtype}, expected float32.")


@check("positional_encoding", points=1)
def turns_the_first_pair_by_one_radian_per_position(student, rng):
    """Columns 0 and 1 are sin(p) and cos(p) for positions p = 0, 1, 2, …"""
    length, d_model = sizes(rng)
    got = student.run("positional_encoding", length, d_model)
    require_array(got, POSITIONS)
    require(got.ndim == 2 and got.shape[1] >= 2, f"The table of positions: shape {tuple(got.shape)}, expected 2 axes.")
    expect(got[:, :2], encoding(range(length), d_model)[:, :2], "columns 0 and 1 of the table")


@check("positional_encoding", points=4)
def has_every_frequency(student, rng):
    """Every column pair i turns with frequency 10000^(−2i/d_model), sine in the even and cosine in the odd column."""
    for _ in range(3):
        length, d_model = sizes(rng)
        got = student.run("positional_encoding", length, d_model)
        expect(got, encoding(range(length), d_model), f"{POSITIONS} for seq_len={length}, d_model={d_model}")


@check("positional_encoding", points=1)
def works_at_the_smallest_sizes(student, rng):
    """One position, and a width of two."""
    width = 2 * int(rng.integers(2, 9))
    for length, d_model in ((1, width), (int(rng.integers(3, 9)), 2), (1, 2)):
        got = student.run("positional_encoding", length, d_model)
        expect(got, encoding(range(length), d_model), f"{POSITIONS} for seq_len={length}, d_model={d_model}")


@check("positional_encoding", points=1)
def reaches_far_positions_and_starts_afresh(student, rng):
    """Positions in the hundreds are right, and so is a shorter or wider table asked for afterwards."""
    far, d_model = int(rng.integers(150, 300)), 2 * int(rng.integers(4, 9))
    near = int(rng.integers(3, 9))
    for length, width in ((far, d_model), (near, d_model), (near, d_model + 4), (far + 7, d_model)):
        got = student.run("positional_encoding", length, width)
        what = f"{POSITIONS} for seq_len={length}, d_model={width}"
        expect(got, encoding(range(length), width), what, tolerance=1e-3)


# ------------------------------------------------------------------------------------------------------- shift_matrix


def _shifts(student, offset: int, d_model: int) -> None:
    matrix = student.run("shift_matrix", offset, d_model)
    require_array(matrix, "the shift matrix")
    shape = tuple(matrix.shape)
    require(shape == (d_model, d_model), f"The shift matrix for d_model={d_model}: shape {shape}, expected square.")
    positions = np.arange(60.0) + 60.0
    moved = encoding(positions, d_model) @ matrix.astype(np.float64).T
    what = f"shift_matrix({offset}, {d_model}) applied to the encodings of positions 60, 61, …"
    expect(moved, encoding(positions + offset, d_model), what, tolerance=1e-3)


@check("shift_matrix", points=1)
def shift_has_the_stated_shape_and_dtype(student, rng):
    """The matrix is a float32 tensor of shape (d_model, d_model)."""
    for d_model in (2, 6, 2 * int(rng.integers(4, 10))):
        got = student.run("shift_matrix", int(rng.integers(1, 9)), d_model)
        require_array(got, "the shift matrix")
        shape = tuple(got.shape)
        require(shape == (d_model, d_model), f"For d_model={d_model} the shift matrix has shape {shape}.")
        require(str(got.dtype) == "float32", f"The shift matrix's dtype is {got.dtype}, expected float32.")


@check("shift_matrix", points=2)
def shift_moves_positions_forward(student, rng):
    """One and the same matrix takes the encoding of every position p to that of p + offset, for offsets above zero."""
    for _ in range(3):
        _shifts(student, int(rng.integers(1, 25)), 2 * int(rng.integers(2, 10)))


@check("shift_matrix", points=2)
def shift_moves_positions_backward(student, rng):
    """The same holds for negative offsets."""
    for _ in range(3):
        _shifts(student, -int(rng.integers(1, 25)), 2 * int(rng.integers(2, 10)))


@check("shift_matrix", points=1)
def shift_by_zero_changes_nothing(student, rng):
    """Offset 0 gives the identity, and opposite offsets undo each other."""
    d_model, offset = 2 * int(rng.integers(2, 9)), int(rng.integers(2, 30))
    zero = student.run("shift_matrix", 0, d_model)
    expect(zero, np.eye(d_model), "shift_matrix(0, d_model)")
    forward, backward = (student.run("shift_matrix", k, d_model) for k in (offset, -offset))
    require_array(forward, "the shift matrix")
    require_array(backward, "the shift matrix")
    require(forward.shape == backward.shape == (d_model, d_model), "The shift matrix is not square.")
    what = "the product of the matrices for offset and −offset"
    expect(forward.astype(np.float64) @ backward.astype(np.float64), np.eye(d_model), what)


# ----------------------------------------------------------------------------------------------- TransformerEmbedding

TABLE = "token.embedding.weight"


def _embedding(rng, pad_id=None):
    """Sizes that all differ, a table of tokens, and ids (B, L) with L below max_len."""
    vocab, d_model, max_len = int(rng.integers(11, 17)), 2 * int(rng.integers(3, 5)), int(rng.integers(18, 25))
    table = rng.normal(size=(vocab, d_model)).astype(np.float32)
    if pad_id is not None:
        table[pad_id] = 0
    ids = rng.integers(0, vocab, size=(3, int(rng.integers(4, 6))))
    return vocab, d_model, max_len, table, ids


def _sum(table, ids):
    d_model = table.shape[1]
    return table[ids].astype(np.float64) * np.sqrt(d_model) + encoding(range(ids.shape[1]), d_model)


@check("TransformerEmbedding", points=2)
def adds_positions_to_scaled_tokens(student, rng):
    """The output is the token embedding (already scaled by √d_model) plus the encoding of each position."""
    vocab, d_model, max_len, table, ids = _embedding(rng)
    got = student.run("TransformerEmbedding", ids, init=(vocab, d_model, max_len), state={TABLE: table})
    expect(got, _sum(table, ids), "the embedding of ids (B, L)")


@check("TransformerEmbedding", points=1)
def counts_positions_along_the_sequence(student, rng):
    """Positions run along the sequence and not along the batch, up to max_len tokens, also for one sentence alone."""
    vocab, d_model, max_len, table, _ = _embedding(rng)
    for shape in ((max_len + 3, 5), (1, max_len), (2, 1)):
        ids = rng.integers(0, vocab, size=shape)
        call = {"init": (vocab, d_model, max_len), "state": {TABLE: table}, "want": ("output", "again")}
        for got, time in zip(student.run("TransformerEmbedding", ids, **call), ("", " in a second call"), strict=True):
            expect(got, _sum(table, ids), f"the embedding of ids {shape}{time}")


@check("TransformerEmbedding", points=1)
def drops_entries_of_the_sum_while_training(student, rng):
    """In training mode dropout acts on the sum of token and position; in evaluation mode it does nothing."""
    vocab, d_model, max_len, table, _ = _embedding(rng)
    ids, rate = rng.integers(0, vocab, size=(40, 15)), float(rng.choice([0.25, 0.4]))
    call = {"init": (vocab, d_model, max_len, rate), "state": {TABLE: table}, "seed": int(rng.integers(2**31))}
    whole = _sum(table, ids)
    expect(student.run("TransformerEmbedding", ids, mode="eval", **call), whole, "the embedding in evaluation mode")
    got = student.run("TransformerEmbedding", ids, mode="train", **call)
    require_array(got, "the embedding in training mode")
    shape = tuple(got.shape)
    require(shape == whole.shape, f"The embedding in training mode: shape {shape}, expected {whole.shape}.")
    dropped = got == 0
    share = float(dropped.mean())
    # 40·15·6 entries: five standard deviations are below 0.05.
    require(
        abs(share - rate) < 0.05, f"With dropout={rate:g}, {100 * share:.0f} % of the entries are zero in training."
    )
    expect(
        got, np.where(dropped, 0.0, whole / (1 - rate)), "the entries that dropout leaves, scaled by 1/(1 − dropout)"
    )


@check("TransformerEmbedding", points=1)
def keeps_the_table_of_positions_out_of_the_weights(student, rng):
    """The token table is the only parameter and the only entry of the state_dict: positions are neither learnt nor saved."""
    vocab, d_model, max_len, _, _ = _embedding(rng)
    names, shapes = student.run(
        "TransformerEmbedding", init=(vocab, d_model, max_len), want=("state_names", "parameter_shapes")
    )
    require(TABLE in names, f"The state_dict has no {TABLE}; it has {', '.join(names) or 'nothing'}.")
    learnt, saved = (", ".join(n for n in found if n != TABLE) for found in (shapes, names))
    require(not learnt, f"Training would change {learnt}: positions are fixed, so keep their table in a buffer.")
    require(not saved, f"The state_dict also holds {saved}: register the buffer with persistent=False.")
    require(shapes == {TABLE: [vocab, d_model]}, f"The trainable parameters are {shapes}, expected {TABLE} alone.")


@check("TransformerEmbedding", points=1)
def hands_on_the_padding_row_and_the_gradient(student, rng):
    """The padding token's own vector is zero and stays without gradient; every other token's row receives its gradient."""
    pad = int(rng.integers(1, 5))
    vocab, d_model, max_len, table, ids = _embedding(rng, pad)
    ids[0, 0], ids[-1, -1] = pad, pad
    init = (vocab, d_model, max_len, 0.0, pad)
    initial = student.run("TransformerEmbedding", init=init, want="initial_state")
    require_array(initial.get(TABLE), f"the parameter {TABLE}")
    row = np.abs(initial[TABLE][pad]).max() if initial[TABLE].shape == (vocab, d_model) else np.inf
    require(
        row == 0, f"The row of pad_id={pad} in a new token table is not zero: is pad_id handed on to TokenEmbedding?"
    )
    got, grads = student.run(
        "TransformerEmbedding", ids, init=init, state={TABLE: table}, want=("output", "parameter_grads")
    )
    expect(got, _sum(table, ids), "the embedding with padding")
    require(grads.get(TABLE) is not None, "No gradient reaches the token table.")
    want = np.zeros((vocab, d_model))
    np.add.at(want, ids, cotangent((*ids.shape, d_model)) * np.sqrt(d_model))
    want[pad] = 0
    expect(grads[TABLE], want, "the gradient of the token table")
