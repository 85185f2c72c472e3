package pgtest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"punctual/internal/privatepg"
)

// A new connection costs Postgres more than most tests do with it: a process, and the catalogs read anew. So tests
// reach the shared server over a socket of the test process, which hands sessions on. When a test closes its
// connection, the session is discarded as poolers do (DISCARD ALL), and the next client that begins in the same way
// gets it: same database, user and parameters. To the client it looks like a new one, but for its process.
//
// A session that is closed in the middle of something, or that cannot be discarded, ends. A default that a test gives
// to a role or a database reaches no session that is handed on: such tests take a Clone, whose connections are direct.

// mostResting bounds the sessions that rest, because each of them takes part in what Postgres tells all its processes.
const mostResting = 40

// answersWithin is how long a session without a client may take to answer. One that takes longer is not handed on.
const answersWithin = 20 * time.Second

// A session without a client has the application_name of the connections that recycle databases. What it has written is
// counted at once, because recycling heeds the counts.
const (
	restful = `SET application_name = 'pgtest'; SET idle_session_timeout = 0; SET jit = off;
		SELECT pg_catalog.pg_stat_force_next_flush()`
	wakeful = `RESET application_name; RESET idle_session_timeout; RESET jit`
)

type sessions struct {
	dir, port string // of the socket
	server    string // the socket of the server

	mu   sync.Mutex
	idle []*session // the longest first
}

// session is one connection to the server, and what the server said when it began.
type session struct {
	of     *sessions
	begun  string // with which parameters
	conn   net.Conn
	reader *bufio.Reader
	hello  []byte // what follows the authentication
}

// handSessionsOn listens in place of a server.
func handSessionsOn(t testing.TB, server *privatepg.Server) *sessions {
	t.Helper()
	dir, port := server.Socket()
	name := fmt.Sprintf(".s.PGSQL.%v", port)
	s := &sessions{dir: filepath.Join(server.Dir(), "sessions"), port: fmt.Sprint(port), server: filepath.Join(dir, name)}
	err := os.Mkdir(s.dir, 0o700)
	if err != nil {
		t.Fatalf("make a directory for sessions: %v", err)
	}
	l, err := net.Listen("unix", filepath.Join(s.dir, name)) //nolint:noctx // as long as the process
	if err != nil {
		t.Fatalf("listen for connections of tests: %v", err)
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(client)
		}
	}()
	return s
}

// serve serves one connection of a client.
func (s *sessions) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	startup, err := readStartup(client)
	if err != nil {
		return
	}
	from := bufio.NewReader(client)
	if binary.BigEndian.Uint32(startup[4:]) == cancellation {
		if server, err := net.Dial("unix", s.server); err == nil { //nolint:noctx // a socket of this machine
			_, _ = server.Write(startup)
			_, _ = io.Copy(io.Discard, server) // until Postgres has passed it on
			_ = server.Close()
		}
		return
	}
	on := s.wake(parameters(startup))
	if on == nil {
		if on, err = s.begin(startup, from, client); err != nil {
			return
		}
	} else if _, err := client.Write(on.hello); err != nil {
		on.end()
		return
	}
	if on.serve(from, client) {
		_ = client.Close() // it waits for that
		s.rest(on)
	} else {
		on.end()
	}
}

// begin begins a session for a client, which authenticates itself.
func (s *sessions) begin(startup []byte, from *bufio.Reader, client net.Conn) (*session, error) {
	conn, err := net.Dial("unix", s.server) //nolint:noctx // a socket of this machine
	if err != nil {
		return nil, err
	}
	on := &session{of: s, begun: parameters(startup), conn: conn, reader: bufio.NewReaderSize(conn, 64<<10)}
	if _, err := conn.Write(startup); err != nil {
		on.end()
		return nil, err
	}
	for authenticated := false; ; {
		kind, message, err := read(on.reader)
		if err == nil {
			_, err = client.Write(message)
		}
		switch {
		case err != nil || kind == 'E':
			on.end()
			return nil, errors.Join(err, errors.New("the session did not begin"))
		case kind == 'R' && binary.BigEndian.Uint32(message[5:]) == 0:
			authenticated = true
		case kind == 'R' && binary.BigEndian.Uint32(message[5:]) != 12: // 12: the last word of SCRAM, without an answer
			_, answer, err := read(from)
			if err == nil {
				_, err = conn.Write(answer)
			}
			if err != nil {
				on.end()
				return nil, err
			}
		}
		if authenticated && kind != 'N' {
			on.hello = append(on.hello, message...)
		}
		if kind == 'Z' {
			return on, nil
		}
	}
}

// talk is what a client and the server say to each other.
type talk struct {
	on     *session
	client net.Conn
	done   chan struct{} // closed when nobody reads the answers any more

	mu              sync.Mutex
	status          byte // of the transaction
	asked, answered int  // all is answered when they are equal
	closing         bool // the client has gone, and the session is being discarded
	failed          bool // that cannot be done
}

