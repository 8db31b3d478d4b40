// graphile-worker: jobs are added by addJobs in batches of 1000 and run in this process.
import { makeWorkerUtils, run, Logger } from "graphile-worker";
import { Balance, Meter, begin, body, end, fail, measure, spec } from "./meter.mjs";

const batch = 1000;
const quiet = new Logger(() => () => {});
const worker = {
  connectionString: spec.database,
  // 24 jobs at a time and a pool of 25 are what its page about performance gives.
  concurrentJobs: 24,
  maxPoolSize: 25,
};
if (spec.load === "graphile-worker-local") {
  Object.assign(worker, { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 });
}
const utils = await makeWorkerUtils({ connectionString: spec.database, maxPoolSize: 4, logger: quiet });

const add = (n) => utils.addJobs(Array.from({ length: n }, () => ({ identifier: "bench", payload: { body: body() } })));

async function fill(n) {
  for (; n > 0; n -= batch) await add(Math.min(n, batch));
}

async function serve(task, completed) {
  const runner = await run({ preset: { worker }, taskList: { bench: task }, logger: quiet, noHandleSignals: true });
  // It comes once the end of the job is written.
  runner.events.on("job:complete", completed);
  return runner;
}

async function cycle() {
  const meter = new Meter();
  const balance = new Balance(8 * batch);
  const produce = async () => {
    for (;;) {
      await balance.room.acquire(batch);
      const start = performance.now();
      await add(batch);
      meter.took("enqueue", start);
      balance.tokens.release(batch);
    }
  };
  await serve(
    () => balance.tokens.acquire(1),
    () => {
      meter.done(1);
      balance.room.release(1);
    },
  );
  for (let i = 0; i < 2; i++) produce().catch(fail);
  await measure(meter);
  process.exit(0); // jobs that are locked stay so; the next window has enough others
}

// burn works off what is there, as its own performance test does.
async function burn(n) {
  const meter = new Meter();
  let left = n;
  await new Promise((resolve, reject) => {
    serve(
      () => {},
      () => {
        meter.done(1);
        if (--left === 0) resolve();
      },
    ).catch(reject);
    begin(meter).catch(reject);
  });
  await end(meter);
  process.exit(0);
}

try {
  await utils.migrate();
  switch (spec.do) {
    case "fill":
      await fill(spec.count);
      process.exit(0);
    case "burn":
      await burn(spec.count);
      break;
    default:
      await cycle();
  }
} catch (error) {
  fail(error);
}
