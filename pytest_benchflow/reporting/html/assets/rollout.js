// The page of one rollout: what came out and why, then how it went, turn by turn.

function factList(row, result) {
  const others = Object.entries(result.rewards ?? {}).filter(([name]) => name !== "reward");
  const tokens = result.tokens ?? {};
  const facts = [
    [
      "Reward",
      isKnown(result.reward)
        ? [h("b", {}, reward(result.reward)), ` of ${reward(result.threshold)} needed`]
        : null,
    ],
    ["Phase", result.phase && phaseName(result.phase)],
    ...others.map(([name, value]) => [oneLine(name, 40), reward(value)]),
    ["Total time", duration(row.seconds)],
    ["Tool calls", count(result.n_tool_calls)],
    ["Prompts", count(result.n_prompts)],
    ["Tokens", isKnown(tokens.input) ? `${short(tokens.input)} in, ${short(tokens.output)} out` : null],
    ["From the cache", isKnown(tokens.cached) ? short(tokens.cached) : null],
    [
      "Cost",
      isKnown(result.cost_usd)
        ? `${money(result.cost_usd)}${result.cost_is_partial ? " and more" : ""}`
        : null,
    ],
    ["Agent ended", result.agent_outcome],
    ["Models", (result.models ?? []).join(", ")],
    ["Agent", [result.agent_name, result.agent_version].filter(Boolean).join(" ")],
    ["Sandbox", result.sandbox],
    ["Started", clock(result.started_at)],
  ];
  const isSaid = ([, value]) => value !== null && value !== undefined && value !== "" && value !== "–";
  return h(
    "dl",
    { class: "facts" },
    facts
      .filter(isSaid)
      .map(([name, value]) =>
        h("div", {}, h("dt", {}, name), h("dd", {}, Array.isArray(value) ? value : plain(value))),
      ),
  );
}

function alerts(row, result) {
  const { error, integrity = [], attempts = [] } = result;
  const alert = (kind, title, ...body) =>
    h("div", { class: `alert ${kind}`, role: "note" }, h("strong", {}, title), body);
  const text = (words) => h("p", { class: "text" }, plain(words));
  // The message of an error ends in its advice, which gets a paragraph of its own.
  const message = error?.advice ? error.message.replace(`; ${error.advice}`, "") : error?.message;
  const advice = error?.advice ? h("p", {}, h("b", {}, "What to do: "), plain(error.advice)) : null;
  const finding = ({ message: what, kind, paths = [], step, round }) =>
    h(
      "li",
      {},
      plain(what),
      h(
        "span",
        { class: "sub" },
        [kind, step, isKnown(round) ? `round ${round}` : null, ...paths]
          .filter(Boolean)
          .map((each) => ` · ${plain(each)}`),
      ),
    );
  return [
    error ? alert("", `${error.category} error in ${phaseName(error.phase)}`, text(message), advice) : null,
    result.skipped ? alert("quiet", "Skipped", text(result.skipped)) : null,
    integrity.length
      ? alert("cheat", "This rollout tripped a defence", h("ul", {}, integrity.map(finding)))
      : null,
    row.status === "failed" && row.message ? alert("fail", "Not passed", text(row.message)) : null,
    attempts.length
      ? alert(
          "quiet",
          `${plural(attempts.length, "earlier attempt")} gave no reward`,
          h(
            "ul",
            {},
            attempts.map((each) =>
              h(
                "li",
                {},
                plain(`${each.rollout_name} · ${each.status}`),
                each.error ? ` · ${plain(each.error.message)}` : "",
              ),
            ),
          ),
        )
      : null,
  ];
}

// The verifier's named checks: how many passed, the failing ones first. Reward events know those that passed too.
const CHECK = "check:";
function checkList({ checks, reward_events: events = [] }) {
  if (!checks || !(checks.passed || checks.failed)) return null;
  const { passed, failed, failing = [] } = checks;
  const isPassing = ({ source, reward: value }) =>
    source.startsWith(CHECK) && value > 0 && !failing.includes(source.slice(CHECK.length));
  const passing = events.filter(isPassing).map(({ source }) => source.slice(CHECK.length));
  const item = (mark, word) => (name) =>
    h("li", {}, h("span", { class: word, role: "img", "aria-label": word }, mark), plain(name));
  const parts = [
    ["passed", passed],
    ["failed", failed],
  ].filter(([, n]) => n);
  const strip = parts.map(([status, n]) =>
    h("span", { class: `fill-${status}`, style: { flex: String(n) } }),
  );
  return section(
    "checks",
    `Checks: ${passed} of ${passed + failed} passed`,
    h("div", { class: "strip thin", role: "img", "aria-label": `${passed} passed, ${failed} failed` }, strip),
    h("ul", { class: "checks" }, failing.map(item("✕", "cross")), passing.map(item("✓", "tick"))),
  );
}

