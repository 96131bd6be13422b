"""positional_encoding(seq_len, d_model): the sinusoidal table, and what people make of it."""

from .entry import Collector

BANK = Collector("positional_encoding", "pe")

# ----------------------------------------------------------------------------------------------------------- right

BANK.right(
    "loops",
    "Two plain loops with the math module.",
    """
def positional_encoding(seq_len, d_model):
    rows = []
    for p in range(seq_len):
        row = []
        for i in range(d_model // 2):
            angle = p * math.pow(10000.0, -2 * i / d_model)
            row += [math.sin(angle), math.cos(angle)]
        rows.append(row)
    return torch.tensor(rows)
""",
)
BANK.right(
    "numpy",
    "NumPy in float64, converted once at the end.",
    """
def positional_encoding(seq_len, d_model):
    columns = np.arange(d_model)
    angles = np.outer(np.arange(seq_len), 10000.0 ** -((columns - columns % 2) / d_model))
    return torch.from_numpy(np.where(columns % 2 == 0, np.sin(angles), np.cos(angles)).astype(np.float32))
""",
)
BANK.right(
    "complex",
    "One complex exponential whose real part is the sine and whose imaginary part is the cosine.",
    """
def positional_encoding(seq_len, d_model):
    omega = torch.exp(torch.linspace(0, 1 - 2 / d_model, d_model // 2, dtype=torch.float64) * -math.log(1e4))
    angle = torch.outer(torch.arange(seq_len, dtype=torch.float64), omega)
    turned = torch.polar(torch.ones_like(angle), math.pi / 2 - angle)
    return torch.view_as_real(turned).reshape(seq_len, d_model).float()
""",
)
BANK.right(
    "phase",
    "Cosine written as a sine a quarter turn ahead, all columns in one expression.",
    """
def positional_encoding(seq_len, d_model):
    j = torch.arange(d_model, dtype=torch.float64)
    rate = 1e4 ** (-(j - j.remainder(2)) / d_model)
    return torch.sin(torch.arange(seq_len)[:, None] * rate + j.remainder(2) * (math.pi / 2)).to(torch.float32)
""",
)
BANK.right(
    "float32-exp-log",
    "The widespread exp/log form, in float32 throughout.",
    """
def positional_encoding(seq_len, d_model):
    position = torch.arange(0, seq_len, dtype=torch.float32).unsqueeze(1)
    factor = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
    pe = torch.zeros(seq_len, d_model)
    pe[:, ::2] = torch.sin(position * factor)
    pe[:, 1::2] = torch.cos(position * factor)
    return pe
""",
)
BANK.right(
    "rotated-rows",
    "Every row is the one before it, turned by one step, in complex float64.",
    """
def positional_encoding(seq_len, d_model):
    step = torch.exp(-1j * 10000.0 ** (-torch.arange(0, d_model, 2).double() / d_model))
    row = torch.full((d_model // 2,), 1j, dtype=torch.complex128)  # sine 0, cosine 1
    rows = []
    for _ in range(seq_len):
        rows.append(torch.view_as_real(row).flatten())
        row = row * step
    return torch.stack(rows).float()
""",
)
BANK.right(
    "cached-copy",
    "Keeps the longest table of each width and hands out copies of its beginning.",
    """
_tables = {}


def positional_encoding(seq_len, d_model):
    if d_model not in _tables or len(_tables[d_model]) < seq_len:
        angle = torch.arange(seq_len).double()[:, None] / 10000 ** (torch.arange(0, d_model, 2).double() / d_model)
        _tables[d_model] = torch.dstack((angle.sin(), angle.cos())).flatten(1).float()
    return _tables[d_model][:seq_len].clone()
""",
)
BANK.right(
    "callable-object",
    "An instance of a class with __call__, built transposed and returned as a non-contiguous view.",
    """
class Encoder:
    def __init__(self, base):
        self.base = base

    def __call__(self, seq_len, d_model):
        columns = torch.empty(d_model, seq_len)
        for pair in range(0, d_model, 2):
            angle = torch.arange(seq_len).double() * self.base ** (-pair / d_model)
            columns[pair], columns[pair + 1] = torch.sin(angle), torch.cos(angle)
        return columns.T


positional_encoding = Encoder(10000.0)
""",
)
BANK.right(
    "lambda-without-grad",
    "A lambda under a decorator.",
    """
positional_encoding = torch.no_grad()(
    lambda seq_len, d_model: torch.stack(
        [
            f(torch.einsum("p,f->pf", torch.arange(seq_len).double(), 1e4 ** (-torch.arange(0, d_model, 2).double() / d_model)))
            for f in (torch.sin, torch.cos)
        ],
        dim=-1,
    )
    .reshape(seq_len, -1)
    .float()
)
""",
)

