package days

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// A statement that reads runs locks the partitions that its plan names, with all their indexes: ten locks a day. All
// sessions of a cluster share a table with room for some thousand locks. So a search through the history looks at a few
// days at a time, each time in a transaction of its own, however many days are kept.
const (
	recentDays = 2 // of the first window, not counting the days to come, which have partitions already
	mostDays   = 8 // of a later window
)

// Window is a range of days of runs, in UTC.
type Window struct {
	From  time.Time // beginning of the first day
	Below time.Time // end of the last day; zero: there is no end
	lasts bool      // all day long: plans of queries for it may last
}

// Recent returns the window in which a search for the newest runs begins, by this machine's clock. If that is wrong,
// the search looks at more windows, or at a larger one, and finds the same.
func Recent() Window { return Window{From: dayOf(time.Now()).AddDate(0, 0, 1-recentDays), lasts: true} }

// Near is Recent up to the end of tomorrow, so that a plan does not name the seven days to come, which have partitions
// and no runs: that took half of the time of the query for a job's last run. Whoever uses it asks whether the window is
// Over by the database's clock.
func Near() Window {
	w := Recent()
	w.Below = w.From.AddDate(0, 0, recentDays+1)
	return w
}

// Over reports whether there may be runs that are newer than the window, at an instant of the database's clock.
func (w Window) Over(now time.Time) bool { return !w.Below.IsZero() && !now.Before(w.Below) }

// On returns the SQL condition that an id is in the window. It spells the bounds out, so that even a lasting plan names
// only the window's days.
func (w Window) On(id string) string {
	condition := fmt.Sprintf("%s >= '%s'", id, domain.FirstRunID(w.From))
	if !w.Below.IsZero() {
		condition += fmt.Sprintf(" AND %s < '%s'", id, domain.FirstRunID(w.Below))
	}
	return condition
}

// Queue queues a query that is bounded by On. The newest window stays the same all day, so there the plan may last.
func (w Window) Queue(b *pgx.Batch, sql string, args ...any) *pgx.QueuedQuery {
	if w.lasts {
		args = pg.Prepared{}.With(args...)
	}
	return b.Queue(sql, args...)
}

// Index is an index of runs. A search passes over the days in which its index has no entries.
type Index string

// The indexes. All has every run. MadeLater has skips, replays, reruns and the runs of backfills.
const (
	All       Index = "runs_pkey"
	ByReason  Index = "runs_by_reason"
	ByTrigger Index = "runs_by_trigger"
	ByCause   Index = "runs_by_cause"
	Late      Index = "runs_late"
	MadeLater Index = "runs_made_later"
)

// Search says where to look for runs.
type Search struct {
	Index
	Since time.Time // runs with ids of earlier days are not looked for; zero: there is no bound
	Until time.Time // nor of later days; zero: likewise
	Most  int       // days with entries that Back looks through, not counting its first window; 0: all
}

// Narrow leaves out days before an instant and after another one. A zero instant leaves out none.
func (s *Search) Narrow(since, until time.Time) {
	if since.After(s.Since) {
		s.Since = since
	}
	if !until.IsZero() && (s.Until.IsZero() || until.Before(s.Until)) {
		s.Until = until
	}
}

// Look looks at a window of days. It reports whether the search is over.
type Look func(ctx context.Context, q pg.Querier, w Window) (enough bool, err error)

// Back looks through the days, the newest first, until look has enough. left is where the days end that it has not
// looked at, because it had looked at the most; zero: none are left.
func (s Search) Back(ctx context.Context, q pg.Querier, look Look) (left time.Time, err error) {
	w := Recent()
	if !s.Until.IsZero() && s.Until.Before(w.From) {
		end := dayOf(s.Until).AddDate(0, 0, 1)
		w = Window{From: end.AddDate(0, 0, -recentDays), Below: end}
	}
	if enough, err := look(ctx, q, w); err != nil || enough {
		return time.Time{}, err
	}
	return s.Earlier(ctx, q, w, look)
}

