#!/usr/bin/env python3
"""Another program, with only the standard library, recomputes the fifth lesson's record.

This test computes attention over whole sequences without a ring, and trains the GPT on whole
sequences. It compares the results with those of every ring and every order of tokens in
outputs.safetensors. Arguments: the program.
"""

import math
import os
import sys
import unittest

from attention import (attention, beside, causal, columns, everything, head, places_of, scores,
                       softmax)
from gpt import Gpt, recompute
from records import assert_close, differing, flat, product, rows_of, run_lesson

PROGRAM = os.path.abspath(sys.argv[1])
TEXT = "To be, or not to be, that is the question:\nWhether ’tis nobler in the mind\n"
WAYS = [("ring-self-attention", "striped"), ("ring-self-attention", "zigzag"),
        ("ring-attention", "contiguous"), ("ring-attention", "striped"), ("gather", "zigzag"),
        ("gather", "contiguous"), ("ulysses", "striped"), ("ulysses", "zigzag")]
METHODS = ["ring-self-attention", "ring-attention"]
# The sizes of attention in steps 2, 3 and 5.
HEADS, WIDTH, SHARE = 2, 4, 4
PLACES = places_of(HEADS, HEADS, WIDTH)


def record(ranks, *options, seed=1, **settings):
    """Returns run.json, inputs and outputs."""
    chosen = [f"--set={key}={value}" for key, value in settings.items()]
    return run_lesson(PROGRAM, "ring-self-attention", "--ranks", str(ranks), "--seed", str(seed),
                      "--text", "text", *options, *chosen, files={"text": TEXT})


def attended(ranks, seed=1):
    """Returns inputs and outputs of steps 2, 3 and 5."""
    return record(ranks, "--step", "5", seed=seed, context=2 * ranks)[1:]


def trained(ranks, method="ring-attention", order="zigzag", **settings):
    """Returns a record of step 10. By default each stretch of a device has two tokens."""
    sizes = {"layers": 2, "heads": ranks, "hidden": 2 * ranks, "context": 4 * ranks, "batch": 2,
             "steps": 3}
    return record(ranks, method=method, order=order, **(sizes | settings))


class RecomputeAttention(unittest.TestCase):
    def check(self, ranks, seed=1):
        inputs, outputs = attended(ranks, seed)
        tokens = SHARE * ranks
        self.assertEqual({name: shape for name, (shape, _) in inputs.items()},
                         {"attention/x": [tokens, 1, 3 * HEADS * WIDTH],
                          "attention/dy": [tokens, 1, HEADS * WIDTH]})
        x, dy = (rows_of(inputs[f"attention/{part}"]) for part in ("x", "dy"))
        ours = flat(scores(columns(x, query, query + WIDTH), columns(x, key, key + WIDTH))
                    for query, key, _ in PLACES)
        shape, theirs = outputs.pop("scores")
        self.assertEqual(shape, [1, HEADS, tokens, tokens])
        assert_close("scores", flat(ours), theirs)
        self.assertEqual(set(outputs), {f"{method}{mask}/{kept}" for method in METHODS
                                        for mask in ("", "_causal") for kept in ("y", "dx")})
        for mask, sees in (("", everything), ("_causal", causal)):
            y, backward = attention(x, PLACES, WIDTH, sees)
            recomputed = {"y": flat(y), "dx": flat(backward(dy))}
            for method in METHODS:
                self.assertEqual(differing(recomputed, outputs, method + mask), set())

    def test_scores_outputs_and_gradients_of_rings_of_several_sizes(self):
        for ranks in (2, 3, 4, 7):
            with self.subTest(ranks=ranks):
                self.check(ranks)

    def test_those_of_another_seed(self):
        self.check(4, seed=5)


