"""The rules for grade files, as data: those of Gradescope, PrairieLearn, readers of JUnit XML and
our README. check(format, bytes) raises Refused if a file breaks a rule."""
import json
import re
import xml.etree.ElementTree as ElementTree

TEXT, INTEGER, NUMBER, BOOLEAN, ANYTHING = 'text', 'integer', 'number', 'boolean', 'anything'
REQUIRED, OPTIONAL = True, False


class Refused(Exception):
    pass


def or_null(kind):
    return ('or null', kind)


def or_list(kind):
    return ('or list', kind)


# https://gradescope-autograders.readthedocs.io/en/latest/specs/, "Output format"
VISIBILITY = {'hidden', 'after_due_date', 'after_published', 'visible'}
STRING_FORMAT = {'text', 'html', 'simple_format', 'md', 'ansi'}
GRADESCOPE = {
    'score': (OPTIONAL, NUMBER),
    'execution_time': (OPTIONAL, NUMBER),
    'output': (OPTIONAL, TEXT),
    'output_format': (OPTIONAL, STRING_FORMAT),
    'test_output_format': (OPTIONAL, STRING_FORMAT),
    'test_name_format': (OPTIONAL, STRING_FORMAT),
    'visibility': (OPTIONAL, VISIBILITY),
    'stdout_visibility': (OPTIONAL, VISIBILITY),
    'extra_data': (OPTIONAL, ANYTHING),
    'tests': (OPTIONAL, [{
        'score': (OPTIONAL, NUMBER),
        'max_score': (OPTIONAL, NUMBER),
        'status': (OPTIONAL, {'passed', 'failed'}),
        'name': (OPTIONAL, TEXT),
        'name_format': (OPTIONAL, STRING_FORMAT),
        'number': (OPTIONAL, TEXT),
        'output': (OPTIONAL, TEXT),
        'output_format': (OPTIONAL, STRING_FORMAT),
        'tags': (OPTIONAL, [TEXT]),
        'visibility': (OPTIONAL, VISIBILITY),
        'extra_data': (OPTIONAL, ANYTHING),
    }]),
    'leaderboard': (OPTIONAL, [{
        'name': (REQUIRED, TEXT),
        'value': (REQUIRED, ANYTHING),
        'order': (OPTIONAL, {'asc', 'desc'}),
    }]),
}

# https://docs.prairielearn.com/externalGrading/, "Grading results"
PRAIRIELEARN_BYTES = 1_000_000  # "this file should be limited to 1 MB"
PRAIRIELEARN_IMAGES = (OPTIONAL, [{'label': (OPTIONAL, TEXT), 'url': (REQUIRED, TEXT)}])
PRAIRIELEARN = {
    'gradable': (OPTIONAL, BOOLEAN),
    'score': (OPTIONAL, NUMBER),
    'format_errors': (OPTIONAL, or_list(TEXT)),
    'message': (OPTIONAL, TEXT),
    'output': (OPTIONAL, TEXT),
    'images': PRAIRIELEARN_IMAGES,
    'tests': (OPTIONAL, [{
        'name': (OPTIONAL, TEXT),
        'description': (OPTIONAL, TEXT),
        'points': (REQUIRED, NUMBER),
        'max_points': (REQUIRED, NUMBER),
        'message': (OPTIONAL, TEXT),
        'output': (OPTIONAL, TEXT),
        'images': PRAIRIELEARN_IMAGES,
    }]),
}

# lessons/grader/report/grade_formats.hpp
OWN = {
    'assignment': (REQUIRED, TEXT),
    'title': (REQUIRED, TEXT),
    'lockstep': (REQUIRED, TEXT),
    'finished': (REQUIRED, BOOLEAN),
    'stopped': (REQUIRED, or_null(TEXT)),
    'built': (REQUIRED, BOOLEAN),
    'build_failure': (REQUIRED, or_null({
        'file': (REQUIRED, or_null(TEXT)),
        'line': (REQUIRED, or_null(INTEGER)),
        'message': (REQUIRED, TEXT),
        'lines': (REQUIRED, or_null(TEXT)),
    })),
    'earned': (REQUIRED, INTEGER),
    'points': (REQUIRED, INTEGER),
    'seconds': (REQUIRED, NUMBER),
    'criteria': (REQUIRED, [{
        'id': (REQUIRED, TEXT),
        'title': (REQUIRED, TEXT),
        'mark': (REQUIRED, {'not_judged', 'not_written', 'failed', 'passed'}),
        'earned': (REQUIRED, INTEGER),
        'points': (REQUIRED, INTEGER),
        'asked': (REQUIRED, or_null(TEXT)),
        'measured': (REQUIRED, or_null(TEXT)),
        'said': (REQUIRED, or_null(TEXT)),
        'lesson': (REQUIRED, or_null(TEXT)),
        'lesson_step': (REQUIRED, or_null(INTEGER)),
    }]),
    'first': (REQUIRED, or_null(TEXT)),
    'drawn': (REQUIRED, TEXT),
    'remarks': (REQUIRED, [TEXT]),
    'confinement': (REQUIRED, {name: (OPTIONAL, BOOLEAN)
                               for name in ['seccomp', 'landlock', 'namespaces', 'user']}),
}

