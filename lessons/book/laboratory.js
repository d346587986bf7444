"use strict";
// Shared by all laboratories: settings in the address, and a player that goes from step to step.

(function () {
  const {said, gap, element: make} = Lockstep;

  // A <select> with its label; `options` are pairs of a value and a text.
  function choice(label, id, options, chosen, change) {
    const select = make("select", {id, onchange: () => change(select.value)},
      ...options.map(([value, text]) => make("option", {value}, text)));
    select.value = chosen;
    return make("label", {}, label, " ", select);
  }

  const stillness = window.matchMedia("(prefers-reduced-motion: reduce)");

  // Whether things may move.
  const moves = () => !stillness.matches;

  // Reads the settings after "#" in the address. `fit` turns them into settings that can be shown;
  // `note` names the settings that could not be used.
  function readAddress(fit) {
    clearTimeout(writing);
    const asked = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    const settings = fit(asked);
    const wrong = Object.keys(asked).filter((name) =>
      Object.hasOwn(settings, name) && String(settings[name]) !== asked[name]);
    return {settings, note: wrong.map((name) =>
      said("There is no {}={} here; another setting is shown.", name, asked[name])).join(gap)};
  }

  // Browsers let a page write its address only a few times a second.
  let writing;
  function writeAddress(settings) {
    const text = new URLSearchParams(settings).toString().replaceAll("%2C", ",").replaceAll("%3B", ";");
    clearTimeout(writing);
    writing = setTimeout(() => {
      try { history.replaceState(null, "", "#" + text); } catch { /* it stays as it was */ }
    }, 250);
  }

  // Returns the value that was asked for, or `usual` if there is no such value.
  function among(values, asked, usual) {
    return values.find((value) => String(value) === asked) ?? usual;
  }

  // Buttons and a slider that choose a step from 0 to `last`. `show(step, before)` is called when
  // another step is chosen. While steps play, each is shown for `pause()` milliseconds.
  class Player {
    constructor(show) {
      this.show = show;
      this.step = 0;
      this.last = 0;
      this.timer = null;
      const button = (id, text, act) => make("button", {id, type: "button", onclick: act}, text);
      this.backButton = button("back", said("Back"), () => this.choose(this.step - 1));
      this.playButton = button("play", said("Play"), () => this.timer ? this.stop() : this.play());
      this.nextButton = button("next", said("Next"), () => this.choose(this.step + 1));
      this.slider = make("input", {id: "step", type: "range", min: 0, max: 0, step: 1,
        oninput: () => this.choose(Number(this.slider.value))});
      this.output = make("output", {for: "step"});
      this.speed = "medium";
      this.element = make("div", {class: "lab-controls"},
        this.backButton, this.playButton, this.nextButton,
        make("label", {class: "lab-slider"}, said("Step"), " ", this.slider, " ", this.output),
        choice(said("Speed"), "speed",
          [["slow", said("slow")], ["medium", said("medium")], ["fast", said("fast")]], "medium",
          (chosen) => { this.speed = chosen; }));
    }
    pause() {
      const usual = {slow: 2400, medium: 1300, fast: 600}[this.speed];
      return moves() ? usual : Math.max(usual, 1300);
    }
    // Sets the chosen step and the last step, without showing a step.
    reset(step, last) {
      this.stop();
      this.last = last;
      this.step = step;
      this.slider.max = last;
      this.tell();
    }
    tell() {
      this.slider.value = this.step;
      this.slider.disabled = this.last === 0;
      this.output.textContent = said("{} of {}", this.step, this.last);
      this.backButton.disabled = this.step === 0;
      this.nextButton.disabled = this.step === this.last;
      this.playButton.disabled = this.last === 0;
      this.playButton.textContent = this.timer ? said("Pause") : said("Play");
    }
    choose(step, plays = false) {
      if (!plays) this.stop();
      const before = this.step;
      this.step = Math.min(Math.max(step, 0), this.last);
      this.tell();
      if (this.step !== before) this.show(this.step, before);
    }
    play() {
      if (this.step === this.last) this.choose(0);
      const go = () => {
        this.choose(this.step + 1, true);
        if (this.step === this.last) return this.stop();
        this.timer = setTimeout(go, this.pause());
      };
      this.timer = setTimeout(go, 50);
      this.tell();
    }
    stop() {
      clearTimeout(this.timer);
      this.timer = null;
      this.tell();
    }
  }

  // Shows the settings of the address, now and whenever they change. Calls `redraw` when the
  // width of `picture` changes.
  function begin(fit, set, picture, redraw) {
    const load = () => {
      const {settings, note} = readAddress(fit);
      set(settings, note);
    };
    load();
    window.addEventListener("hashchange", load);
    let width = picture.clientWidth;
    new ResizeObserver(() => {
      if (picture.clientWidth === width) return;
      width = picture.clientWidth;
      redraw();
    }).observe(picture);
  }

  // Colours of devices 0, 1, …: those of Okabe and Ito, as in the charts, and one of Tol's.
  const colours = ["#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#D55E00", "#0072B2",
    "#999933"];

  const style = `
    #laboratory :not(.picture) > svg { display: block; margin: 0.5rem auto; max-width: 100%; font: 12px system-ui, sans-serif; }
    #laboratory :not(.picture) > svg text { fill: var(--ink); }
    #laboratory :not(.picture) > svg .faint { fill: var(--faint); }
    #laboratory :not(.picture) > svg .strong { font-weight: bold; }
    .lab-controls { display: flex; flex-wrap: wrap; gap: 0.5rem 1rem; align-items: center;
                    margin: 0.75rem 0; }
    .lab-controls button { min-width: 4.5rem; min-height: 2.2rem; }
    .lab-controls select { min-height: 2.2rem; max-width: 100%; }
    .lab-controls label { max-width: 100%; }
    .lab-slider { display: inline-flex; flex-wrap: wrap; align-items: center; gap: 0.5rem; }
    .lab-note { color: var(--bad); }
    .lab-said { min-height: 3em; }
    .lab-scroll { overflow-x: auto; }
    .lab-scroll table { border-collapse: collapse; }
    .lab-scroll td, .lab-scroll th { padding: 0.15rem 0.7rem; text-align: right;
                                     border-bottom: 1px solid var(--line); }
    .lab-scroll td { white-space: nowrap; }
    .lab-fault { border-left: 4px solid var(--bad); padding-left: 0.9rem; margin: 1rem 0; }
    .lab-fault p { margin: 0.4rem 0; overflow-wrap: anywhere; }
    .lab-listing { overflow-x: auto; font-size: 0.85rem; line-height: 1.45; padding: 0.6rem;
                   border: 1px solid var(--line); }
    .lab-listing span { display: block; min-height: 1.45em; white-space: pre; }
    .lab-listing .blamed { outline: 2px solid var(--bad); }
    .lab-listing .gone { text-decoration: line-through; color: var(--faint); }
  `;
  document.head.append(make("style", {}, style));

  Lockstep.laboratory = {choice, moves, readAddress, writeAddress, among, begin, Player, colours};
})();
