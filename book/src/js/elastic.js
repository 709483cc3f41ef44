"use strict";

/* A job in core/src/elastic that loses a rank and takes in another, moment by moment, with the batch of
   core/examples/elastic_counts.rs. Processes are numbers, because their ranks change. */
{
  const RANKS = 3;
  const NEWCOMER = RANKS;
  const BATCH = 60;

  pictures.elasticProcesses = ["A", "B", "C", "D"];

  /** The moments of a job of which this process is killed. `group` has the processes in the order of their ranks, and
      `committed` the steps that each process has committed, or null if it has no state. A step is computed by the group,
      with this many samples for each rank. */
  pictures.elastic = killed => {
    const before = Array.from({ length: RANKS }, (_, process) => process);
    const left = before.filter(process => process !== killed);
    const after = before.map(process => process === killed ? NEWCOMER : process);
    const moments = [];
    let [group, committed] = [before, [0, 0, 0, null]];
    const add = (kind, more = {}) => moments.push({ kind, group, committed, ...more });
    const step = (kind, number) => {
      if (kind !== "kill") committed = committed.map((steps, process) => group.includes(process) ? number : steps);
      add(kind, { step: number, samples: BATCH / group.length });
    };
    /** A new group. The ranks that are behind get the state from the first of those that are ahead. */
    const meet = members => {
      group = members;
      const newest = Math.max(...group.map(process => committed[process] ?? -1));
      const source = group.find(process => committed[process] === newest);
      const receivers = group.filter(process => committed[process] !== newest);
      add("meet", { source, receivers });
      committed = committed.map((steps, process) => group.includes(process) ? newest : steps);
    };
    step("step", 1);
    step("kill", 2);
    committed = committed.map((steps, process) => process === killed ? null : steps);
    add("notice");
    meet(left);
    step("step", 2);
    step("step", 3);
    step("ready", 4);
    meet(after);
    step("step", 5);
    return moments;
  };
}
