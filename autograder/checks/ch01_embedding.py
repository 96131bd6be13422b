"""Hidden checks of chapter 1. The oracle is plain indexing in NumPy, whose gradient is a sum over the places of each id."""

import numpy as np

from autograder.compare import expect, require, require_array
from autograder.oracles import distinct_sizes, normal, require_dtype
from autograder.registry import check
from autograder.student import StudentError
from transformer_lab.driver import cotangent

#: A row is taken out, not computed: only softened or rounded one-hot vectors are further away.
EXACT = 1e-6


def row_gradients(ids, shape: tuple[int, int], scale: float = 1.0) -> np.ndarray:
    """d(Σ rows · scale · cotangent)/d(table): for each row, the sum over the places where its id stands."""
    table = np.zeros(shape)
    np.add.at(table, ids, cotangent((*ids.shape, shape[1])) * scale)
    return table


# ----------------------------------------------------------------------------------------------------- one_hot_lookup


def _lookup(rng, vocab: int, d_model: int, shape, dtype=np.float32):
    return rng.integers(0, vocab, size=shape), normal(rng, vocab, d_model, dtype=dtype)


@check("one_hot_lookup", points=2)
def lookup_takes_out_the_row_of_each_id(student, rng):
    """Each id of a batch (B, L) gets its own row of the table, whether V is larger or smaller than D."""
    batch, length = distinct_sizes(rng, 2, high=8)
    for vocab, d_model in ((13, 9), (10, 15), (int(rng.integers(20, 30)), int(rng.integers(16, 20)))):
        ids, table = _lookup(rng, vocab, d_model, (batch, length))
        got = student.run("one_hot_lookup", ids, table)
        expect(got, table[ids], f"the rows of ids {ids.shape} from a table {table.shape}", tolerance=EXACT)


@check("one_hot_lookup", points=1)
def lookup_takes_ids_of_any_shape(student, rng):
    """One id alone, shape (), a sequence (L,), a batch, more axes and axes of size 1; the first and the last id are reached."""
    batch, length, more = distinct_sizes(rng, 3, high=8)
    for shape in ((), (length,), (1,), (batch, 1), (1, length), (more, batch, length)):
        ids, table = _lookup(rng, 11, 9, shape)
        got = student.run("one_hot_lookup", ids, table)
        expect(got, table[ids], f"the rows of ids of shape {shape}", tolerance=EXACT)
    ids, table = np.array([10, 0, 10]), normal(rng, 11, 9)
    got = student.run("one_hot_lookup", ids, table)
    expect(got, table[ids], "the rows of the last id, the first and the last again", tolerance=EXACT)
    for only in (0, 10):
        got = student.run("one_hot_lookup", np.array([only]), table)
        expect(got, table[[only]], f"the row of id {only} of a table with 11 rows, asked for alone", tolerance=EXACT)


@check("one_hot_lookup", points=2)
def lookup_sums_the_gradients_of_equal_ids(student, rng):
    """The gradient of a row is the sum over all places where its id stands, and 0 where it stands nowhere; row 0 too."""
    vocab, d_model = 12, int(rng.integers(5, 8))
    often, never = (int(v) for v in rng.permutation(np.arange(1, vocab))[:2])
    for shape in ((3, 4), (9,)):
        ids, table = _lookup(rng, vocab, d_model, shape)
        ids[ids == never] = often
        ids.flat[0], ids.flat[1], ids.flat[-1] = often, 0, often
        grads = student.run("one_hot_lookup", ids, table, want="input_grads")
        require(grads[1] is not None, "No gradient reaches the table.")
        require_array(grads[1], "the gradient of the table")
        require(
            grads[1].shape == table.shape,
            f"The gradient of the table has shape {tuple(grads[1].shape)}, expected {table.shape}.",
        )
        want = row_gradients(ids, table.shape)
        expect(grads[1][often], want[often], "the gradient of the row of an id that occurs more than once")
        expect(grads[1][never], want[never], "the gradient of the row of an id that does not occur")
        expect(grads[1], want, "the gradient of the table")


@check("one_hot_lookup", points=1)
def lookup_keeps_dtypes_and_leaves_its_inputs_alone(student, rng):
    """float64 stays float64; ids and table stay as they are; a second call looks up in its own table."""
    batch, length = distinct_sizes(rng, 2, high=8)
    for dtype in (np.float32, np.float64):
        ids, table = _lookup(rng, 11, 9, (batch, length), dtype)
        table *= 3  # rows of a length that some would cut down
        others = _lookup(rng, 11, 9, (batch, length), dtype), _lookup(rng, 14, 6, (length, batch), dtype)
        for other, kind in zip(others, ("another table", "a table of other sizes"), strict=True):
            got, then, after = student.run("one_hot_lookup", ids, table, then=other, want=("output", "then", "inputs"))
            expect(got, table[ids], f"the rows of a {dtype.__name__} table", tolerance=EXACT)
            require_dtype(got, dtype, "tables", "rows")
            expect(then, other[1][other[0]], f"the rows of {kind} in a second call", tolerance=EXACT)
            require(np.array_equal(after[0], ids), "token_ids are others after the call: were they changed in place?")
            expect(after[1], table, "the table after the call (was it changed in place?)", tolerance=0)


