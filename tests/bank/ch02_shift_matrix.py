"""shift_matrix(offset, d_model): the rotation that moves along the table, and what people make of it."""

from .entry import Collector

BANK = Collector("shift_matrix", "shift")

# ----------------------------------------------------------------------------------------------------------- right

BANK.right(
    "entries",
    "Four assignments to strided places of a zero matrix.",
    """
def shift_matrix(offset, d_model):
    angle = offset * 10000.0 ** (-torch.arange(0, d_model, 2).double() / d_model)
    even = torch.arange(0, d_model, 2)
    m = torch.zeros(d_model, d_model)
    m[even, even] = m[even + 1, even + 1] = angle.cos().float()
    m[even, even + 1] = angle.sin().float()
    m[even + 1, even] = -angle.sin().float()
    return m
""",
)
BANK.right(
    "diagonals",
    "A sum of three diagonals, every second entry of the outer two being zero.",
    """
def shift_matrix(offset, d_model):
    angle = offset / 10000 ** (torch.arange(0, d_model, 2).double() / d_model)
    side = torch.stack((angle.sin(), torch.zeros_like(angle)), 1).flatten()[:-1]
    main = torch.diag(angle.cos().repeat_interleave(2))
    return (main + torch.diag(side, 1) - torch.diag(side, -1)).float()
""",
)
BANK.right(
    "numpy-loop",
    "A NumPy loop over pairs, converted at the end.",
    """
def shift_matrix(offset, d_model):
    m = np.zeros((d_model, d_model), dtype=np.float32)
    for start in range(0, d_model, 2):
        w = offset / 10000 ** (start / d_model)
        m[start : start + 2, start : start + 2] = [[np.cos(w), np.sin(w)], [-np.sin(w), np.cos(w)]]
    return torch.from_numpy(m)
""",
)
BANK.right(
    "power-of-one-step",
    "The float64 matrix of one step, raised to the power of the offset, which may be negative.",
    """
def shift_matrix(offset, d_model):
    blocks = []
    for i in range(d_model // 2):
        w = torch.tensor(10000.0 ** (-2 * i / d_model), dtype=torch.float64)
        blocks.append(torch.stack([w.cos(), w.sin(), -w.sin(), w.cos()]).view(2, 2))
    one = torch.block_diag(*blocks)
    return torch.linalg.matrix_power(one if offset >= 0 else one.T, abs(offset)).float()
""",
)
BANK.right(
    "generator",
    "The exponential of the offset times the antisymmetric generator, block by block.",
    """
def shift_matrix(offset, d_model):
    turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    rates = 10000.0 ** (-torch.arange(0, d_model, 2).double() / d_model)
    return torch.block_diag(*torch.linalg.matrix_exp(offset * rates[:, None, None] * turn)).float()
""",
)
BANK.right(
    "from-row-of-table",
    "Reads sine and cosine off row |k| of a table made inside, and transposes to go back.",
    """
def shift_matrix(offset, d_model):
    angle = abs(offset) / 10000 ** (torch.arange(0, d_model, 2).double() / d_model)
    row = torch.stack((angle.sin(), angle.cos()), 1).flatten().float()
    m = torch.zeros(d_model, d_model)
    for even in range(0, d_model, 2):
        sine, cosine = row[even], row[even + 1]
        m[even, even], m[even + 1, even + 1], m[even, even + 1], m[even + 1, even] = cosine, cosine, sine, -sine
    return m if offset >= 0 else m.T
""",
)
BANK.right(
    "einsum-embedding",
    "Blocks (pairs, 2, 2) spread to (D, D) by an einsum with the identity.",
    """
def shift_matrix(offset, d_model):
    pairs = d_model // 2
    angle = offset * torch.exp(torch.arange(pairs, dtype=torch.float64) * (-2 * math.log(10000.0) / d_model))
    blocks = torch.stack((torch.stack((angle.cos(), angle.sin()), -1), torch.stack((-angle.sin(), angle.cos()), -1)), -2)
    return torch.einsum("pij,pq->piqj", blocks, torch.eye(pairs).double()).reshape(d_model, d_model).float()
""",
)

