"""Known mistakes of chapter 10, each as the code that makes it and the hint that a tutor would give."""

import math

import torch

from autograder.registry import misconception

# -------------------------------------------------------------------------------------------------- batches_by_tokens

BATCHES = "batches_by_tokens"


class _Batches:
    """The correct batches, called as batches_by_tokens is; each slip overrides the one line that it gets wrong."""

    def __new__(cls, lengths, budget):
        return super().__new__(cls).work_out(lengths, budget)

    def work_out(self, lengths, budget):
        batches, batch = [], []
        for index in self.order(lengths):
            if lengths[index] > budget:
                self.refuse(lengths[index], budget)
            if not self.fits([lengths[other] for other in batch], lengths[index], budget):
                batches.append(batch)
                batch = []
            batch.append(index)
        return self.end(batches, batch, lengths)

    def order(self, lengths):
        return sorted(range(len(lengths)), key=lambda index: lengths[index])

    def refuse(self, length, budget):
        raise ValueError(f"{length} tokens are more than the budget of {budget}")

    def fits(self, before, length, budget):
        return (len(before) + 1) * length <= budget

    def end(self, batches, batch, lengths):
        return [*batches, batch] if batch else batches


@misconception(
    BATCHES,
    "real-tokens-counted",
    "The real tokens are counted: what a batch costs is rows × longest row, padding too.",
)
class RealTokensCounted(_Batches):
    def fits(self, before, length, budget):
        return sum(before) + length <= budget


@misconception(
    BATCHES, "padding-of-before", "The longest row is looked for before the new sentence is in: it counts, too."
)
class LongestOfBefore(_Batches):
    def fits(self, before, length, budget):
        return not before or (len(before) + 1) * max(before) <= budget


@misconception(
    BATCHES, "one-row-too-many", "The rows are counted without the sentence that comes: it is one more, so len + 1."
)
class OneRowTooMany(_Batches):
    def fits(self, before, length, budget):
        return len(before) * length <= budget


@misconception(BATCHES, "budget-never-reached", "A batch may take exactly the budget: the condition is ≤ and not <.")
class BudgetNeverReached(_Batches):
    def fits(self, before, length, budget):
        return not before or (len(before) + 1) * length < budget


@misconception(BATCHES, "rows-for-tokens", "The budget is taken for a number of sentences: it is one of padded tokens.")
class RowsForTokens(_Batches):
    def fits(self, before, length, budget):
        return len(before) < budget


AS_THEY_COME = "The sentences are taken as they come: take the shortest first."


@misconception(BATCHES, "not-sorted", AS_THEY_COME)
class NotSorted(_Batches):
    def order(self, lengths):
        return range(len(lengths))


@misconception(BATCHES, "not-sorted", AS_THEY_COME)
class NotSortedButFitting(NotSorted):
    def fits(self, before, length, budget):
        return (len(before) + 1) * max([*before, length]) <= budget


@misconception(BATCHES, "longest-first", "The longest come first: take the shortest first.")
class LongestFirst(_Batches):
    def order(self, lengths):
        return sorted(range(len(lengths)), key=lambda index: -lengths[index])

    def fits(self, before, length, budget):
        return (len(before) + 1) * max([*before, length]) <= budget


@misconception(BATCHES, "longest-first", "The longest come first: take the shortest first.")
class Reversed(LongestFirst):
    def order(self, lengths):
        return sorted(range(len(lengths)), key=lambda index: lengths[index])[::-1]


@misconception(BATCHES, "equals-exchanged", "Among equally long sentences the later ones come first: keep their order.")
class EqualsExchanged(_Batches):
    def order(self, lengths):
        return sorted(range(len(lengths)), key=lambda index: (lengths[index], -index))


@misconception(BATCHES, "last-batch-lost", "The last batch is lost: what has been collected when the loop ends counts.")
class LastBatchLost(_Batches):
    def end(self, batches, batch, lengths):
        return batches


