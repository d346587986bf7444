#!/usr/bin/env python3
"""Tests `lockstep mesh`. Recomputes the numbers and the parts of a model, and tests texts,
documents, pictures and error messages of the command.

Arguments: the program.
"""

import itertools
import os
import re
import sys
import unittest
import xml.etree.ElementTree

from command_case import CommandCase, limited

SIXTEEN = "pp=2,dp=2,cp=2,tp=2"
SMALL = "layers=4,hidden=64,heads=4,vocabulary=65,context=32,tied=1,kv-heads=2"

# The arguments, and words of the sentence that refuses them.
REFUSED = [
    ([], ["SIZES is missing"]),
    (["pp"], ["'pp' is no axis of a mesh", "NAME=SIZE"]),
    ([""], ["NAME=SIZE is expected"]),
    (["pp=2,"], ["''", "NAME=SIZE is expected"]),
    (["pp=2, dp=2"], ["' dp=2'", "letters, digits"]),
    (["\x1b[2J=2"], ["letters, digits"]),
    (["pp=2", "dp=2"], ["'dp=2' is one argument too many"]),
    (["pp=0"], ["axis pp has size 0, expected 1 or more"]),
    (["pp=2,pp=2"], ["two axes pp"]),
    (["pp=128,dp=129"], ["pp 128 x dp 129 has 16512 ranks; at most 16384"]),
    (["pp=99999,dp=99999,tp=99999"], ["multiply to more than 1073741824 ranks"]),
    ([SIXTEEN, "--plane", "dp,ep"], ["--plane dp,ep: 'ep' is no axis of pp 2 x dp 2"]),
    ([SIXTEEN, "--plane", "dp"], ["--plane dp: name two or more axes"]),
    ([SIXTEEN, "--plane", "dp,cp", "--plane", "dp,dp"], ["--plane dp,dp: dp is there twice"]),
    ([SIXTEEN, "--plane", ""], ["--plane"]),
    ([SIXTEEN, "--rank", "16"], ["--rank 16", "are 0 to 15"]),
    ([SIXTEEN, "--rank", "-1"], ["--rank -1: a whole number from 0"]),
    ([SIXTEEN, "--per-node", "0"], ["--per-node 0: a whole number from 1"]),
    ([SIXTEEN, "--per-node", "4", "--cluster", "h100"], ["--per-node or --cluster, not both"]),
    ([SIXTEEN, "--cluster", "h1000"], ["--cluster: cluster 'h1000' is neither a preset"]),
    ([SIXTEEN, "--colour", "ep"], ["--colour 'ep': pp 2 x dp 2", "has no such axis"]),
    ([SIXTEEN, "--colour", ""], ["--colour '': pp 2 x dp 2", "has no such axis"]),
    ([SIXTEEN, "--colour", "\x1b[2J"], ["--colour '\\x1b[2J'"]),
    (["pp=99999999999999999999"], ["the size of an axis is expected to be at most"]),
    (["dp=4", "--model", SMALL, "--sequence"], ["--sequence", "tp with several ranks"]),
    ([SIXTEEN, "--model", "layers=4,"], ["--model layers=4,: '' is no KEY=VALUE"]),
    ([SIXTEEN, "--model", "shared=8"], ["shared is a size of models with experts"]),
    ([SIXTEEN, "--model", "dense=9"], ["dense is a size of models with experts"]),
    (["dp=2", "--model", "experts=2,dense=4"], ["dense=4 leaves none of the 4 layers"]),
    (["cp=2", "--model", "context=1"], ["the model"]),
    (["dp=2048", "--model", "layers=1000"], ["2048 ranks with about", "fewer ranks"]),
    ([SIXTEEN, "--model", "gpt"], ["--model gpt: llama2-13b, mixtral-8x7b or deepseek-v3 is expected"]),
    ([SIXTEEN, "--model", "deepsek-v3"], ["did you mean deepseek-v3?"]),
    ([SIXTEEN, "--model", "layers=0"], ["--model layers=0: a whole number from 1 to 1000"]),
    ([SIXTEEN, "--model", "layer=4"], ["--model layer=4: no such setting; there are layers,"]),
    ([SIXTEEN, "--model", "layers=4,layers=4"], ["layers is given twice"]),
    ([SIXTEEN, "--model", SMALL, "--zero", "4"], ["--zero 4: a whole number from 0 to 3"]),
    ([SIXTEEN, "--model", SMALL, "--schedule", "1f1bb"], ["--schedule", "did you mean 1f1b?"]),
    ([SIXTEEN, "--model", SMALL, "--chunks", "2"], ["pp 2 x dp 2", "1f1b has one chunk"]),
    ([SIXTEEN, "--zero", "1"], ["--zero needs --model"]),
    ([SIXTEEN, "--sequence"], ["--sequence needs --model"]),
    ([SIXTEEN, "--chunks", "1"], ["--chunks needs --model"]),
    ([SIXTEEN, "--schedule", "gpipe"], ["--schedule needs --model"]),
    (["stages=2", "--model", SMALL], ["the axis 'stages' is unknown", "pp, dp, ep"]),
    (["tp=3", "--model", SMALL], ["4 heads cannot be sharded over 3 ranks"]),
    (["ep=2", "--model", SMALL], ["2 ranks along ep, but the GPT has no experts"]),
    (["pp=16", "--model", SMALL], ["cannot be cut into 16 parts"]),
    (["tp=2", "--model", "deepseek-v3"], ["latent attention"]),
    (["ep=2", "--model", SMALL + ",experts=4", "--zero", "3"], ["ZeRO stage 3", "experts"]),
    ([SIXTEEN, "--svg", ""], ["--svg: a path is expected"]),
    ([SIXTEEN, "--svg", "nowhere/a.svg"], ["--svg nowhere/a.svg", "No such file"]),
    ([SIXTEEN, "--svg", "folder"], ["--svg folder", "not a file"]),
    ([SIXTEEN, "--svg", "new.svg", "--rank", "16"], ["--rank 16"]),
    ([SIXTEEN, "--svg", "new.svg", "--model", "heads=3"], ["heads"]),
    ([SIXTEEN, "--cluster", "cluster.json", "--svg", "./cluster.json"],
     ["--svg ./cluster.json", "that file belongs to the cluster"]),
]


