// Loaded before the page is drawn, so that it does not flash in the wrong colours. The toggle is in app.js.
try {
  document.documentElement.dataset.theme = localStorage.getItem("thresher-theme") ?? "";
} catch {
  // Without storage the system's own choice holds.
}