BANK.right(
    "float32-power",
    "The float32 matrix of one step, multiplied again and again.",
    """
def _right(k, D):
    m = torch.zeros(D, D, dtype=torch.float64)
    for i in range(0, D, 2):
        a = k / 10000 ** (i / D)
        m[i : i + 2, i : i + 2] = torch.tensor(
            [[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]], dtype=torch.float64
        )
    return m.float()


def shift_matrix(offset, d_model):
    one = _right(1 if offset >= 0 else -1, d_model)
    m = torch.eye(d_model)
    for _ in range(abs(offset)):
        m = m @ one
    return m
""",
)

BANK.right(
    "inverse",
    "Negative offsets by the inverse matrix.",
    """
def _right(k, D):
    m = torch.zeros(D, D, dtype=torch.float64)
    for i in range(0, D, 2):
        a = k / 10000 ** (i / D)
        m[i : i + 2, i : i + 2] = torch.tensor(
            [[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]], dtype=torch.float64
        )
    return m.float()


def shift_matrix(offset, d_model):
    if offset < 0:
        return torch.linalg.inv(shift_matrix(-offset, d_model))
    return _right(offset, d_model)
""",
)

BANK.right(
    "kron-eye",
    "Two Kronecker products, for the cosines and for the sines.",
    """
def shift_matrix(offset, d_model):
    a = offset * 1e4 ** (-torch.arange(0, d_model, 2).double() / d_model)
    J = torch.tensor([[0.0, 1.0], [-1.0, 0.0]]).double()
    return (
        torch.kron(torch.diag(a.cos()), torch.eye(2).double()) + torch.kron(torch.diag(a.sin()), J)
    ).float()
""",
)

