package store_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	. "punctual/internal/storetest"
	"punctual/store"
	"punctual/store/jobs"
)

func TestIdempotent(t *testing.T) {
	t.Parallel()
	key := store.Idempotency{Key: "k", Hash: [32]byte{1}}
	creating := func(c Fixture, name string) func(store.Writer) (store.Answer, error) {
		return func(w store.Writer) (store.Answer, error) {
			job, err := w.CreateJob(c.T.Context(), jobs.NewJob{Definition: Definition(name)})
			if err != nil {
				return store.Answer{}, err
			}
			return store.Answer{Status: 201, Body: fmt.Appendf(nil, `{"id": %q}`, job.ID)}, nil
		}
	}
	t.Run("the same request writes once, also at the same moment", func(t *testing.T) {
		c := NewFixture(t)
		var wg sync.WaitGroup
		var fresh atomic.Int32
		answers := make([]string, 6)
		for i := range answers {
			wg.Go(func() {
				a, replayed, err := c.Idempotent(t.Context(), c.Tenant, key, creating(c, "a"))
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
		c := NewFixture(t)
		if _, _, err := c.Idempotent(t.Context(), c.Tenant, key, creating(c, "a")); err != nil {
			t.Fatal(err)
		}
		_, _, err := c.Idempotent(t.Context(), c.Tenant, store.Idempotency{Key: "k", Hash: [32]byte{2}}, creating(c, "b"))
		WantError(t, err, store.ErrKeyReused)
	})
	t.Run("a failure is not kept, nor what was written before it", func(t *testing.T) {
		c := NewFixture(t)
		failed := errors.New("failed")
		_, _, err := c.Idempotent(t.Context(), c.Tenant, key, func(w store.Writer) (store.Answer, error) {
			if _, err := creating(c, "a")(w); err != nil {
				t.Error(err)
			}
			return store.Answer{}, failed
		})
		WantError(t, err, failed)
		c.WantCount(0, "rows are left", `SELECT (SELECT count(*) FROM punctual.jobs)
			+ (SELECT count(*) FROM punctual.idempotency_keys)`)
		if _, replayed, err := c.Idempotent(t.Context(), c.Tenant, key, creating(c, "a")); err != nil || replayed {
			t.Errorf("the next try: replayed %v, %v", replayed, err)
		}
	})
	t.Run("a name that is taken is an error like any other", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("a")
		_, _, err := c.Idempotent(t.Context(), c.Tenant, key, creating(c, "a"))
		WantError(t, err, jobs.ErrNameTaken)
	})
	t.Run("an empty answer stays empty", func(t *testing.T) {
		c := NewFixture(t)
		for _, want := range []bool{false, true} {
			a, replayed, err := c.Idempotent(t.Context(), c.Tenant, key,
				func(store.Writer) (store.Answer, error) { return store.Answer{Status: 204}, nil })
			if err != nil || replayed != want || a.Status != 204 || len(a.Body) != 0 {
				t.Errorf("%+v %v %v", a, replayed, err)
			}
		}
	})
	t.Run("after a day a key is as good as new, and is forgotten", func(t *testing.T) {
		c := NewFixture(t)
		for _, name := range []string{"a", "b"} {
			if _, replayed, err := c.Idempotent(t.Context(), c.Tenant, key, creating(c, name)); err != nil || replayed {
				t.Errorf("%s: replayed %v, %v", name, replayed, err)
			}
			c.Exec(`UPDATE punctual.idempotency_keys SET created_at = now() - interval '25 hours'`)
		}
		for _, want := range []int{1, 0} {
			if n, _, err := c.ForgetOld(t.Context(), "idempotency_keys"); err != nil || n != want {
				t.Errorf("%d forgotten, %v", n, err)
			}
		}
	})
}
