#!/usr/bin/env python3
"""Tests `lockstep schedule`: its figures, documents, pictures and error messages.

Arguments: the program.
"""

import json
import os
import sys
import unittest
import xml.etree.ElementTree

from command_case import CommandCase, limited, suggested

NAMES = suggested("schedule")
SIZES = ("--stages", "4", "--micro-batches", "8")
# Qi et al. 2023 (Zero Bubble, 2401.10241): their model of 1.5B parameters, in milliseconds.
PUBLISHED = ("--stages", "8", "--micro-batches", "24", "--forward", "18.522",
             "--backward-input", "18.086", "--backward-weight", "9.337", "--comm", "0.601")

LINES = '{"schedule": [["F0", "F1", "B0", "B1"],\n["F0", "B0", "F1", "B1"]]}\n'

# Files in the folder where each case runs.
FILES = {
    "good.json": LINES.encode(),
    "good.csv": b"# two stages\r\nF0, F1, B0, B1\r\nF0, B0, , F1, B1\r\n",
    "sent.csv": b"F0,SA0,RG0,B0\nRA0,F0,B0,SG0\n",
    "stuck.csv": b"F0,SA0,F1,SA1,RG0,B0,RG1,B1\nRA1,RA0,F0,B0,SG0,F1,B1,SG1\n",
    "turned.csv": b"F0,B0,F1,B1\nF1,B1,F0,B0\n",
    "twice.csv": b"F0,B0\nF0,F0,B0\n",
    "uneven.json": b'''{"schedule": [["F0", "B0"], ["F0", "B0"], ["F0", "B0"]],
 "times": {"forward": [1, 2.5, 3], "backward": 3, "recompute": 1, "message": [0.25, 0.5, 0],
           "links": {"1-2": 4}},
 "memory": {"activations": [1, 2, 3], "weights": 2}}''',
    "missing.json": b'{"micro_batches": 2, "schedule": [["F0", "B0"]]}',
    "word.csv": b"F0,B0\nF0,Bee\n",
    "empty.json": b"",
    "binary.json": b"\x7fELF\x02\x01\x01\x00\n\xff\xfe",
    "syntax.json": b'{\n "schedule": [["F0",]]}',
    "top.json": b"[]",
    "key.json": b'{"schedule": [["F0", "B0"]],\n"colour": 1}',
    "twice.json": b'{"schedule": [["F0"]],\n"schedule": [["F0"]]}',
    "size.json": b'{"schedule": [["F0"]],\n"micro_batches": 1e300}',
    "folder.json/file": b"",
    "\x1b[2J.json": b"{",
    "file": b"no folder",
}

