// A trajectory, event by event.

// A long message is written in parts, what began a tool call says nothing that its end does not, and what an agent
// added to a call later belongs to that call.
function mergedEvents(events) {
  const merged = [];
  const calls = new Map();
  const ended = new Set(
    events.filter((event) => event.type === "tool_call").map((event) => event.tool_call_id),
  );
  for (const event of events) {
    const last = merged.at(-1);
    if (event.continues && last?.type === event.type) last.text += event.text;
    else if (event.type === "tool_call_start" && ended.has(event.tool_call_id)) continue;
    else if (event.type === "tool_call_update" && calls.has(event.tool_call_id))
      calls.get(event.tool_call_id).later.push(event);
    else {
      merged.push({ ...event, later: [] });
      if (event.type === "tool_call") calls.set(event.tool_call_id, merged.at(-1));
    }
  }
  return merged;
}

// ---- tool calls -------------------------------------------------------------------------------------------------------

function contentView(item) {
  if (typeof item !== "object" || item === null) return block(asText(item), "output");
  if (item.type === "diff") return diffView(item.path, item.oldText, item.newText ?? "");
  const inner = item.content;
  if (item.type === "content" && inner?.type === "text")
    return inner.text ? block(unfenced(inner.text), "output") : null;
  if (inner?.type === "image") return h("p", { class: "label" }, `an image (${plain(inner.mimeType ?? "")})`);
  return block(asText(item), plain(item.type));
}
// Agents often wrap what a program printed into one fence.
const unfenced = (text) => /^```[^\n]*\n([\s\S]*?)\n?```\s*$/.exec(text)?.[1] ?? text;

const EDITED = [
  ["old_string", "new_string"],
  ["old_str", "new_str"],
  ["oldText", "newText"],
  ["oldString", "newString"],
];
function inputView(input, title, hasDiff) {
  if (typeof input !== "object" || input === null) return block(asText(input), "input");
  const command = input.command ?? input.cmd;
  const words = Array.isArray(command) ? command.join(" ") : command;
  if (words) return words === title ? null : block(words, "command");
  const path = input.file_path ?? input.filePath ?? input.path ?? input.abs_path;
  const names = EDITED.find(
    ([before, after]) => typeof input[before] === "string" && typeof input[after] === "string",
  );
  if (hasDiff && (names || path)) return null;
  if (names) return diffView(path, input[names[0]], input[names[1]]);
  if (path && typeof input.content === "string") return diffView(path, null, input.content);
  return Object.keys(input).length ? block(asText(input), "input") : null;
}

const contentsOf = (event) =>
  Array.isArray(event.content) ? event.content : isKnown(event.content) ? [event.content] : [];
function toolBody(event) {
  const contents = contentsOf(event);
  const output = (each) =>
    isKnown(each.raw_output) && !contentsOf(each).length ? block(asText(each.raw_output), "output") : null;
  return [
    isKnown(event.raw_input)
      ? inputView(
          event.raw_input,
          event.title,
          contents.some((item) => item?.type === "diff"),
        )
      : null,
    contents.map(contentView),
    output(event),
    event.later.map((more) => [contentsOf(more).map(contentView), output(more)]),
    (event.locations ?? []).length
      ? h("p", { class: "label" }, plain(event.locations.map((place) => place.path).join(", ")))
      : null,
  ];
}

// Edits are what one looks for, and failed calls explain what follows: both are open.
const isEdit = (event) => contentsOf(event).some((item) => item?.type === "diff") || event.kind === "edit";
function toolCall(event) {
  const isBad = event.status === "failed" || (/^\d+$/.test(event.status ?? "") && event.status !== "0");
  const status =
    event.status && event.status !== "completed" && event.status !== "0"
      ? chip(isBad ? "failed" : "neutral", plain(event.status))
      : null;
  const kind = plain(event.kind && event.kind !== "other" ? event.kind : "tool");
  return {
    kind: `tool ${isBad ? "bad" : ""}`,
    icon: kind in ICONS ? kind : "tool",
    who: kind,
    what: [h("code", {}, oneLine(event.title || event.kind || "tool", 160)), status],
    took: event.duration_sec,
    body: () => toolBody(event),
    isOpen: isBad || isEdit(event),
  };
}

// ---- everything else --------------------------------------------------------------------------------------------------

function usageWords(event) {
  const usage = event.usage ?? {};
  return [
    event.stop_reason === "end_turn" ? null : plain(event.stop_reason ?? "no stop reason"),
    isKnown(usage.input) ? `${short(usage.input)} tokens in, ${short(usage.output)} out` : null,
    isKnown(usage.cost_usd) ? money(usage.cost_usd) : null,
    event.models?.length ? plain(event.models.join(", ")) : null,
  ];
}

const FAILURES = ["agent_error", "agent_crash", "agent_timeout"];
function otherEvent(event) {
  const words = event.message ?? event.detail ?? event.reason ?? event.title ?? "";
  const isBad = FAILURES.includes(event.type);
  const body = () =>
    block(asText(Object.fromEntries(Object.entries(event).filter(([name]) => name !== "later"))));
  return {
    kind: isBad ? "bad" : "minor",
    icon: isBad ? "bad" : "stop",
    who: plain(event.type).replaceAll("_", " "),
    what: oneLine(words),
    body,
    isOpen: isBad,
  };
}

