"""Hidden checks of chapter 2. The oracle is the paper's formula (Vaswani et al. 2017, section 3.5) in float64 NumPy."""

import numpy as np

from autograder.compare import expect, require, require_array, require_within
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
    """The table is a float32 tensor of constants of shape (seq_len, d_model), for lengths above and below the width."""
    for length, d_model in ((5, 8), (12, 6), sizes(rng)):
        got, tracked = student.run("positional_encoding", length, d_model, want=("output", "requires_grad"))
        require_array(got, POSITIONS)
        shape, size = tuple(got.shape), (length, d_model)
        require(shape == size, f"For seq_len={length}, d_model={d_model} the shape is {shape}, expected {size}.")
        require(str(got.dtype) == "float32", f"The table's dtype is {got.dtype}, expected float32.")
        require(
            not tracked,
            "The table requires a gradient: it is made of constants, so use plain tensors and no nn.Parameter.",
        )


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
    """Positions up to 500 are right, and so is a shorter or wider table asked for afterwards."""
    far, d_model = int(rng.integers(420, 494)), 2 * int(rng.integers(4, 9))
    near = int(rng.integers(3, 9))
    for length, width in ((far, d_model), (near, d_model), (near, d_model + 4), (far + 7, d_model)):
        got = student.run("positional_encoding", length, width)
        what = f"{POSITIONS} for seq_len={length}, d_model={width}"
        # Float32 arithmetic is up to 3e-5 away at position 500; the specification asks for 1e-4.
        expect(got, encoding(range(length), width), what, tolerance=2e-4)


# ------------------------------------------------------------------------------------------------------- shift_matrix


def rotations(offset: int, d_model: int) -> np.ndarray:
    """The only matrix that moves every position by ``offset``: [[cos, sin], [−sin, cos]] of each pair's angle."""
    even = np.arange(0, d_model, 2)
    angles = offset * 10000.0 ** (-even / d_model)
    matrix = np.zeros((d_model, d_model))
    matrix[even, even] = matrix[even + 1, even + 1] = np.cos(angles)
    matrix[even, even + 1], matrix[even + 1, even] = np.sin(angles), -np.sin(angles)
    return matrix


def _shifts(student, offset: int, d_model: int) -> None:
    call = f"shift_matrix({offset}, {d_model})"
    matrix = student.run("shift_matrix", offset, d_model)
    require_array(matrix, "the shift matrix")
    shape = tuple(matrix.shape)
    require(shape == (d_model, d_model), f"`{call}` has shape {shape}, expected {(d_model, d_model)}.")
    positions = np.arange(60.0) + 60.0
    moved = encoding(positions, d_model) @ matrix.astype(np.float64).T
    what = f"{call} applied to the encodings of positions 60, 61, …"
    expect(moved, encoding(positions + offset, d_model), what, tolerance=1e-3)
    # Slow pairs barely move, so that applying the matrix forgives what looking at its entries does not.
    expect(matrix, rotations(offset, d_model), f"the matrix {call}")
    pairs = np.arange(d_model) // 2
    outside = matrix[pairs[:, None] != pairs]
    require(
        (outside == 0).all(),
        f"`{call}` has entries outside its 2 × 2 blocks that are small but not exactly 0: build it from the formula.",
    )


@check("shift_matrix", points=1)
def shift_has_the_stated_shape_and_dtype(student, rng):
    """The matrix is a float32 tensor of shape (d_model, d_model)."""
    for d_model in (2, 6, 2 * int(rng.integers(4, 10))):
        got = student.run("shift_matrix", int(rng.integers(1, 9)), d_model)
        require_array(got, "the shift matrix")
        shape = tuple(got.shape)
        size = (d_model, d_model)
        require(shape == size, f"For d_model={d_model} the shift matrix has shape {shape}, expected {size}.")
        require(str(got.dtype) == "float32", f"The shift matrix's dtype is {got.dtype}, expected float32.")


@check("shift_matrix", points=2)
def shift_moves_positions_forward(student, rng):
    """One and the same matrix takes the encoding of every position p to that of p + offset, for offsets up to 500."""
    for offset in (*rng.integers(1, 25, size=3), rng.integers(300, 501)):
        _shifts(student, int(offset), 2 * int(rng.integers(2, 10)))


@check("shift_matrix", points=2)
def shift_moves_positions_backward(student, rng):
    """The same holds for negative offsets, down to −500."""
    for offset in (*rng.integers(1, 25, size=3), rng.integers(300, 501)):
        _shifts(student, -int(offset), 2 * int(rng.integers(2, 10)))


@check("shift_matrix", points=1)
def shift_by_zero_changes_nothing(student, rng):
    """Offset 0 gives the identity, and opposite offsets undo each other."""
    d_model, offset = 2 * int(rng.integers(2, 9)), int(rng.integers(2, 30))
    zero = student.run("shift_matrix", 0, d_model)
    expect(zero, np.eye(d_model), f"the matrix shift_matrix(0, {d_model})")
    forward, backward = (student.run("shift_matrix", k, d_model) for k in (offset, -offset))
    require_array(forward, "the shift matrix")
    require_array(backward, "the shift matrix")
    for matrix in (forward, backward):
        shape, size = tuple(matrix.shape), (d_model, d_model)
        require(shape == size, f"For d_model={d_model} the shift matrix has shape {shape}, expected {size}.")
    what = f"the product of shift_matrix({offset}, {d_model}) and shift_matrix({-offset}, {d_model})"
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


