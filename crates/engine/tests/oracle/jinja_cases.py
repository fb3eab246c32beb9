"""Templates for `jinja.py`, by what they are about. Each is rendered with the variables of INPUT."""

INPUT = {
    "messages": [
        {"role": "system", "content": "Be \"kind\" <b> & brief."},
        {"role": "user", "content": " Hi é 1 \n"},
        {"role": "assistant", "content": "It's 猫.", "tool_calls": [
            {"type": "function", "function": {"name": "look", "arguments": {"q": "cat", "n": 3, "deep": {"z": [1, None, True], "a": 1.5}}}}]},
        {"role": "tool", "content": "{\"ok\": true}", "name": "look"},
        {"role": "user", "content": "Thanks"},
    ],
    "tools": None,
    "documents": None,
    "add_generation_prompt": True,
    "bos_token": "<s>",
    "eos_token": "</s>",
    "people": [{"name": "Zoe", "age": 31, "city": {"n": "Rome"}}, {"name": "adam", "age": 5, "city": {"n": "Bern"}},
               {"name": "Bo", "age": 31, "city": {"n": "rome"}}, {"name": "Cy", "age": 7}],
    "mapping": {"b": 2, "a": 1, "keys": "mine", "C": None},
    "numbers": [3, 1, 2.5, -4, 10, 0],
    "words": ["pear", "Apple", "fig", "apple", "Date"],
    "text": "The quick  brown\tfox\njumps over\n\n the lazy dog.",
    "empty": [],
    "nothing": None,
    "yes": True,
    "big": 12345678901234567,
    "deep": {"list": [[1, [2, [3]]], {"k": {"k": [None]}}]},
}

CASES = {}

CASES["values as text"] = r"""
{{ true }} {{ false }} {{ none }} {{ True }} {{ False }} {{ None }}
{{ 1 }} {{ -1 }} {{ 0 }} {{ 1.0 }} {{ 1.5 }} {{ -0.0 }} {{ 3/2 }} {{ 4/2 }}
{{ 1e20 }} {{ 1e15 }} {{ 1e16 }} {{ 123456789012345680.0 }} {{ 1e-7 }} {{ 1e-4 }} {{ 0.0001 }} {{ 0.00001 }} {{ 0.1 + 0.2 }} {{ 1e300 * 10 }}
{{ 10**20 }} {{ 100000000000000000000 }} {{ 2**63 }} {{ 2**64 + 1 }} {{ -2**63 }} {{ 9223372036854775807 + 1 }}
{{ 1_000 }} {{ 0x1f }} {{ 0b101 }} {{ 0o17 }} {{ 1_0.5_0 }} {{ 1e3 }} {{ 1E-2 }}
{{ [1, 'a', none, true, 1.0] }} {{ (1, 'a') }} {{ (1,) }} {{ () }} {{ [] }} {{ {} }}
{{ {'b': 1, 'a': [none, {'c': 2.0}]} }}
{{ ["it's", 'say "x"', 'both \' and "', 'a\nb\t\\', 'é猫', '\x00\x7f\u200b'] }}
{{ mapping }} {{ people }}
{{ messages }}
{{ nothing }} {{ missing }} {{ [missing] }}
{{ range(3) }} {{ range(1, 5) }} {{ range(1, 9, 2) }}
{{ mapping.items() }} {{ mapping.keys() }}
{{ mapping.values() }} {{ {'keys': 1}.keys() }}
{{ {1: 'a', 1.0: 'b', true: 'c'} }} {{ {0: 'a', false: 'b'} }} {{ {(1, 2): 3}[(1, 2)] }}
{{ {'a': 1, 'a': 2} }} {{ {none: 1}[none] }} {{ {1.5: 2} }}
{{ {[1]: 2} }}
{{ big }} {{ big * 10 }} {{ big / 1 }}
{{ namespace(a=1, b='x') }}
{{ 'a' 'b' "c" }} {{ '\u00e9\x41\101' }} {{ 'caf\N' if false }}
{{ '\q' }}{{ "\\" }}
{{ 5 | string }}{{ 1.0 | string }}{{ none | string }}{{ true | string }}{{ [1] | string }}
{{ 'x' ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'a'] ~ missing }}
{{ 1e400 }} {{ -1e400 }} {{ 1e400 - 1e400 }}
"""

CASES["arithmetic"] = r"""
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 // -2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}
{{ 2 ** 3 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ (-2) ** 2 }} {{ -2 ** -2 }}
{{ 1 + 2 * 3 - 4 / 2 }} {{ (1 + 2) * 3 }} {{ 10 - 2 - 3 }} {{ 2 * 3 % 4 }}
{{ +1 }} {{ +(-3) }} {{ +1.5 }} {{ +true }} {{ -true }} {{ - -2 }} {{ -'1' }}
{{ +'1' }}
{{ true + 1 }} {{ true * 3 }} {{ false - 1 }} {{ true / 2 }}
{{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ 'ab' * 0 }} {{ 'ab' * -1 }} {{ [1, 2] * 2 }} {{ (1,) * 3 }} {{ 'a' * true }}
{{ [1] + [2] }} {{ (1,) + (2, 3) }} {{ 'a' + 'b' }}
{{ [1] + (2,) }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ none + 1 }}
{{ missing + 1 }}
{{ 'a' + missing }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1.0 / 0 }}
{{ 1 ~ 2 + 3 }} {{ 1 + 2 ~ 3 }} {{ 1 ~ 2 * 3 }}
{{ 1 - 1.0 }} {{ 3 * 1.5 }} {{ 2.0 ** 2 }} {{ 5 // 2.0 }} {{ 5 % 2.5 }}
{{ {'a': 1} + {'b': 2} }}
{{ 'a' - 'b' }}
{{ -1 | abs }} {{ (-1) | abs }} {{ -1.5 | abs }} {{ -5 % 3 }}
{{ 0 ** 0 }} {{ 0.0 ** -1 }}
{{ 4 - -3 }} {{ 4 -3 }} {{ 4-3 }}
{{ 17 / 4 }} {{ 1 / 3 }} {{ 2 / 3 }} {{ 100000000000000000000 / 3 }} {{ 7 / 7 }}
"""

CASES["% on strings"] = r"""
{{ "%s and %d" % ("a", 3) }} {{ '%s' % x }} {{ '%s' % 'one' }} {{ '%s' % [1, 2] }} {{ '%s' % (none,) }}
{{ '%5d|%-5d|%05d|%+d|% d' % (1, 2, 3, 4, 5) }}
{{ '%.2f %e %g %g %G' % (1.005, 12345.678, 1e10, 0.0001, 1e-10) }}
{{ '%5s|%-5s|%.2s|%5.1s' % ('ab', 'ab', 'abc', 'xyz') }}
{{ '%x %X %o %#x %#o' % (255, 255, 8, 255, 8) }}
{{ '%c%c' % (65, 'b') }} {{ '%%' % () }} {{ '100%%' % () }}
{{ '%(a)s-%(b)05.1f' % {'a': 1, 'b': 2.25} }}
{{ '%r %s' % ('a', 'a') }} {{ '%r' % none }}
{{ '%*d|%-*d' % (5, 1, 4, 2) }} {{ '%.*f' % (2, 3.14159) }}
{{ '%d' % 3.9 }} {{ '%i' % true }} {{ '%s' % true }} {{ '%s' % 1.0 }}
{{ '%d' % 'a' }}
{{ '%s %s' % ('a',) }}
{{ '%s' % ('a', 'b') }}
{{ 'a' % 'b' }}
{{ 'a' % [1] }}{{ 'a' % {} }}
{{ '%z' % 1 }}
{{ '%' % 1 }}
{{ '%(a)s' % {'b': 1} }}
{{ '%s' % missing }}|
{{ "%s" | format("a") }} {{ "%s-%d" | format("a", 2) }} {{ "%(x)s" | format(x=3) }} {{ "a" | format }}
{{ "%s" | format("a", x=1) }}
{{ '%05.1f|%+.2f|%-8.2f|%08.3f' % (2.25, 1.5, 2.0, -3.14159) }}
{{ '%.3d|%+.3d|%5.3d' % (5, 5, 5) }}
{{ 'x' ~ '%s' % 1 }} {{ '%s' % 'a' + 'b' }} {{ '%s%s' % ('a', 'b') | upper }}
{{ '%g %g %g %g' % (100000, 1000000, 1.5, 123456789) }}
{{ '%s' % messages[0].role }} {{ ('%s' % messages[0].role) | upper }}
"""

CASES["str.format"] = r"""
{{ '{} {}'.format(1, 'a') }} {{ '{1} {0}'.format(1, 2) }} {{ '{a}{b}'.format(a=1, b=2) }} {{ '{{}}'.format() }}
{{ '{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd') }}
{{ '{:5}|{:5}|{:05}|{:+}|{:,}|{:_}'.format('a', 1, 2, 3, 1234567, 1234567) }}
{{ '{:.2f} {:e} {:g} {:%} {:.1%} {:.3}'.format(1.005, 12345.678, 1e10, 0.25, 0.256, 3.14159) }}
{{ '{:x} {:X} {:b} {:o} {:#x} {:#b} {:c} {:d}'.format(255, 255, 5, 8, 255, 5, 65, 7) }}
{{ '{0[a]} {0.b} {1[0]}'.format({'a': 1, 'b': 2}, [5]) }}
{{ '{!r} {!s}'.format('a', 'b') }} {{ '{!r:>6}'.format('a') }}
{{ '{:{}}'.format('a', 5) }}| {{ '{:{w}.{p}f}'.format(3.14159, w=8, p=2) }}
{{ '{} {}'.format(1) }}
{{ '{x}'.format(1) }}
{{ '{'.format(1) }}
{{ '}'.format(1) }}
{{ '{0} {}'.format(1, 2) }}
{{ '{:d}'.format('a') }}
{{ '{:s}'.format(1) }}
{{ '{:.2}'.format('abc') }} {{ '{:10.3}|'.format('abcdef') }} {{ '{}'.format(none) }} {{ '{}'.format([1, 'a']) }} {{ '{}'.format(true) }} {{ '{:5}|'.format(true) }}
{{ '{:5}'.format(none) }}
{{ '{:.3f}'.format(2) }} {{ '{:5.1f}|'.format(2) }} {{ '{:,.2f}'.format(1234567.891) }} {{ '{:08.2f}'.format(-3.14159) }} {{ '{:=+6}'.format(5) }}
{{ '{a}'.format_map({'a': 1}) }} {{ '{}'.format(missing) }}|
{{ '{0.__class__}'.format(1) }}
{{ '{m[role]}: {m[content]}'.format(m=messages[4]) }}
{{ '{:>{w}}'.format('x', w=3) }} {{ '{:é>4}'.format('x') }}
"""

