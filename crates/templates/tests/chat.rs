//! Tests of chats: templates against transformers' (`oracle/chat.py`), and a cache that
//! persists across turns.
//!
//! They run with the reference.

#![cfg(feature = "ref")]

use candecode::day07_greedy::argmax;
use candecode::day08_sampling::chacha_sampler;
use candecode::day10_kv_cache::{generate_cached, Cached, DynamicCache};
use candecode::kit::{Cache, FinishReason, Request};
use candecode::kit::{Model, ModelConfig, NoCache, Step, Tokenizer};
use candecode_engine::chat::{Chat, Message, Renderer, Turn};
use candecode_engine::load_model;
use candecode_engine::CacheConfig;
use candecode_templates::{date, setting, RenderOptions, Template};
use candecode_testing::{golden_json, oracle, refused, story, Folder, Random};
use candle_core::{DType, Device, Tensor};
use serde_json::{json, Map, Value};
use std::cell::Cell;

fn oracle_template(name: &str) -> Template {
    let path = oracle("templates").join(name).with_extension("jinja");
    let special = json!({"bos_token": "<s>", "eos_token": "</s>"}).as_object().unwrap().clone();
    Template::new(name, &std::fs::read_to_string(path).unwrap(), special).unwrap()
}

/// Returns the story models' tokenizer with the tokens that the oracle added.
fn oracle_tokenizer(test: &str, golden: &Value) -> Tokenizer {
    let text = std::fs::read_to_string(story("story-3m").join("tokenizer.json")).unwrap();
    let mut json: Value = serde_json::from_str(&text).unwrap();
    for token in golden["added"].as_array().unwrap() {
        let mut token = token.clone();
        token["normalized"] = json!(token["special"] != true);
        for key in ["single_word", "lstrip", "rstrip"] {
            token[key] = json!(false);
        }
        json["added_tokens"].as_array_mut().unwrap().push(token);
    }
    let folder = Folder::new(test);
    folder.write("tokenizer.json", json.to_string());
    candecode_formats::read_tokenizer(&folder.0).unwrap()
}

fn messages(history: &Value) -> Vec<Message> {
    let one = |message: &Value| {
        let role =
            ["system", "user", "assistant"].into_iter().find(|role| message["role"] == *role);
        Message::new(role.unwrap(), message["content"].as_str().unwrap())
    };
    history.as_array().unwrap().iter().map(one).collect()
}

#[test]
fn chat_templates_render_and_tokenize_like_transformers() {
    let golden = golden_json("chat");
    let tokenizer = oracle_tokenizer("chat-oracle", &golden);
    let cases = golden["cases"].as_array().unwrap();
    assert!(cases.len() > 100);
    for case in cases {
        let what =
            format!("{} {} {} {}", case["template"], case["history"], case["prompt"], case["set"]);
        let mut template = oracle_template(case["template"].as_str().unwrap());
        for (name, value) in case["set"].as_object().unwrap() {
            template.set(&format!("{name}={value}")).unwrap();
        }
        let messages = messages(&golden["histories"][case["history"].as_str().unwrap()]);
        let options =
            RenderOptions { add_generation_prompt: case["prompt"] == true, ..Default::default() };
        let text = template.apply(&messages, &options);
        if let Some(words) = case["refused"].as_str() {
            refused(text, &[words]);
            continue;
        }
        let text = text.unwrap();
        assert_eq!(text, case["text"].as_str().unwrap(), "{what}");
        assert_eq!(json!(tokenizer.encode_rendered(&text).unwrap()), case["ids"], "{what}");
    }
}

#[test]
fn tools_calls_results_and_thoughts_render_like_transformers() {
    let golden = golden_json("tools");
    let cases = golden["cases"].as_array().unwrap();
    assert!(cases.len() > 20);
    for case in cases {
        let name = case["template"].as_str().unwrap();
        let path = oracle("tool_templates").join(name).with_extension("jinja");
        let special = json!({"bos_token": "<s>", "eos_token": "</s>"}).as_object().unwrap().clone();
        let text = std::fs::read_to_string(path).unwrap();
        let template = Template::new(name, &text, special).unwrap();
        assert!(template.shows_tools());
        let mut messages = Vec::new();
        for message in golden["histories"][case["history"].as_str().unwrap()].as_array().unwrap() {
            let mut more = message.as_object().unwrap().clone();
            let (role, content) = (more.remove("role").unwrap(), more.remove("content").unwrap());
            let mut roles = ["user", "assistant", "tool"].into_iter();
            let role = roles.find(|known| role == **known).unwrap();
            messages.push(Message { more, ..Message::new(role, content.as_str().unwrap()) });
        }
        let tools = golden["tools"][case["tools"].as_str().unwrap()].as_array().unwrap().clone();
        let got = template.apply(&messages, &RenderOptions { tools, ..Default::default() });
        match case["refused"].as_str() {
            Some(words) => refused(got, &[words]),
            None => assert_eq!(got.unwrap(), case["text"].as_str().unwrap(), "{case}"),
        }
    }
}