BANK.right(
    "float32-angles",
    "Frequencies by exp and log in float32.",
    """
def shift_matrix(offset, d_model):
    f = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
    a = offset * f
    c, s = torch.cos(a), torch.sin(a)
    return torch.block_diag(*torch.stack([torch.stack([c, s], -1), torch.stack([-s, c], -1)], -2))
""",
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "backwards",
    "The usual rotation matrix of textbooks, which turns these rows backwards.",
    """
def shift_matrix(offset, d_model):
    blocks = []
    for i in range(0, d_model, 2):
        a = offset / 10000 ** (i / d_model)
        blocks.append(torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]]))
    return torch.block_diag(*blocks)
""",
    "rotates-backwards",
)
BANK.wrong(
    "both-signs-plus",
    "Both sines with the same sign, so that the matrix is no rotation.",
    """
def shift_matrix(offset, d_model):
    blocks = []
    for i in range(0, d_model, 2):
        a = offset / 10000 ** (i / d_model)
        blocks.append(torch.tensor([[math.cos(a), math.sin(a)], [math.sin(a), math.cos(a)]]))
    return torch.block_diag(*blocks)
""",
    "both-sines-positive",
)
BANK.wrong(
    "reflection",
    "The minus sign stands before a cosine.",
    """
def shift_matrix(offset, d_model):
    blocks = []
    for i in range(0, d_model, 2):
        a = offset / 10000 ** (i / d_model)
        blocks.append(torch.tensor([[math.cos(a), math.sin(a)], [math.sin(a), -math.cos(a)]]))
    return torch.block_diag(*blocks)
""",
)
BANK.wrong(
    "sine-on-diagonal",
    "Sine and cosine exchanged: the matrix of offset 0 is no identity.",
    """
def shift_matrix(offset, d_model):
    blocks = []
    for i in range(0, d_model, 2):
        a = offset / 10000 ** (i / d_model)
        blocks.append(torch.tensor([[math.sin(a), math.cos(a)], [-math.cos(a), math.sin(a)]]))
    return torch.block_diag(*blocks)
""",
)
BANK.wrong(
    "halves",
    "Four diagonal quarters, for a table with its sines in the first half.",
    """
def shift_matrix(offset, d_model):
    a = offset / 10000 ** (torch.arange(0, d_model, 2).double() / d_model)
    c, s = torch.diag(a.cos()), torch.diag(a.sin())
    return torch.cat([torch.cat([c, s], 1), torch.cat([-s, c], 1)], 0).float()
""",
    "shift-halves-not-interleaved",
)
BANK.wrong(
    "doubled-exponent",
    "The even column number is doubled again in the exponent.",
    """
def shift_matrix(offset, d_model):
    m = torch.eye(d_model)
    for i in range(0, d_model, 2):
        a = offset / 10000 ** (2 * i / d_model)
        m[i, i] = m[i + 1, i + 1] = math.cos(a)
        m[i, i + 1], m[i + 1, i] = math.sin(a), -math.sin(a)
    return m
""",
    "shift-doubled-exponent",
)
BANK.wrong(
    "halved-exponent",
    "The pair number over D, without the factor two.",
    """
def shift_matrix(offset, d_model):
    m = torch.eye(d_model)
    for i in range(d_model // 2):
        a = offset / 10000 ** (i / d_model)
        m[2 * i, 2 * i] = m[2 * i + 1, 2 * i + 1] = math.cos(a)
        m[2 * i, 2 * i + 1], m[2 * i + 1, 2 * i] = math.sin(a), -math.sin(a)
    return m
""",
    "shift-exponent-not-doubled",
)
BANK.wrong(
    "one-frequency",
    "Every pair turns by the full offset.",
    """
def shift_matrix(offset, d_model):
    c, s = math.cos(offset), math.sin(offset)
    return torch.block_diag(*[torch.tensor([[c, s], [-s, c]])] * (d_model // 2))
""",
    "one-speed-for-all-pairs",
)
BANK.wrong(
    "offset-as-distance",
    "Takes the absolute value of the offset, so that going back goes on.",
    """
def shift_matrix(offset, d_model):
    blocks = []
    for i in range(0, d_model, 2):
        a = abs(offset) / 10000 ** (i / d_model)
        blocks.append(torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]))
    return torch.block_diag(*blocks)
""",
    "only-forward",
)
BANK.wrong(
    "steps-of-a-loop",
    "One step applied offset times: for a negative offset the loop does not run.",
    """
def shift_matrix(offset, d_model):
    step = torch.zeros(d_model, d_model, dtype=torch.float64)
    for i in range(0, d_model, 2):
        w = 10000 ** (-i / d_model)
        step[i, i] = step[i + 1, i + 1] = math.cos(w)
        step[i, i + 1], step[i + 1, i] = math.sin(w), -math.sin(w)
    m = torch.eye(d_model, dtype=torch.float64)
    for _ in range(offset):
        m = step @ m
    return m.float()
""",
)
BANK.wrong(
    "refuses-negative",
    "Raises for a negative offset.",
    """
def shift_matrix(offset, d_model):
    if offset < 0:
        raise ValueError("offset must not be negative")
    blocks = []
    for i in range(0, d_model, 2):
        a = offset / 10000 ** (i / d_model)
        blocks.append(torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]))
    return torch.block_diag(*blocks)
""",
)
BANK.wrong(
    "rolled-identity",
    "Moves columns instead of turning pairs: the identity, rolled.",
    """
def shift_matrix(offset, d_model):
    return torch.roll(torch.eye(d_model), offset, dims=0)
""",
)
BANK.wrong(
    "least-squares",
    "Fitted to rows of the table: the slow pairs are hardly determined, and nothing keeps the other entries at 0.",
    """
def shift_matrix(offset, d_model):
    p = torch.arange(0, 2 * d_model).double()[:, None]
    rate = 10000.0 ** (-torch.arange(0, d_model, 2).double() / d_model)
    here = torch.stack(((p * rate).sin(), (p * rate).cos()), 2).flatten(1).float()
    there = torch.stack((((p + offset) * rate).sin(), ((p + offset) * rate).cos()), 2).flatten(1).float()
    return torch.linalg.lstsq(here, there).solution.T.contiguous()
""",
)
BANK.wrong(
    "pseudo-inverse",
    "From the pseudo-inverse of six rows of the table, as many as the tiny example has.",
    """
def shift_matrix(offset, d_model):
    p = torch.arange(6).double()[:, None]
    rate = 10000.0 ** (-torch.arange(0, d_model, 2).double() / d_model)
    here = torch.stack(((p * rate).sin(), (p * rate).cos()), 2).flatten(1)
    there = torch.stack((((p + offset) * rate).sin(), ((p + offset) * rate).cos()), 2).flatten(1)
    return (torch.linalg.pinv(here) @ there).T.float().contiguous()
""",
)
BANK.wrong(
    "outer-product",
    "Takes row 0 to the right place and no other row.",
    """
def shift_matrix(offset, d_model):
    rate = 10000.0 ** (-torch.arange(0, d_model, 2).double() / d_model)
    row = torch.stack(((offset * rate).sin(), (offset * rate).cos()), 1).flatten()
    start = torch.tensor([0.0, 1.0]).double().repeat(d_model // 2)
    return (torch.outer(row, start) / start.sum()).float()
""",
)
BANK.wrong(
    "one-step-more",
    "Moves one position too far.",
    """
def shift_matrix(offset, d_model):
    blocks = []
    for i in range(0, d_model, 2):
        a = (offset + 1) / 10000 ** (i / d_model)
        blocks.append(torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]))
    return torch.block_diag(*blocks)
""",
)
BANK.wrong(
    "integer-angle",
    "Integer division of the offset: slow pairs never turn, and negative offsets round down.",
    """
def shift_matrix(offset, d_model):
    blocks = []
    for i in range(0, d_model, 2):
        a = offset // 10000 ** (i / d_model)
        blocks.append(torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]))
    return torch.block_diag(*blocks)
""",
)
BANK.wrong(
    "float64",
    "The right numbers as float64.",
    """
def shift_matrix(offset, d_model):
    blocks = []
    for i in range(0, d_model, 2):
        a = offset / 10000 ** (i / d_model)
        blocks.append(torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]], dtype=torch.float64))
    return torch.block_diag(*blocks)
""",
)
BANK.wrong(
    "blocks-unplaced",
    "Returns the stack of 2 × 2 blocks, shape (D/2, 2, 2).",
    """
def shift_matrix(offset, d_model):
    a = offset / 10000 ** (torch.arange(0, d_model, 2).double() / d_model)
    return torch.stack((a.cos(), a.sin(), -a.sin(), a.cos()), 1).view(-1, 2, 2).float()
""",
)
BANK.wrong(
    "cached-by-width",
    "A cache that forgets the offset: the first one asked for stays.",
    """
import functools


@functools.lru_cache(maxsize=None)
def _empty(d_model):
    return torch.zeros(d_model, d_model)


def shift_matrix(offset, d_model):
    m = _empty(d_model)
    if not m.any():
        for i in range(0, d_model, 2):
            a = offset / 10000 ** (i / d_model)
            m[i, i] = m[i + 1, i + 1] = math.cos(a)
            m[i, i + 1], m[i + 1, i] = math.sin(a), -math.sin(a)
    return m
""",
)
BANK.wrong(
    "tiny-example-only",
    "Turns the two pairs of the worked example and leaves the others where they are.",
    """
def shift_matrix(offset, d_model):
    m = torch.eye(d_model)
    for i in range(0, min(4, d_model), 2):
        a = offset / 10000 ** (i / d_model)
        m[i, i] = m[i + 1, i + 1] = math.cos(a)
        m[i, i + 1], m[i + 1, i] = math.sin(a), -math.sin(a)
    return m
""",
)

