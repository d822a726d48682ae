"use strict";
// One page for the report, the viewer and comparisons. Data is never put into the page as markup: text nodes and
// attributes only, so whatever an agent wrote stays text.
(() => {
const $ = (id) => document.getElementById(id);
const main = $("main");
const NS = "http://www.w3.org/2000/svg";
const PAGE = 100; // rows and events drawn at once; more are drawn when they come into view

// ---- building elements -------------------------------------------------------------------------------------------

function fill(node, props, children) {
  for (const [key, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined && child !== false) node.append(child);
  return node;
}
const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
const s = (tag, props, ...children) => fill(document.createElementNS(NS, tag), props, children);

// Control characters, terminal colours and characters that turn text around would make it look like something else.
const ANSI = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;
const ODD = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
const plain = (text) => String(text ?? "").replace(ANSI, "").replace(/\r\n?/g, "\n")
  .replace(ODD, (c) => `⟦${c.codePointAt(0).toString(16).padStart(4, "0")}⟧`);
const oneLine = (text, limit = 200) => { const t = plain(text).replace(/\s+/g, " ").trim(); return t.length > limit ? t.slice(0, limit) + "…" : t; };

const fixed = (n, d = 2) => n === null || n === undefined ? "–" : Number(n).toFixed(d);
const reward = (n) => n === null || n === undefined ? "–" : String(Math.round(n * 1000) / 1000);
const percent = (n) => n === null || n === undefined ? "–" : `${Math.round(n * 100)} %`;
const money = (n) => n === null || n === undefined ? "–" : n !== 0 && Math.abs(n) < 0.01 ? `$${n.toFixed(4)}` : `$${n.toFixed(2)}`;
const count = (n) => n === null || n === undefined ? "–" : Math.round(n).toLocaleString("en-US");
function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds), hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  return hours ? `${hours} h ${String(minutes).padStart(2, "0")} min` : `${minutes} min ${String(whole % 60).padStart(2, "0")} s`;
}
const clock = (iso) => iso ? String(iso).replace("T", " ").replace(/\.\d+/, "").replace("+00:00", " UTC") : "";
const chip = (status) => h("span", { class: `chip ${status}` }, status);

// ---- data: inside this file, or from the viewer that serves it -----------------------------------------------------

async function inflate(node) {
  const bytes = Uint8Array.from(atob(node.textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}
const blobs = new Map();
async function get(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Error(`the viewer answered ${answer.status}`);
  return answer.json();
}
const base = () => location.pathname.replace(/[^/]*$/, "");
const embedded = $("bf-overview") !== null;
const source = embedded ? {
  overview: () => inflate($("bf-overview")),
  async rollout(row) {
    if (!blobs.has(row.blob)) {
      if (blobs.size > 8) blobs.delete(blobs.keys().next().value);
      blobs.set(row.blob, inflate($(`bf-blob-${row.blob}`)));
    }
    return (await blobs.get(row.blob))[row.place];
  },
} : {
  overview: () => get(`${base()}overview.json`),
  rollout: (row) => get(`${base()}rollout/${row.n}.json`),
};

let O = null; // the overview
let byId = new Map();
let groups = [];
const groupName = (r) => [r.job, r.agent, r.model, r.scene].filter(Boolean).join(" / ");

function take(overview) {
  O = overview;
  byId = new Map(O.rollouts.map((row) => [row.id, row]));
  groups = [...new Set(O.rollouts.map(groupName))];
  for (const row of O.rollouts) row.text = [row.id, row.task, row.agent, row.model, row.scene, row.status, row.category, row.message, ...(row.tags || [])].join(" ").toLowerCase();
}
const colour = (name) => `var(--g${groups.indexOf(name) % 8})`;

// ---- the address: #/?q=…&status=… and #/rollout/ID[/event/N] --------------------------------------------------------

const to = (row, event) => `#/rollout/${encodeURIComponent(row.id)}${event ? `/event/${event}` : ""}`;
function route() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean).map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  return { parts, query: new URLSearchParams(query || "") };
}
function withFilter(changes) {
  const query = route().parts.length ? new URLSearchParams() : route().query;
  for (const [key, value] of Object.entries(changes)) value ? query.set(key, value) : query.delete(key);
  const text = query.toString();
  return `#/${text ? `?${text}` : ""}`;
}

// ---- overview -------------------------------------------------------------------------------------------------------

const card = (name, value, note) => h("dl", { class: "card" }, h("dt", {}, name), h("dd", {}, value), note ? h("dd", {}, note) : null);
const interval = (pair, show = percent) => pair ? `${show(pair[0])} – ${show(pair[1])}` : "";

function cards() {
  const t = O.totals;
  return h("div", { class: "cards" },
    card("Pass rate", percent(t.pass_rate), t.pass_rate_interval ? `95 %: ${interval(t.pass_rate_interval)}` : "nothing was scored"),
    card("Mean reward", fixed(t.mean_reward), t.mean_reward_interval ? `95 %: ${interval(t.mean_reward_interval, (n) => fixed(n))}` : null),
    card("Rollouts", count(t.rollouts), `${count(t.passed)} passed, ${count(t.failed)} failed`),
    card("Errors", count(t.errors), t.errors ? Object.entries(t.errors_by_category).map(([k, n]) => `${n} ${k}`).join(", ") : "of the harness"),
    t.cost_usd === null ? null : card("Cost", money(t.cost_usd), t.cost_is_partial ? "partial: some is unknown" : t.passed ? `${money(t.cost_usd / t.passed)} per pass` : null),
    t.tokens === null ? null : card("Tokens", count(t.tokens), `${count(t.tool_calls)} tool calls`),
    card("Time", duration(t.seconds), "of all rollouts added up"));
}

function gates() {
  if (!O.gates || !O.gates.length) return null;
  return h("section", { "aria-labelledby": "gates" }, h("h2", { id: "gates" }, "Gates"), h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, ["Verdict", "Gate", "Value"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, O.gates.map((gate) => h("tr", {}, h("td", {}, h("span", { class: `chip ${gate.passed ? "passed" : "failed"}` }, gate.passed ? "holds" : "fails")),
      h("td", {}, h("code", {}, plain(gate.expression))), h("td", {}, plain(gate.text))))))));
}