// Earlier is Back for the days before a window that was looked at already.
func (s Search) Earlier(ctx context.Context, q pg.Querier, than Window, look Look) (left time.Time, err error) {
	if !s.Since.Before(than.From) {
		return time.Time{}, nil
	}
	s.Until = than.From.Add(-1)
	found, err := s.days(ctx, q, "DESC")
	for size, n := recentDays, 0; err == nil && len(found) > 0; {
		if s.Most > 0 && n >= s.Most {
			return found[0].AddDate(0, 0, 1), nil
		}
		size = min(2*size, mostDays)
		end := found[0].AddDate(0, 0, 1)
		w := Window{From: end.AddDate(0, 0, -size), Below: end}
		var enough bool
		if enough, err = apart(ctx, q, w, look); enough {
			break
		}
		for len(found) > 0 && !found[0].Before(w.From) {
			found, n = found[1:], n+1
		}
	}
	return time.Time{}, err
}

// Forth looks through the days, the oldest first, until look has enough.
func (s Search) Forth(ctx context.Context, q pg.Querier, look Look) error {
	found, err := s.days(ctx, q, "ASC")
	for err == nil && len(found) > 0 {
		w := Window{From: found[0], Below: found[0].AddDate(0, 0, mostDays)}
		var enough bool
		if enough, err = apart(ctx, q, w, look); enough {
			break
		}
		for len(found) > 0 && found[0].Before(w.Below) {
			found = found[1:]
		}
	}
	return err
}

// selectDays finds the days in which an index has entries. An empty B-tree is one page, and Postgres gives none back.
const selectDays = `
SELECT d.day FROM (
    SELECT to_date(substring(c.relname FROM '\d{8}'), 'YYYYMMDD') AS day, i.inhrelid
      FROM pg_catalog.pg_inherits i
      JOIN pg_catalog.pg_index x ON x.indexrelid = i.inhrelid
      JOIN pg_catalog.pg_class c ON c.oid = x.indrelid
     WHERE i.inhparent = ('punctual.' || $1::text)::regclass) d
WHERE CASE WHEN d.day BETWEEN $2::text::date AND $3::text::date
           THEN pg_relation_size(d.inhrelid) > current_setting('block_size')::bigint END
ORDER BY d.day `

func (s Search) days(ctx context.Context, q pg.Querier, order string) ([]time.Time, error) {
	until := "infinity"
	if !s.Until.IsZero() {
		until = dateOf(s.Until)
	}
	found, err := pg.All(ctx, q, pgx.RowTo[time.Time], selectDays+order, pg.Prepared{},
		string(s.Index), dateOf(s.Since), until)
	return found, pg.Wrap("looking for days with runs", err)
}

// apart looks at a window in a transaction of its own. In a transaction that is under way it does so in a part that is
// then undone, which gives back the locks.
func apart(ctx context.Context, q pg.Querier, w Window, look Look) (enough bool, err error) {
	tx, is := q.(pgx.Tx)
	if !is {
		return look(ctx, q, w)
	}
	part, err := tx.Begin(ctx)
	if err != nil {
		return false, fmt.Errorf("beginning a part of a transaction: %w", err)
	}
	enough, err = look(ctx, part, w)
	if undo := part.Rollback(ctx); err == nil {
		err = pg.Wrap("undoing a part of a transaction", undo)
	}
	return enough, err
}

// dateOf is the day of an instant, as Postgres reads it. Ids begin in 1970, and Postgres knows no year 0.
func dateOf(at time.Time) string {
	if epoch := time.Unix(0, 0); at.Before(epoch) {
		at = epoch
	}
	return at.UTC().Format(time.DateOnly)
}

func dayOf(at time.Time) time.Time { return at.UTC().Truncate(24 * time.Hour) }