class Command(CommandCase):
    COMMAND = "mesh"
    FILES = {"cluster.json": b'{"base": "h100", "devices_per_node": 4}'}

    def setUp(self):
        super().setUp()
        os.mkdir(os.path.join(self.folder, "folder"))


def places_of(axes):
    """Returns the places of all ranks. The last axis changes fastest."""
    return [list(places) for places in itertools.product(*(range(size) for _, size in axes))]


def groups_of(places, free):
    """Returns the groups of ranks that differ only along the axes `free`, sorted by first rank."""
    groups = {}
    for rank, place in enumerate(places):
        key = tuple(each for axis, each in enumerate(place) if axis not in free)
        groups.setdefault(key, []).append(rank)
    return sorted(groups.values())


class Arithmetic(Command):
    def check(self, axes, per_node, *options):
        document = self.document(",".join(f"{name}={size}" for name, size in axes), *options)
        places = places_of(axes)
        self.assertEqual(document["ranks"], len(places))
        self.assertEqual(document["places"], places)
        self.assertEqual([(each["name"], each["size"]) for each in document["axes"]], axes)
        for axis, lines in enumerate(document["lines"]):
            groups = groups_of(places, {axis})
            self.assertEqual(lines["ranks"], groups)
            if axes[axis][1] > 1:
                self.assertEqual(document["axes"][axis]["apart"], groups[0][1] - groups[0][0])
            touched = [len({rank // per_node for rank in group}) for group in groups]
            self.assertEqual((lines["fewest_nodes"], lines["most_nodes"]),
                             (min(touched), max(touched)))
        self.assertEqual(document["nodes"],
                         [list(range(first, min(first + per_node, len(places))))
                          for first in range(0, len(places), per_node)])
        return document, places

    def test_lines_and_nodes_of_meshes_in_any_order(self):
        for axes in ([("pp", 2), ("dp", 2), ("cp", 2), ("tp", 2)], [("tp", 4), ("pp", 2), ("dp", 3)],
                     [("a", 1), ("b", 5), ("c", 1)], [("dp", 1)],
                     [("x", 3), ("y", 5), ("z", 4), ("u", 2), ("v", 2)]):
            for per_node in (1, 4, 8, 7, 1000):
                with self.subTest(axes=axes, per_node=per_node):
                    self.check(axes, per_node, "--per-node", str(per_node))

    def test_nodes_are_those_of_a_cluster(self):
        self.check([("dp", 12)], 8)
        self.check([("dp", 12)], 8, "--cluster", "h100")
        self.check([("dp", 12)], 4, "--cluster", "cluster.json")

    def test_planes_in_the_order_of_ranks_whatever_the_order_of_axes(self):
        axes = [("pp", 2), ("dp", 3), ("cp", 2), ("tp", 2)]
        document, places = self.check(axes, 8, "--plane", "dp,cp", "--plane", "tp,dp,pp")
        self.assertEqual([each["axes"] for each in document["planes"]],
                         [["dp", "cp"], ["tp", "dp", "pp"]])
        self.assertEqual(document["planes"][0]["ranks"], groups_of(places, {1, 2}))
        self.assertEqual(document["planes"][1]["ranks"], groups_of(places, {0, 1, 3}))

    def test_one_rank(self):
        document, places = self.check([("pp", 2), ("dp", 2), ("tp", 4)], 8, "--rank", "6")
        rank = document["rank"]
        self.assertEqual((rank["rank"], rank["node"]), (6, 0))
        self.assertEqual(rank["places"], {"pp": 0, "dp": 1, "tp": 2})
        self.assertEqual(rank["lines"], {"pp": [6, 14], "dp": [2, 6], "tp": [4, 5, 6, 7]})
        self.assertEqual([each["axes"] for each in rank["planes"]],
                         [["pp", "dp"], ["pp", "tp"], ["dp", "tp"]])
        self.assertEqual(rank["planes"][0]["ranks"], [2, 6, 10, 14])

    def test_the_most_ranks_are_quick_and_do_not_flood_the_screen(self):
        for sizes in ("dp=16384", "pp=16,dp=128,tp=8", ",".join(f"a{i}=2" for i in range(14))):
            with self.subTest(sizes):
                text = self.text(sizes)
                self.assertLess(len(text.splitlines()), 110)
                self.assertTrue(all(len(line) <= 80 for line in text.splitlines()))
        self.check([("pp", 16), ("dp", 128), ("tp", 8)], 8)


def range_of(count, parts, index):
    """Cuts `count` numbers into equal parts; the last may be shorter. Returns a part's range."""
    each = -(-count // parts)
    return range(min(index * each, count), min((index + 1) * each, count))


def own_rows(rows, columns, row_sets, column_range=None):
    """Returns the elements of a part of a matrix that is laid out flat."""
    column_range = range(columns) if column_range is None else column_range
    return [row * columns + column for row_range in row_sets for row in row_range
            for column in column_range]


def expected_parts(tp, place):
    """Returns what a rank of SMALL has under Megatron-LM's tensor parallelism: for each parameter's
    name in its layer, the elements of the whole parameter, which is laid out flat."""
    hidden, width, inner = 64, 16, 256
    heads = [range_of(4, tp, place)], [range_of(2, tp, place)]
    queries, keys = (range(each.start * width, each.stop * width) for (each,) in heads)
    stacked = [queries, range(64 + keys.start, 64 + keys.stop), range(96 + keys.start, 96 + keys.stop)]
    columns = range_of(hidden, tp, place)
    fans = range_of(inner, tp, place)
    table = range_of(65, tp, place)
    return {
        "wte.weight": own_rows(65, hidden, [table]),
        "wpe.weight": list(range(32 * hidden)),
        "ln_1.weight": list(range(hidden)), "ln_1.bias": list(range(hidden)),
        "attn.c_attn.weight": own_rows(128, hidden, stacked),
        "attn.c_attn.bias": own_rows(128, 1, stacked),
        "attn.c_proj.weight": own_rows(hidden, hidden, [range(hidden)], columns),
        "attn.c_proj.bias": list(range(hidden)),
        "ln_2.weight": list(range(hidden)), "ln_2.bias": list(range(hidden)),
        "mlp.c_fc.weight": own_rows(inner, hidden, [fans]),
        "mlp.c_fc.bias": list(fans),
        "mlp.c_proj.weight": own_rows(hidden, inner, [range(hidden)], fans),
        "mlp.c_proj.bias": list(range(hidden)),
        "ln_f.weight": list(range(hidden)), "ln_f.bias": list(range(hidden)),
    }


def elements_of(part):
    return [each["from"] + time * each["apart"] + i for each in part["elements"]
            for time in range(each["times"]) for i in range(each["count"])]


def by_rank(parameters):
    """Returns {rank: {name: elements}}."""
    held = {}
    for parameter in parameters:
        for part in parameter["parts"]:
            for rank in part["ranks"]:
                held.setdefault(rank, {})[parameter["name"]] = elements_of(part)
    return held


def short(name):
    return re.sub(r"^transformer\.(h\.\d+\.)?", "", name)


class Models(Command):
    def test_parts_are_megatrons_on_each_rank(self):
        for sizes in (SIXTEEN, "tp=2,cp=2,dp=1,pp=2", "dp=4", "tp=2,pp=4"):
            with self.subTest(sizes):
                document = self.document(sizes, "--model", SMALL)
                names = [axis["name"] for axis in document["axes"]]
                axis = dict(zip(names, (axis["size"] for axis in document["axes"])))
                held = by_rank(document["model"]["parameters"])
                self.assertEqual(sorted(held), list(range(document["ranks"])))
                layers = {}
                for rank, parts in held.items():
                    place = dict(zip(names, document["places"][rank]))
                    expected = expected_parts(axis.get("tp", 1), place.get("tp", 0))
                    for name, elements in parts.items():
                        self.assertEqual(elements, expected[short(name)], (rank, name))
                        if found := re.search(r"\.h\.(\d+)\.", name):
                            layers.setdefault(place.get("pp", 0), set()).add(int(found[1]))
                    self.assertEqual(document["model"]["ranks"][rank]["numbers"],
                                     sum(map(len, parts.values())))
                self.assertEqual(sorted(sum(map(list, layers.values()), [])), [0, 1, 2, 3])
                ends = [rank for rank, parts in held.items() if "transformer.wte.weight" in parts]
                stages = {dict(zip(names, document["places"][rank])).get("pp", 0) for rank in ends}
                self.assertEqual(stages, {0, axis.get("pp", 1) - 1})  # tied

    def test_memory_of_zeros_stages(self):
        """A parameter takes 16 bytes, or 16/n with stage 3 (Rajbhandari et al. 2019, figure 1)."""
        n, sizes = 4, "layers=2,hidden=64,heads=4,vocabulary=64,context=32"
        numbers = self.document("dp=1", "--model", sizes)["model"]["ranks"][0]["numbers"]
        for stage, bytes_each in enumerate((16, 4 + 12 / n, 2 + 14 / n, 16 / n)):
            with self.subTest(stage=stage):
                document = self.document(f"dp={n}", "--model", sizes, "--zero", str(stage))
                total = 0
                for rank in document["model"]["ranks"]:
                    total += rank["weight_bytes"] + rank["gradient_bytes"]
                    total += rank["optimizer_bytes"]
                self.assertAlmostEqual(total / n / numbers / bytes_each, 1, delta=0.01)
                updated = by_rank(document["model"]["updated"])
                wholes = {each["name"]: each["whole"] for each in document["model"]["updated"]}
                for name, whole in wholes.items():
                    count = whole[0] * (whole[1] if len(whole) > 1 else 1)
                    together = sorted(element for rank in range(n if stage else 1)
                                      for element in updated[rank].get(name, []))
                    self.assertEqual(together, list(range(count)), name)

    def test_experts_lie_along_ep(self):
        model = "layers=2,hidden=16,heads=4,vocabulary=16,context=8,experts=8,dense=1"
        document = self.document("dp=2,ep=4", "--model", model)
        held = by_rank(document["model"]["parameters"])
        experts = [name for name in held[0] if ".experts." in name]
        self.assertEqual(len(experts), 2)
        self.assertTrue(all(".h.1." in name for name in experts))
        for rank in range(8):
            for name in experts:
                first = rank % 4 * 2 * 64 * 16  # two experts of 64 x 16 numbers
                self.assertEqual(held[rank][name], list(range(first, first + 2 * 64 * 16)))

    def test_what_a_rank_holds(self):
        text = self.text(SIXTEEN, "--model", SMALL, "--rank", "5")
        flat = " ".join(text.split())
        for words in ("Rank 5 is at pp 0, dp 1, cp 0, tp 1, on node 0",
                      "rank 5 holds 50,304 of the model's numbers",
                      "h.0–1.attn.c_proj.weight (64, 64) columns 32–63 4,096 8,192",
                      "wpe.weight (32, 64) all 2,048 4,096", "together 50,304 100,736"):
            self.assertIn(words, flat)
        self.assertIn("[5]", text)
        updated = " ".join(self.text(SIXTEEN, "--model", SMALL, "--rank", "5", "--zero", "1").split())
        self.assertIn("It updates the following numbers", updated)

    def test_parameters_of_layers_are_said_once(self):
        text = self.text(SIXTEEN, "--model", SMALL)
        self.assertRegex(text, r"h\.0–3\.mlp\.c_fc\.weight +\(256, 64\) +rows 0–127 +tp 0\n"
                               r" +rows 128–255 +tp 1\n")
        self.assertRegex(text, r"pp 0 +wte, wpe, layers 0–1\n")
        self.assertEqual(len(re.findall(r"c_fc\.weight", text)), 1)

    def test_published_models_on_a_thousand_devices(self):
        for sizes, model in (("pp=16,ep=64", "deepseek-v3"), ("pp=4,dp=4,ep=8,tp=8", "mixtral-8x7b")):
            with self.subTest(model):
                text = self.text(sizes, "--model", model)
                self.assertLess(len(text.splitlines()), 250)
                self.assertTrue(all(len(line) <= 80 for line in text.splitlines()))


class Text(Command):
    def test_it_shows_the_mesh_lines_and_nodes(self):
        text = self.text(SIXTEEN, "--plane", "pp,dp")
        for words in ("pp 2 x dp 2 x cp 2 x tp 2: 16 devices, 2 nodes of 8",
                      "pp 1 dp 0 │  8   9  10  11 │ node 1", "0,8 | 1,9 | 2,10",
                      "across 2 nodes", "inside a node", "pp x dp"):
            self.assertIn(words, text)
        self.assertTrue(all(len(line) <= 80 for line in text.splitlines()))
        self.assertNotIn("\x1b", text)

    def test_help_names_what_there_is(self):
        text = " ".join(self.text("--help").split())
        for words in ("--plane AXES", "llama2-13b, mixtral-8x7b or deepseek-v3", "kv-heads", "--svg FILE"):
            self.assertIn(words, text)

    def test_the_manual_has_the_sizes_that_help_has(self):
        manual = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                              "../../lessons/runner/man/meshes.md")
        with open(manual, encoding="utf-8") as file:
            rows = re.findall(r"(?m)^\| `([a-z-]+)` \|", file.read().split("--json")[1])
        sizes = re.findall(r"(?m)^  ([a-z-]+) {2,}", self.text("--help").split("Sizes of")[1])
        self.assertEqual(rows, sizes)


class Pictures(Command):
    def svg(self, *arguments):
        self.assertIn("picture.svg", self.text(*arguments, "--svg", "picture.svg"))
        root = xml.etree.ElementTree.parse(os.path.join(self.folder, "picture.svg")).getroot()
        self.assertTrue(root.tag.endswith("svg"))
        return [element.text for element in root.iter() if element.tag.endswith("text")]

    def test_an_svg_has_each_rank_and_node(self):
        texts = self.svg(SIXTEEN)
        for words in ["pp 1 dp 0 cp 1 tp 0", "node 1", "16 devices, 2 nodes of 8",
                      *map(str, range(16))]:
            self.assertIn(words, texts)

    def test_an_svg_has_what_devices_hold(self):
        texts = self.svg(SIXTEEN, "--model", SMALL, "--colour", "tp")
        self.assertEqual(texts.count("layers 2–3"), 8)
        self.assertIn("tp 1", texts)

    def test_an_svg_beside_json_leaves_json_alone(self):
        self.document(SIXTEEN, "--svg", "picture.svg")
        self.assertIn("picture.svg", os.listdir(self.folder))

    def test_a_full_disk_leaves_the_earlier_picture_whole(self):
        self.write("picture.svg", b"earlier")
        done = self.run_program(SIXTEEN, "--svg", "picture.svg", preexec_fn=limited)
        self.assert_refused(done, 3, ["--svg picture.svg", "File too large"])
        with open(os.path.join(self.folder, "picture.svg"), "rb") as file:
            self.assertEqual(file.read(), b"earlier")


class Refusals(Command):
    def test_what_cannot_be_is_refused_in_one_sentence(self):
        before = sorted(os.listdir(self.folder))
        for arguments, words in REFUSED:
            for extra in ([], ["--json"]):
                with self.subTest(arguments=arguments, extra=extra):
                    self.assert_refused(self.run_program(*arguments, *extra), 2, words)
        self.assertEqual(sorted(os.listdir(self.folder)), before)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
