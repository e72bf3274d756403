// Buttons for operators: the token's dialog, pause, stop, and dropping workers, each asked about first.

import { act, forget, remember, rights } from "./access.js";

const element = (id) => document.getElementById(id);

export class Operator {
  /** `ready` is called whenever this page may look at the run, again after a new token. */
  constructor(ready) {
    this.ready = ready;
    this.may = { view: false, operate: false, operable: false };
    element("unlock").addEventListener("click", () => this.ask());
    element("lock").addEventListener("click", () => { forget(); this.begin(); });
    element("pause").addEventListener("click", () => this.perform(this.paused ? "resume" : "pause"));
    element("stop").addEventListener("click", () => this.stop());
    element("login-cancel").addEventListener("click", () => element("login").close());
    element("login").querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.login();
    });
  }

  /** Find out what this page may do; ask for the token if it may not even look. */
  async begin() {
    let may = await rights();
    if (may.wait) { forget(); may = await rights(); }
    this.may = may;
    this.show();
    if (may.view) this.ready();
    else if (may.operable) this.ask("This run is shown to its operators only.");
    else element("waiting").textContent = "this run is not shown to everyone, and no token is set; see docs/observing.md";
  }

  ask(why) {
    if (why) element("login-why").textContent = why;
    element("login-error").textContent = "";
    element("token").value = "";
    element("login").showModal();
  }

  async login() {
    remember(element("token").value.trim());
    const may = await rights();
    if (may.operate) {
      element("login").close();
      this.may = may;
      this.show();
      this.ready();
      return;
    }
    forget();
    element("login-error").textContent = may.wait ?? "That is not the token.";
    element("token").select();
  }

  /** The run has changed. */
  update(run, source) {
    this.paused = run.phase === "paused";
    this.over = source !== "live" || run.phase === "finished" || run.phase === "stopping";
    this.show();
  }

  show() {
    const { operate, operable } = this.may;
    const acting = operate && !this.over;
    element("pause").hidden = element("stop").hidden = !acting;
    element("pause").textContent = this.paused ? "Resume" : "Pause";
    element("unlock").hidden = operate || !operable || this.over;
    element("lock").hidden = !operate;
    document.body.dataset.operate = acting ? "yes" : "no";
  }

  async stop() {
    const choice = await choose("Stop this run?", "It cannot go on after that; its models stay.", [
      ["after", "When the round has closed"],
      ["now", "Now"],
    ]);
    if (choice) this.perform("stop", { now: choice === "now" });
  }

  async drop(worker) {
    const text = "Its session ends. It keeps its work, and may come back by itself.";
    if (await choose(`Drop ${worker}?`, text, [["drop", "Drop"]])) this.perform("drop", { worker });
  }

  async perform(name, content) {
    try {
      this.tell(await act(name, content));
    } catch (error) {
      this.tell(error.message);
    }
  }

  tell(words) {
    element("done").textContent = words;
    element("done").hidden = false;
    clearTimeout(this.hiding);
    this.hiding = setTimeout(() => { element("done").hidden = true; }, 8000);
  }
}

/** Ask in a dialog; the key of the choice, or null. Escape and Cancel choose nothing. */
function choose(title, text, choices) {
  const dialog = element("confirm");
  element("confirm-title").textContent = title;
  element("confirm-text").textContent = text;
  const button = (words, value) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = words;
    made.addEventListener("click", () => dialog.close(value));
    return made;
  };
  element("confirm-choices").replaceChildren(
    button("Cancel", ""), ...choices.map(([value, words]) => button(words, value)),
  );
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue || null), { once: true });
  });
}
