// Elements are made of text nodes and attributes only: whatever an agent wrote stays text.

const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style")
      Object.entries(value).forEach(([key, text]) => node.style.setProperty(key, text));
    else node.setAttribute(name, value === true ? "" : value);
  }
  const isThere = (child) => child !== null && child !== undefined && child !== false;
  node.append(...children.flat(Infinity).filter(isThere));
  return node;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Terminal colours go; other control characters, and those that turn text around, would make it look like something
// else and are shown as their number.
const ANSI = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;
const ODD =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]|[\u{e0000}-\u{e007f}]/gu;
const plain = (text) =>
  String(text ?? "")
    .replace(ANSI, "")
    .replace(/\r\n?/g, "\n")
    .replace(ODD, (odd) => `⟦${odd.codePointAt(0).toString(16).padStart(4, "0")}⟧`);

function oneLine(text, limit = 200) {
  const flat = plain(text).replace(/\s+/g, " ").trim();
  return flat.length > limit ? `${flat.slice(0, limit)}…` : flat;
}

const ICONS = {
  user: "M8 8.5a3 3 0 1 0 0-6 3 3 0 0 0 0 6Zm-5.5 5c.6-2.4 2.7-3.5 5.5-3.5s4.9 1.1 5.5 3.5",
  agent: "M8 1.8 9.6 6.4 14.2 8 9.6 9.6 8 14.2 6.4 9.6 1.8 8 6.4 6.4Z",
  thought: "M3.5 4h9M3.5 8h9M3.5 12h5",
  execute: "m3 4.5 3.5 3.5L3 11.5M8 12h5",
  edit: "m10.5 2.5 3 3L6 13l-3.5.5L3 10Z",
  read: "M4 1.8h5l3.5 3.5v8.9H4ZM9 1.8v3.5h3.5",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9Zm3.3-1.2 3.7 3.7",
  fetch: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM2 8h12M8 2c4 4 4 8 0 12-4-4-4-8 0-12",
  tool: "M6.5 2.5H3v3.5M9.5 2.5H13v3.5M6.5 13.5H3V10M9.5 13.5H13V10",
  stop: "M3.5 3.5h9v9h-9Z",
  bad: "M8 2 14.5 13.5h-13ZM8 6.5v3M8 11.5v.5",
};
const icon = (name) =>
  s(
    "svg",
    { class: "icon", viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" },
    s("path", { d: ICONS[name] ?? ICONS.tool }),
  );

// ---- numbers as text ----------------------------------------------------------------------------------------------

const isKnown = (value) => value !== null && value !== undefined;
const fixed = (n, digits = 2) => (isKnown(n) ? Number(n).toFixed(digits) : "–");
const reward = (n) => (isKnown(n) ? String(Math.round(n * 1000) / 1000) : "–");
const percent = (n) => (isKnown(n) ? `${Math.round(n * 100)}%` : "–");
const count = (n) => (isKnown(n) ? Math.round(n).toLocaleString("en-US") : "–");
const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
const clock = (iso) =>
  iso
    ? String(iso)
        .replace("T", " ")
        .replace(/:\d\d(\.\d+)?(?=Z|[+-]|$)/, "")
        .replace(/Z|\+00:00/, " UTC")
    : "";
const range = (pair, show = percent) => (pair ? `${show(pair[0])} – ${show(pair[1])}` : "");

function short(n) {
  if (!isKnown(n)) return "–";
  if (n >= 1e9) return `${(n / 1e9).toFixed(1)} B`;
  if (n >= 1e6) return `${(n / 1e6).toFixed(1)} M`;
  return n >= 1e4 ? `${Math.round(n / 1e3)} k` : count(n);
}
function money(n) {
  if (!isKnown(n)) return "–";
  return n !== 0 && Math.abs(n) < 0.01 ? `$${n.toFixed(4)}` : `$${n.toFixed(2)}`;
}
// A long time in a few letters.
const about = (seconds) => {
  if (!isKnown(seconds) || seconds < 60) return duration(seconds);
  const [n, unit] = seconds < 3600 ? [seconds / 60, "min"] : [seconds / 3600, "h"];
  return `${n < 10 ? n.toFixed(1) : count(n)} ${unit}`;
};
function duration(seconds) {
  if (!isKnown(seconds)) return "–";
  if (seconds < 0.1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  const two = (n) => String(n).padStart(2, "0");
  return hours ? `${hours} h ${two(minutes)} min` : `${minutes} min ${two(whole % 60)} s`;
}

// ---- parts that many pages have -------------------------------------------------------------------------------------

const chip = (status, text = status) => h("span", { class: `chip ${status}` }, text);
const section = (id, title, ...body) =>
  h("section", { "aria-labelledby": id }, h("h2", { id }, title), ...body);
// Above a column of plots, the ends of the axis that they share.
const scale = (ends) =>
  h(
    "span",
    { class: "scale", "aria-hidden": "true" },
    ends.map((end) => h("span", {}, end)),
  );
const heading = (names, numbers = () => false) =>
  h(
    "thead",
    {},
    h(
      "tr",
      {},
      names.map((name, i) =>
        Array.isArray(name)
          ? h("th", { scope: "col" }, scale(name))
          : h("th", { scope: "col", class: numbers(i) ? "n" : null }, name),
      ),
    ),
  );
// On a narrow screen each row becomes a card, in which cells say the name of their column. A browser that lays out rows
// as something else no longer takes them for rows, so that is said again.
function asCard(row, names) {
  row.setAttribute("role", "row");
  [...row.cells].forEach((cell, i) => {
    cell.setAttribute("role", "cell");
    cell.dataset.label = names[i] ?? "";
    if (cell.textContent === "–") cell.classList.add("blank");
  });
  return row;
}
function stacked(table) {
  const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  table.classList.add("stack");
  table.setAttribute("role", "table");
  for (const row of table.tBodies[0].rows) asCard(row, names);
  return table;
}
const scrolling = (label, node) =>
  h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, node);
// An agent, below it what tells it from others of its name; read aloud, copied or searched it is one line.
function agentLabel(row, show = (text) => text, trial = 1) {
  const [agent, rest] = [
    [row.job, row.agent],
    [row.model, row.scene],
  ].map((words) => oneLine(words.filter(Boolean).join(" / "), 80));
  const below = [rest, trial > 1 ? `trial ${trial}` : ""].filter(Boolean).join(" · ");
  const between = rest ? " / " : " · ";
  return [
    show(agent),
    below ? [h("span", { class: "hidden" }, between), h("span", { class: "sub model" }, below)] : null,
  ];
}
const legend = (pairs) =>
  h(
    "div",
    { class: "legend" },
    pairs.map(([name, colour]) => h("span", {}, h("i", { style: { background: colour } }), name)),
  );

// Draw a long list piece by piece, as it comes into view.
const PIECE = 100;
function lazily(container, items, make) {
  let drawn = 0;
  const end = h("div", { "aria-hidden": "true" });
  const watch = new IntersectionObserver((seen) => seen.some((entry) => entry.isIntersecting) && draw(), {
    rootMargin: "800px",
  });
  const draw = () => {
    container.append(...items.slice(drawn, drawn + PIECE).map(make));
    drawn += PIECE;
    if (drawn >= items.length) stop();
  };
  const all = () => {
    while (drawn < items.length) draw();
  };
  const stop = () => {
    watch.disconnect();
    removeEventListener("beforeprint", all);
    end.remove();
  };
  if (items.length > PIECE) {
    watch.observe(end);
    addEventListener("beforeprint", all);
  }
  draw();
  return { end, all, stop };
}
