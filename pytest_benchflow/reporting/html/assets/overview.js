// The first page: what came out, who did how well, where, at what price; then every rollout.

const card = (name, value, note, kind) =>
  h(
    "div",
    { class: `card ${kind ?? ""}` },
    h("dt", {}, name),
    h("dd", {}, value),
    note ? h("dd", { class: "sub" }, note) : null,
  );

const OUTCOMES = ["passed", "failed", "error", "quarantined", "skipped", "cancelled", "running"];
function outcomeBar() {
  const counts = OUTCOMES.map((status) => [
    status,
    report.rollouts.filter((row) => row.status === status).length,
  ]);
  const used = counts.filter(([, n]) => n);
  const words = used.map(([status, n]) => (status === "error" ? plural(n, status) : `${count(n)} ${status}`));
  return h(
    "div",
    { class: "outcomes" },
    h(
      "div",
      { class: "strip", role: "img", "aria-label": words.join(", ") },
      used.map(([status, n]) => h("span", { class: `fill-${status}`, style: { flex: String(n) } })),
    ),
    h(
      "p",
      { class: "legend" },
      used.map(([status], i) =>
        h("a", { href: filtered({ status }) }, h("i", { class: `fill-${status}` }), words[i]),
      ),
    ),
  );
}

function cards() {
  const totals = report.totals;
  if (!totals.rollouts) return null; // none has ended yet
  const tasks = Math.max(totals.tasks, new Set(report.rollouts.map((row) => row.task)).size);
  const errors = Object.entries(totals.errors_by_category).map(([name, n]) => `${n} ${name}`);
  const perPass =
    totals.passed && totals.cost_usd !== null ? `${money(totals.cost_usd / totals.passed)} per pass` : null;
  return h(
    "dl",
    { class: "cards" },
    card("Pass rate", percent(totals.pass_rate), range(totals.pass_rate_interval) || "nothing was scored"),
    card("Mean reward", fixed(totals.mean_reward), range(totals.mean_reward_interval, fixed)),
    card("Rollouts", count(report.rollouts.length), `of ${plural(tasks, "task")}`),
    card("Errors", count(totals.errors), errors.join(", ") || "of the harness", totals.errors ? "warn" : ""),
    totals.cost_usd === null
      ? null
      : card("Cost", money(totals.cost_usd), totals.cost_is_partial ? "some is unknown" : perPass),
    totals.tokens === null
      ? null
      : card("Tokens", short(totals.tokens), `${short(totals.tool_calls)} tool calls`),
    card("Time", about(totals.seconds), "sum over rollouts"),
  );
}

const GATE_WORDS = { passed: "holds", failed: "fails", error: "cannot tell" };
function gateTable() {
  if (!report.gates?.length) return null;
  const rows = report.gates.map((gate) =>
    h(
      "tr",
      {},
      h("td", {}, chip(gate.outcome, GATE_WORDS[gate.outcome] ?? gate.outcome)),
      h("td", { class: "name" }, h("code", {}, plain(gate.gate))),
      h(
        "td",
        {},
        plain(gate.message),
        gate.blocking === false ? h("span", { class: "sub" }, " (does not block)") : null,
      ),
    ),
  );
  return section(
    "gates",
    "Gates",
    scrolling(
      "Gates",
      stacked(h("table", {}, heading(["Verdict", "Gate", "Measured"]), h("tbody", {}, rows))),
    ),
    report.saved ? h("p", { class: "sub" }, report.saved) : null,
  );
}

const MOST_NAMED = 12;
function integrityAlert() {
  const tripped = report.rollouts.filter((row) => row.integrity);
  if (!tripped.length) return null;
  const links = tripped
    .slice(0, MOST_NAMED)
    .map((row, i) => [
      i ? ", " : "",
      h("a", { href: addressOf(row) }, oneLine(row.task, 60)),
      row.job ? ` (${oneLine(row.job, 40)})` : "",
    ]);
  return h(
    "div",
    { class: "alert cheat", role: "note" },
    h("strong", {}, `${plural(tripped.length, "rollout")} tripped a defence: `),
    links,
    tripped.length > MOST_NAMED
      ? h("span", {}, ", ", h("a", { href: filtered({ status: "integrity" }) }, "all"))
      : null,
  );
}