CASES["undefined"] = r"""
{{ missing }}|{{ missing is defined }}|{{ missing is none }}|{{ missing or 'd' }}|{{ not missing }}
{{ missing.attribute }}
{{ missing['item'] }}
{{ missing[0] }}
{{ missing() }}
{{ missing.method() }}
{{ missing | length }} {{ missing | first }}| {{ missing | last }}| {{ missing | list }} {{ missing | items | list }} {{ missing | join }}|
{% for x in missing %}x{% else %}none{% endfor %}
{{ missing is iterable }} {{ missing is sequence }} {{ missing is string }} {{ missing is mapping }} {{ missing is callable }} {{ missing is number }}
{{ missing == none }} {{ missing == missing }} {{ missing == other }} {{ missing != '' }} {{ missing == '' }}
{{ missing < 1 }}
{{ missing > 1 }}
{{ 'a' in missing }} {{ missing in ['a'] }} {{ missing in [missing] }}
{{ missing in 'abc' }}
{{ messages[9] is defined }} {{ messages[0].tool_calls is defined }} {{ messages[2].tool_calls is defined }} {{ messages[0]['x'] is undefined }}
{{ messages[9].role }}
{{ messages[0].x.y }}
{{ nothing.x }}|{{ nothing.x is defined }}|{{ nothing['x'] is defined }}|{{ 5 .x }}
{{ nothing.x.y }}
{{ missing | default('x') }} {{ missing | default }}| {{ none | default('x') }} {{ none | default('x', true) }} {{ '' | default('y', boolean=true) }} {{ '' | default('y') }}| {{ 0 | d(3, true) }}
{{ missing | upper }}| {{ missing | trim }}| {{ missing | string }}| {{ missing | lower }}|
{{ missing | int }}
{{ missing | float }}
{{ missing | abs }}
{{ missing | tojson }}
{{ -missing }}
{{ missing | sort }} {{ missing | map('upper') | list }} {{ missing | selectattr('x') | list }} {{ missing | unique | list }} {{ missing | sum }} {{ missing | reverse | list }} {{ missing | batch(2) | list }}
{{ missing | max }}| {{ missing | min }}|
{{ 'a' if false }}| {{ ('a' if false) is defined }} {{ ('a' if true) }}
{{ ('a' if false).x }}
{{ missing[1:] }}
{{ (missing, missing) }} {{ missing ~ 'a' }} {{ [missing, 1] | join('-') }}
{{ missing is eq(missing) }} {{ missing is in([1]) }} {{ missing is sameas(missing) if false }}
{{ none | length }}
{{ 5 | length }}
{{ true | length }}
{{ none | first }}
{{ none | list }}
{{ none | join }}
{% for x in none %}{% endfor %}
{% for x in 5 %}{% endfor %}
{{ none | upper }} {{ none | trim }} {{ 5 | upper }} {{ none | string }}
{{ none.items() }}
{{ 'abc'.nope }}| {{ 'abc'.nope is defined }}
{{ 'abc'.nope() }}
{{ [1].append }}|{{ [1].append is defined }}
{{ [1].append(2) }}
{{ [1].extend([2]) }}
{{ {'a': 1}.pop('a') }}
{{ {'a': 1}.update({'b': 2}) }}
{{ {'a': 1}.setdefault('b', 2) }}
{{ [3, 1].sort() }}
{{ [1].pop() }}
{{ ''.__class__ }}| {{ ''.__class__ is defined }} {{ [].__len__ is defined }} {{ x._y if false }}
{{ ''.__class__.__mro__ }}
{{ ''['__class__'] }}|
{{ messages | attr('__class__') }}|
"""

CASES["tests"] = r"""
{{ none is iterable }} {{ 'a' is iterable }} {{ [] is iterable }} {{ {} is iterable }} {{ 1 is iterable }} {{ true is iterable }} {{ range(2) is iterable }} {{ 1.5 is iterable }}
{{ 'a' is sequence }} {{ [] is sequence }} {{ {} is sequence }} {{ () is sequence }} {{ 1 is sequence }} {{ none is sequence }} {{ range(2) is sequence }} {{ (words | map('upper')) is sequence }} {{ mapping.items() is sequence }}
{{ 'a' is mapping }} {{ {} is mapping }} {{ [] is mapping }} {{ none is mapping }} {{ namespace() is mapping }} {{ mapping.items() is mapping }}
{{ 'a' is string }} {{ 1 is string }} {{ none is string }} {{ [] is string }}
{{ 1 is number }} {{ 1.5 is number }} {{ true is number }} {{ '1' is number }} {{ none is number }}
{{ 1 is integer }} {{ 1.0 is integer }} {{ true is integer }} {{ 1 is float }} {{ 1.0 is float }} {{ true is boolean }} {{ 1 is boolean }} {{ none is boolean }}
{{ true is true }} {{ 1 is true }} {{ false is false }} {{ 0 is false }} {{ none is false }} {{ none is none }} {{ 0 is none }}
{{ range is callable }} {{ 'a' is callable }} {{ 'a'.upper is callable }} {{ none is callable }} {{ joiner() is callable }} {{ namespace is callable }} {{ cycler('a') is callable }} {{ raise_exception is callable }} {{ strftime_now is defined }}
{{ 3 is odd }} {{ 3 is even }} {{ 4 is divisibleby 2 }} {{ 4 is divisibleby(3) }} {{ 4 is not divisibleby 3 }} {{ 0 is even }} {{ -1 is odd }}
{{ 'a' is eq 'a' }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 2 is gt 1 }} {{ 1 is le 1 }} {{ 1 is ge 2 }} {{ 1 is equalto 1 }} {{ 1 is lessthan 2 }} {{ 1 is greaterthan 2 }} {{ 1 is eq(true) }}
{{ 'a' is in 'abc' }} {{ 'a' is in ['a'] }} {{ 1 is in [1] }} {{ 'x' is not in ['a'] }} {{ 'b' is in mapping }}
{{ none is sameas none }} {{ true is sameas true }} {{ 1 is sameas true }} {{ nothing is sameas none }}
{{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'aBc' is lower }} {{ '123' is lower }} {{ '' is upper }}
{{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ 'nope' is test }} {{ 'tojson' is filter }} {{ 'urlize' is filter }}
{{ mapping.keys is defined }} {{ mapping['keys'] }} {{ mapping.items is defined }} {{ mapping.nope is defined }} {{ 'a'.strip is defined }} {{ mapping.get is callable }}
{{ 'a' is nope }}
{{ 'a' is escaped }} {{ 1 is undefined }} {{ nothing is defined }}
{{ not 1 is odd }} {{ 1 is odd and 2 is even }} {{ 1 is not odd or true }} {{ 3 is odd | string }}
{{ 'a' is odd }}
{{ 1 is defined is true }}
{{ tools is iterable and tools | length > 0 }} {{ tools is not none and tools is iterable }}
{{ 2 is in [1, 2] and 'yes' }} {{ [1] is eq [1] }} {{ {} is eq {} }}
{{ (1 is odd) == true }} {{ 1.0 is eq 1 }} {{ 'abc' is string and 'abc' | length == 3 }}
"""

CASES["comparison"] = r"""
{{ 1 == 1.0 }} {{ 1 == true }} {{ 0 == false }} {{ '1' == 1 }} {{ none == false }} {{ [1] == [1.0] }} {{ [1] == (1,) }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1 != 2 }} {{ 3 > 2 >= 2 }} {{ 1 < 2 == 2 }}
{{ 'a' < 'b' }} {{ 'Z' < 'a' }} {{ 'abc' < 'abd' }} {{ 'é' > 'z' }} {{ '' < 'a' }} {{ '10' < '9' }}
{{ [1, 2] < [1, 3] }} {{ (1,) < (1, 2) }} {{ [1, 2] >= [1] }} {{ true < 2 }}
{{ 'a' < 1 }}
{{ none < 1 }}
{{ [1] < 'a' }}
{{ {} < {} }}
{{ 'a' in 'abc' }} {{ 'x' not in ['x'] }} {{ 1 in [true] }} {{ 'b' in mapping }} {{ 2 in mapping.values() }} {{ ('b', 2) in mapping.items() }} {{ 2 in range(3) }} {{ '' in 'a' }} {{ none in [none] }}
{{ 1 in 'abc' }}
{{ 1 in 5 }}
{{ [1] in mapping }}
{{ not true }} {{ not [] }} {{ not '' }} {{ not 0.0 }} {{ not {} }} {{ not ' ' }} {{ not not 1 }} {{ not 1 == 2 }} {{ not 'a' in 'b' }}
{{ 1 and 2 }} {{ 0 and 2 }} {{ 0 or 'x' }} {{ '' or none or [] }} {{ 1 or missing.x }} {{ none and missing.x }} {{ 1 and 0 or 5 }} {{ not 0 and 3 }}
{{ 'yes' if messages else 'no' }} {{ 'yes' if empty else 'no' }} {{ 1 if true else 2 if false else 3 }} {{ 1 if false else 2 if false else 3 }} {{ (1 if none) or 'z' }}
{{ range(3) == range(3) }} {{ 'a' == none }} {{ none == none }} {{ [none] == [none] }} {{ 1 in (1, 2) }} {{ 1.0 in [1] }}
{{ {'a': 1}.keys() == {'a': 2}.keys() }} {{ 'a' in {'a': 1}.keys() }}
{{ 1e400 > 1 }} {{ 2**70 > 1e20 }} {{ 0.1 + 0.2 == 0.3 }} {{ 1 != 1 }}
"""

