#!/usr/bin/env python3
"""If something cannot be done, the program must say so in one sentence and change no file.

Arguments: the program.
"""

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv[1])
LESSON = ("lesson", "gradient-accumulation")
COLUMNS = ("lesson", "column-linear")
BLOCK = ("lesson", "tensor-parallel-block")
PIPELINE = ("lesson", "pipeline-1f1b")
RINGS = ("lesson", "ring-self-attention")
RING = "ring-all-reduce"
GPIPE = ("schedule", "gpipe", "--stages", "2", "--micro-batches", "2")
BACKENDS = ("compare", "gradient-accumulation", "--backends", "sim,sim")

# Files in the folder where each case runs.
FILES = {
    "empty.csv": b"",
    "header.csv": b"a,b\n",
    "nan.csv": b"a,b\n1,2\n3,nan\n",
    "word.csv": b"size,price\n1,2\n3,cheap\n",
    "ragged.csv": b"1,2\n3\n",
    "binary.txt": b"\x7fELF\x02\x01\x01\x00",
    "latin.txt": "Noël".encode("latin-1"),
    "empty.txt": b"",
    "short.txt": b"ab",
    "same.txt": b"a" * 40,
    "bad.json": b"{",
    "taken/thesis.tex": b"years of work",
    "file": b"no folder",
    "notes/.lockstep-notes/thesis.txt": b"precious",
    "large.json": b"[" * ((1 << 20) + 1),
}
LINK = '{"alpha_seconds": 10000, "bytes_per_second": 1000}'
FILES["slow.json"] = f"""{{"phases": {{"forward": 10000, "backward_input": 10000,
    "backward_weight": 10000}}, "inside": {LINK}, "between": {LINK}, "host_copy": {LINK},
    "launch_seconds": 10000, "flops_f32": 1000, "flops_f64": 1000,
    "memory_bytes_per_second": 1000}}""".encode()
# Links, and pipes without a writer.
LINKS = {"nowhere-link": "nothing", "loop": "loop"}
PIPES = ["pipe", "pipe.json", "record/run.json"]

