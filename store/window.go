package store

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
)

// WindowError is a job whose missed.window reaches further back than runs are kept.
type WindowError struct {
	Window    string        // as written
	Retention time.Duration // the most it may be
}

func (e *WindowError) Error() string {
	return fmt.Sprintf("missed.window: %q reaches further back than runs are kept: at most %s (--retention)", e.Window, e.Retention)
}

// checkWindow returns a *WindowError when a missed slot might run that is older than the retention.
func (s *Store) checkWindow(d scheduler.Definition) error {
	if d.Missed.Window.Value() > s.options.Retention {
		return &WindowError{Window: d.Missed.Window.String(), Retention: s.options.Retention}
	}
	return nil
}

// compileJob makes a definition ready to use on this deployment. A window that was written when runs were
// kept for longer ends with the retention: what is older can only become a skip. One-shots are never
// dropped, however old.
func (s *Store) compileJob(id uuid.UUID, tenant, version int32, d scheduler.Definition) (*scheduler.Job, error) {
	job, err := scheduler.Compile(id, tenant, version, d, s.options.DefaultJitter)
	if err == nil && job.Schedule.Kind().Recurring() && job.Missed.Window.Value() > s.options.Retention {
		job.Missed.Window = scheduler.DurationOf(s.options.Retention)
	}
	return job, err
}