#[test]
fn an_answer_is_continued_as_in_transformers() {
    let golden = golden_json("chat");
    let options = RenderOptions {
        add_generation_prompt: false,
        continue_final_message: true,
        ..Default::default()
    };
    let cases = golden["continued"].as_array().unwrap();
    assert!(cases.len() > 50);
    for case in cases {
        let count = case["messages"].as_u64().unwrap() as usize;
        let history = messages(&golden["histories"][case["history"].as_str().unwrap()]);
        let template = oracle_template(case["template"].as_str().unwrap());
        let text = template.apply(&history[..count], &options).ok();
        assert_eq!(text.as_deref(), case["text"].as_str(), "{case}");
    }
}

#[test]
fn the_token_the_template_puts_after_an_answer_ends_it() {
    let golden = golden_json("chat");
    let tokenizer = oracle_tokenizer("chat-ends", &golden);
    for (name, ends) in [
        ("chatml", Some("<|im_end|>")),
        ("markers", Some("</s>")),
        ("brackets", Some("</s>")),
        ("thinking", Some("<|im_end|>")),
        ("grammar", None), // text follows, and it may occur in any answer
    ] {
        let id = oracle_template(name).end_of_turn(&tokenizer);
        assert_eq!(id.and_then(|id| tokenizer.piece(id)).as_deref(), ends, "{name}");
    }
}

fn question() -> [Message; 1] {
    [Message::new("user", "Who?")]
}

#[test]
fn a_template_is_found_where_transformers_puts_it() {
    let folder = Folder::new("chat-find");
    let of = |asked: Option<&str>| {
        Template::choose("a-model", candecode_formats::chat_template(&folder.0)?, asked)
    };
    refused(
        of(None),
        &["a-model has no chat template", "cargo xtask run", "--template story", "--template FILE"],
    );
    folder.write(
        "tokenizer_config.json",
        json!({"eos_token": {"content": "<end>", "special": true}}).to_string(),
    );
    refused(of(None), &["has no chat template"]);
    let named = |name: &str| json!({"name": name, "template": format!("{name} {{{{ messages[0].content }}}}{{{{ eos_token }}}}")});
    let config = |chat: Value| {
        let text =
            json!({"eos_token": {"content": "<end>"}, "bos_token": null, "chat_template": chat});
        folder.write("tokenizer_config.json", text.to_string());
    };
    config(json!([named("tool_use"), named("default")]));
    assert_eq!(of(None).unwrap().render(&question()).unwrap(), "default Who?<end>");
    config(json!([named("tool_use"), named("rag")]));
    refused(of(None), &["named tool_use, rag", "none named default", "--template FILE"]);
    config(json!({"default": "object {{ messages[0].content }}", "tool_use": "x"}));
    assert_eq!(of(None).unwrap().render(&question()).unwrap(), "object Who?");
    let other = folder.write("other.jinja", "other {{ eos_token }}\n");
    let replaced = || of(other.to_str()).unwrap().render(&question()).unwrap();
    config(json!({"tool_use": "x"}));
    refused(of(None), &["named tool_use", "none named default", "--template FILE", "--raw"]);
    assert_eq!(replaced(), "other <end>");
    assert_eq!(of(Some("story")).unwrap().render(&question()).unwrap(), "Who?");
    config(json!(7));
    refused(of(None), &["chat_template: expected a text"]);
    assert_eq!(replaced(), "other <end>");
    for none in [json!(""), json!(" \n"), json!([]), json!({}), json!({"default": ""})] {
        config(none);
        refused(of(None), &["has no chat template"]);
    }
    config(json!("one {{ bos_token }}{{ messages[0].content }}"));
    assert_eq!(of(None).unwrap().render(&question()).unwrap(), "one Who?");
    folder.write("chat_template.jinja", "file {{ messages[0].content }}");
    assert_eq!(of(None).unwrap().render(&question()).unwrap(), "file Who?");
    assert_eq!(of(Some("story")).unwrap().render(&question()).unwrap(), "Who?");
    assert_eq!(replaced(), "other <end>");
    refused(of(Some("/nowhere.jinja")), &["--template /nowhere.jinja", "could not be read"]);
    folder.write("chat_template.jinja", b"\xff");
    refused(of(None), &["chat_template.jinja: not UTF-8"]);
    assert_eq!(replaced(), "other <end>");
    folder.write("chat_template.jinja", "one\n{% for x in %}");
    refused(
        of(None),
        &["the chat template (chat_template.jinja, line 2)", "unexpected end of block"],
    );
    folder.write("tokenizer_config.json", "{");
    refused(of(None), &["tokenizer_config.json: not JSON"]);
}