@misconception(BATCHES, "lengths-for-indices", "The batches hold lengths: they hold the indices of the sentences.")
class LengthsForIndices(_Batches):
    def end(self, batches, batch, lengths):
        return [[lengths[index] for index in rows] for rows in super().end(batches, batch, lengths)]


@misconception(
    BATCHES,
    "empty-batch",
    "There is an empty batch: for no sentence the list of batches is empty, and none begins empty.",
)
class EmptyBatch(_Batches):
    def end(self, batches, batch, lengths):
        return [*batches, batch]


@misconception(
    BATCHES, "too-long-kept", "A sentence that is longer than the budget becomes a batch: raise a ValueError."
)
class TooLongKept(_Batches):
    def refuse(self, length, budget):
        pass

    def fits(self, before, length, budget):
        return not before or super().fits(before, length, budget)


@misconception(
    BATCHES, "too-long-dropped", "A sentence that is longer than the budget is left out: raise a ValueError."
)
class TooLongDropped(_Batches):
    def order(self, lengths):
        return [index for index in super().order(lengths) if lengths[index] <= self.budget]

    def work_out(self, lengths, budget):
        self.budget = budget
        return super().work_out(lengths, budget)


@misconception(
    BATCHES, "sentence-lost", "The sentence that does not fit any more is lost: it is the first of the next batch."
)
class SentenceLost(_Batches):
    def work_out(self, lengths, budget):
        batches, batch = [], []
        for index in self.order(lengths):
            if lengths[index] > budget:
                self.refuse(lengths[index], budget)
            if self.fits([lengths[other] for other in batch], lengths[index], budget):
                batch.append(index)
            else:
                batches.append(batch)
                batch = []
        return self.end(batches, batch, lengths)


@misconception(BATCHES, "lengths-sorted", "lengths is sorted in place, and the indices are those of the sorted list.")
class LengthsSorted(_Batches):
    def order(self, lengths):
        lengths.sort()
        return range(len(lengths))


@misconception(BATCHES, "sorted-copy", "The indices are those of the sorted list: those of `lengths` are wanted.")
class SortedCopy(_Batches):
    def work_out(self, lengths, budget):
        return super().work_out(sorted(lengths), budget)


# --------------------------------------------------------------------------------------------------------- accumulate

ACCUMULATE = "accumulate"


class _Accumulate:
    """The correct gradients, called as accumulate is; each slip overrides the one line that it gets wrong."""

    def __new__(cls, model, loss, parts):
        return super().__new__(cls).work_out(model, loss, parts)

    def work_out(self, model, loss, parts):
        self.refuse_none(parts)
        self.before(model)
        total, tokens = 0, 0
        for part in parts:
            self.each(model)
            mean, count = loss(model, part)
            self.differentiate(self.weighed(mean, count, parts))
            total, tokens = total + self.summed(mean) * count, tokens + count
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad /= self.divisor(parts, tokens)
        return self.result(total, tokens, parts)

    def refuse_none(self, parts):
        if not parts:
            raise ValueError("there is no part")

    def before(self, model):
        model.zero_grad()

    def each(self, model):
        pass

    def weighed(self, mean, count, parts):
        return mean * count

    def differentiate(self, loss):
        loss.backward()

    def summed(self, mean):
        return mean.detach()

    def divisor(self, parts, tokens):
        return tokens

    def result(self, total, tokens, parts):
        return total / tokens, tokens


MEANS = "The parts' means are averaged, and all parts count alike: a part counts by its tokens."


class _Means(_Accumulate):
    """Every part counts the same."""

    def weighed(self, mean, count, parts):
        return mean / len(parts)

    def divisor(self, parts, tokens):
        return 1


@misconception(ACCUMULATE, "mean-of-means", MEANS)
class MeanOfMeans(_Means):
    pass


@misconception(ACCUMULATE, "mean-of-means", MEANS)
class MeanOfMeansReturned(_Means):
    def work_out(self, model, loss, parts):
        self.means = []
        return super().work_out(model, loss, parts)

    def summed(self, mean):
        self.means.append(mean.detach())
        return mean.detach()

    def result(self, total, tokens, parts):
        return sum(self.means) / len(self.means), tokens