BANK.right(
    "view-of-long-table",
    "A view of a shared table of 4096 rows.",
    """
def _right(L, D):
    a = torch.arange(L).double()[:, None] / 10000 ** (torch.arange(0, D, 2).double() / D)
    return torch.stack((a.sin(), a.cos()), 2).flatten(1).float()


_long = {}


def positional_encoding(seq_len, d_model):
    if d_model not in _long:
        _long[d_model] = _right(4096, d_model)
    return _long[d_model][:seq_len]
""",
)

BANK.right(
    "vmap",
    "One row for one position, mapped over positions in float32.",
    """
def _row(p, freq):
    return torch.stack((torch.sin(p * freq), torch.cos(p * freq)), -1).flatten()


def positional_encoding(seq_len, d_model):
    freq = 10000.0 ** -(torch.arange(0, d_model, 2) / d_model)
    return torch.vmap(_row, in_dims=(0, None))(torch.arange(seq_len).float(), freq)
""",
)

BANK.right(
    "float32-division",
    "The power and the division in float32, as tutorials have it.",
    """
def positional_encoding(seq_len, d_model):
    t = torch.zeros(seq_len, d_model)
    pos = torch.arange(seq_len, dtype=torch.float).reshape(-1, 1)
    x = pos / torch.pow(10000, torch.arange(0, d_model, 2, dtype=torch.float) / d_model)
    t[:, 0::2] = torch.sin(x)
    t[:, 1::2] = torch.cos(x)
    return t
""",
)

