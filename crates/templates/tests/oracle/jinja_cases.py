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

# Those that candecode renders, and doesn't refuse, if Jinja2 renders them.
CASES["rewritten tags"] = r"""
{% for t in tools or [] %}{{ t }}{% endfor %}|{% for w in tools or words %}{{ w }}{% endfor %}
{% for m in messages %}{% for c in m.tool_calls | default([], true) %}{{ c.function.name }}{% endfor %},{% endfor %}
{% for x in nothing or documents or [1] if x %}{{ x }}{% endfor %}{% for x in words if x == 'fig' %}{{ x }}{% endfor %}
{% for x in tools if x %}{{ x }}{% endfor %}
{% for x in tools recursive %}{{ x }}{% endfor %}
{% for x in not tools %}{{ x }}{% endfor %}
{% raw %}{% set a.b = 1 %}{% for x in xs %}{% generation %}{{ '%}' }}{% {% endraw %}{% generation %}x{% endgeneration %}
{%- raw -%} {% for x in xs %}it's {%- endraw -%} {% for x in [1] %}{{ x }}{% endfor %}
{# it's {% raw %} #}{% set ns = namespace() %}{% set ns.a = '%}"' ~ "\"'%}" %}{{ ns.a }}
{% if '%}{% generation %}' %}x{% endif %}{{ '{% set a.b = 1 %}' }}{{ {'a': {'b': "}}{% for x in xs %}"}}['a']['b'] }}
{% set x | replace('.', '=') %}a.b{% endset %}{{ x }} {% set ns = namespace() %}{% set ns.a = 'a.b' | replace('.', '=') %}{{ ns.a }}
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