# ----------------------------------------------------------------------------------------------------- TokenEmbedding

TOKEN, TABLE = "TokenEmbedding", "embedding.weight"

#: Float32 rounds a product to 1e-7 of it.
FINE = 1e-5


def _table(rng, dtype=np.float32):
    """V and D that differ, D no square number, and a table with short rows and long ones."""
    vocab, d_model = int(rng.integers(11, 15)), int(rng.choice([5, 6, 7, 8, 10]))
    lengths = rng.permutation(np.geomspace(0.1, 3, vocab))[:, None]
    return vocab, d_model, (normal(rng, vocab, d_model, dtype=np.float64) * lengths).astype(dtype)


def _scaled(table, ids) -> np.ndarray:
    return table[ids].astype(np.float64) * np.sqrt(table.shape[1])


@check(TOKEN, points=2)
def token_embedding_scales_rows_by_the_root_of_the_width(student, rng):
    """The output is √d_model times the row of each id, for whatever table is loaded, with padding and without."""
    for _ in range(3):
        vocab, d_model, table = _table(rng)
        for pad in (None, int(rng.integers(1, vocab))):
            ids = rng.integers(0, vocab, size=(3, 4))
            ids[1, 2] = 0 if pad is None else pad
            got = student.run(TOKEN, ids, init=(vocab, d_model, pad), state={TABLE: table})
            what = f"the output of {TOKEN}({vocab}, {d_model}, pad_id={pad}) with a given table"
            expect(got, _scaled(table, ids), what, tolerance=FINE)


@check(TOKEN, points=1)
def token_embedding_takes_ids_of_any_shape(student, rng):
    """A sequence (L,), a batch (B, L), further axes in front, lengths of 1; widths of 1 and beyond V."""
    vocab, _, table = _table(rng)
    one, wide = (normal(rng, vocab, width) for width in (1, vocab + 3))
    batch, length, more = distinct_sizes(rng, 3, high=8)
    for given, shape in (
        (table, (length,)),
        (table, (1,)),
        (table, (batch, 1)),
        (table, (1, length)),
        (table, (more, batch, length)),
        (one, (batch, length)),
        (wide, (batch, length)),
    ):
        ids = rng.integers(0, vocab, size=shape)
        got = student.run(TOKEN, ids, init=(*given.shape, None), state={TABLE: given})
        expect(got, _scaled(given, ids), f"the output for ids {shape} and a table {given.shape}", tolerance=FINE)


@check(TOKEN, points=2)
def token_embedding_has_one_table(student, rng):
    """All that is trained and saved is embedding.weight (V, D), that of an nn.Embedding, filled with random numbers."""
    vocab, d_model, _ = _table(rng)
    shapes, names, found, initial = student.run(
        TOKEN,
        init=(vocab, d_model, None),
        want=("parameter_shapes", "state_names", "padding_ids", "initial_state"),
    )
    require(TABLE in names, f"The state_dict has no {TABLE}; it has {', '.join(names) or 'nothing'}.")
    require(TABLE in shapes, f"{TABLE} is frozen (requires_grad=False), but it is to be trained.")
    extra = sorted((set(shapes) | set(names)) - {TABLE})
    require(not extra, f"{TOKEN} also has {', '.join(extra)}: the table is all that is trained and saved.")
    shape = tuple(shapes[TABLE])
    require(
        shape == (vocab, d_model), f"{TABLE} has shape {shape}, expected (vocab_size, d_model) = {(vocab, d_model)}."
    )
    require("embedding" in found, "The attribute embedding is no nn.Embedding.")
    require(
        np.ptp(initial[TABLE]) > 0, f"All entries of a new {TABLE} are alike: leave them as nn.Embedding draws them."
    )


@check(TOKEN, points=2)
def token_embedding_trains_the_rows_that_occur(student, rng):
    """Each row's gradient is √d_model times the sum over the places of its id, in training mode and in evaluation mode."""
    vocab, d_model, table = _table(rng)
    pad = int(rng.integers(1, vocab - 1))
    others = np.delete(np.arange(vocab), pad)
    for mode in ("train", "eval"):
        ids = rng.choice(others, size=(4, 5))
        ids[0, 0] = ids[1, 2] = ids[3, 4]
        grads = student.run(
            TOKEN, ids, init=(vocab, d_model, pad), state={TABLE: table}, mode=mode, want="parameter_grads"
        )
        require(grads.get(TABLE) is not None, f"No gradient reaches {TABLE}.")
        want = row_gradients(ids, table.shape, np.sqrt(d_model))
        expect(grads[TABLE], want, f"the gradient of {TABLE}")