BANK.right(
    "lru-cached",
    "Remembers its tables and hands out the same tensor again.",
    """
def _right(L, D):
    a = torch.arange(L).double()[:, None] / 10000 ** (torch.arange(0, D, 2).double() / D)
    return torch.stack((a.sin(), a.cos()), 2).flatten(1).float()


import functools


@functools.lru_cache(maxsize=None)
def positional_encoding(seq_len, d_model):
    return _right(seq_len, d_model)
""",
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "doubled-exponent-loop",
    "The loop variable steps by two and is doubled again in the exponent.",
    """
def positional_encoding(seq_len, d_model):
    pe = torch.zeros(seq_len, d_model)
    for p in range(seq_len):
        for i in range(0, d_model, 2):
            angle = p / (10000 ** ((2 * i) / d_model))
            pe[p, i], pe[p, i + 1] = math.sin(angle), math.cos(angle)
    return pe
""",
    "doubled-exponent",
)
BANK.wrong(
    "doubled-exponent-vector",
    "The same slip without loops: an even range, multiplied by two.",
    """
def positional_encoding(seq_len, d_model):
    even = torch.arange(0, d_model, 2).float()
    angle = torch.arange(seq_len).float()[:, None] * torch.exp(2 * even * -math.log(10000.0) / d_model)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
""",
    "doubled-exponent",
)
BANK.wrong(
    "doubled-exponent-columns",
    "All columns use the exponent 2j/D of their own number, so that sine and cosine of a pair differ too.",
    """
def positional_encoding(seq_len, d_model):
    p = torch.arange(seq_len).double()[:, None]
    angle = p / 10000 ** (2 * torch.arange(d_model).double() / d_model)
    even = torch.arange(d_model) % 2 == 0
    return torch.where(even, angle.sin(), angle.cos()).float()
""",
    "unpaired-columns",
)
BANK.wrong(
    "unpaired-columns",
    "The cosine of column j uses j/D instead of its partner's exponent.",
    """
def positional_encoding(seq_len, d_model):
    angles = torch.arange(seq_len).double()[:, None] / 10000.0 ** (torch.arange(d_model).double() / d_model)
    pe = torch.empty(seq_len, d_model)
    pe[:, 0::2] = angles[:, 0::2].sin()
    pe[:, 1::2] = angles[:, 1::2].cos()
    return pe
""",
    "unpaired-columns",
)
BANK.wrong(
    "halved-exponent",
    "The pair number is divided by D without the factor two, so the slowest wavelength is a hundredth.",
    """
def positional_encoding(seq_len, d_model):
    pe = torch.zeros(seq_len, d_model)
    for i in range(d_model // 2):
        angle = torch.arange(seq_len) / 10000 ** (i / d_model)
        pe[:, 2 * i] = torch.sin(angle)
        pe[:, 2 * i + 1] = torch.cos(angle)
    return pe
""",
    "exponent-not-doubled",
)
BANK.wrong(
    "base-1000",
    "A zero is missing in the base.",
    """
def positional_encoding(seq_len, d_model):
    exponents = np.arange(0, d_model, 2) / d_model
    angles = np.arange(seq_len)[:, None] / 1000**exponents
    pe = np.zeros((seq_len, d_model), dtype=np.float32)
    pe[:, 0::2], pe[:, 1::2] = np.sin(angles), np.cos(angles)
    return torch.tensor(pe)
""",
    "wrong-base",
)
BANK.wrong(
    "log10",
    "log10 in place of the natural logarithm: in effect the base is e to the fourth.",
    """
def positional_encoding(seq_len, d_model):
    div = torch.exp(torch.arange(0, d_model, 2) * (-math.log10(10000.0) / d_model))
    angle = torch.arange(seq_len).unsqueeze(1) * div
    pe = torch.zeros(seq_len, d_model)
    pe[:, 0::2] = angle.sin()
    pe[:, 1::2] = angle.cos()
    return pe
""",
)
BANK.wrong(
    "halves",
    "All sines in the first half of the columns, all cosines in the second.",
    """
def positional_encoding(seq_len, d_model):
    freq = 10000.0 ** -(torch.arange(0, d_model, 2).double() / d_model)
    angle = torch.outer(torch.arange(seq_len).double(), freq)
    return torch.cat((angle.sin(), angle.cos()), dim=1).float()
""",
    "halves-not-interleaved",
)
BANK.wrong(
    "cosine-first",
    "Cosine in the even columns and sine in the odd ones.",
    """
def positional_encoding(seq_len, d_model):
    freq = 10000.0 ** -(torch.arange(0, d_model, 2).double() / d_model)
    angle = torch.outer(torch.arange(seq_len).double(), freq)
    pe = torch.zeros(seq_len, d_model)
    pe[:, 0::2], pe[:, 1::2] = angle.cos(), angle.sin()
    return pe
""",
    "sine-and-cosine-swapped",
)
BANK.wrong(
    "only-sines",
    "The cosine columns hold sines as well.",
    """
def positional_encoding(seq_len, d_model):
    freq = 10000.0 ** -(torch.arange(0, d_model, 2).double() / d_model)
    angle = torch.outer(torch.arange(seq_len).double(), freq)
    return torch.sin(angle).repeat_interleave(2, dim=1).float()
""",
    "sines-only",
)
BANK.wrong(
    "wavelength-times",
    "Divides by what is already the inverse rate, so the angle is multiplied by the wavelength.",
    """
def positional_encoding(seq_len, d_model):
    inverse = torch.pow(10000.0, -torch.arange(0, d_model, 2).double() / d_model)
    angle = torch.arange(seq_len)[:, None] / inverse
    return torch.stack((angle.sin(), angle.cos()), 2).view(seq_len, d_model).float()
""",
    "inverted-frequency",
)
BANK.wrong(
    "from-one",
    "Positions are counted from 1.",
    """
def positional_encoding(seq_len, d_model):
    pe = torch.zeros(seq_len, d_model)
    positions = torch.arange(1, seq_len + 1).double()
    for i in range(0, d_model, 2):
        pe[:, i] = torch.sin(positions / 10000 ** (i / d_model))
        pe[:, i + 1] = torch.cos(positions / 10000 ** (i / d_model))
    return pe
""",
    "positions-from-one",
)
BANK.wrong(
    "fractions-of-length",
    "Positions are divided by the length, so that the table of a longer sequence is another table.",
    """
def positional_encoding(seq_len, d_model):
    positions = torch.arange(seq_len).double()[:, None] / seq_len
    angle = positions / 10000 ** (torch.arange(0, d_model, 2).double() / d_model)
    return torch.stack((angle.sin(), angle.cos()), 2).view(seq_len, d_model).float()
""",
)
BANK.wrong(
    "degrees",
    "Angles are taken for degrees.",
    """
def positional_encoding(seq_len, d_model):
    angle = torch.arange(seq_len).double()[:, None] / 10000 ** (torch.arange(0, d_model, 2).double() / d_model)
    angle = torch.deg2rad(angle)
    return torch.stack((angle.sin(), angle.cos()), 2).view(seq_len, d_model).float()
""",
    "degrees",
)
BANK.wrong(
    "integer-exponent",
    "Integer division makes every exponent 0, so all pairs turn alike.",
    """
def positional_encoding(seq_len, d_model):
    pe = torch.zeros(seq_len, d_model)
    for i in range(d_model // 2):
        angle = torch.arange(seq_len) / 10000 ** (2 * i // d_model)
        pe[:, 2 * i], pe[:, 2 * i + 1] = angle.sin(), angle.cos()
    return pe
""",
    "integer-division",
)
BANK.wrong(
    "exponent-up-to-one",
    "The exponents run from 0 to 1 inclusive instead of stopping at 1 − 2/D.",
    """
def positional_encoding(seq_len, d_model):
    angle = torch.outer(torch.arange(seq_len).double(), 10000.0 ** -torch.linspace(0, 1, d_model // 2).double())
    return torch.stack((angle.sin(), angle.cos()), 2).view(seq_len, d_model).float()
""",
    "last-pair-reaches-the-base",
)
BANK.wrong(
    "axes-exchanged",
    "Frequencies run over positions and positions over columns; a transpose at the end repairs the shape only.",
    """
def positional_encoding(seq_len, d_model):
    angle = torch.arange(d_model).double()[:, None] / 10000 ** (torch.arange(seq_len) // 2 * 2 / seq_len)
    angle[:, 0::2], angle[:, 1::2] = angle[:, 0::2].sin(), angle[:, 1::2].cos()
    return angle.float().T
""",
    "axes-exchanged",
)
BANK.wrong(
    "transposed",
    "Returned as (D, L).",
    """
def positional_encoding(seq_len, d_model):
    pe = torch.zeros(d_model, seq_len)
    for i in range(0, d_model, 2):
        angle = torch.arange(seq_len).double() / 10000 ** (i / d_model)
        pe[i], pe[i + 1] = angle.sin(), angle.cos()
    return pe
""",
    "transposed",
)
BANK.wrong(
    "batch-axis",
    "Returned with a leading axis of size 1.",
    """
def positional_encoding(seq_len, d_model):
    angle = torch.arange(seq_len).double()[:, None] / 10000 ** (torch.arange(0, d_model, 2).double() / d_model)
    return torch.stack((angle.sin(), angle.cos()), 2).view(1, seq_len, d_model).float()
""",
    "leading-batch-axis",
)
BANK.wrong(
    "scaled",
    "The table is multiplied by the root of D.",
    """
def positional_encoding(seq_len, d_model):
    angle = torch.arange(seq_len).double()[:, None] / 10000 ** (torch.arange(0, d_model, 2).double() / d_model)
    return math.sqrt(d_model) * torch.stack((angle.sin(), angle.cos()), 2).view(seq_len, d_model).float()
""",
    "scaled-table",
)
BANK.wrong(
    "float64",
    "The right numbers as float64.",
    """
def positional_encoding(seq_len, d_model):
    angle = torch.arange(seq_len).double()[:, None] / 10000 ** (torch.arange(0, d_model, 2).double() / d_model)
    return torch.stack((angle.sin(), angle.cos()), 2).view(seq_len, d_model)
""",
    "double-precision",
)
BANK.wrong(
    "numpy-array",
    "The right numbers as a NumPy array.",
    """
def positional_encoding(seq_len, d_model):
    angle = np.arange(seq_len)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)
    return np.stack((np.sin(angle), np.cos(angle)), 2).reshape(seq_len, d_model).astype(np.float32)
""",
)
BANK.wrong(
    "list",
    "The right numbers as a list of tensors, one for each position.",
    """
def positional_encoding(seq_len, d_model):
    angle = torch.arange(seq_len).double()[:, None] / 10000 ** (torch.arange(0, d_model, 2).double() / d_model)
    return list(torch.stack((angle.sin(), angle.cos()), 2).view(seq_len, d_model).float())
""",
)
BANK.wrong(
    "stale-cache",
    "A cache keyed by the width alone: the first length asked for is what every later call gets.",
    """
_cache = {}


def positional_encoding(seq_len, d_model):
    if d_model not in _cache:
        angle = torch.arange(seq_len).double()[:, None] / 10000 ** (torch.arange(0, d_model, 2).double() / d_model)
        _cache[d_model] = torch.stack((angle.sin(), angle.cos()), 2).view(seq_len, d_model).float()
    return _cache[d_model]
""",
)
BANK.wrong(
    "tiny-example-only",
    "Fills the four columns of the worked example and leaves all others at zero.",
    """
def positional_encoding(seq_len, d_model):
    pe = torch.zeros(seq_len, d_model)
    p = torch.arange(seq_len).double()
    for pair in range(min(2, d_model // 2)):
        pe[:, 2 * pair] = torch.sin(p / 10000 ** (2 * pair / d_model))
        pe[:, 2 * pair + 1] = torch.cos(p / 10000 ** (2 * pair / d_model))
    return pe
""",
)
BANK.wrong(
    "fixed-width-exponent",
    "The exponent divides by 512, the width of the paper's model, whatever the width is.",
    """
def positional_encoding(seq_len, d_model):
    angle = torch.arange(seq_len).double()[:, None] / 10000 ** (torch.arange(0, d_model, 2).double() / 512)
    return torch.stack((angle.sin(), angle.cos()), 2).view(seq_len, d_model).float()
""",
)
BANK.wrong(
    "low-precision",
    "Angles in bfloat16, whose eight bits are too few after a handful of positions.",
    """
def positional_encoding(seq_len, d_model):
    rate = (10000.0 ** (-torch.arange(0, d_model, 2).double() / d_model)).bfloat16()
    angle = (torch.arange(seq_len).bfloat16()[:, None] * rate).float()
    return torch.stack((angle.sin(), angle.cos()), 2).view(seq_len, d_model)
""",
)
BANK.wrong(
    "rounded",
    "Rounded to the three decimals of the printed example.",
    """
def positional_encoding(seq_len, d_model):
    angle = torch.arange(seq_len).double()[:, None] / 10000 ** (torch.arange(0, d_model, 2).double() / d_model)
    return torch.stack((angle.sin(), angle.cos()), 2).view(seq_len, d_model).float().round(decimals=3)
""",
)
BANK.wrong(
    "random",
    "A table of random numbers, as for learnt positions.",
    """
def positional_encoding(seq_len, d_model):
    return torch.randn(seq_len, d_model)
""",
)

