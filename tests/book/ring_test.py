#!/usr/bin/env python3
"""Tests the laboratory of the ring in a browser. Argument: the book's folder."""

import laboratory
from laboratory import DOWN, LEFT, RIGHT, WIDTHS

VALUES = "#picture svg text[text-anchor=end]"


class Ring(laboratory.LaboratoryTest):
    page = "ring.html"

    def at_the_end(self, devices, program="right"):
        last = 0 if program == "group" else 2 * (devices - 1)
        self.open(f"#devices={devices}&without={program}&step={last}")

    def test_all_devices_have_all_sums_at_the_end(self):
        for devices in range(2, 7):
            self.at_the_end(devices)
            sums = [str((c + 1) * int("1" * devices)) for c in range(devices)]
            self.assertEqual(self.texts(VALUES), sums * devices)

    def test_without_a_wait_other_sums_are_shown_with_their_diagnosis(self):
        self.at_the_end(4, "1")
        self.assertEqual(self.texts(VALUES), ["1101", "2022", "333", "4440"] * 4)
        self.assertEqual(self.text("#fault"), "F16")
        self.assertEqual(
            self.window.run("return document.getElementById('fault').getAttribute('href')"),
            "F16.html")
        self.at_the_end(4, "4")
        self.assertEqual(self.texts("#fault"), [])
        self.at_the_end(4, "group")
        self.assertEqual(self.text("#fault"), "F11")
        self.assertEqual(self.texts("#picture polygon"), [""] * 4)

    def test_buttons_and_the_slider_go_through_the_steps(self):
        self.open("#devices=3")
        for step in ("1", "2"):
            self.window.click("#next")
            self.assertEqual(self.address("step"), step)
        self.window.click("#back")
        self.assertEqual(self.address("step"), "1")
        self.window.type("#step", RIGHT + RIGHT)
        self.assertEqual(self.address("step"), "3")
        self.window.type("#step", LEFT)
        self.assertEqual(self.address("step"), "2")

    def test_it_plays_to_the_end_and_can_be_stopped(self):
        self.open("#devices=2")
        self.window.click("#speed option[value=fast]")
        self.window.type("#play", " ")
        self.window.until("return document.getElementById('step').value === '2'")
        self.window.until("return !document.getAnimations().length")
        self.assertEqual(self.texts(VALUES), ["11", "22"] * 2)
        self.window.type("#play", " ")
        self.window.until("return document.getElementById('step').value === '1'")
        playing = self.text("#play")
        self.window.type("#play", " ")
        self.assertNotEqual(self.text("#play"), playing)

    def test_chunks_move_unless_the_reader_wants_stillness(self):
        moving = "return document.getAnimations().length"
        self.open("#devices=4")
        self.window.click("#next")
        self.assertEqual(self.window.run(moving), 4)
        self.moves(False)
        self.open("#devices=4")
        self.window.click("#next")
        self.assertEqual(self.window.run(moving), 0)
        self.assertIn("44", self.texts(VALUES))

    def test_settings_change_by_keyboard_and_by_mouse_and_are_in_the_address(self):
        self.open()
        self.window.type("#devices", RIGHT)
        self.assertEqual(self.address("devices"), "5")
        self.assertEqual(len(self.texts(VALUES)), 25)
        self.window.type("#without", DOWN)
        self.assertEqual(self.address("without"), "1")
        self.window.click("#without option[value=all]")
        self.assertEqual(self.address("without"), "all")
        self.window.run("location.hash = '#devices=3&step=4'")
        self.window.until("return document.getElementById('devices').value === '3'")
        self.assertEqual(self.texts(VALUES)[:3], ["111", "222", "333"])

    def test_an_address_that_asks_for_what_is_not_there_is_told(self):
        for wrong in ("devices=9", "step=7", "without=x", "devices=", "step=1e9", "without=7"):
            self.open("#" + wrong)
            self.assertIn(wrong, self.text(".lab-note"))
            self.assertEqual(len(self.texts(VALUES)), 16)

    def test_names_that_all_objects_have_are_no_settings(self):
        self.open("#toString=1&constructor=2")
        self.assertEqual(self.text(".lab-note"), "")

    def test_a_slider_that_moves_fast_writes_the_address_once(self):
        """Some browsers allow at most 100 changes of the address in 30 seconds."""
        self.open()
        self.window.run(
            "window.written = 0; const write = history.replaceState.bind(history);"
            "history.replaceState = (...all) => {"
            "  if (++window.written > 3) throw new Error('refused'); write(...all); };"
            "const slider = document.getElementById('devices');"
            "for (let i = 0; i < 150; ++i) {"
            "  slider.value = 3 + i % 3; slider.dispatchEvent(new Event('input')); }")
        self.assertEqual(self.address("devices"), "5")
        self.assertEqual(self.window.run("return window.written"), 1)
        self.assertEqual(len(self.texts(VALUES)), 25)

    def test_an_address_that_cannot_be_written_stays(self):
        self.open()
        self.window.run("history.replaceState = () => { throw new Error('refused'); }")
        self.window.type("#devices", RIGHT)
        self.assertEqual(self.address("devices"), None)
        self.assertEqual(len(self.texts(VALUES)), 25)

    def test_it_fits_windows_of_all_widths(self):
        for width in WIDTHS:
            self.window.size(width, 800)
            for devices in (2, 3, 6):
                self.at_the_end(devices, "2")
                self.assert_fits(width)
                self.assertGreaterEqual(self.window.run(
                    "const svg = document.querySelector('#picture svg');"
                    "return svg.getBoundingClientRect().width / svg.viewBox.baseVal.width"), 0.9)


if __name__ == "__main__":
    laboratory.main()
