// Shared by all pages of the book: colours, pictures with explanations, and predictions. Lockstep
// itself, in lockstep.js, computes the answers; these scripts only ask and show.
const Lockstep = (() => {
  "use strict";

  const page = document.documentElement;
  const language = page.lang === "zh" ? "zh" : "en";
  const root = page.dataset.root;
  page.classList.add("js");

  // All sentences of these scripts are written in English, where they are used. The Chinese book
  // has their translations in words.js, made from lessons/page/language.cpp.
  const words = language === "zh" ? chineseWords : {};

  // said("{} of {}", 1, 5) is the sentence in the page's language, with these values for {}. A
  // translation with the values in another order has {1} and {0}.
  function said(english, ...values) {
    let next = 0;
    return (words[english] ?? english).replace(/\{(\d?)\}/g, (_, place) => values[place || next++]);
  }

  // The text between two sentences.
  const gap = language === "zh" ? "" : " ";

  const svgTags = new Set(["svg", "g", "rect", "line", "path", "text", "circle", "title",
    "pattern", "defs", "polygon"]);

  // element("button", {id: "play", onclick: f}, "Play") makes a new element. Attributes and
  // children that are null or false are left out.
  function element(tag, attributes = {}, ...children) {
    const made = svgTags.has(tag)
      ? document.createElementNS("http://www.w3.org/2000/svg", tag)
      : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes))
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) made.setAttribute(name, value);
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  // This browser keeps what a reader has done. If the browser has no room or forbids that, nothing
  // is kept.
  const kept = {
    get(name) {
      try { return JSON.parse(localStorage.getItem("lockstep " + name)); } catch { return null; }
    },
    put(name, value) {
      try { localStorage.setItem("lockstep " + name, JSON.stringify(value)); } catch { /* not kept */ }
    },
  };

  // ---- Colours ----

  function isDark() {
    const chosen = page.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  if (kept.get("theme")) page.dataset.theme = kept.get("theme");

  function startColours() {
    document.getElementById("theme").addEventListener("click", () => {
      page.dataset.theme = isDark() ? "light" : "dark";
      kept.put("theme", page.dataset.theme);
    });
  }

  // ---- Lockstep itself ----

  let module;

  function load() {
    module ??= new Promise((resolve, reject) => {
      document.head.append(element("script", {
        src: root + "lockstep.js",
        onload: () => LockstepModule().then(resolve, reject),
        onerror: () => reject(new Error(said("The part that computes could not be loaded: {}", root + "lockstep.js"))),
      }));
    });
    return module;
  }

  // Sends a request to Lockstep; request and answer are objects. Throws if Lockstep refuses the request.
  async function call(request) {
    const loaded = await load();
    const text = JSON.stringify({language, ...request});
    const answer = JSON.parse(loaded.ccall("lockstep_call", "string", ["string"], [text]));
    if (answer.error) throw new Error(answer.error);
    return answer;
  }

  // ---- Pictures ----

  const tip = element("div", {class: "tip", "aria-live": "polite", hidden: ""});

  function hideTip() {
    tip.hidden = true;
    for (const marked of document.querySelectorAll(".pointed, .waited-for"))
      marked.classList.remove("pointed", "waited-for");
  }

  // Explains a box of a picture, and marks the boxes that it waits for.
  function explain(box, x, y) {
    hideTip();
    box.classList.add("pointed");
    const picture = box.closest("svg");
    for (const id of (box.dataset.waits ?? "").split(" ").filter(Boolean))
      picture.querySelector(`[data-box="${CSS.escape(id)}"]`)?.classList.add("waited-for");
    tip.textContent = box.dataset.words;
    tip.hidden = false;
    const wide = document.documentElement.clientWidth;
    tip.style.left = Math.max(4, Math.min(x + 12, wide - tip.offsetWidth - 4)) + "px";
    const below = y + 16;
    tip.style.top = (below + tip.offsetHeight > innerHeight ? Math.max(4, y - 12 - tip.offsetHeight) : below) + "px";
  }

  function middle(box) {
    const at = box.getBoundingClientRect();
    return {x: at.left + at.width / 2, y: at.top + at.height / 2};
  }

  // The nearest box from `from` in the direction of an arrow key.
  function neighbour(boxes, from, key) {
    const here = middle(from);
    const along = {ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1]}[key];
    let best = null, least = Infinity;
    for (const box of boxes) {
      const there = middle(box);
      const ahead = (there.x - here.x) * along[0] + (there.y - here.y) * along[1];
      const aside = Math.abs((there.x - here.x) * along[1]) + Math.abs((there.y - here.y) * along[0]);
      const far = ahead + (along[0] ? 20 : 2) * aside;
      if (ahead > 0.5 && far < least) [best, least] = [box, far];
    }
    return best;
  }

  function startPicture(svg) {
    for (const title of svg.querySelectorAll("title")) {
      title.parentNode.dataset.words = title.textContent;
      title.remove();
    }
    const boxes = [...svg.querySelectorAll("[data-words]")];
    if (boxes.length === 0) return;
    const frame = svg.parentNode;
    frame.tabIndex = 0;
    svg.addEventListener("pointerover", (event) => {
      const box = event.target.closest("[data-words]");
      if (box) explain(box, event.clientX, event.clientY); else hideTip();
    });
    svg.addEventListener("pointerleave", hideTip);
    let chosen = null;
    frame.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { chosen = null; hideTip(); return; }
      if (!event.key.startsWith("Arrow")) return;
      event.preventDefault();
      chosen = chosen?.isConnected ? neighbour(boxes, chosen, event.key) ?? chosen : boxes[0];
      chosen.scrollIntoView({block: "nearest", inline: "nearest"});
      const at = chosen.getBoundingClientRect();
      explain(chosen, at.right, at.bottom);
    });
    frame.addEventListener("blur", hideTip);
  }

  function pictures(element) {
    for (const svg of element.querySelectorAll("figure.picture > svg")) startPicture(svg);
  }

  // Readers cannot see that pictures have explanations, so each page says it once.
  function tellOfPictures() {
    document.querySelector("figure.picture")?.after(element("p", {class: "facts"},
      said("Point at a box, or choose the picture with the Tab key and use the arrow keys: it says what it is.")));
  }

  // ---- Predictions ----

  const outcomes = ["right", "right later", "wrong", "passed"];

  class Lesson {
    constructor(article) {
      this.article = article;
      this.data = article.dataset;
      this.forms = [...article.querySelectorAll("form.question")];
      this.answers = kept.get(this.key()) ?? {};
      for (const form of this.forms) this.start(form);
      this.offerAll();
      for (const link of article.querySelectorAll(".contents a"))
        link.addEventListener("click", (event) => this.follow(event, link));
      this.show();
      article.classList.add("ready");
    }

    // The name under which answers are kept: they belong to the figures of one run.
    key() { return `${this.data.lesson} ${this.data.record}`; }
    name(form) { return form.id.slice("predict-".length); }
    answer(form) { return this.answers[this.name(form)]; }
    open() { return this.forms.find((form) => !this.answer(form)); }

    offerAll() {
      this.offer = this.article.querySelector(".offer");
      if (this.forms.length === 0) return;
      this.offer.append(element("p", {},
        said("This lesson asks {} predictions. The text after a question appears once you have answered or skipped it.",
          this.forms.length) + " ",
        element("button", {type: "button", onclick: () => this.passAll()}, said("Show everything, without predicting"))));
    }

    passAll() {
      for (const form of this.forms)
        if (!this.answer(form)) this.settle(form, {typed: [], outcome: "passed"}, false);
      this.keep();
      this.show();
    }

    start(form) {
      form.typed = [];
      form.addEventListener("submit", (event) => { event.preventDefault(); this.judge(form); });
      form.querySelector(".pass").addEventListener("click", () => {
        this.settle(form, {typed: form.typed, outcome: form.typed.length > 0 ? "wrong" : "passed"});
      });
      if (this.answer(form)) this.showAnswer(form);
    }

    // Judges one answer at a time: the next attempt must wait for the remark on the first.
    async judge(form) {
      const typed = new FormData(form).get("answer")?.trim() ?? "";
      const advice = form.querySelector(".advice");
      const prediction = JSON.parse(form.dataset.prediction);
      const unreadable = prediction.choices.length > 0
        ? said("Choose one.") : said("Type a number such as 1,500, 1.5e3, 1/4, 25% or 150 KiB. Answers within 1 % count as right.");
      if (form.isJudging) return;
      if (typed === "") { advice.textContent = unreadable; return; }
      let judged;
      form.isJudging = true;
      advice.textContent = said("Computing …");
      try {
        judged = await call({do: "judge", prediction, typed});
      } catch (error) {
        advice.textContent = error.message;
        return;
      } finally {
        form.isJudging = false;
      }
      if (this.answer(form)) return;
      if (judged.outcome === "unreadable") { advice.textContent = unreadable; return; }
      form.typed.push(typed);
      if (judged.outcome === "right")
        this.settle(form, {typed: form.typed, outcome: form.typed.length > 1 ? "right later" : "right"});
      else if (form.typed.length > 1)
        this.settle(form, {typed: form.typed, outcome: "wrong"});
      else
        advice.innerHTML = said("Not yet.") + gap + (judged.hint >= 0 ? prediction.hints[judged.hint].html : judged.remark);
    }

    // Locks the answer.
    settle(form, answer, shows = true) {
      this.answers[this.name(form)] = {...answer, figure: form.dataset.figure};
      this.showAnswer(form);
      if (!shows) return;
      this.keep();
      this.show();
      form.nextElementSibling.setAttribute("tabindex", "-1");
      form.nextElementSibling.focus({preventScroll: true});
    }

    showAnswer(form) {
      const {typed, outcome} = this.answer(form);
      form.classList.add("settled");
      form.querySelector(".advice").textContent = "";
      for (const field of form.querySelectorAll("input, button")) field.disabled = true;
      const field = form.querySelector("input:not([type=radio])");
      const last = typed.at(-1);
      for (const choice of form.querySelectorAll("input[type=radio]")) choice.checked = choice.value === last;
      const outcomeOf = form.nextElementSibling;
      const label = outcomeOf.querySelector(".labelled b");
      if (field) field.parentElement.hidden = true;
      if (field && last) outcomeOf.prepend(element("p", {class: "labelled given"},
        element("b", {}, said("Your answer:")), " " + last));
      if (outcome === "passed") return;
      label.textContent = outcome === "wrong" ? said("No, it is:") : said("Right:");
      label.className = outcome === "wrong" ? "bad" : "good";
    }

    // Hides everything after an open question.
    show() {
      let locked = false;
      for (const section of this.article.querySelectorAll(":scope > section")) {
        section.hidden = locked;
        this.article.querySelector(`.contents a[href="#${CSS.escape(section.id)}"]`)
          ?.classList.toggle("locked", locked);
        for (const part of section.children) {
          part.hidden = locked;
          if (part.matches("form.question") && !this.answer(part)) locked = true;
        }
      }
      this.offer.hidden = !locked;
      if (!locked) this.showScore();
    }

    score() {
      const score = Object.fromEntries(outcomes.map((outcome) => [outcome, 0]));
      for (const form of this.forms) if (this.answer(form)) ++score[this.answer(form).outcome];
      return score;
    }

    showScore() {
      const place = this.article.querySelector(".score");
      if (this.forms.length === 0 || place.hasChildNodes()) return;
      const {lesson, version, run, record} = this.data;
      const score = this.score();
      const handed = {lesson, version,
        runs: {[run]: {predictions: this.answers, score, record}}};
      place.append(element("p", {},
        said("Predictions: {} of {} right at once, {} at the second try, {} wrong, {} skipped.",
          score.right, this.forms.length, score["right later"], score.wrong, score.passed) + " ",
        element("a", {class: "button", download: `${lesson}-predictions.json`,
          href: "data:application/json;charset=utf-8," + encodeURIComponent(JSON.stringify(handed, null, 1))},
        said("Save your predictions, to hand them in")), " ",
      element("button", {type: "button", onclick: () => this.forget()}, said("Begin again"))));
    }

    forget() {
      if (!confirm(said("Delete your predictions for this lesson?"))) return;
      kept.put(this.key(), null);
      kept.put(this.data.lesson, null);
      location.reload();
    }

    keep() {
      kept.put(this.key(), this.answers);
      kept.put(this.data.lesson, {open: this.forms.filter((form) => !this.answer(form)).length, all: this.forms.length});
    }

    follow(event, link) {
      if (!link.classList.contains("locked")) return;
      event.preventDefault();
      this.open().scrollIntoView({block: "center"});
      this.open().querySelector("input").focus({preventScroll: true});
    }
  }

  // n and b go to the next step and back, as in a terminal.
  function startKeys(article) {
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches("input, select, textarea")) return;
      if (event.key !== "n" && event.key !== "b") return;
      const sections = [...article.querySelectorAll(":scope > section:not([hidden])")];
      const ahead = sections.filter((section) => section.getBoundingClientRect().top > 8);
      const behind = sections.filter((section) => section.getBoundingClientRect().top < -8);
      (event.key === "n" ? ahead[0] : behind.at(-1) ?? article)?.scrollIntoView();
    });
  }

  function startSyllabus() {
    for (const item of document.querySelectorAll(".syllabus [data-lesson]")) {
      const done = kept.get(item.dataset.lesson);
      if (done) item.querySelector(".facts").append(gap + (done.open === 0
        ? said("Done.") : said("{} of {} predictions made.", done.all - done.open, done.all)));
    }
  }

  // The address can have any text after "#".
  function elementInAddress() {
    try {
      return document.getElementById(decodeURIComponent(location.hash.slice(1)));
    } catch { return null; }
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.body.append(tip);
    startColours();
    pictures(document);
    tellOfPictures();
    startSyllabus();
    const article = document.querySelector("article.lesson");
    if (!article) return;
    new Lesson(article);
    startKeys(article);
    elementInAddress()?.scrollIntoView();
  });

  return {said, gap, call, pictures, element};
})();