CASES["string methods"] = r"""
{{ 'aXbXc'.split('X') }} {{ 'aXbXc'.split('X', 1) }} {{ 'aXbXc'.split('X', maxsplit=1) }} {{ 'aXbXc'.rsplit('X', 1) }} {{ ' a  b '.split() }} {{ ' a  b c '.split(none, 1) }} {{ ' a  b c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split('x') }} {{ 'a,b,'.split(',') }} {{ 'abc'.split('') if false }}
{{ 'abc'.split('') }}
{{ 'a b'.split(' ')[0] }} {{ 'x</think>y'.split('</think>')[-1].lstrip('\n') }} {{ 'a\n\nb'.rstrip('\n').split('\n') }}
{{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('-') }} {{ 'abc'.rpartition('-') }}
{{ 'abcabc'.index('c') }} {{ 'abcabc'.rindex('c') }} {{ 'abcabc'.find('x') }} {{ 'abcabc'.rfind('b') }} {{ 'abcabc'.find('c', 3) }} {{ 'abcabc'.find('c', 3, 5) }} {{ 'é猫a'.find('a') }} {{ 'abc'.find('') }} {{ 'abc'.count('') }} {{ 'aaa'.count('aa') }} {{ 'abcabc'.count('b', 2) }} {{ 'abc'.find('c', -1) }}
{{ 'abc'.index('x') }}
{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }} {{ 'abc'.removeprefix('x') }} {{ 'abc'.removesuffix('') }}
{{ '42'.zfill(5) }} {{ '-42'.zfill(5) }} {{ '+1'.zfill(4) }} {{ 'abc'.zfill(2) }} {{ ''.zfill(2) }}
{{ 'ab'.center(5) }}| {{ 'ab'.center(6, '*') }} {{ 'abc'.center(6, '*') }} {{ 'a'.center(4, '*') }} {{ 'ab'.ljust(4) }}| {{ 'ab'.rjust(4, '.') }} {{ 'ab'.ljust(1) }} {{ 'é'.rjust(3, '猫') }}
{{ 'ab'.center(5, 'xx') }}
{{ '  a '.strip() }}| {{ ' a '.lstrip() }}| {{ ' a '.rstrip() }}| {{ 'xxaxx'.strip('x') }} {{ 'xyaxy'.strip('yx') }} {{ 'xxaxx'.lstrip('x') }} {{ 'aab'.rstrip('b') }} {{ '\u00a0a\u3000'.strip() }} {{ 'a'.strip(none) }} {{ 'aba'.strip('') }}
{{ 'hello wORLD it\'s'.title() }} {{ 'hello wORLD'.capitalize() }} {{ 'Hello'.swapcase() }} {{ 'HeLLo'.lower() }} {{ 'straße'.upper() }} {{ 'ÉCOLE'.lower() }} {{ 'ß'.casefold() }} {{ ''.capitalize() }} {{ '1st a2b'.title() }}
{{ 'abc'.isalpha() }} {{ 'a1'.isalnum() }} {{ '12'.isdigit() }} {{ '1.2'.isdigit() }} {{ ''.isdigit() }} {{ '²'.isdigit() }} {{ '²'.isdecimal() }} {{ '½'.isnumeric() }} {{ 'abc'.islower() }} {{ 'ABC'.isupper() }} {{ ' \t'.isspace() }} {{ ''.isspace() }} {{ 'Hello World'.istitle() }} {{ 'a_1'.isidentifier() }} {{ '1a'.isidentifier() }} {{ 'é'.isascii() }} {{ 'a\n'.isprintable() }} {{ 'é'.isalpha() }}
{{ 'abc'.startswith('a') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.endswith(('b', 'c')) }} {{ 'abc'.startswith('b', 1) }} {{ 'abc'.endswith('b', 0, 2) }} {{ 'abc'.startswith('') }} {{ 'abc'.startswith(()) }}
{{ 'abc'.startswith(['a']) }}
{{ 'abc'.startswith(1) }}
{{ 'a-b-c'.replace('-', '+') }} {{ 'a-b-c'.replace('-', '+', 1) }} {{ 'abc'.replace('', '-') }} {{ 'aaa'.replace('a', 'aa') }} {{ 'abc'.replace('x', 'y') }} {{ 'abc'.replace('', '-', 2) }}
{{ 'abc'.replace('a', 1) }}
{{ 'abc'.replace('a') }}
{{ ','.join(['a', 'b']) }} {{ ','.join('abc') }} {{ ''.join([]) }} {{ ', '.join(mapping) }} {{ '-'.join(words | map('lower')) }}
{{ ','.join([1, 2]) }}
{{ 'a\nb\r\nc\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }} {{ ''.splitlines() }} {{ '\n'.splitlines() }}
{{ 'a\tb'.expandtabs() }}| {{ 'a\tb'.expandtabs(4) }}| {{ 'ab\tc\n\td'.expandtabs(4) }}
{{ 'abc'[0] }} {{ 'abc'[-1] }} {{ 'abc'[1:] }} {{ 'abc'[::-1] }} {{ 'abcdef'[1:5:2] }} {{ 'abc'[5:] }}| {{ 'é猫x'[1] }} {{ 'abc'[9] }}| {{ 'abcdef'[-3:-1] }} {{ 'abcdef'[4:1:-1] }} {{ 'abc'[:-1] }}
{{ 'abc'.upper().lower().title() }} {{ 'a b c'.split()[1].upper() }} {{ 'abc' | length }} {{ 'é猫' | length }}
{{ 'abc'.upper(1) }}
{{ 'abc'.strip(1) }}
{{ 'abc'.split(1) }}
{{ 'abc'.nope(1) }}
{{ 'x'.join(missing) }}| {{ 'abc' | list }} {{ 'abc' | first }}{{ 'abc' | last }} {% for c in 'é猫' %}[{{ c }}]{% endfor %}
{{ '\n\n a'.lstrip('\n') }} {{ 'a b'.replace(' ', '\n') }} {{ "a" "b".upper() }}
{{ text.split('\n') | length }} {{ text.split() | join('_') }} {{ text.find('fox') }} {{ text.title() }}
{{ 'İ'.lower() | length }} {{ 'ǆ'.title() }} {{ 'ﬁx'.upper() }} {{ 'ΑΣ'.lower() }}
"""

CASES["lists and dicts"] = r"""
{{ numbers[0] }} {{ numbers[-1] }} {{ numbers[9] }}| {{ numbers[1:3] }} {{ numbers[::-1] }} {{ numbers[::2] }} {{ numbers[-2:] }} {{ numbers[:-2] }} {{ numbers[4:1:-1] }} {{ numbers[10:] }} {{ numbers[-10:2] }} {{ numbers[2:1] }} {{ numbers[::-2] }} {{ numbers[5::-3] }}
{{ numbers[::0] }}
{{ numbers['a'] }}| {{ numbers[true] }} {{ numbers[1.0] }}|
{{ numbers['a':] }}
{{ numbers.index(2.5) }} {{ numbers.count(1) }} {{ [1, true, 1.0].count(1) }} {{ (1, 2, 1).count(1) }} {{ (1, 2).index(2) }} {{ numbers.copy() == numbers }}
{{ numbers.index(99) }}
{{ mapping.get('a') }} {{ mapping.get('x') }} {{ mapping.get('x', 5) }} {{ mapping.get('C', 'd') }} {{ mapping['a'] }} {{ mapping.a }} {{ mapping['x'] }}|
{{ mapping.items() | list }} {{ mapping | list }} {{ mapping.values() | list }} {{ mapping | length }} {{ mapping.items() | length }} {{ mapping.keys() | list | length }}
{{ mapping.items()[0] }}|
{% for k, v in mapping.items() %}{{ k }}={{ v }};{% endfor %} {% for k in mapping %}{{ k }},{% endfor %} {% for v in mapping.values() %}{{ v }},{% endfor %}
{{ mapping.items() | first }} {{ mapping | first }} {{ mapping | last }} {{ mapping.items() | last }} {{ mapping.keys() | first }}
{{ dict(a=1, b=2) }} {{ dict([('a', 1), ('b', 2)]) }} {{ dict({'x': 1}, y=2) }} {{ dict() }} {{ dict(mapping, a=9) }} {{ dict(['ab', 'cd']) }}
{{ dict(1) }}
{{ dict.fromkeys(['a', 'b'], 0) }} {{ {}.fromkeys('ab') }} {{ mapping.copy() }}
{{ 'keys' in mapping }} {{ mapping.keys is mapping }}{# a method's name #}
{{ {'a': {'b': {'c': 1}}}.a.b.c }} {{ {'a': [1, {'b': 2}]}.a[1].b }} {{ {'a-b': 1}['a-b'] }} {{ deep.list[0][1][1][0] }} {{ deep.list.0.1.1.0 }} {{ (1, 2).0 }}
{{ [[1, 2], [3]] | sum(start=[]) }} {{ [1, 2] + [3] }} {{ [1, [2, 3]] | list }} {{ [] | list }} {{ (1, 2) | list }}
{{ range(5) | list }} {{ range(2, 5) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }} {{ range(3)[1] }} {{ range(10)[2:5] }} {{ range(3) | length }} {{ range(3).stop }} {{ range(5)[-1] }} {{ range(10)[::3] | list }}
{{ range() }}
{{ range(1.5) }}
{{ range(100001) | length }}
{{ range(0, 10, 0) }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}{% set (d, e) = [3, 4] %}{{ d }}{{ e }}
{% set f, = [5] %}{{ f }}
{% set a, b = [1] %}
{% set a, b = [1, 2, 3] %}
{% for a, (b, c) in [[1, [2, 3]], [4, (5, 6)]] %}{{ a }}{{ b }}{{ c }};{% endfor %}
{% for a, b in [1, 2] %}{% endfor %}
{% for a, b in ['xy', 'zw'] %}{{ a }}-{{ b }};{% endfor %}
{{ messages[1:] | map(attribute='role') | join(',') }} {{ messages[::-1] | map(attribute='role') | join(',') }} {{ messages[-1].content }} {{ messages[-1]['role'] }} {{ (messages | first).role }} {{ (messages | last)['role'] }} {{ messages[0].content[:2] }}
{{ {'a': 1, 'b': 2,} }} {{ [1, 2,] }} {{ (1, 2,) }} {{ {'a': 1}['a'] }} {{ {} == {} }} {{ [none, true] | list }}
{{ {'a': 1} | items | list }} {{ {} | items | list }} {{ 5 | items | list if false }}
{{ 5 | items | list }}
{{ {'b': 1, 'a': 2} | dictsort }} {{ {'b': 1, 'A': 2, 'c': 0} | dictsort(true) }} {{ {'b': 1, 'a': 2} | dictsort(by='value') }} {{ {'b': 1, 'a': 2} | dictsort(reverse=true) }} {{ {'b': 1, 'A': 2, 'C': 3} | dictsort(false, 'key', true) }}
{{ {'b': 1} | dictsort(by='x') }}
{{ [1, 2].0 }} {{ mapping.b + mapping['a'] }} {{ ('a', 'b')[1] }} {{ 'abc'.0 }}
{{ mapping.keys().isdisjoint(['z']) }} {{ 3 .bit_length() }} {{ 1.0.is_integer() }} {{ 5 .real }}
"""

