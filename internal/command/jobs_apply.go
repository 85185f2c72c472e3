package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/httpapi/manifest"
	"punctual/httpapi/problem"
)

type applyJobs struct {
	api
	File string `arg:"" optional:"" default:"-" type:"path" help:"JSON or YAML: a job, a list of jobs, or several documents. Default: standard input, -."`
}

// Run applies each job by itself: one that the API refuses holds up no other.
func (c *applyJobs) Run(ctx context.Context, api *client.Client) error {
	text, err := read(c.File)
	if err != nil {
		return err
	}
	jobs, err := manifest.Read(text)
	if err != nil {
		return fmt.Errorf("%s: %w", c.source(), err)
	}
	jobs = afterTheirTargets(jobs)
	var errs []error
	for _, job := range jobs {
		what, written, err := apply(ctx, api, job)
		switch {
		case err == nil:
			tell(what, written)
		case isRefusal(err):
			errs = append(errs, &apiError{fmt.Sprintf("job %q: %v", job.Name, err), err})
		default:
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}

// afterTheirTargets puts a job behind those that its runs trigger, so that it may name jobs that come later in the
// file. The API refuses circles.
func afterTheirTargets(jobs []manifest.Job) []manifest.Job {
	ordered := make([]manifest.Job, 0, len(jobs))
	begun := map[string]bool{}
	var place func(job manifest.Job)
	place = func(job manifest.Job) {
		if begun[job.Name] {
			return
		}
		begun[job.Name] = true
		var d struct {
			Then []struct{ Job string }
		}
		_ = json.Unmarshal(job.JSON, &d) // the API says what is wrong with it
		for _, link := range d.Then {
			if i := slices.IndexFunc(jobs, func(j manifest.Job) bool { return j.Name == link.Job }); i >= 0 {
				place(jobs[i])
			}
		}
		ordered = append(ordered, job)
	}
	for _, job := range jobs {
		place(job)
	}
	return ordered
}

func (c *applyJobs) source() string {
	if c.File == "-" {
		return "standard input"
	}
	return c.File
}

// tell says what became of a job, and of one that was written what its schedule means.
func tell(what string, job httpapi.Job) {
	meaning := ""
	if what != "unchanged" && job.ScheduleWords != "" {
		meaning = fmt.Sprintf("  %s %s", job.ScheduleWords, job.Schedule.Timezone)
	}
	fmt.Printf("%-9s %s%s\n", what, job.Name, meaning)
	if said := swallowed(job); said != "" {
		fmt.Fprintf(os.Stderr, "job %q is active%s\n", job.Name, said)
	}
	for _, w := range job.Warnings {
		if what != "unchanged" {
			fmt.Fprintf(os.Stderr, "warning: job %q: %s\n", job.Name, w)
		}
	}
}

// apply writes a job, and says what that did to it. A job is created or replaced in one transaction, and a replaced one
// keeps its history.
func apply(ctx context.Context, api *client.Client, job manifest.Job) (what string, written httpapi.Job, err error) {
	before, err := client.Job.Do(ctx, api, nil, job.Name)
	if err != nil && !client.Is(err, problem.CodeNotFound) {
		return "", written, err
	}
	status, err := api.Do(ctx, http.MethodPut, "/v1/jobs/"+url.PathEscape(job.Name), job.JSON, &written)
	switch {
	case err != nil:
		return "", written, err
	case status == http.StatusCreated:
		return "created", written, nil
	case written.Version == before.Version:
		return "unchanged", written, nil
	}
	return "updated", written, nil
}

// isRefusal reports whether the API refused this one job, and may take the next one.
func isRefusal(err error) bool {
	answer, ok := errors.AsType[*client.Error](err)
	if !ok || answer.Problem == nil {
		return false
	}
	switch answer.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge,
		http.StatusUnprocessableEntity:
		return true
	}
	return false
}