# (arguments, exit status, texts in the message)
CASES = [
    (["frobnicate"], 2, ["frobnicate", "lessons", "schedule"]),
    (["--frob"], 2, ["--frob"]),
    (["lessons", "extra"], 2, ["extra"]),
    (["fault"], 2, ["FAULT"]),
    (["word", "all-redcue"], 2, ["all-redcue", "did you mean all-reduce?"]),
    (["word", "zzzz"], 2, ["zzzz", "lockstep word lists"]),
    (["word", "ring", "\x1b[2J"], 2, ["ring \\x1b[2J"]),
    (["word", "ring", "--loud"], 2, ["unknown option --loud"]),
    (["fault", "F99"], 2, ["F99", "F01 to F31"]),
    (["fault", "../README"], 2, ["../README", "F01 to F31"]),
    (["fault", ""], 2, ["F01 to F31"]),
    (["assignment"], 2, ["assignment", "list, new or gradescope"]),
    (["assignment", "lsit"], 2, ["lsit", "did you mean list?"]),
    (["assignment", "new"], 2, ["SLUG"]),
    (["assignment", "new", RING], 2, ["DIR"]),
    (["assignment", "new", "ring-all-reduced", "new"], 2, ["did you mean ring-all-reduce?"]),
    (["assignment", "new", RING, "taken"], 2, ["taken", "exists already"]),
    (["assignment", "new", RING, "file"], 2, ["file", "exists already"]),
    (["assignment", "new", RING, "file/new"], 2, ["file/new"]),
    (["assignment", "gradescope", RING, "taken"], 2, ["taken", "not a file"]),
    (["assignment", "gradescope", RING, "nowhere/x.zip"], 3, ["nowhere/x.zip"]),
    (["assignment", "new", RING, ""], 2, ["DIR", "a path is expected"]),
    (["assignment", "new", RING, "loop"], 2, ["loop: Too many levels of symbolic links"]),
    (["assignment", "new", RING, "pipe"], 2, ["pipe", "exists already"]),
    (["assignment", "gradescope", RING, ""], 2, ["FILE", "a path is expected"]),
    (["assignment", "gradescope", RING, "loop"], 2, ["loop: Too many levels"]),
    (["grade", RING, "taken", "--out", "pipe"], 2, ["--out pipe", "nobody reads"]),
    (["grade", RING, "taken", "--out", "/dev/null"], 2, ["--out /dev/null", "not a file"]),
    (["grade", RING, ""], 2, ["DIR", "a path is expected"]),
    (["grade", RING, "loop"], 2, ["loop: Too many levels"]),
    (["grade"], 2, ["SLUG"]),
    (["grade", RING], 2, ["DIR"]),
    (["grade", "no-such", "taken"], 2, ["no-such", RING]),
    (["grade", RING, "nowhere"], 2, ["nowhere", "a student's folder, or a .zip of it, is expected"]),
    (["grade", RING, "file"], 2, ["file", "a student's folder, or a .zip of it, is expected"]),
    (["grade", RING, "taken", "--format", "xml"], 2, ["--format xml", "junit"]),
    (["grade", RING, "taken", "--out"], 2, ["--out"]),
    (["grade", RING, "taken", "--out", ""], 2, ["--out"]),
    (["grade", RING, "taken", "--out", "file/report"], 2, ["file/report"]),
    (["grade", RING, "taken", "--out", "taken"], 2, ["taken"]),
    (["lesson"], 2, ["SLUG"]),
    (["lesson", "no-such-lesson"], 2, ["no-such-lesson", "gradient-accumulation"]),
    (["lesson", "gradient-acumulation"], 2, ["did you mean gradient-accumulation?"]),
    (["lesson", "\x1b[2J\nx"], 2, ["\\x1b[2J"]),
    ([*LESSON, "extra"], 2, ["extra"]),
    ([*LESSON, "--rank", "4"], 2, ["--rank", "did you mean --ranks?"]),
    ([*LESSON, "--ranks"], 2, ["--ranks"]),
    ([*LESSON, "--ranks", "0"], 2, ["--ranks 0", "1 to 64 is"]),
    ([*LESSON, "--ranks", "100000"], 2, ["--ranks 100000", "1 to 64 is"]),
    ([*LESSON, "--ranks", "1000000000"], 2, ["--ranks 1000000000", "1 to 64 is"]),
    ([*LESSON, "--ranks", "99999999999999999999"], 2, ["1 to 64 is"]),
    (["lesson", "--ranks", "100", "gradient-accumulation"], 2, ["--ranks 100", "1 to 64 is"]),
    (["lesson", "pipeline-1f1b", "--ranks", "64", "--out", "gradient-accumulation"], 2,
     ["--ranks 64", "2 to 16 is"]),
    ([*PIPELINE, "--ranks", "16384"], 2, ["--ranks 16384", "2 to 16 is"]),
    (["lesson", "no-such", "--ranks", "100000"], 2, ["--ranks 100000", "1 to 16384"]),
    ([*BACKENDS, "--ranks", "100"], 2, ["--ranks 100", "1 to 64 is"]),
    ([*LESSON, "--ranks", "x"], 2, ["--ranks x"]),
    ([*LESSON, "--ranks", "-1"], 2, ["--ranks -1"]),
    ([*LESSON, "--step", "99"], 2, ["--step 99", "steps"]),
    ([*LESSON, "--step", "0"], 2, ["--step 0"]),
    ([*LESSON, "--dtype", "f8"], 2, ["--dtype f8", "f32, f64 or bf16"]),
    ([*LESSON, "--check", "some"], 2, ["--check is 'some'", "full or cheap"]),
    ([*LESSON, "--check"], 2, ["--check"]),
    ([*LESSON, "--seed", "lucky"], 2, ["--seed lucky"]),
    ([*LESSON, "--cluster", "cray"], 2, ["--cluster", "cray", "classroom"]),
    ([*LESSON, "--cluster", "bad.json"], 2, ["--cluster", "bad.json"]),
    ([*LESSON, "--cluster", "large.json"], 2, ["--cluster", "large.json", "1 MiB"]),
    ([*LESSON, "--cluster", "pipe"], 2, ["--cluster", "pipe", "not a file"]),
    ([*LESSON, "--cluster", "loop"], 2, ["--cluster", "loop", "Too many levels"]),
    ([*LESSON, "--set", "nonsense"], 2, ["--set nonsense", "KEY=VALUE"]),
    ([*LESSON, "--set", "nonsense=1"], 2, ["--set nonsense=1", "workers"]),
    ([*LESSON, "--set", "workers=1000"], 2, ["--set workers=1000", "0 to 256"]),
    ([*LESSON, "--set", "executor=hopes"], 2, ["--set executor=hopes", "fibers or threads"]),
    ([*LESSON, "--set", "epochs=many"], 2, ["--set epochs=many"]),
    ([*LESSON, "--set", "steps=many"], 2, ["--set steps=many"]),
    ([*LESSON, "--set", "targets=0"], 2, ["--set targets=0"]),
    ([*LESSON, "--set", "text_learning_rate=nan"], 2, ["--set text_learning_rate=nan"]),
    ([*LESSON, "--ranks", "65"], 2, ["--ranks 65", "1 to 64 is"]),
    ([*LESSON, "--backend", "tpu"], 2, ["--backend tpu"]),
    ([*LESSON, "--data", "none.csv"], 2, ["none.csv", "No such file"]),
    ([*LESSON, "--data", "taken"], 2, ["taken", "Is a directory"]),
    ([*LESSON, "--data", "/dev/zero"], 2, ["/dev/zero", "64 MiB"]),
    ([*LESSON, "--data", "empty.csv"], 2, ["empty.csv is empty"]),
    ([*LESSON, "--data", "header.csv"], 2, ["header.csv", "no rows of numbers"]),
    ([*LESSON, "--data", "nan.csv"], 2, ["nan.csv, row 3, column 2 (b)", "'nan'"]),
    ([*LESSON, "--data", "word.csv"], 2, ["row 3, column 2 (price)", "'cheap' is not a number"]),
    ([*LESSON, "--data", "ragged.csv"], 2, ["ragged.csv, row 2", "1 cell"]),
    ([*LESSON, "--text", "none.txt"], 2, ["none.txt", "No such file"]),
    ([*LESSON, "--text", "binary.txt"], 2, ["binary.txt", "not UTF-8", "0x00 at offset 7"]),
    ([*LESSON, "--text", "latin.txt"], 2, ["latin.txt", "0xeb at offset 2"]),
    ([*LESSON, "--text", "empty.txt"], 2, ["empty.txt is empty"]),
    ([*LESSON, "--text", "short.txt"], 2, ["short.txt", "2 characters"]),
    ([*LESSON, "--text", "/dev/zero"], 2, ["/dev/zero", "64 MiB"]),
    ([*LESSON, "--data", "pipe"], 2, ["pipe", "no program writes to this pipe"]),
    ([*LESSON, "--text", "pipe"], 2, ["pipe", "no program writes to this pipe"]),
    ([*LESSON, "--text", "loop"], 2, ["loop", "Too many levels"]),
    ([*LESSON, "--out", "notes"], 2, ["--out notes", ".lockstep-notes", "nothing was overwritten"]),
    ([*LESSON, "--out", "pipe"], 2, ["--out pipe", "not a folder"]),
    ([*LESSON, "--out", "nowhere-link"], 2, ["--out nowhere-link", "target does not exist"]),
    ([*LESSON, "--out", "nowhere-link/run"], 2,
     ["--out nowhere-link/run", "target does not exist"]),
    ([*LESSON, "--out", "loop/run"], 2, ["--out loop/run", "Too many levels"]),
    ([*LESSON, "--out", "/proc/run"], 2, ["--out /proc/run", "nothing can be written"]),
    ([*LESSON, "--out", "/sys/run"], 2, ["--out /sys/run"]),
    (["schedule", "pipe.json"], 2, ["pipe.json", "not a file"]),
    (["serve"], 2, ["FILE is missing", "--example"]),
    (["serve", ""], 2, ["FILE: a path is expected"]),
    (["serve", "none.json"], 2, ["none.json", "No such file"]),
    (["serve", "bad.json"], 2, ["bad.json, line 1: this is not JSON"]),
    (["serve", "pipe.json"], 2, ["pipe.json", "not a file"]),
    (["serve", "loop"], 2, ["loop", "Too many levels"]),
    ([*GPIPE, "--svg", "pipe"], 2, ["--svg pipe", "nobody reads"]),
    ([*GPIPE, "--svg", "loop"], 2, ["--svg loop", "Too many levels"]),
    ([*LESSON, "--out", "taken"], 2, ["--out taken", "thesis.tex"]),
    ([*LESSON, "--out", "file"], 2, ["--out file"]),
    ([*LESSON, "--out", "file/run"], 2, ["--out file/run", "Not a directory"]),
    ([*LESSON, "--out", ""], 2, ["--out"]),
    ([*COLUMNS, "--ranks", "65"], 2, ["--ranks 65", "1 to 64 is"]),
    ([*COLUMNS, "--ranks", "5", "--set", "hidden=192"], 2, ["--set hidden=192", "5 ranks"]),
    ([*COLUMNS, "--set", "inner=100"], 2, ["--set inner=100", "3 ranks"]),
    ([*COLUMNS, "--set", "rows=0"], 2, ["--set rows=0"]),
    ([*COLUMNS, "--text", "file"], 2, ["--text", "takes none"]),
    ([*PIPELINE, "--ranks", "1"], 2, ["--ranks 1", "2 to 16"]),
    ([*PIPELINE, "--ranks", "17"], 2, ["--ranks 17", "2 to 16"]),
    ([*PIPELINE, "--set", "micro_batches=6"], 2, ["--set micro_batches=6", "multiple of 4"]),
    ([*PIPELINE, "--set", "batch=9"], 2, ["--set batch=9", "8 micro-batches"]),
    ([*PIPELINE, "--ranks", "6", "--set", "layers=1"], 2, ["--set layers=1", "6 stages"]),
    ([*PIPELINE, "--set", "heads=3", "--set", "hidden=64"], 2, ["--set hidden=64", "3 heads"]),
    (["lesson", "pipedream", "--set", "micro_batches=3"], 2,
     ["--set micro_batches=3", "at least 4"]),
    (["lesson", "pipedream", "--ranks", "6", "--set", "layers=1"], 2,
     ["--set layers=1", "6 stages"]),
    (["lesson", "pipedream", "--set", "momentum=1"], 2, ["--set momentum=1"]),
    ([*PIPELINE, "--set", "tied=2"], 2, ["--set tied=2"]),
    ([*PIPELINE, "--text", "short.txt"], 2, ["2 characters", "33"]),
    ([*PIPELINE, "--text", "same.txt"], 2, ["one character"]),
    ([*PIPELINE, "--data", "nan.csv"], 2, ["--data", "takes none"]),
    ([*RINGS, "--ranks", "1"], 2, ["--ranks 1", "2 to 16"]),
    ([*RINGS, "--ranks", "17"], 2, ["--ranks 17", "2 to 16"]),
    ([*RINGS, "--ranks", "3", "--set", "context=64"], 2, ["--set context=64", "multiple of 6"]),
    ([*RINGS, "--set", "context=4"], 2, ["--set context=4", "4 ranks", "multiple of 8"]),
    ([*RINGS, "--set", "context=8192"], 2, ["--set context=8192", "1 to 4096"]),
    ([*RINGS, "--set", "context=4096", "--set", "batch=32"], 2, ["context=4096", "at most 65536"]),
    ([*RINGS, "--set", "kv_heads=3"], 2, ["--set kv_heads=3", "4"]),
    ([*RINGS, "--set", "heads=2", "--set", "kv_heads=4"], 2, ["--set kv_heads=4", "2"]),
    ([*RINGS, "--set", "kv_heads=0"], 2, ["--set kv_heads=0", "1 to 64"]),
    ([*RINGS, "--set", "order=diagonal"], 2, ["--set order=diagonal", "striped or zigzag"]),
    ([*RINGS, "--set", "method=magic"], 2, ["--set method=magic", "gather or ulysses"]),
    ([*RINGS, "--set", "method=ulysses", "--set", "kv_heads=2"], 2,
     ["--set method=ulysses", "the 2 heads of keys and values", "multiple of 4"]),
    ([*RINGS, "--set", "batch=3"], 2, ["--set batch=3", "even"]),
    ([*RINGS, "--set", "heads=3", "--set", "hidden=64"], 2, ["--set hidden=64", "multiple of 3"]),
    ([*RINGS, "--text", "short.txt"], 2, ["2 characters", "257"]),
    ([*RINGS, "--text", "same.txt", "--set", "context=8"], 2, ["one character"]),
    ([*RINGS, "--data", "nan.csv"], 2, ["--data", "takes none"]),
    (["compare", "record", "record"], 2, ["record/run.json", "not a file"]),
    (["compare", "", ""], 2, ["DIR_A", "a path is expected"]),
    ([*BACKENDS, "--text", "pipe"], 2, ["--text pipe", "regular file"]),
    ([*BACKENDS, "--out", "nowhere-link"], 2,
     ["--out nowhere-link/sim-1", "target does not exist"]),
    (["compare", "taken"], 2, ["DIR_B"]),
    (["compare", "taken", "nowhere"], 2, ["taken"]),
    (["compare", "nowhere", "taken"], 2, ["nowhere"]),
    (["compare", "a", "b", "--bound", "-1"], 2, ["--bound -1"]),
]