function missingAlert() {
  const missing = report.missing ?? [];
  if (!missing.length) return null;
  return h(
    "div",
    { class: "alert", role: "note" },
    h("strong", {}, `${plural(missing.length, "rollout")} never ran`),
    h(
      "ul",
      {},
      missing.slice(0, MOST_NAMED).map((id) => h("li", {}, oneLine(id))),
    ),
    missing.length > MOST_NAMED ? h("p", {}, `and ${count(missing.length - MOST_NAMED)} more`) : null,
  );
}

// A pass rate with its interval, on an axis that all rows share.
function intervalPlot(rate, pair, colour) {
  if (!pair) return null;
  const [low, high] = pair.map((n) => n * 100);
  return h(
    "span",
    { class: "whisker", "aria-hidden": "true", style: { "--colour": colour } },
    h("i", { style: { left: `${low}%`, width: `${high - low}%` } }),
    h("b", { style: { left: `${rate * 100}%` } }),
  );
}

// The chances over trials, for the most trials that all tasks had.
function chances({ pass_at_k: at = {}, pass_all_k: all = {} }) {
  const k = Math.max(1, ...Object.keys(at).map(Number));
  return k > 1
    ? h("div", { class: "sub", title: `pass^${k} ${fixed(all[k])}` }, `pass@${k} ${fixed(at[k])}`)
    : null;
}

const MOST_GROUPS = 16;
function groupTable() {
  if (!report.groups.length) return null;
  const names = [
    "Agent",
    "Passed",
    "Pass rate",
    ["0", "100%"],
    "Reward",
    "Errors",
    "Tools",
    "Tokens",
    "Cost",
    "Time",
  ];
  const rows = report.groups.map((group, i) => {
    const name = groupName(group);
    const scored = group.passed + group.failed;
    return h(
      "tr",
      { hidden: i >= MOST_GROUPS },
      h(
        "td",
        { class: "name agent", title: name },
        h("i", { class: "swatch", style: { background: colourOf(name) } }),
        agentLabel(group, (text) => h("a", { href: filtered({ group: name }) }, text)),
      ),
      h("td", { class: "n" }, scored ? `${group.passed} of ${scored}` : "–", chances(group)),
      h(
        "td",
        { class: "n" },
        h("b", {}, percent(group.pass_rate)),
        h("div", { class: "sub" }, range(group.pass_rate_interval)),
      ),
      h("td", { class: "plot" }, intervalPlot(group.pass_rate, group.pass_rate_interval, colourOf(name))),
      h(
        "td",
        { class: "n" },
        fixed(group.mean_reward),
        h("div", { class: "sub" }, range(group.mean_reward_interval, fixed)),
      ),
      h("td", { class: "n" }, group.errors ? chip("error", group.errors) : "–"),
      h("td", { class: "n" }, group.n_tool_calls ? count(group.n_tool_calls) : "–"),
      h("td", { class: "n" }, short(group.tokens)),
      h("td", { class: "n" }, money(group.cost_usd), group.cost_is_partial ? " +" : ""),
      h("td", { class: "n" }, duration(group.seconds)),
    );
  });
  const table = h(
    "table",
    { class: "groups" },
    heading(names, (i) => i && i !== 3),
    h("tbody", {}, rows),
  );
  const showAll = () => (rows.forEach((row) => (row.hidden = false)), more.remove());
  const more = h("button", { type: "button", class: "more", onclick: showAll }, `Show all ${rows.length}`);
  return section(
    "groups",
    groups.length > 1 ? "Agents" : "Agent",
    scrolling("Agents", stacked(table)),
    rows.length > MOST_GROUPS ? more : null,
  );
}