BANK.wrong(
    "requires-grad",
    "The table is an nn.Parameter and would be trained.",
    """
def _right(L, D):
    a = torch.arange(L).double()[:, None] / 10000 ** (torch.arange(0, D, 2).double() / D)
    return torch.stack((a.sin(), a.cos()), 2).flatten(1).float()


def positional_encoding(seq_len, d_model):
    return nn.Parameter(_right(seq_len, d_model))
""",
)

BANK.wrong(
    "requires-grad-frequencies",
    "The frequencies are parameters, so that the table hangs in a graph.",
    """
def positional_encoding(seq_len, d_model):
    f = nn.Parameter(10000.0 ** -(torch.arange(0, d_model, 2).double() / d_model))
    a = torch.arange(seq_len).double()[:, None] * f
    return torch.stack((a.sin(), a.cos()), 2).flatten(1).float()
""",
)

BANK.wrong(
    "shared-buffer",
    "One buffer serves all widths and is written only when it must grow.",
    """
def _right(L, D):
    a = torch.arange(L).double()[:, None] / 10000 ** (torch.arange(0, D, 2).double() / D)
    return torch.stack((a.sin(), a.cos()), 2).flatten(1).float()


_buf = torch.empty(0)


def positional_encoding(seq_len, d_model):
    global _buf
    if _buf.numel() < seq_len * d_model:
        _buf = _right(seq_len, d_model).flatten()
    return _buf[: seq_len * d_model].view(seq_len, d_model)
""",
)

