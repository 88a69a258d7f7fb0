"use strict";
// Shows the embedded conversations one turn at a time. Message texts are only set as text nodes.
(() => {
  const NATS = 6; // full colour from this value on
  const by = (id) => document.getElementById(id);
  const [reader, select, heat, strip, stage] = ["reader", "rollout", "heat", "strip", "turn"].map(by);
  const persona = stage.dataset.persona;
  const unpacked = new Map();
  let talk = null;
  let at = 0;

  async function unpack(index) {
    if (!unpacked.has(index)) {
      const packed = Uint8Array.from(atob(by("packed-" + index).textContent), (c) => c.charCodeAt(0));
      const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
      unpacked.set(index, await new Response(stream).json());
    }
    return unpacked.get(index);
  }

  function make(name, className, text) {
    const element = document.createElement(name);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  const nats = (hundredths) => (hundredths < 0 ? "unknown" : (hundredths / 100).toFixed(2) + " nats");

  function coloured(message, kind) {
    const body = document.createDocumentFragment();
    const { cut, surprise, entropy } = message.tokens;
    const values = kind === "entropy" ? entropy : surprise;
    let from = 0;
    cut.forEach((length, index) => {
      const piece = make("span", values[index] < 0 ? "" : "t", message.text.slice(from, from + length));
      from += length;
      if (values[index] >= 0) piece.style.setProperty("--v", Math.min(values[index] / 100 / NATS, 1).toFixed(3));
      const likely = surprise[index] < 0 ? "" : ", p = " + Math.exp(-surprise[index] / 100).toPrecision(2);
      piece.title = "surprise " + nats(surprise[index]) + likely + "; entropy " + nats(entropy[index]);
      body.append(piece);
    });
    return body;
  }

  // The highest values as text, for readers without colour vision or a pointer.
  function peaks(message, kind) {
    const values = kind === "entropy" ? message.tokens.entropy : message.tokens.surprise;
    let from = 0;
    const pieces = message.tokens.cut.map((length, index) => {
      const text = message.text.slice(from, from + length).trim();
      from += length;
      return { text, value: values[index] };
    });
    const top = pieces.filter((piece) => piece.text && piece.value > 0).sort((a, b) => b.value - a.value).slice(0, 5);
    if (!top.length) return null;
    const what = kind === "entropy" ? "Highest entropy before: " : "Least likely: ";
    return what + top.map((piece) => "“" + piece.text + "” " + (piece.value / 100).toFixed(1)).join(", ") + " nats";
  }

  function messageBox(message, isPersona) {
    const kind = heat.value;
    const box = make("div", "message" + (isPersona ? " persona" : "") + (message.failure ? " failed" : ""));
    const labels = [isPersona ? persona : "The other side", message.model, message.strategy];
    if (message.drafts > 1) labels.push(message.drafts + " drafts");
    box.append(make("cite", "", labels.filter(Boolean).join(" · ")));
    const colour = kind !== "none" && message.tokens;
    box.append(colour ? coloured(message, kind) : message.failure ? "No reply: " + message.failure : message.text);
    const note = colour ? peaks(message, kind) : kind !== "none" && !message.failure ? "No tokens were recorded for this message." : null;
    if (note) box.append(make("p", "meta", note));
    if (message.thought) {
      const { text, tokens, confidence } = message.thought;
      const details = make("details", "");
      const sure = confidence === null ? "" : ", confidence " + confidence.toFixed(2);
      details.append(make("summary", "", "Thought before it (" + tokens + " tokens" + sure + ")"));
      details.append(make("div", "message", text));
      box.append(details);
    }
    return box;
  }

  function fold(title, texts) {
    const details = make("details", "");
    details.append(make("summary", "", title + " (" + texts.length + ")"));
    texts.forEach((text) => details.append(make("div", "message", text)));
    return details;
  }

  function facts(turn) {
    const facts = turn.intensities.map((value, index) => talk.dimensions[index] + " " + value.toFixed(2));
    if (turn.confidence !== null) facts.push("confidence " + turn.confidence.toFixed(2));
    if (turn.entropy !== null) facts.push("entropy " + turn.entropy.toFixed(2) + " nats");
    if (turn.regulator.length) facts.push("regulator: " + turn.regulator.join(", "));
    if (turn.gains !== null) facts.push("Δ gains " + turn.gains);
    return facts.join(" · ");
  }

  function show() {
    const turn = talk.turns[at];
    stage.replaceChildren();
    if (!turn) {
      stage.append(make("p", "soft", "No turn is complete yet."));
      return;
    }
    stage.append(make("h3", "", "Turn " + turn.turn + (turn.phase === null ? "" : " · " + turn.phase)));
    stage.append(make("p", "meta", facts(turn)));
    if (turn.told !== null) stage.append(make("p", turn.told_differs ? "notice" : "meta", turn.told));
    const why = make("ul", "why");
    turn.why.forEach((text) => why.append(make("li", "", text)));
    turn.findings.filter((finding) => !finding.accepted).forEach((finding) => {
      why.append(make("li", "", "redrafted: " + finding.detail));
    });
    stage.append(why);
    if (at === 0 && talk.opening !== null) {
      stage.append(messageBox({ text: talk.opening, drafts: 1, rejected: [], tokens: { cut: [talk.opening.length], surprise: [-1], entropy: [-1] } }, false));
    }
    if (turn.instructions.length) stage.append(fold("Instructions given in this turn", turn.instructions));
    const both = [messageBox(turn.persona, true), messageBox(turn.other, false)];
    if (turn.persona.rejected.length) both[0].append(fold("Rejected drafts", turn.persona.rejected));
    stage.append(...(talk.persona_first ? both : both.reverse()));
    [...strip.children].forEach((button, index) => {
      button.tabIndex = index === at ? 0 : -1;
      index === at ? button.setAttribute("aria-current", "true") : button.removeAttribute("aria-current");
    });
    by("last-turn").textContent = "turn " + talk.turns[talk.turns.length - 1].turn;
    history.replaceState(null, "", "#r" + select.selectedOptions[0].dataset.rollout + "t" + turn.turn);
  }

  function go(index) {
    if (!talk) return;
    at = Math.max(0, Math.min(index, talk.turns.length - 1));
    const hadFocus = strip.contains(document.activeElement);
    show();
    if (hadFocus) strip.children[at].focus();
  }

  function layOutStrip() {
    strip.replaceChildren(...talk.turns.map((turn, index) => {
      const button = make("button", turn.why.length ? "flagged" : "");
      button.type = "button";
      button.setAttribute("aria-label", "Turn " + turn.turn + (turn.why.length ? ", flagged" : ""));
      if (turn.confidence !== null) button.style.setProperty("--v", (1 - turn.confidence).toFixed(3));
      button.addEventListener("click", () => go(index));
      return button;
    }));
  }

  async function open(index, turn) {
    talk = await unpack(index);
    select.value = String(index);
    layOutStrip();
    go(Math.max(0, talk.turns.findIndex((other) => other.turn === turn)));
  }

  // `#r3t12` selects rollout 3, turn 12.
  async function follow(scroll) {
    const named = /^#r(\d+)t(\d+)$/.exec(location.hash);
    const option = named && [...select.options].find((option) => option.dataset.rollout === named[1]);
    if (option) {
      await open(Number(option.value), Number(named[2]));
      if (scroll) stage.scrollIntoView();
    }
    return Boolean(option);
  }

  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !talk) return;
    if (event.target.closest("select, input, textarea")) return;
    const flagged = () => talk.turns.findIndex((turn, index) => index > at && turn.why.length);
    const rollout = (step) => {
      const index = Number(select.value) + step;
      if (index >= 0 && index < select.options.length) open(index, talk.turns[at] ? talk.turns[at].turn : 0);
    };
    const steps = {
      j: () => go(at + 1), k: () => go(at - 1),
      h: () => rollout(-1), ArrowLeft: () => rollout(-1), l: () => rollout(1), ArrowRight: () => rollout(1),
      f: () => { const next = flagged(); if (next >= 0) go(next); },
      c: () => { heat.selectedIndex = (heat.selectedIndex + 1) % heat.options.length; show(); },
    };
    const step = steps[event.key];
    if (step) {
      event.preventDefault();
      step();
    }
  }

  async function begin() {
    if (typeof DecompressionStream === "undefined") {
      reader.before(make("p", "notice", "This browser cannot decompress the conversations; browsers from 2023 on can."));
      return;
    }
    if (!select.options.length) return;
    reader.hidden = false;
    select.addEventListener("change", () => open(Number(select.value), 0));
    heat.addEventListener("change", show);
    by("previous").addEventListener("click", () => go(at - 1));
    by("next").addEventListener("click", () => go(at + 1));
    document.addEventListener("keydown", key);
    window.addEventListener("hashchange", () => follow(true));
    const before = location.hash;
    if (!(await follow(true))) {
      await open(0, 0);
      history.replaceState(null, "", before || location.pathname + location.search);
    }
    document.documentElement.dataset.ready = "true";
  }

  begin();
})();
