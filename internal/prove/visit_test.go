//prove:other

package prove

import (
	"net"
	"net/http"
	"testing"
	"time"
)

// called returns both ends of a connection from a client to the witness.
func called(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(); _ = server.Close() })
	return client, server
}

// of returns a request of a job on a connection.
func of(t *testing.T, job string, conn net.Conn) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(withConn(t.Context(), conn), http.MethodPost, "/", nil)
	must(t, err)
	r.Header.Set("Punctual-Job", job)
	return r
}

// A client that has left is on record before its next request, even on a busy machine.
//
// A handler learns that its client has left only long after the next request has come. The witness's log must not
// depend on that.
func TestAClientThatHasLeftHasLeftWhenTheNextRequestComes(t *testing.T) {
	t.Parallel()
	w := newWitness(t)
	client, server := called(t)
	other, elsewhere := called(t)
	first, at := w.arrive(of(t, "j", server))
	w.log(first, Request{At: at})
	second, at := w.arrive(of(t, "j", elsewhere))
	w.log(second, Request{At: at})
	if q := w.Requests()[0]; !q.Ended.IsZero() || q.Unread {
		t.Fatalf("its client is there: %+v", q)
	}
	_ = client.Close()
	await(t, "the kernel to say so", first.gone)
	_, next := called(t)
	third, at := w.arrive(of(t, "j", next))
	w.log(third, Request{At: at})
	if w.end(first, http.StatusOK) {
		t.Error("it is answered although its client has left")
	}
	if q := w.requests[0]; q.Ended.IsZero() || q.Ended.After(at) || q.Status != 0 {
		t.Errorf("logged %+v, and the next one came at %s", q, at)
	}
	// If the client leaves before its handler answers, the request counts as not answered.
	_ = other.Close()
	await(t, "the kernel to say so", second.gone)
	if w.end(second, http.StatusOK) || w.requests[1].Status != 0 || w.requests[1].Ended.Before(at) {
		t.Errorf("logged %+v", w.requests[1])
	}
	if !w.end(third, http.StatusOK) || w.requests[2].Status != http.StatusOK || len(w.open) != 0 {
		t.Errorf("logged %+v, %d open", w.requests[2], len(w.open))
	}
}

// A request that is read after its client has left is marked.
//
// It may have come long before, even before others that were read first.
func TestARequestReadTooLateIsMarked(t *testing.T) {
	t.Parallel()
	w := newWitness(t)
	client, server := called(t)
	_ = client.Close()
	await(t, "the kernel to say so", (&visit{conn: server}).gone)
	v, at := w.arrive(of(t, "j", server))
	w.log(v, Request{At: at})
	if q := w.Requests()[0]; !q.Unread || !q.Ended.Equal(at) {
		t.Errorf("logged %+v", q)
	}
}

// The checker concludes nothing from the order of such requests.
func TestRequestsOfUnknownArrivalAreInNoOrder(t *testing.T) {
	t.Parallel()
	f := goodWorld()
	first, late := f.theRequest(f.forbid, 0), f.theRequest(f.forbid, 1)
	late.At = first.At.Add(time.Microsecond)
	first.Fence, late.Fence = late.Fence, first.Fence
	for unread, want := range map[bool]bool{false: true, true: false} {
		late.Unread = unread
		found := false
		for _, v := range Check(f.Facts, Conditions{}) {
			found = found || v.Rule == NoOverlap || v.Rule == FencesGrow
		}
		if found != want {
			t.Errorf("unread %t: an overlap or a smaller token is found: %t", unread, found)
		}
	}
}
