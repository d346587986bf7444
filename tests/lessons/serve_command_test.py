#!/usr/bin/env python3
"""Tests `lockstep serve`. Recomputes passes, times and figures, and computes bytes by formulas.
Also tests texts, documents, pictures and error messages of the command.

Arguments: the program.
"""

import json
import math
import os
import re
import sys
import unittest
import xml.etree.ElementTree

from command_case import CommandCase, limited

MODEL = "layers=2,hidden=32,heads=4,kv-heads=2,inner=48,vocabulary=50,style=llama"
SMALL = {"model": MODEL, "cluster": "steady.json", "cache": {"pages": 100, "page_rows": 4},
         "requests": [{"prompt": 5, "output": 3}]}
MIX = {"count": 12, "per_second": 300, "prompt": [4, 30], "output": [1, 9], "seed": 3}

# All operations take the same time, and so do all passes.
STEADY = {"base": "h100", "flops_f32": 0, "flops_bf16": 0, "memory_bytes_per_second": 0,
          "launch_seconds": 1e-4, "host_copy": {"alpha_seconds": 1e-4}}


def service(**members):
    return {**SMALL, **members}


def without(key):
    return {name: value for name, value in SMALL.items() if name != key}


# Services, arguments, and words of the sentence that refuses them.
REFUSED = [
    ([], [], ["the file is not a JSON object"]),
    (without("model"), [], ["service.json: model is missing; llama2-13b, mixtral-8x7b or"]),
    (without("requests"), [], ["requests is missing"]),
    (service(modle=1), [], ["service.json: modle is not known; did you mean model?"]),
    (service(colour=1), [], ["colour is not known; model, mesh, apart"]),
    ({**SMALL, "\x1b[2J": 1}, [], ["\\x1b[2J is not known"]),
    (service(model=5), [], ["service.json: model is not a string"]),
    (service(model="gpt"), [], ["service.json: model gpt: llama2-13b, mixtral"]),
    (service(model="llama2-13"), [], ["did you mean llama2-13b?"]),
    (service(model="layers=0"), [], ["model layers=0: a whole number from 1 to 1000"]),
    (service(model="heads=3"), [], ["heads"]),
    (service(mesh="dp"), [], ["service.json: mesh: 'dp' is no axis of a mesh"]),
    (service(mesh=4), [], ["mesh is not a string"]),
    (service(mesh="pp=2"), [], ["mesh: 'pp' is no axis of a service", "dp and ep"]),
    (service(mesh="dp=0"), [], ["service.json: mesh: dp=0: axis dp has size 0"]),
    (service(mesh="dp=1025"), [], ["mesh: dp 1025 has 1025 devices; 1024"]),
    (service(mesh="dp=1024", apart=True), [], ["2048 devices, with those that compute"]),
    (service(mesh="tp=3"), [], ["4 heads cannot be sharded over 3 ranks"]),
    (service(mesh="ep=2"), [], ["2 ranks along ep, but the GPT has no experts"]),
    (service(mesh="ep=2", model=MODEL + ",experts=4"), [],
     ["\"numbers\": true and a small model are needed"]),
    (service(mesh="ep=2", model=MODEL + ",experts=4", apart=True, numbers=True), [],
     ["ep must have 1 rank, not 2"]),
    (service(model="llama2-13b", numbers=True), [], ["with numbers the model's 13,015,864,320"]),
    (service(numbers=True, cache={}), [], ["cache.pages is expected"]),
    (service(numbers=True, requests=[{"prompt": 1000000, "output": 1}] * 80), [],
     ["with numbers", "take too long"]),
    (service(numbers=True, cache={"pages": 1 << 20, "page_rows": 512}), [],
     ["with numbers, the caches of cache.pages take"]),
    (service(apart="yes"), [], ["apart is neither true nor false"]),
    (service(cluster="h1000"), [], ["cluster: cluster 'h1000' is neither a preset"]),
    (service(cluster=1), [], ["cluster is not a string"]),
    (service(cluster="broken.json"), [], ["cluster: cluster file broken.json is not JSON"]),
    (service(dtype="f16"), [], ["dtype is 'f16'; bf16 or f32 is expected"]),
    (service(cache=7), [], ["cache is not a JSON object"]),
    (service(cache={"page": 7}), [], ["cache.page is not known; did you mean pages?"]),
    (service(cache={"pages": 0}), [], ["cache.pages is not a whole number from 1 to 1048576"]),
    (service(cache={"pages": 1.5}), [], ["cache.pages is not a whole number"]),
    (service(cache={"pages": 1e300}), [], ["cache.pages is not a whole number"]),
    (service(cache={"pages": 1 << 63}), [], ["cache.pages is not a whole number"]),
    (service(cache={"pages": True}), [], ["cache.pages is not a whole number"]),
    (service(cluster="unit", cache={}), [], ["have unlimited memory, so set cache.pages"]),
    (service(cache={"pages": 1, "page_rows": 4}), [], ["the cache has room for 4 tokens (1 pages of 4)"]),
    (service(model="llama2-13b", cache={"pages": 100000}), [],
     ["cache.pages is 100000: these pages take 1.19 TiB and the weights 24.2 GiB, but a device "
      "has only 80 GiB"]),
    (service(model="deepseek-v3", cache={}), [], ["weights take 1.22 TiB", "more devices"]),
    (service(batch={"sequences": 0}), [], ["batch.sequences is not a whole number from 1"]),
    (service(batch={"rows": -1}), [], ["batch.rows is not a whole number from 1"]),
    (service(batch={"row": 1}), [], ["batch.row is not known; did you mean rows?"]),
    (service(batch={"pieces": 1}), [], ["batch.pieces is neither true nor false"]),
    (service(limits={"token": 0}), [], ["limits.token is not a number of seconds above 0"]),
    (service(limits={"token": "1"}), [], ["limits.token is not a number"]),
    (service(limits={"first": 1}), [], ["limits.first is not known"]),
    (service(requests=5), [], ["requests is neither a list of requests nor a mix"]),
    (service(requests=[]), [], ["requests is empty"]),
    (service(requests=[5]), [], ["requests[0] is not a JSON object"]),
    (service(requests=[{"prompt": 1, "output": 1}, {"prompt": 1}]), [],
     ["requests[1].output is missing"]),
    (service(requests=[{"prompt": 0, "output": 1}]), [], ["requests[0].prompt is not a whole"]),
    (service(requests=[{"prompt": 1, "output": 1000001}]), [], ["requests[0].output is not"]),
    (service(requests=[{"prompt": 1, "output": 1, "arrival": -1}]), [],
     ["requests[0].arrival is not a number of seconds from 0"]),
    (service(requests=[{"prompt": 1, "output": 1, "arival": 1}]), [],
     ["requests[0].arival is not known; did you mean arrival?"]),
    (service(requests=[{"prompt": 1, "output": 1}] * 100001), [],
     ["requests has 100,001 requests; 100,000"]),
    (service(requests=[{"prompt": 1000000, "output": 1000000}]), [],
     ["request 0 has a prompt of 1000000", "the cache has room for 400"]),
    (service(requests={}), [], ["requests.count is missing"]),
    (service(requests={**MIX, "count": 100001}), [], ["requests.count is not a whole"]),
    (service(requests={**MIX, "prompt": [4, 3]}), [], ["requests.prompt is from 4 to 3"]),
    (service(requests={**MIX, "prompt": [4]}), [], ["requests.prompt must have two numbers"]),
    (service(requests={**MIX, "prompt": [0, 1]}), [], ["requests.prompt[0] is not a whole"]),
    (service(requests={**MIX, "output": "few"}), [], ["requests.output is not a whole"]),
    (service(requests={**MIX, "per_second": -1}), [], ["requests.per_second is not a number"]),
    (service(requests={**MIX, "per_second": 1e-9}), [], ["would come after 1000000 s"]),
    (service(requests={**MIX, "shared": 5}), [],
     ["requests.shared is 5, but the shortest prompts have 4 tokens"]),
    (service(requests={**MIX, "seed": -1}), [], ["requests.seed is not a whole number"]),
    (service(requests={**MIX, "rate": 1}), [], ["requests.rate is not known; count,"]),
    (service(requests={**MIX, "count": 100000, "output": 1000000}), [],
     ["100,000 requests with up to 100,000,000,000 tokens", "take too long"]),
    (service(requests={**MIX, "count": 100000, "prompt": 1000000}, batch={"rows": 1048576}), [],
     ["prompts have up to 100,000,000,000 tokens"]),
    (service(model="layers=2", requests=[{"prompt": 30, "output": 4}]), [],
     ["up to 33 tokens, but the model has learnt 32 positions"]),
    (SMALL, ["more.json"], ["'more.json' is one argument too many"]),
    (SMALL, ["--model", "gpt"], ["--model gpt: llama2-13b"]),
    (SMALL, ["--mesh", "pp=2"], ["--mesh pp=2: 'pp' is no axis of a service"]),
    (SMALL, ["--cluster", "h1000"], ["--cluster: cluster 'h1000' is neither"]),
    (SMALL, ["--rate", "1"], ["--rate: service.json lists requests with fixed arrivals"]),
    (SMALL, ["--rate", "x"], ["--rate x: 'x' is no rate"]),
    (SMALL, ["--rate", "1,,2"], ["--rate 1,,2: '' is no rate"]),
    (SMALL, ["--rate", "0"], ["--rate 0: '0' is no rate"]),
    (SMALL, ["--rate", "nan"], ["--rate nan"]),
    (SMALL, ["--rate", "1,1.0"], ["1.0 is there twice"]),
    (SMALL, ["--rate", ",".join(map(str, range(1, 34)))], ["33 rates; 32"]),
    (SMALL, ["--rate", "1,2", "--svg", "a.svg"], ["--svg draws one run"]),
    (SMALL, ["--replica", "1"], ["--replica 1: the replicas are 0 to 0"]),
    (SMALL, ["--example"], ["--example prints an example file"]),
    (SMALL, ["--svg", ""], ["--svg: a path is expected"]),
    (SMALL, ["--svg", "nowhere/a.svg"], ["--svg nowhere/a.svg", "No such file"]),
    (SMALL, ["--svg", "./service.json"], ["--svg ./service.json", "belongs to the service; choose"]),
    (SMALL, ["--svg", "./steady.json"], ["--svg ./steady.json", "belongs to the cluster; choose"]),
    (SMALL, ["--loud"], ["--loud"]),
]