@misconception(
    ACCUMULATE, "means-summed", "The parts' means are added up: weigh each by its tokens, and divide by all tokens."
)
class MeansSummed(_Accumulate):
    def weighed(self, mean, count, parts):
        return mean

    def divisor(self, parts, tokens):
        return 1


@misconception(ACCUMULATE, "not-divided", "That is the gradient of the sum over all tokens: divide by their number.")
class NotDivided(_Accumulate):
    def divisor(self, parts, tokens):
        return 1


@misconception(ACCUMULATE, "not-divided", "That is the gradient of the sum over all tokens: divide by their number.")
class NotDividedAtAll(NotDivided):
    def result(self, total, tokens, parts):
        return total, tokens


@misconception(
    ACCUMULATE, "divided-by-parts", "The sums are divided by the number of parts: divide by the number of tokens."
)
class DividedByParts(_Accumulate):
    def divisor(self, parts, tokens):
        return len(parts)


@misconception(
    ACCUMULATE,
    "divided-twice",
    "It is divided by the number of parts as well as by that of tokens: by the latter only.",
)
class DividedTwice(_Accumulate):
    def divisor(self, parts, tokens):
        return tokens * len(parts)


KEPT = "Gradients of an earlier call are still in .grad: empty it before the first part."


@misconception(ACCUMULATE, "old-gradients-kept", KEPT)
class OldGradientsKept(_Accumulate):
    def before(self, model):
        pass


@misconception(
    ACCUMULATE,
    "emptied-in-the-loop",
    "Gradients are emptied for each part, so that the last one alone counts: once is right.",
)
class EmptiedInTheLoop(_Accumulate):
    def each(self, model):
        model.zero_grad()


@misconception(
    ACCUMULATE, "emptied-at-the-end", "The gradients are emptied at the end, when they should stay in .grad."
)
class EmptiedAtTheEnd(_Accumulate):
    def work_out(self, model, loss, parts):
        result = super().work_out(model, loss, parts)
        model.zero_grad()
        return result


@misconception(
    ACCUMULATE,
    "divided-in-the-loop",
    "Gradients are divided within the loop, those of the first parts again and again.",
)
class DividedInTheLoop(_Accumulate):
    def work_out(self, model, loss, parts):
        self.refuse_none(parts)
        self.before(model)
        total, tokens = 0, 0
        for part in parts:
            mean, count = loss(model, part)
            (mean * count).backward()
            total, tokens = total + mean.detach() * count, tokens + count
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad /= tokens
        return total / tokens, tokens


ONE_BACKWARD = "All graphs are kept for one backward at the end: call it for each part, or nothing has been saved."


@misconception(ACCUMULATE, "graphs-kept", ONE_BACKWARD)
class GraphsKept(_Accumulate):
    def work_out(self, model, loss, parts):
        self.refuse_none(parts)
        self.before(model)
        pairs = [loss(model, part) for part in parts]
        tokens = sum(count for _, count in pairs)
        mean = sum(mean * count for mean, count in pairs) / tokens
        mean.backward()
        return mean.detach(), tokens


@misconception(ACCUMULATE, "graphs-kept", ONE_BACKWARD)
class MeansKept(_Accumulate):
    def work_out(self, model, loss, parts):
        self.refuse_none(parts)
        self.before(model)
        pairs = [loss(model, part) for part in parts]
        mean = sum(mean for mean, _ in pairs) / len(pairs)
        mean.backward()
        return mean.detach(), sum(count for _, count in pairs)


@misconception(
    ACCUMULATE, "graph-retained", "retain_graph keeps the graph of a part when it is no longer needed: leave it out."
)
class GraphRetained(_Accumulate):
    def differentiate(self, loss):
        loss.backward(retain_graph=True)


@misconception(
    ACCUMULATE, "not-detached", "The loss that comes back still holds its graph: add up detached numbers, as for a log."
)
class NotDetached(_Accumulate):
    def summed(self, mean):
        return mean