function groupTable() {
  const head = ["Agent", "Passed", "Pass rate", "Reward", "Errors", "Tools", "Tokens", "Cost", "Time"];
  return h("section", { "aria-labelledby": "groups" }, h("h2", { id: "groups" }, "Agents"), h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, head.map((name, i) => h("th", { scope: "col", class: i > 2 ? "n" : null }, name)))),
    h("tbody", {}, O.groups.map((g) => {
      const name = groupName(g), scored = g.passed + g.failed;
      return h("tr", {},
        h("td", { class: "name" }, h("a", { href: withFilter({ group: name }) }, name)),
        h("td", {}, scored ? `${g.passed} of ${scored}` : "–"),
        h("td", {}, percent(g.pass_rate), " ", h("span", { class: "sub" }, interval(g.pass_rate_interval)), g.pass_rate_interval ? h("span", { class: "bar", "aria-hidden": "true" },
          ((bar) => { bar.style.cssText = `left:${g.pass_rate_interval[0] * 100}%;right:${100 - g.pass_rate_interval[1] * 100}%`; return bar; })(h("i")),
          ((bar) => { bar.style.left = `calc(${g.pass_rate * 100}% - 1px)`; return bar; })(h("b"))) : null),
        h("td", { class: "n" }, fixed(g.mean_reward)),
        h("td", { class: "n" }, g.errors ? h("span", { class: "chip error" }, g.errors) : "–"),
        h("td", { class: "n" }, g.n_tool_calls ? count(g.n_tool_calls) : "–"),
        h("td", { class: "n" }, count(g.tokens)),
        h("td", { class: "n" }, money(g.cost_usd), g.cost_is_partial ? "+" : ""),
        h("td", { class: "n" }, duration(g.seconds)));
    })))));
}

function comparison() {
  const c = O.comparison;
  if (!c) return null;
  return [
    h("section", { "aria-labelledby": "verdicts" }, h("h2", { id: "verdicts" }, "Compared"), h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, c.columns.map((name) => h("th", { scope: "col" }, plain(name))))),
      h("tbody", {}, c.rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, plain(cell))))))))),
    c.changes.length ? h("section", { "aria-labelledby": "changes" }, h("h2", { id: "changes" }, "What changed in the configuration"), h("ul", {}, c.changes.map((line) => h("li", {}, plain(line))))) : null,
  ];
}

function heatMap() {
  const tasks = new Map();
  for (const row of O.rollouts) {
    if (!tasks.has(row.task)) tasks.set(row.task, new Map());
    const cells = tasks.get(row.task), name = groupName(row);
    if (!cells.has(name)) cells.set(name, []);
    cells.get(name).push(row);
  }
  const rows = [...tasks.keys()], body = h("tbody");
  const cell = (task, name) => {
    const members = tasks.get(task).get(name);
    if (!members) return h("td");
    const scored = members.filter((row) => row.reward !== null && row.reward !== undefined);
    const passed = members.filter((row) => row.status === "passed").length;
    const mean = scored.length ? scored.reduce((sum, row) => sum + row.reward, 0) / scored.length : null;
    const href = members.length === 1 ? to(members[0]) : withFilter({ group: name, q: task });
    const text = mean === null ? members[0].status : members.length === 1 ? reward(mean) : `${passed}/${members.length}`;
    const broken = members.some((row) => row.status === "error");
    const label = `${task}, ${name}: ${mean === null ? members[0].status : `mean reward ${reward(mean)}, ${passed} of ${members.length} passed`}`;
    const link = h("a", { href, "aria-label": label, title: label, class: mean === null ? (broken ? "broken" : "none") : null }, text);
    if (mean !== null) link.style.background = `color-mix(in srgb, var(--pass-bg) ${Math.round(Math.min(1, Math.max(0, mean)) * 100)}%, var(--fail-bg))`;
    return h("td", {}, link);
  };
  const draw = (from, until) => { for (const task of rows.slice(from, until)) body.append(h("tr", {}, h("th", { scope: "row", title: plain(task) }, plain(task)), groups.map((name) => cell(task, name)))); };
  draw(0, 30);
  const more = rows.length > 30 ? h("button", { type: "button", class: "more", onclick: () => { draw(30); more.remove(); } }, `Show all ${rows.length} tasks`) : null;
  return h("section", { "aria-labelledby": "heat" }, h("h2", { id: "heat" }, "Tasks by agent"), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Tasks by agent" },
    h("table", { class: "heat" }, h("thead", {}, h("tr", {}, h("td"), groups.map((name) => h("th", { scope: "col", title: name }, name)))), body)), more);
}

const legend = (pairs) => h("div", { class: "legend" }, pairs.map(([name, fillColour]) => h("span", {}, ((i) => { i.style.background = fillColour; return i; })(h("i")), name)));

