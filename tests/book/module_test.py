#!/usr/bin/env python3
"""The module for browsers, lockstep.js, must give the same answers as the program.

Arguments: the program, the module. Without em++ there is no module, and the test is skipped.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lessons"))
from command_case import suggested   # noqa: E402

if len(sys.argv) < 3 or not shutil.which("node"):
    print("skipped: em++ or node is not installed")
    sys.exit(77)
PROGRAM, MODULE = map(os.path.abspath, sys.argv[1:3])
ASK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ask_module.js")

NAMES = suggested("schedule")
SIZES = {"stages": 4, "micro_batches": 8}
# Requests to generators.
GENERATED = [{"name": name, **SIZES} for name in NAMES] + [
    {"name": "1f1b", "stages": 1, "micro_batches": 1},
    {"name": "1f1b", "stages": 8, "micro_batches": 24, "forward": "18.522",
     "backward_input": "18.086", "backward_weight": "9.337", "comm": "0.601"},
    {"name": "zb-h1", **SIZES, "forward": "1,2,1,1", "comm": 0.25, "messages": True},
    {"name": "zb-h2", **SIZES, "comm": 0.5},
    {"name": "interleaved", **SIZES, "chunks": 3, "comm": 1, "messages": True},
    {"name": "gpipe", **SIZES, "memory_activation": 7, "memory_weight": "2.5"},
    {"name": "naive", **SIZES, "forward": 0, "backward_input": 0, "backward_weight": 0},
    {"name": "pipedream-2bw", **SIZES, "messages": True},
    {"name": "gpip", **SIZES},
    {"name": "1f1b", "stages": 4},
    {"name": "1f1b", "stages": 0, "micro_batches": 3},
    {"name": "1f1b", "stages": "0x4", "micro_batches": 3},
    {"name": "interleaved", "stages": 4, "micro_batches": 7, "chunks": 2},
    {"name": "1f1b", **SIZES, "forward": "1,2"},
    {"name": "1f1b", **SIZES, "forward": "+1e-1", "comm": " .5 "},
    {"name": "1f1b", **SIZES, "forward": "0x1"},
    {"name": "1f1b", **SIZES, "forward": "1e999"},
    {"name": "1f1b", **SIZES, "forward": "1e-999"},
    {"name": "1f1b", **SIZES, "forward": "nan"},
    {"name": "1f1b", **SIZES, "forward": "-1"},
    {"name": "1f1b", **SIZES, "forward": "."},
    {"name": "1f1b", **SIZES, "comm": "0.0000000001"},
    {"name": "1f1b", **SIZES, "memory_weight": "x"},
]
# Schedules that are in files.
WRITTEN = [
    "F0,F1,B0,B1\nF0,B0,F1,B1\n",
    "F0,F1,I0,W0,I1,W1\nF0,I0,F1,I1,W0,W1\n",
    "F0,SA0,RG0,B0\nRA0,F0,B0,SG0\n",
    "F0,F0.1,B0.1,B0\nF0,F0.1,B0.1,B0\n",
    "F0,B0,F1,B1\nF1,B1,F0,B0\n",
    "F0,SA0,F1,SA1,RG0,B0,RG1,B1\nRA1,RA0,F0,B0,SG0,F1,B1,SG1\n",
    "F0,B0\nF0,F0,B0\n",
    "B0,F0\nF0,B0\n",
    "F0,B0\nF0,Bee\n",
    "F0,B0\n,\n",
    "F0,\"B0\nF0,B0\n",
    ",#F0\nF0,B0\n",
    "",
]
JUDGED = [  # answer, typed text, outcome, place of the hint, beginning of the remark
    ({"value": 6000, "unit": "bytes", "digits": 0}, "6 kB", "right", -1, ""),
    ({"value": 6000, "unit": "bytes", "digits": 0}, "5.9 KB", "wrong", -1, "1 KiB is"),
    ({"value": 6000, "unit": "bytes", "digits": 0}, "48,000", "wrong", -1, "Bits or bytes"),
    ({"value": 6000, "unit": "bytes", "digits": 0}, "six", "unreadable", -1, ""),
    ({"value": 25, "unit": "percent", "digits": 1}, "1/4", "right", -1, ""),
    ({"value": 45.4e6, "unit": "time", "digits": 0}, "45.4", "right", -1, ""),
    ({"value": 3, "unit": "number", "digits": 0, "choices": [],
      "hints": [{"wrong": 4, "choice": "", "html": ""}, {"wrong": 5, "html": ""}]},
     "5", "wrong", 1, ""),
    ({"choices": ["a", "b"], "right": "b", "hints": [{"choice": "a", "html": ""}]},
     "a", "wrong", 0, ""),
    ({"choices": ["a", "b"], "right": "b"}, "b", "right", -1, ""),
    ({"choices": ["a", "b"], "right": "b"}, "c", "unreadable", -1, ""),
    ({"value": 3, "unit": "number", "digits": 0}, "2", "wrong", -1, "The answer is larger."),
]


def ask(requests):
    asked = subprocess.run(["node", ASK, MODULE], input=json.dumps(requests), text=True,
                           capture_output=True, check=True)
    return json.loads(asked.stdout)


def options_of(request):
    """Returns the request as options of the program."""
    words = []
    for key, value in request.items():
        if key not in ("name", "messages"):
            words.append(f"--{key.replace('_', '-')}={value}")
    return words + ["--messages"] * request.get("messages", False)


class TheModule(unittest.TestCase):
    maxDiff = None

    def program(self, *words, folder=None):
        ended = subprocess.run([PROGRAM, "schedule", *words, "--json"], text=True, cwd=folder,
                               capture_output=True, check=False)
        answer = json.loads(ended.stdout) if ended.stdout else {}
        return answer, ended.stderr.removeprefix("lockstep: ").split("\n")[0]

    def same(self, answer, told, sentence):
        if sentence:
            self.assertEqual(answer.get("error", answer.get("problem")), sentence)
            if "problem" in answer:
                self.assertEqual(answer["cycle"], told.get("cycle", []))
        else:
            self.assertEqual(answer["timing"], told)

    def test_generated_schedules_are_the_programs(self):
        answers = ask([{"do": "schedule", "all": True, **each} for each in GENERATED])
        refused = 0
        for request, answer in zip(GENERATED, answers):
            with self.subTest(request):
                told, sentence = self.program(request["name"], *options_of(request))
                # The page shows the sizes, so the message of the module has no sizes.
                sentence = re.sub(r"^--stages \d+ --micro-batches \d+( --chunks \d+)?: ", "", sentence)
                self.same(answer, told, sentence)
                refused += sentence != ""
        self.assertEqual(refused, 12)

    def test_written_schedules_are_the_programs(self):
        answers = ask([{"do": "schedule", "all": True, "name": "schedule.csv", "work": text}
                       for text in WRITTEN])
        with tempfile.TemporaryDirectory() as folder:
            for text, answer in zip(WRITTEN, answers):
                with self.subTest(text):
                    with open(os.path.join(folder, "schedule.csv"), "w", encoding="utf-8") as file:
                        file.write(text)
                    told, sentence = self.program("./schedule.csv", folder=folder)
                    if not sentence:
                        told["name"] = answer["timing"]["name"]
                    self.same(answer, told, sentence.replace("./schedule.csv", "schedule.csv"))

    def test_the_picture_is_the_programs(self):
        (answer,) = ask([{"do": "schedule", **GENERATED[3]}])
        with tempfile.TemporaryDirectory() as folder:
            self.program("interleaved", *options_of(GENERATED[3]), "--svg=p.svg", folder=folder)
            with open(os.path.join(folder, "p.svg"), encoding="utf-8") as file:
                self.assertTrue(file.read().endswith(answer["picture"]["svg"] + "</svg>\n"))

    def test_formulas_hold_wherever_their_conditions_are_met(self):
        answers = ask([{"do": "schedule", "name": name, **SIZES} for name in NAMES])
        known = [name for name, answer in zip(NAMES, answers) if answer["formulas"]]
        self.assertGreaterEqual(len(known), 12)
        requests = [{"do": "schedule", "name": name, "stages": p, "micro_batches": m,
                     "chunks": v, "forward": f, "backward_input": i, "backward_weight": w,
                     "messages": messages}
                    for name in known for p in (2, 3, 8) for m in (1, 3, 6, 16, 24)
                    for v in ((1, 2, 4) if name == "interleaved" else (1,))
                    for f, i, w in ((1, 1, 1), (2, 3, 0.25), (1, 0.5, 4), (0, 1, 1), (1, 0, 0))
                    for messages in (False, True)
                    if name != "interleaved" or m % p == 0]
        applied = 0
        for request, answer in zip(requests, ask(requests)):
            if "even" in answer.get("error", "") or "2 p" in answer.get("error", ""):
                continue
            self.assertGreaterEqual(len(answer["formulas"]), 1, request)
            for formula in answer["formulas"]:
                if formula["applies"]:
                    applied += 1
                    self.assertTrue(formula["equal"], (request, formula))
        self.assertGreater(applied, len(requests))

    def test_a_message_that_takes_time_ends_a_formula(self):
        (answer,) = ask([{"do": "schedule", "name": "1f1b", **SIZES, "comm": 1}])
        formula = answer["formulas"][0]
        self.assertEqual((formula["applies"], formula["equal"], formula["value"]),
                         (False, False, "33"))

    def test_predictions_are_judged(self):
        answers = ask([{"do": "judge", "prediction": prediction, "typed": typed}
                       for prediction, typed, *_ in JUDGED])
        for (_, typed, outcome, hint, remark), answer in zip(JUDGED, answers):
            with self.subTest(typed):
                self.assertEqual((answer["outcome"], answer["hint"]), (outcome, hint))
                self.assertTrue(answer["remark"].startswith(remark))
                self.assertEqual(answer["remark"] == "", remark == "")

    def test_what_cannot_be_asked_is_answered_with_a_sentence(self):
        for answer in ask(["{", "[]", {}, {"do": "dance"}, {"do": "judge"},
                           {"do": "schedule", "messages": 3},
                           {"do": "judge", "typed": "1", "prediction": {
                               "value": 1, "unit": "parsecs", "digits": 0}}]):
            self.assertEqual(list(answer), ["error"])
            self.assertGreater(len(answer["error"]), 5)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