@misconception(ACCUMULATE, "sum-returned", "The sum of the losses comes back: divide it by the number of all tokens.")
class SumReturned(_Accumulate):
    def result(self, total, tokens, parts):
        return total, tokens


@misconception(
    ACCUMULATE, "parts-counted", "The number of parts comes back: that of the tokens of all parts is wanted."
)
class PartsCounted(_Accumulate):
    def result(self, total, tokens, parts):
        return total / tokens, len(parts)


class _Last(_Accumulate):
    last: tuple

    def work_out(self, model, loss, parts):
        def remembered(model, part):
            self.last = loss(model, part)
            return self.last

        return super().work_out(model, remembered, parts)


@misconception(
    ACCUMULATE, "last-part-returned", "The loss of the last part comes back: the mean over the tokens of all is wanted."
)
class LastPartReturned(_Last):
    def result(self, total, tokens, parts):
        return self.last[0].detach(), tokens


@misconception(
    ACCUMULATE, "last-part-returned", "Loss and tokens of the last part come back: those of all parts are wanted."
)
class LastPairReturned(_Last):
    def result(self, total, tokens, parts):
        return self.last[0].detach(), self.last[1]


@misconception(ACCUMULATE, "returned-too-early", "It returns within the loop, after the first part.")
class ReturnedTooEarly(_Accumulate):
    def work_out(self, model, loss, parts):
        return super().work_out(model, loss, parts[:1])


@misconception(ACCUMULATE, "nothing-to-do", "Without any part something comes back: raise a ValueError.")
class NothingToDo(_Accumulate):
    def refuse_none(self, parts):
        pass

    def result(self, total, tokens, parts):
        return total / max(tokens, 1), tokens


# -------------------------------------------------------------------------------------------------- attend_with_cache

CACHED = "attend_with_cache"


class _Attend:
    """The correct attention, called as attend_with_cache is; each slip overrides the one line that it gets wrong."""

    def __new__(cls, q, k, v, past=None, mask=None):
        return super().__new__(cls).work_out(q, k, v, past, mask)

    def work_out(self, q, k, v, past, mask):
        keys, values = (k, v) if past is None else self.joined(k, v, past)
        opened = self.opened(q.size(-2), keys.size(-2))
        if mask is not None:
            opened = self.both(opened, self.real(mask, q.size(-2)))
        scores = q @ keys.transpose(-2, -1) / self.divisor(q, keys)
        return self.result(self.weights(scores, opened) @ values, keys, values, k, v)

    def joined(self, k, v, past):
        return torch.cat([past[0], k], dim=-2), torch.cat([past[1], v], dim=-2)

    def opened(self, new, seen):
        return torch.ones(new, seen, dtype=torch.bool).tril(seen - new)

    def real(self, mask, new):
        return mask[:, None, None, :]

    def both(self, opened, real):
        return opened & real

    def divisor(self, q, keys):
        return math.sqrt(q.size(-1))

    def weights(self, scores, opened):
        return scores.masked_fill(~opened, -math.inf).softmax(-1).masked_fill(~opened, 0.0)

    def result(self, output, keys, values, k, v):
        return output, (keys, values)


EDGE = "The slanted edge begins at the left, as if there were no past: with t past positions it stands t further right."


@misconception(CACHED, "edge-at-the-left", EDGE)
class EdgeAtTheLeft(_Attend):
    def opened(self, new, seen):
        return torch.ones(new, seen, dtype=torch.bool).tril()


@misconception(
    CACHED, "not-causal", "New positions look at each other's future: of several, each sees the new ones up to itself."
)
class NotCausal(_Attend):
    def opened(self, new, seen):
        return torch.ones(new, seen, dtype=torch.bool)


@misconception(CACHED, "not-itself", "A new position does not attend to itself: the edge stands one too far left.")
class NotItself(_Attend):
    def opened(self, new, seen):
        return torch.ones(new, seen, dtype=torch.bool).tril(seen - new - 1)


