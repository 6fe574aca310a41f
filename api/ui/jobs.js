// Jobs: how far they are, live, with the ways to cancel them and to try them again.

import { events, path, post } from "./api.js";
import { button, h, icon, put, say } from "./dom.js";
import { count, number, seconds, STATUS, time } from "./text.js";
import { trouble } from "./trouble.js";

const OVER = ["succeeded", "failed", "cancelled"];
const KINDS = { ingest: "Adding files", sync: "Syncing", verify: "Verifying", rebuild: "Rebuilding", compact: "Compacting", reindex: "Indexing anew" };

/** Streams that may be open at once: a browser has six connections to a server, and the page needs some of them. */
const STREAMS = 2;
const waiting = [];
let open = 0;

async function stream() {
  if (open >= STREAMS) await new Promise((go) => { waiting.push(go); });
  else open += 1;
}

function done() {
  const next = waiting.shift();
  if (next) next();
  else open -= 1;
}

/** A job's card. It follows the job until `signal` ends it; `ondone(job)` is told of its end. */
export function jobCard(job, { signal, ondone = () => {} } = {}) {
  const box = h("li", { class: "card job" });
  let following = false;

  function draw() {
    const over = OVER.includes(job.status);
    const tone = { succeeded: "good", failed: "bad", cancelled: "warn" }[job.status] ?? "plain";
    const act = (name) => async (event) => {
      event.currentTarget.disabled = true;
      try {
        job = (await post(path("jobs", job.id, name))) ?? job;
        draw();
        follow();
      } catch (error) {
        box.append(trouble(error));
      }
    };
    const { progress } = job;
    const state = job.cancelling && !over ? "Cancelling" : job.status === "running" ? "Running" : STATUS[job.status];
    put(box,
      h("div", { class: "row" },
        h("span", { class: `badge ${tone}` }, over ? icon(tone === "good" ? "check" : "warn") : h("span", { class: "spinner", "aria-hidden": "true" }), state),
        h("b", null, KINDS[job.kind] ?? job.kind), job.files?.length === 1 && h("bdi", null, job.files[0]), h("span", { class: "soft small" }, job.attempts > 1 && `attempt ${job.attempts} · `, time(job.created_at)),
        h("span", { class: "grow" }),
        !over && !job.cancelling && button("Cancel", { symbol: "stop", class: "button small", onclick: act("cancel") }),
        (job.status === "failed" || job.status === "cancelled") && button("Retry", { symbol: "undo", class: "button small", onclick: act("retry") })),
      !over && h("progress", { "aria-label": "Progress", max: 1, value: progress?.share ?? null }),
      !over && progress && h("p", { class: "small soft" }, measured(progress)),
      job.error && h("p", { class: "bad" }, icon("warn"), h("bdi", null, job.error.message)),
      job.status === "succeeded" && outcome(job.result));
  }

  async function follow() {
    if (following || OVER.includes(job.status)) return;
    following = true;
    await stream();
    try {
      if (signal?.aborted) return;
      for await (const event of events(path("jobs", job.id, "events"), { last: OVER.map((end) => `job.${end}`), signal })) {
        if (event.data.job) job = event.data.job;
        draw();
      }
      say(`${KINDS[job.kind] ?? job.kind}: ${STATUS[job.status]}`);
      ondone(job);
    } catch (error) {
      if (!signal?.aborted) box.append(trouble(error, { retry: () => { draw(); follow(); } }));
    } finally {
      following = false;
      done();
    }
  }

  draw();
  follow();
  return box;
}

/** How far a job is, in words. */
function measured(progress) {
  const { done, total, unit, chunks, eta_s: left, current } = progress;
  const parts = [`${number(done)} of ${number(total)} ${unit}`, chunks && count(chunks, "passage"), left && `about ${seconds(left)} left`];
  return [parts.filter(Boolean).join(" · "), current && [" · ", h("bdi", null, current)]];
}

const FINE = ["indexed", "unchanged"];
const words = (status) => status.replaceAll("_", " ");

/** What came of it: counts, and each file that is not in the index with the reason. */
function outcome(result) {
  const counts = Object.entries(result?.counts ?? {}).map(([status, many]) => `${number(many)} ${words(status)}`);
  const left = (result?.sources ?? []).filter((source) => !FINE.includes(source.status) || source.reason);
  return [
    counts.length > 0 && h("p", { class: "small" }, counts.join(" · ")),
    left.length > 0 && h("ul", { class: "told warn", "aria-label": "Files that were left out" },
      left.slice(0, 20).map((source) => h("li", null, icon("warn"), h("span", null, h("bdi", null, source.id), `: ${words(source.status)}`, source.reason && [" – ", h("bdi", null, source.reason)]))),
      left.length > 20 && h("li", null, `and ${number(left.length - 20)} more`)),
  ];
}
