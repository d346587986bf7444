#!/usr/bin/env python3
"""Runs of several processes must end with the right status and message, without orphans.

usage: supervise_test.py PROGRAM
"""

import os
import re
import resource
import signal
import subprocess
import sys
import time
import unittest

# Under nohup, the tested processes would ignore this signal.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

PROGRAM = sys.argv.pop(1)


class Run:
    """The program, which starts copies of itself. Each copy first prints its process number."""

    def __init__(self, mode, ranks=3, grace=100, said=None, group=False, **options):
        self.process = subprocess.Popen(
            [PROGRAM, mode, str(ranks), str(grace)], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=group, **options)
        self.errors = ""
        self.pids = {}
        self.start = time.monotonic()
        while len(self.pids) < (ranks if said is None else said):
            line = self.read_line()
            if not line:
                break
            self.note(line)

    def read_line(self):
        """Reads byte by byte. A buffered reader would take bytes that communicate() needs."""
        line = b""
        while not line.endswith(b"\n") and (byte := os.read(self.process.stderr.fileno(), 1)):
            line += byte
        return line.decode()

    def note(self, line):
        if match := re.fullmatch(r"pid (\d+) (\d+)\n", line):
            self.pids[int(match[1])] = int(match[2])
        else:
            self.errors += line

    def end(self):
        """Returns the exit status, after all copies have closed the streams."""
        self.output, rest = self.process.communicate()
        for line in rest.splitlines(keepends=True):
            self.note(line)
        self.seconds = time.monotonic() - self.start
        return self.process.returncode


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Supervise(unittest.TestCase):
    def assert_nothing_left(self, run):
        deadline = time.monotonic() + 100
        while any(map(runs, run.pids.values())) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual([pid for pid in run.pids.values() if runs(pid)], [])

    def test_processes_meet(self):
        run = Run("meet", 4, said=0)
        self.assertEqual(run.end(), 0)
        self.assertEqual(run.output, "lockstep 4 0/4:true 1/4:true 2/4:true 3/4:true\n")
        self.assertEqual(run.errors, "")

    def test_each_run_has_its_own_secret(self):
        secrets = []
        for _ in range(2):
            run = Run("secret", 3)
            self.assertEqual(run.end(), 0)
            secret, *others = run.errors.splitlines()
            self.assertRegex(secret, "^[0-9a-f]{64}$")
            self.assertEqual(others, [secret, secret])
            secrets.append(secret)
        self.assertNotEqual(*secrets)

    def test_only_rank_0_reads_and_prints(self):
        run = Run("read", 2, said=0)
        self.assertEqual(run.end(), 0)
        self.assertEqual(run.output, "rank 0 prints\n")
        self.assertEqual(sorted(run.errors.splitlines()), ['read 0 ""', 'read 1 ""'])

    def test_rank_0_keeps_standard_input(self):
        run = subprocess.run([PROGRAM, "read", "2"], input="typed\n", capture_output=True,
                             text=True, check=False)
        self.assertIn('read 0 "typed"', run.stderr)
        self.assertIn('read 1 ""', run.stderr)

    def test_status_of_the_first_that_fails(self):
        run = Run("exit3", grace=0.3)
        self.assertEqual(run.end(), 3)
        self.assertEqual(run.errors, "")
        self.assertLess(run.seconds, 100)
        self.assert_nothing_left(run)

    def test_killed_by_a_signal(self):
        for mode, rank, name in ("segv", 2, "signal 11 (SIGSEGV)"), ("kill", 0, "signal 9 (SIGKILL)"):
            run = Run(mode, grace=0.3)
            self.assertEqual(run.end(), 1)
            self.assertEqual(run.errors, f"lockstep: rank {rank} was killed by {name}\n")
            self.assert_nothing_left(run)

    def test_reader_of_rank_0_has_gone(self):
        run = Run("flood", grace=0.3)
        run.process.stdout.close()
        self.assertEqual(run.process.wait(), 141)
        self.assertEqual(run.process.stderr.read(), "")
        run.process.stderr.close()
        self.assert_nothing_left(run)

    def test_failure_on_the_control_line(self):
        for mode, text in ("throw", "rank 1 threw\n"), ("stuck", "rank 1 is stuck\n"):
            run = Run(mode)
            self.assertEqual(run.end(), 4)
            self.assertEqual(run.errors, text)
            self.assertLess(run.seconds, 100)
            self.assert_nothing_left(run)

    def test_lost_on_the_control_line(self):
        for mode, rank in ("lose", 1), ("lose0", 0):
            run = Run(mode)
            self.assertEqual(run.end(), 1)
            self.assertEqual(run.errors,
                             f"lockstep: rank {rank} was killed by signal 9 (SIGKILL)\n")
            self.assert_nothing_left(run)

    def test_killed_after_another_has_failed(self):
        run = Run("late", grace=5)
        self.assertEqual(run.end(), 1)
        self.assertEqual(run.errors, "lockstep: rank 0 was killed by signal 9 (SIGKILL)\n")
        self.assert_nothing_left(run)

    def test_stopped_process_is_lost(self):
        for rank in 0, 2:
            run = Run(f"stop{rank}", grace=0.4)
            self.assertEqual(run.end(), 1)
            self.assertEqual(run.errors,
                             f"lockstep: rank {rank} does not answer: its process is stopped "
                             "or its machine cannot be reached\n")
            self.assertGreater(run.seconds, 2.5)
            self.assertLess(run.seconds, 100)
            self.assert_nothing_left(run)

    def test_signals_are_passed_on(self):
        for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            run = Run("hang")
            run.process.send_signal(number)
            self.assertEqual(run.end(), 128 + number)
            self.assertEqual(run.errors, "")
            self.assertLess(run.seconds, 100)
            self.assert_nothing_left(run)

    def test_control_c_reaches_all(self):
        run = Run("hang", group=True)
        os.killpg(run.process.pid, signal.SIGINT)
        self.assertEqual(run.end(), 130)
        self.assertEqual(run.errors, "")
        self.assert_nothing_left(run)

    def test_one_that_ignores_signals_is_killed(self):
        run = Run("deaf", grace=0.4)
        time.sleep(0.1)
        run.process.send_signal(signal.SIGTERM)
        self.assertEqual(run.end(), 143)
        self.assertGreater(run.seconds, 0.4)
        self.assertLess(run.seconds, 100)
        self.assert_nothing_left(run)

    def test_second_interrupt_kills_at_once(self):
        run = Run("deaf")
        time.sleep(0.1)
        run.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        run.process.send_signal(signal.SIGINT)
        self.assertEqual(run.end(), 130)
        self.assertLess(run.seconds, 100)
        self.assert_nothing_left(run)

    def test_ignored_signals_stay_ignored(self):
        run = Run("hang", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        run.process.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        self.assertIsNone(run.process.poll())
        run.process.send_signal(signal.SIGTERM)
        self.assertEqual(run.end(), 143)

    def test_supervisor_killed(self):
        run = Run("deaf")
        run.process.kill()
        self.assertEqual(run.end(), -signal.SIGKILL)
        self.assert_nothing_left(run)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    unittest.main()
