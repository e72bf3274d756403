// The run as the server tells it: a snapshot, then deltas. Keeps the state, and comes back after a break.

const RETRY = 2000;
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

/** Calls `changed(state)` after all news, and `linked(true or false)` when the line comes and goes. */
export function follow(url, changed, linked) {
  const source = new EventSource(url);
  let state = null;
  source.addEventListener("snapshot", (event) => {
    state = new RunState(JSON.parse(event.data));
    linked(true);
    changed(state);
  });
  source.addEventListener("delta", (event) => {
    if (state === null) return;
    state.apply(JSON.parse(event.data));
    changed(state);
  });
  source.addEventListener("error", () => {
    linked(false);
    // The browser tries again by itself unless it was refused.
    if (source.readyState === EventSource.CLOSED) setTimeout(() => follow(url, changed, linked), RETRY);
  });
}