class Command(CommandCase):
    COMMAND = "serve"
    FILES = {"steady.json": json.dumps(STEADY).encode(), "broken.json": b"{"}

    def serve(self, what, *arguments):
        self.write("service.json", json.dumps(what).encode())
        return self.document("service.json", *arguments)

    def one(self, what, *arguments):
        """Returns the only run of the document, and the document."""
        document = self.serve(what, *arguments)
        (run,) = document["runs"]
        return run, document


class Sequence:
    def __init__(self, number, asked):
        self.id, self.prompt, self.output = number, asked["prompt"], asked["output"]
        self.tokens, self.computed, self.planned = asked["prompt"], 0, 0

    def missing(self):
        return self.tokens - self.computed

    def decodes(self):
        return self.missing() == 1 and self.tokens > self.prompt


def served(requests, most_rows, most_sequences, seconds, pieces=True, continuous=True):
    """Returns what a replica with pages for all requests does: its passes, as lists of (request,
    first, rows, token), when each pass begins, and the times of tokens. A pass takes `seconds`."""
    left = sorted(enumerate(requests), key=lambda each: each[1].get("arrival", 0))
    waiting, running, passes, starts, tokens = [], [], [], [], {}
    now = 0.0
    while left or waiting or running:
        if not waiting and not running:
            now = max(now, left[0][1].get("arrival", 0))
        while left and left[0][1].get("arrival", 0) <= now + 1e-12:
            waiting.append(Sequence(*left.pop(0)))
        rows, prompts = 0, False
        had = bool(running)
        for each in running:
            if each.decodes() and rows < most_rows:
                each.planned, rows = 1, rows + 1

        def prompt_rows(each):
            free = most_rows - rows
            if pieces:
                return max(0, min(free, each.missing()))
            return each.missing() if each.missing() <= free or not prompts else 0

        for each in running:
            if not each.planned and not each.decodes() and prompt_rows(each):
                each.planned = prompt_rows(each)
                rows, prompts = rows + each.planned, True
        while waiting and (continuous or not had) and len(running) < most_sequences:
            each = waiting[0]
            each.planned = prompt_rows(each)
            if not each.planned:
                break
            rows, prompts = rows + each.planned, True
            running.append(waiting.pop(0))
        starts.append(now)
        now += seconds
        done = []
        for each in running:
            if not each.planned:
                continue
            wanted = each.planned == each.missing()
            done.append((each.id, each.computed, each.planned, wanted))
            each.computed, each.planned = each.computed + each.planned, 0
            if wanted:
                each.tokens += 1
                tokens.setdefault(each.id, []).append(now)
        running = [each for each in running if each.tokens < each.prompt + each.output]
        passes.append(done)
    return passes, starts, tokens