CASES["filters"] = r"""
{{ words | sort }} {{ words | sort(true) }} {{ words | sort(case_sensitive=true) }} {{ numbers | sort }} {{ numbers | sort(reverse=true) }} {{ people | sort(attribute='age') | map(attribute='name') | join(',') }} {{ people | sort(attribute='age,name') | map(attribute='name') | list }} {{ people | sort(attribute='age', reverse=true) | map(attribute='name') | list }} {{ [[2, 'a'], [1, 'b']] | sort(attribute=0) }} {{ 'cab' | sort }} {{ mapping | sort }} {{ [] | sort }} {{ [3] | sort }} {{ [(1, 'b'), (1, 'a')] | sort }}
{{ [1, 'a'] | sort }}
{{ [none, 1] | sort }}
{{ [{}, {}] | sort }}
{{ words | unique | list }} {{ words | unique(true) | list }} {{ people | unique(attribute='age') | map(attribute='name') | list }} {{ [1, 1.0, true, 2] | unique | list }} {{ 'abca' | unique | join }}
{{ [[1], [1]] | unique | list }}
{{ people | groupby('age') }}
{% for age, list in people | groupby('age') %}{{ age }}:{{ list | map(attribute='name') | join('+') }};{% endfor %} {% for g in people | groupby('age') %}{{ g.grouper }}{{ g.list | length }},{% endfor %}
{% for c, l in people[:3] | groupby('city.n') %}{{ c }}:{{ l | length }};{% endfor %} {% for c, l in people | groupby('city', default={'n': 'x'}) if false %}{% endfor %} {% for c, l in words | groupby(0) %}{{ c }}{{ l | length }} {% endfor %}{% for c, l in people[:3] | groupby('city.n', case_sensitive=true) %}{{ c }}:{{ l | length }};{% endfor %}
{{ [1, 2, 3] | join }} {{ [1, 2, 3] | join('-') }} {{ people | join(', ', attribute='name') }} {{ [[1, 2], [3, 4]] | join('|', attribute=0) }} {{ 'abc' | join('.') }} {{ mapping | join(',') }} {{ [none, true, 1.5] | join(' ') }} {{ [1, 2] | join(d=3) }} {{ [] | join(',') }}| {{ ['a'] | join(',') }}
{{ people | map(attribute='name') | list }} {{ people | map(attribute='city.n', default='-') | list }} {{ people | map(attribute='x') | list }} {{ words | map('upper') | list }} {{ words | map('replace', 'p', 'b') | list }} {{ [[1, 2], [3]] | map('length') | list }} {{ [[1, 2], [3]] | map('first') | list }} {{ ['1', '2'] | map('int') | sum }} {{ [[1, 2]] | map(attribute=1) | list }} {{ words | map('default', 'x') | first }}
{{ people | map(attribute='city.n') | list }}
{{ words | map | list }}
{{ words | map('nope') | list }}
{{ words | map('upper') | length }}
{{ words | map('upper') is iterable }} {{ (words | map('upper') | list) is sequence }} {% set m = words | map('upper') %}{{ m | list }}{{ m | list }} {% for w in words | map('lower') %}{{ loop.index }}{{ w }} {% endfor %}{{ (words | map('upper'))[0] }}|
{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | selectattr('role', '==', 'user') | map(attribute='content') | list }} {{ messages | rejectattr('role', 'in', ['user', 'tool']) | map(attribute='role') | list }} {{ messages | selectattr('tool_calls') | list | length }} {{ messages | selectattr('tool_calls', 'defined') | list | length }} {{ messages | rejectattr('tool_calls') | list | length }} {{ messages | selectattr('name', 'undefined') | list | length }} {{ people | selectattr('age', 'gt', 6) | map(attribute='name') | join }} {{ people | selectattr('city.n', 'eq', 'Rome') | list | length if false }}
{{ numbers | select('odd') | list if false }} {{ [1, 2, 3] | select('odd') | list }} {{ [1, 2, 3] | reject('odd') | list }} {{ [0, 1, '', 'a', none] | select | list }} {{ [0, 1, '', 'a', none] | reject | list }} {{ [1, 2, 3] | select('gt', 1) | list }} {{ [1, 2, 3] | select('in', [1, 3]) | list }} {{ ['a', 1] | select('string') | list }} {{ [1, 2, 3] | select('divisibleby', 3) | first }}
{{ messages | selectattr | list }}
{{ messages | selectattr('role', 'nope') | list }}
{{ messages | selectattr('role', 'equalto', 'system') | first | attr('role') }}| {{ messages | selectattr('role', 'equalto', 'none') | first is defined }} {{ (messages | selectattr('role', 'equalto', 'tool') | list)[0].name }}
{{ (messages | selectattr('role', 'equalto', 'user') | list | last).content }} {{ [] | first is defined }} {{ [] | last }}|
{{ messages | selectattr('role', 'equalto', 'user') | last }}
{{ [1, 2, 3] | sum }} {{ [] | sum }} {{ [1, 2] | sum(start=10) }} {{ people | sum('age') }} {{ people | sum(attribute='age', start=1) }} {{ [1.5, 2] | sum }}
{{ ['a'] | sum }}
{{ numbers | max }} {{ numbers | min }} {{ words | max }} {{ words | min }} {{ people | max(attribute='age') }} {{ [] | max }}| {{ words | max(case_sensitive=true) }} {{ 'hello' | max }}
{{ 42.55 | round }} {{ 42.55 | round(1) }} {{ 42.55 | round(1, 'floor') }} {{ 42.51 | round(1, 'ceil') }} {{ 2.5 | round }} {{ 3.5 | round }} {{ -2.5 | round }} {{ 42 | round }} {{ 1234 | round(-2) }} {{ 1250 | round(-2) }} {{ 2.675 | round(2) }} {{ 1e20 | round }} {{ 42.4 | round | int }} {{ 1.55 | round(1) }} {{ 5 | round(2, 'floor') }} {{ 1234.5 | round(-2) }}
{{ 'a' | round }}
{{ 1.5 | round(0, 'x') }}
{{ '42' | int }} {{ '42.9' | int }} {{ 'abc' | int }} {{ 'abc' | int(7) }} {{ '0x1f' | int(base=16) }} {{ '1f' | int(0, 16) }} {{ 3.9 | int }} {{ -3.9 | int }} {{ none | int }} {{ true | int }} {{ ' 5 ' | int }} {{ '1e3' | int }} {{ '' | int }} {{ '-7' | int }} {{ '1_000' | int }} {{ [] | int(3) }}
{{ '1.5' | float }} {{ 'abc' | float }} {{ 'x' | float(2.5) }} {{ 3 | float }} {{ none | float }} {{ '1e3' | float }} {{ ' 2 ' | float }} {{ 'inf' | float }} {{ true | float }} {{ '' | float }}
{{ -5 | abs }} {{ (-5) | abs }} {{ (-5.5) | abs }} {{ true | abs }}
{{ 'a' | abs }}
{{ 'a b-c (d) [e' | title }} {{ "it's HELLO" | title }} {{ 'aBC' | capitalize }} {{ 'ABC' | lower }} {{ 'abc' | upper }} {{ 5 | title }} {{ none | capitalize }}
{{ ' a ' | trim }}| {{ 'xxaxx' | trim('x') }} {{ 5 | trim }} {{ '\n a \n' | trim }}|
{{ 'abc' | replace('b', 'x') }} {{ 'aaa' | replace('a', 'b', 2) }} {{ 'aaa' | replace('a', 'b', count=1) }} {{ 5 | replace('5', '6') }} {{ 'a1' | replace(1, 2) }} {{ 'abc' | replace('', '-') }}
{{ 'abc' | reverse }} {{ [1, 2, 3] | reverse | list }} {{ (1, 2) | reverse | list }} {{ mapping | reverse | list }} {{ range(3) | reverse | list }} {% for x in [1, 2] | reverse %}{{ x }}{% endfor %}
{{ 5 | reverse }}
{{ [1, 2] | first }} {{ [1, 2] | last }} {{ 'abc' | first }} {{ mapping | first }} {{ range(3) | last }} {{ range(3) | first }}
{{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ [1, 2, 3, 4, 5] | batch(2, 'x') | list }} {{ [1, 2, 3] | batch(5, 0) | list }} {{ [] | batch(2) | list }} {{ 'abcde' | batch(3) | map('join') | list }}
{{ [1, 2, 3, 4, 5] | slice(2) | list }} {{ [1, 2, 3, 4, 5] | slice(3, 'x') | list }} {{ [1] | slice(3) | list }} {{ 'abcdef' | slice(4) | list }}
{{ [1] | slice(0) | list }}
{{ 'foo bar baz qux' | truncate(9) }} {{ 'foo bar baz qux' | truncate(9, true) }} {{ 'foo bar baz qux' | truncate(11) }} {{ 'foo bar baz qux' | truncate(11, false, '...', 0) }} {{ 'short' | truncate }} {{ 'foo bar baz' | truncate(5, end='!', leeway=0) }} {{ 'foobarbazqux' | truncate(6, leeway=0) }} {{ 'é猫é猫é猫é猫é猫' | truncate(5, true, '…', 0) }}
{{ missing | truncate(9) }}
{{ 'abc' | truncate(1) }}
{{ 5 | truncate }}
{{ 'a b  c-d, e_f' | wordcount }} {{ '' | wordcount }} {{ 'é猫 x' | wordcount }} {{ text | wordcount }}
{{ 'a b&c/d?é' | urlencode }} {{ {'a': 1, 'b c': 'd&'} | urlencode }} {{ [('a', 'é')] | urlencode }} {{ 5 | urlencode }} {{ 'a/b~c_d.e-f' | urlencode }} {{ none | urlencode }}
{{ 1 | filesizeformat }} {{ 100 | filesizeformat }} {{ 1000 | filesizeformat }} {{ 1500000 | filesizeformat }} {{ 1024 | filesizeformat(true) }} {{ 123456789012 | filesizeformat }} {{ '5000' | filesizeformat }} {{ 0 | filesizeformat }} {{ 1e30 | filesizeformat }}
{{ 'a\nb\n\nc' | indent }}| {{ 'a\nb' | indent(2) }}| {{ 'a\nb' | indent(width=2) }}| {{ 'a\nb' | indent(2, true) }}| {{ 'a\n\nb' | indent(2, blank=true) }}| {{ 'a\nb' | indent('>>') }}| {{ 'a\nb' | indent(width='>> ', first=true) }}| {{ 'a\nb\n' | indent(1) }}| {{ '' | indent(2, true) }}| {{ 'a\n' | indent }}|
{{ 5 | indent }}
{{ {'a': 1, 'b': none, 'c': 'x"<'} | xmlattr }} {{ {'a': 1} | xmlattr(false) }} {{ {} | xmlattr }}|
{{ {'a b': 1} | xmlattr }}
{{ 'hello world this is' | wordwrap(8) }}| {{ 'abcdefghij' | wordwrap(4) }}| {{ 'abcdefghij kl' | wordwrap(4, false) }}| {{ 'a b c d' | wordwrap(3, wrapstring='/') }}| {{ text | wordwrap(10) }}| {{ 'well-known fact' | wordwrap(6) }}| {{ 'one two' | wordwrap }}|
{{ 'ab' | center(6) }}| {{ 'abc' | center(6) }}| {{ 5 | center(4) }}|
{{ mapping | attr('keys') is callable }} {{ mapping | attr('b') }}| {{ 'a' | attr('upper') is callable }} {{ namespace(x=1) | attr('x') }}
{{ '<b>&"' | escape }} {{ '<p>a <b>c</b>\n d</p>' | striptags }} {{ 'a' | safe }} {{ 5 | e }} {{ "'" | e }}
{{ '<' + ('&' | safe) + '>' }} {{ ('a' | safe) + '<' + 'b' }} {{ '<' ~ ('&' | safe) }} {{ 'a' | safe is escaped }} {{ '<' | e | e }} {{ '<' | escape + '>' }} {{ ('<b>' | safe) | upper + '<' }} {{ '<' | safe | trim + '>' }} {{ ('<' | safe).strip() + '>' }} {{ ('-' | safe).join(['<', '>']) }} {{ ['<', '&' | safe] | join('>') }} {{ ('<' | safe) == '<' }} {{ '<' | safe | tojson }} {{ '<' | safe | forceescape }} {{ ('a<b' | safe).split('<') }} {{ ('a-b' | safe).replace('-', '<') }} {{ ('{}' | safe).format('<') }} {{ '<' | safe * 2 + '>' }}
{{ messages[2] | tojson | safe }} {{ '\n<' ~ (messages[0] | tojson | safe) ~ '>' }} {{ '\n<' + (messages[0].role | tojson | safe) + '>' }}
{{ [1, 2] | pprint }} {{ 'a' | pprint }} {{ none | pprint }}
{{ 'a' | nope }}
{{ [3, 1] | sort | first }} {{ ' x ' | trim | upper | replace('X', 'y') }} {{ (1, 2) | string | length }} {{ 'a,b' | replace(',', ';') | upper }}
{{ 'abc' | upper() }} {{ 'abc' | upper(1) if false }} {{ 1 | default(2) | string + 'x' }} {{ [1, 2] | length + 1 }} {{ 'a' ~ 'b' | upper }} {{ ('a' ~ 'b') | upper }} {{ -1 | string }} {{ 'x' | upper ~ 'y' }}
{{ 'abc' | upper(1) }}
{{ 'abc' | length(2) }}
{{ words | first | upper | list | join('.') }} {{ words | list | length }} {{ words | count }} {{ [1, none] | map('string') | join }} {{ [[3, 1], [2]] | map('sort') | list }} {{ [1, 2, 3] | map('string') | map('center', 3) | join('|') }}
"""

