#!/usr/bin/env python3
"""Tests a lesson on a pseudo-terminal: block by block, with keys, predictions and a notebook.

Arguments: the program.
"""

import hashlib
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
SLUG = "gradient-accumulation"
LESSON = [PROGRAM, "lesson", SLUG]
CTRL_C, CTRL_D, CTRL_Z = "\x03", "\x04", "\x1a"


class Lessons(unittest.TestCase):
    """Each test has a separate notebook."""

    def setUp(self):
        self.state = tempfile.TemporaryDirectory()
        self.addCleanup(self.state.cleanup)

    def open(self, *options, command=None, **terminal):
        opened = Terminal((command or LESSON) + list(options), XDG_STATE_HOME=self.state.name,
                          **terminal)
        self.addCleanup(opened.__exit__)
        return opened

    def at_prompt(self, *options, **terminal):
        """Opens a lesson and waits for the prompt after its first screen."""
        opened = self.open(*options, **terminal)
        self.next_prompt(opened)
        return opened

    def next_prompt(self, terminal):
        """Goes to the next prompt without answering predictions. Returns the match and the text."""
        text = ""
        while True:
            match, before = terminal.expect(PROMPT, PREDICTION)
            text += before
            if match.re is PROMPT:
                return match, text
            terminal.send("\n")

    def at_prediction(self, *options, **terminal):
        """Opens a lesson and goes to its first prediction."""
        opened = self.open(*options, **terminal)
        while opened.expect(PROMPT, PREDICTION)[0].re is PROMPT:
            opened.send("\n")
        return opened

    def notes(self):
        with open(os.path.join(self.state.name, "lockstep", SLUG + ".json"),
                  encoding="utf-8") as file:
            return json.load(file)

    def assert_clean(self, terminal):
        self.assertEqual(terminal.settings(), terminal.before)


