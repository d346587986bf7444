// Asks lockstep.js each request of a list, and prints the answers.
// usage: node ask_module.js LOCKSTEP.JS < REQUESTS, a JSON list
"use strict";

const LockstepModule = require(process.argv[2]);
const requests = JSON.parse(require("fs").readFileSync(0, "utf8"));

LockstepModule().then((module) => {
  const call = (text) => JSON.parse(module.ccall("lockstep_call", "string", ["string"], [text]));
  console.log(JSON.stringify(requests.map((asked) =>
    call(typeof asked === "string" ? asked : JSON.stringify(asked)))));
});
