package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/history"
)

// Verify checks from the database that every slot was handled as promised.
type Verify struct {
	database
	standby
	zoneData
	masterKey
	From          string        `placeholder:"INSTANT" help:"First slot to look at, such as 2026-12-01T09:00:00Z. Default: 24 hours before the last one."`
	To            string        `placeholder:"INSTANT" help:"Last slot to look at. Default: now."`
	Job           string        `placeholder:"NAME|ID" help:"Only this job, deleted or not."`
	Tenant        string        `placeholder:"NAME" help:"Only this tenant's jobs."`
	Format        string        `default:"text" enum:"text,json" help:"Form of the report: text, or json, an object per line."`
	Grace         time.Duration `default:"1m" help:"How long a due slot may wait for its claim without being reported."`
	DefaultJitter time.Duration `default:"1s" help:"The replicas' --default-jitter."`
}

// Validate is called by the flag parser.
func (c *Verify) Validate() error { return errors.Join(c.database.Validate(), c.standby.Validate()) }

// Run compares a database's runs and skips with the slots of the jobs' definitions, and writes every difference. It
// exits with 0 when all is well, 1 when it found violations and 2 when it could not check.
func (c *Verify) Run(ctx context.Context, log *slog.Logger) error {
	violations, err := c.verify(ctx, log)
	if violations > 0 || err != nil {
		return naming(&verifyError{violations, err})
	}
	return nil
}

func (c *Verify) verify(ctx context.Context, log *slog.Logger) (violations int, err error) {
	if err := cmp.Or(
		within(c.Grace >= 0 && c.Grace <= 24*time.Hour, "--grace", c.Grace, "0s to 24h"),
		within(c.DefaultJitter >= 0 && c.DefaultJitter <= time.Hour, "--default-jitter", c.DefaultJitter, "0s to 1h"),
		c.use(log),
	); err != nil {
		return 0, err
	}
	from, to, err := window(c.From, c.To, time.Now())
	if err != nil {
		return 0, err
	}
	r := verifyReport{json: c.Format == "json"}
	if terminal, err := os.Stderr.Stat(); err == nil && terminal.Mode()&os.ModeCharDevice != 0 {
		r.terminal = os.Stderr
	}
	master, err := c.ifGiven()
	if err != nil {
		return 0, err
	}
	options := c.beside(c.on(store.Options{DefaultJitter: c.DefaultJitter, MaxConns: 2, Log: log, Master: master}))
	err = onDatabase(ctx, options, func(db *store.Store) error {
		summary, err := db.History.Verify(ctx, history.VerifyOptions{
			From: from, To: to, Tenant: c.Tenant, Job: c.Job, Grace: max(c.Grace, 1), Report: r.violation,
			Progress: r.progress,
		})
		r.clear()
		if err != nil {
			return err
		}
		violations = summary.Violations
		return r.summary(summary)
	})
	return violations, err
}

// verifyError is the reason why `punctual verify` does not exit with 0.
type verifyError struct {
	Violations int   // how many were found
	Err        error // or why the check could not run
}

func (e *verifyError) Error() string {
	switch {
	case e.Err != nil:
		return "verify: " + e.Err.Error()
	case e.Violations == 1:
		return "verify: 1 violation"
	}
	return fmt.Sprintf("verify: %d violations", e.Violations)
}

func (e *verifyError) Unwrap() error { return e.Err }

// ExitCode returns 1 for violations and 2 if the check could not run.
func (e *verifyError) ExitCode() int {
	if e.Err != nil {
		return 2
	}
	return 1
}

// defaultWindow is the length of the window if --from does not set another.
const defaultWindow = 24 * time.Hour

// window parses the bounds. now is this machine's time. It matters only where a bound is missing, and the store cuts
// the window off at the database's time.
func window(from, to string, now time.Time) (first, last time.Time, err error) {
	last = now
	if to != "" {
		if last, err = bound("--to", to); err != nil {
			return first, last, err
		}
	}
	first = last.Add(-defaultWindow)
	if from != "" {
		if first, err = bound("--from", from); err != nil {
			return first, last, err
		}
	}
	if !first.Before(last) {
		return first, last, fmt.Errorf("--from %s is not before --to %s", first.Format(time.RFC3339),
			last.Format(time.RFC3339))
	}
	return first, last, nil
}

func bound(flag, text string) (time.Time, error) {
	t, err := jobspec.ParseInstant(text)
	if err != nil {
		return t, fmt.Errorf("%s: %q %w", flag, text, err)
	}
	return t, nil
}