BANK.wrong(
    "max-400",
    "Positions beyond 399 stay at row 399.",
    """
def _right(L, D):
    a = torch.arange(L).double()[:, None] / 10000 ** (torch.arange(0, D, 2).double() / D)
    return torch.stack((a.sin(), a.cos()), 2).flatten(1).float()


def positional_encoding(seq_len, d_model):
    return _right(400, d_model)[torch.arange(seq_len).clamp(max=399)]
""",
)

BANK.wrong(
    "half-table",
    "The values went through float16.",
    """
def _right(L, D):
    a = torch.arange(L).double()[:, None] / 10000 ** (torch.arange(0, D, 2).double() / D)
    return torch.stack((a.sin(), a.cos()), 2).flatten(1).float()


def positional_encoding(seq_len, d_model):
    return _right(seq_len, d_model).half().float()
""",
)

BANK.wrong(
    "cos-doubled-only",
    "The sine has exponent 2i and the cosine 2(i + 1), with i already even.",
    """
def positional_encoding(seq_len, d_model):
    t = torch.zeros(seq_len, d_model)
    for p in range(seq_len):
        for i in range(0, d_model, 2):
            t[p, i] = math.sin(p / 10000 ** (2 * i / d_model))
            t[p, i + 1] = math.cos(p / 10000 ** (2 * (i + 1) / d_model))
    return t
""",
    "unpaired-columns",
)