@misconception(CACHED, "one-too-far", "A new position sees the one behind it: the edge stands one too far right.")
class OneTooFar(_Attend):
    def opened(self, new, seen):
        return torch.ones(new, seen, dtype=torch.bool).tril(seen - new + 1)


@misconception(
    CACHED, "past-alone", "New positions see the past alone, and not those that are new: itself at least is open."
)
class PastAlone(_Attend):
    def opened(self, new, seen):
        return (torch.arange(seen) < seen - new).expand(new, seen)


@misconception(CACHED, "scale-missing", "The scores are not divided by √K.")
class ScaleMissing(_Attend):
    def divisor(self, q, keys):
        return 1.0


@misconception(CACHED, "scale-without-root", "The scores are divided by K: by √K is right.")
class ScaleWithoutRoot(_Attend):
    def divisor(self, q, keys):
        return q.size(-1)


@misconception(
    CACHED, "scale-by-length", "The scores are divided by the root of the length: by that of K, the width of a head."
)
class ScaleByLength(_Attend):
    def divisor(self, q, keys):
        return math.sqrt(keys.size(-2))


@misconception(CACHED, "past-behind", "The past is joined behind the new positions: it comes first.")
class PastBehind(_Attend):
    def joined(self, k, v, past):
        return torch.cat([k, past[0]], dim=-2), torch.cat([v, past[1]], dim=-2)


@misconception(CACHED, "past-forgotten", "What is past is forgotten: join its keys and values with the new ones.")
class PastForgotten(_Attend):
    def joined(self, k, v, past):
        return k, v

    def real(self, mask, new):
        return mask[:, None, None, -new:]


@misconception(CACHED, "pair-exchanged", "Keys and values are exchanged in what comes back: keys first.")
class PairExchanged(_Attend):
    def result(self, output, keys, values, k, v):
        return output, (values, keys)


@misconception(CACHED, "past-exchanged", "Keys and values of the past are exchanged: keys come first in the pair.")
class PastExchanged(_Attend):
    def joined(self, k, v, past):
        return super().joined(k, v, (past[1], past[0]))


@misconception(
    CACHED,
    "new-ones-returned",
    "Only the new keys and values come back: those of all positions are the next call's past.",
)
class NewOnesReturned(_Attend):
    def result(self, output, keys, values, k, v):
        return output, (k, v)


@misconception(CACHED, "output-alone", "The output alone comes back: keys and values of all positions are wanted, too.")
class OutputAlone(_Attend):
    def result(self, output, keys, values, k, v):
        return output


@misconception(CACHED, "three-returned", "Three tensors come back: a pair is wanted, the second of which is a pair.")
class ThreeReturned(_Attend):
    def result(self, output, keys, values, k, v):
        return output, keys, values


PADDING_KEPT = "Keys or values of padding are set to 0 in what comes back: they come back as they are, real or not."


class _Zeroed(_Attend):
    def work_out(self, q, k, v, past, mask):
        output, (keys, values) = super().work_out(q, k, v, past, mask)
        return output, (keys, values) if mask is None else self.zeroed(keys, values, mask[:, None, :, None])

    def zeroed(self, keys, values, real):
        return keys * real, values * real


@misconception(CACHED, "padding-zeroed", PADDING_KEPT)
class PaddingZeroed(_Zeroed):
    pass


@misconception(CACHED, "padding-zeroed", PADDING_KEPT)
class ValuesZeroed(_Zeroed):
    def zeroed(self, keys, values, real):
        return keys, values * real


@misconception(CACHED, "padding-zeroed", PADDING_KEPT)
class KeysZeroed(_Zeroed):
    def zeroed(self, keys, values, real):
        return keys * real, values


@misconception(CACHED, "mask-ignored", "The mask has no effect: padding is attended to.")
class MaskIgnored(_Attend):
    def real(self, mask, new):
        return torch.ones_like(mask)[:, None, None, :]


