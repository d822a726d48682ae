// Charts are plain SVG; each says in words what it shows.

const W = 380;
const H = 190;
const LEFT = 34;
const BASE = 168;
const axis = (x1, y1, x2, y2, kind = "axis") => s("line", { class: kind, x1, y1, x2, y2 });
const label = (x, y, text, anchor = "start") => s("text", { x, y, "text-anchor": anchor }, text);
const chart = (title, ...parts) =>
  s("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": title }, parts);
const isNamed = (name) => groups.length <= COLOURED + 1 || groups.indexOf(name) < COLOURED;
function groupLegend() {
  if (groups.length < 2) return null;
  const named = groups.filter(isNamed);
  const others = groups.length - named.length;
  const pairs = named.map((name) => [name, colourOf(name)]);
  return legend(others ? [...pairs, [`${others} others`, `var(--g${COLOURED})`]] : pairs);
}

const isScored = (row) => typeof row.reward === "number";
function rewardRange(rows) {
  const rewards = rows.map((row) => row.reward);
  return [Math.min(0, ...rewards), Math.max(1, ...rewards)];
}

const BINS = 11;
function rewardChart() {
  const scored = report.rollouts.filter(isScored);
  if (scored.length < 2) return null;
  const [low, high] = rewardRange(scored);
  const bins = Array.from({ length: BINS }, () => new Map());
  for (const row of scored) {
    const bin = bins[Math.min(BINS - 1, Math.floor(((row.reward - low) / (high - low)) * BINS))];
    const name = isNamed(row.group) ? row.group : "others";
    bin.set(name, (bin.get(name) ?? 0) + 1);
  }
  const sizes = bins.map((bin) => [...bin.values()].reduce((sum, n) => sum + n, 0));
  const most = Math.max(...sizes);
  const wide = (W - LEFT) / BINS;
  const bars = bins.map((bin, i) => {
    let y = BASE;
    return [...bin].map(([name, n]) => {
      const height = (n / most) * (BASE - 18);
      y -= height;
      const box = { x: LEFT + i * wide + 2, y, width: wide - 4, height, style: { fill: colourOf(name) } };
      return s("rect", box, s("title", {}, `${name}: ${n}`));
    });
  });
  const numbers = sizes.map((n, i) => {
    const top = BASE - (n / most) * (BASE - 18) - 5;
    return n ? label(LEFT + (i + 0.5) * wide, top, String(n), "middle") : null;
  });
  const title = `Distribution of ${scored.length} rewards from ${reward(low)} to ${reward(high)}`;
  return section(
    "rewards",
    "Rewards",
    chart(
      title,
      bars,
      numbers.filter(Boolean),
      axis(LEFT, BASE, W, BASE),
      label(LEFT + wide / 2, H - 6, reward(low), "middle"),
      label(LEFT + (W - LEFT) / 2, H - 6, reward((low + high) / 2), "middle"),
      label(W - wide / 2, H - 6, reward(high), "middle"),
    ),
    groupLegend(),
  );
}

const MOST_DOTS = 3000;
function costChart() {
  const priced = report.rollouts.filter((row) => isScored(row) && typeof row.cost === "number");
  const byCost = priced.length > 1 && priced.some((row) => row.cost > 0);
  const rows = byCost
    ? priced
    : report.rollouts.filter((row) => isScored(row) && typeof row.seconds === "number");
  if (rows.length < 2) return null;
  const [value, show] = byCost ? [(row) => row.cost, money] : [(row) => row.seconds, duration];
  const most = Math.max(...rows.map(value)) || 1;
  const [low, high] = rewardRange(rows);
  const x = (n) => LEFT + 8 + (n / most) * (W - LEFT - 18);
  const y = (n) => BASE - 10 - ((n - low) / (high - low)) * (BASE - 30);
  const dots = rows
    .slice(0, MOST_DOTS)
    .map((row) =>
      s(
        "circle",
        { cx: x(value(row)), cy: y(row.reward), r: 4.5, style: { fill: colourOf(row.group) } },
        s(
          "title",
          {},
          `${oneLine(row.task, 60)} · ${row.group} · ${show(value(row))} · reward ${reward(row.reward)}`,
        ),
      ),
    );
  const name = byCost ? "Cost against reward" : "Time against reward";
  const grid = [low, (low + high) / 2, high].map((n) => [
    axis(LEFT, y(n), W, y(n), "grid"),
    label(LEFT - 7, y(n) + 4, reward(n), "end"),
  ]);
  return section(
    "costs",
    name,
    chart(
      `${name} of ${rows.length} rollouts`,
      grid,
      axis(LEFT, BASE, W, BASE),
      dots,
      label(LEFT, H - 6, show(0)),
      label(W, H - 6, show(most), "end"),
    ),
    groupLegend(),
  );
}

const PHASES = ["setup", "start", "install_agent", "connect", "execute", "soft_verify", "verify", "cleanup"];
const PHASE_COLOURS = [7, 1, 6, 5, 2, 4, 3, 7];
const phaseName = (phase) => phase.replaceAll("_", " ");
const phaseColour = (phase) => `var(--g${PHASE_COLOURS[PHASES.indexOf(phase)] ?? 7})`;
function phaseBar(timing) {
  const used = PHASES.filter((phase) => timing[phase]);
  const words = used.map((phase) => `${phaseName(phase)} ${duration(timing[phase])}`);
  return h(
    "div",
    { class: "phases", role: "img", "aria-label": words.join(", ") },
    used.map((phase, i) =>
      h("span", { title: words[i], style: { flex: String(timing[phase]), background: phaseColour(phase) } }),
    ),
  );
}
const phaseLegend = (phases, text = phaseName) =>
  legend(phases.map((phase) => [text(phase), phaseColour(phase)]));

const MOST_BARS = 8;
function timeChart() {
  const bars = groups.slice(0, MOST_BARS).flatMap((name) => {
    const members = report.rollouts.filter((row) => row.group === name && row.timing);
    if (!members.length) return [];
    const mean = (phase) => members.reduce((sum, row) => sum + (row.timing[phase] ?? 0), 0) / members.length;
    const means = Object.fromEntries(PHASES.map((phase) => [phase, mean(phase)]));
    return [{ name, means, total: Object.values(means).reduce((sum, n) => sum + n, 0) }];
  });
  const longest = Math.max(...bars.map((bar) => bar.total));
  if (!(longest > 0)) return null;
  return section(
    "times",
    "Mean time by phase",
    bars.map(({ name, means, total }) => {
      const bar = phaseBar(means);
      bar.style.width = `${Math.max(4, (total / longest) * 100)}%`;
      return h(
        "div",
        { class: "timed" },
        h(
          "p",
          {},
          h("span", { class: "clip", title: name }, name),
          h("span", { class: "sub" }, duration(total)),
        ),
        bar,
      );
    }),
    phaseLegend(PHASES.filter((phase) => bars.some((bar) => bar.means[phase] / longest > 0.005))),
  );
}