def percentile(values, part):
    return sorted(values)[max(math.ceil(part * len(values)), 1) - 1]


class Passes(Command):
    def check(self, requests, **batch):
        what = service(requests=requests, batch=batch)
        run, _ = self.one(what, "--passes")
        (replica,) = run["replicas"]
        first = replica["passes"][0]
        seconds = first["end"] - first["start"]
        passes, starts, tokens = served(
            requests, batch.get("rows", 512), batch.get("sequences", 64), seconds,
            batch.get("pieces", True), batch.get("continuous", True))
        self.assertEqual(
            [[(each["request"], each["first"], each["rows"], each["token"])
              for each in one["pieces"]] for one in replica["passes"]], passes)
        for one, start in zip(replica["passes"], starts):
            self.assertAlmostEqual(one["start"], start, delta=1e-9)
            self.assertAlmostEqual(one["end"] - one["start"], seconds, delta=1e-9)
        for answer in run["answers"]:
            asked, times = requests[answer["id"]], tokens[answer["id"]]
            self.assertEqual((answer["prompt"], answer["output"], len(times)),
                             (asked["prompt"], asked["output"], asked["output"]))
            self.assertAlmostEqual(answer["arrival"], asked.get("arrival", 0), delta=1e-9)
            self.assertAlmostEqual(answer["first"], times[0], delta=1e-9)
            self.assertAlmostEqual(answer["last"], times[-1], delta=1e-9)
        self.assertEqual(run["work"]["passes"], len(passes))
        self.assertEqual(run["work"]["rows"], sum(rows for one in passes for _, _, rows, _ in one))
        return run

    REQUESTS = [{"prompt": 5, "output": 3}, {"prompt": 30, "output": 6, "arrival": 0.001},
                {"prompt": 1, "output": 1}, {"prompt": 17, "output": 12, "arrival": 0.02},
                {"prompt": 9, "output": 2, "arrival": 1.5},
                {"prompt": 40, "output": 9, "arrival": 0.005}]

    def test_a_request_alone_is_its_prompt_and_a_pass_a_token(self):
        run = self.check([{"prompt": 5, "output": 3}])
        self.assertEqual((run["work"]["passes"], run["work"]["rows"]), (3, 7))
        self.assertAlmostEqual(run["first_token"]["p50"] * 3, run["seconds"], delta=1e-9)
        self.assertAlmostEqual(run["token"]["p99"], run["first_token"]["p50"], delta=1e-9)

    def test_passes_are_those_of_continuous_batching(self):
        for batch in ({}, {"rows": 8}, {"rows": 8, "pieces": False}, {"sequences": 2},
                      {"continuous": False, "sequences": 2}, {"rows": 1, "sequences": 3}):
            with self.subTest(batch):
                self.check(self.REQUESTS, **batch)