CASES["tojson"] = r"""
{{ messages | tojson }}
{{ messages[2] | tojson(indent=2) }}
{{ messages[0] | tojson(indent=4) }}
{{ deep | tojson }} {{ deep | tojson(indent=1) }}
{{ {'b': 1, 'a': [true, none, 1.5]} | tojson }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ [1, {'a': 2}] | tojson(separators=(',', ':')) }} {{ [1, [2, 3]] | tojson(indent=2, separators=(', ', ' = ')) }} {{ 'é猫😺' | tojson }} {{ 'é猫😺' | tojson(ensure_ascii=true) }} {{ 'é' | tojson(true) }} {{ [1, 2] | tojson(indent=none) }} {{ [1, 2] | tojson(false, 1) }}
{{ "</s><b>&'" | tojson }} {{ 'a"b\\c\n\t\r\x08\x0c\x00\x1f\x7f\u2028' | tojson }} {{ '/' | tojson }}
{{ 1 | tojson }} {{ 1.0 | tojson }} {{ 1e20 | tojson }} {{ 1e-7 | tojson }} {{ none | tojson }} {{ true | tojson }} {{ '' | tojson }} {{ [] | tojson }} {{ {} | tojson }} {{ 10**20 | tojson }} {{ (10**20) | tojson }} {{ 1e400 | tojson }} {{ -1e400 | tojson }} {{ 0.1 | tojson }} {{ -0.0 | tojson }}
{{ {1: 'a', none: 'b', true: 'c', 1.5: 'd'} | tojson }} {{ (1, 2) | tojson }} {{ [[], {}] | tojson(indent=2) }} {{ {'a': []} | tojson(indent=2) }} {{ {'a': {}} | tojson(indent='--') }} {{ [1] | tojson(indent=0) }} {{ [1] | tojson(indent='\t') }} {{ [1] | tojson(indent=-1) }}
{{ {(1, 2): 3} | tojson }}
{{ words | map('upper') | tojson }}
{{ mapping.items() | tojson }}
{{ range(3) | tojson }}
{{ namespace(a=1) | tojson }}
{{ missing | tojson }}
{{ [missing] | tojson }}
{{ {'b': 1, 2: 3} | tojson(sort_keys=true) }}
{{ mapping | tojson }} {{ mapping.items() | list | tojson }} {{ dict(b=1, a=2) | tojson }} {{ {'z': {'y': 1, 'x': 2}, 'a': 0} | tojson(sort_keys=true, indent=2) }}
{{ messages[2].tool_calls[0].function | tojson }} {{ messages[2].tool_calls[0].function.arguments | tojson(indent=2) }} {{ ("a" | tojson) ~ 'x' }} {{ 'a' | tojson | length }} {{ people | tojson(ensure_ascii=false, indent=None, separators=None, sort_keys=False) | length }}
{{ [1] | tojson(2, 3, 4, 5, 6) }}
{{ [1] | tojson(nope=1) }}
{%- for m in messages %}{{ m | tojson }}|{% endfor %}
"""

CASES["loops"] = r"""
{% for x in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }};{% endfor %}
{% for x in [1, 2, 3] %}{{ loop.previtem }}-{{ loop.nextitem }}-{{ loop.previtem is defined }}-{{ loop.nextitem is defined }};{% endfor %}
{% for m in messages %}{{ loop.nextitem.role }},{% endfor %}
{% for m in messages %}{% if loop.nextitem is defined and loop.nextitem.role == 'user' %}>{% endif %}{{ m.role }}{% endfor %}
{% for x in [1, 1, 2, 2, 1] %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %} {% for x in 'aabb' %}{{ loop.changed(x, 1) }}{% endfor %}
{% for x in range(5) %}{{ loop.cycle('a', 'b') }}{% endfor %} {% for x in [] %}{% else %}empty{% endfor %} {% for x in [1] %}{{ x }}{% else %}empty{% endfor %}
{% for x in [1] %}{{ loop.cycle() }}{% endfor %}
{% for x in range(10) if x % 3 == 0 %}{{ x }}:{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{% endfor %} {% for x in range(3) if x > 5 %}{% else %}nothing{% endfor %} {% for m in messages if m.role == 'user' %}{{ loop.first }}{{ m.content | trim }}{{ loop.last }}{% endfor %}
{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %} {% for a in [1, 2] %}{% for b in [1, 2, 3] %}{% if b == 2 %}{% break %}{% endif %}{{ a }}{{ b }}{% endfor %};{% endfor %}
{% for x in [[1, [2, [3]]]] recursive %}{% if x is iterable %}({{ loop(x) }}){{ loop.depth }}{% else %}{{ x }}@{{ loop.depth0 }}{% endif %}{% endfor %}
{% for x in [1] %}{{ loop([2]) }}{% endfor %}
{% for a in [1, 2] %}{% for b in [3, 4] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %} {% for a in [1] %}{% set outer = loop %}{% for b in [1, 2] %}{{ outer.index }}{{ loop.index }}{% endfor %}{% endfor %}
{% set x = 'out' %}{% for x in [1, 2] %}{{ x }}{% endfor %}{{ x }} {% set y = 0 %}{% for i in [1, 2] %}{% set y = i %}{{ y }}{% endfor %}{{ y }} {% for i in [1, 2] %}{{ z }}{% set z = i %}{{ z }}{% endfor %}{{ z }}|
{% set ns = namespace(n=0, found=false) %}{% for i in [1, 2, 3] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }} {{ ns['n'] }} {{ ns.missing is defined }} {% set ns.new = 5 %}{{ ns.new }} {{ ns }} {% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}
{% set x = 1 %}{% set x.y = 2 %}
{% set mapping.y = 2 %}
{% set ns = namespace() %}{% set ns._x = 1 %}
{{ namespace(_x=1) }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }} {{ ns is mapping }} {{ ns is iterable }} {% set ns.ns = ns %}{{ ns.ns.ns.a }}
{% set ns = namespace() %}{% for m in messages if not ns.done %}{{ m.role }}{% if m.role == 'user' %}{% set ns.done = true %}{% endif %}{% endfor %} {% set ns = namespace() %}{% for m in messages if not ns.done %}{{ m.role }}{{ loop.last }}{% if m.role == 'user' %}{% set ns.done = true %}{% endif %}{% endfor %}
{% for k, v in {'a': 1, 'b': 2} | items %}{{ k }}{{ v }}{{ loop.last }}{% endfor %} {% for k, v in {'b': 1, 'a': 2} | dictsort %}{{ k }}{{ v }}{% endfor %} {% for x in (1, 2) %}{{ x }}{% endfor %} {% for x in 1, 2 %}{{ x }}{% endfor %} {% for x in 'ab', %}{{ x }}{% endfor %}
{% for x in [1, 2] if loop.first %}{% endfor %}
{% for x in [3, 1] | sort %}{{ x }}{% endfor %} {% for x in range(3) | reverse %}{{ x }}{% endfor %} {% for x in range(2) %}{% for y in range(x + 1) %}{{ x }}{{ y }} {% endfor %}{% endfor %} {{ loop }}| {{ loop is defined }}
{% for x in [1] %}{{ loop }}{% endfor %} {% for a in 'ab' %}{% with %}{{ loop.index }}{% endwith %}{% endfor %}
{% for i in range(3) %}{% if loop.index is divisibleby 2 %}{{ i }}{% elif loop.last %}L{% else %}-{% endif %}{% endfor %} {% if false %}a{% elif none %}b{% elif 1 %}c{% else %}d{% endif %} {% if x is defined %}{% else %}u{% endif %}
{% break %}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{% do 1 if false %}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }} {% set j = joiner('|') %}{{ j() }}a{{ j() }}b{{ j() }} {% set k = joiner() %}{{ k() }}{{ k() }}{% set _ = c.reset() %}{{ c.next() }}
{{ cycler() }}
{% for item in [{'n': 'a', 'c': [{'n': 'b', 'c': []}]}] recursive %}<{{ item.n }}{% if item.c %}{{ loop(item.c) }}{% endif %}>{% endfor %}
{% for g in messages | groupby('role') %}{{ g.grouper }}={{ g.list | length }} {% endfor %} {% for row in range(7) | batch(3, '-') %}{{ row | join }}|{% endfor %} {% for c in range(7) | slice(3) %}{{ c | join }}|{% endfor %}
{% for x in [1, 2, 3] %}{{ loop.length - loop.index }}{{ loop.revindex0 == 0 }}{% endfor %} {% for x in range(3) if x %}{{ loop.revindex }}{{ loop.nextitem }}{{ loop.previtem }};{% endfor %}
"""

