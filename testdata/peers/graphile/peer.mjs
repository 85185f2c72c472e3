// Works the jobs of make bench with graphile-worker. ../README.md has the protocol and the settings.
import { makeWorkerUtils, parseCronItems, run, Logger } from 'graphile-worker'
import * as undici from 'undici'
import { due, options, payload, poster, version } from '../peer.mjs'

const o = options()
const slots = o.slots || 250
const logger = new Logger(() => (level, message) => {
  if (level === 'error' || level === 'warning') console.error(message)
})
const preset = {
  worker: {
    connectionString: o.databaseUrl,
    schema: o.schema,
    logger,
    concurrentJobs: slots,
    ...(o.tuned && {
      pollInterval: 100,
      localQueue: { size: 4 * slots },
      completeJobBatchDelay: 20,
      failJobBatchDelay: 20,
    }),
  },
}

async function load() {
  const utils = await makeWorkerUtils({ preset })
  await utils.migrate()
  for (let first = 0; first < o.jobs; first += 5000) {
    const jobs = []
    for (let i = first; i < Math.min(first + 5000, o.jobs); i++) {
      const at = due(o, i)
      jobs.push({ identifier: 'callback', payload: payload(o, `job-${i}`, at), runAt: at })
    }
    await utils.addJobs(jobs)
  }
  await utils.release()
}

async function work() {
  const post = poster(undici, slots)
  const crons = Array.from({ length: o.crons }, (_, i) => ({
    task: 'callback', match: '* * * * *', identifier: `cron-${i}`, payload: payload(o, `cron-${i}`),
  }))
  const runner = await run({
    preset,
    taskList: { callback: (job, helpers) => post(job, helpers.job.id, helpers.job.attempts) },
    parsedCronItems: parseCronItems(crons),
  })
  console.log('ready')
  await runner.promise
}

switch (o.command) {
  case 'describe':
    console.log(JSON.stringify({
      name: 'graphile-worker',
      version: version(import.meta.url, 'graphile-worker'),
      runtime: `Node ${process.version}`,
      unfinished: `SELECT EXISTS (SELECT FROM ${o.schema}._private_jobs)`,
    }))
    break
  case 'load':
    await load()
    break
  case 'work':
    await work()
    break
  default:
    throw new Error(`unknown command ${o.command}`)
}
