//! Compares chat templates with Jinja2 as transformers configures it (`oracle/jinja.py`), and
//! tests malicious templates.

use candecode_engine::jinja::{message, Jinja};
use minijinja::Value;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

type Data = BTreeMap<String, Value>;

#[derive(Deserialize)]
struct Golden {
    input: Data,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    group: String,
    template: String,
    text: Option<String>,
}

fn render(template: &str, input: &Data) -> Result<String, String> {
    let now = jiff::civil::date(2026, 2, 3).at(14, 5, 9, 0);
    Jinja::new(template).and_then(|it| it.render(input.clone(), now)).map_err(|e| message(&e))
}

/// Templates that minijinja renders but Jinja2 renders differently or rejects are listed in
/// `minijinja.json`. They touch corners of Python such as large floats, scopes in blocks of `set`,
/// dict views and generators that are read twice. The cases are about what chat templates do;
/// operators, filters and tests are minijinja's own to test.
#[test]
fn a_template_renders_as_in_jinja2_or_is_refused() {
    let read = |name: &str| std::fs::read(candecode_testing::oracle(name)).unwrap();
    let golden: Golden = serde_json::from_slice(&read("jinja.json")).unwrap();
    let known: BTreeSet<String> = serde_json::from_slice(&read("minijinja.json")).unwrap();
    let (mut equal, mut different) = (0, BTreeSet::new());
    for case in &golden.cases {
        match (render(&case.template, &golden.input), &case.text) {
            (Ok(ours), Some(text)) if ours == *text => equal += 1,
            (Err(_), _) => {}
            (ours, text) => {
                if !known.contains(&case.template) {
                    eprintln!("{}: {:?}", case.group, case.template);
                    eprintln!("    ours:   {ours:?}\n    jinja2: {text:?}");
                }
                different.insert(case.template.clone());
            }
        }
    }
    assert_eq!(different, known);
    assert!(equal > 140, "{equal} equal of {}", golden.cases.len());
}

