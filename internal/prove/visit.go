package prove

import (
	"context"
	"errors"
	"net"
	"net/http"
	"syscall"
	"time"
)

// visit is an open request. On a busy machine its handler may learn that the client has left only after the next
// request of the same job has come. The kernel knows at once, so the witness asks the kernel whenever it matters.
type visit struct {
	job    string
	conn   net.Conn  // nil: unknown
	number int       // index of its request in the log; -1: not logged yet
	left   time.Time // when the client was found to have left; zero: still there
	unread bool      // the client had left before its request was read
}

type connKey struct{}

// withConn gives a handler access to its connection.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// arrive opens a visit and returns its time, by the wall clock alone, as Postgres does. First it marks all clients of
// the same job that have left by then.
func (w *Witness) arrive(r *http.Request) (v *visit, at time.Time) {
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	v = &visit{job: r.Header.Get("Punctual-Job"), conn: conn, number: -1}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookWhoLeft(v.job)
	if w.open[v.job] == nil {
		w.open[v.job] = map[*visit]bool{}
	}
	w.open[v.job][v] = true
	at = time.Now().Round(0)
	if v.unread = v.gone(); v.unread {
		v.left = at
	}
	return v, at
}

// end closes a visit, and logs the status of the answer that comes next; 0: no answer. It returns false if the handler
// must not answer, because the client has left.
func (w *Witness) end(v *visit, status int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open[v.job], v)
	if len(w.open[v.job]) == 0 {
		delete(w.open, v.job)
	}
	q := &w.requests[v.number]
	if !v.left.IsZero() {
		return false // its end is logged already
	}
	if v.gone() {
		status = 0
	}
	q.Ended, q.Status = time.Now().Round(0), status
	return status != 0
}

// lookWhoLeft ends the requests of a job whose clients have left. The caller holds the lock.
func (w *Witness) lookWhoLeft(job string) {
	for v := range w.open[job] {
		if v.left.IsZero() && v.gone() {
			v.left = time.Now().Round(0)
			if v.number >= 0 {
				w.requests[v.number].Ended = v.left
			}
		}
	}
}

// gone asks the kernel whether the client has closed the connection. For a connection that the kernel cannot tell
// about, such as one with TLS, only the handler learns it.
func (v *visit) gone() (gone bool) {
	conn, ok := v.conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return true // closed on this side, because the handler has learnt that the client left
	}
	err = raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		gone = err == nil && n == 0 || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	})
	return gone || err != nil
}
