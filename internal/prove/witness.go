package prove

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Request is one request as the witness got it. Its times are comparable with those of a Postgres on the same machine.
type Request struct {
	// At is when it arrived. Ended is when it was answered or its client was found to have left; zero: still open.
	At, Ended    time.Time
	Method, Path string
	Run          uuid.UUID
	Job          string // the job's name
	Attempt      int
	Fence        int64
	Trigger      string
	ScheduledFor time.Time
	Late         bool
	Key          string // Idempotency-Key
	Token        string // Punctual-Run-Token
	Body         uint64 // HashBody of the body
	Status       int    // of the answer; 0: not answered
	Unread       bool   // the client had left before the request was read, so it may have arrived long before At
}

// HashBody returns the hash of a body that Request.Body holds.
func HashBody(body []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(body)
	return h.Sum64()
}

// Answer is how the witness answers a request. The zero value is a prompt 200.
type Answer struct {
	Status int           // 0: 200
	Header http.Header   // such as Retry-After or Location
	Body   string        // of the response
	Delay  time.Duration // time before the answer
	Hang   bool          // do not answer before Release of the path; then give this answer
	Drop   bool          // close the connection instead of answering
}

// Witness is an HTTP target on loopback that logs every request. Every path answers 200 unless Script or Cycle says
// otherwise. Safe for concurrent use.
type Witness struct {
	URL string // without a trailing slash

	server   *http.Server
	mu       sync.Mutex
	requests []Request
	open     map[string]map[*visit]bool // by job
	scripts  map[string]*script
}

// script holds the answers of one path.
type script struct {
	answers  []Answer // to the first request, the second, …
	cycle    bool     // after the last answer start again; otherwise the last one repeats
	next     int
	released chan struct{} // closed by Release
}

// NewWitness starts a witness on a listener, which Close closes.
func NewWitness(listener net.Listener) *Witness {
	w := &Witness{
		URL:     "http://" + listener.Addr().String(),
		open:    map[string]map[*visit]bool{},
		scripts: map[string]*script{},
	}
	w.server = &http.Server{Handler: http.HandlerFunc(w.serve), ReadHeaderTimeout: time.Minute, ConnContext: withConn}
	go func() { _ = w.server.Serve(listener) }() // returns ErrServerClosed, always
	return w
}

// Close cuts off open requests and stops listening.
func (w *Witness) Close() error { return w.server.Close() }

// Script sets the answers to the next requests of a path: the first answer, then the second, and so on. The last one
// repeats.
func (w *Witness) Script(path string, answers ...Answer) { w.script(path, answers, false) }

// Cycle is Script, except that the first answer follows the last one.
func (w *Witness) Cycle(path string, answers ...Answer) { w.script(path, answers, true) }

func (w *Witness) script(path string, answers []Answer, cycle bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scripts[path] = &script{answers: answers, cycle: cycle, released: make(chan struct{})}
}

// Release lets the hanging requests of a path, and later ones, be answered.
func (w *Witness) Release(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.scripts[path]; s != nil {
		select {
		case <-s.released:
		default:
			close(s.released)
		}
	}
}

// Requests returns a copy of the log, in the order of arrival.
func (w *Witness) Requests() []Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	for job := range w.open {
		w.lookWhoLeft(job)
	}
	return slices.Clone(w.requests)
}

// At returns the requests of one path, in the order of arrival.
func (w *Witness) At(path string) []Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []Request
	for _, r := range w.requests {
		if r.Path == path {
			found = append(found, r)
		}
	}
	return found
}

// Len returns how many requests there were.
func (w *Witness) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.requests)
}

func (w *Witness) serve(rw http.ResponseWriter, r *http.Request) {
	v, at := w.arrive(r)
	body, err := io.ReadAll(r.Body)
	answer, released := w.log(v, read(r, at, body))
	status := 0
	if err == nil && answer.wait(r.Context(), released) == nil && !answer.Drop {
		status = cmp.Or(answer.Status, http.StatusOK)
	}
	// Log the end before answering: a client that has the answer may send its next request at once.
	if !w.end(v, status) {
		panic(http.ErrAbortHandler) // closes the connection without an answer
	}
	for name, values := range answer.Header {
		rw.Header()[name] = values
	}
	rw.WriteHeader(status)
	_, _ = io.WriteString(rw, answer.Body) // the client may have left
}

// read extracts from a request what the checker needs. A missing or malformed header leaves its field zero.
func read(r *http.Request, at time.Time, body []byte) Request {
	h := r.Header
	q := Request{
		At: at, Method: r.Method, Path: r.URL.Path, Job: h.Get("Punctual-Job"), Trigger: h.Get("Punctual-Trigger"),
		Late: h.Get("Punctual-Late") == "true", Key: h.Get("Idempotency-Key"), Token: h.Get("Punctual-Run-Token"),
		Body: HashBody(body),
	}
	q.Run, _ = uuid.Parse(h.Get("Punctual-Run"))
	q.Attempt, _ = strconv.Atoi(h.Get("Punctual-Attempt"))
	q.Fence, _ = strconv.ParseInt(h.Get("Punctual-Fencing-Token"), 10, 64)
	q.ScheduledFor, _ = time.Parse(time.RFC3339Nano, h.Get("Punctual-Scheduled-For"))
	return q
}

// log appends a request and returns the answer to give.
func (w *Witness) log(v *visit, r Request) (a Answer, released <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v.number = len(w.requests)
	r.Ended, r.Unread = v.left, v.unread
	w.requests = append(w.requests, r)
	if s := w.scripts[r.Path]; s != nil && len(s.answers) > 0 {
		i := min(s.next, len(s.answers)-1)
		if s.cycle {
			i = s.next % len(s.answers)
		}
		a, released = s.answers[i], s.released
		s.next++
	}
	return a, released
}

var errLeft = errors.New("the client left")

// wait waits as long as the answer says. It fails if the client leaves.
func (a Answer) wait(ctx context.Context, released <-chan struct{}) error {
	if a.Hang {
		select {
		case <-released:
		case <-ctx.Done():
			return errLeft
		}
	}
	if a.Delay > 0 {
		select {
		case <-time.After(a.Delay):
		case <-ctx.Done():
			return errLeft
		}
	}
	return nil
}