function rewardChart() {
  const scored = O.rollouts.filter((row) => typeof row.reward === "number");
  if (!scored.length) return null;
  const low = Math.min(0, ...scored.map((r) => r.reward)), high = Math.max(1, ...scored.map((r) => r.reward)), bins = 11;
  const counts = Array.from({ length: bins }, () => new Map());
  for (const row of scored) {
    const bin = Math.min(bins - 1, Math.floor((row.reward - low) / (high - low) * bins)), name = groupName(row);
    counts[bin].set(name, (counts[bin].get(name) || 0) + 1);
  }
  const most = Math.max(...counts.map((bin) => [...bin.values()].reduce((a, b) => a + b, 0)));
  const W = 360, H = 170, left = 30, bottom = 22, wide = (W - left) / bins;
  const chart = s("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Distribution of ${scored.length} rewards` });
  counts.forEach((bin, i) => {
    let y = H - bottom;
    for (const [name, n] of bin) {
      const tall = n / most * (H - bottom - 10);
      y -= tall;
      const bar = s("rect", { x: left + i * wide + 1, y, width: wide - 2, height: tall, rx: 2 }, s("title", {}, `${name}: ${n}`));
      bar.style.fill = colour(name);
      chart.append(bar);
    }
  });
  chart.append(s("line", { class: "axis", x1: left, x2: W, y1: H - bottom, y2: H - bottom }),
    s("text", { x: left, y: H - 6 }, reward(low)), s("text", { x: W, y: H - 6, "text-anchor": "end" }, reward(high)),
    s("text", { x: left - 5, y: 14, "text-anchor": "end" }, String(most)), s("text", { x: left - 5, y: H - bottom, "text-anchor": "end" }, "0"));
  return h("section", { "aria-labelledby": "rewards" }, h("h2", { id: "rewards" }, "Rewards"), chart, groups.length > 1 ? legend(groups.slice(0, 8).map((g) => [g, colour(g)])) : null);
}

function costChart() {
  const priced = O.rollouts.filter((row) => typeof row.reward === "number" && typeof row.cost === "number");
  const byCost = priced.length > 1 && priced.some((row) => row.cost > 0);
  const points = byCost ? priced : O.rollouts.filter((row) => typeof row.reward === "number" && typeof row.seconds === "number");
  if (points.length < 2) return null;
  const value = (row) => byCost ? row.cost : row.seconds, most = Math.max(...points.map(value)) || 1;
  const low = Math.min(0, ...points.map((r) => r.reward)), high = Math.max(1, ...points.map((r) => r.reward));
  const W = 360, H = 170, left = 30, bottom = 22;
  const x = (v) => left + 6 + v / most * (W - left - 14), y = (r) => H - bottom - 6 - (r - low) / (high - low) * (H - bottom - 20);
  const chart = s("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${byCost ? "Cost" : "Time"} against reward of ${points.length} rollouts` },
    s("line", { class: "axis", x1: left, x2: W, y1: H - bottom, y2: H - bottom }), s("line", { class: "axis", x1: left, x2: left, y1: 4, y2: H - bottom }),
    s("text", { x: left - 5, y: y(high) + 4, "text-anchor": "end" }, reward(high)), s("text", { x: left - 5, y: y(low) + 4, "text-anchor": "end" }, reward(low)),
    s("text", { x: W, y: H - 6, "text-anchor": "end" }, byCost ? money(most) : duration(most)), s("text", { x: left, y: H - 6 }, "0"));
  for (const row of points.slice(0, 3000)) {
    const dot = s("circle", { cx: x(value(row)), cy: y(row.reward), r: 4, "fill-opacity": .65 }, s("title", {}, `${oneLine(row.task, 60)} · ${groupName(row)} · ${byCost ? money(row.cost) : duration(row.seconds)} · reward ${reward(row.reward)}`));
    dot.style.fill = colour(groupName(row));
    chart.append(dot);
  }
  return h("section", { "aria-labelledby": "costs" }, h("h2", { id: "costs" }, byCost ? "Cost against reward" : "Time against reward"), chart, groups.length > 1 ? legend(groups.slice(0, 8).map((g) => [g, colour(g)])) : null);
}

const PHASES = ["setup", "start", "install_agent", "connect", "execute", "soft_verify", "verify"];
const phaseColour = (phase) => `var(--g${[0, 1, 6, 5, 2, 4, 3][PHASES.indexOf(phase)] ?? 7})`;
function phaseBar(timing) {
  const bar = h("div", { class: "phases", role: "img", "aria-label": PHASES.filter((p) => timing[p]).map((p) => `${p} ${duration(timing[p])}`).join(", ") });
  for (const phase of PHASES) if (timing[phase]) {
    const part = h("span", { title: `${phase} ${duration(timing[phase])}` });
    part.style.cssText = `flex:${timing[phase]};background:${phaseColour(phase)}`;
    bar.append(part);
  }
  return bar;
}
function timeChart() {
  const rows = groups.slice(0, 12).map((name) => {
    const members = O.rollouts.filter((row) => groupName(row) === name && row.timing), sums = {};
    for (const row of members) for (const phase of PHASES) sums[phase] = (sums[phase] || 0) + (row.timing[phase] || 0) / members.length;
    return members.length ? [name, sums, PHASES.reduce((sum, phase) => sum + (sums[phase] || 0), 0)] : null;
  }).filter(Boolean);
  if (!rows.length) return null;
  const longest = Math.max(...rows.map((row) => row[2])) || 1;
  const used = PHASES.filter((phase) => rows.some((row) => row[1][phase]));
  return h("section", { "aria-labelledby": "times" }, h("h2", { id: "times" }, "Mean time by phase"), rows.map(([name, sums, total]) => {
    const bar = phaseBar(sums);
    bar.style.width = `${Math.max(4, total / longest * 100)}%`;
    return h("div", {}, h("span", { class: "sub" }, `${name} · ${duration(total)}`), bar);
  }), legend(used.map((phase) => [phase.replace("_", " "), phaseColour(phase)])));
}

function findings() {
  const found = O.rollouts.filter((row) => row.integrity);
  if (!found.length) return null;
  return h("div", { class: "alert cheat", role: "note" }, h("strong", {}, `${found.length} rollout${found.length > 1 ? "s" : ""} tripped a defence: `),
    found.slice(0, 12).map((row, i) => [i ? ", " : "", h("a", { href: to(row) }, oneLine(row.task, 60))]), found.length > 12 ? " …" : "");
}

// ---- the table of rollouts ------------------------------------------------------------------------------------------

const COLUMNS = [
  ["Status", (r) => r.status, (r) => [chip(r.status), r.integrity ? [" ", h("span", { class: "chip cheat" }, "integrity")] : null]],
  ["Task", (r) => r.task, (r) => [h("a", { href: to(r) }, oneLine(r.task, 120)), r.message && r.status !== "passed" ? h("div", { class: "sub" }, oneLine(r.message, 140)) : null], "name"],
  ["Agent", groupName, (r) => [groupName(r), r.trial > 1 || r.trials ? ` · ${r.trial}` : ""], "name"],
  ["Reward", (r) => r.reward ?? -Infinity, (r) => reward(r.reward), "n"],
  ["Tools", (r) => r.tools ?? -1, (r) => r.tools ? count(r.tools) : "–", "n wide"],
  ["Tokens", (r) => r.tokens ?? -1, (r) => count(r.tokens), "n wide"],
  ["Cost", (r) => r.cost ?? -1, (r) => money(r.cost), "n wide"],
  ["Time", (r) => r.seconds ?? -1, (r) => duration(r.seconds), "n"],
];
function chosen(query) {
  const words = (query.get("q") || "").toLowerCase().split(/\s+/).filter(Boolean);
  const status = query.get("status"), group = query.get("group");
  return O.rollouts.filter((row) => (!status || row.status === status || (status === "integrity" && row.integrity)) && (!group || groupName(row) === group) && words.every((word) => row.text.includes(word)));
}
function lazily(container, items, make) {
  let drawn = 0;
  const end = h("div", { "aria-hidden": "true" });
  const draw = () => { for (const item of items.slice(drawn, drawn + PAGE)) container.append(make(item)); drawn += PAGE; if (drawn >= items.length) { watch.disconnect(); end.remove(); } };
  const watch = new IntersectionObserver((seen) => { if (seen.some((entry) => entry.isIntersecting)) draw(); }, { rootMargin: "800px" });
  draw();
  if (drawn < items.length) watch.observe(end);
  return { end, all() { while (drawn < items.length) draw(); }, stop() { watch.disconnect(); } };
}
function rolloutTable() {
  const query = route().query;
  const sortBy = { column: query.get("sort"), down: query.get("down") === "1" };
  const body = h("tbody"), tail = h("div");
  let drawing = null;
  const status = h("p", { class: "sub" });
  const update = () => {
    const now = route().query, rows = chosen(now), column = COLUMNS.find(([name]) => name === sortBy.column);
    if (column) {
      const key = column[1];
      rows.sort((a, b) => { const x = key(a), y = key(b); return (x < y ? -1 : x > y ? 1 : 0) * (sortBy.down ? -1 : 1); });
    }
    if (drawing) { drawing.stop(); drawing.end.remove(); }
    body.replaceChildren();
    drawing = lazily(body, rows, (row) => h("tr", { class: "row" }, COLUMNS.map(([, , show, kind]) => h("td", { class: kind || null }, show(row)))));
    tail.append(drawing.end);
    status.textContent = rows.length === O.rollouts.length ? `${rows.length} rollouts` : `${rows.length} of ${O.rollouts.length} rollouts`;
    if (!rows.length) body.append(h("tr", {}, h("td", { colspan: COLUMNS.length, class: "empty" }, "No rollout matches.")));
    $("said").textContent = status.textContent;
  };
  const change = (changes) => { history.replaceState(null, "", withFilter(changes)); update(); };
  const search = h("input", { type: "search", id: "search", placeholder: "Search tasks, agents, errors", "aria-label": "Search rollouts", value: query.get("q") || "", oninput: () => change({ q: search.value }) });
  const statuses = [...new Set(O.rollouts.map((row) => row.status)), ...(O.rollouts.some((row) => row.integrity) ? ["integrity"] : [])];
  const buttons = statuses.map((name) => h("button", { type: "button", "aria-pressed": String(query.get("status") === name), onclick: (event) => {
    const on = event.currentTarget.getAttribute("aria-pressed") !== "true";
    for (const button of buttons) button.setAttribute("aria-pressed", "false");
    event.currentTarget.setAttribute("aria-pressed", String(on));
    change({ status: on ? name : "" });
  } }, `${name} ${O.rollouts.filter((row) => row.status === name || (name === "integrity" && row.integrity)).length}`));
  const agents = groups.length > 1 ? h("select", { "aria-label": "Agent", onchange: (event) => change({ group: event.currentTarget.value }) },
    h("option", { value: "" }, "All agents"), groups.map((name) => h("option", { value: name, selected: query.get("group") === name }, name))) : null;
  const heads = COLUMNS.map(([name, , , kind]) => {
    const head = h("th", { scope: "col", class: kind || null, "aria-sort": sortBy.column === name ? (sortBy.down ? "descending" : "ascending") : "none" }, h("button", { type: "button", onclick: () => {
      sortBy.down = sortBy.column === name ? !sortBy.down : false;
      sortBy.column = name;
      for (const other of heads) other.setAttribute("aria-sort", other === head ? (sortBy.down ? "descending" : "ascending") : "none");
      change({ sort: name, down: sortBy.down ? "1" : "" });
    } }, name));
    return head;
  });
  update();
  return h("section", { "aria-labelledby": "rollouts" }, h("h2", { id: "rollouts" }, "Rollouts"), h("div", { class: "filters" }, search, buttons, agents), status,
    h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, heads)), body)), tail);
}

