// The start of the page: views by URL hash, the theme, the key, and keys that work everywhere.

import { key } from "./api.js";
import { leaveCollections, showCollection, showCollections } from "./collections.js";
import { $, icon, put, say } from "./dom.js";
import { showChoices, showSearch, showStart, startSearch } from "./search.js";
import { closeSource, startSource } from "./source.js";

/** Show what the hash names. Any other hash is a place on the page. */
function route() {
  const [view, ...rest] = location.hash.replace(/^#\/?/u, "").split("/");
  if (location.hash && !location.hash.startsWith("#/")) return;
  const name = rest.length ? decodeURIComponent(rest.join("/")) : "";
  const collections = view === "collections";
  $("view-search").hidden = collections;
  $("view-collections").hidden = !collections;
  $("nav-search").toggleAttribute("aria-current", !collections);
  $("nav-collections").toggleAttribute("aria-current", collections);
  for (const link of [$("nav-search"), $("nav-collections")]) if (link.hasAttribute("aria-current")) link.setAttribute("aria-current", "page");
  if (collections) {
    closeSource();
    if (name) showCollection(name);
    else showCollections();
    return;
  }
  leaveCollections();
  if (view === "searches" && name) {
    showSearch(name);
  } else {
    closeSource();
    showStart();
  }
}

const THEMES = { "": ["theme", "as the system"], light: ["sun", "light"], dark: ["moon", "dark"] };

function startTheme() {
  const toggle = $("theme");
  const draw = () => {
    const [symbol, words] = THEMES[document.documentElement.dataset.theme] ?? THEMES[""];
    put(toggle, icon(symbol));
    toggle.setAttribute("aria-label", `Colours: ${words}`);
    toggle.title = `Colours: ${words}`;
  };
  toggle.addEventListener("click", () => {
    const names = Object.keys(THEMES);
    const next = names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length];
    document.documentElement.dataset.theme = next;
    localStorage.setItem("thresher-theme", next);
    draw();
    say(`Colours: ${THEMES[next][1]}`);
  });
  draw();
}

function startKey() {
  const forget = $("forget-key");
  const draw = () => { forget.hidden = !key.get(); };
  forget.addEventListener("click", () => {
    key.forget();
    location.reload();
  });
  document.addEventListener("key-changed", draw);
  draw();
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, [contenteditable]") || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  const focus = () => {
    $("query").focus();
    $("query").select();
  };
  if (!$("view-search").hidden) {
    focus();
    return;
  }
  addEventListener("hashchange", focus, { once: true });
  location.hash = "#/";
});

// A file that misses the drop zone must not replace the page.
for (const event of ["dragover", "drop"]) {
  document.addEventListener(event, (moved) => { if (!moved.defaultPrevented) moved.preventDefault(); });
}

$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  $("main").focus();
});

startTheme();
startKey();
startSource();
startSearch();
addEventListener("hashchange", () => {
  route();
  scrollTo(0, 0);
  document.querySelector("main > section:not([hidden]) h1:not(#welcome[hidden] *)")?.focus({ preventScroll: true });
});
route();
showChoices();
