// Ten calls by a client whose types openapi-typescript has generated.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema";

declare const process: { argv: string[] };
const { GET, POST, PATCH, DELETE } = createClient<paths>({ baseUrl: process.argv[2] });

function need<T>(answer: { data?: T; error?: components["schemas"]["Problem"] }): T {
  if (answer.data === undefined) throw new Error(`${answer.error?.code}: ${answer.error?.detail}`);
  return answer.data;
}

async function main(): Promise<void> {
  const of = { params: { path: { job: "fetched" } } };
  const job = need(await POST("/v1/jobs", { body: {
    name: "fetched", target: { url: process.argv[3]! }, schedule: { cron: "0 3 * * *", timezone: "Europe/Berlin" },
  } }));
  const attempts: number = job.retry.max_attempts;
  if (attempts !== 5) throw new Error(`${attempts} attempts`);
  need(await PATCH("/v1/jobs/{job}", { ...of, body: { description: "a client of its own" } }));
  const read = need(await GET("/v1/jobs/{job}", of));
  if (read.description !== "a client of its own") throw new Error(JSON.stringify(read));
  if (need(await GET("/v1/jobs", {})).data.length === 0) throw new Error("no job is listed");
  need(await POST("/v1/jobs/{job}/pause", { ...of, body: {} }));
  need(await POST("/v1/jobs/{job}/resume", { ...of, body: {} }));
  const run = need(await POST("/v1/jobs/{job}/trigger", { ...of, body: {} }));
  if (need(await GET("/v1/runs/{run}", { params: { path: { run: run.id! } } })).trigger !== "manual") throw new Error(run.id);
  if (need(await GET("/v1/runs", { params: { query: { job: "fetched" } } })).data[0]?.id !== run.id) throw new Error(run.id);
  const { response } = await DELETE("/v1/jobs/{job}", of);
  if (response.status !== 204) throw new Error(`${response.status}`);
  const gone = await GET("/v1/jobs/{job}", { params: { path: { job: "nobody" } } });
  if (gone.error?.code !== "not_found") throw new Error(`${gone.error?.code}`);
  console.log("done");
}

void main();