#[test]
fn a_template_accepts_only_the_variables_it_uses() {
    let mut template =
        Template::new("t", "{{ deep.a[1] }} {{ name }} {{ tools }}", Map::new()).unwrap();
    template.set("deep={\"a\": [1, 2]}").unwrap();
    template.set("name=x=y").unwrap();
    assert_eq!(template.render(&question()).unwrap(), "2 x=y None");
    refused(template.set("nam=x"), &["doesn't use nam", "it uses deep, name"]);
    refused(template.set("name"), &["expected NAME=VALUE"]);
    refused(oracle_template("chatml").set("x=1"), &["it uses no variables"]);
    let broken = Template::new("t", "a\n{{ nobody() }}", Map::new()).unwrap();
    refused(broken.render(&question()), &["the chat template (t, line 2)", "nobody"]);
}

#[test]
fn a_template_setting_is_json_a_python_literal_or_text() {
    let read = |text: &str| json!(setting(&format!("x={text}")).unwrap().1);
    for (text, value) in [
        ("true", json!(true)),
        ("True", json!(true)),
        ("False", json!(false)),
        ("None", Value::Null),
        ("null", Value::Null),
        ("2", json!(2)),
        ("{\"a\": [1]}", json!({"a": [1]})),
        ("high", json!("high")),
        ("\"False\"", json!("False")),
        ("", json!("")),
        ("a=b", json!("a=b")),
    ] {
        assert_eq!(read(text), value, "{text}");
    }
    refused(setting("x"), &["expected NAME=VALUE"]);
}

#[test]
fn the_date_can_be_set() {
    let mut template =
        Template::new("t", "{{ strftime_now('%d %B %Y, %A') }}", Map::new()).unwrap();
    template.date = Some(date("2026-01-31").unwrap());
    assert_eq!(template.render(&question()).unwrap(), "31 January 2026, Saturday");
    template.date = None;
    assert!(!template.render(&question()).unwrap().contains("1970"));
    for wrong in
        ["", "2026", "2026-02-29", "2026-13-01", "2026-01-31-02", "today", "-1-1-1", "0-1-1"]
    {
        refused(date(wrong), &["--template-date", "expected a day, as 2026-01-31"]);
    }
}

