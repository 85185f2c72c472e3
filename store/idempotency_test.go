package store

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"punctual/store/jobs"
)

func TestIdempotent(t *testing.T) {
	key := Idempotency{Key: "k", Hash: [32]byte{1}}
	creating := func(c crud, name string) func(Writer) (Answer, error) {
		return func(w Writer) (Answer, error) {
			job, err := w.CreateJob(c.t.Context(), jobs.NewJob{Definition: definition(name)})
			if err != nil {
				return Answer{}, err
			}
			return Answer{Status: 201, Body: fmt.Appendf(nil, `{"id": %q}`, job.ID)}, nil
		}
	}
	t.Run("the same request writes once, also at the same moment", func(t *testing.T) {
		c := newCRUD(t)
		var wg sync.WaitGroup
		var fresh atomic.Int32
		answers := make([]string, 6)
		for i := range answers {
			wg.Go(func() {
				a, replayed, err := c.Idempotent(t.Context(), c.tenant, key, creating(c, "a"))
				if err != nil {
					t.Error(err)
				}
				if !replayed {
					fresh.Add(1)
				}
				answers[i] = fmt.Sprintf("%d %s", a.Status, a.Body)
			})
		}
		wg.Wait()
		if fresh.Load() != 1 {
			t.Errorf("%d wrote", fresh.Load())
		}
		for _, a := range answers {
			if a != answers[0] {
				t.Errorf("answers %q and %q", a, answers[0])
			}
		}
	})
	t.Run("another request with the key is refused", func(t *testing.T) {
		c := newCRUD(t)
		if _, _, err := c.Idempotent(t.Context(), c.tenant, key, creating(c, "a")); err != nil {
			t.Fatal(err)
		}
		_, _, err := c.Idempotent(t.Context(), c.tenant, Idempotency{Key: "k", Hash: [32]byte{2}}, creating(c, "b"))
		wantError(t, err, ErrKeyReused)
	})
	t.Run("a failure is not kept, nor what was written before it", func(t *testing.T) {
		c := newCRUD(t)
		failed := errors.New("failed")
		_, _, err := c.Idempotent(t.Context(), c.tenant, key, func(w Writer) (Answer, error) {
			if _, err := creating(c, "a")(w); err != nil {
				t.Error(err)
			}
			return Answer{}, failed
		})
		wantError(t, err, failed)
		c.wantCount(0, "rows are left", `SELECT (SELECT count(*) FROM punctual.jobs)
			+ (SELECT count(*) FROM punctual.idempotency_keys)`)
		if _, replayed, err := c.Idempotent(t.Context(), c.tenant, key, creating(c, "a")); err != nil || replayed {
			t.Errorf("the next try: replayed %v, %v", replayed, err)
		}
	})
	t.Run("a name that is taken is an error like any other", func(t *testing.T) {
		c := newCRUD(t)
		c.create("a")
		_, _, err := c.Idempotent(t.Context(), c.tenant, key, creating(c, "a"))
		wantError(t, err, jobs.ErrNameTaken)
	})
	t.Run("an empty answer stays empty", func(t *testing.T) {
		c := newCRUD(t)
		for _, want := range []bool{false, true} {
			a, replayed, err := c.Idempotent(t.Context(), c.tenant, key,
				func(Writer) (Answer, error) { return Answer{Status: 204}, nil })
			if err != nil || replayed != want || a.Status != 204 || len(a.Body) != 0 {
				t.Errorf("%+v %v %v", a, replayed, err)
			}
		}
	})
	t.Run("after a day a key is as good as new, and is forgotten", func(t *testing.T) {
		c := newCRUD(t)
		for _, name := range []string{"a", "b"} {
			if _, replayed, err := c.Idempotent(t.Context(), c.tenant, key, creating(c, name)); err != nil || replayed {
				t.Errorf("%s: replayed %v, %v", name, replayed, err)
			}
			c.exec(`UPDATE punctual.idempotency_keys SET created_at = now() - interval '25 hours'`)
		}
		for _, want := range []int{1, 0} {
			if n, _, err := c.ForgetIdempotencyKeys(t.Context()); err != nil || n != want {
				t.Errorf("%d forgotten, %v", n, err)
			}
		}
	})
}