# (arguments, contents of the sentence); the exit status is 2.
REFUSED = [
    ([], ["NAME is missing", "lockstep schedule --help"]),
    (["1f1b"], ["--stages is missing"]),
    (["1f1b", "--stages", "4"], ["--micro-batches is missing"]),
    (["gpip", *SIZES], ["no schedule 'gpip'", "did you mean gpipe?"]),
    (["zebra-crossing", *SIZES], ["no schedule 'zebra-crossing'", "1f1b", ".json or .csv"]),
    (["\x1b[2J\nx", *SIZES], ["\\x1b[2J"]),
    (["1f1b", *SIZES, "--stage", "2"], ["--stage", "did you mean --stages?"]),
    (["1f1b", *SIZES, "extra"], ["'extra'", "lockstep schedule"]),
    (["1f1b", "--stages", "0"], ["--stages 0: a whole number from 1 to 16384"]),
    (["1f1b", "--stages", "16385"], ["--stages 16385", "1 to 16384"]),
    (["1f1b", "--stages", "4", "--micro-batches", "-1"], ["--micro-batches -1", "1 to 1000000"]),
    (["1f1b", "--stages", "4", "--micro-batches", "2.5"], ["--micro-batches 2.5"]),
    (["1f1b", "--stages", "4", "--micro-batches", "99999999999999999999"], ["1 to 1000000"]),
    (["1f1b", *SIZES, "--chunks", "0"], ["--chunks 0", "1 to 1024"]),
    (["1f1b", *SIZES, "--chunks", "2"], ["--chunks 2: 1f1b has one chunk", "interleaved"]),
    (["1f1b", "--stages", "16384", "--micro-batches", "1000000"], ["--stages 16384", "4000000"]),
    (["1f1b", *SIZES, "--forward", "-1"], ["--forward -1: '-1' is not a number from 0 to 1000000"]),
    (["1f1b", *SIZES, "--forward", "nan"], ["--forward nan"]),
    (["1f1b", *SIZES, "--forward", "inf"], ["--forward inf"]),
    (["1f1b", *SIZES, "--comm", "1e7"], ["--comm 1e7", "0 to 1000000"]),
    (["1f1b", *SIZES, "--backward-input", "fast"], ["--backward-input fast", "'fast'"]),
    (["1f1b", *SIZES, "--backward-weight", "1,,1,1"], ["--backward-weight 1,,1,1", "''"]),
    (["1f1b", *SIZES, "--forward", ""], ["--forward"]),
    (["1f1b", *SIZES, "--forward", "1,2"], ["--forward has 2 numbers", "4 (one per stage)"]),
    (["1f1b", *SIZES, "--comm", "0,0,0,0,0"], ["--comm has 5 numbers", "4 (one per stage)"]),
    (["1f1b", "--stages", "100", "--micro-batches", "10000", "--forward", "1000000",
      "--comm", "0.000000001"], ["the times", "longer than can be counted"]),
    (["1f1b", *SIZES, "--memory-activation", "-1"], ["--memory-activation -1"]),
    (["1f1b", *SIZES, "--memory-weight", "nan"], ["--memory-weight nan"]),
    (["1f1b", *SIZES, "--svg", ""], ["--svg: a path is expected"]),
    (["1f1b", *SIZES, "--svg", "nowhere/a.svg"], ["--svg nowhere/a.svg", "No such file"]),
    (["1f1b", *SIZES, "--svg", "file/a.svg"], ["--svg file/a.svg", "Not a directory"]),
    (["1f1b", *SIZES, "--svg", "folder.json"], ["--svg folder.json", "not a file"]),
    (["1f1b", *SIZES, "--svg", "/dev/null"], ["--svg /dev/null", "not a file"]),
    (["none.json"], ["none.json", "No such file"]),
    (["./none"], ["./none", "No such file"]),
    (["folder.json"], ["folder.json", "not a file"]),
    (["/dev/zero"], ["/dev/zero", "not a file"]),
    (["empty.json"], ["empty.json is empty"]),
    (["binary.json"], ["binary.json:1: this is not JSON, at column 1"]),
    (["syntax.json"], ["syntax.json:2: this is not JSON, at column 21: unexpected ']'"]),
    (["\x1b[2J.json"], ["\\x1b[2J.json:1", "unexpected end of input"]),
    (["top.json"], ["top.json:1: the file is a list"]),
    (["key.json"], ["key.json:2", "\"colour\" is not known"]),
    (["twice.json"], ["twice.json:2", "\"schedule\" is there twice"]),
    (["size.json"], ["size.json:2", "\"micro_batches\" is 1e300"]),
    (["word.csv"], ["word.csv:2: \"Bee\" is no instruction", "F, B, I, W"]),
    (["twice.csv"], ["twice.csv:2: stage 1, instruction 2 of 3", "done before"]),
    (["missing.json"], ["missing.json:1: stage 0 never runs the forward of micro-batch 1"]),
    (["good.json", "--stages", "3"], ["--stages 3", "good.json has 2;"]),
    (["good.csv", "--micro-batches", "3"], ["--micro-batches 3", "good.csv has 2;"]),
    (["good.csv", "--chunks", "2"], ["--chunks 2", "good.csv has 1;"]),
    (["good.csv", "--forward", "1,2,3"], ["--forward has 3 numbers", "2 (one per stage)"]),
    (["uneven.json", "--forward", "1,2,3"], ["uneven.json", "times for each part"]),
    (["1f1b", *SIZES, "--per-update", "3"], ["every 3 micro-batches", "8 is not a multiple"]),
    (["pipedream", *SIZES, "--per-update", "3"], ["pipedream-2bw"]),
    (["pipedream-2bw", *SIZES, "--per-update", "2"], ["2 micro-batches an update on 4 stages"]),
    (["1f1b", *SIZES, "--backward", "0.000000001"], ["--backward 0.000000001", "rounded"]),
    (["zb-h1", *SIZES, "--limit", "0.5"], ["fits into 0.5", "needs 1"]),
    (["zb-h1", *SIZES, "--limit", "4", "--messages"], ["--limit", "--csv"]),
    (["pipedream", *SIZES, "--limit", "4"],
     ["--limit 4: stage 0, instruction 6", "more work follows it"]),
    (["1f1b", *SIZES, "--svg", "new.svg", "--svg-period", "period.svg"],
     ["--svg-period", "no period"]),
    (["1f1b", *SIZES, "--svg", "new.svg", "--csv", "./new.svg"], ["--csv", "--svg writes"]),
    (["1f1b", *SIZES, "--per-update", "4", "--svg", "new.svg", "--pytorch", "torch.csv"],
     ["optimizer step", "updates only after the whole schedule"]),
    (["chimera", *SIZES, "--pytorch", "torch.csv"], ["on two stages", "one rank"]),
    (["chimera", *SIZES, "--chunks", "3"], ["chimera has two chunks", "3 were asked for"]),
    (["1f1b", *SIZES, "--messages", "--messages-as", "groups"],
     ["--messages or --messages-as", "not both"]),
    (["good.json", "--per-update", "2"], ["--per-update", "good.json"]),
    (["sent.csv", "--limit", "4"], ["sent.csv:1: stage 0, instruction 2", "without messages"]),
    (["1f1b", *SIZES, "--messages-as", "it-comes"], ["--messages-as it-comes", "groups"]),
    (["good.csv", "--csv", "good.csv"], ["--csv good.csv", "belongs to the schedule"]),
    (["pipedream", *SIZES, "--pytorch", "a.csv"],
     ["stage 0", "updates only after the whole schedule"]),
    (["sent.csv", "--messages"], ["--messages", "sent.csv has messages already"]),
]