CASES["macros and blocks"] = r"""
{% macro f(x, y='d') %}[{{ x }}-{{ y }}]{% endmacro %}{{ f('a') }}{{ f('a', 'b') }}{{ f('a', y='b') }}{{ f(y=1, x=2) }}{{ f() }}
{% macro f(x) %}{{ x }}{% endmacro %}{{ f(1, 2) }}
{% macro f(x) %}{{ x }}{% endmacro %}{{ f(z=1) }}
{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, a=3) }}{{ f() }} {% macro g(a) %}{{ a }}{{ varargs | join }}{% endmacro %}{{ g(1, 2, 3) }} {% macro h(a) %}{{ a }}{{ kwargs | dictsort }}{% endmacro %}{{ h(1, c=2, b=3) }}
{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}in{% endcall %} {% macro g(n) %}{% for i in range(n) %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(i) g(3) %}({{ i }}){% endcall %} {% macro h() %}{{ caller is defined }}{{ caller() if caller }}{% endmacro %}{{ h() }}{% call h() %}x{% endcall %}
{% macro f() %}x{% endmacro %}{% call f() %}in{% endcall %}
{% macro fact(n) %}{{ n if n <= 1 else n * (fact(n - 1) | int) }}{% endmacro %}{{ fact(5) }} {% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}
{% set x = 1 %}{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% set x = 2 %}{{ f() }} {% macro g() %}{% set x = 9 %}{{ x }}{% endmacro %}{{ g() }}{{ x }} {% macro s() %}{{ messages | length }}{% endmacro %}{{ s() }}
{% macro f(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }} {% macro g(a=1, b=a+1) %}{{ a }}{{ b }}{% endmacro %}{{ g() }}{{ g(5) }}
{{ f }}{% macro f(x, y=1) %}{% endmacro %}{{ f }}{{ f.name }}{{ f.arguments }}{{ f.catch_varargs }}{{ f.caller }}{{ f is callable }}
{% macro f(x) %}  {{- x -}}  {% endmacro %}[{{ f('a') }}] {% macro g(x) -%} {{ x }} {%- endmacro %}[{{ g('b') }}] {{ f('a') | upper }} {{ f('a') ~ 'b' }} {{ f('a') | length }} {{ f('a') is string }}
{% for i in [1, 2] %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}{{ f is defined }}
{% macro f(a, b) %}{{ a }}{{ b is defined }}{% endmacro %}{{ f(*[1, 2]) }}{{ f(**{'a': 3, 'b': 4}) }}{{ f(*[5]) }}{{ f(1, **{'b': 2}) }}
{% macro f(a=1, b) %}{% endmacro %}
{% set x %}a{{ 1 + 1 }}b{% endset %}[{{ x }}]{{ x is string }} {% set y | upper %}abc{% endset %}{{ y }} {% set z | replace('a', 'b') | upper %}aa{% endset %}{{ z }} {% set ns = namespace() %}{% set ns.x %}in{% endset %}{{ ns.x }}
{% set x = 1 %}{% set y %}{% set x = 2 %}{{ x }}{% endset %}{{ x }}{{ y }}
{% filter upper %}abc{{ 'd' }}{% endfilter %} {% filter replace('a', 'b') | upper %}aa{% endfilter %} {% filter trim %}  x  {% endfilter %}|
{% with a=1, b=2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }} {% set a = 5 %}{% with a=1, b=a %}{{ a }}{{ b }}{% endwith %}{{ a }} {% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}
{% block body %}x{{ messages | length }}{% endblock %} {% block other %}{% set v = 1 %}{{ v }}{% endblock other %}{{ v is defined }}
{% if true %}{% set inside = 1 %}{% endif %}{{ inside }} {% if false %}{% set never = 1 %}{% endif %}{{ never is defined }}
{% include 'x' %}
{% extends 'x' %}
{% import 'x' as y %}
{% from 'x' import y %}
{% raw %}{{ x }} {% if %} {# c #}{% endraw %} {% raw -%}  a  {%- endraw %}|
{# comment #}a{# more #}b{#- strip -#}  c {#- x #} d
{% print 1 %} {% print 1, 'a' %} {% autoescape false %}<{{ '<' }}{% endautoescape %}
{% nope %}
{% endif %}
{% if true %}
{% for x in %}{% endfor %}
{{ }}
{{ 1 + }}
{{ (1 }}
{{ 1) }}
{{ 'a }}
{{ a b }}
{{ 1 | }}
{% set %}
{% set 1 = 2 %}
{% set true = 2 %}
{{ {1} }}
{{ [1, }}
{{ a. }}
{{ $ }}
{{ 'a' !}}
{# open
{% raw %}
{% if true %}x{% else %}y{% else %}z{% endif %}
{{ f(a=1, 2) }}
{{ raise_exception('no: ' ~ messages | length) }}
{{ raise_exception() }}
{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{{ range.nope }}|{{ nope.range is defined if false }}
{% macro outer() %}{% macro inner() %}i{% endmacro %}{{ inner() }}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}
{{ self.body() if false }}{% set loop = 3 %}{{ loop }} {% set messages = messages[1:] %}{{ messages | length }} {% set tools = [] %}{{ tools }} {% set range = 1 %}{{ range }}
{% macro m(x) %}{% if x %}{{ x[0] }}{{ m(x[1:]) }}{% endif %}{% endmacro %}{{ m('abc') }} {% macro p(spec) %}{% if spec is mapping %}{% for k, v in spec.items() %}{{ k }}:{{ p(v) }};{% endfor %}{% else %}{{ spec }}{% endif %}{% endmacro %}{{ p(messages[2].tool_calls[0].function) }}
"""

CASES["generation and the date"] = r"""
{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %},{% endfor %}
{% generation %}a{% endgeneration %}|{%- generation -%}  b  {%- endgeneration -%}|
{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x is defined }}
{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ loop.index }}{{ eos_token }}{% endgeneration %}{% else %}{{ m.role }}{% endif %}{% endfor %}
{% set ns = namespace(n=1) %}{% generation %}{% set ns.n = 2 %}{% endgeneration %}{{ ns.n }}
{% macro f(m) %}{% generation %}{{ m }}{% endgeneration %}{% endmacro %}{{ f('x') }}
{{ strftime_now("%Y-%m-%d") }} {{ strftime_now("%d %b %Y") }} {{ strftime_now("%B %d, %Y") }} {{ strftime_now("%A %a %H:%M:%S %I %p") }} {{ strftime_now("%j %U %W %w %u %V %G %y %C") }} {{ strftime_now("%-d/%-m %e|%_d") }} {{ strftime_now("%D %F %T %R %x %X %c %r") }} {{ strftime_now("%% %n%t|") }} {{ strftime_now("%z%Z|") }} {{ strftime_now("") }} {{ strftime_now("%f") }} {{ strftime_now('é %Y') }} {{ strftime_now("%h %k %l %P %^a") }}
{{ strftime_now() }}
{{ strftime_now(5) }}
{% set today = strftime_now("%Y-%m-%d") %}{{ today }} {% if strftime_now is defined %}{% set d = strftime_now("%d %B %Y") %}{% else %}{% set d = "26 Jul 2024" %}{% endif %}{{ d }} {{ strftime_now("%Y") | int - 1 }} {{ strftime_now("%d").lstrip("0") }}
"""

