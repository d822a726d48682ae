// The table of rollouts, with search, filters and order; all of them are in the address, so that a link keeps them.

const COLUMNS = [
  {
    name: "Status",
    key: (row) => OUTCOMES.indexOf(row.status),
    show: (row) => [chip(row.status), row.integrity ? [" ", chip("cheat", "integrity")] : null],
  },
  {
    name: "Task",
    kind: "name",
    key: (row) => row.task,
    show: (row) => [
      h("a", { href: addressOf(row) }, oneLine(row.task, 120)),
      row.message && row.status !== "passed" ? h("div", { class: "sub" }, oneLine(row.message, 160)) : null,
    ],
  },
  {
    name: "Agent",
    kind: "name agent",
    key: (row) => row.group,
    show: (row) => agentLabel(row, undefined, row.trial),
  },
  { name: "Reward", kind: "n", key: (row) => row.reward ?? -Infinity, show: (row) => fixed(row.reward) },
  {
    name: "Tools",
    kind: "n wide",
    key: (row) => row.tools ?? -1,
    show: (row) => (row.tools ? count(row.tools) : "–"),
  },
  { name: "Tokens", kind: "n wide", key: (row) => row.tokens ?? -1, show: (row) => short(row.tokens) },
  { name: "Cost", kind: "n wide", key: (row) => row.cost ?? -1, show: (row) => money(row.cost) },
  { name: "Time", kind: "n", key: (row) => row.seconds ?? -1, show: (row) => duration(row.seconds) },
];

const COLUMN_NAMES = COLUMNS.map(({ name }) => name);

function sortedRows(query) {
  const rows = chosenRows(query);
  const column = COLUMNS.find(({ name }) => name === query.get("sort"));
  if (!column) return rows;
  const sign = query.get("down") ? -1 : 1;
  const keyed = rows.map((row) => [column.key(row), row]);
  keyed.sort(([a], [b]) => (a < b ? -sign : a > b ? sign : 0));
  return keyed.map(([, row]) => row);
}
const tableRow = (row) =>
  asCard(
    h(
      "tr",
      { class: "row" },
      COLUMNS.map(({ kind, show }) => h("td", { class: kind }, show(row))),
    ),
    COLUMN_NAMES,
  );

function rolloutTable() {
  const body = h("tbody");
  const foot = h("div");
  const status = h("p", { class: "sub" });
  let drawing = null;
  const draw = () => {
    const rows = sortedRows(route().query);
    drawing?.stop();
    body.replaceChildren();
    drawing = lazily(body, rows, tableRow);
    foot.replaceChildren(drawing.end);
    const all = report.rollouts.length;
    status.textContent =
      rows.length === all ? plural(all, "rollout") : `${count(rows.length)} of ${plural(all, "rollout")}`;
    if (!rows.length)
      body.append(h("tr", {}, h("td", { colspan: COLUMNS.length, class: "empty" }, "No rollout matches.")));
    byId("said").textContent = status.textContent;
  };
  const change = (changes) => {
    history.replaceState(null, "", filtered(changes));
    lastFilter = route().query;
    draw();
  };
  draw();
  const table = h(
    "table",
    { class: "rollouts stack", role: "table" },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, sortHeads(change))),
    body,
  );
  return section(
    "rollouts",
    "Rollouts",
    h("div", { class: "filters" }, filterControls(change)),
    status,
    scrolling("Rollouts", table),
    foot,
  );
}

function filterControls(change) {
  const { query } = route();
  const search = h("input", {
    type: "search",
    id: "search",
    placeholder: "Search tasks, agents, errors",
    "aria-label": "Search rollouts",
    value: query.get("q") ?? "",
    oninput: () => change({ q: search.value }),
  });
  const present = [...OUTCOMES, "integrity"].filter((status) =>
    report.rollouts.some((row) => matches(row, status)),
  );
  const press = ({ currentTarget }) => {
    const isOn = currentTarget.getAttribute("aria-pressed") !== "true";
    for (const button of buttons)
      button.setAttribute("aria-pressed", String(isOn && button === currentTarget));
    change({ status: isOn ? currentTarget.dataset.status : "" });
  };
  const buttons = present.map((status) => {
    const n = report.rollouts.filter((row) => matches(row, status)).length;
    const pressed = String(query.get("status") === status);
    return h(
      "button",
      { type: "button", "data-status": status, "aria-pressed": pressed, onclick: press },
      status,
      h("span", { class: "sub" }, ` ${count(n)}`),
    );
  });
  const options = [["", "All agents"], ...groups.map((name) => [name, name])];
  const select = h(
    "select",
    { "aria-label": "Agent", onchange: () => change({ group: select.value }) },
    options.map(([value, text]) =>
      h("option", { value, selected: (query.get("group") ?? "") === value }, text),
    ),
  );
  return [search, buttons, groups.length > 1 ? select : null];
}

function sortHeads(change) {
  const { query } = route();
  const state = (name) =>
    query.get("sort") !== name ? "none" : query.get("down") ? "descending" : "ascending";
  const press = (head, name) => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of heads) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    change({ sort: name, down: down ? "1" : "" });
  };
  const heads = COLUMNS.map(({ name, kind }) => {
    const head = h("th", { scope: "col", role: "columnheader", class: kind, "aria-sort": state(name) });
    head.append(h("button", { type: "button", onclick: () => press(head, name) }, name));
    return head;
  });
  return heads;
}
