package definitions

import (
	"fmt"
	"time"

	"punctual/scheduler/domain"
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

// CheckWindow returns a *WindowError if a missed slot that is older than the retention might still run.
func (d *Definitions) CheckWindow(def domain.Definition) error {
	if def.Missed.Window.Value() > d.retention {
		return &WindowError{Window: def.Missed.Window.String(), Retention: d.retention}
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

// CheckAge returns an *AgeError for a one-shot that is older than the retention. Its run would need the partition of a
// day that is gone, and a client could make the database create a partition for any day in the past.
func (d *Definitions) CheckAge(job *domain.Job, now time.Time) error {
	at := job.Schedule.At
	if job.Schedule.Kind() == domain.KindAt && now.Sub(job.Schedule.Instant()) > d.retention {
		return &AgeError{At: at.String(), Retention: d.retention}
	}
	return nil
}