function criteriaTable({ criteria = [], judge }) {
  if (!criteria.length) return null;
  const row = (each) =>
    h(
      "tr",
      {},
      h(
        "td",
        {},
        h(
          "span",
          { class: "meter", "aria-hidden": "true" },
          h("i", { style: { width: `${Math.min(1, Math.max(0, each.value)) * 100}%` } }),
        ),
        reward(each.value),
      ),
      h(
        "td",
        { class: "name" },
        plain(each.name),
        each.description ? h("div", { class: "sub" }, plain(each.description)) : null,
      ),
      h("td", { class: "n" }, reward(each.weight)),
      h(
        "td",
        { class: "text" },
        plain(each.error ?? each.reason),
        isKnown(each.agreement)
          ? h("div", { class: "sub" }, `verdicts agree to ${percent(each.agreement)}`)
          : null,
      ),
    );
  const table = h(
    "table",
    { class: "criteria" },
    heading(["Score", "Criterion", "Weight", "Why"], (i) => i === 2),
    h("tbody", {}, criteria.map(row)),
  );
  return section(
    "criteria",
    "Criteria",
    judge?.model ? h("p", { class: "sub" }, `judged by ${plain(judge.model)}`) : null,
    scrolling("Criteria", stacked(table)),
  );
}

// What else the reward is made of: signals that are neither checks nor criteria.
function rewardTable({ reward_events: events = [], criteria = [] }) {
  const known = new Set(criteria.flatMap(({ name }) => [name, `criterion:${name}`]));
  const isNews = ({ source, granularity }) =>
    granularity !== "terminal" && !source.startsWith(CHECK) && !known.has(source);
  const parts = events.filter(isNews);
  if (!parts.length) return null;
  const rows = parts.map((event) =>
    h(
      "tr",
      {},
      h("td", { class: "n" }, reward(event.reward)),
      h("td", { class: "name" }, plain(event.source)),
      h("td", {}, plain(event.type)),
    ),
  );
  return section(
    "signals",
    "What the reward is made of",
    scrolling(
      "Signals",
      h(
        "table",
        {},
        heading(["Reward", "Source", "Kind"], (i) => !i),
        h("tbody", {}, rows),
      ),
    ),
  );
}

function timeSection(result) {
  const timing = result.timing ?? {};
  const used = PHASES.filter((phase) => timing[phase] >= 0.0005);
  return used.length
    ? section(
        "timing",
        "Time",
        phaseBar(timing),
        phaseLegend(used, (phase) => `${phaseName(phase)} ${duration(timing[phase])}`),
      )
    : null;
}

const OUTLINED = ["user_message", "agent_message", "agent_error", "agent_crash", "agent_timeout"];
function outline(events, row) {
  const isMark = (event) =>
    (OUTLINED.includes(event.type) && !event.notice) ||
    (event.type === "tool_call" && (event.status === "failed" || isEdit(event)));
  const marks = events.filter(isMark).slice(0, 60);
  if (marks.length < 3) return null;
  const entry = (event) => {
    const view = viewOf(event);
    const text = event.type === "tool_call" ? event.title : (event.text ?? event.message ?? event.type);
    return h(
      "li",
      { class: view.kind },
      h("a", { href: addressOf(row, event.seq) }, icon(view.icon), h("span", {}, oneLine(text, 60))),
    );
  };
  return h(
    "nav",
    { class: "outline", "aria-label": "Outline" },
    h("h2", {}, "Outline"),
    h("ol", {}, marks.map(entry)),
  );
}

function neighbours(row) {
  const rows = sortedRows(lastFilter);
  const place = rows.indexOf(row);
  const link = (other, text, rel) =>
    other ? h("a", { class: "button", href: addressOf(other), rel }, text) : null;
  const siblings = report.rollouts.filter((other) => other.task === row.task && other !== row).slice(0, 200);
  const select = h(
    "select",
    {
      "aria-label": "Compare with",
      onchange: () => (location.hash = `#/side/${[row.id, select.value].map(encodeURIComponent).join("/")}`),
    },
    h("option", { value: "" }, "Compare with…"),
    siblings.map((other) =>
      h(
        "option",
        { value: other.id },
        `${other.group}${other.trial > 1 ? ` · trial ${other.trial}` : ""} (${other.status})`,
      ),
    ),
  );
  return h(
    "div",
    { class: "pager" },
    link(rows[place - 1], "← Previous", "prev"),
    link(rows[place + 1], "Next →", "next"),
    siblings.length ? select : null,
  );
}