#[test]
fn a_malicious_template_is_an_error() {
    let nested =
        |open: &str, close: &str, times: usize| open.repeat(times) + "1" + &close.repeat(times);
    let chain = |part: &str, times: usize| format!("{{{{ 1{} }}}}", part.repeat(times));
    let templates = [
        // Endless loops.
        "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}{% \
            endfor %}{% endfor %}{% endfor %}".to_string(),
        "{% for a in range(100000) %}{% for b in range(100000) %}{{ 'x' }}{% endfor %}{% endfor %}".into(),
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".into(),
        "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}".into(),
        "{% macro f(x) %}{% call f(x) %}{{ caller() }}{% endcall %}{% endmacro %}{{ f(1) }}".into(),
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}".into(),
        "{% for x in [1] recursive %}{{ loop([1, 1]) }}{{ loop([1, 1]) }}{% endfor %}".into(),
        "{% set ns = namespace(x=1) %}{% for i in range(100000) %}{% for j in range(100000) %}{% \
            set ns.x = ns.x + 1 %}{% endfor %}{% endfor %}".into(),
        "{% set l = range(100000) | list %}{% for i in range(100000) %}{{ -1 in l }}{% endfor %}".into(),
        "{% set s = 'a' * 10000000 %}{% for i in range(100000) %}{{ 'b' in s }}{{ s.find('b') }}{% \
            endfor %}".into(),
        "{% set s = 'a' * 10000000 %}{% for i in range(100000) %}{{ s[-1] }}{% endfor %}".into(),
        "{% set s = 'a' * 10000000 %}{% for i in range(100000) %}{{ s | length }}{% endfor %}".into(),
        "{% set s = 'a' * 10000000 %}{% for i in range(100000) %}{% if s == s ~ '' %}{% endif %}{% \
            endfor %}".into(),
        "{% set s = 'a' * 10000000 %}{% for i in range(100000) %}{% for j in range(100) %}{{ s | \
            truncate(5) }}{% endfor %}{% endfor %}".into(),
        "{% set s = 'a' * 3000000 %}{% set d = {s: 1} %}{% for i in range(100000) %}{% if d[s] \
            %}{% endif %}{% if s in d %}{% endif %}{{ d.get(s) }}{% endfor %}".into(),
        "{% set s = 'a' * 3000000 %}{{ ([s] * 100000) | unique | list | length }}".into(),
        "{% set s = 'a' * 3000000 %}{{ ([s] * 100000) | sort | length }}".into(),
        "{% set s = 'a' * 3000000 %}{{ ([s] * 100000) | max | length }}".into(),
        "{% set s = 'a' * 10000000 %}{% for i in range(100000) %}{{ 'x'.strip(s) }}{{ \
            ''.removeprefix(s) }}{% endfor %}".into(),
        "{% set s = 'a' * 10000000 %}{% for i in range(100000) %}{{ s is in s }}{{ s is eq s }}{% \
            endfor %}".into(),
        "{% set s = 'a' * 10000000 %}{% for i in range(100000) %}{% if s < s ~ 'a' %}{% endif %}{% \
            endfor %}".into(),
        "{{ ('ab-' * 1000000) | wordwrap(2) }}".into(),
        "{{ ('a' * 3000000) | wordwrap(1) }}".into(),
        format!("{{{{ f({}) }}}}", (0..100_000).map(|i| format!("a{i}=1,")).collect::<String>()),
        format!("{{% macro f({}) %}}{{% endmacro %}}", (0..100_000).map(|i| format!("a{i},")).collect::<String>()),
        "{% for a in range(100000) %}{% for b in range(100000) %}{% macro f() %}{% endmacro %}{% \
            endfor %}{% endfor %}".into(),
        "{{ ('{a}' * 10000000).format(a=1) | length }}{{ ('{0}' * 10000000).format('') | length }}".into(),
        // Huge values.
        "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s \
            %}{% endfor %}".into(),
        "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s \
            %}{% endfor %}".into(),
        "{% set ns = namespace(s=['a']) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% \
            endfor %}".into(),
        "{% set ns = namespace(s=('a',)) %}{% for i in range(60) %}{% set ns.s = ns.s * 2 %}{% \
            endfor %}".into(),
        "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = ns.s.replace('a', \
            'aa') %}{% endfor %}".into(),
        "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = ns.s | replace('', \
            ns.s) %}{% endfor %}".into(),
        "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] | join \
            %}{% endfor %}".into(),
        "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = ns.s.join([ns.s, \
            ns.s]) %}{% endfor %}".into(),
        "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = '%s%s' % (ns.s, \
            ns.s) %}{% endfor %}".into(),
        "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = \
            '{0}{0}'.format(ns.s) %}{% endfor %}".into(),
        "{% set ns = namespace(s='\"') %}{% for i in range(60) %}{% set ns.s = ns.s | tojson %}{% \
            endfor %}".into(),
        "{% set ns = namespace(s='&') %}{% for i in range(60) %}{% set ns.s = (ns.s ~ ns.s) | \
            forceescape %}{% endfor %}".into(),
        "{% set ns = namespace(s='%') %}{% for i in range(60) %}{% set ns.s = (ns.s ~ ns.s) | \
            urlencode %}{% endfor %}".into(),
        "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s %}{{ ns.s }}{{ ns.s \
            }}{% endset %}{% endfor %}".into(),
        "{% set ns = namespace(s={'a': 1}) %}{% for i in range(60) %}{% set ns.s = {'a': ns.s, \
            'b': ns.s} %}{% endfor %}{{ ns.s }}".into(),
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% \
            endfor %}{{ ns.s | tojson }}".into(),
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% \
            endfor %}{{ ns.s ~ '' }}".into(),
        "{% set a = namespace(s=[1]) %}{% set b = namespace(s=[1]) %}{% for i in range(60) %}{% \
            set a.s = [a.s, a.s] %}{% set b.s = [b.s, b.s] %}{% endfor %}{{ a.s == b.s }}".into(),
        "{% set ns = namespace(s=(1,)) %}{% for i in range(60) %}{% set ns.s = (ns.s, ns.s) %}{% \
            endfor %}{{ {ns.s: 1} }}".into(),
        "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = ns.l + ['a' * \
            100000] %}{% endfor %}".into(),
        "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% for j in range(100000) %}{% \
            set ns.l = ns.l + [namespace(a='a' * 1000)] %}{% endfor %}{% endfor %}".into(),
        "{% for i in range(100000) %}{{ 'a' * 100000 }}{% endfor %}".into(),
        "{{ 'a' * 10000000000 }}".into(),
        "{{ [1] * 10000000000 }}".into(),
        "{{ 10000000000 * 'ab' }}".into(),
        "{{ 'a\nb' | indent(10000000000) }}".into(),
        "{{ '\n\n\n\n\n\n\n\n' | indent('a' * 20000000, true, true) }}".into(),
        "{{ '%10000000000d' | format(1) }}".into(),
        "{{ '%.10000000000f' % 1.0 }}".into(),
        "{{ '%*d' % (10000000000, 1) }}".into(),
        "{{ '%99999999999999999999999d' % 1 }}".into(),
        "{{ '{:>10000000000}'.format(1) }}".into(),
        "{{ '{:.100000}'.format(1.5) }}".into(),
        "{{ '{:{}}'.format('a', 10000000000) }}".into(),
        "{{ [1] | batch(10000000000, 0) | list }}".into(),
        "{{ [1] | slice(10000000000) | list }}".into(),
        "{{ 'a'.center(10000000000) }}".into(),
        "{{ 'a' | center(10000000000) }}".into(),
        "{{ 'a'.ljust(10000000000) }}".into(),
        "{{ 'a'.rjust(10000000000, 'é') }}".into(),
        "{{ 'a'.zfill(10000000000) }}".into(),
        "{{ '\t'.expandtabs(10000000000) }}".into(),
        "{{ [[[1]]] | tojson(indent=1000000000) }}".into(),
        "{{ [1, 2, 3, 4] | tojson(separators=('a' * 30000000, ':')) }}".into(),
        "{{ strftime_now('%9999999999Y') }}".into(),
        "{{ strftime_now('%B' * 1000000) }}".into(),
        "{{ range(10000000000) | list }}".into(),
        "{{ range(-170141183460469231731687303715884105728, \
            170141183460469231731687303715884105727) | list }}".into(),
        "{{ 10 ** 10 ** 10 }}".into(),
        "{{ 2 ** 127 * 2 }}".into(),
        // Deep nesting.
        "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% \
            endfor %}".into(),
        "{% set ns = namespace(l=()) %}{% for i in range(100000) %}{% set ns.l = (ns.l, 1) %}{% \
            endfor %}".into(),
        "{% set ns = namespace(l={}) %}{% for i in range(100000) %}{% set ns.l = {'a': ns.l} %}{% \
            endfor %}".into(),
        "{% set ns = namespace(l={}) %}{% for i in range(100000) %}{% set ns.l = dict(a=ns.l) %}{% \
            endfor %}".into(),
        "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] | \
            map('default') %}{% endfor %}".into(),
        "{% set ns = namespace() %}{% for i in range(100000) %}{% for x in [ns.l] %}{% set ns.l = \
            loop %}{% endfor %}{% endfor %}".into(),
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}".into(),
        "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a }}".into(),
        "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ '%s' % ns }}".into(),
        "{% set ns = namespace(l=0) %}{% for i in range(100000) %}{% set ns.l = namespace(l=ns.l) \
            %}{% endfor %}{{ ns.l }}".into(),
        format!("{{{{ {}1 }}}}", "not ".repeat(200_000)),
        format!("{{{{ {} }}}}", nested("(", ")", 100_000)),
        format!("{{{{ {} }}}}", nested("[", "]", 100_000)),
        format!("{{{{ {} }}}}", nested("{1:", "}", 100_000)),
        format!("{{{{ {} }}}}", nested("f(", ")", 100_000)),
        format!("{{{{ {} }}}}", nested("a[", "]", 100_000)),
        format!("{{{{ {} }}}}", nested("1 if 1 else ", "", 50_000)),
        format!("{{% set {} = 1 %}}", nested("(", ")", 100_000).replace('1', "a")),
        nested("{% if 1 %}", "{% endif %}", 50_000),
        nested("{% for x in [1] %}", "{% endfor %}", 20_000),
        nested("{% macro f() %}", "{% endmacro %}", 20_000),
        chain("|trim", 100_000),
        chain(".a", 100_000),
        chain(" if 1", 100_000),
        chain(" is defined", 50_000),
        "x".repeat(2_000_000),
    ];
    let input = Data::new();
    for template in &templates {
        let refused = render(template, &input);
        let shown: String = template.chars().take(150).collect();
        let error = refused.err().unwrap_or_else(|| panic!("it was rendered: {shown}"));
        assert!(!error.is_empty() && error.len() < 300, "{shown}: {error}");
    }
}