class Command(CommandCase):
    COMMAND = "schedule"
    FILES = FILES


class Figures(Command):
    def test_the_published_bubbles_of_zero_bubble(self):
        for name, bubble in (("1f1b", 0.2431), ("zb-h1", 0.1585), ("zb-h2", 0.1083)):
            with self.subTest(name):
                document = self.document(name, *PUBLISHED)
                self.assertEqual(round(document["bubble_over_total"], 4), bubble)
                self.assertEqual(document["durations"]["comm"], [0.601] * 8)
        self.assertEqual(self.document("1f1b", *PUBLISHED)["makespan"], 1456.749)

    def test_chunks_divide_the_times_and_the_bubble(self):
        document = self.document("interleaved", *PUBLISHED[:-2], "--chunks", "3")
        whole = 18.522 + 18.086 + 9.337
        self.assertAlmostEqual(document["ideal"], 24 * whole, places=9)
        self.assertAlmostEqual(document["bubble_time"], 7 * whole / 3, places=9)
        self.assertEqual(document["durations"]["forward"], [18.522] * 8)
        self.assertEqual(document["in_flight"], [2 * (7 - s) + 17 for s in range(8)])

    def test_both_divisions_of_the_bubble(self):
        document = self.document("gpipe", *SIZES)
        self.assertEqual(document["makespan"], 33)
        self.assertEqual(document["bubble_over_total"], 3 / 11)
        self.assertEqual(document["bubble_over_ideal"], 3 / 8)

    def test_every_stage_can_have_times_of_its_own(self):
        document = self.document("1f1b", *SIZES, "--forward", "1,2,0.5, 1", "--comm", "0,0,1,0",
                                 "--spans")
        self.assertEqual(document["durations"]["forward"], [1, 2, 0.5, 1])
        self.assertEqual(document["spans"][1][0], [1, 3])
        self.assertEqual(document["spans"][3][0], [4.5, 5.5])

    def test_a_files_parts_and_links_have_times_and_memory_of_their_own(self):
        document = self.document("uneven.json")
        self.assertEqual(document["makespan"], 6.5 + 12 + 2 * 4.25)
        self.assertEqual(document["peak_memory"], [3, 4, 5])
        self.assertEqual(document["times"]["links"], {"1-2": 4})
        self.assertEqual(self.document("uneven.json", "--comm", "0")["makespan"], 6.5 + 12 + 8)
        with open(os.path.join(self.folder, "again.json"), "w", encoding="utf-8") as file:
            json.dump(document, file)
        self.assertEqual({**self.document("again.json"), "name": "uneven"}, document)

    def test_a_pipeline_that_does_not_stop_has_a_period_without_a_bubble(self):
        document = self.document("pipedream", "--stages", "4", "--micro-batches", "8")
        self.assertEqual(document["bubble_over_total"], 3 / 11)
        self.assertEqual(document["period"]["bubble_time"], 0)
        self.assertEqual(document["period"]["length"], 3)
        self.assertEqual(document["period"]["weight_versions"], [4, 3, 2, 1])
        self.assertEqual(document["period"]["staleness"], [[3], [2], [1], [0]])
        batches = self.document("pipedream-2bw", *SIZES, "--per-update", "8")
        self.assertEqual(batches["period"]["micro_batches"], 8)
        self.assertEqual(batches["period"]["weight_versions"], [2] * 4)
        flush = self.document("1f1b", *SIZES, "--per-update", "4")
        self.assertEqual(flush["period"]["bubble_time"], 9)
        self.assertIn("period, once all stages keep one pace",
                      self.text("1f1b", *SIZES, "--per-update", "4"))

    def test_what_is_too_long_to_go_on_for_ever_is_timed_as_far_as_it_goes(self):
        sizes = ("--stages", "1500", "--micro-batches", "2")
        self.assertNotIn("period", self.document("pipedream", *sizes))
        text = self.text("pipedream-2bw", "--stages", "4", "--micro-batches", "2")
        self.assertIn("No period: ", text)

    def test_a_period_in_which_nothing_updates_says_so(self):
        with open(os.path.join(self.folder, "gathers.csv"), "w", encoding="utf-8") as file:
            file.write("[,F0,B0,]x3\n")
        self.assertEqual(self.document("gathers.csv")["period"]["staleness"], [[None]])
        self.assertRegex(self.text("gathers.csv"), r"updates late\n[^\0]* never\n")

    def test_pytorchs_schedules_are_written_and_read(self):
        mine = self.document("interleaved", *SIZES, "--chunks", "2", "--csv", "mine.csv",
                             "--pytorch", "theirs.csv")
        with open(os.path.join(self.folder, "theirs.csv"), encoding="utf-8") as file:
            self.assertTrue(file.readline().startswith("0F0,0F1,0F2,0F3,4F0,"))
        for name in ("mine.csv", "theirs.csv"):
            read = self.document(name, "--forward", "1")
            self.assertEqual(read["makespan"], mine["makespan"])
            self.assertEqual(read["parts"], mine["parts"])

    def test_updates_reductions_and_recomputation_take_their_time(self):
        whole = self.document("1f1b", *SIZES, "--backward", "2")
        self.assertEqual(whole["makespan"], 33)
        slow = self.document("1f1b", *SIZES, "--backward", "2", "--recompute", "1",
                             "--reduce", "5", "--update", "0.5")
        self.assertEqual(slow["makespan"], 11 * 4 + 5.5)

    def test_messages_go_in_groups_or_by_direction(self):
        stuck = self.run_program("1f1b", *SIZES, "--messages-as", "in-place")
        self.assert_refused(stuck, 1, ["deadlock", "closes the cycle"])
        for how, text in (("groups", "(SA3;RG0)"), ("by-direction", "SA3")):
            document = self.document("1f1b", *SIZES, "--messages-as", how)
            self.assertIn(text, document["schedule"][0])
            self.assertEqual(document["makespan"], 33)

    def test_thirds_and_billionths_are_exact(self):
        document = self.document("interleaved", "--stages", "1", "--micro-batches", "1",
                                 "--chunks", "3", "--forward", "0.000000001",
                                 "--backward-input", "0", "--backward-weight", "1000000",
                                 "--spans")
        self.assertEqual(document["makespan"], 1000000.000000001)
        self.assertEqual(document["spans"][0][2], [2 / 3e9, 1e-9])

    def test_nothing_that_takes_time(self):
        zero = [word for option in ("--forward", "--backward-input", "--backward-weight")
                for word in (option, "0")]
        document = self.document("1f1b", *SIZES, *zero)
        self.assertEqual((document["makespan"], document["bubble_over_total"]), (0, 0))
        self.assertEqual(document["critical_path"], [])
        self.assertIn("Nothing in it takes time.", self.text("1f1b", *SIZES, *zero))

    def test_messages_are_added_and_go_one_at_a_time(self):
        free = self.document("1f1b", *SIZES, "--comm", "0.5")
        queued = self.document("1f1b", *SIZES, "--comm", "0.5", "--messages")
        self.assertNotIn("SA0", free["schedule"][0])
        self.assertIn("SA0", queued["schedule"][0])
        self.assertIn("never wait for one another", free["communication"])
        self.assertIn("one at a time", queued["communication"])
        self.assertGreaterEqual(queued["makespan"], free["makespan"])

    def test_memory_is_counted_in_the_units_given(self):
        document = self.document("zb-h1", *SIZES, "--memory-activation", "10",
                                 "--memory-weight", "4")
        self.assertEqual(document["peak_memory"][0], 40)
        self.assertEqual(document["in_flight"], [4, 3, 2, 1])
        self.assertEqual(document["memory"], {"activations": 10, "for_weights": 4,
                                              "recomputed": 0, "weights": 0})

    def test_a_chunk_keeps_its_share_of_what_a_stage_keeps(self):
        document = self.document("interleaved", *SIZES, "--chunks", "2")
        self.assertEqual(document["in_flight"], [11, 9, 7, 5])
        self.assertEqual(document["peak_memory"], [5.5, 4.5, 3.5, 2.5])

    def test_a_search_finds_what_fits_and_says_what_is_known(self):
        asked = ("zb-h1", *SIZES, "--limit", "6")
        document = self.document(*asked)
        self.assertLess(document["bubble_time"], 3)
        self.assertLessEqual(max(document["peak_memory"]), 6)
        self.assertEqual([(each["name"], each["bubble_time"], each["peak_memory"])
                          for each in document["known"]], [("zb-h2", 0, 7), ("zb-h1", 3, 4)])
        self.assertEqual(self.document(*asked), document)
        text = self.text(*asked)
        self.assertRegex(text, r"found here +1 +6 +yes")
        self.assertRegex(text, r"zb-h2 +0 +7 +no")

    def test_spans_without_json_are_refused(self):
        done = self.run_program("1f1b", *SIZES, "--spans")
        self.assert_refused(done, 2, ["--spans needs --json"])

    def test_spans_are_written_on_request(self):
        self.assertNotIn("spans", self.document("1f1b", *SIZES))
        self.assertEqual(len(self.document("1f1b", *SIZES, "--spans")["spans"]), 4)

    def test_a_large_schedule(self):
        document = self.document("interleaved", "--stages", "64", "--micro-batches", "1024",
                                 "--chunks", "8", "--forward", "0.1")
        self.assertAlmostEqual(document["bubble_time"], 63 * 2.1 / 8, places=9)