class Figures(Command):
    def check(self, run, document, limits, devices):
        answers = run["answers"]
        self.assertEqual(run["requests"], len(answers))
        self.assertEqual(run["tokens"], sum(each["output"] for each in answers))
        self.assertEqual(run["preemptions"], sum(each["preemptions"] for each in answers))
        self.assertEqual(run["reused"], sum(each["reused"] for each in answers))
        seconds = max(each["last"] for each in answers) - min(each["arrival"] for each in answers)
        self.assertAlmostEqual(run["seconds"], seconds, delta=1e-9)
        self.assertAlmostEqual(run["tokens_per_second"], run["tokens"] / seconds, delta=1e-3)
        first = [each["first"] - each["arrival"] for each in answers]
        token = [(each["last"] - each["first"]) / max(each["output"] - 1, 1) for each in answers]
        more = [time for time, each in zip(token, answers) if each["output"] > 1]
        for times, found in ((first, run["first_token"]), (more, run["token"])):
            for key, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
                self.assertAlmostEqual(found[key], percentile(times, part), delta=1e-9)
        kept = sum(one <= limits[0] and other <= limits[1] for one, other in zip(first, token))
        self.assertAlmostEqual(run["within_limits"], kept / len(answers), delta=1e-9)
        self.assertAlmostEqual(run["goodput"], kept / seconds, delta=1e-6)
        self.assertAlmostEqual(run["goodput_of_device"], kept / seconds / devices, delta=1e-6)
        self.assertEqual(document["devices"], devices)
        return kept

    def test_figures_are_those_of_the_answers(self):
        for mesh, apart, devices in (("dp=1", False, 1), ("dp=3", False, 3),
                                     ("tp=2,dp=2", False, 4), ("dp=2,tp=2", True, 8)):
            with self.subTest(mesh=mesh, apart=apart):
                limits = {"first_token": 0.012, "token": 0.0055}
                run, document = self.one(service(
                    mesh=mesh, apart=apart, limits=limits, cluster="h100", requests=MIX))
                self.check(run, document, (0.012, 0.0055), devices)
                self.assertEqual(run["requests"], MIX["count"])
                for each in run["answers"]:
                    self.assertEqual(each["replica"], each["id"] % document["replicas"])
                    self.assertTrue(4 <= each["prompt"] <= 30 and 1 <= each["output"] <= 9)

    def test_some_requests_are_within_the_limits_and_some_are_not(self):
        what = service(requests=Passes.REQUESTS, batch={"sequences": 1})
        (run, _) = self.one(what)
        middle = run["first_token"]["p50"]
        run, document = self.one({**what, "limits": {"first_token": middle}})
        self.assertEqual(self.check(run, document, (middle + 1e-12, math.inf), 1), 3)

    def test_rates(self):
        document = self.serve(service(requests=MIX, limits={"first_token": 0.02}),
                              "--rate", "10,100,1e6")
        self.assertEqual([run["per_second"] for run in document["runs"]], [10, 100, 1e6])
        for run in document["runs"]:
            self.check(run, document, (0.02, math.inf), 1)
        slow, fast, _ = document["runs"]
        for one, other in zip(slow["answers"], fast["answers"]):
            self.assertEqual((one["prompt"], one["output"]), (other["prompt"], other["output"]))
            self.assertAlmostEqual(one["arrival"], 10 * other["arrival"], delta=1e-9)
        self.assertGreaterEqual(slow["within_limits"], fast["within_limits"])

    def test_all_come_at_once_without_a_rate(self):
        run, _ = self.one(service(requests={"count": 3, "prompt": 4, "output": 2}))
        self.assertEqual([each["arrival"] for each in run["answers"]], [0, 0, 0])

    def test_the_same_seed_makes_the_same_requests(self):
        first, again, other = (self.one(service(requests={**MIX, "seed": seed}))[0]
                               for seed in (3, 3, 4))
        self.assertEqual(first, again)
        self.assertNotEqual(first["answers"], other["answers"])


