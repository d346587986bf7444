"""Helpers of all tests of the book: a window on one of the book's pages."""

import os
import sys
import time
import unittest

import browser

WIDTHS = (360, 800, 1280)
LEFT, RIGHT, DOWN = "\ue012", "\ue014", "\ue015"


class LaboratoryTest(unittest.TestCase):
    """`page` is the laboratory's file in the book. The book's folder is argument 1."""

    page = ""

    @classmethod
    def setUpClass(cls):
        cls.window = browser.Browser()
        cls.addClassCleanup(cls.window.__exit__)

    def setUp(self):
        self.window.size(1280, 800)
        self.moves(True)

    def tearDown(self):
        self.assertEqual(self.window.console(), [])

    def open(self, fragment=""):
        self.window.open(os.path.join(BOOK, self.page), fragment)

    def moves(self, may_move):
        self.window.cdp("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-reduced-motion", "value": "no-preference" if may_move else "reduce"}])

    def address(self, name):
        """Returns the setting in the address, after the page has written it."""
        time.sleep(0.35)
        return self.window.run(
            "return new URLSearchParams(location.hash.slice(1)).get(arguments[0])", name)

    def text(self, selector):
        return self.window.run(
            "return document.querySelector(arguments[0]).textContent", selector)

    def texts(self, selector):
        return self.window.run("return [...document.querySelectorAll(arguments[0])]"
                               ".map((element) => element.textContent)", selector)

    def assert_no_twins(self):
        """Checks that no two elements have the same name."""
        names = self.window.run(
            "return [...document.querySelectorAll('[id]')].map((element) => element.id)")
        self.assertEqual(sorted(names), sorted(set(names)))

    def assert_fits(self, width):
        """Checks that nothing sticks out to the right of the window."""
        self.assertLessEqual(self.window.run("return document.documentElement.scrollWidth"), width)


def main():
    """Runs the script's tests."""
    if not browser.is_here():
        print("skipped: chromium or chromedriver is not installed")
        sys.exit(77)
    if not os.path.isdir(BOOK):
        print("skipped: the book is not built, because emscripten is not installed")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])


BOOK = sys.argv[1]