CASES["what templates do"] = r"""
{% for m in messages %}{{ loop.index0 % 2 == 0 }}{{ (m['role'] == 'user') != (loop.index0 % 2 == 0) }}{% endfor %}
{{ messages | map(attribute='content') | select('string') | join('\n') | trim }}
{% set ns = namespace(sys='') %}{% for m in messages %}{% if m.role == 'system' %}{% set ns.sys = ns.sys + m.content + '\n' %}{% endif %}{% endfor %}[{{ ns.sys.rstrip() }}]
{{ messages[2].content.split('</think>')|last }} {{ ('a</think>b'.split('</think>')|first).split('<think>')|last }}
{{ "%.2f"|format(3.14159) }} {{ "%s" % none }} {{ "%5.1f%%" % 12.345 }} {{ '%s' % {'a':1} }}
{{ range(3)|map('string')|list }} {{ range(1,4)|sum }} {{ range(3)|reverse|join(',') }} {{ range(3)|tojson if false }}
{{ messages|length if messages else 0 }} {{ (messages|length) // 2 }} {{ messages|length > 2 and messages[0].role == 'system' }}
{% set loop_messages = messages[1:] if messages[0].role == 'system' else messages %}{{ loop_messages|length }}
{% for k, v in messages[2].items() if k != 'role' %}{{ k }}={{ v }}{% endfor %}
{{ messages[2].tool_calls[0].function.arguments.items()|list }} {{ messages[2].tool_calls[0]['function']['arguments']|dictsort }}
{% for arg, val in messages[2].tool_calls[0].function.arguments|items %}<{{ arg }}>{{ val if val is string else val|tojson }}</{{ arg }}>{% endfor %}
{{ {'a':1,'b':[1,2]}|tojson(indent=2)|indent(4) }}
{{ '  x'|indent(2, first=True) }}|{{ 'a'|center }}|
{{ 'abc'|slice(2)|list }} {{ {'a':1,'b':2}|batch(1)|list }} {{ 'abc'|batch(2,'-')|list }}
{{ ['a','b']|map('upper')|join|lower|title }} {{ [1,2,3]|map('multiply', 2)|list if false }}
{{ 'x' in none if none else 'no' }} {{ 1 if 'a' in ['a'] else 2 }}
{{ 'x' in none }}
{{ none in 'x' }}
{{ [1,2,3]|select('>', 1)|list }} {{ [1,2,3]|select('ge', 2)|list }} {{ ['a','B']|select('upper')|list }} {{ [1,none]|reject('none')|list }} {{ [[],[1]]|select|list }}
{{ people|selectattr('city.n','defined')|map(attribute='name')|list }} {{ people|selectattr('city')|list|length }} {{ people|rejectattr('city','defined')|map(attribute='name')|first }}
{{ people|map(attribute='city')|list|length }} {{ people|groupby('age')|map('first')|list }} {{ people|groupby('age')|map(attribute='grouper')|list }} {{ (people|groupby('age'))[0].list[0].name }}
{{ people|sort(attribute='name')|map(attribute='name')|list }} {{ people|sort(attribute='name', case_sensitive=true)|map(attribute='name')|list }} {{ people|sort(true, attribute='name')|map(attribute='name')|list }}
{{ people|sum(attribute='city.n') }}
{{ mapping|dictsort(by='value') }}
{{ [3,1,2]|sort(reverse=1) }} {{ ['b','A']|sort|first }} {{ [true,0,2]|sort }} {{ [1.5,1]|sort }} {{ 'hello'|unique|join }} {{ [none,none]|unique|list }}
{{ -5 // 2 }} {{ 5 // -2 }} {{ -5 % 2 }} {{ 5.5 // 1 }} {{ 2**10 }} {{ 2**-1 }} {{ 1e3 }} {{ 1_000 * 2 }} {{ 0.1*3 }} {{ 1/3*3 }} {{ 7.0 }} {{ 7e22 }} {{ 1.0e-5 }} {{ 123456.789e3 }}
{{ 'a'.isalpha() and 'b' or 'c' }} {{ not 'a'.isdigit() }} {{ 'A' < 'a' }} {{ [1,'a']==[1,'a'] }} {{ (1,2)==[1,2] }}
{{ 'abc'.__len__() }}
{{ mapping.__class__.__name__ }}
{{ ().__class__ }}|{{ cycler.__init__ }}|
{{ "a\\nb" }} {{ 'tab\there' }} {{ "\x41\u0042\U00000043" }} {{ '\101' }} {{ "quote\"s" }} {{ 'don\'t' }}
{{ 'é'|upper }} {{ 'ÀÉ'|lower }} {{ 'ñandú'|capitalize }} {{ 'straße'|upper }} {{ 'ŉ'|capitalize }} {{ 'ΌΣΟΣ'.lower() }} {{ 'ǳx'.title() }} {{ 'ﬀ'.upper() }}
{{ "%s" % "é" }} {{ "{:>6}".format("é猫") }}| {{ 'é猫'.center(6,'*') }} {{ 'é猫'.encode('utf-8') if false }}
{{ x|default(y|default('z')) }} {{ x|default([])|length }} {{ (x|default({})).a|default('b') }} {{ x.y if x is defined else 'no' }} {{ x is defined and x.y }}
{% if x %}a{% elif not x %}b{% endif %} {% if x is not defined or x is none %}n{% endif %} {% if not x is defined %}nd{% endif %}
{% set x = x if x is defined else 5 %}{{ x }} {% set y = namespace(a=[]) %}{% set y.a = y.a + [1] %}{% set y.a = y.a + [2] %}{{ y.a }}
{% set d = {'a': 1} %}{% set d = dict(d, b=2) %}{{ d }} {% set _ = d.update({'c':3}) if false %}{{ d.keys()|list }} {% set l = [1] %}{% set l = l + [2] %}{{ l }} {{ [l, l] }}
{% macro render(x, depth=0) %}{% if x is mapping %}{{ '{' }}{% for k, v in x.items() %}{{ k }}:{{ render(v, depth+1) }}{{ ',' if not loop.last }}{% endfor %}{{ '}' }}{% elif x is iterable and x is not string %}[{% for i in x %}{{ render(i, depth+1) }}{{ ',' if not loop.last }}{% endfor %}]{% else %}{{ x|tojson }}@{{ depth }}{% endif %}{% endmacro %}{{ render(messages) }}
{% macro a(x) %}{% set r %}<{{ x }}>{% endset %}{{ r|trim }}{% endmacro %}{{ a(1) + a(2) }} {{ (a(1)|length) + 1 }}
{% macro a(x='d', **kw) %}{% endmacro %}
{% macro kw() %}{{ kwargs.a }}{{ kwargs|length }}{{ varargs[0] }}{% endmacro %}{{ kw(5, a=1) }}
{% call(a, b=2) f() %}{{ a }}{{ b }}{% endcall %}{% macro f() %}{% endmacro %}
{% macro f() %}{{ caller(1) }}{% endmacro %}{% call(a, b=2) f() %}{{ a }}{{ b }}{% endcall %}
{% macro dialog(title) %}<{{ title }}>{{ caller() }}{% endmacro %}{% for i in [1,2] %}{% call dialog('t' ~ i) %}{{ i }}{{ loop.index }}{% endcall %}{% endfor %}
{% for x in [1,2,3] %}{% if loop.first %}[{% endif %}{{ x }}{% if not loop.last %}, {% else %}]{% endif %}{% endfor %}
{% for i in range(3) %}{% for j in range(3) %}{% if j == 1 %}{% continue %}{% endif %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}
{% for m in messages %}{% set content = m.content %}{% if loop.index0 == 0 %}{% set content = 'X' ~ content %}{% endif %}{{ content|trim }};{% endfor %}
{% for m in messages %}{% if m.role == 'tool' and (loop.first or messages[loop.index0 - 1].role != 'tool') %}<T>{% endif %}{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}</T>{% endif %}{% endfor %}
{% for m in messages %}{% if not loop.last and loop.nextitem.role == 'user' %}u{% endif %}{% if loop.previtem and loop.previtem.role == 'tool' %}t{% endif %}{% endfor %}
{% for m in messages|reverse %}{{ m.role[0] }}{{ loop.revindex }}{% endfor %} {% for i in range(messages|length - 1, -1, -1) %}{{ messages[i].role[0] }}{% endfor %}
{% set idx = namespace(v=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set idx.v = loop.index0 %}{% endif %}{% endfor %}{{ idx.v }}
{{ messages[-1]['content'] if messages[-1]['role'] == 'user' else '' }} {{ messages[-1].get('name') }} {{ messages[3].get('name', 'x') }} {{ 'name' in messages[3] }} {{ messages[0]['name']|default('anon') }}
{{ bos_token + 'x' }} {{ (bos_token if bos_token is defined) ~ eos_token }} {{ pad_token }} {{ pad_token is defined }}
{{ tools|tojson }} {{ documents is none }} {{ tools is defined and tools }} {{ (tools or [])|length }} {{ not tools }}
{% if tools is not none and tools|length > 0 %}x{% endif %}{% if tools %}y{% else %}z{% endif %}
{{ raise_exception('a' 'b') }}
{{ raise_exception(messages[0].role|upper + '!') }}
{{ raise_exception(5) }}
{{ strftime_now('%d %b %Y')|upper }} {{ strftime_now("%Y")|int + 1 }} {{ strftime_now('%A')[:3] }} {{ strftime_now.x is defined }}
{{ [1,2,3][1:]|first }} {{ 'abcdef'[::2] }} {{ [1,2,3][:-1] }} {{ 'abc'[-2:] }} {{ (1,2,3)[::-1] }} {{ ''[0] is defined }} {{ [][0]|default('e') }} {{ 'abc'[1:2][0] }} {{ [1,2,3,4][-3:-1] }} {{ [1,2,3][none:2] }} {{ [1,2][true:] }}
{{ 1 < 2 and 2 < 3 }} {{ 1 in [1,2] and not 3 in [1,2] }} {{ 1 == 1.0 == true }} {{ 'a' 'b' == 'ab' }}
{{ (1 + 2) ~ (3 + 4) }} {{ 1 ~ '' == '1' }} {{ '1'|int == 1 }} {{ 2 * 'a' ~ 'b' }} {{ - 3 + 5 }} {{ 3 - -5 }} {{ 2 - 1|int }} {{ -1|abs + 2 }} {{ (-1)|abs }}
{{ 5 is number and 5 is not string }} {{ 5 is divisibleby 5 }} {{ 'a' is in 'abc' and 'd' is not in 'abc' }} {{ x is defined or y is undefined }} {{ none is defined }} {{ x is sameas y }} {{ [] is sameas [] }} {{ 'a' is sameas 'a' }}
{{ '{}'.format('a') ~ '{0}{0}'.format(1) }} {{ '{:03d}'.format(7) }} {{ '{:,}'.format(1234567) }} {{ '{:.0f}'.format(2.5) }} {{ '{:e}'.format(0) }} {{ '{:g}'.format(0.00001234) }} {{ '{:>+8.2f}'.format(3.14159) }} {{ '{:^9}|'.format('mid') }} {{ '{:b}'.format(10) }} {{ '{!r}'.format('é') }} {{ '{:s}'.format('x') }} {{ '{0!s:>4}'.format(5) }} {{ '{:<4}|{:>4}'.format(1, true) }}
{{ '{:.2f}'.format('a') }}
{{ '{:d}'.format(1.5) }}
{{ '%d %s' % (1,) }}
{{ '%d' % none }}
{{ 'a' * 2.5 }}
{{ [1] * 'a' }}
{{ {'a':1} * 2 }}
{{ 'a' ** 2 }}
{{ 'a'.join([1]) }}
{{ ['a'].join(',') }}
{{ 5.upper() }}
{{ 5 .upper() }}
{{ messages.role }}|{{ messages['role'] }}|{{ messages.0.role }}|{{ messages[0]['role'] }}
{{ nothing|default('x', true)|upper }} {{ ''|default('e', true) }} {{ false|default('f', true) }} {{ 0|default('z', boolean=True) }} {{ x|default }}| {{ x|d('q') }}
{{ 'a,b;c'.replace(',', ';').split(';') }} {{ 'k=v=w'.split('=', 1) }} {{ 'a b c'.rsplit(' ', 1)[0] }} {{ 'a  b'.split(' ') }} {{ 'x'.split('x') }} {{ '\n'.join(['a','b']) }} {{ 'a\n'.splitlines() }} {{ ' a b '.split() }} {{ 'aXbX'.rsplit('X') }} {{ 'abc'.rsplit('b', 0) }}
{{ 'abcabc'.replace('b', 'X', 1).find('X') }} {{ 'abc'.find('z') }} {{ 'abc'.count('c') }} {{ 'hello'.startswith('he', 0) }} {{ 'hello'.endswith(('x','lo')) }} {{ 'a-b_c'.title() }} {{ "they're bill's".title() }} {{ 'ab12cd'.title() }} {{ 'hELLO wORLD'.swapcase() }} {{ 'abc'.isidentifier() }} {{ '   '.isspace() }} {{ 'Ab Cd'.istitle() }} {{ 'AB'.istitle() }} {{ '1'.istitle() }}
{{ '١٢'.isdigit() }} {{ '١٢'|int }} {{ 'Ⅷ'.isnumeric() }} {{ 'Ⅷ'.isdigit() }} {{ '⁵'.isdigit() }} {{ 'ª'.islower() }} {{ 'ǅ'.istitle() }} {{ 'ǅ'.isupper() }} {{ 'Ა'.isupper() }}
{{ 3|tojson }} {{ 3.0|tojson }} {{ [1.0, 2.5, 1e100]|tojson }} {{ {'a': 1e-10}|tojson }} {{ 12345678901234567890|tojson }} {{ -1.5|tojson }} {{ (0.1+0.2)|tojson }} {{ {'x': (1,2)}|tojson(separators=(',',':')) }} {{ {'é': 'ü'}|tojson(ensure_ascii=True) }} {{ [1,[2,[3]]]|tojson(indent=1) }}
{{ [{"a": 1}, {"b": []}]|tojson(indent=4) }}
{{ {"b": {"d": 1, "c": 2}, "a": 3}|tojson(sort_keys=True, indent=2, separators=(',', ': ')) }}
{{ 'abc def ghi'|wordwrap(5, true, '|') }} {{ 'a\nb c'|wordwrap(2) }} {{ 'supercalifragilistic'|wordwrap(5) }} {{ '  lead space here'|wordwrap(8) }} {{ 'a-b-c-d'|wordwrap(3) }} {{ 'foo-bar baz'|wordwrap(5, break_on_hyphens=false) }} {{ 'x  y   z'|wordwrap(4) }}
{{ 'this is a long text'|truncate(10) }} {{ 'this is a long text'|truncate(10, true, '') }} {{ 'abcdefghij'|truncate(5, false, '..', 0) }} {{ 'ab cd'|truncate(5, leeway=0) }} {{ 'word'|truncate(3, leeway=1) }}
{{ 1234567|filesizeformat }} {{ 999|filesizeformat }} {{ 1023|filesizeformat(true) }} {{ 1048576|filesizeformat(true) }} {{ 0.5|filesizeformat }} {{ -5|filesizeformat }}
{{ 'a&b=c d'|urlencode }} {{ {'q':'a b','n':1}|urlencode }} {{ [['a',1],['b',2]]|urlencode }} {{ ''|urlencode }} {{ 'ü~!*()'|urlencode }}
{{ {'class':'a b','id':none,'x':missing,'n':5}|xmlattr }} {{ {'a':'<>&"\''}|xmlattr }}
{{ "a\r\nb\rc"|indent(2) }}| {{ 'a\n\n\nb'|indent(3) }}| {{ '\na'|indent(2, true) }}| {{ 'a\x0bb'|indent }}| {{ 'x'|indent(0) }}| {{ 'a\nb'|indent(-1) }}|
{{ 1.5|round|int }} {{ 0.5|round }} {{ 1.5|round }} {{ 2.345|round(2) }} {{ -1.5|round }} {{ 1e16|round }} {{ 15|round(-1) }} {{ 25|round(-1) }} {{ -15|round(-1) }} {{ 1.25|round(1) }} {{ 0.15|round(1) }} {{ 1.005|round(2) }} {{ 123.456|round(-1) }} {{ 3.7|round(0,'floor') }} {{ 3.2|round(0,'ceil') }} {{ true|round }}
{{ '0b101'|int(base=2) }} {{ '0o17'|int(0,8) }} {{ 'zz'|int(0,36) }} {{ '0x1F'|int(0,0) if false }} {{ '12abc'|int(-1) }} {{ '1.9e2'|int }} {{ 1e30|int }} {{ '9'*30 }} {{ ('9'*30)|int }} {{ '+5'|int }} {{ '--5'|int }} {{ '_5'|int }} {{ 'inf'|int(3) if false }} {{ 'nan'|float }} {{ '1_0.5'|float }} {{ '.5'|float }} {{ '5.'|float }} {{ '1,5'|float(0) }} {{ 'Infinity'|float }} {{ '0x10'|float }}
{{ [1,2,3]|random in [1,2,3] if false }} {{ [1]|list is sameas [1] }} {{ 'a'|list|tojson }} {{ {'a':1}|list }} {{ range(3)|list|string }} {{ (1,2)|join('+') }}
{{ cycler('a','b').current }} {{ joiner('x')() ~ 'y' }} {% set j = joiner() %}{% for i in 'abc' %}{{ j() }}{{ i }}{% endfor %} {{ namespace().x is defined }} {{ namespace is callable }} {{ dict is callable }} {{ dict(a=1).a }}
{{ namespace(a=1).a }} {{ namespace(a=1)['a'] }} {{ namespace(a=1).b }}| {% set n = namespace(a=namespace(b=1)) %}{{ n.a.b }} {% set n.c = n.a %}{{ n.c.b }} {{ n is sameas n }} {{ n == n }} {{ namespace() == namespace() }} {{ not namespace() }}
{{ loop is defined }} {% for a in [1] %}{{ loop is defined }}{% endfor %} {% for a in [] %}{% endfor %}{{ a is defined }}
{% set a = 1 %}{% if true %}{% set a = 2 %}{% endif %}{{ a }} {% for i in [1] %}{% set a = 3 %}{% endfor %}{{ a }} {% with a = 4 %}{{ a }}{% set a = 5 %}{{ a }}{% endwith %}{{ a }} {% macro m() %}{% set a = 6 %}{{ a }}{% endmacro %}{{ m() }}{{ a }} {% set q %}{% set a = 7 %}{% endset %}{{ a }} {% filter trim %}{% set a = 8 %}{% endfilter %}{{ a }}
{% block a %}{% set z = 1 %}{{ z }}{% endblock %}{{ z is defined }} {% set y = 2 %}{% block b %}{{ y }}{% endblock %} {% for i in [1,2] %}{% block c scoped %}{{ i }}{% endblock %}{% endfor %}
{% for i in [1,2] %}{% block d %}{{ i is defined }}{% endblock %}{% endfor %}
{% if 1 %}{% if 0 %}a{% else %}{% if 1 %}b{% endif %}{% endif %}{% endif %} {% if [] or {} or '' or 0 or none %}x{% else %}y{% endif %} {% if 'false' %}t{% endif %} {% if 0.0 %}x{% endif %}
{{ 1 if 2 if 3 else 4 else 5 }} {{ 'a' if x is defined else 'b' if y is defined else 'c' }} {{ ('a' if true else 'b')|upper }} {{ 'a' if true else 'b'|upper }} {{ 'x' ~ ('a' if false) ~ 'y' }}
{{ 'a' ~ 1 + 2 }}
{{ ('a' ~ 1) + '2' }} {{ 1 + 1 ~ 'a' }} {{ 'a' + 'b' * 2 }} {{ 10 / 4 * 2 }} {{ 2 ** 2 ** 3 }} {{ -2 ** 2 }} {{ 7 % 4 * 2 }} {{ not 1 + 1 }} {{ 1 + 1 == 2 }} {{ 'a' in 'b' ~ 'a' }}
{{ messages|map('attr', 'x')|list if false }} {{ ['a','b']|map('first')|list }} {{ [' a ','b ']|map('trim')|map('upper')|join }} {{ [1.234]|map('round', 1)|first }} {{ ['1','x']|map('int', 9)|list }} {{ [[3,1],[2]]|map('max')|list }} {{ [{'a':1}]|map(attribute='a')|list }} {{ [{'a':{'b':1}}]|map(attribute='a.b')|list }} {{ [[1,[2,3]]]|map(attribute='1.0')|list }} {{ [{'a':none}]|map(attribute='a', default='d')|list }} {{ [{}]|map(attribute='a', default='d')|list }} {{ ['x']|map('replace','x','y')|list }} {{ ['x']|map('default', default_value='y')|list }}
{{ {'a': 1}.items()|map('first')|list }} {{ {'a': 1}.items()|map('last')|sum }} {{ {'a': 3, 'b': 1}.items()|sort(attribute=1)|map('first')|list }} {{ {'a': 3, 'b': 1}|dictsort(false,'value')|map(attribute=0)|join }} {{ {'a': 3}.values()|sum }} {{ {'b': 1, 'a': 2}.keys()|sort }} {{ {'a': 1}.keys()|length }} {{ {'a': 1}.items()|tojson if false }}
{{ {1: 2}[1] }} {{ {1: 2}.1 }} {{ {'1': 2}[1] is defined }} {{ {true: 1}[1] }} {{ {1.0: 'f'}[1] }} {{ {none: 'n'}[none] }} {{ {(1,2): 't'}[(1,2)] }} {{ {'a': 1}[['a']] is defined }}
"""

