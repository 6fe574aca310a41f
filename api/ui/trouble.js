// Errors, shown with what the server said and the id under which its log has them.

import { Refused } from "./api.js";
import { button, h, icon } from "./dom.js";

/** An alert. `retry`, if given, is offered as a button. */
export function trouble(error, { retry } = {}) {
  const known = error instanceof Refused;
  const details = known ? [error.code, error.param && `field ${error.param}`, error.requestId && `request ${error.requestId}`] : [];
  if (known && error.retryAfter) details.unshift(`try again in ${error.retryAfter} s`);
  const message = String(error.message || error);
  return h("div", { class: "notice bad", role: "alert" },
    icon("warn"),
    h("div", null,
      h("p", null, h("bdi", null, message.charAt(0).toUpperCase() + message.slice(1))),
      h("p", { class: "small soft" }, details.filter(Boolean).join(" · ")),
      retry && button("Try again", { symbol: "undo", onclick: retry })));
}
