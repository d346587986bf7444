#!/usr/bin/env python3
"""Tests `lockstep cluster` and `lockstep calibrate`. Recomputes bus bandwidths and errors, and tests
files, pictures and error messages.

Arguments: the program.
"""

import csv
import io
import json
import math
import os
import unittest
import xml.etree.ElementTree

from command_case import CommandCase, suggested

# A table as nccl-tests prints it; the times are those of 8 devices at 100 GB/s and 10 us.
HEAD = """# nThread 1 nGpus 1 minBytes 1024 maxBytes 1048576 step: 4(factor) warmup iters: 1 iters: 2
# Using devices
#  Rank  0 Group  0 Pid   7 on    node-1 device  0 [0x53] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   8 on    node-1 device  1 [0x64] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid   9 on    node-2 device  0 [0x53] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid  10 on    node-2 device  1 [0x64] NVIDIA H100 80GB HBM3
#
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""


def time_of(size):
    return 10 + size / 100e9 * 1e6


def printed(sizes, head=HEAD, root="-1", tag="", halves=2, operation="sum", factor=1.5):
    rows = ""
    for size in sizes:
        rate = size / time_of(size) / 1e3
        half = f"{time_of(size):8.2f} {rate:7.2f} {rate * factor:7.2f}      0"
        rows += (f"{tag}{size:12d} {size // 4:13d}     float     {operation} {root} "
                 f"{' '.join([half] * halves)}\n")
    return "".join(tag + line + "\n" for line in head.splitlines()) + rows


SIZES = [1 << n for n in range(10, 31, 2)]
PERF = printed(SIZES, "# Collective test starting: all_reduce_perf\n" + HEAD)
PRODUCTS = "rows,inner,columns,dtype,us\n" + "".join(
    f"{m},{k},{n},bf16,{3 + 2 * m * k * n / (part * 989.4e12) * 1e6:.6g}\n"
    for m, part in ((128, 0.3), (256, 0.4), (1024, 0.6), (4096, 0.7), (8192, 0.7))
    for k, n in ((8192, 8192), (8192, 4096)))

# Korthikanti et al. 2022, table 4. The efficiencies of a100 were fitted to these rows.
LAYERS = b"""hidden,heads,tokens,sequences,tensor_parallel,sequence_parallel,recompute,forward_ms,backward_ms
6144,64,2048,4,8,no,nothing,7.7,11.9
6144,64,2048,4,8,yes,nothing,7.2,11.8
6144,64,2048,4,8,no,layers,7.7,19.5
6144,64,2048,4,8,no,attention,7.7,13.2
6144,64,2048,4,8,yes,attention,7.2,13.1
"""


class Clusters(CommandCase):
    COMMAND = "cluster"
    FILES = {"cluster.json": b'{"base": "h100", "error": {"mean": 0.041, "worst": 0.2, "rows": 30, '
                             b'"constants": 5}}',
             "error.json": b'{"base": "h100", "error": {"means": 1}}'}

    def test_bandwidths_follow_from_times(self):
        factors = {"all_reduce": lambda n: 2 * (n - 1) / n, "broadcast": lambda n: 1}
        for name in suggested("cluster"):
            document = self.document(name)
            self.assertTrue(document["source"])
            for group in document["groups"]:
                n = group["ranks"]
                self.assertEqual(group["nodes"], -(-n // document["devices_per_node"]))
                for verb, rows in group["collectives"].items():
                    factor = factors.get(verb, lambda n: (n - 1) / n)(n)
                    self.assertEqual([row["bytes"] for row in rows], [1 << k for k in range(10, 34)])
                    for row in rows:
                        if name == "unit":
                            self.assertEqual(row["seconds"], 0)
                        else:
                            self.assertAlmostEqual(
                                row["bus_bytes_per_second"] * row["seconds"] / row["bytes"] / factor,
                                1, places=9)

    def test_data_sheets_reach_the_rate_of_a_link(self):
        # 8 devices at 10 GB/s; over two nodes 16 ports at 1 GB/s.
        for group, rate in zip(self.document("classroom")["groups"], (10e9, 8e9)):
            last = group["collectives"]["all_reduce"][-1]
            self.assertAlmostEqual(last["bus_bytes_per_second"] / rate, 1, places=3)
            self.assertEqual(last["algorithm"], "")

    def test_ranks_and_algorithms(self):
        [group] = self.document("h100", "--ranks", "32")["groups"]
        self.assertEqual((group["ranks"], group["nodes"]), (32, 4))
        used = {row["algorithm"] for row in group["collectives"]["all_reduce"]}
        self.assertTrue({"tree LL", "ring Simple"} <= used, used)

    def test_page_and_picture(self):
        text = self.text("h100", "--svg", "h100.svg")
        for words in ("DGX H100", "989.4 TFLOP/s", "30 % at 96", "on ring Simple", "8 devices on one node",
                      "16 devices on 2 nodes", "A all_reduce   B all_gather", "h100.svg"):
            self.assertIn(words, text)
        with open(os.path.join(self.folder, "h100.svg"), encoding="utf-8") as file:
            picture = file.read()
        xml.etree.ElementTree.fromstring(picture)
        self.assertEqual(picture.count('stroke-width="2"'), 10)
        self.assertIn("take no time", self.text("unit"))

    def test_a_fitted_cluster_says_its_error(self):
        self.assertIn("5 constants that were fitted to 30 measurements. They are 4 % off in the mean, "
                      "and 20 % at worst", " ".join(self.text("cluster.json").split()))
        self.assertEqual(self.document("cluster.json")["error"]["mean"], 0.041)

    def test_wrong_usage(self):
        for arguments, words in (
                ([], ["NAME|FILE is missing"]), (["h1000"], ["cluster 'h1000' is neither a preset"]),
                (["h100", "--ranks", "1"], ["--ranks 1: a whole number from 2 to 16384"]),
                (["error.json"], ["error.means is not known; an error has mean, worst"]),
                (["cluster.json", "--svg", "cluster.json"], ["belongs to the cluster"])):
            with self.subTest(arguments=arguments):
                self.assert_refused(self.run_program(*arguments), 2, words)


class Calibrations(CommandCase):
    COMMAND = "calibrate"
    FILES = {"perf.txt": PERF.encode(), "cut.txt": printed(SIZES, "").encode(),
             "small.txt": printed(SIZES[:1], "").encode(),
             "few.csv": b"verb,ranks,bytes,us\nall_reduce,8,1024,20\n",
             "gather.txt": printed(SIZES, operation="none", factor=0.75).encode(),
             "old.txt": printed(SIZES, HEAD, root="", halves=1).encode(),
             "tagged.txt": printed(SIZES, "# all_reduce_perf\n" + HEAD, tag="[1,0]<stdout>:").encode(),
             "two.txt": (PERF + PERF.replace("reduce", "gather")).encode(),
             "fast.json": b'{"base": "h100", "memory_efficiency": 2}',
             "tabs.csv": b"\xef\xbb\xbfbytes\tus\n" + "".join(
                 f"{size}\t{time_of(size):.2f}\n" for size in SIZES).encode(),
             "products.csv": PRODUCTS.encode(),
             "layers.csv": LAYERS,
             "verbs.csv": b"verb,ranks,bytes,ms\nall_to_all,8,1e6,0.1\nall_reduced,8,1e6,0.1\n",
             "times.csv": b"verb,ranks,bytes,us\nall_reduce,8,1024,-3\n",
             "cells.csv": b"verb,ranks,bytes,us\nall_reduce,8,1024\n", "other.csv": b"a,b\n1,2\n",
             "uneven.csv": b"verb,ranks,nodes,bytes,us\nall_reduce,12,5,1024,10\n", "empty.csv": b""}

    def test_a_printed_table_is_fitted(self):
        document = self.document("--from", "perf.txt", "--to", "mine.json")
        self.assertEqual([row["measured_seconds"] for row in document["rows"]],
                         [round(time_of(size), 2) * 1e-6 for size in SIZES])
        self.assertTrue(all("over 4 ranks" in row["what"] for row in document["rows"]))
        self.assertGreater(document["before"]["mean"], 0.5)
        self.assertLess(document["fitted"]["mean"], 0.1)
        off = [abs(row["fitted_seconds"] / row["measured_seconds"] - 1) for row in document["rows"]]
        self.assertAlmostEqual(document["fitted"]["mean"], sum(off) / len(off))
        self.assertAlmostEqual(document["fitted"]["worst"], max(off))

    def test_folds_are_left_out_once(self):
        document = self.document("--from", "perf.txt")
        folds = document["folds"]
        self.assertEqual([fold["rows"] for fold in folds], [3, 2, 2, 2, 2])
        mean = sum(fold["rows"] * fold["mean"] for fold in folds) / len(SIZES)
        self.assertTrue(math.isclose(document["left_out"]["mean"], mean, rel_tol=1e-3))
        self.assertEqual(document["left_out"]["rows"], len(SIZES))
        self.assertGreaterEqual(document["left_out"]["mean"], document["fitted"]["mean"] * 0.9)

    def test_forms_of_printed_tables(self):
        rows = self.document("--from", "perf.txt")["rows"]
        # busbw / algbw = 1.5 tells an all-reduce of four ranks.
        given = [word for column in ("verb=all_reduce", "ranks=4", "nodes=2") for word in ("--with", column)]
        for arguments in (["cut.txt", "--with", "nodes=2"], ["old.txt"], ["tagged.txt"],
                          ["tabs.csv", *given]):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.document("--from", *arguments)["rows"], rows)

    def test_products_find_their_efficiency(self):
        document = self.document("--from", "products.csv", "--cluster", "h100-data-sheet", "--to",
                                 "mine.json")
        found = {each["name"]: each["fitted"] for each in document["constants"]}
        self.assertAlmostEqual(found["products of extent 3,072"], 0.7, delta=0.03)
        self.assertLess(document["left_out"]["mean"], 0.1)
        with open(os.path.join(self.folder, "mine.json"), encoding="utf-8") as file:
            cluster = json.load(file)
        self.assertEqual(cluster["error"]["mean"], document["left_out"]["mean"])
        self.assertEqual(cluster["memory_bytes"], 80 << 30)

    def test_the_file_is_a_cluster_that_says_its_error(self):
        self.text("--from", "perf.txt", "--to", "mine.json")
        self.COMMAND = "cluster"
        self.assertIn("were left out of the fit", " ".join(self.text("mine.json").split()))
        [group] = self.document("mine.json", "--ranks", "8")["groups"]
        self.COMMAND = "lesson"
        text = self.text("column-linear", "--step", "1", "--cluster", "mine.json")
        self.assertIn("Times of mine were fitted to measurements", " ".join(text.split()))

    def test_layers_take_the_published_times(self):
        document = self.document("--from", "layers.csv", "--cluster", "a100")
        self.assertEqual(len(document["rows"]), 10)
        for row in document["rows"]:
            self.assertLess(abs(row["before_seconds"] / row["measured_seconds"] - 1), 0.05, row["what"])
        self.assertLess(document["fitted"]["mean"], document["before"]["mean"])

    def test_what_is_measured_can_be_fitted_later(self):
        measured = self.document("--backend", "sim", "--ranks", "4", "--cluster", "a100", "--set",
                                 "numerics=off", "--csv", "own.csv")
        # Virtual devices of a100 have the times of a100.
        self.assertLess(measured["before"]["worst"], 0.02)
        with open(os.path.join(self.folder, "own.csv"), encoding="utf-8") as file:
            rows = list(csv.DictReader(io.StringIO(file.read())))
        self.assertEqual(len(rows), len(measured["rows"]))
        self.assertTrue({"all_reduce", "all_to_all", ""} <= {row["verb"] for row in rows})
        later = self.document("--from", "own.csv", "--cluster", "a100-data-sheet")
        self.assertEqual([row["what"] for row in later["rows"]], [row["what"] for row in measured["rows"]])
        self.assertLess(later["fitted"]["mean"], later["before"]["mean"])

    def test_wrong_usage(self):
        for arguments, words in (
                (["--from", ""], ["--from: a path is expected"]),
                (["--from", "none.csv"], ["--from none.csv", "No such file"]),
                (["--from", "empty.csv"], ["empty.csv: the file is empty"]),
                (["--from", "other.csv"], ["the columns are a, b; expected are verb, ranks, bytes"]),
                (["--from", "verbs.csv"], ["verbs.csv:3: verb 'all_reduced' is not known; all_reduce"]),
                (["--from", "times.csv"], ["times.csv:2: us is '-3'; a time from 1 ns"]),
                (["--from", "cells.csv"], ["cells.csv:2: this row has 3 cells, and the first row 4"]),
                (["--from", "uneven.csv"], ["all_reduce of 1 KiB over 12 ranks", "evenly over 5 nodes"]),
                (["--from", "few.csv"], ["the number of measurements, 1, is expected to be more"]),
                (["--from", "small.txt"], ["--with ranks=N is expected"]),
                (["--from", "gather.txt"], ["--with verb=all_reduce"]),
                (["--from", "cut.txt", "--with", "ranks=x"], ["--with: ranks is 'x'"]),
                (["--from", "perf.txt", "--cluster", "h1"], ["cluster 'h1' is neither a preset"]),
                (["--from", "perf.txt", "--to", "perf.txt"], ["belongs to the measurements"]),
                (["--with", "ranks=4"], ["--with needs --from"]),
                (["--from", "perf.txt", "--csv", "a.csv"], ["--csv needs measurements without --from"]),
                (["--from", "perf.txt", "--with", "rank=4"], ["--with rank: verb, ranks, nodes"]),
                (["--from", "two.txt"], ["two.txt:22: a second table begins"]),
                (["--from", "perf.txt", "--cluster", "unit"], ["takes no time on unit"]),
                (["--from", "products.csv", "--cluster", "fast.json"], ["memory_efficiency to be at most"]),
                (["--csv", "same", "--to", "same"], ["--csv and --to write to one file"]),
                (["--backend", "sim"], ["--set numerics=off is expected"]),
                (["--backend", "sim", "--largest", "64"], ["--largest 64: a whole number from 1024"])):
            with self.subTest(arguments=arguments):
                self.assert_refused(self.run_program(*arguments), 2, words)


if __name__ == "__main__":
    unittest.main(argv=[__file__], verbosity=1)