function overview() {
  document.title = O.title;
  crumbs([]);
  show(h("h1", { tabindex: "-1" }, O.title),
    h("p", { class: "sub" }, [clock(O.started_at), O.exit_status === null || O.exit_status === undefined ? null : `exit status ${O.exit_status}`, O.tool, O.job_dir].filter(Boolean).join(" · ")),
    cards(), findings(), gates(), comparison(), groupTable(),
    h("div", { class: "two" }, rewardChart(), costChart(), timeChart()), heatMap(), rolloutTable());
}

// ---- one rollout ----------------------------------------------------------------------------------------------------

function lines(before, after) {
  const a = before === null || before === undefined || before === "" ? [] : plain(before).split("\n"), b = after === "" ? [] : plain(after).split("\n");
  let start = 0, endA = a.length, endB = b.length;
  while (start < endA && start < endB && a[start] === b[start]) start++;
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) { endA--; endB--; }
  const x = a.slice(start, endA), y = b.slice(start, endB), middle = [];
  if (x.length * y.length > 250000) middle.push(...x.map((t) => ["del", t]), ...y.map((t) => ["add", t]));
  else {
    const table = Array.from({ length: x.length + 1 }, () => new Uint16Array(y.length + 1));
    for (let i = x.length - 1; i >= 0; i--) for (let j = y.length - 1; j >= 0; j--) table[i][j] = x[i] === y[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    for (let i = 0, j = 0; i < x.length || j < y.length;) {
      if (i < x.length && j < y.length && x[i] === y[j]) { middle.push(["same", x[i]]); i++; j++; }
      else if (j >= y.length || (i < x.length && table[i + 1][j] >= table[i][j + 1])) middle.push(["del", x[i++]]);
      else middle.push(["add", y[j++]]);
    }
  }
  const around = 3, context = (part) => part.map((t) => ["same", t]);
  const above = a.slice(Math.max(0, start - around), start), below = a.slice(endA, endA + around);
  return [...(start > around ? [["gap", `… ${start - around} lines`]] : []), ...context(above), ...middle, ...context(below), ...(a.length - endA > around ? [["gap", `… ${a.length - endA - around} lines`]] : [])];
}
const SIGN = { add: "+ ", del: "- ", same: "  ", gap: "  " };
function diffView(path, before, after) {
  return [h("p", { class: "label" }, plain(path || "file"), before === null || before === undefined ? " (new)" : ""),
    h("div", { class: "block diff mono" }, lines(before, after).slice(0, 2000).map(([kind, text]) => h("div", { class: kind }, SIGN[kind] + text)))];
}
const block = (text, label) => [label ? h("p", { class: "label" }, label) : null, h("pre", { class: "block", tabindex: "0" }, plain(text))];
const asText = (value) => typeof value === "string" ? value : JSON.stringify(value, null, 2);
// Fenced code in prose; everything else of Markdown reads well as it is.
const prose = (text) => plain(text).split(/^```[^\n]*$/m).map((part, i) => i % 2 ? h("pre", { class: "block" }, part.replace(/^\n|\n$/g, "")) : part.trim() ? h("div", { class: "text" }, part.replace(/^\n+|\n+$/g, "")) : null);

function contentView(item) {
  if (item && item.type === "diff") return diffView(item.path, item.oldText, item.newText ?? "");
  const inner = item && item.content;
  if (item && item.type === "content" && inner && inner.type === "text") return inner.text ? block(inner.text, "output") : null;
  if (inner && inner.type === "image") return h("p", { class: "label" }, `an image (${plain(inner.mimeType || "")})`);
  return block(asText(item), plain(item && item.type));
}
function inputView(input) {
  if (!input || typeof input !== "object") return block(asText(input), "input");
  const command = input.command ?? input.cmd;
  if (command) return block(Array.isArray(command) ? command.join(" ") : command, "command");
  const before = input.old_string ?? input.old_str ?? input.oldText, after = input.new_string ?? input.new_str ?? input.newText;
  if (typeof before === "string" && typeof after === "string") return diffView(input.file_path ?? input.path ?? input.abs_path, before, after);
  return block(asText(input), "input");
}

function merged(events) {
  // A long message is written in parts, and what began a tool call says nothing that its end does not.
  const whole = [], calls = new Map();
  const ended = new Set(events.filter((e) => e.type === "tool_call").map((e) => e.tool_call_id));
  for (const event of events) {
    const last = whole[whole.length - 1];
    if (event.continues && last && last.type === event.type) { last.text += event.text; continue; }
    if (event.type === "tool_call_start" && ended.has(event.tool_call_id)) continue;
    if (event.type === "tool_call_update" && calls.has(event.tool_call_id)) { calls.get(event.tool_call_id).later.push(event); continue; }
    const copy = { ...event };
    if (copy.type === "tool_call") { copy.later = []; calls.set(copy.tool_call_id, copy); }
    whole.push(copy);
  }
  return whole;
}
const BAD = new Set(["agent_error", "agent_crash", "agent_timeout"]);
function eventView(event, began, row, prefix = "") {
  const at = event.ts && began ? duration(Math.max(0, event.ts - began)) : "";
  const time = h("span", { class: "at" }, row ? h("a", { href: to(row, event.seq), "aria-label": `Link to event ${event.seq}` }, at || `#${event.seq}`) : at);
  const where = [event.role, event.scene].filter(Boolean).join(" · ");
  const id = `${prefix}event-${event.seq}`;
  const open = (kind, who, body) => h("article", { class: `event ${kind}`, id, tabindex: "-1" }, h("div", { class: "head" }, h("span", { class: "who" }, who), h("span", { class: "what sub" }, where), time), h("div", { class: "body" }, body));
  const closed = (kind, who, what, body, isOpen = false) => h("details", { class: `event ${kind}`, id, open: isOpen }, h("summary", {}, h("span", { class: "who" }, who), h("span", { class: "what" }, what), time), lazyBody(body));
  switch (event.type) {
    case "user_message": return open("user", "Prompt", prose(event.text));
    case "agent_message": return event.notice ? closed("thought", "Notice", oneLine(event.text), () => prose(event.text)) : open("agent", "Agent", event.text ? prose(event.text) : block(asText(event.content)));
    case "agent_thought": return closed("thought", "Thought", oneLine(event.text), () => prose(event.text));
    case "tool_call": {
      const failed = event.status === "failed";
      const what = [h("code", {}, oneLine(event.title || event.kind, 160)), event.status && event.status !== "completed" ? [" ", h("span", { class: `chip ${failed ? "failed" : "neutral"}` }, event.status)] : null];
      const took = event.duration_sec ? ` · ${duration(event.duration_sec)}` : "";
      return closed(failed ? "tool bad" : "tool", plain(event.kind || "tool"), [what, h("span", { class: "sub" }, took)], () => [
        event.raw_input !== undefined ? inputView(event.raw_input) : null,
        (event.content || []).map(contentView),
        event.raw_output !== undefined && !(event.content || []).length ? block(asText(event.raw_output), "output") : null,
        (event.later || []).map((more) => [(more.content || []).map(contentView), more.raw_output !== undefined ? block(asText(more.raw_output), "later") : null])]);
    }
    case "plan": return closed("thought", "Plan", `${(event.entries || []).length} entries`, () => h("ul", {}, (event.entries || []).map((entry) => h("li", {}, plain(`${entry.status || ""} ${entry.content || ""}`)))));
    case "oracle": return closed(event.return_code ? "tool bad" : "tool", "Solution", [h("code", {}, oneLine(event.command)), h("span", { class: "sub" }, ` · exit status ${event.return_code}`)], () => block(event.stdout || "", "output"), true);
    case "stop": return closed("thought", "End of turn", [plain(event.stop_reason ?? "no stop reason"), event.usage && event.usage.input !== null ? ` · ${count(event.usage.input)} tokens in, ${count(event.usage.output)} out` : "", event.models && event.models.length ? ` · ${plain(event.models.join(", "))}` : ""], () => block(asText(event.usage ?? {})));
    default: return closed(BAD.has(event.type) ? "bad" : "thought", plain(event.type.replace(/_/g, " ")), oneLine(event.message ?? event.detail ?? event.reason ?? event.title ?? ""), () => block(asText(event)), BAD.has(event.type));
  }
}
function lazyBody(make) {
  // The inside of a closed event is made when it is opened: a trajectory of thousands stays light.
  const body = h("div", { class: "body" });
  let made = false;
  const draw = () => { if (!made) { made = true; fill(body, null, [make()]); } };
  queueMicrotask(() => {
    const details = body.parentElement;
    if (details.open) draw();
    details.addEventListener("toggle", draw);
    details.addEventListener("bf-open", () => { details.open = true; draw(); });
  });
  return body;
}