@check(TOKEN, points=2)
def token_embedding_starts_with_an_empty_padding_row(student, rng):
    """Row pad_id of a new table is zero, be it the first, one in the middle or the last, and no other row is."""
    vocab, d_model, _ = _table(rng)
    for pad in (int(rng.integers(2, vocab - 1)), 0, vocab - 1, 1):
        initial = student.run(TOKEN, init=(vocab, d_model, pad), want="initial_state")
        _require_table(initial, vocab, d_model)
        filled = np.abs(initial[TABLE]).max(axis=1) > 0
        require(not filled[pad], f"Row pad_id={pad} of a new {TABLE} is not zero: is pad_id handed on to nn.Embedding?")
        empty = np.flatnonzero(~filled)
        require(
            len(empty) == 1, f"With pad_id={pad}, rows {empty.tolist()} of a new {TABLE} are zero: only row {pad} is."
        )


@check(TOKEN, points=2)
def token_embedding_does_not_train_the_padding_row(student, rng):
    """Row pad_id gets no gradient however often it occurs, be it the first, one in the middle or the last."""
    vocab, d_model, table = _table(rng)
    for pad in (int(rng.integers(2, vocab - 1)), 0, vocab - 1, 1):
        table[pad] = 0
        ids = rng.integers(0, vocab, size=(4, 5))
        ids[0, 0] = ids[2, 3] = pad
        grads, found = student.run(
            TOKEN,
            ids,
            init=(vocab, d_model, pad),
            state={TABLE: table},
            mode="train",
            want=("parameter_grads", "padding_ids"),
        )
        grad = grads.get(TABLE)
        require(grad is not None, f"No gradient reaches {TABLE}, not even the rows of real tokens.")
        require_array(grad, f"the gradient of {TABLE}")
        # Whoever tells nn.Embedding of the padding row and then indexes or multiplies its weight keeps the points here;
        # that the gradient is zero all the same, the visible tests insist.
        told = found.get("embedding") == pad
        require(
            told or grad.shape != table.shape or not grad[pad].any(),
            f"Row pad_id={pad} gets a gradient, so that training fills it: hand pad_id to nn.Embedding as padding_idx.",
        )


@check(TOKEN, points=2)
def token_embedding_treats_all_rows_alike_without_padding(student, rng):
    """With pad_id=None, which is the default, no row is zero at the start, and each that occurs is trained, row 0 too."""
    vocab, d_model, table = _table(rng)
    ids = np.append(rng.permutation(vocab), rng.integers(0, vocab, size=5))
    for init in ((vocab, d_model, None), (vocab, d_model)):
        kind = "with pad_id=None" if len(init) == 3 else "without pad_id"
        try:
            initial = student.run(TOKEN, init=init, want="initial_state")
        except StudentError as error:
            # The visible tests insist on the default.
            if len(init) == 2 and error.type_name == "TypeError" and "pad_id" in error.message:
                return
            raise
        _require_table(initial, vocab, d_model)
        empty = np.flatnonzero(np.abs(initial[TABLE]).max(axis=1) == 0)
        require(not len(empty), f"A new {TABLE} {kind} has rows of zeros, {empty.tolist()}: no row is special then.")
        grads = student.run(TOKEN, ids, init=init, state={TABLE: table}, want="parameter_grads")
        require(grads.get(TABLE) is not None, f"No gradient reaches {TABLE}.")
        require_array(grads[TABLE], f"the gradient of {TABLE}")
        left_out = np.flatnonzero(np.abs(grads[TABLE]).max(axis=-1) == 0)
        require(not len(left_out), f"Rows {left_out.tolist()} get no gradient {kind}, though their ids occur.")


@check(TOKEN, points=1)
def token_embedding_is_the_same_in_every_call(student, rng):
    """Training and evaluation mode agree, ids stay as they are, a second call sees its own ids only, float64 is kept."""
    for dtype in (np.float32, np.float64):
        vocab, d_model, table = _table(rng, dtype=dtype)
        for mode in ("train", "eval"):
            ids, other = (rng.integers(0, vocab, size=(3, 4)) for _ in range(2))
            got, again, then, after = student.run(
                TOKEN,
                ids,
                init=(vocab, d_model, None),
                state={TABLE: table},
                mode=mode,
                then=(other,),
                want=("output", "again", "then", "inputs"),
            )
            expect(got, _scaled(table, ids), f"the output for a {dtype.__name__} table in {mode} mode", tolerance=FINE)
            require_dtype(got, dtype, "tables", "an output")
            expect(again, got, f"the output of a second call in {mode} mode", tolerance=FINE)
            expect(then, _scaled(table, other), "the output of a later call with other ids", tolerance=FINE)
            require(np.array_equal(after[0], ids), "token_ids are others after the call: were they changed in place?")


def _require_table(state, vocab, d_model) -> None:
    require(TABLE in state, f"The state_dict has no {TABLE}; it has {', '.join(state) or 'nothing'}.")
    shape = tuple(state[TABLE].shape)
    require(shape == (vocab, d_model), f"{TABLE} has shape {shape}, expected {(vocab, d_model)}.")
