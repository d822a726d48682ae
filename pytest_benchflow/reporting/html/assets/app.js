// Going from page to page, with the mouse, the keyboard or a link; light and dark; following a running job.

const main = byId("main");
let lastFilter = new URLSearchParams();

const show = (...nodes) => (main.replaceChildren(), fill(main, {}, nodes));
function showCrumbs(parts) {
  const nodes = [h("a", { href: "#/" }, isFile ? "Report" : oneLine(report.title, 60))];
  if (report.up) nodes.unshift(h("a", { href: report.up }, "Jobs"), " / ");
  for (const [text, href] of parts)
    nodes.push(" / ", href ? h("a", { href }, text) : h("span", { "aria-current": "page" }, text));
  byId("crumbs").replaceChildren(...nodes);
}

function goTo(node) {
  if (!node) return;
  main.querySelector(".event.here")?.classList.remove("here");
  node.classList.add("here");
  node.scrollIntoView({ block: node.offsetHeight > innerHeight * 0.7 ? "start" : "center" });
  const target = node.tagName === "DETAILS" ? node.querySelector("summary") : node;
  target.focus({ preventScroll: true });
}

let isFirst = true;
async function go() {
  const { parts, query } = route();
  const address = location.hash;
  const event = parts[2] === "event" ? Number(parts[3]) : null;
  if (!parts.length) lastFilter = query;
  // An event of the page that is there already is only gone to.
  if (event !== null && shownPage === parts.slice(0, 2).join("\n") && byId(`event-${event}`))
    return goTo(byId(`event-${event}`));
  try {
    if (parts[0] === "rollout" && parts[1]) await rolloutPage(parts[1], event);
    else if (parts[0] === "side") await sidePage(parts.slice(1));
    else if (report.jobs) jobsPage();
    else overviewPage();
  } catch (error) {
    show(
      h("h1", { tabindex: "-1" }, "This page could not be shown"),
      h("p", { class: "text" }, plain(error.message)),
    );
  }
  if (location.hash !== address) return;
  shownPage = parts.slice(0, 2).join("\n");
  if (event === null) {
    if (parts.length) scrollTo(0, 0);
    if (!isFirst) main.querySelector("h1")?.focus({ preventScroll: true });
  }
  isFirst = false;
}
let shownPage = null;

// ---- keyboard -----------------------------------------------------------------------------------------------------------

function stepEvent(by) {
  const events = [...main.querySelectorAll(".event")];
  const here = events.findIndex((node) => node.classList.contains("here"));
  const next =
    here < 0 ? (by > 0 ? 0 : events.length - 1) : Math.min(events.length - 1, Math.max(0, here + by));
  goTo(events[next]);
}
function search() {
  if (!byId("search")) location.hash = "#/";
  setTimeout(() => byId("search")?.focus());
}
const KEYS = [
  ["j", "Next event", () => stepEvent(1)],
  ["k", "Previous event", () => stepEvent(-1)],
  ["]", "Next rollout", () => main.querySelector("a[rel=next]")?.click()],
  ["[", "Previous rollout", () => main.querySelector("a[rel=prev]")?.click()],
  ["/", "Search", search],
  ["u", "All rollouts", () => (location.hash = `#/${lastFilter.size ? `?${lastFilter}` : ""}`)],
  ["d", "Light or dark", () => byId("theme").click()],
  ["?", "This list", () => help()],
];
function help() {
  const dialog = byId("keys");
  const rows = KEYS.map(([key, text]) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, text)));
  const close = h("button", { type: "button", onclick: () => dialog.close() }, "Close");
  dialog.replaceChildren(
    h("h2", { id: "keys-title" }, "Keyboard"),
    h("table", {}, h("tbody", {}, rows)),
    h("p", { class: "more" }, close),
  );
  dialog.showModal();
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  const field = event.target.closest("input, select, textarea");
  if (field) {
    if (event.key === "Escape") field.blur();
    return;
  }
  const known = KEYS.find(([key]) => key === event.key);
  if (known) {
    event.preventDefault();
    known[2]();
  }
});

// ---- light and dark -------------------------------------------------------------------------------------------------------

const system = matchMedia("(prefers-color-scheme: dark)");
let chosenTheme = null;
try {
  chosenTheme = localStorage.getItem("bf-theme");
} catch {
  // A page from disk may have no storage: then the choice lasts as long as the page.
}
function paint() {
  const isDark = chosenTheme ? chosenTheme === "dark" : system.matches;
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  byId("theme").textContent = isDark ? "☀" : "☾";
}
byId("theme").addEventListener("click", () => {
  chosenTheme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try {
    localStorage.setItem("bf-theme", chosenTheme);
  } catch {
    // As above.
  }
  paint();
});
byId("help").addEventListener("click", help);
system.addEventListener("change", paint);

// ---- the viewer: follow a job that runs -------------------------------------------------------------------------------------

const tell = () =>
  (byId("live").textContent = report.running ? `${report.running} running` : report.state ? "live" : "");
function follow() {
  const stream = new EventSource(`changes?state=${encodeURIComponent(report.state)}`);
  stream.addEventListener("change", async () => {
    take(await source.overview());
    tell();
    const isReading = route().parts.length || document.activeElement?.closest("main input, main select");
    if (isReading) return; // what is being read stays as it is
    const { scrollX, scrollY } = window;
    await go();
    scrollTo(scrollX, scrollY);
  });
  stream.onopen = tell;
  stream.onerror = () => (byId("live").textContent = "the viewer has ended");
}

paint();
addEventListener("hashchange", go);
try {
  take(await source.overview());
  tell();
  await go();
  if (report.state) follow();
} catch (error) {
  show(h("h1", {}, "This report cannot be read"), h("p", { class: "text" }, plain(error.message)));
}
