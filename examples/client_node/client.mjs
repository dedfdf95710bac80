// A Tyrum chat client in one file. It sends a message, shows the turn as it happens, asks about approvals and
// survives a lost connection. The guide that explains it is docs/guides/chat-client.md.
//
//   node client.mjs TEXT [CONVERSATION]
//
// TYRUM_STATE_DIR names the gateway's state directory, TYRUM_PROTOS what `tyrum proto export` wrote.
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const stateDir = process.env.TYRUM_STATE_DIR;
const protos = process.env.TYRUM_PROTOS ?? "protos";
const reconnectFor = 60_000;

// --- load
const definition = loader.loadSync(["tyrum/chat/v1/chat.proto", "tyrum/approval/v1/approval.proto"], {
  includeDirs: [protos],
  keepCase: true, // field names as in the contracts
  longs: Number, // sequences fit
  enums: String,
  defaults: true,
  oneofs: true, // message.item and event.payload name the member that is set
});
const { tyrum } = grpc.loadPackageDefinition(definition);
// --- connect
function connect() {
  const { address } = JSON.parse(readFileSync(`${stateDir}/gateway.json`, "utf8"));
  const plain = grpc.credentials.createInsecure(); // a socket of this machine
  const options = { "grpc.default_authority": "localhost", "grpc.use_local_subchannel_pool": 1 };
  const token = readFileSync(`${stateDir}/operator.token`, "utf8").trim();
  const metadata = new grpc.Metadata();
  metadata.set("authorization", `Bearer ${token}`);
  return {
    metadata,
    chat: new tyrum.chat.v1.ChatService(address, plain, options),
    approvals: new tyrum.approval.v1.ApprovalService(address, plain, options),
    close() {
      this.chat.close();
      this.approvals.close();
    },
  };
}
// --- call
// Both calls that are made here are idempotent, so a lost connection is no reason to give up.
async function call(service, method, request) {
  for (const patience = Date.now() + reconnectFor; ; await sleep(250)) {
    let gateway;
    try {
      gateway = connect();
      const options = { deadline: Date.now() + 15_000 };
      return await new Promise((resolve, reject) => {
        gateway[service][method](request, gateway.metadata, options, (error, response) =>
          error ? reject(error) : resolve(response),
        );
      });
    } catch (error) {
      if (!lost(error) || Date.now() > patience) throw error;
    } finally {
      gateway?.close();
    }
  }
}

function lost(error) {
  return error.code === grpc.status.UNAVAILABLE || error.code === "ENOENT"; // no gateway.json between two starts
}
// --- show
// What is shown of an attempt is always a prefix of its text: what does not continue it is held back, and the
// durable assistant_message completes it.
let shown = { key: "", bytes: Buffer.alloc(0) };

function showText({ step, attempt, offset = 0, text }) {
  const key = `${step}/${attempt}`;
  if (key !== shown.key) shown = { key, bytes: Buffer.alloc(0) };
  const data = Buffer.from(text);
  if (offset > shown.bytes.length || offset + data.length <= shown.bytes.length) return;
  const fresh = data.subarray(shown.bytes.length - offset);
  shown.bytes = Buffer.concat([shown.bytes, fresh]);
  process.stdout.write(safe(fresh.toString()));
}

// Text from models and commands must never steer the terminal.
function safe(text) {
  return text.replace(/[^\P{C}\n\t]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

function notice(text) {
  console.log(safe(`\n[${text}]`));
}

function showEvent(event) {
  const payload = event[event.payload];
  switch (event.payload) {
    case "assistant_message":
      return showText(payload);
    case "tool_call_proposed":
      return notice(`${payload.tool} proposed: ${payload.arguments_json}`);
    case "tool_call_decided":
      return notice(`decided: ${payload.decision} by ${payload.rule_id}`);
    case "tool_call_started":
      return notice("running");
    case "tool_call_finished":
      return notice(`finished: ${payload.state}`);
    case "turn_finished":
      return notice(`turn ${payload.state} ${payload.reason}`.trim());
  }
}
// --- approve
const lines = createInterface({ input: process.stdin });
const answers = lines[Symbol.asyncIterator]();

async function answer(approval_id) {
  const { approval } = await call("approvals", "GetApproval", { approval_id });
  if (approval.outcome !== "APPROVAL_OUTCOME_UNSPECIFIED") return; // answered meanwhile
  console.log(safe(`\n${approval.summary}`));
  console.log(`Approve ${approval.digest}? y, or a reason to deny:`);
  const { value, done } = await answers.next();
  if (done) return; // nobody here: it stays in the approvals inbox
  const yes = value.trim() === "y";
  await call("approvals", "ResolveApproval", {
    approval_id,
    answer: yes ? "ANSWER_APPROVE" : "ANSWER_DENY",
    digest: approval.digest, // of what was shown, nothing else
    reason: yes ? "" : value.trim(),
  });
}
// --- send
async function turn(text, conversation_id) {
  // Sending again under the same request id joins the same turn: nothing is ever sent twice.
  const request = { conversation_id, request_id: randomUUID(), text };
  const seen = { conversation_id, turn_id: "", sequence: 0 };
  let patience = Date.now() + reconnectFor;
  for (;;) {
    let gateway, stream;
    try {
      gateway = connect(); // again each time: a new start may have a new address
      stream = seen.turn_id
        ? gateway.chat.Watch(
            { conversation_id: seen.conversation_id, after_sequence: seen.sequence },
            gateway.metadata,
          )
        : gateway.chat.SendMessage(request, gateway.metadata);
      stream.on("error", () => {}); // the loop below throws it; cancelling raises one more
      for await (const { items } of stream) {
        patience = Date.now() + reconnectFor;
        if (items.some((item) => take(item, seen))) return seen;
      }
    } catch (error) {
      if (!lost(error) || !seen.turn_id || Date.now() > patience) throw error;
      console.error("connection lost; reconnecting");
    } finally {
      stream?.cancel(); // Watch never ends by itself
      gateway?.close();
    }
    await sleep(250);
  }
}
// --- watch
// Returns true when the turn rests. Events come once and in order; `sequence` is where to resume.
function take(message, seen) {
  const item = message[message.item];
  if (message.item === "accepted") {
    Object.assign(seen, item);
    return false;
  }
  if (message.item === "event") seen.sequence = item.sequence;
  if (item.turn_id !== seen.turn_id) return false;
  if (message.item === "delta" || message.item === "partial") showText(item);
  if (message.item !== "event") return false;
  showEvent(item);
  if (item.payload === "approval_requested") {
    answer(item.approval_requested.approval_id).catch((error) => console.error(`error: ${error.details}`));
  }
  return item.payload === "turn_finished";
}
// --- main
const [text, conversation = ""] = process.argv.slice(2);
if (!text || !stateDir) {
  console.error("usage: TYRUM_STATE_DIR=DIR node client.mjs TEXT [CONVERSATION]");
  process.exit(2);
}
try {
  const { conversation_id, sequence } = await turn(text, conversation);
  console.log(`conversation ${conversation_id}, sequence ${sequence}`);
} catch (error) {
  console.error(`error: ${error.details ?? error.message}`);
  process.exitCode = 1;
}
lines.close();