// serve passes on what a client and the server say, until the client ends. It reports whether the session is at rest
// then.
func (on *session) serve(from *bufio.Reader, client net.Conn) bool {
	t := talk{on: on, client: client, done: make(chan struct{}), status: 'I'}
	go t.answers()
	// A question of the session's own ends the answers to the client, so that nobody else reads the connection.
	if t.close(t.questions(from)) && on.ask("DISCARD ALL") == nil {
		<-t.done
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.answered == t.asked && !t.failed
	}
	on.end()
	<-t.done
	return false
}

// close reports whether a client has gone that left nothing unfinished.
func (t *talk) close(ended bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closing = ended && t.status == 'I' && t.asked == t.answered
	t.asked++
	return t.closing
}

// questions passes on what the client asks, and reports whether it ended as it should.
func (t *talk) questions(from *bufio.Reader) (ended bool) {
	to := bufio.NewWriterSize(t.on.conn, 64<<10)
	for from.Buffered() > 0 || to.Flush() == nil {
		head, err := from.Peek(5)
		if err != nil {
			return false
		}
		switch head[0] {
		case 'X':
			return to.Flush() == nil
		case 'Q', 'S', 'F': // each is answered by one ReadyForQuery
			t.mu.Lock()
			t.asked++
			t.mu.Unlock()
		}
		if _, err := io.CopyN(to, from, lengthOf(head)); err != nil {
			return false
		}
	}
	return false
}

// answers passes on what the server says, until the session's own question is answered.
func (t *talk) answers() {
	defer close(t.done)
	to, from := bufio.NewWriterSize(t.client, 64<<10), t.on.reader
	for {
		if from.Buffered() == 0 && to.Flush() != nil {
			_ = t.client.Close()
		}
		head, err := from.Peek(5)
		if err == nil && head[0] == 'Z' {
			head, err = from.Peek(6) // with the status of the transaction
		}
		var kind, status byte
		if err == nil {
			kind, status = head[0], head[len(head)-1]
			_, err = io.CopyN(to, from, lengthOf(head))
		}
		if err != nil || t.heard(kind, status) {
			_ = to.Flush()
			if err != nil {
				_ = t.client.Close()
			}
			return
		}
	}
}

// heard notes a message of the server. It reports whether it is the last one.
func (t *talk) heard(kind, status byte) (last bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch kind {
	case 'E':
		t.failed = t.closing
	case 'Z': // ready for the next question
		t.status = status
		t.answered++
		return t.closing && t.answered >= t.asked
	}
	return false
}

// lengthOf is the length of a message that begins with head.
func lengthOf(head []byte) int64 { return int64(binary.BigEndian.Uint32(head[1:])) + 1 }

// rest keeps a session for the next client.
func (s *sessions) rest(on *session) {
	if on.ask(restful) != nil || on.answer() != nil {
		on.end()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle = append(s.idle, on); len(s.idle) > mostResting {
		s.idle[0].end()
		s.idle = s.idle[1:]
	}
}

// wake returns a session that began in the same way; nil: there is none.
func (s *sessions) wake(parameters string) *session {
	for {
		s.mu.Lock()
		i := len(s.idle) - 1
		for ; i >= 0 && s.idle[i].begun != parameters; i-- {
		}
		if i < 0 {
			s.mu.Unlock()
			return nil
		}
		on := s.idle[i]
		s.idle = slices.Delete(s.idle, i, i+1)
		s.mu.Unlock()
		if on.ask(wakeful) == nil && on.answer() == nil {
			return on
		}
		on.end() // its database is gone, or a test has ended it
	}
}

func (on *session) end() { _ = on.conn.Close() }

// ask sends a statement, whose answer must come within a time.
func (on *session) ask(sql string) error {
	_ = on.conn.SetDeadline(time.Now().Add(answersWithin))
	message := binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(len(sql)+5))
	_, err := on.conn.Write(append(append(message, sql...), 0))
	return err
}

// answer reads the answer to a statement.
func (on *session) answer() error {
	for {
		kind, message, err := read(on.reader)
		switch {
		case err != nil:
			return err
		case kind == 'E':
			return fmt.Errorf("the server said %q", message)
		case kind == 'Z':
			return on.conn.SetDeadline(time.Time{})
		}
	}
}

// read reads one message.
func read(r *bufio.Reader) (kind byte, message []byte, err error) {
	head, err := r.Peek(5)
	if err != nil {
		return 0, nil, err
	}
	message = make([]byte, lengthOf(head))
	_, err = io.ReadFull(r, message)
	return message[0], message, err
}

// readStartup reads the first message of a client. It has no kind.
func readStartup(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint32(head[:]))
	copy(message, head[:])
	_, err := io.ReadFull(r, message[4:])
	return message, err
}

// parameters are those with which a session is to begin. Clients name them in any order.
func parameters(startup []byte) string {
	words := strings.Split(string(startup[8:]), "\x00")
	pairs := make([]string, 0, len(words)/2)
	for pair := range slices.Chunk(words, 2) {
		pairs = append(pairs, strings.Join(pair, "="))
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "\x00")
}

// cancellation begins a request to cancel a statement, in place of a session.
const cancellation = 80877102

// through returns the DSN of the shared server with the socket of sessions in place of its own.
func (s *sessions) through(t testing.TB, dsn string) string {
	t.Helper()
	return throughSocket(t, dsn, s.dir, s.port)
}