BANK.wrong(
    "small-offsets-only",
    "Offsets beyond 50 are cut off.",
    """
def _right(k, D):
    m = torch.zeros(D, D, dtype=torch.float64)
    for i in range(0, D, 2):
        a = k / 10000 ** (i / D)
        m[i : i + 2, i : i + 2] = torch.tensor(
            [[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]], dtype=torch.float64
        )
    return m.float()


def shift_matrix(offset, d_model):
    return _right(max(-50, min(50, offset)), d_model)
""",
)

BANK.wrong(
    "slow-pairs-identity",
    "Pairs slower than a hundredth are left where they are.",
    """
def _right(k, D):
    m = torch.zeros(D, D, dtype=torch.float64)
    for i in range(0, D, 2):
        a = k / 10000 ** (i / D)
        m[i : i + 2, i : i + 2] = torch.tensor(
            [[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]], dtype=torch.float64
        )
    return m.float()


def shift_matrix(offset, d_model):
    m = _right(offset, d_model)
    for i in range(0, d_model, 2):
        if 10000 ** (-i / d_model) < 0.01:
            m[i : i + 2, i : i + 2] = torch.eye(2)
    return m
""",
)

BANK.wrong(
    "first-order",
    "Slow pairs turn by the first-order approximation of sine and cosine.",
    """
def _right(k, D):
    m = torch.zeros(D, D, dtype=torch.float64)
    for i in range(0, D, 2):
        a = k / 10000 ** (i / D)
        m[i : i + 2, i : i + 2] = torch.tensor(
            [[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]], dtype=torch.float64
        )
    return m.float()


def shift_matrix(offset, d_model):
    m = _right(offset, d_model)
    for i in range(2, d_model, 2):
        a = offset / 10000 ** (i / d_model)
        if abs(a) < 0.3:
            m[i : i + 2, i : i + 2] = torch.tensor([[1, a], [-a, 1]])
    return m
""",
)