const VIEWS = {
  user_message: (event) => ({
    kind: "user",
    icon: "user",
    who: "Prompt",
    body: () => prose(event.text),
    isCard: true,
  }),
  agent_message: (event) =>
    event.notice
      ? {
          kind: "minor",
          icon: "agent",
          who: "Notice",
          what: oneLine(event.text),
          body: () => prose(event.text),
        }
      : {
          kind: "agent",
          icon: "agent",
          who: "Agent",
          body: () => (event.text ? prose(event.text) : block(asText(event.content))),
          isCard: true,
        },
  agent_thought: (event) => ({
    kind: "thought",
    icon: "thought",
    who: "Thought",
    what: oneLine(event.text),
    body: () => prose(event.text),
  }),
  tool_call: toolCall,
  plan: (event) => ({
    kind: "minor",
    icon: "thought",
    who: "Plan",
    what: oneLine((event.entries ?? []).map((entry) => entry.content).join(" · ")),
    body: () =>
      h(
        "ul",
        { class: "plan" },
        (event.entries ?? []).map((entry) =>
          h("li", {}, chip("neutral", plain(entry.status)), " ", plain(entry.content)),
        ),
      ),
  }),
  permission: (event) => ({
    kind: "minor",
    icon: "tool",
    who: "Permission",
    what: `${oneLine(event.title ?? "", 120)} → ${plain(event.option ?? "called off")}`,
    body: () => block(asText(event.option)),
  }),
  oracle: (event) => ({
    kind: event.return_code ? "tool bad" : "tool",
    icon: "execute",
    who: "Solution",
    what: [
      h("code", {}, oneLine(event.command)),
      h("span", { class: "sub" }, ` exit status ${event.return_code}`),
    ],
    body: () => block(event.stdout || "(it printed nothing)", "output"),
    isOpen: true,
  }),
  stop: (event) => ({
    kind: "minor",
    icon: "stop",
    who: "End of turn",
    what: usageWords(event).filter(Boolean).join(" · "),
    body: () => block(asText(event.usage ?? {})),
  }),
};
const viewOf = (event) => (Object.hasOwn(VIEWS, event.type) ? VIEWS[event.type] : otherEvent)(event);

// `row` is whose event it is if it can be linked to; two trajectories side by side have ids with different prefixes.
function eventView(event, { began, row, prefix = "", isShared = false }) {
  const view = viewOf(event);
  const offset = event.ts && began ? `+${duration(Math.max(0, event.ts - began))}` : "";
  const time = h("span", { class: "at" }, offset);
  // Not in a summary, which is a control itself.
  const link = row
    ? h(
        "a",
        { class: "link", href: addressOf(row, event.seq), "aria-label": `Link to event ${event.seq}` },
        `#${event.seq}`,
      )
    : null;
  const speaker =
    isShared && (event.role || event.scene)
      ? h("span", { class: "role" }, oneLine([event.scene, event.role].filter(Boolean).join(" / "), 40))
      : null;
  const took = view.took >= 0.05 ? h("span", { class: "took" }, duration(view.took)) : null;
  const head = [
    icon(view.icon),
    h("span", { class: "who" }, view.who),
    h("span", { class: "what" }, view.what ?? null),
    took,
    view.isCard ? speaker : null,
  ];
  const id = `${prefix}event-${event.seq}`;
  if (view.isCard)
    return h(
      "article",
      { class: `event ${view.kind}`, id, tabindex: "-1" },
      h("div", { class: "head" }, head, time, link),
      h("div", { class: "body" }, view.body()),
    );
  const details = h("details", { class: `event ${view.kind}`, id });
  const body = h("div", { class: "body" });
  // The inside of a closed event is made when it is opened: a trajectory of thousands stays light.
  const open = () => body.firstChild || fill(body, {}, [link, view.body()]);
  details.addEventListener("toggle", open);
  if (view.isOpen) open();
  return fill(details, { open: view.isOpen }, [h("summary", {}, head, time), body]);
}

function emptyWords({ agent, phase }) {
  if (phase) return "Nothing has happened yet."; // it is running
  if (agent === "nop") return "nop does nothing, so there is nothing to read.";
  return "There is no trajectory: the agent did not get to work.";
}

// What is shown of a trajectory; `update` takes a later state of one that still grows.
function trajectoryView(detail, row, prefix) {
  const events = mergedEvents(detail.events);
  const list = h("div", { class: row ? "events linked" : "events" });
  const began = detail.events.find((event) => event.ts)?.ts;
  const isShared = new Set(events.map((event) => `${event.scene}/${event.role}`)).size > 1;
  const view = (event) => eventView(event, { began, row, prefix, isShared });
  const drawing = lazily(list, events, view);
  const update = (later) => {
    drawing.all();
    const grown = mergedEvents(later.events);
    if (later.events.length > detail.events.length) list.lastChild?.remove(); // it may have been half a message
    list.append(...grown.slice(list.childElementCount).map(view));
    detail = later;
  };
  const empty = events.length ? null : h("p", { class: "empty" }, emptyWords(detail.result));
  return { node: h("div", {}, empty, list, drawing.end), list, events, all: drawing.all, update };
}
