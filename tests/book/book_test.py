#!/usr/bin/env python3
"""Tests the book's pages in Chromium. No page may print to the console, and all links must
work. In a narrow window nothing may stick out, and all parts of lessons must work.

Argument: the book's folder. With LOCKSTEP_SCREENSHOTS=FOLDER, the folder gets pictures of each page
in three widths, for people to look at.
"""

import glob
import json
import os
import re
import urllib.parse

import laboratory
from laboratory import BOOK, DOWN, RIGHT, WIDTHS

ENTER = "\ue007"
SCREENSHOTS = os.environ.get("LOCKSTEP_SCREENSHOTS")
LARGEST = 400_000  # bytes of a page
PAGES = sorted(os.path.relpath(path, BOOK)
               for path in glob.glob(os.path.join(BOOK, "**/*.html"), recursive=True))
LESSONS = [page for page in PAGES if "data-lesson" in open(os.path.join(BOOK, page)).read()
           and not page.endswith("index.html")]
FORM = "article section:not([hidden]) > form.question:not([hidden]):not(.settled)"


class Pages(laboratory.LaboratoryTest):
    def see(self, page, fragment=""):
        self.page = page
        self.open(fragment)

    def test_all_pages_are_quiet_and_fit(self):
        self.assertGreater(len(PAGES), 80)
        for page in PAGES:
            with self.subTest(page=page):
                self.assertLess(os.path.getsize(os.path.join(BOOK, page)), LARGEST)
                self.see(page)
                self.assertTrue(self.window.run("return document.title"))
                for width in WIDTHS:
                    self.window.size(width, 800)
                    self.assert_fits(width)
                    if SCREENSHOTS:
                        name = f"{page.replace('/', '-').removesuffix('.html')}-{width}.png"
                        self.window.screenshot(os.path.join(SCREENSHOTS, name))
                self.assert_no_twins()
                self.assertEqual(self.window.console(), [])

    def test_pictures_of_chinese_pages_explain_themselves_in_chinese(self):
        """A tooltip's first line is an operation's name. The other lines must be Chinese, except
        sizes and places in the code."""
        lines = set()
        for page in PAGES:
            if page.startswith("zh/"):
                with open(os.path.join(BOOK, page), encoding="utf-8") as file:
                    titles = re.findall("<title>([^<]*)</title></(?:rect|path)>", file.read())
                for tooltip in titles:
                    lines.update(tooltip.split("\n")[1:])
        self.assertGreater(len(lines), 100)
        for line in lines:
            self.assertRegex(line, r"[\u4e00-\u9fff]|^[\d.,]+ \w+$|^[\w/]+\.[ch]pp:\d+$")

    def test_links_lead_somewhere(self):
        for page in PAGES:
            with open(os.path.join(BOOK, page), encoding="utf-8") as file:
                text = file.read()
            for link in re.findall(r'(?:href|src)="([^"]*)"', text):
                if link.startswith(("https://", "data:")):
                    continue
                path, _, anchor = urllib.parse.unquote(link).partition("#")
                file = os.path.join(BOOK, os.path.dirname(page), path) if path else os.path.join(BOOK, page)
                with self.subTest(page=page, link=link):
                    self.assertTrue(os.path.isfile(file))
                    if anchor and "=" not in anchor:
                        with open(file, encoding="utf-8") as target:
                            self.assertIn(f'id="{anchor}"', target.read())

    def test_no_word_of_a_table_is_broken(self):
        """In a narrow window a table must scroll."""
        broken = (
            "document.querySelector('.offer button')?.click();"
            "const range = document.createRange(), broken = [];"
            "for (const cell of document.querySelectorAll('th, td')) {"
            "  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);"
            "  while (walker.nextNode())"
            "    for (const word of walker.currentNode.data.matchAll(/[A-Za-z0-9.,]+/g)) {"
            "      range.setStart(walker.currentNode, word.index);"
            "      range.setEnd(walker.currentNode, word.index + word[0].length);"
            "      if (new Set([...range.getClientRects()].map((box) => box.y)).size > 1) broken.push(word[0]);"
            "    } } return broken")
        for width in (360, 1280):
            self.window.size(width, 800)
            for page in ["faults.html", *LESSONS]:
                with self.subTest(page=page, width=width):
                    self.see(page)
                    self.assertEqual(self.window.run(broken), [])
                    self.assert_fits(width)

    def test_pages_on_mistakes_lead_to_their_neighbours(self):
        self.see("F16.html")
        self.assertEqual(self.window.run(
            "return [...document.querySelectorAll('.neighbours a')].map((link) => link.getAttribute('href'))"),
            ["F15.html", "F17.html"])

    def test_answers_are_folded(self):
        for page in ("pipeline.html", "ring.html", "zh/attention.html"):
            self.see(page)
            folded = self.window.run("return [...document.querySelectorAll('li > details')].map((each) => each.open)")
            self.assertGreaterEqual(len(folded), 4)
            self.assertFalse(any(folded))

    def test_nothing_comes_from_outside(self):
        for page in PAGES:
            with open(os.path.join(BOOK, page), encoding="utf-8") as file:
                loaded = re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="([^"]*)"', file.read())
            with self.subTest(page=page):
                self.assertFalse([link for link in loaded if "//" in link])

    def test_colours_are_chosen_and_kept(self):
        paper = "return getComputedStyle(document.body).backgroundColor"
        self.see("index.html")
        light = self.window.run(paper)
        self.window.click("#theme")
        dark = self.window.run(paper)
        self.assertNotEqual(light, dark)
        self.see("glossary.html")
        self.assertEqual(self.window.run(paper), dark)
        self.window.run("localStorage.clear()")
        self.window.dark(True)
        self.see("glossary.html")
        self.assertEqual(self.window.run(paper), dark)
        self.window.dark(False)

    def test_paper_has_the_light_colours(self):
        """Even if the reader has chosen dark colours, paper has light colours."""
        colours = (
            "document.documentElement.dataset.theme = arguments[0];"
            "const element = document.createElement('p'); document.body.append(element);"
            "return ['ink', 'accent', 'good', 'bad', 'keyword', 'comment', 'literal'].map((name) => {"
            "  element.style.color = `var(--${name})`; return getComputedStyle(element).color; })")
        self.see("index.html")
        light, dark = (self.window.run(colours, theme) for theme in ("light", "dark"))
        self.assertFalse(set(light) & set(dark))
        self.window.cdp("Emulation.setEmulatedMedia", media="print")
        self.assertEqual(self.window.run(colours, "dark"), ["rgb(0, 0, 0)", *light[1:]])
        self.window.cdp("Emulation.setEmulatedMedia", media="")

    def test_the_other_language_is_a_link_away(self):
        self.see("F16.html")
        self.window.click('a[hreflang="zh"]')
        self.window.until("return document.documentElement.lang === 'zh'")
        self.assertTrue(self.window.run("return location.pathname").endswith("zh/F16.html"))
        self.window.click('a[hreflang="en"]')
        self.window.until("return document.documentElement.lang === 'en'")


