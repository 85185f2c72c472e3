package days

import "sync/atomic"

// Text is a query that depends on a window. It is written anew when the window is another one, which for Recent and
// Near is once a day: to write it took a tenth of the time of a read of a job.
type Text struct {
	Write func(Window) string
	last  atomic.Pointer[written]
}

type written struct {
	of  Window
	sql string
}

// In returns the query for a window.
func (t *Text) In(w Window) string {
	if last := t.last.Load(); last != nil && last.of == w {
		return last.sql
	}
	sql := t.Write(w)
	t.last.Store(&written{w, sql})
	return sql
}
