"""Checks every sample report, in every format, against the formats' rules. Also tests that the
check refuses wrong files. Usage: grade_formats_test.py PRINT_GRADES"""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from grade_formats import CHECKS, Refused, check

GRADES = {}


def of_json(name, change):
    """Returns the sample, changed, as JSON."""
    document = json.loads(GRADES[name])
    change(document)
    return json.dumps(document, ensure_ascii=False).encode()


class SamplesTest(unittest.TestCase):
    def test_every_sample_is_there_in_every_format(self):
        samples = {name.rpartition('.')[0] for name in GRADES}
        self.assertGreaterEqual(len(samples), 11)
        self.assertEqual(set(GRADES), {f'{sample}.{format_name}' for sample in samples
                                       for format_name in CHECKS})

    def test_every_sample_is_valid(self):
        for name, data in GRADES.items():
            if name == 'stopped.gradescope':
                continue  # must not be valid as a grade
            with self.subTest(name):
                check(name.rpartition('.')[2], data)

    def test_what_the_machine_stopped_is_no_grade_anywhere(self):
        with self.assertRaisesRegex(Refused, 'neither a score nor tests'):
            check('gradescope', GRADES['stopped.gradescope'])
        self.assertFalse(json.loads(GRADES['stopped.prairielearn'])['gradable'])
        self.assertIn('errors="1"', GRADES['stopped.junit'].decode())
        self.assertIn('This is not a grade.', GRADES['stopped.text'].decode())
        self.assertNotIn(' points, in', GRADES['stopped.text'].decode())
        self.assertIn('cannot make a process', json.loads(GRADES['stopped.json'])['stopped'])

    def test_what_a_program_said_is_kept_as_far_as_it_can_be(self):
        for format_name in CHECKS:
            with self.subTest(format_name):
                text = GRADES[f'hostile.{format_name}'].decode()
                self.assertIn('owned', text)
                self.assertIn('学😀', text)

    def test_the_formats_agree_on_the_points(self):
        own = json.loads(GRADES['finished.json'])
        self.assertEqual((own['earned'], own['points']), (9, 13))
        self.assertEqual(json.loads(GRADES['finished.gradescope'])['score'], 9)
        self.assertAlmostEqual(json.loads(GRADES['finished.prairielearn'])['score'], 9 / 13)