class Keys(Lessons):
    def test_it_waits_after_a_screen_with_single_keys(self):
        terminal = self.at_prompt()
        self.assertTrue(terminal.is_single_key())
        time.sleep(0.3)
        self.assertIsNone(terminal.process.poll())
        self.assertIn("Step 1 of", terminal.text)
        self.assertNotIn("Step 2 of", terminal.text)

    def test_q_and_ctrl_d_leave(self):
        for key in ("q", "Q", CTRL_D):
            with self.subTest(key=key):
                terminal = self.at_prompt("--from", "start")
                terminal.send(key)
                self.assertEqual(terminal.end(), 0)
                self.assert_clean(terminal)
                self.assertNotIn("Step 2 of", terminal.text)
                self.assertIn("You stopped at step 1 of", terminal.text)

    def test_leaving_early_keeps_what_was_done(self):
        with tempfile.TemporaryDirectory() as folder:
            run = os.path.join(folder, "run")
            terminal = self.at_prompt("--out", run)
            terminal.send("q")
            self.assertEqual(terminal.end(), 0)
            self.assertIn("what was done is in", terminal.text)
            with open(os.path.join(run, "metrics.json"), encoding="utf-8") as file:
                self.assertEqual(len(json.load(file)["checks"]), 1)

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
        for keys in ("x", "\x1b[A", "\x7f", "é"):
            terminal.send(keys)
        time.sleep(0.3)
        terminal.read(0.1)
        self.assertEqual(terminal.text[seen:], "")
        terminal.send("q")
        self.assertEqual(terminal.end(), 0)

    def test_help_says_what_the_keys_do(self):
        terminal = self.at_prompt()
        terminal.send("?")
        _, text = self.next_prompt(terminal)
        for meaning in ("back", "next step", "rest of this step", "quit"):
            self.assertIn(meaning, text)

    def test_b_goes_back_a_screen_and_n_to_the_next_step(self):
        terminal = self.at_prompt(rows=24)
        terminal.send("n")
        self.assertIn("Step 2 of", self.next_prompt(terminal)[1])
        terminal.send("b")
        self.assertIn("Once an epoch", self.next_prompt(terminal)[1])
        terminal.send("b")
        self.assertIn("Step 1 of", self.next_prompt(terminal)[1])
        terminal.send("n")
        self.assertIn("Step 2 of", self.next_prompt(terminal)[1])

    def test_whoever_goes_on_at_a_prediction_has_passed(self):
        for key in ("s", "n"):
            with self.subTest(key=key):
                self.setUp()
                terminal = self.at_prediction("--from", "1")
                terminal.send(key + "\n")
                match, text = terminal.expect(PROMPT, PREDICTION)
                if key == "s":
                    self.assertIn("Answer:", text)
                terminal.send("q" if match.re is PROMPT else "q\n")
                self.assertEqual(terminal.end(), 0)
                (run,) = self.notes()["runs"].values()
                self.assertEqual([answer["outcome"] for answer in run["predictions"].values()],
                                 ["passed"])

    def test_one_leaves_where_one_is(self):
        terminal = self.at_prompt()
        terminal.send("n")
        self.next_prompt(terminal)
        terminal.send("b")
        self.next_prompt(terminal)
        terminal.send("q")
        self.assertEqual(terminal.end(), 0)
        self.assertIn("You stopped at step 1 of", terminal.text)

    def test_a_step_alone_moves_no_bookmark(self):
        terminal = self.at_prompt("--step", "3")
        terminal.send("q")
        self.assertEqual(terminal.end(), 0)
        self.assertIn("Step 1 of", self.at_prompt().text)

    def test_notes_that_cannot_be_written_stop_nothing(self):
        folder = os.path.join(self.state.name, "lockstep")
        os.makedirs(folder)
        os.symlink("/dev/null", os.path.join(folder, SLUG + ".json"))
        terminal = self.at_prediction()
        terminal.send("\n")
        self.next_prompt(terminal)
        terminal.send("q")
        self.assertEqual(terminal.end(), 0)

    def test_s_shows_the_rest_of_the_step(self):
        terminal = self.at_prompt("--from", "2", rows=20)
        terminal.send("s")
        match, text = self.next_prompt(terminal)
        self.assertEqual(match[1], "next step")
        self.assertIn("--dtype f64", text)

    def test_ctrl_z_suspends_on_a_clean_terminal_and_fg_goes_on(self):
        shell = 'set -m; "$@"; echo "suspended $?"; stty; fg >/dev/null; echo "ended $?"'
        terminal = self.open(command=["bash", "-c", shell, "bash", *LESSON])
        self.next_prompt(terminal)
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

    def test_enter_leads_to_the_end_and_a_record(self):
        done = subprocess.run(LESSON + ["--json"], capture_output=True)
        checks = len(json.loads(done.stdout)["metrics"]["checks"])
        with tempfile.TemporaryDirectory() as folder:
            run = os.path.join(folder, "run")
            terminal = self.at_prompt("--out", run)
            while True:
                terminal.send("\n")
                if self.next_prompt(terminal)[0][1] == "end":
                    break
            terminal.send("\r")
            self.assertEqual(terminal.end(), 0)
            self.assert_clean(terminal)
            self.assertIn(f"All {checks} checks passed.", without_escapes(terminal.text))
            self.assertIn("run.json", os.listdir(run))
            self.assertTrue(self.notes()["done"])
            self.assert_handed_in(os.path.join(run, "metrics.json"))

    def assert_handed_in(self, metrics):
        """`hand-in` must have the answers and a hash of the run's files."""
        done = subprocess.run([PROGRAM, "hand-in", SLUG], capture_output=True, check=True,
                              env={**os.environ, "XDG_STATE_HOME": self.state.name})
        (run,) = json.loads(done.stdout)["runs"].values()
        self.assertEqual(run["score"]["passed"], len(run["predictions"]))
        with open(metrics, "rb") as file:
            self.assertEqual(run["record"], hashlib.sha256(file.read()).hexdigest())

    def test_there_may_be_nothing_to_hand_in(self):
        done = subprocess.run([PROGRAM, "hand-in", SLUG], capture_output=True, text=True,
                              env={**os.environ, "XDG_STATE_HOME": self.state.name})
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("nothing to hand in", done.stderr)


class Predictions(Lessons):
    def test_it_is_a_line_on_a_terminal_as_it_was(self):
        terminal = self.at_prediction()
        self.assert_clean(terminal)
        terminal.send("a lot\n")
        terminal.expect("Type a number such as")
        terminal.expect(PREDICTION)
        terminal.send("100\n")
        terminal.expect("Right:")

    def test_a_usual_mistake_gets_its_hint_and_another_try(self):
        terminal = self.at_prediction()
        terminal.send("400\n")
        terminal.expect("Not yet. That is one update for each micro-batch")
        terminal.expect(PREDICTION)
        terminal.send("100\n")
        terminal.expect("Right:")
        self.next_prompt(terminal)
        self.assertEqual(self.answer(), {"typed": ["400", "100"], "outcome": "right later",
                                         "figure": "100"})

    def test_after_two_tries_the_answer_is_shown(self):
        terminal = self.at_prediction()
        terminal.send("3\n")
        terminal.expect(PREDICTION)
        terminal.send("4\n")
        terminal.expect("No, it is:")
        self.assertEqual(self.answer()["outcome"], "wrong")

    def answer(self):
        (run,) = self.notes()["runs"].values()
        return run["predictions"]["accumulation_updates"]

    def test_enter_passes_when_it_is_pressed_twice(self):
        terminal = self.at_prediction()
        terminal.send("\n")
        terminal.expect("Press Enter again to skip")
        terminal.expect(PREDICTION)
        terminal.send("100\n")
        terminal.expect("Right:")

    def test_help_at_a_prediction_says_what_may_be_typed(self):
        terminal = self.at_prediction()
        terminal.send("?\n")
        terminal.expect("Type a number such as")
        terminal.expect("n and s skip")

    def test_q_leaves_and_n_goes_on_without_an_answer(self):
        terminal = self.at_prediction()
        terminal.send("q\n")
        self.assertEqual(terminal.end(), 0)
        terminal = self.at_prediction("--from", "start")
        terminal.send("n\n")
        self.assertIn("Step 2 of", self.next_prompt(terminal)[1])

    def test_an_answer_is_locked(self):
        terminal = self.at_prediction()
        terminal.send("100\n")
        self.next_prompt(terminal)
        terminal.send("q")
        terminal.end()
        again = self.open("--from", "start")
        match, text = again.expect("Right:", PREDICTION)
        self.assertIsNot(match.re, PREDICTION)
        self.assertIn("Your answer:", text)


