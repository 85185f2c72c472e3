package days

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

// Common returns the day of runs, if they all have the same one.
func Common(runs ...uuid.UUID) (common Day) {
	for _, run := range runs {
		day := Day(domain.IDTime(run).Format(dayForm))
		if common != AnyDay && common != day {
			return AnyDay
		}
		common = day
	}
	return common
}

// Has reports whether instants are on the day.
func (d Day) Has(instants ...time.Time) bool {
	return !slices.ContainsFunc(instants, func(at time.Time) bool { return at.UTC().Format(dayForm) != string(d) })
}

// Of returns a statement about runs with the tables of the day in its placeholders. {runs}, {run_data} and {attempts}
// are the tables, and {runs of e.run} is where to look for that run. {ids} and {others} are ANY of the ids in the first
// and in the second argument.
//
// Among the tables of all days a statement must be planned with the ids at hand, which takes longer than its execution.
// So that the plan looks at few of them, {prune a} adds that the runs of what is joined as a are among {ids}, too. With
// the tables of one day there is nothing to prune, and the plan lasts.
func (d Day) Of(sql string) string {
	if d == AnyDay {
		return onAnyDay.Replace(sql)
	}
	return tables("_"+string(d),
		"{runs of e.run}", "punctual.runs_"+string(d),
		"{ids}", "ANY((SELECT $1::uuid[])::uuid[])", "{others}", "ANY((SELECT $2::uuid[])::uuid[])",
		"{prune r}", "", "{prune d}", "", "{prune a}", "").Replace(sql)
}

var onAnyDay = tables("",
	"{runs of e.run}", "punctual.runs_of(ARRAY[e.run])",
	"{ids}", "ANY($1::uuid[])", "{others}", "ANY($2::uuid[])",
	"{prune r}", " AND r.id = ANY($1::uuid[])",
	"{prune d}", " AND d.run_id = ANY($1::uuid[])",
	"{prune a}", " AND a.run_id = ANY($1::uuid[])")

// tables replaces the placeholders of tables, whose names end the same, and others.
func tables(end string, others ...string) *strings.Replacer {
	return strings.NewReplacer(append([]string{
		"{runs}", "punctual.runs" + end, "{run_data}", "punctual.run_data" + end, "{attempts}", "punctual.attempts" + end,
	}, others...)...)
}

// Queue queues a statement about runs of the day. With the tables of one day it is prepared and planned once.
func (d Day) Queue(b *pgx.Batch, sql string, args ...any) *pgx.QueuedQuery {
	if d != AnyDay {
		args = pg.Prepared{}.With(args...)
	}
	return b.Queue(d.Of(sql), args...)
}