class SelfCheckTest(unittest.TestCase):
    """Each document has a mistake in one place."""

    def refuses(self, format_name, data, why):
        with self.assertRaisesRegex(Refused, why):
            check(format_name, data)

    def refuses_change(self, name, why, change):
        self.refuses(name.rpartition('.')[2], of_json(name, change), why)

    def test_the_samples_survive_being_written_again(self):
        for name in ('finished.json', 'finished.gradescope', 'finished.prairielearn'):
            check(name.rpartition('.')[2], of_json(name, lambda document: None))

    def test_own(self):
        name = 'finished.json'
        self.refuses_change(name, 'no field earned', lambda d: d.pop('earned'))
        self.refuses_change(name, 'unknown field grade', lambda d: d.update(grade=1))
        self.refuses_change(name, 'no such word',
                            lambda d: d['criteria'][0].update(mark='Passed'))
        self.refuses_change(name, 'more than its points',
                            lambda d: d['criteria'][0].update(earned=99))
        self.refuses_change(name, 'not what the mark says',
                            lambda d: d['criteria'][1].update(earned=1))
        self.refuses_change(name, 'not the sum', lambda d: d.update(earned=13))
        self.refuses_change(name, 'not an integer', lambda d: d.update(points=13.0))
        self.refuses_change(name, 'control character', lambda d: d.update(title='\x1b[2J'))
        self.refuses_change(name, 'built or not', lambda d: d.update(built=False))

    def test_gradescope(self):
        name = 'finished.gradescope'
        self.refuses_change(name, 'above max_score',
                            lambda d: d['tests'][0].update(score=5))
        self.refuses_change(name, 'no such word',
                            lambda d: d['tests'][0].update(status='pass'))
        self.refuses_change(name, 'no such word', lambda d: d.update(visibility='all'))
        self.refuses_change(name, 'passed without',
                            lambda d: d['tests'][1].update(status='passed'))
        self.refuses_change(name, 'not the sum', lambda d: d.update(score=13))
        self.refuses_change(name, 'unknown field points', lambda d: d.update(points=13))
        self.refuses_change(name, 'neither a score',
                            lambda d: (d.pop('score'), d.update(tests=[])))
        self.refuses_change(name, 'not a number', lambda d: d.update(score='9'))
        self.refuses_change(name, 'not a number',
                            lambda d: d['tests'][0].update(score=True))

    def test_prairielearn(self):
        name = 'finished.prairielearn'
        self.refuses_change(name, 'no score', lambda d: d.pop('score'))
        self.refuses_change(name, r'within \[0, 1\]',
                            lambda d: (d.update(score=1.5), d.pop('tests')))
        self.refuses_change(name, 'not that of the tests', lambda d: d.update(score=1.0))
        self.refuses_change(name, 'above max_points',
                            lambda d: d['tests'][1].update(points=4))
        self.refuses_change(name, 'no field points', lambda d: d['tests'][1].pop('points'))
        self.refuses_change(name, 'more than 1 MB', lambda d: d.update(output='a' * 1_000_000))
        self.refuses_change('failed-build.prairielearn', 'and a score',
                            lambda d: d.update(score=0.5))
        self.refuses_change('failed-build.prairielearn', 'not a text',
                            lambda d: d.update(format_errors=7))
        self.refuses_change('failed-build.prairielearn', 'not a text',
                            lambda d: d.update(format_errors=[None]))

    def test_json_that_is_none(self):
        self.refuses('json', b'{"earned": NaN}', 'NaN')
        self.refuses('json', b'{"title": "\xff"}', 'utf-8')
        self.refuses('json', b'{"title": "a", "title": "b"}', 'twice')
        self.refuses('json', GRADES['finished.json'][:-10], '.')
        self.refuses('gradescope', b'[]', 'not an object')

    def test_junit(self):
        def refuses_instead(old, new, why):
            good = GRADES['finished.junit']
            self.assertIn(old, good)
            self.refuses('junit', good.replace(old, new, 1), why)

        refuses_instead(b'<system-out>', b'<system-out>a < b', 'not well-formed')
        refuses_instead(b'<system-out>', b'<system-out>a && b', 'not well-formed')
        refuses_instead(b'<system-out>', b'<system-out>\xff', 'not well-formed')
        refuses_instead(b'<system-out>', b'<system-out>\x1b', 'not well-formed')
        refuses_instead(b'<system-out>', b'<system-out>\xef\xbf\xbf', 'not well-formed')
        refuses_instead(b'<system-out>', b'<system-out>&#27;', '.')
        refuses_instead(b' failures="2"', b' failures="1"', 'failures is not 2')
        refuses_instead(b' tests="4"', b' tests="5"', 'tests is not 4')
        refuses_instead(b' skipped="0"', b' skipped="no"', 'skipped=')
        refuses_instead(b'time="12.346"', b'time="1e1"', 'time=')
        refuses_instead(b'<testsuite name="ring-all-reduce"', b'<testsuite',
                        'no attribute name')
        refuses_instead(b'<failure type', b'<failure kind', 'unknown attribute kind')
        refuses_instead(b'<properties>', b'<properties>4', 'text')
        refuses_instead(b'a1.3: Ranks that hold nothing take part',
                        b'a1.1: reduce_scatter leaves each rank the sum of its chunk',
                        'of one name')

    def test_text(self):
        self.refuses('text', b'passed \x1b[32m', 'control')
        self.refuses('text', b'a\rb', 'control')
        self.refuses('text', b'\xc2\x9b31m', 'control')
        self.refuses('text', b'\xff', 'utf-8')


def main():
    program = sys.argv.pop(1)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, folder], check=True)
        for path in Path(folder).iterdir():
            GRADES[path.name] = path.read_bytes()
    unittest.main()


if __name__ == '__main__':
    main()
