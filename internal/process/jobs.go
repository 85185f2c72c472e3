package process

import (
	"context"
	"net/http"

	"punctual/httpapi/client"
)

// JobSpec is a job in the API's own words.
type JobSpec map[string]any

// Create creates jobs through the batch route, a thousand at a time.
func Create(ctx context.Context, api *client.Client, jobs []JobSpec) error {
	for len(jobs) > 0 {
		n := min(len(jobs), 1000)
		if _, err := api.Do(ctx, http.MethodPost, "/v1/jobs/batch", map[string]any{"jobs": jobs[:n]}, nil); err != nil {
			return err
		}
		jobs = jobs[n:]
	}
	return nil
}
