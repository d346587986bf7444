"use strict";
// The laboratory of attention with tokens on several devices: which device attends to which keys,
// and when. Pairs and times come from runs of Lockstep on virtual devices (attention_runs.cpp);
// this script only draws them.

(function () {
  const {said, gap, element: make} = Lockstep;
  const {choice, writeAddress, among, begin, Player, colours} = Lockstep.laboratory;
  const data = JSON.parse(document.getElementById("data").textContent);
  const place = document.getElementById("laboratory");

  const kCell = 10, kEdge = 22;  // pixels of a pair, and of the labels next to the grid
  const distinct = (name) => [...new Set(data.runs.map((run) => run[name]))];
  const choices = {
    devices: distinct("devices"), method: distinct("method"), mask: distinct("mask"),
    order: distinct("order"), links: distinct("links"), view: ["device", "sequence"],
  };
  const usual = {devices: 4, method: "ring-attention", mask: "causal", order: "contiguous",
    links: "fast", view: "device"};
  const labels = {
    devices: said("Devices"), method: said("Method"), mask: said("Mask"), order: said("Tokens"),
    links: said("Links"), view: said("Draw by"),
  };
  const names = {
    "ring-attention": "Ring Attention", gather: said("all-gather of keys and values"), ulysses: "Ulysses",
    none: said("none"), causal: said("causal"), contiguous: said("contiguous"), striped: said("striped"),
    zigzag: said("zigzag"), fast: said("fast"), slow: said("slow, a quarter as fast"),
    device: said("device"), sequence: said("place in the sequence"),
    full: said("full"), part: said("partly masked"), nothing: said("nothing: skipped"),
  };
  const nanoseconds = (picoseconds) => (picoseconds / 1000).toFixed(1);

  let settings = {}, run, tokens;

  // ---- The data ----

  const matches = (one, of) =>
    ["devices", "method", "mask", "order", "links"].every((name) => one[name] === of[name]);

  function fit(asked) {
    const chosen = {};
    for (const [name, values] of Object.entries(choices))
      chosen[name] = among(values, asked[name], usual[name]);
    const steps = data.runs.find((one) => matches(one, chosen)).ranks[0].blocks.length;
    chosen.step = among([...Array(steps + 1).keys()], asked.step, 0);
    return chosen;
  }

  // The number of steps after which a device has attended to another device's keys.
  const stepOf = (device, from) =>
    1 + run.ranks[device].blocks.findIndex((block) => block[0] === from || block[0] === -1);

  const kindOf = (pairs, all) => pairs === 0 ? "nothing" : pairs === all ? "full" : "part";

  // ---- The grid of queries and keys ----

  // The path of all pairs of one device's queries and another device's keys that the mask allows.
  function pairsPath(device, from, where) {
    let path = "";
    for (const query of tokens[device])
      for (const key of tokens[from])
        if (settings.mask === "none" || key <= query)
          path += `M${where(key)} ${where(query)}h${kCell - 1}v${kCell - 1}h${1 - kCell}z`;
    return path;
  }

  function block(device, from, where) {
    const step = stepOf(device, from);
    const isDone = settings.step > 0 && step <= settings.step;
    return make("path", {d: pairsPath(device, from, where), fill: isDone ? colours[from] : "var(--line)",
      "fill-opacity": isDone && step < settings.step ? 0.4 : 1});
  }

  function drawGrid() {
    const n = settings.devices, share = data.tokens / n, size = kEdge + data.tokens * kCell;
    const byDevice = settings.view === "device";
    const places = [];  // of tokens, in pixels
    tokens.forEach((own, device) => own.forEach((token, row) => {
      places[token] = kEdge + kCell * (byDevice ? device * share + row : token);
    }));
    const svg = make("svg", {viewBox: `0 0 ${size + 4} ${size + 4}`, width: size + 4, role: "img",
      "aria-label": said("Queries and keys after step {}", settings.step)});
    const text = (x, y, turn, value) => make("text", {x, y, "text-anchor": "middle",
      transform: turn ? `rotate(-90 ${x} ${y})` : null}, value);
    if (!byDevice) {
      svg.append(text(size / 2, 14, false, said("keys {}", `0 – ${data.tokens - 1}`)),
        text(14, size / 2, true, said("queries {}", `0 – ${data.tokens - 1}`)));
    }
    for (let device = 0; device < n; ++device) {
      const middle = kEdge + kCell * share * (device + 0.5);
      if (byDevice)
        svg.append(text(middle, 14, false, n < 8 ? said("keys {}", device) : String(device)),
          text(14, middle, true, n < 8 ? said("queries {}", device) : String(device)));
      for (let from = 0; from < n; ++from) {
        svg.append(block(device, from, (token) => places[token]));
        if (byDevice) svg.append(frame(device, from, share * kCell));
      }
    }
    for (const now of svg.querySelectorAll(".now")) svg.append(now);  // above the others
    grid.replaceChildren(svg);
  }

  function frame(device, from, side) {
    const isNow = settings.method === "ring-attention" && settings.step > 0 &&
      stepOf(device, from) === settings.step;
    return make("rect", {class: isNow ? "now" : null, x: kEdge + from * side - 0.5, y: kEdge + device * side - 0.5, width: side,
      height: side, fill: "none", stroke: isNow ? "var(--ink)" : "var(--line)",
      "stroke-width": isNow ? 2 : 1});
  }

  // ---- Devices over time ----

  function drawBars() {
    const n = settings.devices, width = Math.max(280, bars.clientWidth), row = 30, left = 24;
    const x = (time) => left + (width - left - 4) * time / run.time;
    const svg = make("svg", {viewBox: `0 0 ${width} ${n * row + 22}`, width, role: "img",
      "aria-label": said("What each device does over time")});
    run.ranks.forEach((rank, device) => {
      const y = device * row + 4;
      svg.append(make("text", {x: 8, y: y + 14}, String(device)),
        make("rect", {x: left, y, width: width - left - 4, height: 18, class: "d"},
          make("title", {}, said("idle"))),
        ...busy(rank).map((span) => bar(span, x, y)),
        ...rank.others.map(([start, end]) => make("rect", {x: x(start), y, width: x(end) - x(start),
          height: 18, fill: "var(--paper)", stroke: "var(--faint)"})),
        ...rank.messages.map(([start, end]) => make("rect", {x: x(start), y: y + 20,
          width: x(end) - x(start) - 1, height: 4, fill: "#CC79A7"})));
    });
    const ideal = x(idealTime());
    svg.append(make("line", {x1: ideal, y1: 0, x2: ideal, y2: n * row + 4, stroke: "var(--ink)",
      "stroke-dasharray": "5 4", "stroke-width": 1.5}),
    make("text", {x: left, y: n * row + 18}, "0"),
    make("text", {x: width - 4, y: n * row + 18, "text-anchor": "end"}, `${nanoseconds(run.time)} ns`));
    bars.replaceChildren(svg);
  }

  // The blocks that a device attends to, as [owner of the keys, pairs, start, end, index].
  const busy = (rank) => rank.blocks.map((one, i) => [...one, i]).filter((one) => one[2] !== null);

  function bar([from, pairs, start, end, i], x, y) {
    const colour = from === -1 ? "var(--faint)" : colours[from];
    const isNow = settings.step === i + 1;
    return make("g", {},
      make("rect", {x: x(start), y, width: Math.max(1, x(end) - x(start)), height: 18,
        fill: "var(--paper)"}),
      make("rect", {x: x(start), y, width: Math.max(1, x(end) - x(start)), height: 18, fill: colour,
        "fill-opacity": settings.step >= i + 1 ? 1 : 0.35, stroke: isNow ? "var(--ink)" : "var(--paper)",
        "stroke-width": isNow ? 2 : 1}),
      make("title", {}, `${from === -1 ? said("all") : from}: ${pairs}; ${nanoseconds(start)} – ${nanoseconds(end)} ns`));
  }

  const idealTime = () =>
    run.ranks.reduce((sum, rank) => sum + rank.compute, 0) / run.ranks.length;

  // ---- Sentences ----

  // The number of pairs of a block without a mask.
  function allPairs() {
    const n = settings.devices, share = data.tokens / n;
    return {"ring-attention": share * share, gather: share * data.tokens,
      ulysses: data.tokens * data.tokens}[settings.method];
  }

  function sentence() {
    const {step, method} = settings;
    if (step === 0) return said("Nothing is computed yet. A grey square is a pair of a query and a key that still has to be computed.");
    const kinds = run.ranks.map((rank) => kindOf(rank.blocks[step - 1][1], allPairs()));
    const count = (kind) => kinds.filter((one) => one === kind).length;
    const did = method === "gather" ? said("Each device has got all keys and values, and attends to them at once.")
      : method === "ulysses" ? said("Each device has got all tokens of its share of the heads, and attends to all " +
          "pairs, for these heads alone. (heads a device: {})", data.heads / settings.devices)
        : hop(step - 1);
    return did + gap +
      said("Blocks: {} full, {} partly masked, {} skipped.", count("full"), count("part"), count("nothing"));
  }

  function hop(hops) {
    if (hops === 0) return said("Each device attends to its own keys and values while it sends them to the next device.");
    if (hops === 1) return said("Each device attends to the keys and values that have travelled 1 hop.");
    return said("Each device attends to the keys and values that have travelled {} hops.", hops);
  }

  function table() {
    const {step} = settings;
    const cell = (text) => make("td", {}, String(text));
    const head = [said("device"), said("keys of device"), said("pairs of a head"), said("block"),
      said("attends from, to (ns)"), said("pairs in all")];
    const rows = run.ranks.map((rank, device) => {
      const [from, pairs, start, end] = step > 0 ? rank.blocks[step - 1] : [];
      const total = rank.blocks.reduce((sum, one) => sum + one[1], 0);
      return make("tr", {}, make("th", {scope: "row"}, String(device)),
        ...(step === 0 ? ["–", "–", "–", "–"] : [from === -1 ? said("all") : from, pairs,
          names[kindOf(pairs, allPairs())],
          start === null ? "–" : `${nanoseconds(start)}, ${nanoseconds(end)}`]).map(cell), cell(total));
    });
    return make("div", {class: "lab-scroll"}, make("table", {},
      make("tr", {}, ...head.map((text) => make("th", {scope: "col"}, text))), ...rows));
  }

  function figures() {
    const percent = Math.round(100 * idealTime() / run.time);
    const most = (name) => Math.max(...run.ranks.map((rank) => rank[name])).toLocaleString("en");
    return [make("p", {id: "time"}, said("The run takes {} ns. Evenly divided and without waiting, the same work " +
      "would take {} ns (dashed line): {} %.", nanoseconds(run.time), nanoseconds(idealTime()), percent)),
      make("p", {}, said("Each device sends {} bytes, and holds {} bytes at most.", most("bytes"), most("peak")))];
  }

  // ---- Putting it together ----

  const noteLine = make("p", {class: "lab-note", role: "status"});
  const controls = make("div", {class: "lab-controls"});
  const player = new Player((step) => {
    settings.step = step;
    writeAddress(settings);
    show();
  });
  const sentenceLine = make("p", {class: "lab-said", "aria-live": "polite"});
  const grid = make("div", {id: "grid"});
  const bars = make("div", {id: "bars"});
  const tablePart = make("div");
  const figuresPart = make("div", {"aria-live": "polite"});

  const selects = {};
  for (const [name, values] of Object.entries(choices)) {
    const label = choice(labels[name], name, values.map((value) => [value, names[value] ?? value]), usual[name],
      (value) => change({[name]: value}));
    selects[name] = label.querySelector("select");
    controls.append(label);
  }

  function show() {
    drawGrid();
    drawBars();
    sentenceLine.textContent = sentence();
    tablePart.replaceChildren(table());
  }

  // The step stays if the run for the new settings has a step with this number; otherwise step 0 is chosen.
  function change(what) {
    const asked = Object.fromEntries(Object.entries({...settings, ...what}).map(([k, v]) => [k, String(v)]));
    set(fit(asked), "");
    writeAddress(settings);
  }

  function set(next, sentenceOfWrong) {
    settings = next;
    run = data.runs.find((one) => matches(one, settings));
    tokens = data.deals.find((one) => one.devices === settings.devices && one.order === settings.order).tokens;
    noteLine.textContent = sentenceOfWrong;
    for (const [name, select] of Object.entries(selects)) select.value = settings[name];
    player.reset(settings.step, run.ranks[0].blocks.length);
    figuresPart.replaceChildren(...figures());
    show();
  }

  place.replaceChildren(controls, noteLine, player.element, sentenceLine, grid, bars,
    make("p", {class: "lab-legend"}, said("Colour: the device whose keys these are; grey: the keys of all devices. Hatched: " +
      "the device does nothing. Empty: it does something else (it begins, or divides by the sums). Thin bar: a message.")), figuresPart, tablePart);
  begin(fit, set, bars, drawBars);
})();
