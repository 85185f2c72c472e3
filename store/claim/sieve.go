package claim

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/google/uuid"

	"punctual/store/aside"
	"punctual/store/pg"
	"punctual/store/seal"
)

// taking says which items a claim takes. Only is a part of a batch that has failed; nil: whatever is due, except not.
type taking struct{ only, not []uuid.UUID }

// sieve finds the items that make claims fail. A batch that has failed is claimed once more, then by halves, and an
// item that fails alone is set aside. The parts are claimed one by one, and in turn with everything else that is due,
// so a failing batch delays nothing that is not in it. One lease has the runs of one transaction: so a claim returns
// after the first part that does not fail. Safe for concurrent use.
type sieve struct {
	kind aside.Kind
	rows aside.Rows // among which those are that a claim takes

	mu     sync.Mutex
	parts  [][]uuid.UUID // to be claimed, each by itself
	hand   [][]uuid.UUID // parts that are being claimed
	done   bool          // one of them was claimed without failing
	others bool          // the last claim was of a part: the next is of everything else
}

// sieves are the sieves of the kinds of claims. They are apart because each claims by other statements.
type sieves struct{ due, ready, silent sieve }

// The slots and runs that are looked at before they are due, too.
var (
	slotsAhead = aside.Rows{Kind: aside.Slot, Table: "schedules", ID: "job_id", Are: "r.enabled"}
	runsAhead  = aside.Rows{Kind: aside.Run, Table: "waiting", ID: "run_id", Are: Claimable}
)

func newSieves() sieves {
	runs := aside.Rows{Kind: aside.Run, Table: "waiting", ID: "run_id", Are: "r.due_at <= now()"}
	return sieves{
		due: sieve{kind: aside.Slot, rows: aside.Rows{
			Kind: aside.Slot, Table: "schedules", ID: "job_id", Are: "r.enabled AND r.next_run_at <= now()",
		}},
		ready: sieve{kind: aside.Run, rows: runs}, silent: sieve{kind: aside.Run, rows: runs},
	}
}

// item is what a claim has locked.
type item struct {
	id, job uuid.UUID
	tenant  int32
}

// next returns what the next claim takes.
func (v *sieve) next(known []uuid.UUID) taking {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.parts) > 0 && !v.others {
		only := v.parts[0]
		v.parts, v.hand, v.others = v.parts[1:], append(v.hand, only), true
		return taking{only: only, not: []uuid.UUID{}}
	}
	v.others = false
	not := append([]uuid.UUID{}, known...) // never null: no row is unlike null
	for _, apart := range slices.Concat(v.parts, v.hand) {
		not = append(not, apart...)
	}
	return taking{not: not}
}

// over returns the items that are set aside and are not to be claimed now: a look for due work passes over them.
func (v *sieve) over(a *aside.Aside) []uuid.UUID {
	known := a.Of(v.kind)
	v.mu.Lock()
	defer v.mu.Unlock()
	return without(known, slices.Concat(v.parts...))
}

// more reports whether there is a part to claim.
func (v *sieve) more() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.parts) > 0
}

// add adds a part to claim.
func (v *sieve) add(parts ...[]uuid.UUID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.parts = append(v.parts, parts...)
}

// drop ends the work on a part. If it was the last one, whether any was claimed is forgotten.
func (v *sieve) drop(p taking, done bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.done = v.done || done
	v.hand = slices.DeleteFunc(v.hand, func(h []uuid.UUID) bool { return len(h) == len(p.only) && h[0] == p.only[0] })
	if len(v.parts)+len(v.hand) == 0 {
		v.done, v.others = false, false
	}
}

// through claims by a sieve: until a claim does not fail, or fails by no item's fault. A claim returns the items that
// it has locked, and whether it is to be made again by the caller because nobody knows whether it was committed.
func (s *Claims) through(
	ctx context.Context, v *sieve, claim func(ctx context.Context, of taking) (locked []item, settled int, err error),
) (left bool, err error) {
	for {
		p := v.next(s.aside.Of(v.kind))
		locked, settled, err := claim(ctx, p)
		switch {
		case err == nil:
			s.passed(ctx, v, p, settled)
			return v.more(), nil
		case !aside.Blames(ctx, err):
			v.back(p)
			return false, err
		case len(locked) == 0 && p.only == nil:
			if s.isSound(ctx) && s.aside.SetUnreadable(ctx, v.rows, err) {
				continue
			}
			return false, err
		case len(locked) == 0:
			locked = pg.Column(p.only, func(id uuid.UUID) item { return item{id: id} })
		}
		_, unopened := errors.AsType[*seal.OpenError](err) // as it was read, so nothing is committed
		if !s.blame(ctx, v, p, locked, err) || pg.Code(err) == "" && !unopened {
			return v.more(), err
		}
	}
}

// passed notes that a claim did not fail.
func (s *Claims) passed(ctx context.Context, v *sieve, p taking, settled int) {
	if p.only == nil {
		s.patient.statements.wentWell()
		return
	}
	v.drop(p, true)
	if settled > 0 {
		s.aside.Done(ctx, v.kind, p.only...)
	}
}

// back gives a part back that was not claimed, by no item's fault.
func (v *sieve) back(p taking) {
	if p.only != nil {
		v.add(p.only)
		v.drop(p, false)
	}
}

// blame decides about a batch, or a part of one, that has failed. It reports whether to go on: it is not if the machine
// is slow.
func (s *Claims) blame(ctx context.Context, v *sieve, p taking, locked []item, err error) (goOn bool) {
	slices.SortStableFunc(locked, func(a, b item) int { return cmp.Compare(a.tenant, b.tenant) })
	ids := pg.Column(locked, func(i item) uuid.UUID { return i.id })
	slow := aside.TooSlow(err)
	switch {
	case p.only == nil && !slow:
		v.add(ids) // once more
		return true
	case len(ids) > 1:
		if slow && p.only != nil && !v.done { // it may be the machine, and no part would ever be done
			s.patient.statements.tooShort()
		}
		v.add(aside.Halves(ids)...)
	case p.only == nil: // the only one that is due, and it takes too long
		v.add(ids)
	case slow && !v.done:
		s.patient.statements.tooShort()
		v.drop(p, false)
		return false
	case !s.putAside(ctx, aside.Item{Kind: v.kind, ID: ids[0], Job: locked[0].job, Tenant: locked[0].tenant}, err):
		v.drop(p, false)
		return false
	}
	if p.only == nil {
		return true
	}
	if rest := without(p.only, ids); len(rest) > 0 { // beyond the quota
		v.add(rest)
	}
	v.drop(p, false)
	return true
}

func without(ids, others []uuid.UUID) []uuid.UUID {
	return slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool { return slices.Contains(others, id) })
}
