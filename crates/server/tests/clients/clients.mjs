// Runs OpenAI's official JavaScript client against our server: `node clients.mjs
// http://127.0.0.1:8000`, with `openai` in a node_modules folder here or above. `.ci/run clients`
// installs it and runs this script.

import assert from "node:assert/strict";
import OpenAI from "openai";

const address = process.argv[2].replace(/\/$/, "");
const client = new OpenAI({ baseURL: `${address}/v1`, apiKey: "sesame", maxRetries: 0, timeout: 60_000 });
const model = (await client.models.list()).data[0].id;
const prompt = "Once upon a time";
const messages = [{ role: "user", content: "One day, a cat" }];
const tools = [{ type: "function", function: { name: "f", parameters: { type: "object", properties: {} } } }];

const completion = (more) => client.completions.create({ model, prompt, max_tokens: 24, temperature: 0, ...more });
const chat = (more) => client.chat.completions.create({ model, messages, max_tokens: 16, temperature: 0, ...more });
const text = async (more) => (await completion(more)).choices[0].text;
const refused = async (call, check) => {
  const error = await call.then(() => null, (error) => error);
  assert.ok(error instanceof OpenAI.BadRequestError, `a BadRequestError was expected, not ${error}`);
  check(error);
};

const checks = {
  async models() {
    assert.equal((await client.models.retrieve(model)).id, model);
  },
  async stream() {
    let said = "", last;
    for await (const event of await completion({ stream: true })) {
      said += event.choices[0].text;
      last = event.choices[0];
    }
    assert.equal(said, await text());
    assert.deepEqual([last.text, last.finish_reason], ["", "length"]);
  },
  async chat_stream() {
    const events = [];
    for await (const event of await chat({ stream: true })) events.push(event.choices[0]);
    const whole = (await chat()).choices[0];
    assert.equal(events.map((one) => one.delta.content ?? "").join(""), whole.message.content);
    assert.deepEqual([events.at(-1).delta, events.at(-1).finish_reason], [{}, whole.finish_reason]);
    assert.equal(whole.message.refusal, null);
  },
  async seeds() {
    const texts = new Set();
    for (let i = 0; i < 4; i++) texts.add(await text({ seed: -1, temperature: 1 }));
    assert.ok(texts.size > 1);
    assert.equal(await text({ seed: 7, temperature: 1 }), await text({ seed: 7, temperature: 1 }));
  },
  async rules_for_tokens() {
    assert.ok([" red", " blue"].includes(await text({ guided_choice: [" red", " blue"] })));
    const ended = await completion({ logit_bias: { 300: 100 }, stop_token_ids: [300], min_tokens: 3 });
    assert.deepEqual([ended.usage.completion_tokens, ended.choices[0].finish_reason], [4, "stop"]);
    assert.equal(await text({ echo: true }), prompt + (await text()));
    assert.equal((await completion({ n: 2, best_of: 2, temperature: 1 })).choices.length, 2);
  },
  async tools() {
    assert.ok((await chat({ tools, tool_choice: "none" })).choices[0].message.content);
    await refused(chat({ tools }), (error) => assert.equal(error.param, "tools"));
  },
  async too_long() {
    const long = [{ role: "user", content: "once upon a time ".repeat(400) }];
    await refused(chat({ messages: long }), (error) => {
      assert.equal(error.code, "context_length_exceeded");
      assert.match(error.message, /maximum context length is \d+ tokens/);
    });
  },
  async request_id() {
    assert.match((await chat())._request_id, /^req_/);
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok      javascript_${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  javascript_${name}: ${error.message}`);
  }
}
console.log(`test result: ${Object.keys(checks).length - failed} passed; ${failed} failed;`);
process.exit(failed ? 1 : 0);