class RecomputeGpt(unittest.TestCase):
    def check(self, variants, ranks, ways, **settings):
        """For every sharding of tokens, all variants must have recorded the recomputed values."""
        run, inputs, _ = trained(ranks, **settings)
        recomputed = recompute(run, inputs)
        for method, order in ways:
            with self.subTest(ranks=ranks, method=method, order=order, **settings):
                _, same, outputs = trained(ranks, method, order, **settings)
                self.assertEqual(same, inputs)
                self.assertEqual({name for name in outputs if name.startswith("gpt_")},
                                 {f"{variant}/{name}" for variant in variants
                                  for name in recomputed})
                for variant in variants:
                    self.assertEqual(differing(recomputed, outputs, variant), set(), variant)

    def test_two_devices(self):
        self.check(["gpt_1", "gpt_2"], 2, WAYS)

    def test_three_devices(self):
        self.check(["gpt_1", "gpt_3"], 3, WAYS[1::2], learning_rate=0.05, seed=3)

    def test_four_devices_and_a_mesh_of_two_by_two(self):
        self.check(["gpt_1", "gpt_4", "gpt_4_mesh"], 4, WAYS[::2], batch=4)

    def test_heads_that_share_keys_and_values(self):
        self.check(["gpt_1", "gpt_2"], 2, WAYS[::2], heads=4, kv_heads=2, hidden=8, layers=1)
        self.check(["gpt_1", "gpt_4", "gpt_4_mesh"], 4, WAYS[:6:2], heads=4, kv_heads=1,
                   hidden=12, layers=1)

    def test_inputs_are_those_documented(self):
        run, inputs, _ = trained(2, heads=4, kv_heads=2, hidden=8)
        self.assertEqual(inputs["gpt/starts"][0], [3, 2])
        self.assertEqual(inputs["gpt/initial/transformer.wpe.weight"][0], [8, 8])
        for part, shape in (("weight", [16, 8]), ("bias", [16])):
            self.assertEqual(inputs[f"gpt/initial/transformer.h.1.attn.c_attn.{part}"][0], shape)
        vocabulary = inputs["gpt/vocabulary"][1]
        self.assertEqual("".join(chr(vocabulary[i]) for i in inputs["gpt/ids"][1]), TEXT)
        sizes = {"heads": "4", "kv_heads": "2", "hidden": "8", "context": "8", "batch": "2",
                 "method": "ring-attention", "order": "zigzag"}
        self.assertEqual({key: run["settings"][key] for key in sizes}, sizes)

    def test_sizes_that_were_not_set_are_recorded_and_suit_the_ranks(self):
        for method, sizes in (("ring-attention", ("4", "4", "64")), ("ulysses", ("6", "6", "96"))):
            settings = run_lesson(PROGRAM, "ring-self-attention", "--ranks", "3", "--set",
                                  "steps=1", "--set", f"method={method}")[0]["settings"]
            self.assertEqual((settings["heads"], settings["kv_heads"], settings["hidden"]), sizes)
            self.assertEqual(settings["context"], "258")


def block_of(token):
    return token // SHARE


def never_rescaled(q, k, v):
    """Returns a wrong y: earlier sums are not rescaled when a block has a larger score."""
    y = []
    for row in scores(q, k):
        largest, powers = -math.inf, []
        for first in range(0, len(row), SHARE):
            largest = max([largest, *row[first:first + SHARE]])
            powers += [math.exp(score - largest) for score in row[first:first + SHARE]]
        y += product([[power / sum(powers) for power in powers]], v)
    return y


