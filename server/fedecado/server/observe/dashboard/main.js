// Ties the feed to the page. Draws at most once per frame, however fast news come in.

import { follow } from "./feed.js";
import { Operator } from "./operate.js";
import { Plot } from "./plot.js";
import { WorkerTable } from "./table.js";
import { Windows } from "./windows.js";
import { bytes, number, span } from "./words.js";

const element = (id) => document.getElementById(id);
const scopes = element("scopes");
const COLOURS = ["--trace-1", "--trace-3", "--trace-2", "--trace-4"];
const traces = (...names) => names.map((name, i) => ({ name, colour: COLOURS[i % COLOURS.length] }));

const plot = (title, about, xLabel, scale, shown) => new Plot(scopes, { title, about, xLabel, scale, traces: shown });
const dashed = (name, colour) => ({ name, colour, dashed: true });

const quality = plot("Quality", "what the evaluators measure, by version", "version", "linear", traces("accuracy"));
const loss = plot("Loss", "on the test set, and on the clients' own data", "round", "log",
  traces("evaluated", "clients before", "clients after"));
const clock = plot("Simulated time", "against the time on the wall", "seconds", "linear", traces("simulated time"));
const windows = new Windows(scopes);
const flows = plot("Flows and rate", "imbalance and rate fall to zero at rest; flows stay", "round", "log",
  [...traces("imbalance ‖Σ I_i‖"), dashed("rate", "--trace-3"), ...traces("", "", "median ‖I_i‖", "max ‖I_i‖").slice(2)]);
const steps = plot("Steps", "the central solve's shortest step and the window it divides", "round", "log",
  [...traces("shortest Δt"), dashed("window T", "--trace-3")]);
const errors = plot("Truncation error", "the largest of an accepted step, and what a step may make", "round", "log",
  [...traces("error"), dashed("tolerance δ", "--trace-2")]);
const moves = plot("Centre", "how far each round moves x_c, root mean square", "round", "log",
  traces("‖x_c − x_c before‖"));
const table = new WorkerTable(element("table"), { filter: element("filter"), shown: element("shown") });

let state = null;
let due = false;

let following = false;
const operator = new Operator(() => {
  if (following) return;
  following = true;
  follow("events", { changed, linked, denied });
});
table.onDrop = (worker) => operator.drop(worker);
begin();

/** The coordinator may not be there yet, or not any more. */
function begin() {
  operator.begin().catch(() => { linked(false); setTimeout(begin, 1500); });
}

function changed(news) {
  state = news;
  if (!due) { due = true; requestAnimationFrame(render); }
}

function linked(up) {
  element("link").dataset.up = up ? "yes" : "no";
  setText(element("link"), up ? "connected" : "no connection; trying again");
}

function denied() {
  following = false;
  begin();
}

function render() {
  due = false;
  heading();
  operator.update(state.run, state.source);
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
  setText(element("phase"), run.phase);
  element("phase").dataset.phase = run.phase;
  element("progress").hidden = !run.open;
  if (run.open) {
    const [, have, need] = run.open;
    element("updates").max = Math.max(1, need);
    element("updates").value = have;
  }
  element("workers").hidden = state.source === "results" && !state.workers.size;
  if (state.source === "results") setText(element("link"), "a run that is over");
}

function facts() {
  const { run, rounds } = state;
  const last = rounds[rounds.length - 1];
  const latest = [...state.measured.values()].pop() ?? {};
  const live = state.source === "live";
  const shown = {
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
  const reason = state.source === "live" ? "no round has closed yet" : "these results hold no windows of single clients";
  windows.show(state.windows, run.rho, circuit, reason);
  flows.show([each("imbalance"), each("rate"), each("flow_median"), each("flow_max")]);
  moves.show([each("central_change")]);
  steps.show([each("shortest_step"), each("window")]);
  const limits = circuit && rounds.length ? rounds.map((round) => [round.number, run.tolerance]) : [];
  errors.show([each("truncation_error"), limits]);
  clock.show([rounds.map((round) => [round.clock, round.time])]);
}

function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}
