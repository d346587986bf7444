#!/usr/bin/env python3
"""The stepper on a pseudo-terminal.

Arguments: the program.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from terminal import COLOUR, PREDICTION, PROMPT, Terminal, columns, lines, without_escapes

PROGRAM = os.path.abspath(sys.argv[1])
LESSON = [PROGRAM, "lesson", "gradient-accumulation"]
CTRL_C, CTRL_D, CTRL_Z = "\x03", "\x04", "\x1a"


class Stepper(unittest.TestCase):
    def at_prompt(self, *options, **terminal):
        """A lesson that waits after its first step."""
        opened = Terminal(LESSON + list(options), **terminal)
        self.addCleanup(opened.__exit__)
        self.next_prompt(opened)
        return opened

    def next_prompt(self, terminal):
        """Goes on to the next prompt, passing predictions; the text up to there."""
        text = ""
        while True:
            match, before = terminal.expect(PROMPT, PREDICTION)
            text += before
            if match.re is PROMPT:
                return text
            terminal.send("\n")

    def assert_clean(self, terminal):
        self.assertEqual(terminal.settings(), terminal.before)

    def test_it_waits_after_a_step_with_single_keys(self):
        terminal = self.at_prompt()
        self.assertTrue(terminal.is_single_key())
        time.sleep(0.3)
        self.assertIsNone(terminal.process.poll())
        self.assertIn("Step 1 of", terminal.text)
        self.assertNotIn("Step 2 of", terminal.text)

    def test_q_and_ctrl_d_leave(self):
        for key in ("q", "Q", CTRL_D):
            with self.subTest(key=key):
                terminal = self.at_prompt()
                terminal.send(key)
                self.assertEqual(terminal.end(), 0)
                self.assert_clean(terminal)
                self.assertNotIn("Step 2 of", terminal.text)

    def test_leaving_early_writes_no_record_and_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            terminal = self.at_prompt("--out", os.path.join(folder, "run"))
            terminal.send("q")
            self.assertEqual(terminal.end(), 0)
            self.assertIn("no record was written", terminal.text)
            self.assertEqual(os.listdir(folder), [])

    def test_ctrl_c_ends_with_130(self):
        terminal = self.at_prompt()
        terminal.send(CTRL_C)
        self.assertEqual(terminal.end(), 130)
        self.assert_clean(terminal)

    def test_signals_end_it_on_a_clean_terminal(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            with self.subTest(signal=number):
                terminal = self.at_prompt()
                terminal.signal(number)
                self.assertEqual(terminal.end(), 128 + number)
                self.assert_clean(terminal)

    def test_other_keys_do_nothing_and_are_not_shown(self):
        terminal = self.at_prompt()
        seen = len(terminal.text)
        for keys in ("x", "b", " ", "\x1b[A", "\x7f", "é"):
            terminal.send(keys)
        time.sleep(0.3)
        terminal.read(0.1)
        self.assertEqual(terminal.text[seen:], "")
        terminal.send("q")
        self.assertEqual(terminal.end(), 0)

    def test_the_prompt_is_gone_once_it_is_answered(self):
        terminal = self.at_prompt()
        terminal.send("q")
        terminal.end()
        last = without_escapes(terminal.text).split("\n")[-1]
        self.assertEqual(last.split("\r")[-2].strip(), "")

    def test_b_shows_the_page_before_again(self):
        terminal = self.at_prompt()
        first = terminal.text[terminal.text.index("Step 1 of"):].split("[Enter]")[0]
        terminal.send("\n")
        self.assertIn("Step 2 of", self.next_prompt(terminal))
        terminal.send("b")
        self.assertIn(first.split("\r")[0], self.next_prompt(terminal))
        terminal.send("\n")
        self.assertIn("Step 2 of", self.next_prompt(terminal))
        terminal.send("q")
        self.assertEqual(terminal.end(), 0)

    def test_enter_leads_to_the_end_and_a_record_and_b_runs_nothing_twice(self):
        done = subprocess.run(LESSON + ["--json"], capture_output=True)
        checks = len(json.loads(done.stdout)["metrics"]["checks"])
        with tempfile.TemporaryDirectory() as folder:
            run = os.path.join(folder, "run")
            terminal = self.at_prompt("--out", run)
            steps = int(re.search(r"Step 1 of (\d+)", terminal.text)[1])
            for key in ["\n"] * (steps - 1) + ["b"] * (steps - 1) + ["\n"] * (steps - 1):
                terminal.send(key)
                self.next_prompt(terminal)
            self.assertFalse(os.path.exists(run))
            terminal.send("\r")
            self.assertEqual(terminal.end(), 0)
            self.assert_clean(terminal)
            self.assertIn(f"All {checks} checks passed.", terminal.text)
            self.assertIn("run.json", os.listdir(run))

    def test_a_prediction_is_a_line_that_may_be_mistyped_once(self):
        terminal = self.at_prompt()
        while True:
            terminal.send("\n")
            match, _ = terminal.expect(PROMPT, PREDICTION)
            if match.re is PREDICTION:
                break
            self.assertEqual(match[1], "next", "the lesson asks for no prediction")
        self.assert_clean(terminal)
        terminal.send("a lot\n")
        terminal.expect("A number such as")
        terminal.send("1,000\n")
        terminal.expect("(Right|Not so):")

    def test_ctrl_z_suspends_on_a_clean_terminal_and_fg_goes_on(self):
        shell = 'set -m; "$@"; echo "suspended $?"; stty; fg >/dev/null; echo "ended $?"'
        with Terminal(["bash", "-c", shell, "bash", *LESSON]) as terminal:
            terminal.expect(PROMPT)
            terminal.send(CTRL_Z)
            terminal.expect("suspended 148")
            _, stty = terminal.expect("(?=\\[Enter\\])")
            self.assertNotIn("-icanon", stty)
            self.assertNotIn("-echo", stty)
            terminal.expect(PROMPT)
            self.assertTrue(terminal.is_single_key())
            terminal.send("q")
            terminal.expect("ended 0")
            self.assertEqual(terminal.end(), 0)

    def test_it_ends_when_the_terminal_goes(self):
        terminal = self.at_prompt()
        os.close(terminal.master)
        self.assertEqual(terminal.process.wait(10), -signal.SIGHUP)

    def test_one_step_alone_does_not_wait(self):
        with Terminal(LESSON + ["--step", "2"]) as terminal:
            while terminal.expect(PREDICTION, r"passed\.")[0].re is PREDICTION:
                terminal.send("\n")
            self.assertEqual(terminal.end(), 0)
            self.assertNotIn("Step 1 of", terminal.text)
            self.assertNotIn("[Enter]", terminal.text)

    def test_without_a_learner_it_runs_through(self):
        with Terminal(LESSON + ["--step", "1"], stdin=subprocess.DEVNULL) as terminal:
            self.assertEqual(terminal.end(), 0)
            self.assertNotIn("[Enter]", terminal.text)


class Looks(unittest.TestCase):
    def shown(self, *options, **terminal):
        """All that a lesson shows, to its end; nobody sits there, so it does not wait."""
        with Terminal(LESSON + list(options), stdin=subprocess.DEVNULL, **terminal) as opened:
            self.assertEqual(opened.end(), 0)
            return opened.text

    def test_no_line_is_longer_than_the_window(self):
        for width in (40, 60, 100):
            for line in lines(self.shown(columns=width)):
                with self.subTest(width=width, line=line):
                    self.assertLessEqual(columns(line), width)

    def test_colour_is_for_terminals_that_want_it(self):
        step = ("--step", "1")
        self.assertRegex(self.shown(*step), COLOUR)
        self.assertNotIn("\x1b", self.shown(*step, NO_COLOR="1"))
        self.assertNotIn("\x1b", self.shown(*step, TERM="dumb"))
        piped = subprocess.run(LESSON + list(step), stdout=subprocess.PIPE, text=True).stdout
        self.assertNotIn("\x1b", piped)

    def test_colour_changes_no_character(self):
        step = ("--step", "1")
        self.assertEqual(without_escapes(self.shown(*step)), self.shown(*step, NO_COLOR="1"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