# https://github.com/jenkinsci/xunit-plugin/blob/master/src/main/resources/org/jenkinsci/
# plugins/xunit/types/model/xsd/junit-10.xsd, with which pytest tests its reports. Maps each element
# to its attributes and inner elements. In the schema counts may be any text. Here they must be
# numbers.
COUNT = re.compile(r'[0-9]+')
SECONDS = re.compile(r'(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]*)?')
WORDS = re.compile(r'.*', re.DOTALL)
SAID = ({'type': (OPTIONAL, WORDS), 'message': (OPTIONAL, WORDS)}, set())
JUNIT = {
    'testsuites': ({'name': (OPTIONAL, WORDS), 'time': (OPTIONAL, SECONDS),
                    'tests': (OPTIONAL, COUNT), 'failures': (OPTIONAL, COUNT),
                    'errors': (OPTIONAL, COUNT)},
                   {'testsuite'}),
    'testsuite': ({'name': (REQUIRED, WORDS), 'tests': (REQUIRED, COUNT),
                   'failures': (REQUIRED, COUNT), 'errors': (REQUIRED, COUNT),
                   'skipped': (OPTIONAL, COUNT), 'time': (OPTIONAL, SECONDS),
                   'timestamp': (OPTIONAL, WORDS), 'hostname': (OPTIONAL, WORDS)},
                  {'properties', 'testcase', 'system-out', 'system-err'}),
    'properties': ({}, {'property'}),
    'property': ({'name': (REQUIRED, WORDS), 'value': (REQUIRED, WORDS)}, set()),
    'testcase': ({'name': (REQUIRED, WORDS), 'classname': (OPTIONAL, WORDS),
                  'time': (OPTIONAL, SECONDS)},
                 {'skipped', 'error', 'failure', 'system-out', 'system-err'}),
    'skipped': SAID,
    'error': SAID,
    'failure': SAID,
    'system-out': ({}, set()),
    'system-err': ({}, set()),
}
WITH_TEXT = {'skipped', 'error', 'failure', 'system-out', 'system-err'}


def demand(holds, what):
    if not holds:
        raise Refused(what)


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_plain(text, where):
    """Refuses control characters: PostgreSQL's jsonb cannot store NUL, and terminals obey the other
    ones."""
    found = re.search('[\x00-\x09\x0b-\x1f\x7f-\x9f]', text)
    demand(not found, f'{where}: a control character')


def check_value(value, kind, where):
    if isinstance(kind, tuple):
        other, kind = kind
        if other == 'or list' and isinstance(value, list):
            check_value(value, [kind], where)
        elif other == 'or list' or value is not None:
            check_value(value, kind, where)
    elif isinstance(kind, dict):
        check_object(value, kind, where)
    elif isinstance(kind, list):
        demand(isinstance(value, list), f'{where}: not a list')
        for number, item in enumerate(value):
            check_value(item, kind[0], f'{where}[{number}]')
    elif isinstance(kind, set):
        demand(isinstance(value, str) and value in kind, f'{where}: {value!r} is no such word')
    elif kind == TEXT:
        demand(isinstance(value, str), f'{where}: not a text')
        check_plain(value, where)
    elif kind == INTEGER:
        demand(isinstance(value, int) and not isinstance(value, bool), f'{where}: not an integer')
    elif kind == NUMBER:
        demand(is_number(value), f'{where}: not a number')
        demand(value >= 0, f'{where}: below zero')
    elif kind == BOOLEAN:
        demand(isinstance(value, bool), f'{where}: not a boolean')


def check_object(value, fields, where):
    demand(isinstance(value, dict), f'{where}: not an object')
    for name in value:
        demand(name in fields, f'{where}: unknown field {name}')
    for name, (required, kind) in fields.items():
        if name in value:
            check_value(value[name], kind, f'{where}.{name}')
        else:
            demand(not required, f'{where}: no field {name}')


def read_json(data):
    def once(pairs):
        demand(len({name for name, _ in pairs}) == len(pairs), 'a field stands twice')
        return dict(pairs)

    def no_constant(word):
        raise Refused(f'{word} is no JSON')

    try:
        return json.loads(data.decode('utf-8'), object_pairs_hook=once,
                          parse_constant=no_constant)
    except ValueError as error:
        raise Refused(str(error)) from error


