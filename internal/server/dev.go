package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/httpapi/client"
	"punctual/internal/privatepg"
	"punctual/migrations"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/vault"
)

// DevConfig says how `punctual dev` runs.
type DevConfig struct {
	Config
	Dir    string // data directory of the private Postgres
	Binary string // path of this program, for the commands that are printed
	Sample []byte // body of POST /v1/jobs/batch that creates the sample jobs
	Out    io.Writer
}

// sampleTarget is the address of the echo target in the sample jobs.
const sampleTarget = "http://127.0.0.1:8080"

// RunDev starts a private Postgres, a replica on it and a built-in echo target, creates the sample jobs and prints
// every run as it arrives, until ctx ends.
func RunDev(ctx context.Context, c DevConfig) error {
	pg, err := privatepg.Start(ctx, privatepg.Config{Dir: c.Dir})
	if err != nil {
		return err
	}
	defer func() { _ = pg.Stop() }()
	database, err := devDatabase(ctx, pg, c.Log)
	if err != nil {
		return fmt.Errorf("making the database: %w", err)
	}
	c.Store.DatabaseURL, c.Migrate, c.NoAuth = pg.DSN(database), true, true
	// The database is private: it may be copied, moved and created again.
	c.Store.Adopt = true
	// Sample jobs call the user's own machine and office.
	c.AllowTargets = slices.Concat(c.AllowTargets, guard.Loopback, guard.Private)
	// The echo target is served beside the API.
	c.OnlyLocal, c.CallsItself = true, true
	if c.Store.Master, err = devMaster(c.Dir); err != nil {
		return err
	}
	c.Wrap = withEcho
	c.Finished = func(outcomes []domain.Outcome) { printRuns(c.Out, outcomes) }
	c.Ready = func(url string) {
		registered, err := registerSample(ctx, url, c.Sample)
		if err != nil {
			c.Log.Error("the sample jobs could not be registered", "error", err)
		}
		banner(c, url, registered)
	}
	return Run(ctx, c.Config)
}

// devDatabase returns the name of the database, and creates it at the first start. Each edition of the schema has a
// database of its own: see migrations.Edition.
func devDatabase(ctx context.Context, server *privatepg.Server, log *slog.Logger) (string, error) {
	name := "punctual_" + migrations.Edition()
	conn, err := pgx.Connect(ctx, server.DSN("postgres"))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	var there bool
	var earlier []string
	if err := conn.QueryRow(ctx, `
		SELECT coalesce(bool_or(datname = $1), false), array_agg(datname::text ORDER BY datname)
		FROM pg_catalog.pg_database
		WHERE datname LIKE 'punctual\_%' OR datname = 'postgres' AND to_regnamespace('punctual') IS NOT NULL`, name).
		Scan(&there, &earlier); err != nil || there {
		return name, err
	}
	if len(earlier) > 0 {
		log.Info("the schema is of another version than before: the jobs of before are in another database, which stays",
			"database", name, "before", strings.Join(earlier, ", "))
	}
	_, err = conn.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{name}.Sanitize())
	return name, err
}

// masterKeyFile is the name of the file with the master key in a directory of `punctual dev`.
const masterKeyFile = "master.key"

// devMaster returns the master key in a directory of `punctual dev`. The first start creates the key.
func devMaster(dir string) (*vault.Master, error) {
	path := filepath.Join(dir, masterKeyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text = []byte(vault.NewMasterKey() + "\n")
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("--dir: the master key: %w", err)
	}
	master, err := vault.ParseMaster(string(text))
	if err != nil {
		return nil, fmt.Errorf("--dir: %s: %w", path, err)
	}
	return master, nil
}

func banner(c DevConfig, url string, jobs []string) {
	w := tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nPunctual is running.\n\n")
	if !c.NoDashboard {
		fmt.Fprintf(w, "  Pages\t%s/\n", url)
	}
	fmt.Fprintf(w, "  API\t%s/v1/jobs\n  Docs\t%s/docs\n  Metrics\t%s/metrics\n", url, url, url)
	fmt.Fprintf(w, "  psql\tpsql '%s'\n  Data\t%s\n  Jobs\t%s\n\n", c.Store.DatabaseURL, c.Dir, strings.Join(jobs, ", "))
	_ = w.Flush()
	fmt.Fprintf(c.Out, next, url, time.Now().UTC().Truncate(5*time.Second).Add(5*time.Second).Format(time.RFC3339),
		c.Binary, c.Store.DatabaseURL, filepath.Join(c.Dir, masterKeyFile))
	fmt.Fprintf(c.Out, "Runs, as they arrive (Ctrl-C stops everything):\n\n")
}

// next are commands to go on with: the URL of the API, a slot of a sample job, the binary, the database and its master
// key.
const next = `What to look at next, in another terminal:

  Did it run? Ask about any instant:
    curl -s '%[1]s/v1/jobs/hello-every-5s/explain?at=%[2]s'
  A job of your own:
    curl -s %[1]s/v1/jobs -H 'content-type: application/json' \
      -d '{"name": "first", "schedule": {"every": "10s"}, "target": {"url": "%[1]s/echo"}}'
  Proof that no slot was lost, from the database alone:
    %[3]s verify --database-url '%[4]s'
  A second replica. Kill it: the first one takes over (docs/quickstart.md):
    %[3]s serve --database-url '%[4]s' --master-key-file '%[5]s' \
      --auth none --listen 127.0.0.1:8081 --allow-targets 127.0.0.0/8

`

// registerSample creates the sample jobs through the API, as a user would. Jobs that exist stay as they are, except
// that their target becomes the present address of the echo target.
func registerSample(ctx context.Context, url string, sample []byte) (names []string, err error) {
	body := bytes.ReplaceAll(sample, []byte(sampleTarget), []byte(url))
	var batch struct {
		Jobs []jobspec.Definition `json:"jobs"`
	}
	if err := json.Unmarshal(body, &batch); err != nil {
		return nil, err
	}
	api := client.New(url)
	if _, err := api.Do(ctx, http.MethodPost, "/v1/jobs/batch", json.RawMessage(body), nil); err != nil {
		return nil, err
	}
	for _, job := range batch.Jobs {
		target := map[string]any{"target": map[string]string{"url": job.Target.URL}}
		if _, err := client.PatchJob.Do(ctx, api, target, job.Name); err != nil {
			return nil, err
		}
		names = append(names, job.Name)
	}
	return names, nil
}

// printRuns prints one line for each attempt that ended.
func printRuns(out io.Writer, outcomes []domain.Outcome) {
	for _, o := range outcomes {
		end := o.End()
		if o.Verdict == domain.Await {
			end.Status = "accepted"
		}
		line := fmt.Sprintf("%s  %-9s %-24s attempt %d", o.FinishedAt.Local().Format(time.TimeOnly), end.Status, o.Job.Name,
			o.Attempt)
		if !o.StartedAt.IsZero() {
			line += fmt.Sprintf("  sent %s after due, took %s", round(o.StartedAt.Sub(o.DueAt)),
				round(o.FinishedAt.Sub(o.StartedAt)))
		}
		if o.Error != "" {
			line += "  " + o.Error
		}
		_, _ = io.WriteString(out, line+"\n") // in one write, because others write too
	}
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
