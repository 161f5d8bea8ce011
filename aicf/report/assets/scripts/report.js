"use strict";

// The data of the report, and ways to find things in it.

const REPORT = JSON.parse(document.getElementById("data").textContent);

/**
 * What is shown of one program: its instructions and ops, found by name.
 *
 * `instructions` have `index` (position in launch order), `us` (measured where that is known, else predicted) and
 * `neighbours`; `ops` are those of the model, and `byOp` finds the instructions that stand for one.
 */
class ProgramView {
  constructor(compiled, program) {
    this.compiled = compiled;
    this.program = program;
    this.instructions = program.instructions.map((each, index) => ({
      ...each,
      ...each.row,
      index,
      us: each.measured_us ?? each.row.expected_us,
      neighbours: [],
    }));
    this.byName = new Map(this.instructions.map((each) => [each.name, each]));
    for (const pair of program.neighbours) {
      for (const name of [pair.producer, pair.consumer]) this.byName.get(name)?.neighbours.push(pair);
    }
    this.byOp = new Map();
    for (const each of this.instructions) {
      for (const id of each.src) this.byOp.set(id, [...(this.byOp.get(id) ?? []), each]);
    }
    this.ops = compiled.model ?? this.opsOfInstructions();
    this.opById = new Map(this.ops.map((op) => [op.id, op]));
    this.totalUs = this.instructions.reduce((sum, each) => sum + (each.us ?? 0), 0);
  }

  /** Where there is no model, the ops that the instructions name. */
  opsOfInstructions() {
    return [...this.byOp.keys()].map((id) => ({ id, kind: "op", type: "", reads: [], inputs: [], location: null }));
  }

  /** Decisions about an op or instruction, and about those it was lowered to. */
  decisionsAbout(id) {
    const bare = id.split("@")[0];
    return this.compiled.decisions.filter((decision) => decision.subjects.some((subject) =>
      subject === id || subject.split("@")[0] === bare || subject.startsWith(`${bare}.`)));
  }

  /** The kernel choice of an instruction. */
  kernelChoice(name) {
    return this.compiled.decisions.findLast((decision) =>
      decision.made_by === "select-kernels" && decision.subjects[0] === name);
  }
}
