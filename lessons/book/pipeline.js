// The laboratory of pipeline schedules. Lockstep, compiled for browsers, makes, checks, times and
// draws each schedule; this script only asks for it, shows it and changes it.
(() => {
  "use strict";

  const {said, gap, element} = Lockstep;
  const {readAddress, writeAddress, among} = Lockstep.laboratory;

  const style = `
    .lab-settings {
      display: grid; grid-template-columns: repeat(auto-fit, minmax(min(17rem, 100%), 1fr));
      gap: .6rem 1.6rem; border: 1px solid var(--line); border-radius: 4px;
      padding: .8rem 1rem; margin: 0 0 1rem;
    }
    .lab-settings label { display: grid; grid-template-columns: 1fr auto; gap: 0 .6rem; align-items: baseline; }
    .lab-settings input[type="range"], .lab-settings select { grid-column: 1 / -1; width: 100%; min-height: 1.8rem; }
    .lab-settings .check { display: flex; gap: .5rem; align-items: center; }
    .lab-settings output { font-variant-numeric: tabular-nums; font-weight: 700; }

    .lab-command { display: flex; flex-wrap: wrap; gap: .4rem .8rem; align-items: center; margin: .8rem 0; }
    .lab-command code { background: var(--shade); padding: .3rem .6rem; border-radius: 3px; overflow-wrap: anywhere; }
    #generated[inert] { opacity: .35; }
    .lab-tables { display: flex; flex-wrap: wrap; gap: 0 3.5rem; }
    .lab-tables > section { min-width: 0; max-width: 100%; }
    #laboratory :is(th, .formula) { white-space: nowrap; }

    .lab-rows { position: relative; margin: 1rem 0; }
    .lab-row {
      display: grid; grid-template-columns: 5rem 1fr minmax(10rem, 22rem); gap: .3rem .9rem;
      padding: .7rem 0; border-top: 1px solid var(--line);
    }
    .lab-row input { position: relative; z-index: 1; width: 100%; height: 2.2rem; font-family: monospace; font-size: .85rem; }
    .lab-row input[aria-invalid="true"] { border: 2px solid var(--bad); }
    .lab-row > .bad { grid-column: 1 / -1; margin: 0; }
    .lab-row > .bad:empty { display: none; }
    .lab-chips { display: flex; flex-wrap: wrap; gap: .45rem .35rem; min-height: 2.2rem; }
    .lab-chip {
      position: relative; min-height: 2rem; min-width: 2.3rem; padding: .1rem .4rem;
      color: #111; border: 1px solid #0004; font-size: .9rem; font-variant-numeric: tabular-nums;
      cursor: grab; touch-action: pan-y; user-select: none;
    }
    .lab-chip.lifted { outline: 3px solid var(--ink); cursor: grabbing; transform: translateY(-3px); }
    .lab-chip.stuck { outline: 3px solid var(--bad); outline-offset: 1px; }
    .lab-chip .order {
      position: absolute; top: -.75em; right: -.6em; min-width: 1.35em; line-height: 1.35em;
      border-radius: 1em; background: var(--bad); color: var(--paper);
      font-size: .7rem; font-weight: 700; text-align: center;
    }
    #laboratory .lab-rows > svg {
      position: absolute; inset: 0; width: 100%; height: 100%; margin: 0;
      pointer-events: none; overflow: visible;
    }
    .lab-rows > svg path { fill: none; stroke: var(--bad); stroke-width: 2; }
    .lab-rows > svg marker path { fill: var(--bad); stroke: none; }
    .lab-problem { border-left: 4px solid var(--bad); padding: .1rem 1rem; overflow-wrap: anywhere; }

    @media (prefers-reduced-motion: no-preference) { .lab-chip { transition: transform .1s; } }
    @media (max-width: 60rem) {
      .lab-row { grid-template-columns: 5rem 1fr; }
      .lab-row input { grid-column: 2; }
    }
    @media (max-width: 40rem) {
      .lab-row { grid-template-columns: 1fr; }
      .lab-row input { grid-column: 1; }
    }`;

  // The charts' colours (src/chart/look.cpp).
  const colours = {F: "#56B4E9", B: "#E69F00", I: "#D55E00", W: "#009E73"};

  // The schedules that can be changed by hand: a row of instructions per stage describes them
  // fully.
  const names = ["naive", "gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-h2"];
  // These schedules have two or more chunks; with one chunk they would be other schedules.
  const hasChunks = (name) => name === "interleaved" || name === "looped-bfs";
  // The settings, by their names in the address, which are also the command's options.
  const settings = {
    "stages": {label: said("Stages, p"), least: 1, most: 8, usual: 4, step: 1},
    "micro-batches": {label: said("Micro-batches, m"), least: 1, most: 24, usual: 8, step: 1},
    "chunks": {label: said("Chunks a stage, v"), least: 1, most: 4, usual: 1, step: 1},
    "forward": {label: said("Forward, t_f"), least: 0, most: 4, usual: 1, step: 0.25, isTime: true},
    "backward-input": {label: said("Backward of inputs, t_i"), least: 0, most: 4, usual: 1, step: 0.25, isTime: true},
    "backward-weight": {label: said("Backward of weights, t_w"), least: 0, most: 4, usual: 1, step: 0.25, isTime: true},
    "comm": {label: said("A message"), least: 0, most: 2, usual: 0, step: 0.25, isTime: true},
  };
  const kMostInstructions = 200;  // of a stage, in the address

  // The settings, and the schedule by hand: the instructions of each stage, or null.
  const state = {};

  // ---- The address ----

  // The values of a slider.
  const valuesOf = ({least, most, step}) =>
    Array.from({length: (most - least) / step + 1}, (_, i) => least + i * step);

  function fit(asked) {
    const taken = {schedule: among(names, asked.schedule, "1f1b"), messages: among([0, 1], asked.messages, 0)};
    for (const [key, setting] of Object.entries(settings))
      taken[key] = among(valuesOf(setting), asked[key], setting.usual);
    return taken;
  }

  const canBeShared = (work) => work.length <= settings.stages.most && work.every(fitsAddress);
  const fitsAddress = (row) => row.length <= kMostInstructions;

  function showAddress() {
    const address = {schedule: state.schedule};
    for (const [key, {usual}] of Object.entries(settings))
      if (state[key] !== usual || key === "stages" || key === "micro-batches")
        if (key !== "chunks" || hasChunks(state.schedule)) address[key] = state[key];
    if (state.messages) address.messages = 1;
    if (state.work) address.work = state.work.map((row) => row.join(",")).join(";");
    writeAddress(address);
  }

  // ---- Requests ----

  const cellsOf = (text) => text.split(/[\s,;]+/).filter(Boolean);

  // One line per stage. Lines that are empty or begin with # would be skipped: they get a comma.
  const csv = () => state.work.map((row) => {
    const line = row.join(",");
    return (line === "" || line.startsWith("#") ? "," : "") + line + "\n";
  }).join("");

  function request() {
    const asked = {do: "schedule", messages: state.messages === 1};
    for (const key of Object.keys(settings)) asked[key.replace("-", "_")] = state[key];
    asked.name = state.schedule;
    if (!hasChunks(state.schedule)) delete asked.chunks;
    return asked;
  }

  function handRequest() {
    const asked = {...request(), name: "schedule.csv", work: csv()};
    for (const size of ["stages", "micro_batches", "chunks"]) delete asked[size];
    return asked;
  }

  function commandLine(isByHand) {
    let text = "lockstep schedule " + (isByHand ? "schedule.csv" : state.schedule);
    for (const [key, {usual, isTime}] of Object.entries(settings)) {
      const isSize = !isTime && !isByHand && (key !== "chunks" || hasChunks(state.schedule));
      if (isSize || (isTime && state[key] !== usual)) text += ` --${key} ${state[key]}`;
    }
    return text + (state.messages ? " --messages" : "");
  }

  // ---- Answers ----

  // Makes "t_f" with a subscript.
  function formula(text) {
    return [element("span", {class: "formula"}, ...text.split(/(t_\w)/).flatMap((part) =>
      /^t_\w$/.test(part) ? [element("i", {}, "t"), element("sub", {}, part[2])] : [part]))];
  }

  const isNumber = (text) => /^[\d.,]+( %)?$/.test(text);

  function table({head, rows}, caption) {
    const row = (cells, tag) => element("tr", {}, ...cells.map((cell) => element(
      tag, typeof cell === "string" && isNumber(cell) ? {class: "number"} : {},
      ...[cell].flat())));
    return element("div", {class: "table", tabindex: 0, role: "region", "aria-label": caption}, element("table", {},
      element("thead", {}, row(head, "th")), element("tbody", {}, ...rows.map((cells) => row(cells, "td")))));
  }

  function formulaTable(formulas) {
    const verdict = ({equal, applies}) => equal ? element("b", {class: "good"}, said("equal"))
      : applies ? element("b", {class: "bad"}, said("differs"))
        : element("b", {class: "faint"}, said("differs: the condition is not met"));
    const head = ["", said("formula"), said("holds if"), said("it says"), said("measured"), ""];
    const rows = formulas.map((each) => [
      ...[each.what, each.text, each.condition || said("always"), each.value, each.measured].map(formula), [verdict(each)]]);
    return table({head, rows}, said("Formulas and what was measured"));
  }

  const tables = (...parts) => element("div", {class: "lab-tables"}, ...parts.map(([title, each]) =>
    element("section", {}, element("h3", {}, title), each)));

  function picture({title, width, height, svg}) {
    const figure = element("figure", {class: "picture"});
    figure.innerHTML = `<svg viewBox="0 0 ${width} ${height}" style="--width:${width}px" role="img">${svg}</svg>`;
    figure.firstChild.setAttribute("aria-label", title);
    return figure;
  }

  function command(isByHand) {
    const text = element("code", {}, commandLine(isByHand));
    const done = element("span", {"aria-live": "polite"});
    const copy = async () => {
      try {
        await navigator.clipboard.writeText(text.textContent);
        done.textContent = said("Copied.");
      } catch {  // the browser does not allow it
        getSelection().selectAllChildren(text);
        done.textContent = said("It is selected: press Ctrl+C.");
      }
    };
    return element("div", {class: "lab-command"}, said("The same in a terminal:"), text,
      element("button", {type: "button", onclick: copy}, said("Copy")), done);
  }

  const summary = (answer) =>
    said("It takes {}; the bubble is {} of the time.", answer.makespan, answer.bubble);

  // ---- The page's first half: a generator's schedule ----

  const noteLine = element("p", {class: "bad", "aria-live": "polite"});
  const summaryLine = element("p", {"aria-live": "polite", id: "told"});
  const generatedPart = element("div", {id: "generated"});
  const controls = element("form", {class: "lab-settings", onsubmit: (event) => event.preventDefault()});
  const fields = {};
  let generated = null;  // a generator's last schedule, which "start" uses

  function slider(key) {
    const {label, least, most, step} = settings[key];
    const value = element("output");
    const input = element("input", {type: "range", id: key, name: key, min: least, max: most, step, oninput: () => {
      state[key] = Number(input.value);
      change();
    }});
    fields[key] = {show: () => { input.value = state[key]; value.textContent = state[key]; }};
    // Without "for", the label would belong to the output.
    fields[key].label = element("label", {for: key}, element("span", {}, ...formula(label)), value, input);
    return fields[key].label;
  }

  function makeControls() {
    const select = element("select", {name: "schedule", onchange: () => {
      state.schedule = select.value;
      if (hasChunks(state.schedule)) state.chunks = Math.max(state.chunks, 2);
      change();
    }},
      ...names.map((name) => element("option", {value: name}, name)));
    const messages = element("input", {type: "checkbox", name: "messages", onchange: () => {
      state.messages = Number(messages.checked);
      change();
    }});
    fields.schedule = {show: () => { select.value = state.schedule; }};
    fields.messages = {show: () => { messages.checked = state.messages === 1; }};
    controls.append(element("label", {}, said("Schedule"), select), ...Object.keys(settings).map(slider),
      element("label", {class: "check"}, messages, said("Messages go one at a time on each stage")));
  }

  function showControls() {
    for (const field of Object.values(fields)) field.show();
    fields.chunks.label.hidden = !hasChunks(state.schedule);
  }

  // The tables of a schedule's answer, for both halves of the page.
  const timeTables = (answer) => [
    [said("Figures"), table(answer.whole, said("Figures"))],
    [said("Each stage"), element("div", {}, table(answer.by_stage, said("Each stage")),
      element("p", {class: "facts"}, said("In flight: the most micro-batches (of a chunk) at a time whose forward is " +
        "done and whose backward is not. Between halves: the most whose backward of inputs is done and whose backward " +
        "of weights is not.")))]];

  // The sentence about a mistake, and the remarks, are only in English.
  function showGenerated(answer) {
    summaryLine.classList.toggle("bad", "error" in answer);
    generatedPart.inert = "error" in answer;  // it shows the last schedule that could be made
    generated = answer.work ?? null;
    if (answer.error) {
      summaryLine.replaceChildren(element("span", {lang: "en"}, answer.error));
      return;
    }
    summaryLine.textContent = summary(answer);
    generatedPart.replaceChildren(
      picture(answer.picture), command(false),
      tables(...timeTables(answer), [said("Formulas and what was measured"), formulaTable(answer.formulas)]),
      element("details", {}, element("summary", {}, said("Critical path, and how times are counted")),
        ...[answer.critical_path, ...answer.remarks].map((text) => element("p", {lang: "en"}, text))));
    Lockstep.pictures(generatedPart);
  }

  // ---- The page's second half: the schedule by hand ----

  const handPart = element("div", {id: "hand"});
  const rows = element("div", {class: "lab-rows"});
  const handVerdict = element("div", {"aria-live": "polite", id: "hand-told"});
  const handResult = element("div", {id: "hand-shown"});
  const announcement = element("p", {"aria-live": "polite", class: "facts", id: "announced"});
  let problem = {cycle: []};  // of the last answer
  let lifted = null;          // {stage, at, from} of the chip that is being moved
  let drag = null;            // {x, y, moving} of the pointer that drags it
  let isNew = false;          // the schedule is from the address, so scroll to it

  const chipAt = (stage, at) => rows.querySelectorAll(".lab-chips")[stage]?.children[at];

  function chip(text, stage, at, isStop) {
    const order = problem.cycle.findIndex((place) => place.stage === stage && place.position === at);
    const isWrong = problem.cycle.length === 0 && problem.place?.stage === stage && problem.place.position === at;
    const isLifted = lifted?.stage === stage && lifted.at === at;
    const made = element("button", {
      type: "button", tabindex: isStop ? 0 : -1, style: `background: ${colours[text[0]] ?? "#BBBBBB"}`,
      class: "lab-chip" + (order >= 0 || isWrong ? " stuck" : "") + (isLifted ? " lifted" : ""),
      "aria-label": said("{}, stage {}, {} of {}", text, stage, at + 1, state.work[stage].length), "aria-pressed": isLifted,
    }, text);
    if (order >= 0) made.append(element("span", {class: "order"}, String(order + 1)));
    return made;
  }

  function showRow(stage, stop = 0) {
    const list = state.work[stage];
    rows.querySelectorAll(".lab-chips")[stage].replaceChildren(
      ...list.map((text, at) => chip(text, stage, at, at === Math.min(stop, list.length - 1))));
    const field = rows.querySelectorAll("input")[stage];
    if (document.activeElement !== field) field.value = list.join(",");
    rows.querySelectorAll(".lab-row > .bad")[stage].textContent = fitsAddress(list) ? ""
      : said("The address can contain only {} instructions per stage: this row can be saved but not shared.", kMostInstructions);
    const named = /^schedule\.csv:(\d+)/.exec(problem.error ?? "");
    field.setAttribute("aria-invalid", named !== null && Number(named[1]) === stage + 1);
  }

  // Draws all chips anew; the focus stays on the same chip.
  function showRows() {
    const focus = placeOf(document.activeElement);
    state.work.forEach((_, stage) => showRow(stage, focus?.stage === stage ? focus.at : 0));
    if (focus) chipAt(focus.stage, focus.at)?.focus();
    showArrows();
  }

  function makeRows() {
    rows.replaceChildren(...state.work.map((_, stage) => {
      const field = element("input", {
        type: "text", "aria-label": said("Instructions of stage {}, as text", stage), spellcheck: "false", autocomplete: "off",
        oninput: () => {
          letGo();
          announcement.textContent = "";
          state.work[stage] = cellsOf(field.value);
          change(true);
        },
        onblur: () => showRow(stage),
      });
      return element("div", {class: "lab-row", role: "group", "aria-label": said("stage {}", stage)},
        element("span", {}, said("stage {}", stage)), element("div", {class: "lab-chips"}), field,
        element("p", {class: "bad", "aria-live": "polite"}));
    }));
    showRows();
  }

  // Draws an arrow from each instruction of the cycle to the instruction that it waits for.
  function showArrows() {
    rows.querySelector(":scope > svg")?.remove();
    if (problem.cycle.length < 2) return;
    const frame = rows.getBoundingClientRect();
    const middles = problem.cycle.map(({stage, position}) => {
      const box = chipAt(stage, position)?.getBoundingClientRect();
      return box && {x: box.x + box.width / 2 - frame.x, y: box.y + box.height / 2 - frame.y};
    });
    if (middles.includes(undefined)) return;
    const paths = middles.map((from, i) => {
      const to = middles[(i + 1) % middles.length];
      const [dx, dy] = [to.x - from.x, to.y - from.y];
      const far = Math.hypot(dx, dy) || 1;
      const [nx, ny] = [dx / far, dy / far];
      const bend = Math.min(26, far / 4);  // to one side, so that arrows both ways do not overlap
      const edge = Math.min(20, far / 3);  // of the chip
      const at = (point, sign) => `${point.x + sign * edge * nx} ${point.y + sign * edge * ny}`;
      const middle = `${(from.x + to.x) / 2 - 2 * bend * ny} ${(from.y + to.y) / 2 + 2 * bend * nx}`;
      return `<path d="M${at(from, 1)}Q${middle} ${at(to, -1)}" marker-end="url(#lab-head)"/>`;
    });
    const holder = element("div");
    holder.innerHTML = `<svg aria-hidden="true"><defs><marker id="lab-head" viewBox="0 0 8 8" refX="7" refY="4"
      markerWidth="6" markerHeight="6" orient="auto"><path d="M0 0L8 4L0 8Z"/></marker></defs>${paths.join("")}</svg>`;
    rows.append(holder.firstChild);
  }

  function placeOf(target) {
    const button = target?.closest?.(".lab-chip");
    if (!button || !rows.contains(button)) return null;
    const lists = [...rows.querySelectorAll(".lab-chips")];
    return {stage: lists.indexOf(button.parentNode), at: [...button.parentNode.children].indexOf(button)};
  }

  function goTo(stage, at) {
    if (!state.work[stage]?.length) return;
    at = Math.max(0, Math.min(at, state.work[stage].length - 1));
    showRow(stage, at);
    chipAt(stage, at).focus();
    showArrows();
  }

  function lift(stage, at) {
    lifted = {stage, at, from: at};
    announcement.textContent = said("{} is taken: move it with the arrow keys.", state.work[stage][at]);
    goTo(stage, at);
  }

  // Moves the lifted chip; the schedule is updated at once.
  function moveTo(at) {
    const list = state.work[lifted.stage];
    at = Math.max(0, Math.min(at, list.length - 1));
    if (at === lifted.at) return;
    list.splice(at, 0, ...list.splice(lifted.at, 1));
    lifted.at = at;
    problem = {cycle: []};
    announcement.textContent = said("{} is now instruction {} of {}.", list[at], at + 1, list.length);
    goTo(lifted.stage, at);
    change(true);
  }

  // Ends the moving of a chip, by keyboard or by pointer.
  function letGo() {
    lifted = drag = null;
  }

  function drop() {
    const {stage, at} = lifted;
    letGo();
    goTo(stage, at);
  }

  function putBack() {
    const text = state.work[lifted.stage][lifted.at];
    moveTo(lifted.from);
    drop();
    announcement.textContent = said("{} is put back.", text);
  }

  function remove({stage, at}) {
    letGo();
    problem = {cycle: []};
    announcement.textContent = said("{} is removed.", state.work[stage].splice(at, 1)[0]);
    showRow(stage, at);
    if (state.work[stage].length > 0) goTo(stage, at);
    else rows.querySelectorAll("input")[stage].focus();
    change(true);
  }

  function onKey(event) {
    const place = placeOf(event.target);
    if (!place || event.altKey || event.ctrlKey || event.metaKey) return;
    const {stage, at} = place;
    const last = state.work[stage].length - 1;
    const there = {ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last}[event.key];
    const isLifted = lifted !== null && lifted.stage === stage && lifted.at === at;
    if (there !== undefined) isLifted ? moveTo(there) : goTo(stage, there);
    else if (event.key === "ArrowUp" && !isLifted) goTo(stage - 1, at);
    else if (event.key === "ArrowDown" && !isLifted) goTo(stage + 1, at);
    else if (event.key === "Enter" || event.key === " ") isLifted ? drop() : lift(stage, at);
    else if (event.key === "Escape" && isLifted) putBack();
    else if (event.key === "Delete" || event.key === "Backspace") remove(place);
    else return;
    event.preventDefault();
  }

  // A drag lifts a chip once the pointer has moved a little. Moving up or down scrolls the page.
  function onPointerDown(event) {
    const place = placeOf(event.target);
    if (!place || event.button !== 0) return;
    drag = {...place, x: event.clientX, y: event.clientY, moving: false};
  }

  function onPointerMove(event) {
    if (!drag) return;
    if (!drag.moving) {
      if (Math.hypot(event.clientX - drag.x, event.clientY - drag.y) < 5) return;
      drag.moving = true;
      rows.setPointerCapture(event.pointerId);
      lift(drag.stage, drag.at);
    }
    let [nearest, least] = [lifted.at, Infinity];
    [...rows.querySelectorAll(".lab-chips")[lifted.stage].children].forEach((each, at) => {
      const box = each.getBoundingClientRect();
      const far = Math.hypot(event.clientX - box.x - box.width / 2, 2 * (event.clientY - box.y - box.height / 2));
      if (far < least) [nearest, least] = [at, far];
    });
    moveTo(nearest);
  }

  function onPointerEnd(event) {
    if (drag?.moving) event.type === "pointercancel" ? putBack() : drop();
    drag = null;
  }

  function makeHand() {
    for (const [type, listener] of [["keydown", onKey], ["pointerdown", onPointerDown], ["pointermove", onPointerMove],
      ["pointerup", onPointerEnd], ["pointercancel", onPointerEnd]]) rows.addEventListener(type, listener);
    new ResizeObserver(showArrows).observe(rows);
    const start = element("button", {type: "button", id: "start", onclick: () => {
      if (!generated) return;
      // Leave out R and U: they take no time and would be in the way.
      state.work = generated.map((list) => list.filter((text) => !/^[RU]/.test(text)));
      letGo();
      announcement.textContent = "";
      problem = {cycle: []};
      makeRows();
      change(true);
    }}, said("Start from the schedule above"));
    handPart.append(element("h2", {id: "by-hand"}, said("The schedule by hand")), element("p", {}, said("Each row is what one stage does, in its order. " +
        "Move an instruction within its row: drag it; or go to it with the arrow keys, press Enter, move it with ← and →, " +
        "and press Enter again (Escape puts it back). Delete removes it. The field of a row has the same instructions as " +
        "text: type there to add some.")),
      element("p", {}, start), rows, announcement, handVerdict, handResult);
  }

  // Lockstep's messages name the lines of a file; here each line is a stage.
  const onThisPage = (sentence) => sentence?.replace(/, line \d+/g, "")
    .replace(/^schedule\.csv(?::|, row )(\d+)/, (_, line) => `stage ${line - 1}`)
    .replace(/^(stage \d+): \1/, "$1").replace(/^schedule\.csv:? /, "");

  function showHand(answer) {
    problem = {cycle: answer.cycle ?? [], place: answer.place, error: answer.error};
    showRows();
    if (isNew) handPart.scrollIntoView();
    isNew = false;
    const wrong = onThisPage(answer.error ?? answer.problem);
    const save = element("a", {class: "button", download: "schedule.csv",
      href: "data:text/csv;charset=utf-8," + encodeURIComponent(csv())}, said("Save it as schedule.csv"));
    if (wrong !== undefined) {
      const saying = element("div", {class: "lab-problem"}, element("p", {}, element("b", {}, said("It cannot run.")), " ",
        element("span", {lang: "en"}, wrong)));
      if (problem.cycle.length > 0) saying.append(element("p", {},
        said("The numbers and arrows: each of these waits for the next, and the last for the first.")));
      handVerdict.replaceChildren(saying);
      handResult.replaceChildren(element("p", {}, save), command(true));
      return;
    }
    handVerdict.replaceChildren(element("p", {}, element("b", {class: "good"}, said("It runs.")), gap + summary(answer)));
    handResult.replaceChildren(picture(answer.picture), element("p", {}, save), command(true),
      tables(...timeTables(answer)));
    Lockstep.pictures(handResult);
  }

  // ---- Changes ----

  // Asks for the current schedule. A late answer to an earlier request is not shown.
  const asking = {count: 0, hand: 0};
  async function ask(which, asked, show) {
    const number = ++asking[which];
    let answer;
    try {
      answer = await Lockstep.call(asked);
    } catch (error) {
      answer = {error: error.message};
    }
    if (number === asking[which]) show(answer);
  }

  function show(isHandOnly) {
    if (!isHandOnly) ask("count", request(), showGenerated);
    if (state.work) ask("hand", handRequest(), showHand);
  }

  function change(isHandOnly = false) {
    noteLine.textContent = "";
    showAddress();
    if (!isHandOnly) showControls();
    show(isHandOnly);
  }

  function load() {
    const {settings: taken, note} = readAddress(fit);
    const text = new URLSearchParams(location.hash.slice(1)).get("work");
    const work = text?.split(";").map(cellsOf) ?? null;
    const isTooLarge = work !== null && !canBeShared(work);
    Object.assign(state, taken, {work: isTooLarge ? null : work});
    noteLine.textContent = note + (isTooLarge ? gap + said("The schedule in the address is too large, and is left out.") : "");
    letGo();
    problem = {cycle: []};
    showControls();
    for (const part of [rows, handVerdict, handResult]) part.replaceChildren();
    announcement.textContent = "";
    isNew = state.work !== null;
    if (state.work) makeRows();
    show(false);
  }

  makeControls();
  makeHand();
  document.getElementById("laboratory").append(element("style", {}, style), noteLine, controls, summaryLine, generatedPart, handPart);
  addEventListener("hashchange", load);
  load();
})();
