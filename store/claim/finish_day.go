package claim

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// Day is a day of runs, as in the names of their tables.
type Day string

// AnyDay stands for all days. It is also the day of runs of several days.
const AnyDay Day = ""

const dayForm = "20060102"

// DayOf returns the day of the runs that succeeded or were accepted, and of further ones, if they all have the same.
func DayOf(outcomes []domain.Outcome, further ...uuid.UUID) (common Day) {
	for _, o := range outcomes {
		if (o.Verdict == domain.Succeed || o.Verdict == domain.Await) && !common.take(o.RunID) {
			return AnyDay
		}
	}
	for _, run := range further {
		if !common.take(run) {
			return AnyDay
		}
	}
	return common
}

// dayOfRuns returns the day of runs, if they all have the same one.
func dayOfRuns(runs []uuid.UUID) Day { return DayOf(nil, runs...) }

// take makes d the day of a run, unless it is another day already.
func (d *Day) take(run uuid.UUID) bool {
	at := Day(domain.IDTime(run).Format(dayForm))
	if *d == AnyDay {
		*d = at
	}
	return *d == at
}

// Has reports whether instants are on the day.
func (d Day) Has(instants ...time.Time) bool {
	return !slices.ContainsFunc(instants, func(at time.Time) bool { return at.UTC().Format(dayForm) != string(d) })
}

// queueTable queues a statement with the table of the day in place of the first mention of runs. It is prepared and
// planned once: there is one table, so there is one choice of index. Among the tables of all days it must be planned
// with the ids at hand.
func (d Day) queueTable(b *pgx.Batch, sql string, args ...any) *pgx.QueuedQuery {
	if d == AnyDay {
		return b.Queue(sql, args...)
	}
	sql = strings.Replace(sql, "punctual.runs r", "punctual.runs_"+string(d)+" r", 1)
	return b.Queue(sql, pg.Prepared{}.With(args...)...)
}

// ofDay returns a statement for runs of the day, with the tables of the day. Among the tables of all days a statement
// must be planned with the ids at hand, which takes longer than its execution. In those of a day the plan lasts. There
// is nothing to prune, so what is looked up for one run is not sought by all ids ($1) again.
func (d Day) ofDay(sql string) string {
	of := func(table string) string { return "punctual." + table + "_" + string(d) }
	return strings.NewReplacer(
		"punctual.runs r", of("runs")+" r", "punctual.runs_of(ARRAY[e.run]) r", of("runs")+" r",
		"INTO punctual.runs", "INTO "+of("runs"), "punctual.run_data d", of("run_data")+" d",
		"INTO punctual.run_data", "INTO "+of("run_data"), " AND d.run_id = ANY($1::uuid[])", "",
		" AND a.run_id = ANY($1::uuid[])", "", " AND r.id = ANY($1::uuid[])", "", "punctual.attempts a", of("attempts")+" a",
		"ANY($1::uuid[])", "ANY((SELECT $1::uuid[])::uuid[])", "ANY($2::uuid[])", "ANY((SELECT $2::uuid[])::uuid[])",
	).Replace(sql)
}

// queue queues a statement about runs of the day.
func (d Day) queue(b *pgx.Batch, sql string, args ...any) *pgx.QueuedQuery {
	if d == AnyDay {
		return b.Queue(sql, args...)
	}
	return b.Queue(d.ofDay(sql), pg.Prepared{}.With(args...)...)
}
