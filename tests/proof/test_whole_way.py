"""A learner's whole way: every stub filled with right answers, none of them the reference's, and a Transformer made of them.

The answers are the bank's right entries. Each set holds other ones, so that people who write loops, einsum, helpers or
library calls all get through. A chapter whose pieces are not in the bank yet is filled with the reference's answers.
"""

import functools
import shutil

import nbclient
import pytest
import torch
from torch import nn

import autograder
from autograder import registry, samples
from autograder.student import LocalStudent
from tests.bank import entries
from tests.proof import filled
from transformer_lab import pieces
from transformer_lab.cells import grade_id_of, is_test, read_notebook

#: The entries that a set is made of. What it does not name it takes from the bank at its place in this table.
SETS = {
    "loops": {
        "onehot-token-by-token",
        "token-gradient-hook",
        "pe-loops",
        "shift-entries",
        "embed-table-by-hand",
        "softmax-rows",
        "attention-query-by-query",
        "self-loop-over-batch",
        "split-slices-in-a-loop",
        "merge-position-by-position",
        "mha-head-by-head",
        "ffn-token-by-token",
        "count-layer-by-layer",
        "ln-row-by-row",
        "residual-mask-by-hand",
        "encoder-loop-over-sublayers",
        "padding-token-by-token",
        "causal-nested-lists",
        "target-entry-by-entry",
        "decoder-loop-over-sublayers",
    },
    "einsum": {
        "onehot-library-one-hot",
        "token-one-hot-product",
        "pe-complex",
        "shift-einsum-embedding",
        "embed-expanded",
        "softmax-logsumexp",
        "attention-einsum-1e9",
        "self-plain-products",
        "split-einsum-with-selections",
        "merge-einsum-with-places",
        "mha-einsum",
        "ffn-einsum",
        "count-shapes",
        "ln-var-mean",
        "residual-copy-carried",
        "encoder-sums-the-other-way",
        "padding-xor",
        "causal-aranges",
        "target-multiplied",
        "decoder-sums-the-other-way",
    },
    "helpers": {
        "onehot-rows-of-the-identity",
        "token-scale-attribute",
        "pe-rotated-rows",
        "shift-diagonals",
        "embed-functional-dropout",
        "softmax-max-values",
        "attention-boolean-indexing",
        "self-fused-kernel",
        "split-view-and-permute",
        "merge-contiguous-view",
        "mha-own-functions",
        "ffn-mask-by-hand",
        "count-factored",
        "ln-biased-var",
        "residual-three-steps",
        "encoder-through-residual",
        "padding-unsqueezed",
        "causal-not-triu",
        "target-helpers",
        "decoder-through-residual",
    },
    "whatever": set(),
}


def answers_of(name: str) -> dict[str, str]:
    """The answer of every piece that the bank has, by the piece's name."""
    place = list(SETS).index(name)
    found = {}
    for piece in dict.fromkeys(entry.piece for entry in entries()):
        right = entries(piece, "right")
        chosen = [entry for entry in right if entry.id in SETS[name]] or [right[(place + 1) % len(right)]]
        found[piece] = filled.answer(chosen[0])
    return found


def references() -> dict[str, str]:
    """The reference's answers, for chapters that the bank does not know yet."""
    sources = sorted((filled.ROOT / "solutions").glob("[0-9][0-9]_*.md"))
    cells = [cell for source in sources for cell in read_notebook(source).cells if not is_test(cell.metadata)]
    return {grade_id_of(cell.metadata): cell.source for cell in cells if grade_id_of(cell.metadata)}


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    @functools.cache
    def make(name):
        return filled.write(tmp_path_factory.mktemp(name) / "notebooks", references() | answers_of(name))

    return make


@pytest.fixture(scope="module")
def mine_of(folder_of):
    @functools.cache
    def load(name):
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv(pieces.PIECES_VARIABLE, raising=False)
            return pieces.load(folder_of(name))

    return load


@pytest.fixture(scope="module")
def reference():
    return pieces.load("solutions")


def test_every_named_answer_is_a_right_one_of_the_bank():
    known = {entry.id: entry for entry in entries(verdict="right")}
    for name, ids in SETS.items():
        assert not ids - set(known), name
        assert len({known[i].piece for i in ids}) == len(ids), name


@pytest.mark.parametrize("name", SETS)
def test_the_notebooks_load_and_build_on_the_learners_own_pieces(name, mine_of):
    mine = mine_of(name)
    assert mine.cell_errors == []
    for piece in registry.pieces():
        assert getattr(mine, piece).__module__ != "transformer_lab.builtin", piece
    embed = mine.TransformerEmbedding(7, 4, 9)
    assert type(embed.token) is mine.TokenEmbedding
    layer = mine.DecoderLayer(nn.Identity(), nn.Identity(), nn.Identity(), 4)
    # What chapter 7 builds on is what chapter 6 defines; a learner may also write the norm again.
    assert isinstance(layer.norm1, nn.Module)
    assert type(layer.norm1).__module__ != "transformer_lab.builtin"


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    """A folder with every file that is handed in beside a notebook: weights that have learnt their task."""
    folder = tmp_path_factory.mktemp("handed in")
    for check in registry.checks():
        if check.file:
            (trained,) = samples.FOLDER.glob(f"{check.chapter:02}_*/trained.safetensors")
            shutil.copy(trained, folder / check.file)
    return folder


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("chapter", filled.chapters())
def test_every_hidden_check_gives_full_points(name, chapter, mine_of, handed_in):
    results = autograder.run_checks(LocalStudent(mine_of(name), folder=handed_in), chapter=chapter, seed=3)
    assert [(r.check, r.message) for r in results if r.message] == []
    assert sum(r.earned for r in results) == sum(r.points for r in results)
    assert [r.terms for r in results if r.terms] == []


