// This program makes ten calls by a client that oapi-codegen has generated: of the API at the first argument, about jobs
// that call the second.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"clients/api"
)

func main() {
	ctx, description, every := context.Background(), "a client of its own", "1h"
	c, err := api.NewClientWithResponses(os.Args[1])
	check(err)
	job, err := c.CreateJobWithResponse(ctx, nil, api.JobInput{
		Name: "generated", Target: &api.Target{Url: os.Args[2]}, Schedule: &api.Schedule{Every: &every},
	})
	check(err)
	expect(job.JSON201 != nil && job.JSON201.Retry.MaxAttempts == 5, string(job.Body))
	patched, err := c.PatchJobWithResponse(ctx, "generated", nil, api.JobPatch{Description: &description})
	check(err)
	expect(patched.JSON200 != nil, string(patched.Body))
	read, err := c.GetJobWithResponse(ctx, "generated", nil)
	check(err)
	expect(read.JSON200 != nil && *read.JSON200.Description == description, string(read.Body))
	list, err := c.ListJobsWithResponse(ctx, nil)
	check(err)
	expect(list.JSON200 != nil && len(list.JSON200.Data) > 0, string(list.Body))
	paused, err := c.PauseJobWithResponse(ctx, "generated", nil, api.PauseInput{})
	check(err)
	expect(paused.JSON200 != nil, string(paused.Body))
	resumed, err := c.ResumeJobWithResponse(ctx, "generated", nil, api.ResumeInput{})
	check(err)
	expect(resumed.JSON200 != nil, string(resumed.Body))
	triggered, err := c.TriggerJobWithResponse(ctx, "generated", nil, api.TriggerInput{})
	check(err)
	expect(triggered.JSON202 != nil && triggered.JSON202.Id != nil, string(triggered.Body))
	run, err := c.GetRunWithResponse(ctx, triggered.JSON202.Id.String(), nil)
	check(err)
	expect(run.JSON200 != nil && run.JSON200.Trigger == api.RunTriggerManual, string(run.Body))
	name := "generated"
	runs, err := c.ListRunsWithResponse(ctx, &api.ListRunsParams{Job: &name})
	check(err)
	expect(runs.JSON200 != nil && runs.JSON200.Data[0].Id == *triggered.JSON202.Id, string(runs.Body))
	deleted, err := c.DeleteJobWithResponse(ctx, "generated", nil)
	check(err)
	expect(deleted.StatusCode() == 204, string(deleted.Body))
	gone, err := c.GetJobWithResponse(ctx, "nobody", nil)
	check(err)
	expect(gone.ApplicationproblemJSON404 != nil && gone.ApplicationproblemJSON404.Code == "not_found", string(gone.Body))
	fmt.Println("done")
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func expect(is bool, answer string) {
	if !is {
		log.Fatalf("unexpected: %s", answer)
	}
}
