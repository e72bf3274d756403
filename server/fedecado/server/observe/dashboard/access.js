// The operators' token: asked for once, kept until the tab is closed, sent in a header with every request.

const KEY = "fedecado-token";

export function headers() {
  const token = sessionStorage.getItem(KEY);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

export function remember(token) {
  sessionStorage.setItem(KEY, token);
}

export function forget() {
  sessionStorage.removeItem(KEY);
}

/** What this page may do: { view, operate, operable }, or { wait } after too many wrong tokens. */
export async function rights() {
  const answer = await fetch("access", { headers: headers(), cache: "no-store" });
  if (answer.status === 429) return { wait: await answer.text() };
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

/** Have the coordinator do something; what it did in words, or an Error that says why not. */
export async function act(name, content = {}) {
  const answer = await fetch(`actions/${name}`, {
    method: "POST",
    headers: { ...headers(), "Content-Type": "application/json" },
    body: JSON.stringify(content),
  });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return (await answer.json()).done;
}
