#!/usr/bin/env python3
"""Tests the laboratory of pipeline schedules in a browser. Argument: the book's folder."""

import time
import urllib.parse

import laboratory
from laboratory import DOWN, LEFT, RIGHT, WIDTHS

HOME, ENTER, ESCAPE, DELETE, TAB = "\ue011", "\ue007", "\ue00c", "\ue017", "\ue004"
STUCK = "#schedule=1f1b&stages=2&micro-batches=2&work=F0,B0,F1,B1;F1,B1,F0,B0"


class Pipeline(laboratory.LaboratoryTest):
    page = "pipeline.html"

    def open(self, fragment=""):
        super().open(fragment)
        self.window.until("return document.getElementById('told').textContent !== ''")

    def until_told(self, sentence, where="#told"):
        self.window.until("return document.querySelector(arguments[0]).textContent"
                           ".includes(arguments[1])", where, sentence)

    def set(self, name, value):
        """Moves a slider with the keyboard, from its left end."""
        self.window.run("document.querySelector(arguments[0]).focus()", f"input[name={name}]")
        self.window.press(HOME, *[RIGHT] * value)

    def settings(self):
        """Returns all settings in the address, after the page has written it."""
        time.sleep(0.35)
        return dict(urllib.parse.parse_qsl(self.window.run("return location.hash.slice(1)")))

    def chips(self, stage):
        return self.window.run(
            "return [...document.querySelectorAll('.lab-chips')[arguments[0]].children]"
            ".map((chip) => chip.firstChild.textContent)", stage)

    def marked(self):
        return self.window.run(
            "return [...document.querySelectorAll('.lab-chip.stuck')]"
            ".map((chip) => [chip.firstChild.textContent, chip.children[0]?.textContent])")

    def focus(self, stage, at):
        self.window.run("document.querySelectorAll('.lab-chips')[arguments[0]]"
                         ".children[arguments[1]].focus()", stage, at)

    def drag(self, selector, to, *keys):
        """Drags the middle of one chip to the middle of another, and presses keys half-way."""
        middle = ("const box = document.querySelector(arguments[0]).getBoundingClientRect();"
                  "return [box.x + box.width / 2, box.y + box.height / 2]")
        self.window.run("document.querySelector(arguments[0]).scrollIntoView()", selector)
        (x, y), (u, v) = (self.window.run(middle, each) for each in (selector, to))
        self.window.cdp("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y,
                         button="left", clickCount=1)
        for part in range(1, 11):
            self.window.cdp("Input.dispatchMouseEvent", type="mouseMoved", button="left",
                             x=x + (u - x) * part / 10, y=y + (v - y) * part / 10, buttons=1)
            if part == 5:
                self.window.press(*keys)
        self.window.cdp("Input.dispatchMouseEvent", type="mouseReleased", x=u, y=v,
                         button="left", clickCount=1)

    def test_every_control_changes_the_schedule_and_the_address(self):
        self.open()
        self.assertEqual(self.text("#told"), "It takes 33; the bubble is 27.27 % of the time.")
        self.set("micro-batches", 15)
        self.until_told("It takes 57; the bubble is 15.79 %")
        self.set("stages", 1)
        self.until_told("It takes 51; the bubble is 5.88 %")
        self.assertEqual(self.settings(), {"schedule": "1f1b", "stages": "2",
                                          "micro-batches": "16"})
        self.set("comm", 2)
        self.until_told("It takes 59")
        self.assertIn("the condition is not met", self.text("#generated"))
        self.window.click("input[name=messages]")
        self.window.until("return location.hash.includes('messages=1')")
        self.assertIn("--stages 2 --micro-batches 16 --comm 0.5 --messages",
                      self.text("#generated code"))
        for name in ("forward", "backward-input", "backward-weight"):
            self.set(name, 8)
            self.window.until("return location.hash.includes(arguments[0])", name + "=2")
        self.until_told("It takes 110")

    def test_every_generator_is_drawn_and_keeps_its_formulas(self):
        self.open()
        for name in ("naive", "gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-h2"):
            self.window.run(
                "const select = document.querySelector('select[name=schedule]');"
                "select.value = arguments[0]; select.dispatchEvent(new Event('change'))", name)
            self.window.until("return document.querySelector('#generated svg')"
                               ".getAttribute('aria-label').startsWith(arguments[0])", name)
            self.assertIn("equal", self.text("#generated"))
            self.assertNotIn("differs", self.text("#generated"))
        self.assertTrue(self.window.run(
            "return document.querySelector('input[name=chunks]').offsetParent === null"))

    def test_chunks_are_interleaveds(self):
        self.open("#schedule=interleaved&chunks=2")
        self.assertIn("2 chunks a stage", self.window.run(
            "return document.querySelector('#generated svg').getAttribute('aria-label')"))
        self.set("micro-batches", 6)
        self.until_told("It takes")
        self.assertIn("7 micro-batches", self.window.run(
            "return document.querySelector('#generated svg').getAttribute('aria-label')"))
        self.assertIn("equal", self.text("#generated"))
        self.assertNotIn("differs", self.text("#generated"))

    def test_interleaved_begins_with_two_chunks_unless_the_address_says_one(self):
        self.open("#schedule=1f1b")
        self.window.type("select[name=schedule]", DOWN)
        self.window.until("return location.hash.includes('schedule=interleaved')")
        self.assertEqual(self.settings()["chunks"], "2")
        self.open("#schedule=interleaved&chunks=1")
        self.assertIn("--chunks 1", self.text("#generated code"))

    def test_an_address_is_read_and_what_cannot_be_is_said(self):
        self.open("#schedule=zb-h2&stages=3&micro-batches=6&comm=0.25&messages=1")
        self.assertIn("zb-h2 --stages 3 --micro-batches 6 --comm 0.25 --messages",
                      self.text("#generated code"))
        self.open("#schedule=zb-h9&stages=99&forward=x")
        said = self.text("#laboratory > p")
        for wrong in ("schedule=zb-h9", "stages=99", "forward=x"):
            self.assertIn(wrong, said)
        self.assertIn("1f1b --stages 4", self.text("#generated code"))
        self.window.run("location.hash = '#schedule=gpipe&stages=2&micro-batches=2'")
        self.window.until("return document.querySelector('#generated code')?.textContent"
                           " === 'lockstep schedule gpipe --stages 2 --micro-batches 2'")
        self.assertEqual(self.text("#laboratory > p"), "")

    def test_boxes_say_what_they_wait_for(self):
        self.open("#schedule=1f1b&stages=2&micro-batches=2")
        self.assertEqual(self.window.run(
            "return document.querySelector('#generated [data-box=\"s1.0\"]').dataset.waits"),
            "s0.0")
        self.window.run("document.querySelector('#generated figure').focus()")
        self.window.press(RIGHT, DOWN)
        self.window.until("return document.body.textContent"
                           ".includes('begins as F0 of stage 0 ends')")

    def test_a_schedule_that_hangs_shows_its_cycle_and_is_mended_by_keyboard(self):
        self.open(STUCK)
        self.until_told("deadlock after 1 of 8 computations", "#hand-told")
        self.assertEqual(self.marked(), [["B0", "1"], ["F1", "2"]])
        self.assertEqual(self.window.run(
            "return document.querySelectorAll('.lab-rows > svg > path').length"), 2)
        self.focus(0, 0)
        self.window.press(RIGHT, ENTER, RIGHT, ENTER)
        self.until_told("It runs.", "#hand-told")
        self.assertEqual(self.chips(0), ["F0", "F1", "B0", "B1"])
        self.assertEqual(self.marked(), [])
        self.assertEqual(self.settings()["work"], "F0,F1,B0,B1;F1,B1,F0,B0")
        self.assertEqual(self.window.run("return document.activeElement.firstChild.textContent"),
                         "B0")
        self.window.press(ENTER, LEFT, LEFT, ESCAPE)
        self.assertEqual(self.chips(0), ["F0", "F1", "B0", "B1"])
        self.window.press(DOWN, DELETE)
        self.assertEqual(self.chips(1), ["F1", "B1", "B0"])
        self.until_told("F0", "#hand-told")
        self.until_told("It cannot run.", "#hand-told")

    def test_an_instruction_is_dragged(self):
        self.open(STUCK)
        self.until_told("deadlock", "#hand-told")
        row = ".lab-row:first-child .lab-chip"
        self.drag(f"{row}:nth-child(2)", f"{row}:nth-child(3)")
        self.until_told("It runs.", "#hand-told")
        self.assertEqual(self.chips(0), ["F0", "F1", "B0", "B1"])
        self.assertEqual(self.window.run("return document.querySelector('.lifted')"), None)

    def test_keys_end_a_drag(self):
        row = ".lab-row:first-child .lab-chip"
        for key, chips in ((ESCAPE, ["F0", "B0", "F1", "B1"]), (ENTER, None), (DELETE, None)):
            self.open(STUCK)
            self.until_told("deadlock", "#hand-told")
            self.drag(f"{row}:nth-child(1)", f"{row}:nth-child(4)", key)
            self.assertEqual(self.window.run("return document.querySelector('.lifted')"), None)
            self.assertEqual(self.window.console(), [])
            if chips:
                self.assertEqual(self.chips(0), chips)

    def test_text_is_typed_and_refused_with_the_modules_sentence(self):
        self.open(STUCK)
        self.until_told("deadlock", "#hand-told")
        field = ".lab-row:first-child input"
        self.window.run("document.querySelector(arguments[0]).select()", field)
        self.window.type(field, "F0 F1 Bee")
        self.until_told("stage 0: \"Bee\" is no instruction", "#hand-told")
        self.assertEqual(self.window.run(
            "return document.querySelector(arguments[0]).getAttribute('aria-invalid')", field),
            "true")
        for text, sentence in (("#F0", "#F0"), ('F0 "B0', "stage 0, column 2: the quote"),
                               ("B0 F0 F1 B1", "It cannot run. stage 0, instruction 1"), ("", "stage 0")):
            self.window.run("const field = document.querySelector(arguments[0]);"
                             "field.value = arguments[1];"
                             "field.dispatchEvent(new Event('input'))", field, text)
            self.until_told(sentence, "#hand-told")
            self.assertNotIn("csv", self.text("#hand-told"))
        self.window.type(field, "F1,F0,B1,B0")
        self.until_told("It runs.", "#hand-told")
        self.assertEqual(self.chips(0), ["F1", "F0", "B1", "B0"])

    def test_a_row_that_no_address_takes_says_so(self):
        self.open(STUCK)
        self.until_told("deadlock", "#hand-told")
        for count in (200, 201):
            self.window.run("const field = document.querySelector('.lab-row input');"
                            "field.value = arguments[0]; field.dispatchEvent(new Event('input'))",
                            ",".join(["F0"] * count))
            self.assertEqual("but not shared" in self.text(".lab-row"), count == 201)

    def test_a_generators_schedule_is_taken_over_and_saved(self):
        self.open("#schedule=zb-h1&stages=3&micro-batches=4&comm=0.5")
        self.assertEqual(self.text(".lab-rows"), "")
        self.window.click("#start")
        self.until_told("It runs.", "#hand-told")
        self.assertEqual(self.text("#hand-told").split(" ", 2)[2], self.text("#told"))
        saved = urllib.parse.unquote(self.window.run(
            "return document.querySelector('a[download]').href")).split(",", 1)[1]
        self.assertEqual(saved.splitlines(), self.settings()["work"].split(";"))
        self.assertTrue(saved.startswith("F0,F1,F2,I0"))
        self.assertEqual(self.text("#hand-shown code"),
                         "lockstep schedule schedule.csv --comm 0.5")

    def test_it_fits_telephones_and_all_that_acts_has_a_name(self):
        for self.page in ("zh/pipeline.html", "pipeline.html"):
            for width in WIDTHS:
                self.window.size(width, 800)
                self.open("#schedule=zb-h2&stages=4&micro-batches=8")
                self.window.click("#start")
                self.window.until("return document.querySelector('#hand-shown svg')")
                self.assert_fits(width)
                self.assert_no_twins()
                self.assertEqual(self.window.run(
                    "return [...document.querySelectorAll('button, input, select')].filter("
                    "(each) => !(each.textContent || each.labels?.[0]?.textContent"
                    " || each.ariaLabel)).length"), 0)

    def test_the_tab_key_goes_through_it_without_a_trap(self):
        self.open(STUCK)
        self.until_told("deadlock", "#hand-told")
        self.window.run("document.getElementById('start').focus()")
        stops = []
        for _ in range(4):
            self.window.press(TAB)
            stops.append(self.window.run("return document.activeElement.tagName"))
        self.assertEqual(stops, ["BUTTON", "INPUT", "BUTTON", "INPUT"])

    def test_the_chinese_page_is_in_chinese(self):
        """All words in Latin letters must be code, known names, or marked as English."""
        english = ("const words = new Set();"
                   "const add = (text) => {"
                   "  for (const word of text.match(/[A-Za-z]{3,}/g) ?? []) words.add(word); };"
                   "const place = document.getElementById('laboratory');"
                   "const walker = document.createTreeWalker(place);"
                   "while (walker.nextNode()) {"
                   "  const node = walker.currentNode;"
                   "  if (node.parentElement.closest('style, code, [lang=en], select')) continue;"
                   "  if (node.nodeType === Node.TEXT_NODE) add(node.textContent);"
                   "  else add(`${node.dataset.words ?? ''} ${node.ariaLabel ?? ''}`);"
                   "} return [...words].sort()")
        self.page = "zh/pipeline.html"
        for fragment in ("#schedule=interleaved&chunks=2&comm=0.5&messages=1", "#schedule=zb-h1",
                         "#schedule=1f1b&stages=2&micro-batches=2&work=F0,B0,F1,B1;F1,B1,F0,B0"):
            self.open(fragment)
            self.window.click("#start")
            self.window.until("return document.querySelector('#hand-shown svg')")
            names = {"Bubble", "Enter", "Escape", "Delete", "GPipe", "Narayanan", "Zero", "csv",
                     "interleaved", "schedule", "min"}
            self.assertEqual(set(self.window.run(english)) - names, set())
        self.page = Pipeline.page

    def test_copying_says_that_it_is_done(self):
        self.open()
        self.window.click(".lab-command button")
        self.window.until("return document.querySelector('.lab-command [aria-live]')"
                           ".textContent !== ''")


if __name__ == "__main__":
    laboratory.main()