class Documents(Command):
    def test_every_document_is_read_back(self):
        for name in NAMES:
            for messages in ([], ["--messages"]):
                with self.subTest(name, messages=messages):
                    asked = [name, *SIZES, "--comm", "0.25", *messages]
                    if name == "interleaved":
                        asked += ["--chunks", "2"]
                    text = self.text(*asked, "--json")
                    self.write("saved.json", text.encode())
                    # In a saved schedule no middle repeats, so no period is found in it.
                lines = [line for line in text.splitlines() if '"period"' not in line]
                self.assertEqual(
                    self.text("saved.json", "--comm", "0.25", "--json").splitlines(), lines)

    def test_json_and_csv_files_say_the_same(self):
        one, other = self.document("good.json"), self.document("good.csv")
        self.assertEqual(one["name"], "good")
        self.assertEqual(one, other)
        self.assertEqual((one["stages"], one["micro_batches"], one["makespan"]), (2, 2, 9))

    def test_the_sizes_of_a_file_may_be_repeated(self):
        self.document("./good.json", "--stages", "2", "--micro-batches", "2", "--chunks", "1")

    def test_a_file_with_messages_is_timed_with_them(self):
        document = self.document("sent.csv", "--comm", "1")
        self.assertIn("one at a time", document["communication"])
        self.assertEqual(document["makespan"], 8)

    def test_the_critical_path_ends_at_the_end(self):
        document = self.document("zb-h2", *PUBLISHED, "--spans")
        path = document["critical_path"]
        self.assertEqual((path[0]["start"], path[-1]["end"]), (0, document["makespan"]))
        for step in path:
            place = document["schedule"][step["stage"]].index(step["instruction"])
            self.assertEqual(document["spans"][step["stage"]][place],
                             [step["start"], step["end"]])


