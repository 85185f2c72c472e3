package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"punctual/scheduler"
	"punctual/store/pg"
)

// lasting are the classes of SQLSTATEs that say that a path to the database is broken. Locks, timeouts, conflicts and a
// lack of resources pass by themselves and meet all replicas, and other classes are about the data of single rows: for
// those, no load balancer should take a replica out.
var lasting = []string{
	"0A", // feature not supported: a library of another version
	"28", // invalid authorization
	"3D", // no such database
	"3F", // no such schema
	"42", // access rule violation: a permission, a table or a function is missing
	"58", // system error: a file or a library cannot be read
	"F0", // configuration file error
	"XX", // internal error: a library does not fit, data is corrupted
}

// sound returns an error while the replica cannot do its work: it is not registered yet, its heartbeats fail for any
// reason, so others take over its runs, or its claims fail in a way that does not pass. Nothing follows from a single
// failure.
func sound(vitals *scheduler.Vitals) func(context.Context) error {
	return func(context.Context) error {
		if !vitals.Begun() {
			return errStarting
		}
		for _, path := range []scheduler.Path{scheduler.PathHeartbeats, scheduler.PathClaims} {
			f, is := vitals.Failing(path, time.Now())
			code := pg.Code(f.Err)
			passes := len(code) < 2 || !slices.Contains(lasting, code[:2])
			if !is || path == scheduler.PathClaims && passes {
				continue
			}
			return ailing(path, f.Since, code, pg.Unloadable(f.Err))
		}
		return nil
	}
}

var errStarting = errors.New("the replica is starting: its queues are not registered yet")

// claimsSince returns when a replica whose claims and heartbeats succeed last looked for due work; the zero time: they
// fail, or it has not looked. A look may succeed where a claim fails.
func claimsSince(metrics *scheduler.Metrics, vitals *scheduler.Vitals) func() time.Time {
	return func() time.Time {
		if sound(vitals)(context.Background()) != nil {
			return time.Time{}
		}
		return metrics.LookedAt()
	}
}

// ailing says what fails without the database's own words, which are for operators only.
func ailing(path scheduler.Path, since time.Time, code string, unloadable bool) error {
	why := ""
	if code != "" {
		why = " with SQLSTATE " + code
	}
	if unloadable {
		why += ": " + pg.Upgraded
	}
	return fmt.Errorf("%s have failed since %s%s; the log of this replica says more",
		path, since.UTC().Format(time.RFC3339), why)
}

// both returns the first error of two conditions.
func both(one, other func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := one(ctx); err != nil {
			return err
		}
		return other(ctx)
	}
}
