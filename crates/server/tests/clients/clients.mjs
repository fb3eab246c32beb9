// Runs OpenAI's official JavaScript client, with zod, and Vercel's AI SDK against our server: `node
// clients.mjs http://127.0.0.1:8000`, with the packages of package.json in a node_modules folder
// here or above. `.ci/run clients` installs them and runs this script.

import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, isStepCount, streamText, tool } from "ai";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const address = process.argv[2].replace(/\/$/, "");
const client = new OpenAI({ baseURL: `${address}/v1`, apiKey: "sesame", maxRetries: 0, timeout: 60_000 });
const model = (await client.models.list()).data[0].id;
const prompt = "Once upon a time";
const messages = [{ role: "user", content: "One day, a cat" }];
const Pet = z.object({ kind: z.enum(["cat", "dog", "frog"]), name: z.string().max(12), age: z.number().int().min(0).max(20) });
const Feed = z.object({ pet: z.enum(["cat", "dog"]), snacks: z.union([z.literal(1), z.literal(2)]) });
const tools = [zodFunction({ name: "feed", parameters: Feed }), zodFunction({ name: "pet", parameters: Pet })];
const warm = { max_tokens: 400, temperature: 1, seed: 4 };
const sdk = createOpenAICompatible({ name: "ours", baseURL: `${address}/v1`, apiKey: "sesame", supportsStructuredOutputs: true })(model);

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
    const { choices } = await client.chat.completions.parse({ model, messages, tools, tool_choice: "required", parallel_tool_calls: false, ...warm });
    assert.equal(choices[0].finish_reason, "tool_calls");
    for (const call of choices[0].message.tool_calls) {
      (call.function.name === "feed" ? Feed : Pet).parse(call.function.parsed_arguments);
    }
    const stream = client.chat.completions.stream({ model, messages, tools, tool_choice: "required", parallel_tool_calls: false, ...warm });
    const streamed = (await stream.finalChatCompletion()).choices[0].message.tool_calls;
    assert.deepEqual(streamed.map((call) => call.function.arguments), choices[0].message.tool_calls.map((call) => call.function.arguments));
  },
  async zod() {
    const parsed = await client.chat.completions.parse({ model, messages, response_format: zodResponseFormat(Pet, "pet"), ...warm });
    Pet.parse(parsed.choices[0].message.parsed);
  },
  async ai_sdk_object() {
    const { object } = await generateObject({ model: sdk, schema: Pet, prompt, maxOutputTokens: 400, temperature: 1, seed: 4 });
    Pet.parse(object);
  },
  async ai_sdk_tools() {
    const fed = [];
    const feed = tool({ description: "Feeds a pet", inputSchema: Feed, execute: async (input) => { fed.push(input); return "It ate."; } });
    const asked = { model: sdk, prompt, tools: { feed }, maxOutputTokens: 500, temperature: 1, seed: 4, stopWhen: isStepCount(2) };
    const { steps } = await generateText({ ...asked, toolChoice: { type: "tool", toolName: "feed" } });
    assert.equal(steps.length, 2); // the result goes back to the model
    fed.forEach((input) => Feed.parse(input));
    assert.equal(fed.length, 2);
    const streamed = await streamText({ ...asked, toolChoice: "required", stopWhen: isStepCount(1) }).toolCalls;
    assert.ok(streamed.length > 0);
    streamed.forEach((call) => Feed.parse(call.input));
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