AXES = "The mask (B, t + n) lacks two axes to meet the scores (B, H, n, t + n): without them its rows meet other axes."


class _WithoutAxes(_Attend):
    axes: tuple = ()

    def real(self, mask, new):
        return mask[self.axes]


@misconception(CACHED, "mask-without-axes", AXES)
class MaskWithoutAxes(_WithoutAxes):
    pass


@misconception(CACHED, "mask-without-axes", AXES)
class MaskWithOneAxis(_WithoutAxes):
    axes = (slice(None), None)


@misconception(CACHED, "mask-without-axes", AXES)
class MaskWithoutAxesFirst(_WithoutAxes):
    def both(self, opened, real):
        return real & opened


@misconception(CACHED, "mask-inverted", "The mask is taken the wrong way round: True is a real token.")
class MaskInverted(_Attend):
    def real(self, mask, new):
        return ~mask[:, None, None, :]


@misconception(CACHED, "queries-masked", "The mask closes queries that are padding: it closes keys, whoever asks.")
class QueriesMasked(_Attend):
    def real(self, mask, new):
        return mask[:, None, -new:, None]


@misconception(
    CACHED,
    "mask-after-softmax",
    "Weights are set to 0 behind the softmax, and the others do not add up to 1: mask the scores.",
)
class MaskAfterSoftmax(_Attend):
    def weights(self, scores, opened):
        return scores.softmax(-1).masked_fill(~opened, 0.0)


@misconception(CACHED, "scores-of-zero", "Closed scores are 0, which is no small score: −∞ gives the weight 0.")
class ScoresOfZero(_Attend):
    def weights(self, scores, opened):
        return scores.masked_fill(~opened, 0.0).softmax(-1)


NOTHING = "A query that may attend to nothing gives NaN or a mean of padding: its output is 0."


@misconception(CACHED, "nothing-open", NOTHING)
class NothingIsNan(_Attend):
    def weights(self, scores, opened):
        return scores.masked_fill(~opened, -math.inf).softmax(-1)


@misconception(CACHED, "nothing-open", NOTHING)
class NothingIsTheMean(_Attend):
    def weights(self, scores, opened):
        return scores.masked_fill(~opened, -1e9).softmax(-1)


@misconception(
    CACHED, "softmax-over-queries", "The softmax runs over the queries: it runs over the keys, the last axis."
)
class SoftmaxOverQueries(_Attend):
    def weights(self, scores, opened):
        return scores.masked_fill(~opened, -math.inf).softmax(-2).nan_to_num(0.0)


@misconception(CACHED, "overflow", "exp of a large score is infinite: subtract the largest first, as softmax does.")
class Overflow(_Attend):
    def weights(self, scores, opened):
        powers = scores.exp().masked_fill(~opened, 0.0)
        return powers / powers.sum(-1, keepdim=True).clamp(min=1e-30)


# ---------------------------------------------------------------------------------------------------------- diagnosis

DIAGNOSIS = "diagnosis"
RIGHT = {"A": "target shift", "B": "warm-up", "C": "leaking mask"}

HINTS = {
    "A": "Look at what A says behind the tokens of a right translation: which token of it does it name, and how reliably?",
    "B": "Compare the first steps of B with those of the healthy run: the learning rate, the gradient, and what comes of it.",
    "C": "Give C a right translation, and change the words that are still to come: what do its logits do, with "
    "causal=True and with causal=False?",
}


def _answering(run: str, cause: str):
    def diagnosis(name):
        return (RIGHT | {run: cause})[name]

    return diagnosis


for _run, _hint in HINTS.items():
    for _cause in ("warm-up", "leaking mask", "target shift", "none of these"):
        if _cause != RIGHT[_run]:
            misconception(DIAGNOSIS, f"run-{_run.lower()}", _hint)(_answering(_run, _cause))


@misconception(DIAGNOSIS, "guesses", "A run that does not exist gets an answer, too: raise a KeyError or a ValueError.")
def guesses(run):
    return RIGHT.get(run, "none of these")