function eventButtons(story) {
  const openAll = () => {
    story.all();
    for (const details of story.list.querySelectorAll("details")) details.open = true;
  };
  const closeAll = () =>
    story.list.querySelectorAll("details[open]").forEach((details) => (details.open = false));
  const button = (text, onclick) => h("button", { type: "button", onclick }, text);
  return story.events.length
    ? h("div", { class: "buttons" }, button("Open all", openAll), button("Close all", closeAll))
    : null;
}

async function rolloutPage(id, event) {
  const row = rowsById.get(id);
  if (!row) {
    show(
      h("h1", { tabindex: "-1" }, "No such rollout"),
      h("p", { class: "text" }, plain(id)),
      h("p", {}, h("a", { href: "#/" }, "All rollouts")),
    );
    return;
  }
  const title = oneLine(row.task, 200);
  document.title = `${oneLine(row.task, 80)} · ${report.title}`;
  showCrumbs([[oneLine(row.task, 80), null]]);
  const detail = await source.rollout(row);
  if (route().parts[1] !== id) return; // somebody has gone on meanwhile
  const { result } = detail;
  const story = trajectoryView(detail, row, "");
  show(
    h("div", { class: "title" }, h("h1", { tabindex: "-1" }, title), chip(row.status)),
    h("p", { class: "sub" }, row.group, row.trial > 1 ? ` · trial ${row.trial}` : ""),
    neighbours(row),
    h(
      "div",
      { class: "rollout" },
      h(
        "aside",
        {},
        h(
          "div",
          { class: "panel" },
          h("h2", { class: "hidden" }, "Facts"),
          factList(row, result),
          timeSection(result),
        ),
        outline(story.events, row),
      ),
      h(
        "div",
        {},
        alerts(row, result),
        checkList(result),
        criteriaTable(result),
        rewardTable(result),
        stepTable(result.steps ?? []),
        section(
          "story",
          "Trajectory",
          h(
            "div",
            { class: "bar" },
            detail.events.length ? h("p", { class: "sub" }, plural(detail.events.length, "event")) : null,
            eventButtons(story),
          ),
          detail.left_out ? h("p", { class: "sub" }, plain(detail.left_out)) : null,
          story.node,
        ),
        detail.verifier ? section("verifier", "Verifier output", block(detail.verifier)) : null,
        (result.notes ?? []).length
          ? section(
              "notes",
              "Notes",
              h(
                "ul",
                {},
                result.notes.map((note) => h("li", {}, plain(note))),
              ),
            )
          : null,
        detail.config
          ? section(
              "config",
              "Configuration",
              h(
                "details",
                {},
                h("summary", {}, "Everything this rollout was given"),
                block(asText(detail.config)),
              ),
            )
          : null,
        result.rollout_dir ? h("p", { class: "sub mono path" }, plain(result.rollout_dir)) : null,
      ),
    ),
  );
  if (row.status === "running") followRollout(row, story);
  if (event !== null) {
    story.all();
    goTo(byId(`event-${event}`));
  }
}

const rewardWords = (rewards) =>
  Object.entries(rewards ?? {})
    .map(([name, value]) => `${plain(name)} ${reward(value)}`)
    .join(", ") || "–";
// Of a rollout that runs, show more of its trajectory as it comes.
const FOLLOW_MS = 2000;
function followRollout(row, story) {
  const timer = setInterval(async () => {
    if (!story.list.isConnected) clearInterval(timer);
    else if (rowsById.get(row.id)?.status !== "running") {
      clearInterval(timer);
      await rolloutPage(row.id, null);
    } else story.update(await source.rollout(row));
  }, FOLLOW_MS);
}

function stepTable(steps) {
  if (!steps.length) return null;
  const rows = steps.map((step) =>
    h(
      "tr",
      {},
      h("td", { class: "name" }, plain(step.name)),
      h("td", {}, rewardWords(step.rewards)),
      h("td", {}, plain(step.agent_outcome ?? "–")),
    ),
  );
  return section(
    "steps",
    "Steps",
    scrolling("Steps", h("table", {}, heading(["Step", "Rewards", "Agent ended"]), h("tbody", {}, rows))),
  );
}