def limited():
    """Lets files grow to at most 100 bytes, as on an almost full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def full():
    """Lets no file grow at all."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def contents(folder):
    found = {}
    for path, _, names in os.walk(folder):
        found[os.path.relpath(path, folder)] = None
        for name in names:
            place = os.path.join(path, name)
            found[os.path.relpath(place, folder)] = stat.S_IFMT(os.lstat(place).st_mode)
            if stat.S_ISREG(os.lstat(place).st_mode):
                with open(place, "rb") as file:
                    found[os.path.relpath(place, folder)] = file.read()
    return found


class Usage(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for name, content in FILES.items():
            path = os.path.join(self.folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content)
        for name, target in LINKS.items():
            os.symlink(target, os.path.join(self.folder, name))
        os.mkdir(os.path.join(self.folder, "record"))
        for name in PIPES:
            os.mkfifo(os.path.join(self.folder, name))

    def run_program(self, *arguments, **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.run([PROGRAM, *arguments], cwd=self.folder,
                              stdin=subprocess.DEVNULL, **options)

    def assert_refused(self, done, status, words):
        sentence = done.stderr.decode()
        self.assertEqual(done.returncode, status, sentence)
        self.assertEqual(done.stdout or b"", b"")
        self.assertRegex(sentence, r"\Alockstep: [^\n]+\n\Z")
        for word in words:
            self.assertIn(word, sentence)

    def test_wrong_command_lines(self):
        before = contents(self.folder)
        for arguments, status, words in CASES:
            with self.subTest(arguments=arguments):
                self.assert_refused(self.run_program(*arguments), status, words)
                self.assertEqual(contents(self.folder), before)

    @unittest.skipIf(os.geteuid() == 0, "root may read and write everything")
    def test_what_must_not_be_read_or_written(self):
        os.chmod(os.path.join(self.folder, "nan.csv"), 0)
        self.assert_refused(self.run_program(*LESSON, "--data", "nan.csv"), 2,
                            ["nan.csv", "Permission denied"])
        os.chmod(os.path.join(self.folder, "taken"), 0o500)
        self.assert_refused(self.run_program(*LESSON, "--out", "taken/run"), 2,
                            ["--out taken/run", "Permission denied"])

    def test_a_place_that_cannot_be_written_is_refused_before_the_run(self):
        # This lesson would take a hundred hours, so it must not begin.
        refused = self.run_program(*LESSON, "--set", "epochs=1000000", "--out", "run",
                                   preexec_fn=full)
        self.assert_refused(refused, 3, ["--out run", "File too large"])
        self.assertNotIn("run", contents(self.folder))

    def test_folders_for_temporary_files_that_cannot_be_made(self):
        for command in (BACKENDS, ("grade", RING, "taken")):
            refused = self.run_program(*command, env={**os.environ, "TMPDIR": "nowhere"})
            self.assert_refused(refused, 2, ["TMPDIR, nowhere", "No such file"])

    def test_an_unknown_level_of_checks_in_the_environment(self):
        for level in ("Full", "full ", "1"):
            refused = self.run_program(*LESSON, env={**os.environ, "LOCKSTEP_CHECK": level})
            self.assert_refused(refused, 2, [f"LOCKSTEP_CHECK is '{level}'", "full or cheap"])

    def test_a_cluster_so_slow_that_time_cannot_be_counted(self):
        for lesson in (LESSON, BLOCK, PIPELINE, RINGS):
            with self.subTest(lesson=lesson):
                refused = self.run_program(*lesson, "--cluster", "slow.json", "--json",
                                           "--out", "run")
                self.assert_refused(refused, 2, ["exceed 2^63 picoseconds"])

    def test_a_full_disk_leaves_the_earlier_record_whole(self):
        arguments = [*LESSON, "--step", "1", "--json", "--out", "run"]
        refused = self.run_program(*arguments, preexec_fn=limited)
        self.assert_refused(refused, 3, ["--out run", "File too large"])
        left = [name for name in contents(self.folder) if name.startswith("run/")]
        self.assertEqual(left, [])

        self.assertEqual(self.run_program(*arguments).returncode, 0)
        before = contents(self.folder)
        refused = self.run_program(*arguments, "--seed", "2", preexec_fn=limited)
        self.assert_refused(refused, 3, ["--out run", "File too large"])
        self.assertEqual(contents(self.folder), before)

    def test_a_full_standard_output(self):
        with open("/dev/full", "wb") as full:
            self.assert_refused(self.run_program("lessons", stdout=full), 3,
                                ["standard output", "No space left"])

    def test_a_closed_standard_output_never_becomes_a_file_of_the_record(self):
        done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", PROGRAM, *LESSON, "--step", "1",
                               "--json", "--out", "run"], cwd=self.folder, capture_output=True)
        self.assert_refused(done, 3, ["standard output"])
        for name in ("run.json", "metrics.json"):
            with open(os.path.join(self.folder, "run", name), encoding="utf-8") as file:
                json.load(file)

    def test_everything_closed_still_ends(self):
        done = subprocess.run(["sh", "-c", '"$@" <&- >&- 2>&-', "sh", PROGRAM, "lessons"])
        self.assertEqual(done.returncode, 3)

    def test_a_reader_who_has_had_enough_is_no_error(self):
        for command in ("lessons", "lesson gradient-accumulation --step 1"):
            script = f"set -o pipefail; '{PROGRAM}' {command} | head -n 1; exit ${{PIPESTATUS[1]}}"
            done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
            self.assertEqual((done.stderr, len(done.stdout.splitlines())), ("", 1))

    def test_a_reader_who_is_gone_is_no_error_where_the_signal_is_ignored(self):
        reading, writing = os.pipe()
        os.close(reading)
        done = self.run_program(
            "lessons", stdout=writing, restore_signals=False,
            preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN))
        os.close(writing)
        self.assertEqual((done.returncode, done.stderr), (141, b""))


class Json(unittest.TestCase):
    def test_it_is_one_document_and_nothing_else(self):
        done = subprocess.run([PROGRAM, *LESSON, "--step", "2", "--json"], capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        document = json.loads(done.stdout)
        self.assertEqual(document["lesson"], "gradient-accumulation")
        self.assertEqual(document["options"]["step"], 2)
        self.assertEqual([step["number"] for step in document["steps"]], [1, 2])
        self.assertTrue(all(step["title"] for step in document["steps"]))
        checks = [check for step in document["steps"] for check in step["checks"]]
        self.assertEqual(checks, document["metrics"]["checks"])
        self.assertEqual(document["passed"], all(check["passed"] for check in checks))

    def test_the_version_and_help_go_to_standard_output(self):
        for argument in ("--version", "--help"):
            done = subprocess.run([PROGRAM, argument], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("ockstep", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
