// Ties the feed to the page. Draws at most once per frame, however fast news come in.

import { follow } from "./feed.js";
import { Plot } from "./plot.js";
import { WorkerTable } from "./table.js";
import { Windows } from "./windows.js";
import { bytes, number, span } from "./words.js";

const element = (id) => document.getElementById(id);
const scopes = element("scopes");
const COLOURS = ["--trace-1", "--trace-3", "--trace-2", "--trace-4"];
const traces = (...names) => names.map((name, i) => ({ name, colour: COLOURS[i % COLOURS.length] }));

const quality = new Plot(scopes, {
  title: "Quality",
  about: "what the evaluators measure, by version",
  xLabel: "version",
  scale: "linear",
  traces: traces("accuracy"),
});
const loss = new Plot(scopes, {
  title: "Loss",
  about: "on the test set, and on the clients' own data before and after their windows",
  xLabel: "round",
  scale: "log",
  traces: traces("evaluated", "clients before", "clients after"),
});
const windows = new Windows(scopes);
const flows = new Plot(scopes, {
  title: "Flows and rate",
  about: "both fall to zero as the circuit comes to rest",
  xLabel: "round",
  scale: "log",
  traces: [...traces("imbalance ‖Σ I_i‖"), { name: "rate ‖dx_c/dt‖", colour: "--trace-3", dashed: true }],
});
const steps = new Plot(scopes, {
  title: "Steps",
  about: "the central solve's shortest step and the window it divides",
  xLabel: "round",
  scale: "log",
  traces: [...traces("shortest Δt"), { name: "window T", colour: "--trace-3", dashed: true }],
});
const errors = new Plot(scopes, {
  title: "Truncation error",
  about: "the largest of an accepted step, and what a step may make",
  xLabel: "round",
  scale: "log",
  traces: [...traces("error"), { name: "tolerance δ", colour: "--trace-2", dashed: true }],
});
const clock = new Plot(scopes, {
  title: "Simulated time",
  about: "against the time on the wall",
  xLabel: "seconds",
  scale: "linear",
  traces: traces("simulated time"),
});
const table = new WorkerTable(element("table"), { filter: element("filter"), shown: element("shown") });

let state = null;
let due = false;

follow(
  "events",
  (news) => {
    state = news;
    if (!due) { due = true; requestAnimationFrame(render); }
  },
  (up) => {
    element("link").dataset.up = up ? "yes" : "no";
    setText(element("link"), up ? "connected" : "no connection; trying again");
  },
);

function render() {
  due = false;
  heading();
  facts();
  plots();
  table.show([...state.workers.values()], (Date.now() + state.skew) / 1000);
}

function heading() {
  const { run } = state;
  document.title = `${run.name} · fedecado`;
  setText(element("name"), run.name);
  const parts = [run.algorithm, run.mode, run.parameters ? `${run.parameters} parameters` : "", run.software];
  setText(element("about"), parts.filter(Boolean).join(" · "));
  setText(element("waiting"), run.waiting_for);
  // Results say nothing about single workers.
  element("workers").hidden = state.source === "results";
  if (state.source === "results") setText(element("link"), "a run that is over");
}

function facts() {
  const { run, rounds } = state;
  const last = rounds[rounds.length - 1];
  const latest = [...state.measured.values()].pop() ?? {};
  const live = state.source === "live";
  const shown = {
    phase: run.phase,
    round: run.rounds_total ? `${run.version} of ${run.rounds_total}` : String(run.version),
    ...(run.open ? { "updates in": `${run.open[1]} of ${run.open[2]}` } : {}),
    ...Object.fromEntries(Object.entries(latest).slice(0, 4).map(([name, value]) => [name, number(value)])),
    "simulated time": number(run.simulated_time),
    "last round": last ? span(last.seconds) : "–",
    workers: live ? `${run.connected} of ${run.enrolled}` : number(run.enrolled),
    updates: run.refused ? `${run.accepted}, ${run.refused} refused` : number(run.accepted),
    ...(live ? { sent: bytes(run.bytes_sent), received: bytes(run.bytes_received) } : {}),
    ...(live && run.phase !== "finished" ? { running: span(state.elapsed()) } : {}),
  };
  const list = element("facts");
  const names = Object.keys(shown);
  if (list.dataset.names !== names.join("|")) {
    list.dataset.names = names.join("|");
    list.replaceChildren(...names.map((name) => {
      const box = document.createElement("div");
      const term = document.createElement("dt");
      term.textContent = name;
      box.append(term, document.createElement("dd"));
      return box;
    }));
  }
  names.forEach((name, i) => setText(list.children[i].lastChild, shown[name]));
}

function plots() {
  const { rounds, run } = state;
  const measured = [...state.measured].sort(([a], [b]) => a - b);
  const names = [...new Set(measured.flatMap(([, metrics]) => Object.keys(metrics)))].filter((n) => n !== "loss");
  const each = (key) => rounds.map((round) => [round.number, round[key]]);
  const metric = (name) => measured.map(([version, metrics]) => [version, metrics[name]]);
  quality.setTraces(traces(...(names.length ? names.slice(0, 4) : ["accuracy"])));
  quality.show(names.length ? names.slice(0, 4).map(metric) : [[]]);
  loss.show([metric("loss"), each("loss_before"), each("loss_after")]);
  const circuit = run.tolerance !== null;
  const reason = state.source === "live" ? "no round has closed yet" : "results hold no windows of single clients";
  windows.show(state.windows, run.rho, circuit, reason);
  flows.show([each("imbalance"), each("rate")]);
  steps.show([each("shortest_step"), each("window")]);
  const limits = circuit && rounds.length ? rounds.map((round) => [round.number, run.tolerance]) : [];
  errors.show([each("truncation_error"), limits]);
  clock.show([rounds.map((round) => [round.clock, round.time])]);
}

function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}