def weight_bytes(tp, layers=2, hidden=32, heads=4, kv=2, inner=48, vocabulary=50):
    """Returns the bytes of a rank's weights in bf16: heads, columns, vocabulary are sharded."""
    width = hidden // heads
    rows = -(-vocabulary // tp)
    own_keys = max(kv // tp, 1)
    attention = (heads // tp + 2 * own_keys) * width * hidden + hidden * hidden // tp
    mlp = 3 * inner // tp * hidden
    return 2 * (2 * rows * hidden + layers * (attention + mlp + 2 * hidden) + hidden)


class Memory(Command):
    def test_weights_and_keys_and_values(self):
        for tp in (1, 2, 4):
            with self.subTest(tp=tp):
                run, document = self.one(service(mesh=f"tp={tp}"))
                device = document["device"]
                token = 2 * max(2 // tp, 1) * 8 * 2 * 2  # keys of at least one head
                self.assertEqual(device["weight_bytes"], weight_bytes(tp))
                self.assertEqual(device["token_bytes"], token)
                self.assertEqual(device["cache_bytes"], 100 * 4 * token)
                held = device["weight_bytes"] + device["cache_bytes"]
                self.assertTrue(held < run["peak_bytes"] < held + 100_000)

    def test_as_many_pages_as_fit(self):
        for tp in (1, 2, 8):
            with self.subTest(tp=tp):
                _, document = self.one(service(model="llama2-13b", mesh=f"tp={tp}",
                                               cluster="h100", cache={"page_rows": 8}))
                weights = weight_bytes(tp, 40, 5120, 40, 40, 13824, 32000)
                token = 2 * 5120 // tp * 40 * 2
                device = document["device"]
                memory = 80 << 30
                self.assertEqual(device["memory_bytes"], memory)
                self.assertEqual(device["weight_bytes"], weights)
                self.assertEqual(device["pages"], (memory // 10 * 9 - weights) // (8 * token))

    def test_keys_and_values_go_between_devices(self):
        for tp in (1, 2):
            with self.subTest(tp=tp):
                run, document = self.one(service(mesh=f"tp={tp},dp=2", apart=True, requests=MIX))
                prompts = sum(each["prompt"] for each in run["answers"])
                token = document["device"]["token_bytes"] * tp
                self.assertEqual(run["moved_bytes"], prompts * token + 4 * tp * MIX["count"])
                # Each request's first token is chosen by the devices that compute prompts.
                self.assertEqual(run["prompt_work"]["rows"], prompts)
                self.assertEqual(run["work"]["rows"], run["tokens"] - MIX["count"])

    def test_full_pages_are_found_again(self):
        mix = {"count": 5, "per_second": 1, "prompt": 21, "output": 2, "shared": 18}
        run, _ = self.one(service(requests=mix))
        self.assertEqual([each["reused"] for each in run["answers"]], [0, 16, 16, 16, 16])
        run, _ = self.one(service(requests=mix, cache={"pages": 50, "page_rows": 4,
                                                       "reuse": False}))
        self.assertEqual(run["reused"], 0)

    def test_too_few_pages_preempt_and_tokens_stay_as_many(self):
        requests = [{"prompt": 8, "output": 20}] * 3
        run, _ = self.one(service(requests=requests, cache={"pages": 10, "page_rows": 4}),
                          "--passes")
        self.assertGreater(run["preemptions"], 0)
        self.assertEqual(run["tokens"], 60)
        self.assertTrue(all(one["pages"] <= 10 for one in run["replicas"][0]["passes"]))

    def test_experts_are_served_with_numbers(self):
        run, document = self.one(service(
            mesh="ep=2,tp=2", model=MODEL + ",experts=4", numbers=True, dtype="f32",
            requests=[{"prompt": 6, "output": 4}, {"prompt": 3, "output": 9, "arrival": 0.001}]))
        self.assertEqual((run["tokens"], document["replicas"]), (13, 2))


class Text(Command):
    def test_the_roof_does_not_depend_on_the_batch(self):
        asked = {"count": 16, "prompt": 64, "output": 8}
        one, many = (self.one(service(model="llama2-13b", mesh="tp=1", cluster="h100",
                                      batch={"sequences": sequences}, requests=asked,
                                      cache={"page_rows": 8}))
                     for sequences in (1, 16))
        roof = many[0]["roof"]
        # Nearly: how much of attention a pass computes depends on its batch.
        self.assertAlmostEqual(roof.pop("products") / one[0]["roof"].pop("products"), 1, 0)
        self.assertEqual(roof, one[0]["roof"])
        weights, token = (many[1]["device"][key] for key in ("weight_bytes", "token_bytes"))
        rows = 16 * sum(range(64, 72))
        self.assertAlmostEqual(roof["memory"], (8 * weights + rows * token) / 3.35e12, 9)
        self.assertEqual(roof["arrivals"], 0)
        self.assertGreater(one[0]["seconds"], 8 * max(roof.values()))
        self.assertLess(many[0]["seconds"], 4 * max(roof.values()))

    def test_the_example_runs_as_it_is(self):
        example = self.text("--example")
        self.write("service.json", example.encode())
        self.assertEqual(json.loads(example)["model"], "llama2-13b")
        text = self.text("service.json")
        for words in ("request 18", "passes", "llama2-13b has 13,015,864,320 numbers",
                      "2 replicas of 2 devices", "nine tenths", "(TTFT)", "(TPOT)",
                      "goodput of a device", "preemptions", "the most memory of a device"):
            self.assertIn(words, text)
        self.assertTrue(all(len(line) <= 80 for line in text.splitlines()))
        self.assertNotIn("\x1b", text)

    def test_rates_have_a_line_each(self):
        self.write("service.json", self.text("--example").encode())
        text = self.text("service.json", "--rate", "10,40,160")
        self.assertEqual(len(re.findall(r"(?m)^ +(?:10|40|160)  ", text)), 9)
        self.assertIn("is highest at 160 requests per second", " ".join(text.split()))
        self.assertNotIn("request 18", text)

    def test_options_take_the_place_of_what_the_file_says(self):
        self.write("service.json", json.dumps(without("model")).encode())
        document = self.document("service.json", "--model", "layers=1,style=llama", "--mesh",
                                 "dp=2,tp=2", "--cluster", "a100", "--apart")
        self.assertEqual((document["model"], document["cluster"], document["apart"]),
                         ("layers=1,style=llama", "a100", True))
        self.assertEqual(document["mesh"], [{"name": "dp", "size": 2}, {"name": "tp", "size": 2}])

    def test_a_cluster_lies_beside_the_file(self):
        self.write("folder/service.json", json.dumps(service(cluster="own.json")).encode())
        self.write("folder/own.json", b'{"base": "h100", "name": "mine"}')
        self.assertEqual(self.document("folder/service.json")["cluster"], "mine")

    def test_help_and_the_manual_have_the_keys(self):
        text = " ".join(self.text("--help").split())
        for words in ("--example", "--rate R[,R…]", "--svg OUT", "--passes"):
            self.assertIn(words, text)
        manual = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                              "../../lessons/runner/man/serving.md")
        with open(manual, encoding="utf-8") as file:
            page = file.read()
        for key in ("model", "mesh", "apart", "cluster", "dtype", "numbers", "cache.pages",
                    "batch.continuous", "limits.first_token", "requests.shared"):
            self.assertIn(f"`{key}`", page)
        run, document = self.one(service(apart=True, requests=MIX), "--passes")
        for key in [*document, *document["device"], *run, *run["answers"][0], *run["work"],
                    *run["replicas"][0], *run["replicas"][0]["passes"][0]]:
            self.assertIn(f"`{key}`", page)


class Pictures(Command):
    def svg(self, what, *arguments):
        self.write("service.json", json.dumps(what).encode())
        self.assertIn("picture.svg", self.text("service.json", *arguments, "--svg", "picture.svg"))
        root = xml.etree.ElementTree.parse(os.path.join(self.folder, "picture.svg")).getroot()
        self.assertTrue(root.tag.endswith("svg"))
        return [element.text for element in root.iter()
                if element.tag.endswith(("text", "title"))]

    def test_an_svg_has_each_request(self):
        texts = self.svg(service(requests=MIX, mesh="dp=2"), "--replica", "1")
        for request in range(1, 12, 2):
            self.assertIn(f"request {request}", texts)
        self.assertNotIn("request 0", texts)
        self.assertIn("rows of a prompt", texts)
        self.assertTrue(any(each.startswith("pass 0, ") for each in texts if each))

    def test_of_many_requests_the_first_are_drawn(self):
        texts = self.svg(service(requests={**MIX, "count": 60}))
        self.assertIn("the first 24 of 60 requests", texts)
        self.assertNotIn("request 12", self.text("service.json"))

    def test_an_svg_beside_json_leaves_json_alone(self):
        self.serve(SMALL, "--svg", "picture.svg")
        self.assertIn("picture.svg", os.listdir(self.folder))

    def test_a_full_disk_leaves_the_earlier_picture_whole(self):
        self.write("service.json", json.dumps(SMALL).encode())
        self.write("picture.svg", b"earlier")
        done = self.run_program("service.json", "--svg", "picture.svg", preexec_fn=limited)
        self.assert_refused(done, 3, ["--svg picture.svg", "File too large"])
        with open(os.path.join(self.folder, "picture.svg"), "rb") as file:
            self.assertEqual(file.read(), b"earlier")


class Refusals(Command):
    def test_what_cannot_be_is_refused_in_one_sentence(self):
        self.write("service.json", b"")
        before = sorted(os.listdir(self.folder))
        for what, arguments, words in REFUSED:
            self.write("service.json", json.dumps(what).encode())
            with self.subTest(what=str(what)[:300], arguments=arguments):
                self.assert_refused(self.run_program("service.json", *arguments), 2, words)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_files_that_are_no_services(self):
        os.mkdir(os.path.join(self.folder, "folder"))
        os.mkfifo(os.path.join(self.folder, "pipe"))
        for content, words in ((b"", ["file.json, line 1: this is not JSON"]),
                               (b"{\n\"model\": ]}", ["file.json, line 2: this is not JSON"]),
                               (b"\x7fELF\x00\xff", ["file.json, line 1"]),
                               (b"[" * 10000, ["file.json, line 1"]),
                               (b"{\"model\": 1e999}", ["too large"]),
                               (b"5", ["the file is not a JSON object"])):
            self.write("file.json", content)
            with self.subTest(content[:20]):
                self.assert_refused(self.run_program("file.json"), 2, words)
        for name, words in (("none.json", ["none.json", "No such file"]),
                            ("folder", ["folder", "not a file"]), ("pipe", ["pipe", "not a file"]),
                            ("/dev/zero", ["/dev/zero", "not a file"]), ("", ["FILE"])):
            with self.subTest(name):
                self.assert_refused(self.run_program(name), 2, words)
        self.assert_refused(self.run_program(), 2, ["FILE is missing", "--example"])
        self.write("service.json", json.dumps(SMALL).encode())
        self.assert_refused(self.run_program("service.json", "--passes"), 2,
                            ["--passes needs --json"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