// ---- tasks by agent ---------------------------------------------------------------------------------------------------

const MOST_TASKS = 30;
function heatCell(task, name, rows) {
  if (!rows) return h("td");
  const scored = rows.filter(isScored);
  const passed = rows.filter((row) => row.status === "passed").length;
  const mean = scored.length ? scored.reduce((sum, row) => sum + row.reward, 0) / scored.length : null;
  const words =
    mean === null ? rows[0].status : `mean reward ${reward(mean)}, ${passed} of ${rows.length} passed`;
  const kind = mean === null ? (rows.some((row) => row.status === "error") ? "broken" : "none") : "scored";
  const shade = mean === null ? {} : { "--heat": `${Math.round(Math.min(1, Math.max(0, mean)) * 100)}%` };
  const link = {
    href: rows.length === 1 ? addressOf(rows[0]) : filtered({ group: name, q: task }),
    "aria-label": `${oneLine(task)}, ${name}: ${words}`,
    title: `${oneLine(task)} · ${name}\n${words}`,
    class: kind,
    style: shade,
  };
  const marks =
    rows.length > 1 && rows.length <= 8
      ? h(
          "span",
          { class: "marks", "aria-hidden": "true" },
          rows.map((row) => h("i", { class: `fill-${row.status}` })),
        )
      : null;
  const text = mean === null ? rows[0].status : rows.length === 1 ? reward(mean) : `${passed}/${rows.length}`;
  return h("td", {}, h("a", link, text, marks));
}

function heatMap() {
  const tasks = new Map();
  for (const row of report.rollouts) {
    if (!tasks.has(row.task)) tasks.set(row.task, new Map());
    const cells = tasks.get(row.task);
    cells.set(row.group, [...(cells.get(row.group) ?? []), row]);
  }
  if (tasks.size * groups.length < 2) return null; // the table of rollouts says it
  const body = h("tbody");
  const draw = ([task, cells]) =>
    body.append(
      h(
        "tr",
        {},
        h("th", { scope: "row", title: plain(task) }, oneLine(task, 80)),
        groups.map((name) => heatCell(task, name, cells.get(name))),
      ),
    );
  const all = [...tasks];
  all.slice(0, MOST_TASKS).forEach(draw);
  const more = h(
    "button",
    { type: "button", class: "more", onclick: () => (all.slice(MOST_TASKS).forEach(draw), more.remove()) },
    `Show all ${all.length} tasks`,
  );
  const head = h(
    "tr",
    {},
    h("td"),
    groups.map((name) =>
      h("th", { scope: "col", class: "agent", title: name }, agentLabel(groupRows.get(name))),
    ),
  );
  return section(
    "heat",
    "Tasks by agent",
    scrolling("Tasks by agent", h("table", { class: "heat" }, h("thead", {}, head), body)),
    all.length > MOST_TASKS ? more : null,
  );
}

function chartSections() {
  const charts = [rewardChart(), costChart(), timeChart()].filter(Boolean);
  return charts.length ? h("div", { class: "columns" }, charts) : null;
}

function overviewPage() {
  document.title = report.title;
  showCrumbs([]);
  const facts = [
    clock(report.started_at),
    isKnown(report.exit_status) ? `exit status ${report.exit_status}` : null,
    report.tool,
    report.job_dir,
  ];
  show(
    h("h1", { tabindex: "-1" }, report.title),
    h(
      "p",
      { class: "sub" },
      facts.filter(Boolean).map((fact, i) => [i ? " · " : "", plain(fact)]),
    ),
    report.rollouts.length
      ? [
          report.comparison ? null : [outcomeBar(), cards()],
          missingAlert(),
          integrityAlert(),
          gateTable(),
          comparisonSections(),
          groupTable(),
          chartSections(),
          heatMap(),
          rolloutTable(),
        ]
      : [
          missingAlert(),
          h("p", { class: "empty" }, isFile ? "This report has no rollouts." : "No rollout has begun yet."),
        ],
  );
}