class Notebook(Lessons):
    def test_a_lesson_goes_on_where_one_left_it(self):
        terminal = self.at_prompt()
        for _ in range(2):
            terminal.send("n")
            self.next_prompt(terminal)
        terminal.send("q")
        terminal.end()
        again = self.at_prompt()
        self.assertIn("continues where you stopped", again.text)
        self.assertIn("Step 3 of", again.text)
        self.assertNotIn("Step 1 of", again.text)
        self.assertIn("Step 1 of", self.at_prompt("--from", "start").text)

    def test_a_notebook_that_is_none_is_no_matter(self):
        folder = os.path.join(self.state.name, "lockstep")
        for content in ("", "{", '{"step": "x"}', "[1]", '{"step":1,"done":false,"runs":7}'):
            with self.subTest(content=content):
                os.makedirs(folder, exist_ok=True)
                with open(os.path.join(folder, SLUG + ".json"), "w", encoding="utf-8") as file:
                    file.write(content)
                self.assertIn("Step 1 of", self.at_prompt().text)

    def test_a_folder_that_cannot_be_written_is_no_matter(self):
        self.state.name = "/proc/nowhere"
        self.assertIn("Step 1 of", self.at_prompt().text)


class Windows(Lessons):
    def screens(self, terminal, *sizes):
        """Yields the window's size and the text shown between prompts or questions."""
        sizes = list(sizes)
        rows, width = sizes[0]
        shown = 0
        asked = False
        while True:
            match, before = terminal.expect(PROMPT, PREDICTION)
            if asked:  # the line end after the answer was already on the screen
                before = re.sub(r"\A\r?\n", "", before)
            asked = match.re is PREDICTION
            yield rows, width, before + match[0]
            shown += 1
            if match.re is PROMPT and match[1] == "end":
                return
            if len(sizes) > 1 and shown % 4 == 0 and match.re is PROMPT:
                sizes.append(sizes.pop(0))
                rows, width = sizes[0]
                terminal.set_size(rows, width)
                time.sleep(0.05)
                continue
            terminal.send("\n")

    def height(self, text, width):
        """Returns how many lines a text needs if the terminal folds it. The prompt's line counts as
        one."""
        text = without_escapes(text)
        return sum(max(1, -(-columns(part) // width))
                   for line in text.split("\n") for part in [line.split("\r")[-1]])

    def test_no_screen_is_larger_than_the_window(self):
        for rows in (24, 30, 50):
            for width in (60, 80, 120):
                with self.subTest(rows=rows, columns=width):
                    terminal = self.open("--from", "start", rows=rows, columns=width)
                    for height, across, text in self.screens(terminal, (rows, width)):
                        self.assertLessEqual(self.height(text, across), height, text)

    def test_nor_in_any_other_lesson(self):
        for slug in ("column-linear", "tensor-parallel-block", "pipeline-1f1b", "pipedream",
                     "ring-self-attention"):
            with self.subTest(slug):
                terminal = self.open(command=[PROGRAM, "lesson", slug], rows=24, columns=60)
                for height, across, text in self.screens(terminal, (24, 60)):
                    self.assertLessEqual(self.height(text, across), height, text)

    def test_nor_after_the_window_was_changed_in_the_middle(self):
        terminal = self.open(rows=24, columns=80)
        sizes = ((24, 80), (30, 60), (50, 120), (24, 60))
        for height, across, text in self.screens(terminal, *sizes):
            self.assertLessEqual(self.height(text, across), height, text)


class Looks(Lessons):
    def shown(self, *options, **terminal):
        """Returns all that a lesson shows. It does not wait, because stdin is no terminal."""
        opened = self.open(*options, stdin=subprocess.DEVNULL, **terminal)
        self.assertEqual(opened.end(), 0)
        return opened.text

    def test_without_a_learner_it_runs_through(self):
        self.assertNotIn("[Enter]", self.shown("--step", "1"))

    def test_one_step_alone_ends_behind_it(self):
        terminal = self.open("--step", "2")
        while self.next_prompt(terminal)[0][1] != "end":
            terminal.send("\n")
        terminal.send("\n")
        self.assertEqual(terminal.end(), 0)
        self.assertNotIn("Step 1 of", terminal.text)
        self.assertNotIn("Step 3 of", terminal.text)

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