# ------------------------------------------------------------------------------------------------------- a Transformer

V, D, H, D_FF, PAD, LAYERS = 23, 12, 3, 20, 2, 2


class EncoderDecoder(nn.Module):
    """Two layers each way, assembled from anybody's pieces; ids (B, S) and (B, T) → the decoder's output (B, T, D)."""

    def __init__(self, own, norm_first: bool):
        super().__init__()

        def attention():
            return own.MultiHeadAttention(D, H)

        def network():
            return own.PositionwiseFeedForward(D, D_FF)

        self.masks = own.padding_mask, own.target_mask
        self.source, self.target = (own.TransformerEmbedding(V, D, 16, pad_id=PAD) for _ in range(2))
        self.encoder = nn.ModuleList(
            own.EncoderLayer(attention(), network(), D, norm_first=norm_first) for _ in range(LAYERS)
        )
        self.decoder = nn.ModuleList(
            own.DecoderLayer(attention(), attention(), network(), D, norm_first=norm_first) for _ in range(LAYERS)
        )
        self.norms = nn.ModuleList(own.LayerNorm(D) if norm_first else nn.Identity() for _ in range(2))

    def forward(self, source_ids, target_ids):
        padding_mask, target_mask = self.masks
        real, past = padding_mask(source_ids, PAD), target_mask(target_ids, PAD)
        memory = self.source(source_ids)
        for layer in self.encoder:
            memory = layer(memory, real)
        memory, x = self.norms[0](memory), self.target(target_ids)
        for layer in self.decoder:
            x = layer(x, memory, past, real)
        return self.norms[1](x)


def ragged(generator, lengths) -> torch.Tensor:
    """Token ids (B, longest), padded behind."""
    ids = torch.randint(3, V, (len(lengths), max(lengths)), generator=generator)
    return ids.where(torch.arange(max(lengths)) < torch.tensor(lengths)[:, None], PAD)


@pytest.mark.parametrize("order", ["post-norm", "pre-norm"])
@pytest.mark.parametrize("name", SETS)
def test_an_encoder_and_a_decoder_agree_with_the_reference(name, order, mine_of, reference):
    torch.manual_seed(0)
    right = EncoderDecoder(reference, order == "pre-norm")
    with torch.no_grad():
        for parameter in right.parameters():  # gains, offsets and biases that are neither 1 nor 0
            parameter.add_(0.1 * torch.randn_like(parameter))
        for embed in (right.source, right.target):
            embed.token.embedding.weight[PAD] = 0
    own = EncoderDecoder(mine_of(name), order == "pre-norm")
    own.load_state_dict(right.state_dict())
    assert {n: p.shape for n, p in own.named_parameters()} == {n: p.shape for n, p in right.named_parameters()}
    generator = torch.Generator().manual_seed(1)
    for lengths in (((5, 9, 1), (7, 2, 4)), ((3,), (6,)), ((2, 2), (1, 1))):
        source, target = (ragged(generator, some) for some in lengths)
        weights = torch.randn(*target.shape, D, generator=generator)
        outputs, gradients = [], []
        for model in (right, own):
            evaluated = model.eval()(source, target)
            model.zero_grad()
            trained = model.train()(source, target)
            (trained * weights).sum().backward()
            outputs.append((evaluated, trained))
            gradients.append({n: p.grad for n, p in model.named_parameters()})
        for theirs, ours in zip(*outputs, strict=True):
            assert torch.allclose(ours, theirs, atol=1e-4)
        for parameter, theirs in gradients[0].items():
            ours = gradients[1][parameter]
            assert torch.allclose(ours, theirs, atol=1e-4 * max(1.0, theirs.abs().max().item())), parameter
    # Nothing behind a sentence's end, and no later word, reaches a word of the target.
    source, target = ragged(generator, (5, 8)), ragged(generator, (6, 6))
    before = own.eval()(source, target)
    longer = torch.cat([source, torch.full((2, 3), PAD)], dim=1)
    assert torch.allclose(own(longer, target), before, atol=1e-5)
    later = target.clone()
    later[:, 4:] = (later[:, 4:] + 1) % V
    assert torch.allclose(own(source, later)[:, :4], before[:, :4], atol=1e-5)


# ------------------------------------------------------------------------------------------------------- in a kernel


@pytest.mark.long
@pytest.mark.parametrize("stub", filled.STUBS, ids=lambda stub: stub.stem)
def test_the_visible_tests_pass_in_a_kernel(stub, folder_of, monkeypatch):
    monkeypatch.delenv(pieces.PIECES_VARIABLE, raising=False)
    path = folder_of("helpers") / stub.stem / stub.name
    notebook = read_notebook(path)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}}).execute()
    tests = [c for c in notebook.cells if grade_id_of(c.metadata).startswith("test_")]
    assert {grade_id_of(cell.metadata) for cell in tests} == {f"test_{p}" for p in registry.pieces(stub.stem)}
    for cell in tests:
        printed = "".join(output.get("text", "") for output in cell.outputs)
        assert "pass" in printed, grade_id_of(cell.metadata)
