// Elements are made here and nowhere else. Strings become text nodes: nothing that a document says is ever markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  add(node, children);
  return node;
}

function add(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
}

/** An HTML element. `attributes.on` holds listeners; null, undefined and false are left out. */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same in SVG. */
export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** One of the symbols that stand in index.html; for eyes only. */
export function icon(name) {
  return s("svg", { class: "icon", "aria-hidden": "true", focusable: "false" }, s("use", { href: `#i-${name}` }));
}

export const $ = (id) => document.getElementById(id);

/** Put `children` in place of what is in `node`. */
export function put(node, ...children) {
  node.replaceChildren();
  add(node, children);
  return node;
}

/** A button of an icon and words; with `quiet` the words are for screen readers only. */
export function button(label, { symbol, quiet, onclick, ...attributes } = {}) {
  return h(
    "button",
    { type: "button", class: quiet ? "icon-button" : "button", title: quiet ? label : null, ...attributes,
      on: onclick ? { click: onclick } : {} },
    symbol && icon(symbol),
    h("span", { class: quiet ? "vh" : null }, label),
  );
}

/** Have a screen reader say something when it has finished what it says now. */
export function say(words) {
  const region = $("say");
  region.textContent = region.textContent === words ? `${words}\u00a0` : words;
}

/** A link where `url` is one that a browser should follow, else the text alone. Documents may bring any URL. */
export function link(url, text = url) {
  let parsed;
  try {
    parsed = new URL(url);
  } catch {
    return h("bdi", null, text);
  }
  if (parsed.protocol !== "http:" && parsed.protocol !== "https:") return h("bdi", null, text);
  return h("a", { href: parsed.href, target: "_blank", rel: "noopener noreferrer" }, h("bdi", null, text), icon("out"));
}

/** Up, Down, Home and End move the focus among what `selector` finds in `list`. */
export function arrows(list, selector) {
  list.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
    const items = [...list.querySelectorAll(selector)].filter((item) => item.offsetParent !== null);
    const at = items.indexOf(event.target.closest(selector));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    items[Math.max(0, Math.min(to, items.length - 1))].focus();
  });
}

/** Ask before something that cannot be undone; whether the answer was yes. `word`, if given, has to be typed. */
export function confirmed({ title, text, action, word }) {
  const dialog = $("confirm");
  const input = h("input", { id: "confirm-word", autocomplete: "off", spellcheck: "false" });
  const yes = h("button", { class: "button danger", value: "yes", disabled: Boolean(word) }, action);
  input.addEventListener("input", () => { yes.disabled = input.value !== word; });
  put(
    dialog,
    h("form", { method: "dialog" },
      h("h2", { id: "confirm-title" }, title),
      h("p", null, text),
      word && h("p", null, h("label", { for: "confirm-word" }, "Type ", h("b", null, word), " to go on"), input),
      h("div", { class: "row end" }, button("Keep it", { onclick: () => dialog.close() }), yes),
    ),
  );
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    dialog.returnValue = "no";
    dialog.showModal();
    (word ? input : yes).focus();
  });
}
