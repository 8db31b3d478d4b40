// pg-boss: each caller inserts a batch, fetches as many and completes them.
import { PgBoss } from "pg-boss";
import { Meter, body, fail, measure, spec } from "./meter.mjs";

const shapes = {
  "pg-boss-100": { callers: 8, batch: 100 },
  "pg-boss-1000": { callers: 4, batch: 1000 },
};
const { callers, batch } = shapes[spec.load];
const queue = "bench";
const boss = new PgBoss({ connectionString: spec.database, max: callers + 4 });
boss.on("error", fail);

const insert = (n) => boss.insert(queue, Array.from({ length: n }, () => ({ data: { body: body() } })));

async function caller(meter) {
  for (;;) {
    let start = performance.now();
    await insert(batch);
    meter.took("enqueue", start);
    for (let left = batch; left > 0; ) {
      start = performance.now();
      const jobs = await boss.fetch(queue, { batchSize: left });
      if (jobs.length === 0) continue;
      meter.took("claim", start);
      start = performance.now();
      await boss.complete(queue, jobs.map((job) => job.id));
      meter.took("complete", start);
      meter.done(jobs.length);
      left -= jobs.length;
    }
  }
}

try {
  await boss.start();
  await boss.createQueue(queue);
  if (spec.do === "fill") {
    for (let n = spec.count; n > 0; n -= 1000) await insert(Math.min(n, 1000));
    process.exit(0);
  }
  const meter = new Meter();
  for (let i = 0; i < callers; i++) caller(meter).catch(fail);
  await measure(meter);
  process.exit(0); // what is under way is given back when it expires
} catch (error) {
  fail(error);
}