#[test]
fn tojson_keeps_the_order_of_keys() {
    let template = Template::new("t", "{{ messages | tojson }}{{ x | tojson }}", Map::new());
    let mut template = template.unwrap();
    template.set("x={\"b\": 1, \"a\": 2}").unwrap();
    let text = template.render(&question()).unwrap();
    assert_eq!(text, r#"[{"role": "user", "content": "Who?"}]{"b": 1, "a": 2}"#);
}

#[test]
fn template_errors_are_truncated_and_escaped() {
    let says = |text: &str| {
        let template = Template::new("t", text, Map::new()).and_then(|t| t.render(&question()));
        template.unwrap_err().to_string()
    };
    let text = says("{{ raise_exception('\\x1b[31mred' ~ 'a' * 5000) }}");
    assert!(text.starts_with("the chat template (t, line 1): \\u{1b}[31mred"), "{text}");
    assert!(text.chars().count() < 300, "{text}");
    assert!(!says("{% \u{1b} %}").contains('\u{1b}'));
}

#[test]
fn a_message_that_cannot_be_continued_is_refused_and_a_story_goes_on() {
    let begun = [Message::new("user", "Who?"), Message::new("assistant", "A cat, a ")];
    let open = RenderOptions {
        add_generation_prompt: false,
        continue_final_message: true,
        ..Default::default()
    };
    let loses = Template::new("t", "{{ messages[0].content }}", Map::new()).unwrap();
    refused(loses.apply(&begun, &open), &["changes or leaves out the last message"]);
    refused(loses.apply(&[], &open), &["no message to continue"]);
    let both = RenderOptions { continue_final_message: true, ..Default::default() };
    refused(loses.apply(&begun, &both), &["exclude each other"]);
    // The built-in template too, and with a new answer started.
    let story = story_template();
    assert_eq!(story.apply(&begun, &open).unwrap(), "Who?A cat, a ");
    assert_eq!(story.render(&begun).unwrap(), "Who?A cat, a ");
    assert_eq!(story.render(&begun[1..]).unwrap(), "A cat, a ");
}

#[test]
fn template_variables_apply_to_one_rendering_only() {
    let template = Template::new("t", "{{ mode }}{{ messages[0].content }}", Map::new()).unwrap();
    let with = |kwargs: Value| RenderOptions {
        kwargs: kwargs.as_object().unwrap().clone(),
        ..Default::default()
    };
    assert_eq!(template.apply(&question(), &with(json!({"mode": 3}))).unwrap(), "3Who?");
    assert_eq!(template.render(&question()).unwrap(), "Who?");
    assert_eq!(template.apply(&question(), &with(json!({"mod": 1}))).unwrap(), "Who?");
    for name in ["messages", "add_generation_prompt", "eos_token"] {
        let refusal = template.apply(&question(), &with(json!({name: 1})));
        refused(refusal, &["chat_template_kwargs", name]);
    }
}

/// A model that counts the positions it computes, independently of the chat's own count.
struct Counting(Box<dyn Model>, Cell<usize>);

impl Counting {
    fn new(name: &str) -> Self {
        Self(load_model(&story(name), DType::F32, &Device::Cpu).unwrap(), Cell::new(0))
    }
}

impl Model for Counting {
    fn config(&self) -> &ModelConfig {
        self.0.config()
    }

    fn device(&self) -> &Device {
        self.0.device()
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> candle_core::Result<Tensor> {
        self.1.set(self.1.get() + step.positions.dim(1)?);
        self.0.forward(step, cache)
    }
}

fn tokenizer() -> Tokenizer {
    candecode_formats::read_tokenizer(&story("story-3m")).unwrap()
}

fn template(text: &str) -> Template {
    let special = json!({"eos_token": "<|endoftext|>"}).as_object().unwrap().clone();
    Template::new("test", text, special).unwrap()
}

fn story_template() -> Template {
    let own = candecode_formats::chat_template(&story("story-230k")).unwrap();
    Template::choose("story-230k", own, None).unwrap()
}

/// A template with plain-text roles. EOS ends an answer.
const PLAIN: &str = "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ eos_token if m.role == \
    'assistant' }}\n{% endfor %}assistant:";

fn dynamic(model: &dyn Model) -> Cached<'_> {
    let layers = model.config().num_hidden_layers;
    Cached::new(model, Box::new(DynamicCache::new(layers)))
}

/// Returns the request for every answer. The chat fills in the prompt.
fn options<'a>(model: &dyn Model, new: usize) -> Request<'a> {
    Request::new(model.config(), &[], new, argmax)
}

fn say(chat: &mut Chat, line: &str, options: &mut Request) -> Turn {
    let prompt = chat.prompt(line, options.max_new_tokens).unwrap();
    chat.answer(prompt, options, |_| Ok(true)).unwrap()
}

#[test]
fn a_chat_turn_reuses_the_cache_of_earlier_turns() {
    let (model, tokenizer) = (Counting::new("story-230k"), tokenizer());
    let mut chat = Chat::new(dynamic(&model), &tokenizer, Box::new(template(PLAIN)), 512);
    let mut options = options(&model, 20);
    let (mut held, mut whole) = (0, 0);
    for line in ["One day a cat came.", "It was red.", "Then it rained. The cat went home."] {
        model.1.set(0);
        let turn = say(&mut chat, line, &mut options);
        assert_eq!(turn.computed, model.1.get(), "the chat counts what the model does");
        // Everything in the cache is still valid: the prompt, and the answer except for its last
        // token, which was never fed.
        assert_eq!(turn.reused, held, "{line}");
        assert_eq!(turn.computed, turn.prompt_tokens - held + turn.answer.len() - 1);
        held = turn.prompt_tokens + turn.answer.len() - 1;
        whole += turn.prompt_tokens + turn.answer.len() - 1;
    }
    assert!(
        held < whole,
        "without a cache kept, the three turns are {whole} positions, with it {held}"
    );
    chat.reset();
    let turn = say(&mut chat, "One day a cat came.", &mut options);
    assert_eq!(
        (turn.reused, turn.computed),
        (turn.prompt_tokens - 1, turn.answer.len()),
        "it begins with the same tokens"
    );
    chat.reset();
    assert_eq!(chat.messages().len(), 0);
    assert!(say(&mut chat, "Who?", &mut options).reused < turn.prompt_tokens - 1);
}

#[test]
fn every_answer_equals_one_from_a_fresh_cache() {
    let (model, tokenizer) = (Counting::new("story-230k"), tokenizer());
    let layers = model.config().num_hidden_layers;
    let templates = [
        PLAIN,
        // strips the model's answers
        "{% for m in messages %}{{ m.role }}: {{ m.content.strip() }}\n{% endfor %}",
        // no separator at all, so tokens merge across messages
        "{% for m in messages %}{{ m.content }}{% endfor %}",
        // removes everything before the last period from old answers, as reasoning is removed
        "{% for m in messages %}{{ m.role }}: {{ m.content if loop.last or m.role == 'user' else \
            m.content.split('.')[-1] }}\n{% endfor %}",
        // puts the last line first, so that no prefix stays the same
        "{{ messages[-1].content }}\n{% for m in messages[:-1] %}{{ m.content }}\n{% endfor %}",
    ];
    let lines = ["One day a cat came. ", " It was", "red", "", "naïve é 猫 ", "The end.\n\nNo"];
    let mut random = Random::new(5);
    let mut kept = 0;
    for (number, text) in templates.iter().enumerate() {
        // Running without a cache is slow, and the same for every template, so one is enough.
        let none = if number == 0 { &[None][..] } else { &[] };
        for kind in [Some(CacheConfig::Dynamic), Some(CacheConfig::Static(512))].iter().chain(none)
        {
            let kind = *kind;
            let new_cache = || -> Box<dyn Cache> {
                match kind {
                    Some(kind) => kind.new_cache(layers).unwrap(),
                    None => Box::new(NoCache),
                }
            };
            let mut chat = Chat::new(
                Cached::new(&model, new_cache()),
                &tokenizer,
                Box::new(template(text)),
                512,
            );
            for (turn, line) in lines.iter().enumerate() {
                let sampled = |seed: u64| {
                    let mut options = options(&model, 16);
                    if number % 2 == 0 {
                        options.sampler = chacha_sampler(seed, 0);
                    }
                    options.stop_strings = vec!["dog".into()];
                    options
                };
                let prompt = chat.prompt(line, 16).unwrap();
                let mut request = sampled(turn as u64);
                request.prompt = prompt.ids.clone();
                let cached = Cached::new(&model, new_cache());
                let fresh = generate_cached(cached, &tokenizer, request);
                let fresh: Vec<u32> = fresh.unwrap().map(|token| token.unwrap().id).collect();
                // Every third answer is stopped partway, as if by Ctrl-C.
                let stop = if turn % 3 == 1 { 1 + random.below(fresh.len()) } else { fresh.len() };
                let mut seen = 0;
                let on_token = |_: &_| {
                    seen += 1;
                    Ok(seen < stop)
                };
                let turn = chat.answer(prompt, &mut sampled(turn as u64), on_token).unwrap();
                assert_eq!(turn.answer, fresh[..stop], "{text:?} {kind:?} {line:?}");
                assert!(turn.reused == 0 || kind.is_some());
                kept += turn.reused;
            }
        }
    }
    assert!(kept > 500, "only {kept} positions were reused");
}

#[test]
fn a_failed_answer_leaves_the_chat_unchanged() {
    let (model, tokenizer) = (Counting::new("story-230k"), tokenizer());
    let mut chat = Chat::new(dynamic(&model), &tokenizer, Box::new(template(PLAIN)), 512);
    let mut options = options(&model, 12);
    say(&mut chat, "One day a cat came.", &mut options);
    let before = chat.messages().to_vec();
    let prompt = chat.prompt("It was red.", 12).unwrap();
    refused(
        chat.answer(prompt, &mut options, |_| anyhow::bail!("the screen broke")),
        &["the screen broke"],
    );
    assert_eq!(chat.messages(), before);
    let prompt = chat.prompt("It was red.", 12).unwrap();
    let request = Request { prompt: prompt.ids.clone(), ..self::options(&model, 12) };
    let fresh = generate_cached(dynamic(&model), &tokenizer, request);
    let fresh: Vec<u32> = fresh.unwrap().map(|token| token.unwrap().id).collect();
    let turn = chat.answer(prompt, &mut options, |_| Ok(true)).unwrap();
    // The model didn't fail, so the cache is still valid: it holds everything except the prompt's
    // last token.
    assert_eq!((turn.answer, turn.reused), (fresh, turn.prompt_tokens - 1));
}

#[test]
fn a_full_context_forgets_the_oldest_turns() {
    let (model, tokenizer) = (Counting::new("story-230k"), tokenizer());
    let mut chat = Chat::new(dynamic(&model), &tokenizer, Box::new(template(PLAIN)), 96);
    chat.set_system(Some("A story.")).unwrap();
    let (mut options, mut forgotten) = (options(&model, 16), 0);
    for number in 0..12 {
        let prompt = chat.prompt(&format!("This is line {number}."), 16).unwrap();
        assert!(prompt.ids.len() + 16 <= 96, "there is room for the answer");
        assert!(prompt.forgotten_turns == 0 || prompt.ids.len() <= 48, "seldom and many");
        forgotten += usize::from(prompt.forgotten_turns > 0);
        let text = tokenizer.decode(&prompt.ids).unwrap();
        assert!(text.starts_with("system:A story.\nuser:This is line"), "{text}");
        assert!(text.ends_with(&format!("user:This is line {number}.\nassistant:")), "{text}");
        let turn = chat.answer(prompt, &mut options, |_| Ok(true)).unwrap();
        assert!(turn.prompt_tokens + turn.answer.len() <= 96 && !turn.full);
    }
    assert!((2..8).contains(&forgotten), "{forgotten} of 12 turns forgot some");
    let before = chat.messages().to_vec();
    refused(
        chat.prompt(&"long ".repeat(100), 16).map(|_| ()),
        &["this line makes a conversation of", "room for 96", "shorten it"],
    );
    assert_eq!(chat.messages(), before, "a line that is refused changes nothing");
    // A line that leaves less room than the answer wants is answered until the room runs out.
    chat.reset();
    options.max_new_tokens = 400;
    let turn = say(&mut chat, &"cat ".repeat(60), &mut options);
    assert!(turn.full && turn.finish == Some(FinishReason::Length), "{turn:?}");
    assert_eq!(turn.prompt_tokens + turn.answer.len(), 96);
}

#[test]
fn the_story_template_renders_a_chat_as_one_story() {
    let (model, tokenizer) = (Counting::new("story-230k"), tokenizer());
    let story = story_template();
    assert_eq!(story.stops(), ["\n"]);
    assert_eq!(story.end_of_turn(&tokenizer), None);
    let answer = |content: &str, finish| Message { finish, ..Message::new("assistant", content) };
    let mut called = answer("", None);
    called.more.insert("tool_calls".into(), json!([{"function": {"name": "f"}}]));
    let text = story.render(&[
        Message::new("user", "A cat sat"),
        answer(" down.", Some(FinishReason::Stop)),
        Message::new("user", ""),
        answer("It slept.", Some(FinishReason::Eos)),
        Message::new("user", "A dog"),
        answer(" ran and", Some(FinishReason::Length)),
        Message::new("user", ""),
        answer(" ran", None),
        Message::new("user", "Then"),
        called,
        Message::new("tool", "it rained."),
    ]);
    let want = "A cat sat down.\nIt slept.<|endoftext|>A dog ran and ran\nThen it rained.";
    assert_eq!(text.unwrap(), want);
    let mut chat = Chat::new(dynamic(&model), &tokenizer, Box::new(story), 512);
    refused(chat.set_system(Some("Be brief.")), &["a story has no system prompt"]);
    refused(chat.prompt("", 9).map(|_| ()), &["nothing to continue from"]);
    let mut options = options(&model, 100);
    options.stop_strings = vec!["\n".into()];
    say(&mut chat, "Once upon a time", &mut options);
    assert!(!chat.messages()[1].content.contains('\n'));
}