def check_own(data):
    report = read_json(data)
    check_object(report, OWN, 'report')
    criteria = report['criteria']
    for one in criteria:
        demand(0 <= one['earned'] <= one['points'], 'a criterion earned more than its points')
        demand(one['earned'] == (one['points'] if one['mark'] == 'passed' else 0),
               'earned is not what the mark says')
    for sum_name in ('earned', 'points'):
        demand(report[sum_name] == sum(one[sum_name] for one in criteria),
               f'{sum_name} is not the sum')
    demand(report['built'] == (report['build_failure'] is None), 'built or not?')
    demand(report['built'] or report['earned'] == 0, 'points without a program')


def check_gradescope(data):
    results = read_json(data)
    check_object(results, GRADESCOPE, 'results')
    tests = results.get('tests', [])
    scored = bool(tests) and all('score' in test for test in tests)
    demand('score' in results or scored, 'neither a score nor tests with scores')
    for test in tests:
        demand(test.get('score', 0) <= test.get('max_score', float('inf')),
               'score above max_score')
        full = test.get('score') == test.get('max_score')
        demand(test.get('status') != 'passed' or full, 'passed without all its points')
    if 'score' in results and scored:  # the total overrides the sum
        demand(results['score'] == sum(test['score'] for test in tests),
               'the score is not the sum')


def check_prairielearn(data):
    demand(len(data) <= PRAIRIELEARN_BYTES, 'more than 1 MB')
    results = read_json(data)
    check_object(results, PRAIRIELEARN, 'results')
    gradable = results.get('gradable', True)
    if gradable:
        demand('score' in results, 'gradable, and no score')
        demand('format_errors' not in results, 'gradable, and format_errors')
    else:
        demand(results.get('score', 0) == 0, 'not gradable, and a score')
    demand(0 <= results.get('score', 0) <= 1, 'the score is not within [0, 1]')
    tests = results.get('tests', [])
    for test in tests:
        demand(test['points'] <= test['max_points'], 'points above max_points')
    most = sum(test['max_points'] for test in tests)
    if gradable and most:
        share = sum(test['points'] for test in tests) / most
        demand(abs(share - results['score']) < 1e-12, 'the score is not that of the tests')


def check_element(element):
    demand(element.tag in JUNIT, f'unknown element {element.tag}')
    attributes, children = JUNIT[element.tag]
    for name in element.attrib:
        demand(name in attributes, f'{element.tag}: unknown attribute {name}')
    for name, (required, pattern) in attributes.items():
        value = element.get(name)
        demand(value is not None or not required, f'{element.tag}: no attribute {name}')
        demand(value is None or pattern.fullmatch(value), f'{element.tag}: {name}={value!r}')
        check_plain(value or '', element.tag)
    text = (element.text or '') + ''.join(child.tail or '' for child in element)
    demand(element.tag in WITH_TEXT or not text.strip(), f'{element.tag}: text')
    check_plain(text, element.tag)
    for child in element:
        demand(child.tag in children, f'{child.tag} in {element.tag}')
        check_element(child)


def check_counts(element):
    """Checks the counts of one suite or of all suites."""
    cases = list(element.iter('testcase'))
    counted = {'tests': len(cases)}
    for name, tag in (('failures', 'failure'), ('errors', 'error'), ('skipped', 'skipped')):
        counted[name] = sum(case.find(tag) is not None for case in cases)
    for name, count in counted.items():
        demand(int(element.get(name, count)) == count, f'{element.tag}: {name} is not {count}')


def check_junit(data):
    demand(data.startswith(b'<?xml version="1.0" encoding="UTF-8"?>'), 'no XML declaration')
    try:
        root = ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError) as error:
        raise Refused(str(error)) from error
    demand(root.tag == 'testsuites', f'the root is {root.tag}')
    check_element(root)
    check_counts(root)
    for suite in root:
        check_counts(suite)
        names = [(case.get('classname'), case.get('name')) for case in suite.iter('testcase')]
        # GitLab: "If you have duplicate test names, only the first test is used"
        demand(len(set(names)) == len(names), 'two tests of one name')


def check_text(data):
    try:
        text = data.decode('utf-8')
    except ValueError as error:
        raise Refused(str(error)) from error
    check_plain(text, 'text')


CHECKS = {'text': check_text, 'json': check_own, 'gradescope': check_gradescope,
          'prairielearn': check_prairielearn, 'junit': check_junit}


def check(format_name, data):
    CHECKS[format_name](data)