function trajectory(detail, row, prefix) {
  const events = merged(detail.events), began = detail.events.length ? detail.events[0].ts : 0;
  const list = h("div", { class: "events" });
  if (!events.length) return { node: h("p", { class: "empty" }, "There is no trajectory."), list, all() {} };
  const drawing = lazily(list, events, (event) => eventView(event, began, row, prefix));
  return { node: h("div", {}, list, drawing.end), list, all: drawing.all };
}

async function rollout(id, event) {
  const row = byId.get(id);
  if (!row) { show(h("h1", { tabindex: "-1" }, "No such rollout"), h("p", {}, plain(id)), h("p", {}, h("a", { href: "#/" }, "All rollouts"))); return; }
  document.title = `${oneLine(row.task, 80)} · ${O.title}`;
  crumbs([[oneLine(row.task, 80), null]]);
  const detail = await source.rollout(row), result = detail.result;
  if (route().parts[1] !== id) return;
  const rows = chosen(new URLSearchParams()), place = rows.indexOf(row);
  const link = (other, text) => other ? h("a", { href: to(other), rel: text === "Next" ? "next" : "prev" }, text) : null;
  const story = trajectory(detail, row, "");
  const siblings = O.rollouts.filter((other) => other.task === row.task && other !== row);
  const checks = result.checks;
  show(
    h("h1", { tabindex: "-1" }, oneLine(row.task, 200)),
    h("p", { class: "sub" }, chip(row.status), " ", groupName(row), result.trial > 1 ? ` · trial ${result.trial}` : "", " · ", result.sandbox, " · ", clock(result.started_at)),
    h("div", { class: "facts" },
      ...[["Reward", `${reward(result.reward)} of ${reward(result.threshold)} needed`], ["Time", duration(row.seconds)], ["Tool calls", count(result.n_tool_calls)], ["Tokens", count(row.tokens)], ["Cost", money(result.cost_usd)],
        ["Agent ended", result.agent_outcome], ["Models", (result.models || []).join(", ")], ["Agent version", result.agent_version]].filter(([, value]) => value && value !== "–").map(([name, value]) => h("span", {}, `${name} `, h("b", {}, plain(value)))),
      ...Object.entries(result.rewards || {}).filter(([key]) => key !== "reward").map(([key, value]) => h("span", {}, `${plain(key)} `, h("b", {}, reward(value))))),
    result.error ? h("div", { class: "alert", role: "note" }, h("strong", {}, `${result.error.category} error in ${result.error.phase}: `), h("span", { class: "text" }, plain(result.error.message)), result.error.advice ? h("p", {}, plain(result.error.advice)) : null) : null,
    result.skipped ? h("div", { class: "alert" }, plain(result.skipped)) : null,
    (result.integrity || []).length ? h("div", { class: "alert cheat", role: "note" }, h("strong", {}, "This rollout tripped a defence"), h("ul", {}, result.integrity.map((found) => h("li", {}, plain(typeof found === "string" ? found : [found.kind, found.path, found.detail ?? found.evidence].filter(Boolean).join(" · ")))))) : null,
    row.status === "failed" ? h("div", { class: "alert fail", role: "note" }, plain(row.message || `reward ${reward(result.reward)} is below ${reward(result.threshold)}`)) : null,
    h("div", { class: "pager" }, link(rows[place - 1], "Previous"), link(rows[place + 1], "Next"), siblings.length ? h("select", { "aria-label": "Compare with", onchange: (e) => { if (e.currentTarget.value) location.hash = `#/side/${encodeURIComponent(id)}/${encodeURIComponent(e.currentTarget.value)}`; } },
      h("option", { value: "" }, "Compare with…"), siblings.slice(0, 200).map((other) => h("option", { value: other.id }, `${groupName(other)}${other.trial > 1 ? ` · ${other.trial}` : ""} (${other.status})`))) : null),
    h("section", { "aria-labelledby": "timing" }, h("h2", { id: "timing" }, "Time"), phaseBar(result.timing || {}), legend(PHASES.filter((p) => (result.timing || {})[p]).map((p) => [`${p.replace("_", " ")} ${duration(result.timing[p])}`, phaseColour(p)]))),
    checks && (checks.passed || checks.failed) ? h("section", { "aria-labelledby": "checks" }, h("h2", { id: "checks" }, `Checks: ${checks.passed} of ${checks.passed + checks.failed} passed`), h("ul", { class: "checks" }, (checks.failing || []).map((name) => h("li", {}, h("span", { class: "chip failed" }, "failed"), " ", plain(name))))) : null,
    rewardEvents(result.reward_events),
    detail.verifier ? h("section", { "aria-labelledby": "verifier" }, h("h2", { id: "verifier" }, "Verifier output"), block(detail.verifier)) : null,
    h("section", { "aria-labelledby": "story" }, h("h2", { id: "story" }, `Trajectory · ${detail.events.length} events`), h("div", { class: "filters" },
      h("button", { type: "button", onclick: () => { story.all(); for (const item of story.list.querySelectorAll("details")) item.dispatchEvent(new Event("bf-open")); } }, "Open all"),
      h("button", { type: "button", onclick: () => { for (const item of story.list.querySelectorAll("details[open]")) item.open = false; } }, "Close all")), detail.cut ? h("p", { class: "sub" }, plain(detail.cut)) : null, story.node),
    (result.notes || []).length ? h("section", { "aria-labelledby": "notes" }, h("h2", { id: "notes" }, "Notes"), h("ul", {}, result.notes.map((note) => h("li", {}, plain(note))))) : null,
    detail.config ? h("section", {}, h("details", {}, h("summary", {}, "Configuration"), block(asText(detail.config)))) : null,
    result.rollout_dir ? h("p", { class: "sub mono" }, plain(result.rollout_dir)) : null);
  if (event) { story.all(); at(document.getElementById(`event-${event}`)); }
}
function rewardEvents(events) {
  if (!events || !events.length) return null;
  return h("section", { "aria-labelledby": "events" }, h("h2", { id: "events" }, "Criteria"), h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, ["Reward", "Criterion", "Reason"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, events.map((e) => h("tr", {}, h("td", {}, reward(e.reward ?? e.value)), h("td", { class: "name" }, plain(e.source ?? e.name)), h("td", {}, h("span", { class: "text" }, plain(e.reason ?? e.detail ?? "")))))))));
}

