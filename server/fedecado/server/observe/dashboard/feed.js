// The run as the server tells it: a snapshot, then deltas. Keeps the state, and comes back after a break.

import { headers } from "./access.js";

const RETRY = 1500;
const HISTORY = 5000; // rounds kept by a page that stays open for days

/** Everything the page knows. `rounds` are in order; `workers` and `measured` are keyed. */
export class RunState {
  constructor(snapshot) {
    this.source = snapshot.source;
    this.run = snapshot.run;
    this.rounds = [];
    this.measured = new Map();
    this.workers = new Map();
    this.windows = null;
    this.apply(snapshot);
  }

  /** Take in a snapshot or a delta; parts that are absent have not changed. */
  apply(news) {
    this.skew = news.now * 1000 - Date.now();
    if (news.run) this.run = news.run;
    const last = this.rounds.length ? this.rounds[this.rounds.length - 1].number : 0;
    for (const round of news.rounds ?? []) if (round.number > last) this.rounds.push(round);
    if (this.rounds.length > HISTORY) this.rounds.splice(0, this.rounds.length - HISTORY);
    for (const { version, metrics } of news.measurements ?? []) this.measured.set(version, metrics);
    while (this.measured.size > HISTORY) this.measured.delete(this.measured.keys().next().value);
    for (const worker of news.workers ?? []) this.workers.set(worker.id, worker);
    if (news.windows) this.windows = news.windows;
  }

  /** Seconds since the run started, by the server's clock. */
  elapsed() {
    return (Date.now() + this.skew) / 1000 - this.run.started;
  }
}

/**
 * Follow a stream for ever. Calls `changed(state)` after all news, `linked(true or false)` when the line comes and
 * goes, and `denied()` once if it is not shown any more. Not an EventSource: that can send no token.
 */
export async function follow(url, { changed, linked, denied }) {
  for (;;) {
    try {
      const answer = await fetch(url, { headers: headers(), cache: "no-store" });
      if (answer.status === 401) { denied(); return; }
      if (answer.ok) await read(answer.body, linked, changed);
    } catch {
      // The line broke; the next turn tries again.
    }
    linked(false);
    await new Promise((resolve) => { setTimeout(resolve, RETRY); });
  }
}

async function read(body, linked, changed) {
  let state = null;
  for await (const { kind, data } of events(body)) {
    if (kind === "snapshot") { state = new RunState(JSON.parse(data)); linked(true); }
    else if (kind === "delta" && state) state.apply(JSON.parse(data));
    else continue;
    changed(state);
  }
}

/** Server-sent events out of a body, as { kind, data }. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    parts.push(value);
    if (!value.includes("\n\n") && !(value.startsWith("\n") && parts.length > 1)) continue;
    const blocks = parts.join("").split("\n\n");
    parts = [blocks.pop()];
    for (const block of blocks) {
      const field = (name) => block.split("\n").find((line) => line.startsWith(name))?.slice(name.length);
      yield { kind: field("event: "), data: field("data: ") };
    }
  }
}
