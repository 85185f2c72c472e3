package breaker

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// hanging drives the Hangs of one queue with 20 worker slots.
type hanging struct {
	*Hangs
	t   *testing.T
	log bytes.Buffer
}

const (
	slots   = 20
	quarter = slots / 4
)

func newHanging(t *testing.T) *hanging {
	h := &hanging{t: t}
	h.Hangs = NewHangs(slog.New(slog.NewTextHandler(&h.log, nil)))
	return h
}

func at(path string) Place { return Place{Key: key, Path: path} }

func request(path string, turn Turn) Request {
	return Request{Queue: 1, Slots: slots, To: at(path), Turn: turn, At: time.Now()}
}

// send asks for n requests to a path, which must all be admitted.
func (h *hanging) send(n int, path string, turn Turn) (out []*Flight) {
	h.t.Helper()
	for range n {
		f, wait := h.Admit(request(path, turn))
		if wait != nil {
			h.t.Fatalf("request %d to %s must wait: %s", len(out)+1, path, wait.Why)
		}
		out = append(out, f)
	}
	return out
}

// waits asks for a request that must be held back, and returns why it waits.
func (h *hanging) waits(path string) *Wait {
	h.t.Helper()
	f, wait := h.Admit(request(path, Fresh))
	if f != nil {
		h.t.Fatalf("a request to %s goes out", path)
	}
	return wait
}

// timeOut sends n requests, one after another, that all time out.
func (h *hanging) timeOut(n int, path string) {
	h.t.Helper()
	for range n {
		h.End(h.send(1, path, Fresh)[0], false, true)
	}
}

func (h *hanging) answer(path string) { h.End(h.send(1, path, Always)[0], true, false) }

func TestWhatHangs(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*hanging)
		want string
	}{
		{"nothing", func(*hanging) {}, ""},
		{"two timeouts in a row do not", func(h *hanging) { h.timeOut(2, "/a") }, ""},
		{
			"three do: path and host, as nothing else is known of it", func(h *hanging) { h.timeOut(3, "/a") },
			"hanging billing.internal:443, hanging billing.internal:443/a",
		},
		{"not with an answer among them", func(h *hanging) { h.timeOut(2, "/a"); h.answer("/a"); h.timeOut(2, "/a") }, ""},
		{
			"of a host that answers elsewhere only the path",
			func(h *hanging) { h.timeOut(2, "/a"); h.answer("/b"); h.timeOut(1, "/a") },
			"hanging billing.internal:443/a",
		},
		{
			"of different paths the host", func(h *hanging) { h.timeOut(1, "/a"); h.timeOut(1, "/b"); h.timeOut(1, "/c") },
			"hanging billing.internal:443",
		},
		{"what failed otherwise is no timeout", func(h *hanging) {
			for range 9 {
				h.End(h.send(1, "/a", Fresh)[0], false, false)
			}
		}, ""},
		{"one answer ends it", func(h *hanging) { h.timeOut(9, "/a"); h.answer("/a") }, ""},
		{
			"an answer elsewhere ends it for the host",
			func(h *hanging) { h.timeOut(9, "/a"); h.answer("/b") }, "hanging billing.internal:443/a",
		},
		{"a reset ends it", func(h *hanging) { h.timeOut(9, "/a"); h.Reset(at("/a")); h.Reset(at("")) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHanging(t)
			c.do(h)
			var names []string
			for _, p := range h.All() {
				names = append(names, p.By)
			}
			if got := strings.Join(names, ", "); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// One run at a time that may not wait any longer goes out beyond the quarter, and its timeout answers for the others.
func TestTheLastOneGoesOutBeyondTheQuarter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHanging(t)
		h.timeOut(3, "/a")
		h.send(quarter, "/a", Fresh)
		time.Sleep(time.Hour)
		began := time.Now()
		if h.waits("/a"); !h.waits("/a").Failed.Before(began) {
			t.Error("it waits for a request that timed out later than now")
		}
		last := h.send(1, "/a", Last)[0]
		time.Sleep(7 * time.Second)
		if _, wait := h.Admit(request("/a", Last)); wait == nil || wait.Again != 7*time.Second {
			t.Errorf("beside one that has been in flight for 7 s: %+v, want to ask again after as long", wait)
		}
		h.End(last, false, true)
		if w := h.waits("/a"); !w.Failed.Equal(began) {
			t.Errorf("the latest timeout began %s after the last one", w.Failed.Sub(began))
		}
		h.send(1, "/a", Last)
	})
}

func TestAPlaceThatIsItsHostCountsOnce(t *testing.T) {
	h := newHanging(t)
	before := h.send(2, "", Fresh)
	h.timeOut(2, "")
	if all := h.All(); len(all) != 0 {
		t.Fatalf("two timeouts count as three: %+v", all)
	}
	h.timeOut(1, "")
	h.send(quarter-len(before), "", Fresh)
	h.waits("")
	for _, f := range before {
		h.End(f, false, false)
	}
	h.send(len(before), "", Waited)
	if n := h.places[at("")].inFlight[1]; n != quarter {
		t.Errorf("%d are in flight, want %d", n, quarter)
	}
}

