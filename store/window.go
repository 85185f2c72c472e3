package store

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
)

// WindowError says that a job's missed.window reaches further back than runs are kept.
type WindowError struct {
	Window    string        // as written
	Retention time.Duration // the longest window allowed
}

func (e *WindowError) Error() string {
	return fmt.Sprintf("missed.window: %q reaches further back than runs are kept: at most %s (--retention)",
		e.Window, e.Retention)
}

// checkWindow returns a *WindowError if a missed slot that is older than the retention might still run.
func (s *Store) checkWindow(d scheduler.Definition) error {
	if d.Missed.Window.Value() > s.options.Retention {
		return &WindowError{Window: d.Missed.Window.String(), Retention: s.options.Retention}
	}
	return nil
}

// AgeError says that the instant of a one-shot is further back than runs are kept.
type AgeError struct {
	At        string        // as written
	Retention time.Duration // how far back it may be at most
}

func (e *AgeError) Error() string {
	return fmt.Sprintf("schedule.at: %q is further back than runs are kept: %s (--retention)", e.At, e.Retention)
}

// checkAge returns an *AgeError for a one-shot that is older than the retention. Its run would need the partition of a
// day that is gone, and a client could make the database create a partition for any day in the past.
func (s *Store) checkAge(job *scheduler.Job, now time.Time) error {
	at := job.Schedule.At
	if job.Schedule.Kind() == scheduler.KindAt && now.Sub(at.Value()) > s.options.Retention {
		return &AgeError{At: at.String(), Retention: s.options.Retention}
	}
	return nil
}

// compileJob compiles a definition for this deployment. A window that was written when runs were kept for longer is cut
// to the retention: an older slot can only become a skip. One-shots are never dropped, however old.
func (s *Store) compileJob(id uuid.UUID, tenant, version int32, d scheduler.Definition) (*scheduler.Job, error) {
	job, err := scheduler.Compile(id, tenant, version, d, s.options.DefaultJitter)
	if err == nil && job.Schedule.Kind().Recurring() && job.Missed.Window.Value() > s.options.Retention {
		job.Missed.Window = scheduler.DurationOf(s.options.Retention)
	}
	return job, err
}
