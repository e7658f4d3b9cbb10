// node turn.mjs URL BINDING VERSION TEXT OPTION, the token on stdin
// One turn of the official JavaScript client: sends TEXT, answers the question that comes by its id, follows the rest.
// Prints one JSON line: the question's action and the task as it ended.
import { readFileSync } from 'node:fs';
import crypto from 'node:crypto';
import { Role, SendMessageRequest, taskStateToJSON } from '@a2a-js/sdk';
import { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';

const [url, binding, version, text, option] = process.argv.slice(2);
const token = readFileSync(0, 'utf8').trim();
const options = { serviceParameters: { Authorization: `Bearer ${token}` } };
const legacy = { legacyCompat: { enabled: version === '0.3' } };
const transports = { JSONRPC: JsonRpcTransportFactory, 'HTTP+JSON': RestTransportFactory, GRPC: GrpcTransportFactory };

async function connect() {
  const card = await new DefaultAgentCardResolver(legacy).resolve(url);
  const interfaces = card.supportedInterfaces.filter((each) => each.protocolVersion === version);
  const factory = new ClientFactory({ transports: [new transports[binding](legacy)], preferredTransports: [binding] });
  return factory.createFromAgentCard({ ...card, supportedInterfaces: interfaces });
}

function request(parts, task) {
  const ids = task ? { taskId: task.id, contextId: task.contextId } : {};
  const message = { messageId: crypto.randomUUID(), role: 'ROLE_USER', parts, ...ids };
  return SendMessageRequest.fromJSON({ message });
}

function questionOf(task) {
  const data = task.status.message.parts.map((part) => part.content).find((content) => content.$case === 'data');
  return data.value;
}

function textOf(task, name) {
  const artifact = task.artifacts.find((each) => each.artifactId === name);
  return artifact ? artifact.parts.map((part) => part.content.value).join('') : '';
}

const client = await connect();
const asked = await client.sendMessage(request([{ text }]), options);
const task = asked.payload?.value ?? asked;
const question = questionOf(task);
const answer = request([{ data: { questionId: question.questionId, optionId: option } }], task);
let events = 0;
for await (const event of client.sendMessageStream(answer, options)) events += event.payload ? 1 : 0;
const done = await client.getTask({ id: task.id, tenant: '' }, options);
const states = [task, done].map((each) => taskStateToJSON(each.status.state));
console.log(JSON.stringify({ states, action: question.action, events, text: textOf(done, 'response') }));
process.exit(0);
