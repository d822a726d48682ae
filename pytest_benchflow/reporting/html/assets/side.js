// Jobs compared, and trajectories side by side.

const VERDICTS = { regressed: "regressed", improved: "improved", "no evidence": "neutral" };
const signed = (n) => (isKnown(n) ? `${n > 0 ? "+" : n < 0 ? "−" : "±"}${Math.abs(n).toFixed(2)}` : "–");

// A difference with its interval, on an axis from −1 to +1.
function differencePlot({ difference, interval, verdict }) {
  const place = (n) => (Math.min(1, Math.max(-1, n)) + 1) * 50;
  const colour =
    { regressed: "var(--fail-fill)", improved: "var(--pass-fill)" }[verdict] ?? "var(--skip-fill)";
  const [low, high] = (interval ?? [difference, difference]).map(place);
  return h(
    "span",
    { class: "whisker", "aria-hidden": "true", style: { "--colour": colour } },
    h("i", { style: { left: `${low}%`, width: `${high - low}%` } }),
    h("b", { style: { left: `${place(difference)}%` } }),
  );
}

// Rewards of 0 and 1 only say what the pass rate says.
function differencesOf({ pass_rate: rate, mean_reward: mean }) {
  const isSame = rate && mean && rate.before === mean.before && rate.after === mean.after;
  return [rate, isSame ? null : mean].filter(Boolean);
}

function differenceTable(comparisons) {
  const names = { pass_rate: "pass rate", mean_reward: "mean reward" };
  const rows = comparisons.flatMap((each) =>
    [each.pass_rate, each.mean_reward]
      .filter(Boolean)
      .map((one) =>
        h(
          "tr",
          {},
          h("td", {}, chip(VERDICTS[one.verdict], one.verdict)),
          h(
            "td",
            { class: "name" },
            `${plain(each.before ?? "baseline")} → ${plain(each.after ?? "this run")}`,
            h("div", { class: "sub" }, names[one.measure]),
          ),
          h("td", { class: "n" }, `${fixed(one.before)} → ${fixed(one.after)}`),
          h(
            "td",
            { class: "n" },
            h("b", {}, signed(one.difference)),
            h("div", { class: "sub" }, range(one.interval, signed)),
          ),
          h("td", { class: "plot" }, differencePlot(one)),
          h("td", { class: "n wide" }, one.p_value < 0.001 ? "< 0.001" : fixed(one.p_value, 3)),
          h("td", { class: "wide" }, plural(one.tasks, "task"), h("div", { class: "sub" }, plain(one.test))),
        ),
      ),
  );
  const head = heading(
    ["Verdict", "Compared", "Before → after", "Difference", ["−1", "+1"], "p", "Evidence"],
    (i) => i === 2 || i === 3 || i === 5,
  );
  return rows.length
    ? scrolling("Verdicts", stacked(h("table", {}, head, h("tbody", {}, rows))))
    : h("p", {}, "No task was scored in both.");
}

function unmatchedList(comparisons) {
  const lists = comparisons.flatMap((each) => [
    [`only in ${each.before ?? "the baseline"}`, each.only_before],
    [`only in ${each.after ?? "this run"}`, each.only_after],
    ["not scored in both", each.unscored],
  ]);
  const line = ([title, names]) =>
    h(
      "details",
      {},
      h("summary", {}, `${plural(names.length, "task")} ${plain(title)}`),
      h("p", { class: "sub" }, plain(names.join(", "))),
    );
  return [
    lists.filter(([, names]) => names.length).map(line),
    comparisons.flatMap((each) => each.notes).map((note) => h("p", { class: "sub" }, plain(note))),
  ];
}

const CHANGES = { better: "improved", worse: "regressed" };
function taskCell(cell) {
  if (!cell) return h("td", {}, "–");
  const text = `${cell.passed} of ${cell.trials}`;
  const link =
    cell.id && rowsById.has(cell.id) ? h("a", { href: addressOf(rowsById.get(cell.id)) }, text) : text;
  const isPlain = cell.reward === cell.passed / cell.trials;
  return h(
    "td",
    {},
    link,
    isPlain ? null : h("span", { class: "sub" }, ` · ${reward(cell.reward)}`),
    CHANGES[cell.change]
      ? [" ", chip(CHANGES[cell.change], cell.verdict === "no evidence" ? cell.change : cell.verdict)]
      : null,
  );
}
const sideAddress = (cells) => {
  const ids = cells.map((cell) => cell?.id).filter((id) => rowsById.has(id));
  return ids.length > 1 ? `#/side/${ids.map(encodeURIComponent).join("/")}` : null;
};

