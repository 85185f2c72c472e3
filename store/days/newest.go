package days

import (
	"fmt"
	"strings"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// Key is what an index of runs has before the id: columns, and the SQL expressions of their values. The runs of a job,
// the newest first, are those of a Key in its Order. A query must not say so in other words, because of a day on which
// few jobs have nearly all runs the planner expects many runs of each job. "job_id = … ORDER BY id DESC LIMIT 1" then
// reads the primary key backwards and finds nothing of a rare job in the whole day. A comparison of rows, and an order
// with the same columns, is served by no index but the right one.
type Key []Column

// InOrder makes Postgres read runs in the order of an index for the rest of a transaction. Of a day without statistics
// it expects few runs of each job, and would read and sort all that there are.
const InOrder = pg.ByIndex + `, set_config('enable_sort', 'off', true),
	set_config('enable_incremental_sort', 'off', true), set_config('enable_bitmapscan', 'off', true)`

// Column is a column of an index, and the SQL expression of its value.
type Column struct{ Name, Value string }

// Job is the key of the index on (job_id, id).
func Job(value string) Key { return Key{{"job_id", value}} }

// Of returns the SQL condition that the runs have a key, and are in the window.
func (w Window) Of(runs string, k Key) string {
	until, last := `<=`, uuid.Max
	if !w.Below.IsZero() {
		until, last = `<`, domain.FirstRunID(w.Below)
	}
	return fmt.Sprintf(`%s AND %s AND %s`,
		k.From(runs, fmt.Sprintf(`'%s'`, domain.FirstRunID(w.From))), k.compare(runs, until, fmt.Sprintf(`'%s'`, last)),
		w.On(runs+`.id`))
}

// From returns the SQL condition that runs have a key, or a higher one, and at least an id.
func (k Key) From(runs, id string) string { return k.compare(runs, `>=`, id) }

// After is From without the run that has this id.
func (k Key) After(runs, id string) string { return k.compare(runs, `>`, id) }

// To returns the SQL condition that runs have a key, or a lower one.
func (k Key) To(runs string) string { return k.compare(runs, `<=`, fmt.Sprintf(`'%s'`, uuid.Max)) }

// Below returns the SQL condition that runs have a key, or a lower one, and a lower id.
func (k Key) Below(runs, id string) string { return k.compare(runs, `<`, id) }

func (k Key) compare(runs, operator, id string) string {
	columns, values := make([]string, len(k)), make([]string, len(k))
	for i, c := range k {
		columns[i], values[i] = runs+`.`+c.Name, c.Value
	}
	return fmt.Sprintf(`(%s, %s.id) %s (%s, %s)`,
		strings.Join(columns, `, `), runs, operator, strings.Join(values, `, `), id)
}

// Order returns the order in which to read the runs of a key: NewestFirst or OldestFirst.
func (k Key) Order(runs, direction string) string {
	var b strings.Builder
	for _, c := range k {
		fmt.Fprintf(&b, `%s.%s %s, `, runs, c.Name, direction)
	}
	return fmt.Sprintf(` ORDER BY %s%s.id %s`, &b, runs, direction)
}

// The directions of an order.
const (
	NewestFirst = `DESC`
	OldestFirst = `ASC`
)
