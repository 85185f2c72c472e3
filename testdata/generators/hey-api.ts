// Ten calls by a client that @hey-api/openapi-ts has generated.
import {
  createJob, deleteJob, getJob, getRun, listJobs, listRuns, patchJob, pauseJob, resumeJob, triggerJob,
} from "./hey/sdk.gen";
import { client } from "./hey/client.gen";

declare const process: { argv: string[] };

async function main(): Promise<void> {
  client.setConfig({ baseUrl: process.argv[2] as `${string}://${string}`, throwOnError: true });
  const of = { path: { job: "hey" }, throwOnError: true as const };
  const { data: job } = await createJob({ throwOnError: true, body: {
    name: "hey", target: { url: process.argv[3]! }, schedule: { every: "1h" },
  } });
  const attempts: number = job.retry.max_attempts;
  if (attempts !== 5) throw new Error(`${attempts} attempts`);
  await patchJob({ ...of, body: { description: "a client of its own" } });
  const { data: read } = await getJob(of);
  if (read.description !== "a client of its own") throw new Error(JSON.stringify(read));
  if ((await listJobs({ throwOnError: true })).data.data.length === 0) throw new Error("no job is listed");
  await pauseJob({ ...of, body: {} });
  await resumeJob({ ...of, body: {} });
  const run = (await triggerJob({ ...of, body: {} })).data;
  if ((await getRun({ path: { run: run.id! }, throwOnError: true })).data.trigger !== "manual") throw new Error(run.id);
  const { data: runs } = await listRuns({ query: { job: "hey" }, throwOnError: true });
  if (runs.data[0]?.id !== run.id) throw new Error(run.id);
  const { response } = await deleteJob(of);
  if (response.status !== 204) throw new Error(`${response.status}`);
  const gone = await getJob({ path: { job: "nobody" }, throwOnError: false });
  if (gone.error?.code !== "not_found") throw new Error(`${gone.error?.code}`);
  console.log("done");
}

void main();