function taskTable({ jobs, tasks }) {
  const isMoved = ({ cells }) =>
    cells.some((cell, i) => i && cell && (cell.change !== "same" || cell.reward !== cells[0].reward));
  const row = ({ task, configuration, cells }) => {
    const side = sideAddress(cells);
    return h(
      "tr",
      { class: "row" },
      h("td", { class: "name" }, oneLine(task, 120), h("div", { class: "sub" }, plain(configuration))),
      cells.map(taskCell),
      h(
        "td",
        { class: "n" },
        side
          ? h("a", { href: side, "aria-label": `${oneLine(task, 80)}: side by side` }, "side by side")
          : null,
      ),
    );
  };
  const [moved, same] = [tasks.filter(isMoved), tasks.filter((each) => !isMoved(each))];
  const table = (rows, name) =>
    scrolling(
      name,
      stacked(
        h(
          "table",
          {},
          heading(["Task", ...jobs.map(({ name: job }) => job), ""]),
          h("tbody", {}, rows.map(row)),
        ),
      ),
    );
  return section(
    "moved",
    moved.length ? `${plural(moved.length, "task")} changed` : "No task changed",
    moved.length ? table(moved, "Changed tasks") : null,
    same.length
      ? h(
          "details",
          { class: "more" },
          h("summary", {}, `${plural(same.length, "task")} with the same result`),
          table(same, "Tasks with the same result"),
        )
      : null,
  );
}

function comparisonSections() {
  const { comparison, baseline } = report;
  if (baseline)
    return section(
      "verdicts",
      "Compared with the baseline",
      differenceTable([baseline]),
      unmatchedList([baseline]),
    );
  if (!comparison) return null;
  const changes = Object.entries(comparison.changes);
  const changed = changes.map(([key, values]) =>
    h(
      "tr",
      {},
      h("td", { class: "name" }, plain(key)),
      values.map((value) => h("td", {}, plain(value))),
    ),
  );
  const names = comparison.jobs.map(({ name }) => name);
  return [
    section(
      "verdicts",
      "Verdicts",
      differenceTable(comparison.comparisons),
      unmatchedList(comparison.comparisons),
    ),
    taskTable(comparison),
    changes.length
      ? section(
          "changes",
          "Configured differently",
          scrolling(
            "Configured differently",
            h("table", {}, heading(["Setting", ...names]), h("tbody", {}, changed)),
          ),
        )
      : null,
  ];
}

async function sidePage(ids) {
  const rows = ids.map((id) => rowsById.get(id)).filter(Boolean);
  if (rows.length < 2) {
    location.hash = "#/";
    return;
  }
  document.title = `${oneLine(rows[0].task, 80)} · side by side`;
  showCrumbs([
    [oneLine(rows[0].task, 60), addressOf(rows[0])],
    ["side by side", null],
  ]);
  const details = await Promise.all(rows.map((row) => source.rollout(row)));
  const column = (row, i) =>
    h(
      "div",
      {},
      h(
        "div",
        { class: "panel" },
        h(
          "h2",
          {},
          h("a", { href: addressOf(row) }, row.group, row.trial > 1 ? ` · trial ${row.trial}` : ""),
          " ",
          chip(row.status),
        ),
        h(
          "p",
          { class: "sub" },
          `reward ${reward(row.reward)} · ${duration(row.seconds)} · ${plural(row.tools ?? 0, "tool call")} · ${money(row.cost)}`,
        ),
        phaseBar(details[i].result.timing ?? {}),
        row.message ? h("p", { class: "sub" }, plain(row.message)) : null,
      ),
      trajectoryView(details[i], null, `s${i}-`).node,
    );
  show(
    h("h1", { tabindex: "-1" }, oneLine(rows[0].task, 200)),
    h("div", { class: "side" }, rows.map(column)),
  );
}