class Text(Command):
    def test_it_shows_picture_figures_stages_and_critical_path(self):
        for name in NAMES:
            with self.subTest(name):
                text = self.text(name, *SIZES)
                for words in (f"{name}: 4 stages, 8 micro-batches", "makespan",
                              "bubble over total", "bubble over ideal", "utilisation",
                              "in flight", "between halves", "peak memory", "critical path",
                              "hops between stages"):
                    self.assertIn(words, " ".join(text.split()))
                self.assertTrue(all(len(line) <= 80 for line in text.splitlines()))
                self.assertNotIn("\x1b", text)

    def test_its_axis_is_in_the_unit_of_the_times(self):
        text = self.text("gpipe", "--stages", "2", "--micro-batches", "2", "--comm", "0.125",
                         "--chunks", "1")
        axis = next(line for line in text.splitlines() if line.lstrip().startswith("time"))
        self.assertLessEqual(max(float(word) for word in axis.split()[1:]), 9.25)

    def test_a_name_from_a_file_cannot_steer_the_terminal(self):
        self.write("name.json", b'{"name": "\\u001b[2J", "schedule": [["F0", "B0"]]}')
        self.assertNotIn("\x1b", self.text("name.json"))

    def test_help_names_what_there_is(self):
        text = self.text("--help")
        for words in ("interleaved", "--messages", "any unit", "--svg FILE"):
            self.assertIn(words, " ".join(text.split()))


