#!/usr/bin/env python3
"""If a signal ends a grading at any moment, no process and no temporary file may remain.

Arguments: the program, the folder of the assignment's sources.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from orphans import adopt_orphans, children_left

PROGRAM, SOURCES = map(os.path.abspath, sys.argv[1:3])
sys.path.insert(0, os.path.dirname(SOURCES))
import solve  # pylint: disable=wrong-import-position
SLUG = os.path.basename(SOURCES).replace("_", "-")
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]


def heed_signals():
    """Restores the signals that a shell makes background tests ignore."""
    for number in SIGNALS[:3]:
        signal.signal(number, signal.SIG_DFL)


class Interrupted(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.temporary = os.path.join(self.folder, "tmp")
        os.mkdir(self.temporary)
        self.work = os.path.join(self.folder, "work")
        subprocess.run([PROGRAM, "assignment", "new", SLUG, self.work], check=True,
                       capture_output=True)
        solve.solve(SOURCES, self.work)
        # The grading lasts longer than any of these tests waits.
        path = os.path.join(self.work, "ring.cpp")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        changed = text.replace("    reduce_scatter(rank, buffer);", "    for (;;) pause();")
        self.assertNotEqual(changed, text)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#include <unistd.h>\n" + changed)

    def interrupt(self, number, seconds, *words):
        """Sends a signal to a grading: SIGINT to all its processes, like Ctrl-C in a terminal."""
        with subprocess.Popen([PROGRAM, "grade", SLUG, *words], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, start_new_session=True,
                              preexec_fn=heed_signals,
                              env=dict(os.environ, TMPDIR=self.temporary)) as process:
            time.sleep(seconds)
            if number == signal.SIGINT:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
            output = process.communicate()
        self.assertEqual((process.returncode, output), (-number, (b"", b"")))
        self.assertEqual(children_left(), [])
        self.assertEqual(os.listdir(self.temporary), [])

    def test_one_leaves_nothing(self):
        report = os.path.join(self.folder, "report.json")
        for number in SIGNALS:
            for seconds in (0.02, 0.3, 1, 2, 5):
                with self.subTest(number.name, seconds=seconds):
                    self.interrupt(number, seconds, self.work, "--format", "json", "--out",
                                   report)
                    if seconds >= 1:
                        with open(report, encoding="utf-8") as file:
                            self.assertFalse(json.load(file)["finished"])

    def test_many_leave_nothing(self):
        folders = [shutil.copytree(self.work, os.path.join(self.folder, f"all/{number}"))
                   for number in range(3)]
        for number in SIGNALS:
            for seconds in (1, 3, 6):
                with self.subTest(number.name, seconds=seconds):
                    out = os.path.join(self.folder, f"{number.name}-{seconds}")
                    self.interrupt(number, seconds, *folders, "--at-once", "2", "--out", out)


if __name__ == "__main__":
    adopt_orphans()
    unittest.main(argv=sys.argv[:1])
