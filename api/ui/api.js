// Talking to the server: JSON, errors in one shape, the key, and server-sent events read from a fetch.

import { $ } from "./dom.js";

const BASE = new URL("../v1/", import.meta.url);
const KEY = "thresher-key";
const RETRIES_MS = [500, 1000, 2000, 4000, 8000, 15000];

/** What the server answered in place of what was asked for. */
export class Refused extends Error {
  constructor(status, problem, retryAfter) {
    super(problem.message ?? `The server answered ${status}.`);
    this.status = status;
    this.code = problem.code ?? "";
    this.param = problem.param ?? null;
    this.requestId = problem.request_id ?? "";
    this.retryAfter = retryAfter;
  }
}

/** The server could not be reached, or the connection broke. */
class Unreachable extends Error {
  constructor() {
    super("The server cannot be reached. See that it runs, then try again.");
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

let asking = null;

/** Ask for a key, once for all requests that wait for it; whether one was given. */
function askForKey(tried) {
  asking ??= new Promise((resolve) => {
    const dialog = $("key-dialog");
    const input = $("key-input");
    $("key-wrong").hidden = !tried;
    input.setAttribute("aria-invalid", String(Boolean(tried)));
    input.value = "";
    dialog.returnValue = "";
    dialog.addEventListener("close", () => {
      const given = dialog.returnValue === "use" && input.value.trim();
      if (given) key.set(given);
      input.value = "";
      asking = null;
      document.dispatchEvent(new CustomEvent("key-changed"));
      resolve(Boolean(given));
    }, { once: true });
    $("key-cancel").onclick = () => dialog.close();
    dialog.showModal();
    input.focus();
  });
  return asking;
}

/** What fetch does, with news of how much of the body has been sent: `onprogress(share)`. */
function sending(url, { method, headers, body, signal }, onprogress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open(method, url);
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => onprogress(event.lengthComputable ? event.loaded / event.total : null);
    request.onload = () => {
      const wait = request.getResponseHeader("Retry-After");
      resolve(new Response(request.responseText, { status: request.status, headers: wait ? { "Retry-After": wait } : {} }));
    };
    request.onerror = () => reject(new TypeError("the connection broke"));
    request.onabort = () => reject(new DOMException("aborted", "AbortError"));
    signal?.addEventListener("abort", () => request.abort(), { once: true });
    request.send(body);
  });
}

async function send(method, path, { body, headers = {}, signal, onprogress } = {}) {
  for (;;) {
    const used = key.get();
    const sent = { ...headers };
    if (used) sent.Authorization = `Bearer ${used}`;
    const isForm = body instanceof FormData;
    if (body !== undefined && !isForm) sent["Content-Type"] = "application/json";
    let response;
    try {
      const given = { method, signal, headers: sent, body: body === undefined || isForm ? body : JSON.stringify(body) };
      const url = new URL(path, BASE);
      response = await (onprogress ? sending(url, given, onprogress) : fetch(url, { ...given, cache: "no-store", credentials: "omit" }));
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Unreachable();
    }
    if (response.ok) return response;
    const document = await response.json().catch(() => ({}));
    if (response.status === 401) {
      // Another request may have brought a key meanwhile: then this one was merely too early.
      if (key.get() !== used || (await askForKey(used))) continue;
    }
    const wait = Number(response.headers.get("Retry-After"));
    throw new Refused(response.status, document.error ?? {}, Number.isFinite(wait) && wait > 0 ? wait : null);
  }
}

/** One request; its JSON, or null where the answer is empty. */
export async function call(method, path, options) {
  const response = await send(method, path, options);
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

export const get = (path, options) => call("GET", path, options);
export const post = (path, body, options) => call("POST", path, { ...options, body: body ?? {} });

/** A path of parts that may hold anything. */
export const path = (...parts) => parts.map(encodeURIComponent).join("/");

/** A page of a list: {data, next}. */
export async function page(where, after, limit = 20) {
  const query = new URLSearchParams({ limit: String(limit) });
  if (after) query.set("after", after);
  const answer = await get(`${where}${where.includes("?") ? "&" : "?"}${query}`);
  return { data: answer.data, next: answer.has_more ? answer.next : null };
}

/** Frames of an event stream: {id, type, data}. Comments keep the connection alive and are dropped. */
async function* frames(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      buffer += value;
      const parts = buffer.split(/\r?\n\r?\n/u);
      buffer = parts.pop();
      for (const part of parts) {
        const frame = { id: "", type: "message", data: "" };
        for (const line of part.split(/\r?\n/u)) {
          const [, field, value] = /^([^:]*):? ?(.*)$/su.exec(line);
          if (field === "event") frame.type = value;
          else if (field === "id") frame.id = value;
          else if (field === "data") frame.data += value;
        }
        if (frame.data) yield { ...frame, data: JSON.parse(frame.data) };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

const paused = (ms, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, ms);
  signal?.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
});

/**
 * The events of `where` until one of `last` has come. A connection that breaks is made again behind what has been seen.
 * `onbreak(true|false)`: the connection broke, and is back.
 */
export async function* events(where, { last, signal, onbreak = () => {} }) {
  let seen = "";
  let opened = false;
  for (let failures = 0; ; failures += 1) {
    try {
      const headers = { Accept: "text/event-stream", ...(seen ? { "Last-Event-ID": seen } : {}) };
      const response = await send("GET", where, { headers, signal });
      opened = true;
      for await (const event of frames(response)) {
        if (failures) onbreak(false);
        failures = 0;
        seen = event.id || seen;
        yield event;
        if (last.includes(event.type)) return;
      }
    } catch (error) {
      // A refusal is final, unless the server is merely stopping or busy.
      const passing = !(error instanceof Refused) || error.status === 503 || error.status === 429;
      if (signal?.aborted || !opened || !passing) throw error;
    }
    if (failures >= RETRIES_MS.length) throw new Unreachable();
    onbreak(true);
    await paused(RETRIES_MS[failures], signal);
  }
}