class Lesson(laboratory.LaboratoryTest):
    page = "gradient-accumulation.html"

    def setUp(self):
        super().setUp()
        self.open()
        self.window.run("localStorage.clear()")
        self.open()

    def question(self):
        """Returns the open question's name and a right answer: a choice's letter, or a figure."""
        return self.window.run(
            "const form = document.querySelector(arguments[0]); if (!form) return null;"
            "const asked = JSON.parse(form.dataset.prediction);"
            "return [form.id, 'abcdef'[asked.choices.indexOf(asked.right)] ?? '', form.dataset.figure]", FORM)

    def give(self, text):
        """Answers the open question. A choice is answered by its letter."""
        if self.window.run("return !!document.querySelector(arguments[0] + ' [type=radio]')", FORM):
            self.window.click(f"{FORM} [type=radio][value='{text}']")
        else:
            self.window.run(f"document.querySelector('{FORM} input').value = ''")
            self.window.type(f"{FORM} input", text)
        self.window.click(f"{FORM} .buttons button")

    def other(self, choice):
        """Returns the letter of a wrong choice."""
        return "b" if choice == "a" else "a"

    def advice(self, name):
        """Returns the page's advice on an unreadable or wrong answer."""
        return self.window.until(
            "const advice = document.querySelector(arguments[0]).textContent;"
            "return advice === 'Computing …' ? '' : advice", f"#{name} .advice")

    def settled(self, name):
        return f"return document.getElementById('{name}').classList.contains('settled')"

    def test_what_follows_a_question_is_hidden_until_it_is_answered(self):
        name, choice, figure = self.question()
        self.assertFalse(self.window.run(
            "return document.querySelector('.outcome').checkVisibility()"))
        self.assertNotIn("Answer:", self.window.run("return document.querySelector('main').innerText"))
        self.assertTrue(self.window.run("return !!document.querySelector('.contents .locked')"))
        self.give(choice or figure)
        self.window.until(self.settled(name))
        self.assertTrue(self.window.run(
            "return document.querySelector('.outcome').checkVisibility()"))
        self.assertIn("Right:", self.text(".outcome"))

    def test_an_answer_is_kept_and_locked(self):
        name, _, figure = self.question()
        self.give(figure)
        self.window.until(self.settled(name))
        self.open()
        self.assertTrue(self.window.run(self.settled(name)))
        self.assertTrue(self.window.run(
            f"return [...document.querySelectorAll('#{name} input, #{name} button')].every((field) => field.disabled)"))

    def test_a_wrong_answer_is_given_a_second_try(self):
        name, choice, _ = self.question()
        wrong = self.other(choice) if choice else "123456789"
        self.give(wrong)
        self.assertIn("Not yet.", self.advice(name))
        self.assertFalse(self.window.run(self.settled(name)))
        self.give(wrong)
        self.window.until(self.settled(name))
        self.assertIn("No, it is:", self.text(".outcome"))

    def test_a_figure_that_was_given_stands_above_the_right_one(self):
        while (question := self.question())[1]:
            self.window.click(f"{FORM} .pass")
        name = question[0]
        for _ in range(2):
            self.give("123456789")
            self.window.until("return document.querySelector(arguments[0]).textContent !== 'Computing …'",
                              f"#{name} .advice")
        self.window.until(self.settled(name))
        self.assertEqual(self.text(f"#{name} + .outcome > p"), "Your answer: 123456789")
        self.assertFalse(self.window.run(f"return document.querySelector('#{name} input').checkVisibility()"))

    def test_predictions_can_be_forgotten(self):
        self.window.click(".offer button")
        for is_sure in (False, True):
            self.window.run("window.confirm = () => arguments[0]".replace("arguments[0]", str(is_sure).lower()))
            self.window.click(".score button")
            self.window.until("return (document.querySelector('.offer:not([hidden])') !== null) === arguments[0]",
                              is_sure)
        self.assertIsNotNone(self.question())

    def test_an_answer_given_twice_is_one_try(self):
        """The second answer is given before the module that judges answers is loaded."""
        name, choice, _ = self.question()
        said = self.window.run(
            "const form = document.getElementById(arguments[0]);"
            "const field = form.querySelector(arguments[1]);"
            "if (field.type === 'radio') field.checked = true; else field.value = '123456789';"
            "form.requestSubmit(); form.requestSubmit();"
            "return form.querySelector('.advice').textContent",
            name, f"[value='{self.other(choice)}']" if choice else "input")
        self.assertEqual(said, "Computing …")
        self.assertIn("Not yet.", self.advice(name))
        self.assertFalse(self.window.run(self.settled(name)))

    def test_what_cannot_be_judged_is_said_and_costs_no_try(self):
        name, choice, figure = self.question()
        other = json.dumps({"value": 1, "unit": "parsecs", "digits": 0, "choices": []})
        asked = self.window.run(
            "const data = document.getElementById(arguments[0]).dataset;"
            "const asked = data.prediction; data.prediction = arguments[1]; return asked", name, other)
        self.give(choice or figure)
        self.assertIn("parsecs", self.advice(name))
        self.window.run("document.getElementById(arguments[0]).dataset.prediction = arguments[1]",
                        name, asked)
        self.give(choice or figure)
        self.window.until(self.settled(name))
        self.window.click(".offer button")
        self.assertIn("Predictions: 1 of", self.text(".score"))

    def test_an_address_that_names_nothing_is_no_error(self):
        for fragment in ("#%", "#%E0", "#nothing", "#"):
            self.open(fragment)
            self.assertEqual(self.window.console(), [])

    def test_what_is_no_answer_costs_no_try(self):
        while (question := self.question())[1]:
            self.window.click(f"{FORM} .pass")
        self.give("many")
        self.assertIn("Type a number", self.advice(question[0]))
        self.give(question[2])
        self.window.until(self.settled(question[0]))
        self.assertIn("Right:", self.text(f"#{question[0]} + .outcome"))

    def test_a_hint_knows_the_usual_mistake(self):
        """After the usual wrong number, the first question with a hint must show this hint."""
        while question := self.question():
            hint = self.window.run(
                "return JSON.parse(document.querySelector(arguments[0]).dataset.prediction).hints[0] ?? null", FORM)
            if hint and not question[1]:
                break
            self.window.click(f"{FORM} .pass")
        self.give(repr(hint["wrong"]))
        self.assertIn(re.sub("<[^>]*>", "", hint["html"])[:30], self.advice(question[0]))

    def test_the_keyboard_is_enough(self):
        name, choice, figure = self.question()
        if choice:
            self.window.click(f"{FORM} [type=radio]")
            self.window.press(*[DOWN] * "abcdef".index(choice), ENTER)
        else:
            self.window.run(f"document.querySelector('{FORM} input').focus()")
            self.window.press(*figure.split(" ")[0], ENTER)
        self.window.until(self.settled(name))
        self.window.run("document.querySelector('.offer button').click()")
        before = self.window.run("return scrollY")
        self.window.run("document.activeElement.blur()")
        self.window.press("n")
        self.assertGreater(self.window.run("return scrollY"), before)
        self.window.press("b")

    def test_pictures_answer_to_pointer_and_keys(self):
        self.window.click(".offer button")
        self.window.run("document.querySelector('figure.picture').scrollIntoView()")
        self.window.point_at("figure.picture rect[data-words]")
        self.assertTrue(self.window.until("return document.querySelector('.tip:not([hidden])')?.textContent"))
        self.window.run("document.querySelector('figure.picture').focus()")
        self.window.press(RIGHT)
        first = self.window.until("return document.querySelector('.pointed')?.dataset.words")
        self.window.press(RIGHT)
        self.assertNotEqual(self.window.run("return document.querySelector('.pointed').dataset.words"), first)
        self.window.press("\ue00c")
        self.assertFalse(self.window.run("return document.querySelector('.tip').checkVisibility()"))

    def test_what_was_predicted_can_be_handed_in(self):
        name, _, figure = self.question()
        self.give(figure)
        self.window.until(self.settled(name))
        self.window.click(".offer button")
        link = self.window.run("return document.querySelector('.score a').href")
        handed = json.loads(urllib.parse.unquote(link.partition(",")[2]))
        run, = handed["runs"].values()
        asked = self.window.run("return document.querySelectorAll('form.question').length")
        self.assertEqual(handed["lesson"], "gradient-accumulation")
        self.assertEqual(len(run["predictions"]), asked)
        self.assertEqual(run["score"], {"right": 1, "right later": 0, "wrong": 0, "passed": asked - 1})
        self.assertEqual(run["predictions"][name.removeprefix("predict-")]["outcome"], "right")
        self.assertRegex(run["record"], "^[0-9a-f]{64}$")
        self.open_index()

    def test_chinese_sentences_have_no_space_between(self):
        self.page = "zh/" + Lesson.page
        self.open()
        self.window.click(".offer button")
        self.page = "zh/index.html"
        self.open()
        facts = self.texts(".syllabus [data-lesson] .facts")
        self.page = Lesson.page
        self.assertIn("已完成。", facts[0])
        for fact in facts:
            self.assertNotIn("。 ", fact)

    def open_index(self):
        self.page = "index.html"
        self.open()
        self.page = Lesson.page
        self.assertIn("Done.", self.text(".syllabus [data-lesson] .facts"))

    def test_every_question_of_every_lesson_takes_its_answer(self):
        for page in LESSONS:
            self.page = page
            self.open()
            while question := self.question():
                with self.subTest(page=page, question=question):
                    self.give(str(question[1] or question[2]))
                    self.window.until(self.settled(question[0]))
                    self.assertIn(self.text(f"[id='{question[0]}'] + .outcome .good"), ["Right:", "正确："])
        self.page = Lesson.page

    def test_first_paint_comes_soon(self):
        """Prints times without checking them, because the test must not fail on a busy machine."""
        for page in LESSONS:
            self.page = page
            self.open()
            paint = self.window.until(
                "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
            print(f"{page}: {os.path.getsize(os.path.join(BOOK, page)):,} bytes, first paint after {paint:.0f} ms")
        self.page = Lesson.page


if __name__ == "__main__":
    laboratory.main()