#[test]
fn long_chains_are_rendered() {
    let input = Data::new();
    let sum = format!("{{{{ 1{} }}}}", "+1".repeat(1_000));
    assert_eq!(render(&sum, &input).unwrap(), "1001");
    let texts = format!("{{{{ 'a'{} }}}}", " ~ 'a'".repeat(1_000));
    assert_eq!(render(&texts, &input).unwrap().len(), 1_001);
    let stripped = "{{ ('a' * 300000).strip('bcdefgh' * 10000 ~ 'a') }}x";
    assert_eq!(render(stripped, &input).unwrap(), "x");
}

#[test]
fn long_conversations_are_rendered() {
    let messages = |count: usize, content: &str| {
        let one = |at: usize| {
            let role = if at.is_multiple_of(2) { "user" } else { "assistant" };
            Value::from_pairs([("role", role), ("content", content)])
        };
        Data::from([("messages".to_string(), (0..count).map(one).collect())])
    };
    let plain = "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}{% endfor %}";
    // Copies everything written so far with every message, and visits all messages for each.
    let wasteful = "{% set ns = namespace(s='', last=0) %}{% for m in messages[::-1] %}{% if \
        m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in \
        messages %}{% for n in messages[:loop.index] if n.role == 'system' %}{% endfor %}{% set \
        ns.s = ns.s ~ '<|' ~ m.role ~ '|>' ~ m.content %}{% endfor %}{{ ns.s }}";
    for (count, content) in [
        (100, "x".repeat(100)),
        (1_000, "x".repeat(100)),
        (2, "x".repeat(1_000_000)),
        (3_000, "x".repeat(300)),
    ] {
        let input = messages(count, &content);
        let text = render(plain, &input).unwrap();
        assert!(text.len() > count * content.len());
        if count <= 100 {
            assert_eq!(render(wasteful, &input).unwrap(), text);
        }
    }
}

#[test]
fn variables_lists_the_names_a_template_reads() {
    let variables = |template: &str| Jinja::new(template).unwrap().variables().to_vec();
    assert_eq!(
        variables("{{ a }}{% set b = c %}{{ b }}{{ range(3) }}{{ namespace() }}"),
        ["a", "c"]
    );
    assert_eq!(variables("{% if x is not defined %}{% set x = 1 %}{% endif %}{{ x }}"), ["x"]);
    assert_eq!(
        variables("{% for m in ms %}{{ m }}{{ loop.index }}{% endfor %}{{ m }}"),
        ["m", "ms"]
    );
    assert_eq!(
        variables(
            "{% macro f(p, q=r) %}{{ p }}{{ q }}{{ s }}{{ varargs }}{% endmacro %}{{ f(1) }}"
        ),
        ["r", "s"]
    );
    assert_eq!(
        variables("{% set ns = namespace(v=w) %}{% set ns.v = ns.v %}{{ y | default(z) }}"),
        ["w", "y", "z"]
    );
}
