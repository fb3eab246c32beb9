//! Compares chat templates with Jinja2 as transformers configures it (`oracle/jinja.py`), and
//! tests malicious templates.

use candecode_templates::jinja::{message, Jinja};
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
            (Err(_), text) if text.is_none() || case.group != "rewritten tags" => {}
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

/// A namespace `ns` with a first value, and a loop that sets its `s` to an expression of it.
fn grows(first: &str, next: &str, times: usize) -> String {
    format!(
        "{{% set ns = namespace(s={first}) %}}{{% for i in range({times}) %}}{{% set ns.s = {next} %}}\
         {{% endfor %}}"
    )
}

#[test]
fn a_malicious_template_is_an_error() {
    let nested =
        |open: &str, close: &str, times: usize| open.repeat(times) + "1" + &close.repeat(times);
    let shown = |expression: String| format!("{{{{ {expression} }}}}");
    let chain = |part: &str, times: usize| shown(format!("1{}", part.repeat(times)));
    let long = |then: &str| format!("{{% set s = 'a' * 3000000 %}}{then}");
    let twice = |then: &str| {
        format!("{{% for a in range(100000) %}}{{% for b in range(100000) %}}{then}{{% endfor %}}{{% endfor %}}")
    };
    let endless = [
        twice("{{ 'x' }}"),
        twice("{% macro f() %}{% endmacro %}"),
        "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}".into(),
        "{% macro f(x) %}{% call f(x) %}{{ caller() }}{% endcall %}{% endmacro %}{{ f(1) }}".into(),
        "{% for x in [1] recursive %}{{ loop([1, 1]) }}{{ loop([1, 1]) }}{% endfor %}".into(),
        "{% set l = range(100000) | list %}{% for i in range(100000) %}{{ -1 in l }}{% endfor %}"
            .into(),
        long("{% for i in range(100000) %}{{ s.find('b') }}{% endfor %}"),
        long("{{ ([s] * 100000) | unique | list | length }}"),
        long("{{ ([s] * 100000) | sort | length }}"),
        long("{{ ([s] * 100000) | max | length }}"),
        shown(format!("f({})", (0..100_000).map(|i| format!("a{i}=1,")).collect::<String>())),
    ];
    let huge = [
        grows("'aaaaaaaa'", "ns.s ~ ns.s", 60),
        grows("['a']", "ns.s + ns.s", 60),
        grows("('a',)", "ns.s * 2", 60),
        grows("'a'", "ns.s.replace('a', 'aa')", 60),
        grows("'a'", "[ns.s, ns.s] | join", 60),
        grows("'\"'", "ns.s | tojson", 60),
        grows("{'a': 1}", "{'a': ns.s, 'b': ns.s}", 60) + "{{ ns.s }}",
        grows("[1]", "[ns.s, ns.s]", 60) + "{{ ns.s | tojson }}",
        "{% set a = [1] * 1000 %}{% set b = [a] * 1000 %}{% set c = [b] * 1000 %}\
            {{ ([c] * 1000) | tojson }}".into(),
        "{% set a = namespace(s=[1]) %}{% set b = namespace(s=[1]) %}{% for i in range(60) %}{% set \
            a.s = [a.s, a.s] %}{% set b.s = [b.s, b.s] %}{% endfor %}{{ a.s == b.s }}".into(),
        grows("[]", "ns.s + ['a' * 100000]", 100_000),
        shown("'a' * 10000000000".into()),
        shown("[1] * 10000000000".into()),
        shown("'%10000000000d' | format(1)".into()),
        shown("'{:>10000000000}'.format(1)".into()),
        shown("('{:>1000000}' * 1000).format(1)".into()),
        shown("'a\nb' | indent(10000000000)".into()),
        shown("[[[1]]] | tojson(indent=1000000000)".into()),
        shown("[1, 2, 3, 4] | tojson(separators=('a' * 30000000, ':'))".into()),
        shown("strftime_now('%9999999999Y')".into()),
        shown("strftime_now('%B' * 1000000)".into()),
        shown("range(10000000000) | list".into()),
        shown("10 ** 10 ** 10".into()),
    ];
    let deep = [
        grows("[]", "[ns.s]", 100_000),
        grows("()", "(ns.s, 1)", 100_000),
        grows("{}", "{'a': ns.s}", 100_000),
        grows("[]", "[ns.s] | map('default')", 100_000),
        grows("0", "namespace(s=ns.s)", 100_000),
        grows("0", "[ns]", 1),
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}".into(),
        "{% set ns = namespace() %}{% for x in [1] %}{% set ns.l = loop %}{% endfor %}".into(),
        shown("not ".repeat(200_000) + "1"),
        shown(nested("(", ")", 100_000)),
        shown(nested("[", "]", 100_000)),
        shown(nested("{1:", "}", 100_000)),
        shown(nested("f(", ")", 100_000)),
        shown(nested("1 if 1 else ", "", 50_000)),
        nested("{% if 1 %}", "{% endif %}", 50_000),
        nested("{% for x in [1] %}", "{% endfor %}", 20_000),
        nested("{% macro f() %}", "{% endmacro %}", 20_000),
        chain("|trim", 100_000),
        chain(".a", 100_000),
        chain(" is defined", 50_000),
        "x".repeat(2_000_000),
    ];
    let input = Data::new();
    for template in endless.iter().chain(&huge).chain(&deep) {
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
