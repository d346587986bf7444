"use strict";
// The laboratory of the ring: chunks that go around it step by step. The numbers come from runs of
// Lockstep on virtual devices (ring_runs.cpp); this script only draws them.

(function () {
  const {said, gap, element: make} = Lockstep;
  const {choice, moves, writeAddress, among, begin, Player, colours} = Lockstep.laboratory;
  const data = JSON.parse(document.getElementById("data").textContent);
  const place = document.getElementById("laboratory");

  const kRow = 19, kHead = 22;  // heights in a device's card, in pixels
  const cardWidth = () => 92 + 11 * ring.devices;
  const bytes = (count) => count.toLocaleString("en");
  const microseconds = (picoseconds) => (picoseconds / 1e6).toFixed(2);

  const programs = {
    right: said("as it should be"), all: said("without any wait()"),
    group: said("send, then receive, without a group"),
  };

  let settings = {}, ring, run, chunks, rightChunks, moving = [];

  // ---- The data ----

  function fit(asked) {
    const devices = among(data.rings.map((one) => one.devices), asked.devices, 4);
    const runs = data.rings.find((one) => one.devices === devices).runs;
    const without = among(runs.map((one) => one.name), asked.without, "right");
    const last = runs.find((one) => one.name === without).steps.length;
    const step = among([...Array(last + 1).keys()], asked.step, 0);
    return {devices, without, step};
  }

  // Chunks by device and number, before the first step and after each step.
  function statesOf(steps) {
    const state = Array.from({length: ring.devices}, () => []);
    return [ring.first, ...steps.map((step) => step.changes)].map((changes) => {
      for (const [device, c, value, of] of changes) state[device][c] = {value, of};
      return state.map((row) => [...row]);
    });
  }

  const isWrong = (device, c) => settings.step > 0 && settings.step === run.steps.length &&
    chunks[settings.step][device][c].value !== rightChunks[device][c].value;

  // ---- The picture ----

  // The middle of each card: on a circle, or in two columns if the circle is too wide.
  function places(n, isWide) {
    const height = kHead + kRow * n + 6;
    if (isWide) {
      const rx = n === 2 ? 180 : 240, ry = n < 5 ? height * 0.5 + 80 : height + 50;
      const middle = Array.from({length: n}, (_, i) => {
        const angle = 2 * Math.PI * i / n - (n === 2 ? Math.PI : Math.PI / 2);
        return [320 + rx * Math.cos(angle), ry * Math.sin(angle)];
      });
      const top = Math.min(...middle.map(([, y]) => y)) - height / 2 - 6;
      const tall = Math.max(...middle.map(([, y]) => y)) + height / 2 + 6 - top;
      return {width: 640, height: tall, middle: middle.map(([x, y]) => [x, y - top])};
    }
    const rows = Math.ceil(n / 2), gap = height + 26;
    const middle = Array.from({length: n}, (_, i) => {
      const isRight = i >= 1 && i <= Math.floor(n / 2);
      const isLast = n % 2 === 1 && i === rows;
      const row = isLast ? rows - 1 : isRight ? i - 1 : (n - i) % n;
      return [isLast ? 170 : isRight ? 257 : 83, row * gap + height / 2 + 4];
    });
    return {width: 340, height: rows * gap, middle};
  }

  function arrow(from, to, isBad) {
    const [x, y] = [(from[0] + to[0]) / 2, (from[1] + to[1]) / 2];
    const angle = Math.atan2(to[1] - from[1], to[0] - from[0]) * 180 / Math.PI;
    const colour = isBad ? "var(--bad)" : "var(--faint)";
    return make("g", {},
      make("line", {x1: from[0], y1: from[1], x2: to[0], y2: to[1], stroke: colour,
        "stroke-width": isBad ? 4 : 2}),
      make("polygon", {points: "-7,-6 7,0 -7,6", fill: colour,
        transform: `translate(${x} ${y}) rotate(${angle})`}));
  }

  const listed = (of, c, device) => Object.entries(of).flatMap(([from, counts]) =>
    [...counts].map((count, d) => count === "0" ? null : said("{} × chunk {} of device {}", count, from, d)))
    .filter((text) => text).join(", ");

  // A chunk's row in a card: its number, the devices whose numbers it contains, and the sum.
  function chunkRow(device, c, chunk, look) {
    const row = make("g", {transform: `translate(0 ${kHead + kRow * c})`},
      make("rect", {x: 3, y: 0.5, width: cardWidth() - 6, height: kRow - 2, rx: 2,
        fill: "var(--paper)", stroke: look ?? "none", "stroke-width": 2}),
      make("text", {x: 9, y: 13, class: "faint"}, String(c)));
    [...(chunk.of[c] ?? "0".repeat(ring.devices))].forEach((count, d) => {
      row.append(make("rect", {x: 22 + 11 * d, y: 4, width: 9, height: 10,
        fill: count === "0" ? "none" : colours[d], stroke: "var(--faint)"}));
      if (count > "1")
        row.append(make("text", {x: 26.5 + 11 * d, y: 12.5, "text-anchor": "middle",
          class: "strong", style: "fill: #000; font-size: 10px"}, count));
    });
    if (Object.keys(chunk.of).some((from) => from !== String(c)))
      row.append(make("text", {x: 22 + 11 * ring.devices, y: 13, style: "fill: var(--bad)"}, "≠"));
    row.append(
      make("text", {x: cardWidth() - 8, y: 13.5, "text-anchor": "end"}, String(chunk.value)),
      make("title", {}, said("chunk {} of device {}: {}; made of: {}", c, device, chunk.value, listed(chunk.of))));
    return row;
  }

  function card(device, [x, y], height, step) {
    const changed = new Set(step === 0 ? [] :
      run.steps[step - 1].changes.filter((change) => change[0] === device).map((change) => change[1]));
    return make("g", {transform: `translate(${x - cardWidth() / 2} ${y - height / 2})`},
      make("rect", {width: cardWidth(), height, rx: 6, fill: "var(--paper)", stroke: colours[device],
        "stroke-width": 3}),
      make("text", {x: 9, y: 16, class: "strong"}, said("device {}", device)),
      ...chunks[step][device].map((chunk, c) => chunkRow(device, c, chunk,
        isWrong(device, c) ? "var(--bad)" : changed.has(c) ? "var(--accent)" : null)));
  }

  // Draws the state after a step, and returns the drawing and its layout.
  function draw(step) {
    const n = ring.devices, height = kHead + kRow * n + 6;
    const layout = places(n, picture.clientWidth >= 600);
    const svg = make("svg", {viewBox: `0 0 ${layout.width} ${layout.height}`, width: layout.width,
      role: "img", "aria-label": said("A ring of {} devices after step {}", n, step)});
    const waits = run.name === "group" && run.fault ? run.fault.waits : null;
    const edges = waits ? waits.flatMap((wait) => wait.from.flatMap((a) => wait.to.map((b) => [a, b])))
      : layout.middle.map((_, i) => [i, (i + 1) % n]);
    const shift = (a, b) => edges.length > 2 ? 0 : a < b ? -18 : 18;  // two arrows side by side
    for (const [a, b] of edges)
      svg.append(arrow([layout.middle[a][0], layout.middle[a][1] + shift(a, b)],
        [layout.middle[b][0], layout.middle[b][1] + shift(a, b)], Boolean(waits)));
    layout.middle.forEach((middle, device) => svg.append(card(device, middle, height, step)));
    picture.replaceChildren(svg);
    return {svg, layout, height};
  }

  function stopMoving() {
    for (const motion of moving) motion.cancel();
    moving = [];
  }

  // Moves the chunks of a step to their neighbours, then shows the result.
  function travel(step) {
    const {svg, layout, height} = draw(step - 1);
    const duration = 0.6 * player.pause();
    moving = run.steps[step - 1].going.map((c, device) => {
      const [x, y] = layout.middle[device], [toX, toY] = layout.middle[(device + 1) % ring.devices];
      const chunk = chunkRow(device, c, chunks[step - 1][device][c], "var(--accent)");
      chunk.removeAttribute("transform");
      const corner = (left, top) =>
        `translate(${left - cardWidth() / 2}px, ${top - height / 2 + kHead + kRow * c}px)`;
      svg.append(chunk);
      return chunk.animate([{transform: corner(x, y)}, {transform: corner(toX, toY)}],
        {duration, easing: "ease-in-out", fill: "forwards"});
    });
    const these = moving;
    Promise.all(these.map((motion) => motion.finished)).then(
      () => { if (moving === these) draw(step); }, () => {});
  }

  // ---- Sentences ----

  function sentence(step) {
    const n = ring.devices, last = run.steps.length;
    if (run.name === "group")
      return said("Each device waits for the next one to receive (thick arrows), and no one does.");
    if (step === 0) return said("Before the first step each device has a buffer of {} chunks with its own numbers.", n);
    const sentences = [step < n
      ? said("reduce-scatter: each device sends one chunk to the next, and adds the one that comes to its own.")
      : said("all-gather: each device sends a finished chunk to the next, which replaces its own.")];
    const early = run.steps[step - 1].early[0];
    if (early)
      sentences.push(said("Device {} began to add at {} µs, but the chunk arrived at {} µs. It added what was in " +
        "the buffer before; so did the others.", early[0], microseconds(early[1]), microseconds(early[2])));
    if (step === n - 1 && run.name === "right") sentences.push(said("Each chunk is now complete on one device."));
    if (step === last) sentences.push(...verdict());
    return sentences.join(gap);
  }

  function verdict() {
    const n = ring.devices;
    if (run.name === "right") return [said("All devices have all sums.")];
    let wrong = 0;
    for (let device = 0; device < n; ++device)
      for (let c = 0; c < n; ++c) wrong += isWrong(device, c);
    const sentences = [wrong
      ? said("{} of {} chunks are wrong at the end; these have a red frame.", wrong, n * n)
      : said("Every chunk is right at the end, on all devices.")];
    if (run.name === "all" || Number(run.name) === run.steps.length)
      sentences.push(said("These devices looked at their buffers before the last chunks had arrived."));
    return sentences;
  }

  function counts(step) {
    const n = ring.devices, at = step > 0 ? run.steps[step - 1] : null;
    const sent = at ? at.bytes : Array(n).fill(0);
    const cells = (name, list) => make("tr", {}, make("th", {scope: "row"}, name),
      ...list.map((value) => make("td", {}, String(value))));
    const atEnd = run.steps.length ? said(" (the run counted {})", bytes(run.steps.at(-1).bytes[0])) : "";
    return [
      make("div", {class: "lab-scroll"}, make("table", {},
        cells(said("device"), [...Array(n).keys()]),
        cells(said("sends chunk"), at ? at.going : Array(n).fill("–")),
        cells(said("bytes sent so far"), sent.map(bytes)))),
      make("p", {}, said("A buffer has S = {} bytes: {} chunks of 64 numbers, of which the first is drawn.",
        bytes(ring.bytes), n)),
      make("p", {}, said("2(n − 1)/n · S = 2 · {}/{} · {} = {} bytes for each device",
        n - 1, n, bytes(ring.bytes), bytes(2 * (n - 1) / n * ring.bytes)), atEnd)];
  }

  function checker() {
    if (run.name === "right") return [];
    const heading = make("h3", {}, said("What the checker says"));
    const fault = run.fault;
    if (!fault)
      return [heading, make("p", {}, said("Full checking finds nothing in this program.")),
        make("p", {}, said("The wait of a later step is enough: operations of one communicator end in order, so this " +
          "chunk has arrived when a later one has."))];
    const cheap = !run.cheap
      ? said("Cheap checking finds nothing: it lets the program go on, with the numbers that you see.")
      : run.cheap === fault.fault ? said("Cheap checking finds this, too.") : said("Cheap checking finds {}.", run.cheap);
    return [heading, make("div", {class: "lab-fault"},
      make("p", {}, make("a", {href: `${fault.fault}.html`, id: "fault"}, fault.fault),
        make("span", {lang: "en"}, `: ${fault.title}`)),
      make("p", {lang: "en"}, fault.sentence), make("p", {lang: "en"}, fault.cause)),
      make("p", {}, cheap)];
  }

  const loopOf = (step) => step < ring.devices ? 1 : step > 0 ? 2 : 0;

  function listing() {
    const blamed = new Set(run.fault ? run.fault.lines : []);
    let waits = 0;  // lines with wait(): first in reduce-scatter, then in all-gather
    const lines = data.program.code.split("\n").map((line, i) => {
      const loop = line.includes("moving.wait()") ? ++waits : 0;
      const isGone = loop > 0 && (run.name === "all" || loop === loopOf(Number(run.name)));
      const look = [blamed.has(data.program.line + i) && "blamed", isGone && "gone"];
      return make("span", {class: look.filter(Boolean).join(" ") || null}, line);
    });
    return make("details", {open: run.fault ? "" : null},
      make("summary", {}, said("The program, with the lines that the checker names")), make("p", {}, make("code", {}, data.program.file)),
      make("pre", {class: "lab-listing", tabindex: 0}, ...lines));
  }

  // ---- Putting it together ----

  const noteLine = make("p", {class: "lab-note", role: "status"});
  const controls = make("div", {class: "lab-controls"});
  const player = new Player((step, before) => {
    settings.step = step;
    writeAddress(settings);
    show(step === before + 1);
  });
  const picture = make("div", {id: "picture"});
  const sentenceLine = make("p", {class: "lab-said", "aria-live": "polite"});
  const countsPart = make("div");
  const checkerPart = make("div", {"aria-live": "polite"});
  const sourcePart = make("div");

  function show(isNext) {
    stopMoving();
    if (isNext && moves()) travel(settings.step);
    else draw(settings.step);
    sentenceLine.textContent = sentence(settings.step);
    countsPart.replaceChildren(...counts(settings.step));
  }

  const devicesOutput = make("output", {for: "devices"});
  const devicesSlider = make("input", {id: "devices", type: "range", min: data.rings[0].devices,
    max: data.rings.at(-1).devices, oninput: () => change({devices: devicesSlider.value})});
  const programPart = make("span");
  controls.append(make("label", {class: "lab-slider"}, said("Devices"), " ", devicesSlider, " ",
    devicesOutput), programPart);

  // Updates the controls to show what is chosen.
  function tell() {
    devicesSlider.value = settings.devices;
    devicesOutput.textContent = settings.devices;
    const names = ring.runs.map(({name}) => [name, programs[name] ?? said("without the wait() of step {}", name)]);
    programPart.replaceChildren(choice(said("Program"), "without", names, settings.without,
      (without) => change({without})));
  }

  function change(what) {
    set(fit({devices: String(settings.devices), without: settings.without, ...what}), "");
    writeAddress(settings);
    if ("without" in what) document.getElementById("without").focus();
  }

  function set(next, sentenceOfWrong) {
    settings = next;
    ring = data.rings.find((one) => one.devices === settings.devices);
    run = ring.runs.find((one) => one.name === settings.without);
    chunks = statesOf(run.steps);
    rightChunks = statesOf(ring.runs[0].steps).at(-1);
    noteLine.textContent = sentenceOfWrong;
    tell();
    player.reset(settings.step, run.steps.length);
    checkerPart.replaceChildren(...checker());
    sourcePart.replaceChildren(listing());
    show(false);
  }

  place.replaceChildren(controls, noteLine, player.element, sentenceLine, picture,
    make("p", {class: "lab-legend"}, said("A filled square: the device of that colour has its number in this sum. A figure in it says " +
      "how many times, if it is more than once. ≠: numbers of another chunk are in it. Blue frame: this step has " +
      "changed the chunk. Red frame: it is wrong at the end.")), countsPart, checkerPart, sourcePart);
  begin(fit, set, picture, () => {
    stopMoving();
    draw(settings.step);
  });
})();