class Pictures(Command):
    def svg(self, *arguments):
        text = self.text(*arguments, "--svg", "picture.svg")
        self.assertIn("picture.svg", text)
        root = xml.etree.ElementTree.parse(os.path.join(self.folder, "picture.svg")).getroot()
        self.assertTrue(root.tag.endswith("svg"))

    def test_an_svg_is_written(self):
        self.svg("zb-h1", *SIZES)
        self.svg("good.csv", "--messages", "--comm", "0.5")
        self.write("name.json", b'{"name": "<&>\\u0007", "schedule": [["F0", "B0"]]}')
        self.svg("name.json")

    def test_an_svg_beside_json_leaves_json_alone(self):
        self.document("1f1b", *SIZES, "--svg", "picture.svg")
        self.assertIn("picture.svg", os.listdir(self.folder))

    def test_a_full_disk_leaves_the_earlier_picture_whole(self):
        self.write("picture.svg", b"earlier")
        done = self.run_program("1f1b", *SIZES, "--svg", "picture.svg", preexec_fn=limited)
        self.assert_refused(done, 3, ["--svg picture.svg", "File too large"])
        with open(os.path.join(self.folder, "picture.svg"), "rb") as file:
            self.assertEqual(file.read(), b"earlier")
        self.assertEqual([name for name in os.listdir(self.folder) if ".part" in name], [])


class Refusals(Command):
    def test_what_cannot_be_is_refused_in_one_sentence(self):
        before = sorted(os.listdir(self.folder))
        for arguments, words in REFUSED:
            for extra in ([], ["--json"]):
                with self.subTest(arguments=arguments, extra=extra):
                    self.assert_refused(self.run_program(*arguments, *extra), 2, words)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    @unittest.skipIf(os.geteuid() == 0, "root may read and write everything")
    def test_what_must_not_be_read_or_written(self):
        os.chmod(os.path.join(self.folder, "good.csv"), 0)
        self.assert_refused(self.run_program("good.csv"), 2, ["good.csv", "Permission denied"])
        os.chmod(os.path.join(self.folder, "folder.json"), 0o500)
        self.assert_refused(self.run_program("1f1b", *SIZES, "--svg", "folder.json/a.svg"), 2,
                            ["--svg folder.json/a.svg", "Permission denied"])

    def test_a_deadlock_is_a_no_that_teaches(self):
        for name, words in (("turned.csv", ["turned.csv: deadlock after 1 of 8 computations",
                                            "waits for"]),
                            ("stuck.csv", ["stuck.csv: deadlock", "receive of an activation"])):
            with self.subTest(name):
                self.assert_refused(self.run_program(name, "--svg", "no.svg"), 1, words)
                done = self.run_program(name, "--json")
                self.assert_refused(done, 1, words, done.stdout)
                document = json.loads(done.stdout)
                self.assertIn(document["problem"], done.stderr.decode())
                self.assertGreaterEqual(len(document["cycle"]), 2)
                with open(os.path.join(self.folder, name), encoding="utf-8") as file:
                    cells = [line.strip().split(",") for line in file]
                for link in document["cycle"]:
                    self.assertEqual(cells[link["stage"]][link["position"]],
                                     link["instruction"])
        self.assertNotIn("no.svg", os.listdir(self.folder))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