async function side(ids) {
  const rows = ids.map((id) => byId.get(id)).filter(Boolean);
  if (rows.length < 2) { location.hash = "#/"; return; }
  document.title = `${oneLine(rows[0].task, 80)} · side by side`;
  crumbs([[oneLine(rows[0].task, 60), to(rows[0])], ["side by side", null]]);
  const details = await Promise.all(rows.map((row) => source.rollout(row)));
  show(h("h1", { tabindex: "-1" }, oneLine(rows[0].task, 200)), h("div", { class: "side" }, rows.map((row, i) => h("div", {},
    h("section", {}, h("h2", {}, h("a", { href: to(row) }, groupName(row) + (row.trial > 1 ? ` · ${row.trial}` : ""))), h("p", {}, chip(row.status), " ", `reward ${reward(row.reward)} · ${duration(row.seconds)} · ${count(row.tools)} tool calls · ${money(row.cost)}`), phaseBar(details[i].result.timing || {})),
    trajectory(details[i], null, `s${i}-`).node))));
}

// ---- going around -----------------------------------------------------------------------------------------------------

function show(...nodes) { main.replaceChildren(); fill(main, null, nodes); }
function crumbs(parts) {
  const nodes = [h("a", { href: "#/" }, embedded ? "Report" : oneLine(O.title, 60))];
  if (!embedded && O.up) nodes.unshift(h("a", { href: O.up }, "Jobs"), " / ");
  for (const [text, href] of parts) nodes.push(" / ", href ? h("a", { href }, text) : h("span", { "aria-current": "page" }, text));
  $("crumbs").replaceChildren(...nodes);
}
function at(node) {
  if (!node) return;
  for (const other of main.querySelectorAll(".event.here")) other.classList.remove("here");
  node.classList.add("here");
  node.scrollIntoView({ block: "center" });
  const target = node.tagName === "DETAILS" ? node.querySelector("summary") : node;
  target.focus({ preventScroll: true });
}
let shown = null;
async function go() {
  const { parts } = route(), now = location.hash;
  shown = now;
  try {
    if (parts[0] === "rollout" && parts[1]) await rollout(parts[1], parts[2] === "event" ? Number(parts[3]) : null);
    else if (parts[0] === "side") await side(parts.slice(1));
    else overview();
  } catch (error) {
    show(h("h1", { tabindex: "-1" }, "This page could not be shown"), h("p", { class: "text" }, plain(error.message)));
  }
  if (shown === now && !(parts[2] === "event")) {
    if (parts.length) window.scrollTo(0, 0);
    const title = main.querySelector("h1");
    if (title && go.done) title.focus({ preventScroll: true });
  }
  go.done = true;
}
function step(direction) {
  const events = [...main.querySelectorAll(".event")], here = events.findIndex((node) => node.classList.contains("here"));
  at(events[here < 0 ? (direction > 0 ? 0 : events.length - 1) : Math.min(events.length - 1, Math.max(0, here + direction))]);
}
const KEYS = [["j", "Next event", () => step(1)], ["k", "Previous event", () => step(-1)],
  ["]", "Next rollout", () => main.querySelector("a[rel=next]")?.click()], ["[", "Previous rollout", () => main.querySelector("a[rel=prev]")?.click()],
  ["/", "Search", () => { if (!$("search")) location.hash = "#/"; setTimeout(() => $("search")?.focus(), 0); }],
  ["u", "All rollouts", () => { location.hash = "#/"; }], ["d", "Light or dark", () => $("theme").click()], ["?", "This list", () => help()]];
