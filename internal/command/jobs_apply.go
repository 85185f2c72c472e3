package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/httpapi/manifest"
	"punctual/httpapi/problem"
)

type applyJobs struct {
	api
	File string `arg:"" optional:"" default:"-" type:"path" help:"JSON or YAML with a job, a list of jobs, or several documents of these. Default: standard input, -."`
}

// Run applies each job by itself: one that the API refuses holds up no other.
func (c *applyJobs) Run(ctx context.Context) error {
	text, err := read(c.File)
	if err != nil {
		return err
	}
	jobs, err := manifest.Read(text)
	if err != nil {
		return fmt.Errorf("%s: %w", c.source(), err)
	}
	return c.call(ctx, func(api *client.Client) error {
		var errs []error
		for _, job := range jobs {
			what, err := apply(ctx, api, job)
			switch {
			case err == nil:
				fmt.Printf("%-9s %s\n", what, job.Name)
			case isRefusal(err):
				errs = append(errs, &apiError{fmt.Sprintf("job %q: %v", job.Name, c.explain(ctx, err)), err})
			default:
				return errors.Join(append(errs, c.explain(ctx, err))...)
			}
		}
		return errors.Join(errs...)
	})
}

func (c *applyJobs) source() string {
	if c.File == "-" {
		return "standard input"
	}
	return c.File
}

// apply writes a job, and says what that did to it. A job is created or replaced in one transaction, and a replaced one
// keeps its history.
func apply(ctx context.Context, api *client.Client, job manifest.Job) (string, error) {
	before, err := api.Job(ctx, job.Name)
	if err != nil && !client.Is(err, problem.CodeNotFound) {
		return "", err
	}
	var after httpapi.Job
	status, err := api.Do(ctx, http.MethodPut, "/v1/jobs/"+url.PathEscape(job.Name), job.JSON, &after)
	switch {
	case err != nil:
		return "", err
	case status == http.StatusCreated:
		return "created", nil
	case after.Version == before.Version:
		return "unchanged", nil
	}
	return "updated", nil
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
