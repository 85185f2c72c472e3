package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"punctual/httpapi/client"
)

// Replica is a running `punctual serve` or `punctual dev`.
type Replica struct {
	*Process
	API *client.Client
}

// CallLoopback is an environment setting that lets a replica's jobs call loopback, where the targets of tests and
// benchmarks are. A binary without this setting ignores it.
const CallLoopback = "PUNCTUAL_ALLOW_TARGETS=127.0.0.0/8,::1/128"

// Serve starts a replica on a database and a free port, and returns when it is ready. The replica has no authentication
// unless a flag --auth sets one, and its jobs may call loopback. Callers may pass further flags, such as
// "--drain-timeout=2s". ctx bounds the start.
func Serve(ctx context.Context, binary, dsn string, flags ...string) (*Replica, error) {
	return ServeWith(ctx, binary, dsn, nil, flags...)
}

// ServeWith is Serve with further variables of the environment.
func ServeWith(ctx context.Context, binary, dsn string, env []string, flags ...string) (*Replica, error) {
	args := append([]string{"serve", "--log-format=json", "--listen=127.0.0.1:0", "--auth=none"}, flags...)
	return Start(ctx, binary, append([]string{"DATABASE_URL=" + dsn, CallLoopback}, env...), args)
}

// Dev starts `punctual dev` in a directory, on a free port, and returns when it is ready.
func Dev(ctx context.Context, binary, dir string, flags ...string) (*Replica, error) {
	return Start(ctx, binary, nil,
		append([]string{"dev", "--log-format=json", "--listen=127.0.0.1:0", "--dir=" + dir}, flags...))
}

// Start starts a replica with the given environment and arguments, and returns when it is ready. The arguments must
// make it log as JSON.
func Start(ctx context.Context, binary string, env, args []string) (*Replica, error) {
	p, err := Launch(binary, env, args...)
	if err != nil {
		return nil, err
	}
	r := &Replica{Process: p}
	if err := r.awaitReady(ctx); err != nil {
		p.Kill()
		return nil, fmt.Errorf("%w; it said:\n%s", err, p.Output())
	}
	return r, nil
}

// awaitReady waits until the log names the address, and until /readyz answers 200 there.
func (r *Replica) awaitReady(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if r.API == nil {
			if url := apiURL(r.Output()); url != "" {
				r.API = client.New(url)
			}
		} else if status, err := r.API.Do(ctx, http.MethodGet, "/readyz", nil, nil); err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-r.Done():
			return errors.New("the replica ended instead of becoming ready")
		case <-ctx.Done():
			return fmt.Errorf("the replica did not become ready: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// apiURL finds the address of the API in a JSON log; empty if the log does not name it yet.
func apiURL(log string) string {
	for line := range strings.Lines(log) {
		var entry struct{ Msg, URL string }
		if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &entry) == nil && entry.URL != "" {
			return entry.URL
		}
	}
	return ""
}

// JobSpec is a job in the API's own words.
type JobSpec map[string]any

// Create creates jobs through the batch route, a thousand at a time.
func Create(ctx context.Context, api *client.Client, jobs []JobSpec) error {
	for some := range slices.Chunk(jobs, 1000) {
		if _, err := api.Do(ctx, http.MethodPost, "/v1/jobs/batch", map[string]any{"jobs": some}, nil); err != nil {
			return err
		}
	}
	return nil
}