class WrongRings(unittest.TestCase):
    def setUp(self):
        inputs, self.outputs = attended(2)
        self.x, self.dy = (rows_of(inputs[f"attention/{part}"]) for part in ("x", "dy"))

    def differs(self, kept, recomputed, variant="ring-attention"):
        return differing({kept: flat(recomputed)}, self.outputs, variant) == {kept}

    def heads(self):
        return [[columns(self.x, place, place + WIDTH) for place in of_head]
                for of_head in PLACES]

    def test_keys_that_never_travel_differ(self):
        y, _ = attention(self.x, PLACES, WIDTH, lambda i, j: block_of(i) == block_of(j))
        self.assertTrue(self.differs("y", y))

    def test_a_mask_that_is_off_by_a_token_or_a_hop_differs(self):
        for sees in (everything, lambda i, j: j < max(i, 1),
                     lambda i, j: block_of(j) <= block_of(i)):
            y, _ = attention(self.x, PLACES, WIDTH, sees)
            self.assertTrue(self.differs("y", y, "ring-attention_causal"))

    def test_sums_that_are_not_rescaled_differ(self):
        whole = beside([head(*parts, everything)[0] for parts in self.heads()])
        self.assertFalse(self.differs("y", whole))
        self.assertTrue(self.differs("y", beside([never_rescaled(*p) for p in self.heads()])))

    def test_a_softmax_of_each_block_by_itself_differs(self):
        y = []
        for q, k, v in self.heads():
            weights = [softmax(row, [True] * SHARE) + softmax(row[SHARE:], [True] * SHARE)
                       for row in scores(q, k)]
            y.append([[value / 2 for value in row] for row in product(weights, v)])
        self.assertTrue(self.differs("y", beside(y)))

    def test_gradients_that_are_not_sent_home_differ_in_keys_and_values_alone(self):
        _, backward = attention(self.x, PLACES, WIDTH, everything)
        dx = []
        for block in range(2):
            own = [[slope * (block_of(token) == block) for slope in row]
                   for token, row in enumerate(self.dy)]
            dx += backward(own)[block * SHARE:(block + 1) * SHARE]
        self.assertTrue(self.differs("dx", dx))
        queries = HEADS * WIDTH
        recorded = rows_of(self.outputs["ring-attention/dx"])
        assert_close("dx of queries", flat(columns(dx, 0, queries)),
                     flat(columns(recorded, 0, queries)))


# In which row each of 8 tokens is, in zigzag order on two devices.
ROWS = [0, 1, 4, 5, 6, 7, 2, 3]


class MaskByRow(Gpt):
    """A mistake: the causal mask compares rows, not tokens."""

    @staticmethod
    def sees(i, j):
        return ROWS[j] <= ROWS[i]


class PlacesByRow(Gpt):
    """A mistake: each device numbers its tokens 0, 1, …, instead of by their true positions."""

    def __init__(self, *about):
        super().__init__(*about)
        table = self.values["transformer.wpe.weight"]
        table[:] = [list(table[row % 4]) for row in ROWS]


class EveryOther(Gpt):
    """A mistake: every kv_heads-th head of queries shares keys, instead of consecutive heads."""

    def places(self, hidden):
        places = super().places(hidden)
        group = self.heads // self.kv_heads
        return [(own[0], *places[number % self.kv_heads * group][1:])
                for number, own in enumerate(places)]


class LastOfGroup(Gpt):
    """A mistake: of the heads that share keys and values, only the last head's gradient counts."""

    @staticmethod
    def core(x, places, width, sees):
        y, backward = attention(x, places, width, sees)
        following = [place[1] for place in places[1:]] + [None]

        def overwriting(dy):
            last = [columns(dy, number * width, (number + 1) * width)
                    if place[1] != after else [[0.0] * width for _ in dy]
                    for number, (place, after) in enumerate(zip(places, following))]
            queries = len(places) * width
            return beside([columns(backward(dy), 0, queries),
                           columns(backward(beside(last)), queries, len(x[0]))])
        return y, overwriting


class WrongGpts(unittest.TestCase):
    def check(self, models, loss, **settings):
        run, inputs, outputs = trained(2, steps=1, **settings)
        self.assertEqual(differing(recompute(run, inputs), outputs, "gpt_2"), set())
        for model in models:
            with self.subTest(model=model.__name__):
                names = differing(recompute(run, inputs, model), outputs, "gpt_2")
                self.assertIn("grad/transformer.h.0.attn.c_attn.weight", names)
                self.assertEqual("loss" in names, loss)

    def test_masks_and_places_of_rows_instead_of_tokens_differ_in_the_first_loss(self):
        self.check((MaskByRow, PlacesByRow), True)

    def test_heads_that_share_other_keys_differ_in_the_first_loss(self):
        self.check((EveryOther,), True, heads=4, kv_heads=2, hidden=8)

    def test_shared_keys_that_get_one_head_s_gradient_differ_in_gradients_alone(self):
        self.check((LastOfGroup,), False, heads=4, kv_heads=2, hidden=8)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