#: Float32 rounds such sums to 1e-6. Half precision in the table of positions would pass for the common tolerance.
FINE = 1e-5


def _sum(table, ids):
    d_model = table.shape[1]
    return table[ids].astype(np.float64) * np.sqrt(d_model) + encoding(range(ids.shape[1]), d_model)


@check("TransformerEmbedding", points=2)
def adds_positions_to_scaled_tokens(student, rng):
    """The output is the token embedding (already scaled by √d_model) plus the encoding of each position."""
    vocab, d_model, max_len, table, ids = _embedding(rng)
    got = student.run("TransformerEmbedding", ids, init=(vocab, d_model, max_len), state={TABLE: table})
    expect(got, _sum(table, ids), "the embedding of ids (B, L)", tolerance=FINE, dtype="float32")


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
    """In training mode dropout acts on the sum, entry by entry; by default, and in evaluation mode, it does nothing."""
    vocab, d_model, max_len, table, _ = _embedding(rng)
    ids, rate = rng.integers(0, vocab, size=(40, 15)), float(rng.choice([0.25, 0.4]))
    call = {"init": (vocab, d_model, max_len, rate), "state": {TABLE: table}, "seed": int(rng.integers(2**31))}
    whole = _sum(table, ids)
    expect(student.run("TransformerEmbedding", ids, mode="eval", **call), whole, "the embedding in evaluation mode")
    without = call | {"init": (vocab, d_model, max_len)}
    expect(student.run("TransformerEmbedding", ids, mode="train", **without), whole, "the embedding without dropout")
    got, again = student.run("TransformerEmbedding", ids, mode="train", want=("output", "again"), **call)
    require_array(got, "the embedding in training mode")
    shape = tuple(got.shape)
    require(shape == whole.shape, f"The embedding in training mode: shape {shape}, expected {whole.shape}.")
    dropped = got == 0
    share = float(dropped.mean())
    # 40·15·6 entries: five standard deviations are below 0.05.
    require_within(
        abs(share - rate),
        0.05,
        f"With dropout={rate:g}, {100 * share:.0f} % of the entries are zero in training, expected {100 * rate:.0f} %.",
    )
    expect(
        got, np.where(dropped, 0.0, whole / (1 - rate)), "the entries that dropout leaves, scaled by 1/(1 − dropout)"
    )
    for axis, alike in enumerate(("sentences of a batch", "positions of a sentence", "numbers of a token's vector")):
        require(
            (dropped != dropped.take([0], axis)).any(),
            f"Dropout treats all {alike} alike: it chooses each entry of (B, L, D) by itself, as nn.Dropout does.",
        )
    require_array(again, "the embedding in a second call in training mode")
    require(
        not np.array_equal(again, got),
        "Dropout sets the same entries to 0 in every call: it draws new ones each time, so don't keep or seed the draw.",
    )


@check("TransformerEmbedding", points=1)
def keeps_the_table_of_positions_out_of_the_weights(student, rng):
    """The token table is the only parameter and all that is saved; the table of positions is a buffer."""
    vocab, d_model, max_len, _, _ = _embedding(rng)
    names, shapes, buffers = student.run(
        "TransformerEmbedding",
        init=(vocab, d_model, max_len),
        want=("state_names", "parameter_shapes", "buffer_shapes"),
    )
    require(TABLE in names, f"The state_dict has no {TABLE}; it has {', '.join(names) or 'nothing'}.")
    learnt, saved = (", ".join(n for n in found if n != TABLE) for found in (shapes, names))
    require(not learnt, f"Training would change {learnt}: positions are fixed, so keep their table in a buffer.")
    require(not saved, f"The state_dict also holds {saved}: register the buffer with persistent=False.")
    require(TABLE in shapes, f"{TABLE} is frozen (requires_grad=False), but it is to be trained.")
    shape = tuple(shapes[TABLE])
    require(shape == (vocab, d_model), f"{TABLE} has shape {shape}, expected {(vocab, d_model)}.")
    require(
        buffers,
        "No buffer holds the table of positions, so that it would not follow the module to another device: "
        "make it in __init__ and keep it with register_buffer(…, persistent=False).",
    )
    kept, needed = sum(int(np.prod(size)) for size in buffers.values()), max_len * d_model
    require(
        kept >= needed,
        f"The buffers hold {kept} numbers, but the table of max_len={max_len} positions has {needed}: make it in "
        "__init__, for max_len positions.",
    )


@check("TransformerEmbedding", points=1)
def hands_on_the_padding_row_and_the_gradient(student, rng):
    """The padding token's own vector is zero and stays without gradient; every other token's row receives its gradient."""
    for pad in (int(rng.integers(1, 5)), 0):
        _hands_on_the_padding_row(student, rng, pad)


def _hands_on_the_padding_row(student, rng, pad):
    vocab, d_model, max_len, table, ids = _embedding(rng, pad)
    ids[0, 0], ids[-1, -1] = pad, pad
    init = (vocab, d_model, max_len, 0.0, pad)
    initial = student.run("TransformerEmbedding", init=init, want="initial_state")
    require(TABLE in initial, f"The state_dict has no {TABLE}; it has {', '.join(initial) or 'nothing'}.")
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