func TestWhatHangsHasAQuarterOfTheSlots(t *testing.T) {
	h := newHanging(t)
	before := h.send(2, "/a", Fresh) // they count towards the quarter, though they were sent before the path hung
	h.timeOut(3, "/a")
	h.answer("/b")
	h.send(quarter-2, "/a", Fresh)
	w := h.waits("/a")
	if w.By != "hanging billing.internal:443/a" || !w.Hanging || !strings.Contains(w.Why, "3 requests timed out") {
		t.Errorf("%+v", w)
	}
	h.send(slots, "/b", Fresh) // other paths of the host are not limited
	h.send(1, "/a", Always)    // a run by hand is always sent
	if got := h.Wanted(map[int16]int{1: slots}, 10); len(got) != 0 {
		t.Errorf("%v are wanted while it has as many as it may", got)
	}
	h.End(before[0], false, true)
	h.End(before[1], false, true)
	h.waits("/a") // a new run does not overtake parked runs
	wanted := h.Wanted(map[int16]int{1: slots}, 10)
	if len(wanted) != 1 || wanted[0].Most != 1 || wanted[0].By() != w.By {
		t.Fatalf("wanted: %+v", wanted)
	}
	h.Fetched(wanted[0], 1, true)
	h.send(1, "/a", Waited)
	h.waits("/a")
}

func TestWithoutRunsThatWaitTheNextOneGoesToWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHanging(t)
		h.timeOut(3, "/a")
		out := h.send(quarter, "/a", Fresh)
		h.waits("/a")
		h.End(out[0], false, true)
		h.waits("/a")
		for _, w := range h.Wanted(map[int16]int{1: slots}, 10) {
			h.Fetched(w, 0, false)
		}
		h.send(1, "/a", Fresh)
		if n := len(h.Wanted(map[int16]int{1: slots}, 10)); n != 0 {
			t.Errorf("%d places are looked for again at once", n)
		}
	})
}

func TestEachQueueAndTenantHasItsOwnQuarter(t *testing.T) {
	h := newHanging(t)
	h.timeOut(3, "/a")
	h.send(quarter, "/a", Fresh)
	h.waits("/a")
	other := request("/a", Fresh)
	other.Queue = 2
	if _, wait := h.Admit(other); wait != nil {
		t.Errorf("another queue waits: %s", wait.Why)
	}
	other = request("/a", Fresh)
	other.To.Tenant = 9
	for range slots {
		if _, wait := h.Admit(other); wait != nil {
			t.Fatalf("another tenant waits: %s", wait.Why)
		}
	}
}

func TestASmallQueueHasOneSlotForWhatHangs(t *testing.T) {
	for size, want := range map[int]int{1: 1, 3: 1, 4: 1, 8: 2, 500: 125} {
		if got := Quarter(size); got != want {
			t.Errorf("of %d slots %d, want %d", size, got, want)
		}
	}
}

func TestRequestsThatTakeLongLendTheirSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHanging(t)
		out := h.send(slots, "/slow", Fresh)
		if got := h.Long(); len(got) != 0 {
			t.Errorf("%d slots are lent at once", len(got))
		}
		time.Sleep(LongAfter + 1)
		if got := len(h.Long()); got != slots-quarter {
			t.Errorf("%d slots are lent after a minute, want %d", got, slots-quarter)
		}
		if got := len(h.Long()); got != 0 {
			t.Errorf("%d are lent twice", got)
		}
		lent := 0
		for _, f := range out {
			if was, _ := h.End(f, true, false); was {
				lent++
			}
		}
		if lent != slots-quarter {
			t.Errorf("%d of those that ended had lent their slots", lent)
		}
	})
}

// A queue lends out at most as many worker slots as it has, however many hosts are slow.
func TestWhatIsLentIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHanging(t)
		for host := range 10 {
			for range slots {
				r := request("/slow", Fresh)
				r.To.Host = fmt.Sprint(host)
				if _, wait := h.Admit(r); wait != nil {
					t.Fatal(wait.Why)
				}
			}
		}
		time.Sleep(LongAfter + 1)
		if got := len(h.Long()); got != slots {
			t.Errorf("%d are lent, want %d", got, slots)
		}
	})
}

func TestWhatNobodyCallsHangsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHanging(t)
		h.timeOut(3, "/a")
		time.Sleep(forgetAfter + 1)
		h.Wanted(map[int16]int{1: slots}, 10)
		if all := h.All(); len(all) != 0 {
			t.Errorf("%v", all)
		}
	})
}

func TestTheMemoryOfHangsIsBounded(t *testing.T) {
	h := newHanging(t)
	for i := range maxHosts {
		h.timeOut(1, fmt.Sprint("/", i))
	}
	if n := len(h.places); n != maxHosts {
		t.Errorf("%d places are remembered, want %d", n, maxHosts)
	}
}
