package overview

import (
	"math"
	"testing"

	"punctual/internal/pgtest"
	"punctual/store/pg"
)

func TestQuantilesAreWithinTenPercent(t *testing.T) {
	t.Parallel()
	open, err := pg.Open(t.Context(), pg.Config{URL: pgtest.DSN(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(open.Close)
	for _, seconds := range []float64{
		0.0011, 0.002, 0.00215, 0.0084, 0.026, 0.13, 0.99, 1, 1.01, 7.5, 61, 3599, 3601, 86_400, 1e6,
	} {
		var class int // as the database has it
		err := open.Callers.QueryRow(t.Context(), `SELECT `+classOf(`make_interval(secs => $1)`), seconds).Scan(&class)
		if err != nil {
			t.Fatal(err)
		}
		var h histogram
		h.add(class, 1)
		if got := h.quantile(0.99); got == nil || math.Abs(*got-seconds) > 0.1*seconds+0.0005 {
			t.Errorf("%g s is class %d, which is shown as %g s", seconds, class, *got)
		}
	}
	for of, want := range map[string]int{
		`interval '0'`: 0, `interval '-5 s'`: 0, `interval '0.4 ms'`: 0, `interval '100 years'`: classes - 1,
	} {
		var class *int
		if err := open.Callers.QueryRow(t.Context(), `SELECT `+classOf(of)).Scan(&class); err != nil || *class != want {
			t.Errorf("%s: class %d, want %d (%v)", of, *class, want, err)
		}
	}
	var class *int
	if err := open.Callers.QueryRow(t.Context(), `SELECT `+classOf(`NULL::interval`)).Scan(&class); err != nil ||
		class != nil {
		t.Errorf("no interval has the class %v (%v)", class, err)
	}
}

func TestHistogramsAddUp(t *testing.T) {
	t.Parallel()
	var none, fast, slow histogram
	if none.quantile(0.5) != nil || none.count() != 0 || none.array() != "{}" {
		t.Errorf("an empty histogram: %v, %d, %s", none.quantile(0.5), none.count(), none.array())
	}
	fast.add(4, 98)  // 2 ms
	slow.add(60, 2)  // half a minute and more
	slow.add(4, 100) // 2 ms
	fast.merge(slow)
	if p50, p99 := *fast.quantile(0.5), *fast.quantile(0.99); fast.count() != 200 || p50 != 0.00218 || p99 != 0.00218 {
		t.Errorf("of %d: p50 %g, p99 %g", fast.count(), p50, p99)
	}
	fast.add(60, 1) // three of 201 are slow
	if p99 := *fast.quantile(0.99); p99 != 35.7 {
		t.Errorf("p99 %g", p99)
	}
	if slow.array() != "{0,0,0,0,100,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"+
		"0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,2}" {
		t.Errorf("as an array: %s", slow.array())
	}
}