function help() {
  const dialog = $("keys");
  dialog.replaceChildren(h("h2", { id: "keys-title" }, "Keyboard"), h("table", {}, h("tbody", {}, KEYS.map(([key, text]) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, text))))), h("p", { class: "more" }, h("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  dialog.showModal();
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "Escape" && typing) { typing.blur(); return; }
  if (event.key === "Escape" && route().parts.length) { history.length > 1 ? history.back() : (location.hash = "#/"); return; }
  const key = typing ? null : KEYS.find(([name]) => name === event.key);
  if (key) { event.preventDefault(); key[2](); }
});

// ---- light and dark -----------------------------------------------------------------------------------------------------

const system = matchMedia("(prefers-color-scheme: dark)");
const memory = { get() { try { return localStorage.getItem("bf-theme"); } catch { return null; } }, set(value) { try { localStorage.setItem("bf-theme", value); } catch { /* not remembered */ } } };
function paint() {
  const dark = memory.get() ? memory.get() === "dark" : system.matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").textContent = dark ? "☀" : "☾";
}
$("theme").addEventListener("click", () => { memory.set(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); paint(); });
$("help").addEventListener("click", help);
system.addEventListener("change", paint);
paint();

// ---- start ----------------------------------------------------------------------------------------------------------------

function follow() {
  // The viewer tells when the job has changed; what is being read stays where it is.
  const stream = new EventSource(`${base()}changes`);
  stream.addEventListener("change", async () => {
    take(await source.overview());
    tellLive();
    if (!route().parts.length && document.activeElement?.id !== "search") { const y = scrollY; overview(); scrollTo(0, y); }
  });
  stream.onerror = () => { $("live").textContent = "the viewer has ended"; };
  stream.onopen = tellLive;
}
function tellLive() { $("live").textContent = O.running ? `${O.running} running` : O.live ? "live" : ""; }
window.addEventListener("hashchange", go);
source.overview().then((overview) => { take(overview); go(); if (!embedded && O.live) follow(); tellLive(); }).catch((error) => show(h("h1", {}, "This report cannot be read"), h("p", { class: "text" }, plain(error.message))));
})();
