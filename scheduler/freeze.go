package scheduler

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"punctual/scheduler/admit"
)

// FreezeReason is why a deployment is frozen. The list is closed.
type FreezeReason string

// The reasons for a freeze.
const (
	FrozenAsked FreezeReason = "asked" // somebody froze it
	// FrozenRestored means that a replica found the database to be a copy of another one, from which runs were last
	// dispatched.
	FrozenRestored FreezeReason = "restored"
)

// Freeze says since when, and why, nothing is claimed: of all tenants, or of one.
type Freeze struct {
	Since  time.Time
	By     string // for people
	Note   string
	Reason FreezeReason
}

// String describes the freeze in words, without saying whose it is.
func (f Freeze) String() string {
	return "frozen since " + f.Since.UTC().Format(time.RFC3339) + " by " + f.By + f.noted()
}

// Explain tells a tenant why due work waits. It does not name the operator who froze the deployment: tenants must not
// know.
func (f Freeze) Explain(whose string) string {
	return fmt.Sprintf("the %s has been frozen since %s%s, and nothing is sent until it is unfrozen",
		whose, f.Since.UTC().Format(time.RFC3339), f.noted())
}

// noted is the note in brackets; empty if there is none.
func (f Freeze) noted() string {
	if f.Note == "" {
		return ""
	}
	return " (" + f.Note + ")"
}

// remindEvery is how often the log repeats that something is frozen.
const remindEvery = 5 * time.Minute

// freezing is what this replica's heartbeats say of freezes, and what it has logged of them. Each claim checks for
// itself, and each look of the tick loop.
type freezing struct {
	log *slog.Logger

	mu      sync.Mutex
	now     *Freeze          // the freeze of the deployment, as far as it is known
	tenants map[int32]string // names of frozen tenants, by id
	told    time.Time        // when the log last mentioned it
}

// on reports whether the deployment is frozen.
func (f *freezing) on() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now != nil
}

// heed takes the freezes that a heartbeat reports, and logs changes.
func (f *freezing) heed(now *Freeze, limits []admit.TenantLimits) {
	tenants := map[int32]string{}
	for _, l := range limits {
		if l.Frozen {
			tenants[l.Tenant] = l.Name
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := (f.now == nil) != (now == nil) || now != nil && *f.now != *now
	others := !maps.Equal(f.tenants, tenants)
	if !changed && !others && (now == nil && len(tenants) == 0 || time.Since(f.told) < remindEvery) {
		return
	}
	switch {
	case now != nil && (changed || !others):
		f.log.Warn("the deployment is frozen: nothing is claimed. "+now.goOn(),
			"since", now.Since, "by", now.By, "note", now.Note, "reason", now.Reason)
	case changed:
		f.log.Info("the deployment is no longer frozen: due work is claimed again")
	}
	switch {
	case len(tenants) > 0 && (others || !changed):
		f.log.Warn("tenants are frozen: none of their work is claimed. `punctual unfreeze --tenant` ends it",
			"tenants", some(tenants))
	case others:
		f.log.Info("no tenant is frozen now")
	}
	f.now, f.tenants, f.told = now, tenants, time.Now()
}

// goOn says how to end the freeze.
func (f Freeze) goOn() string {
	if f.Reason == FrozenRestored {
		return "Runs were last dispatched from another database, so this one may be a restored dump; " +
			"to dispatch its jobs from here, run `punctual unfreeze`, or start a replica with --adopt-database"
	}
	return "`punctual unfreeze` ends it"
}

// some names a few of the tenants.
func some(tenants map[int32]string) string {
	names := slices.Sorted(maps.Values(tenants))
	if more := len(names) - 10; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:10], ", "), more)
	}
	return strings.Join(names, ", ")
}
