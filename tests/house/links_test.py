#!/usr/bin/env python3
"""Runs links.py on small trees of pages."""

import os
import subprocess
import sys
import tempfile
import unittest

import links


def check(pages):
    with tempfile.TemporaryDirectory() as root:
        for file, text in pages.items():
            os.makedirs(os.path.dirname(os.path.join(root, file)), exist_ok=True)
            with open(os.path.join(root, file), "w", encoding="utf-8") as out:
                out.write(text)
        run = subprocess.run([sys.executable, "-B", links.__file__, root], capture_output=True,
                             text=True, check=False)
        return run.stdout, run.returncode


class Links(unittest.TestCase):
    def test_links_that_lead_somewhere_pass(self):
        said, status = check({"a.md": "[b](x/b.md#two-words) [web](https://example.org/none)\n"
                                      "```\n[code](nowhere.md)\n```\n",
                              "x/b.md": "# One\n## Two words\n[a](../a.md)"})
        self.assertEqual((said, status), ("2 pages, 0 broken links\n", 0))

    def test_a_file_that_is_not_there_is_named(self):
        said, status = check({"a.md": "[b](b.md)"})
        self.assertEqual(status, 1)
        self.assertIn("a.md: b.md: there is no such file", said)

    def test_a_heading_that_is_not_there_is_named(self):
        said, status = check({"a.md": "[b](b.md#two)", "b.md": "# One\n"})
        self.assertEqual(status, 1)
        self.assertIn("a.md: b.md#two: there is no such heading", said)


if __name__ == "__main__":
    unittest.main()
