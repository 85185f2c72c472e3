// Package notices tells people what happens to jobs. It owns the tables notices (events that are to be told),
// notified (the health of each job that has recipients), and notice_lines, notice_subjects and notice_messages (the
// recipients, what they are yet to be told, and what they took).
//
// Events are written in the transaction that writes what happened: events.go. The chore of notify.go collects them for
// each job and adds them to the lines of recipients: lines.go. Any replica takes the message for a line, sends it and
// writes the answer: send.go and answer.go; plan.go decides what it says of jobs, causes.go and causes_overlap.go what
// it says of their causes. ends.go ends what nobody else will. list.go lists messages. stale.go finds jobs that have
// not succeeded for too long, and overlapping.go jobs most of whose slots are skipped. defaults.go knows the recipients
// of tenants. approvals.go tells of steps that wait for approval, each on its own (approval_notices).
// lifecycle.go tells of the starts and successes of runs, in batches (lifecycle_events, lifecycle_lines).
package notices

import (
	"log/slog"

	"punctual/store/aside"
	"punctual/store/definitions"
	"punctual/store/pg"
)

// Options says how people are told.
type Options struct {
	Log *slog.Logger

	// PublicURL is where people reach the API, without a trailing slash. Notices link to it. Empty: they have no links.
	PublicURL string
	Labels    []string // of jobs: those that notices carry
	Pages     bool     // the links lead to the pages there, and not to the API
}

// Teller tells recipients. Safe for concurrent use.
type Teller struct {
	db          *pg.DB
	definitions *definitions.Definitions
	aside       *aside.Aside
	options     Options
}

// NewTeller returns a Teller for a database.
func NewTeller(db *pg.DB, d *definitions.Definitions, a *aside.Aside, o Options) *Teller {
	return &Teller{db: db, definitions: d, aside: a, options: o}
}

// labels returns those of a job's labels that notices carry.
func (s *Teller) labels(all map[string]string) map[string]string {
	kept := map[string]string{}
	for _, name := range s.options.Labels {
		if value := all[name]; value != "" {
			kept[name] = value
		}
	}
	return kept
}
