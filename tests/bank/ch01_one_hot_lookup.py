"""one_hot_lookup(token_ids, table): rows of a table as a product with one-hot vectors, and what people make of it."""

from .entry import Collector

BANK = Collector("one_hot_lookup", "onehot")

# ----------------------------------------------------------------------------------------------------------- right

BANK.right(
    "compared-with-arange",
    "A comparison with all ids, in the dtype of the table.",
    """
def one_hot_lookup(token_ids, table):
    one_hot = token_ids[..., None] == torch.arange(table.shape[0])
    return one_hot.to(table.dtype) @ table
""",
)
BANK.right(
    "library-one-hot",
    "F.one_hot and torch.matmul.",
    """
def one_hot_lookup(token_ids, table):
    vectors = F.one_hot(token_ids, num_classes=table.size(0)).type_as(table)
    return torch.matmul(vectors, table)
""",
)
BANK.right(
    "scattered",
    "Zeros into which ones are scattered.",
    """
def one_hot_lookup(token_ids, table):
    one_hot = torch.zeros(*token_ids.shape, len(table), dtype=table.dtype)
    one_hot.scatter_(-1, token_ids.unsqueeze(-1), 1.0)
    return torch.einsum("...v,vd->...d", one_hot, table)
""",
)
BANK.right(
    "rows-of-the-identity",
    "Rows of the identity matrix, which are the one-hot vectors.",
    """
def one_hot_lookup(token_ids, table):
    return torch.eye(table.size(0), dtype=table.dtype, device=table.device)[token_ids] @ table
""",
)
BANK.right(
    "indexed",
    "Plain indexing, the same numbers without a product.",
    """
def one_hot_lookup(token_ids, table):
    return table[token_ids]
""",
)
BANK.right(
    "library-embedding",
    "PyTorch's own lookup, behind a lambda.",
    """
one_hot_lookup = lambda token_ids, table: F.embedding(token_ids, table)
""",
)
BANK.right(
    "flattened-and-selected",
    "Flattened ids, index_select, the leading shape restored.",
    """
def one_hot_lookup(token_ids, table):
    return table.index_select(0, token_ids.reshape(-1)).reshape(token_ids.shape + table.shape[1:])
""",
)
BANK.right(
    "linear-layer",
    "F.linear with the transposed table as weight, one-hot vectors by numpy.",
    """
def one_hot_lookup(token_ids, table):
    one_hot = torch.from_numpy(np.equal.outer(token_ids.numpy(), np.arange(table.shape[0])))
    return F.linear(one_hot.to(table.dtype), table.t())
""",
)
BANK.right(
    "selected-by-where",
    "Every row or 0, summed over the vocabulary.",
    """
def one_hot_lookup(token_ids, table):
    hit = torch.arange(table.size(0)).eq(token_ids.unsqueeze(-1))
    return torch.where(hit.unsqueeze(-1), table, torch.zeros_like(table)).sum(dim=-2)
""",
)
BANK.right(
    "classes-as-needed",
    "Only as many classes as the largest id asks for, and as many rows.",
    """
def one_hot_lookup(token_ids, table):
    one_hot = F.one_hot(token_ids).to(table.dtype)
    return one_hot @ table[: one_hot.size(-1)]
""",
)
BANK.right(
    "sparse-product",
    "The one-hot vectors as a sparse matrix.",
    """
def one_hot_lookup(token_ids, table):
    flat = token_ids.flatten()
    places = torch.stack([torch.arange(len(flat)), flat])
    ones, shape = torch.ones(len(flat), dtype=table.dtype), (len(flat), len(table))
    one_hot = torch.sparse_coo_tensor(places, ones, shape, check_invariants=True)
    return torch.sparse.mm(one_hot, table).view(*token_ids.shape, -1)
""",
)
BANK.right(
    "token-by-token",
    "A loop over the flattened ids with one vector each.",
    """
def one_hot_lookup(token_ids, table):
    rows = []
    for i in token_ids.flatten().tolist():
        vector = torch.zeros(table.shape[0], dtype=table.dtype)
        vector[i] = 1
        rows.append(vector @ table)
    return torch.stack(rows).unflatten(0, token_ids.shape) if token_ids.dim() else rows[0]
""",
)
BANK.right(
    "own-backward",
    "An autograd function whose backward pass adds up the gradients of each row.",
    """
class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, ids, table):
        ctx.save_for_backward(ids)
        ctx.rows = table.size(0)
        return table[ids]

    @staticmethod
    def backward(ctx, grad):
        (ids,) = ctx.saved_tensors
        flat = grad.reshape(-1, grad.size(-1))
        return None, torch.zeros(ctx.rows, flat.size(1), dtype=grad.dtype).index_add(0, ids.reshape(-1), flat)


def one_hot_lookup(token_ids, table):
    return _Lookup.apply(token_ids, table)
""",
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "counts-from-one",
    "Id 1 is taken for the first row, and id 0 for none.",
    """
def one_hot_lookup(token_ids, table):
    one_hot = token_ids[..., None] == torch.arange(1, table.size(0) + 1)
    return one_hot.to(table.dtype) @ table
""",
    "counts-from-one",
)
BANK.wrong(
    "zero-is-padding",
    "Id 0 gets a vector of zeros.",
    """
def one_hot_lookup(token_ids, table):
    one_hot = F.one_hot(token_ids, table.size(0)).to(table.dtype)
    one_hot[..., 0] = 0
    return one_hot @ table
""",
    "first-row-as-padding",
)
BANK.wrong(
    "padding-gradient",
    "Row 0 is right but gets no gradient.",
    """
def one_hot_lookup(token_ids, table):
    return F.embedding(token_ids, table, padding_idx=0)
""",
    "first-row-as-padding",
)
BANK.wrong(
    "classes-from-the-ids",
    "As many classes as the largest id asks for, against all rows: works only when the last id occurs.",
    """
def one_hot_lookup(token_ids, table):
    return F.one_hot(token_ids).to(table.dtype) @ table
""",
    "classes-from-the-ids",
)
BANK.wrong(
    "vectors-returned",
    "The one-hot vectors, without the product.",
    """
def one_hot_lookup(token_ids, table):
    return F.one_hot(token_ids, num_classes=table.size(0)).type_as(table)
""",
    "one-hot-returned",
)
BANK.wrong(
    "always-float32",
    "The one-hot vectors are float32 whatever the table is.",
    """
def one_hot_lookup(token_ids, table):
    return F.one_hot(token_ids, table.size(0)).float() @ table
""",
    "always-float32",
)
BANK.wrong(
    "no-new-axis",
    "Ids and classes are compared without an axis of their own: right for a single id only.",
    """
def one_hot_lookup(token_ids, table):
    return (torch.arange(table.size(0)) == token_ids).to(table.dtype) @ table
""",
)
BANK.wrong(
    "one-axis-only",
    "Written for a sequence: the batch has no place in the one-hot matrix.",
    """
def one_hot_lookup(token_ids, table):
    one_hot = torch.zeros(token_ids.size(0), table.size(0), dtype=table.dtype)
    one_hot[torch.arange(token_ids.size(0)), token_ids] = 1
    return one_hot @ table
""",
)
BANK.wrong(
    "two-axes-only",
    "Unpacks batch and length from the shape.",
    """
def one_hot_lookup(token_ids, table):
    B, L = token_ids.shape
    one_hot = torch.zeros(B, L, table.size(0), dtype=table.dtype).scatter(2, token_ids.view(B, L, 1), 1)
    return one_hot @ table
""",
    "batches-only",
)
BANK.wrong(
    "not-for-one-id",
    "Goes through the first axis, which a single id has not.",
    """
def one_hot_lookup(token_ids, table):
    one_hot = torch.eye(table.size(0), dtype=table.dtype)
    return torch.stack([one_hot[ids] @ table for ids in token_ids])
""",
)
BANK.wrong(
    "stays-flat",
    "The ids are flattened and their shape is not restored.",
    """
def one_hot_lookup(token_ids, table):
    return F.one_hot(token_ids.flatten(), table.size(0)).to(table.dtype) @ table
""",
    "stays-flat",
)
BANK.wrong(
    "squeezed",
    "Every axis of size 1 is lost.",
    """
def one_hot_lookup(token_ids, table):
    return (F.one_hot(token_ids, table.size(0)).to(table.dtype) @ table).squeeze()
""",
    "axes-squeezed",
)
BANK.wrong(
    "leading-axis-added",
    "A sequence without a batch comes back with one.",
    """
def one_hot_lookup(token_ids, table):
    return F.one_hot(torch.atleast_2d(token_ids), table.size(0)).to(table.dtype) @ table
""",
)
BANK.wrong(
    "bag-of-words",
    "The one-hot vectors of a sequence are added up first.",
    """
def one_hot_lookup(token_ids, table):
    one_hot = F.one_hot(token_ids, table.size(0)).to(table.dtype)
    return one_hot.sum(-2) @ table
""",
    "bag-of-words",
)
BANK.wrong(
    "one-hot-reshaped",
    "A matrix (V, ids) is reshaped, where it wants to be transposed.",
    """
def one_hot_lookup(token_ids, table):
    flat = token_ids.reshape(1, -1)
    one_hot = torch.zeros(table.size(0), flat.size(1), dtype=table.dtype).scatter(0, flat, 1)
    return one_hot.reshape(*token_ids.shape, table.size(0)) @ table
""",
)
BANK.wrong(
    "table-reshaped",
    "F.linear wants (D, V), and the table is reshaped to fit.",
    """
def one_hot_lookup(token_ids, table):
    one_hot = F.one_hot(token_ids, table.size(0)).to(table.dtype)
    return F.linear(one_hot, table.reshape(table.size(1), table.size(0)))
""",
)
BANK.wrong(
    "scaled",
    "The rows are multiplied by √D, which is the next piece's task.",
    """
def one_hot_lookup(token_ids, table):
    return F.one_hot(token_ids, table.size(0)).to(table.dtype) @ table * math.sqrt(table.size(1))
""",
    "scaled",
)
BANK.wrong(
    "softened",
    "A softmax of ten times the one-hot vectors: a trace of every other row remains.",
    """
def one_hot_lookup(token_ids, table):
    one_hot = F.one_hot(token_ids, table.size(0)).to(table.dtype)
    return torch.softmax(10 * one_hot, dim=-1) @ table
""",
    "softened",
)
BANK.wrong(
    "rounded-to-integers",
    "The table is cast to the dtype of the one-hot vectors instead of the other way round.",
    """
def one_hot_lookup(token_ids, table):
    return (F.one_hot(token_ids, table.size(0)) @ table.long()).to(table.dtype)
""",
    "integers-for-floats",
)
BANK.wrong(
    "sorted-rows",
    "Each distinct id once, in ascending order.",
    """
def one_hot_lookup(token_ids, table):
    return F.one_hot(token_ids.unique(), table.size(0)).to(table.dtype) @ table
""",
)
BANK.wrong(
    "last-row-unreachable",
    "One class too few: the last id counts as the one before it.",
    """
def one_hot_lookup(token_ids, table):
    classes = table.size(0) - 1
    return F.one_hot(token_ids.clamp(max=classes - 1), classes).to(table.dtype) @ table[:-1]
""",
    "last-row-unreachable",
)
BANK.wrong(
    "stale-identity",
    "The identity of the first call is kept for every table.",
    """
_identity = None


def one_hot_lookup(token_ids, table):
    global _identity
    if _identity is None:
        _identity = torch.eye(table.size(0), dtype=table.dtype)
    return _identity[token_ids].to(table.dtype) @ table
""",
)
BANK.wrong(
    "detached",
    "The table is cut off from the graph.",
    """
def one_hot_lookup(token_ids, table):
    return F.one_hot(token_ids, table.size(0)).to(table.dtype) @ table.detach()
""",
    "gradient-cut",
)
BANK.wrong(
    "new-tensor-of-rows",
    "The rows go into a new tensor through lists of numbers.",
    """
def one_hot_lookup(token_ids, table):
    rows = [table[i].tolist() for i in token_ids.flatten().tolist()]
    return torch.tensor(rows, dtype=table.dtype).reshape(*token_ids.shape, -1)
""",
    "gradient-cut",
)
BANK.wrong(
    "no-grad-block",
    "Looked up where no gradients are kept.",
    """
def one_hot_lookup(token_ids, table):
    one_hot = (token_ids[..., None] == torch.arange(table.size(0))).to(table.dtype)
    with torch.no_grad():
        return one_hot @ table
""",
    "gradient-cut",
)
BANK.wrong(
    "gradient-by-frequency",
    "The gradient of a row is divided by how often its id occurs.",
    """
def one_hot_lookup(token_ids, table):
    return F.embedding(token_ids, table, scale_grad_by_freq=True)
""",
    "gradient-averaged",
)
BANK.wrong(
    "gradient-of-one-occurrence",
    "A backward pass of its own writes over the gradient of a repeated id instead of adding.",
    """
class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, ids, table):
        ctx.save_for_backward(ids, table)
        return table[ids]

    @staticmethod
    def backward(ctx, grad):
        ids, table = ctx.saved_tensors
        out = torch.zeros_like(table)
        out[ids] = grad
        return None, out


def one_hot_lookup(token_ids, table):
    return _Lookup.apply(token_ids, table)
""",
)
BANK.wrong(
    "ids-get-an-axis",
    "unsqueeze_ gives the caller's ids another axis.",
    """
def one_hot_lookup(token_ids, table):
    one_hot = token_ids.unsqueeze_(-1) == torch.arange(table.size(0))
    return one_hot.to(table.dtype) @ table
""",
)
BANK.wrong(
    "rows-shortened",
    "max_norm shortens long rows, in the caller's table.",
    """
def one_hot_lookup(token_ids, table):
    return F.embedding(token_ids, table.detach(), max_norm=1.0) + 0 * table[token_ids]
""",
)
BANK.wrong(
    "first-row-emptied",
    "Writes zeros into row 0 of the caller's table.",
    """
def one_hot_lookup(token_ids, table):
    with torch.no_grad():
        table[0] = 0
    return F.one_hot(token_ids, table.size(0)).to(table.dtype) @ table
""",
)
BANK.wrong(
    "unit-rows",
    "Rows of unit length.",
    """
def one_hot_lookup(token_ids, table):
    return F.one_hot(token_ids, table.size(0)).to(table.dtype) @ F.normalize(table, dim=-1)
""",
)