# Text and tags around one another; written as Python's strings, for their ends count.
WHITESPACE = [
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n",
    "a\n  {%+ if true %}\n  b\n  {%+ endif +%}\nc\n",
    "a\n  {%- if true -%}\n  b\n  {%- endif -%}\nc\n",
    "{% if true %}\n\nx{% endif %}\n\ny",
    "{{ 1 }}\n{{ 2 }}\n",
    "  {{ 1 }}  \n  {{- 2 -}}  \n 3",
    "{{ 1 -}}\n\n  x",
    "x\n\n  {{- 1 }}",
    "a {% if true %} b {% endif %} c",
    "a\n\t{% set x = 1 %}\n\t{{ x }}\n",
    "{% for i in [1,2] %}\n  {{ i }}\n{% endfor %}\n",
    "{% for i in [1,2] -%}\n  {{ i }}\n{%- endfor %}\n",
    "{%- for i in [1,2] %}\n  - {{ i }}\n{%- endfor %}\n",
    "a\n  {# c #}\nb",
    "a\n  {#- c -#}\nb",
    "a  {# c #}\n  b",
    "a\n  {#+ c +#}\nb",
    "a\r\nb\r\n{% if true %}\r\nc{% endif %}\rd",
    "a\n\n",
    "a\n",
    "\n",
    "",
    "{% if true %}x{% endif %}\n",
    "{% if true %}x{% endif %}\n\n",
    "{{ 'x\r\ny' }}",
    "  {% if true %}x{% endif %}",
    "\n  {% if true %}x{% endif %}",
    "x  {% if true %}y{% endif %}",
    "{% if true %}  {% if true %}x{% endif %}{% endif %}",
    "{% if true %}\n  {% if true %}\nx\n  {% endif %}\n{% endif %}\n",
    "{{ 1 }}  {% if true %}x{% endif %}",
    "a\n{% raw %}\n  {{ x }}\n{% endraw %}\nb",
    "a\n  {%- raw -%}\n  {{ x }}\n  {%- endraw -%}\n b",
    "a\n  {% raw +%} x {%+ endraw +%}\n b",
    "{%if true%}x{%endif%}{{1}}{%-if true-%} y {%-endif-%}",
    "{% if true\n  and 1 %}x{% endif %}",
    "{{ {'a': {'b': 1}} }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}",
    "{{ '}}' }}{{ '%}' }}{% if '%}' %}x{% endif %}",
    "{ { } } {x} {",
    "{{ '{{' }}{{ '{%' }}",
    "# line\n## comment\n% statement\n",
    "{% set x = 1 %}\n\n{% set y = 2 %}\n\nz",
    "{%- set x = 1 -%}\n\n{%- set y = 2 -%}\n\nz",
    "a{% set x %}\n  b\n{% endset %}[{{ x }}]",
    "{% macro f() %}\n  x\n{% endmacro %}\n[{{ f() }}]",
    "\u00a0 {%- if true %}x{% endif %}",
    "a\u3000{{- 1 }}",
    "a \t\n \t {%- if true %}x{% endif -%} \n\t b",
    "{{- 'a' -}}\n{{- 'b' -}}",
    "a\n    {% if true %} {# c #}\n  b{% endif %}",
    "{% for m in messages %}\n    {%- if loop.first %}\n        {{- bos_token }}\n    {%- endif %}\n    {{- '<|im_start|>' + m.role + '\\n' }}\n{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n",
    "{% for m in messages %}{% if m.role == 'user' %}\n{{ m.content }}\n{% endif %}\n{% endfor %}",
    "a\n  {{ 1 }}\n  {% if 1 %}\n  {{ 2 }}\n  {% endif %}\n",
    "x{%- if true %}\n\n  y{% endif %}",
    "{{ 'a\\\nb' }}",
    "a{# multi\nline #}b",
    "{% generation %}\n{% endgeneration %}\nx",
    "{% generation -%}\n a \n{%- endgeneration %}\nx",
    "{% filter indent(2) %}a\nb{% endfilter %}",
    "line\u2028sep {%- if 1 %}\u2028x{% endif %}",
]
