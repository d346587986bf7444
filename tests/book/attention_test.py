#!/usr/bin/env python3
"""Tests the laboratory of attention in a browser. Argument: the book's folder."""

import laboratory
from laboratory import DOWN, RIGHT, WIDTHS

PAIRS_IN_ALL = "#laboratory td:last-child"
FRAMES = "#grid rect.now"


class Attention(laboratory.LaboratoryTest):
    page = "attention.html"

    def pairs(self):
        return [int(text) for text in self.texts(PAIRS_IN_ALL)]

    def test_pairs_add_up_to_those_of_the_mask(self):
        for devices in (2, 4, 8):
            for mask, pairs in (("none", 32 * 32), ("causal", 32 * 33 // 2)):
                for order in ("contiguous", "striped", "zigzag"):
                    self.open(f"#devices={devices}&mask={mask}&order={order}&step={devices}")
                    self.assertEqual(len(self.pairs()), devices)
                    self.assertEqual(sum(self.pairs()), pairs)

    def test_zigzag_order_shares_the_causal_mask_out_evenly(self):
        self.open("#devices=4&order=zigzag")
        self.assertEqual(self.pairs(), [132] * 4)
        self.open("#devices=4&order=contiguous")
        self.assertEqual(self.pairs(), [36, 100, 164, 228])

    def test_each_step_frames_one_block_of_each_device(self):
        self.open("#devices=8")
        self.assertEqual(self.texts(FRAMES), [])
        for step in range(1, 9):
            self.window.click("#next")
            self.assertEqual(self.address("step"), str(step))
            self.assertEqual(len(self.texts(FRAMES)), 8)
        self.window.click("#back")
        self.window.type("#step", RIGHT)
        self.assertEqual(self.address("step"), "8")

    def test_it_plays_to_the_end(self):
        self.moves(False)
        self.open("#devices=2")
        self.window.type("#play", " ")
        self.window.until("return document.getElementById('step').value === '2'")

    def test_settings_change_by_keyboard_and_by_mouse_and_are_in_the_address(self):
        self.open()
        for name in ("devices", "method", "order", "links", "view"):
            self.window.type("#" + name, DOWN)
        self.assertEqual([self.address(name) for name in
                          ("devices", "method", "order", "links", "view")],
                         ["8", "gather", "striped", "slow", "sequence"])
        for name, value in (("mask", "none"), ("method", "ulysses"), ("devices", "2")):
            self.window.click(f"#{name} option[value='{value}']")
            self.assertEqual(self.address(name), value)
        self.assertEqual(self.pairs(), [1024, 1024])

    def test_the_time_is_that_of_the_settings(self):
        self.open("#devices=4&order=contiguous")
        slow = self.text("#time")
        self.window.click("#order option[value=zigzag]")
        self.assertIn("58 %", slow)
        self.assertIn("97 %", self.text("#time"))

    def test_an_address_that_asks_for_what_is_not_there_is_told(self):
        for wrong in ("devices=3", "step=5", "method=x", "mask=", "order=1"):
            self.open("#" + wrong)
            self.assertIn(wrong, self.text(".lab-note"))
            self.assertEqual(len(self.pairs()), 4)

    def test_it_fits_windows_of_all_widths(self):
        for width in WIDTHS:
            self.window.size(width, 800)
            for devices in (2, 8):
                self.open(f"#devices={devices}&step=1")
                self.assert_fits(width)


if __name__ == "__main__":
    laboratory.main()
