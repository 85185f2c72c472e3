package pgtest

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// LockMeter is a proxy that counts the locks that each transaction of its clients holds right before it ends. Before
// each end that a client sends, it asks the same session for the session's own locks, and hides the answer. It cannot
// count those of a text of several statements that is sent outside of a transaction. Safe for concurrent use.
type LockMeter struct {
	server string

	mu   sync.Mutex
	most int
	at   string
}

// NewLockMeter starts a meter for this test in front of the server in dsn, and returns it with dsn as seen through it.
func NewLockMeter(t testing.TB, dsn string) (m *LockMeter, through string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("start a meter of locks: %v", err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	m = &LockMeter{server: parse(t, dsn).Host}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go m.serve(client)
		}
	}()
	return m, Through(t, dsn, listener.Addr().String())
}

// Most returns the largest number of locks that a transaction held since the last call, and the statements that it had
// sent last.
func (m *LockMeter) Most() (locks int, statements string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	locks, statements = m.most, m.at
	m.most, m.at = 0, ""
	return locks, statements
}

func (m *LockMeter) note(locks int, statements string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if locks > m.most {
		m.most, m.at = locks, statements
	}
}

// answer says what to do with the next answer of the server, which goes up to its ReadyForQuery.
type answer struct {
	hidden     bool // the client did not ask for it
	statements string
}

// metered is one session.
type metered struct {
	meter          *LockMeter
	client, server net.Conn
	answers        chan answer
	inTransaction  atomic.Bool // as of the last answer
}

func (m *LockMeter) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", m.server)
	if err != nil {
		return
	}
	defer server.Close()
	s := metered{meter: m, client: client, server: server, answers: make(chan answer, 16)}
	defer close(s.answers)
	length := make([]byte, 4)
	if _, err := io.ReadFull(client, length); err != nil {
		return
	}
	if _, err := server.Write(length); err != nil {
		return
	}
	if _, err := io.CopyN(server, client, int64(binary.BigEndian.Uint32(length))-4); err != nil {
		return
	}
	go s.forwardAnswers()
	s.forwardRequests()
}

// lockCount is the statement that the meter adds to a session.
const lockCount = `SELECT 'locks of this session: ' || count(*) FROM pg_catalog.pg_locks WHERE pid = pg_backend_pid()`

var countLocks = func() []byte {
	var b []byte
	for _, m := range []pgproto3.FrontendMessage{
		&pgproto3.Parse{Name: "lock_meter", Query: lockCount},
		&pgproto3.Bind{PreparedStatement: "lock_meter"},
		&pgproto3.Execute{},
		&pgproto3.Close{ObjectType: 'S', Name: "lock_meter"},
	} {
		b, _ = m.Encode(b)
	}
	return b
}()

// forwardRequests adds the count right before each message that may end a transaction.
func (s *metered) forwardRequests() {
	prepared := map[string]string{}
	var request []byte
	var texts []string
	for {
		kind, message, err := readMessage(s.client)
		if err != nil {
			return
		}
		in := s.inTransaction.Load()
		if len(request) == 0 && !in {
			texts = nil
		}
		switch fields := strings.SplitN(string(message[5:]), "\x00", 3); kind {
		case 'P':
			prepared[fields[0]] = fields[1]
		case 'B':
			texts = append(texts, prepared[fields[1]])
		case 'Q':
			if in {
				sync, _ := (&pgproto3.Sync{}).Encode(nil)
				s.answers <- answer{hidden: true, statements: strings.Join(texts, ";\n")}
				request = append(append(request, countLocks...), sync...)
			}
			texts = append(texts, fields[0])
		case 'S':
			request = append(request, countLocks...)
		}
		request = append(request, message...)
		switch kind {
		case 'S', 'Q':
			s.answers <- answer{statements: strings.Join(texts, ";\n")}
			fallthrough
		case 'p', 'X': // a password, the end of the session
			_, _ = s.server.Write(request)
			request = nil
		}
	}
}

// forwardAnswers takes the counts out of the server's answers. What the server says before it is ready for the first
// time is forwarded as it comes.
func (s *metered) forwardAnswers() {
	defer s.client.Close()
	for ready := false; !ready; {
		kind, message, err := readMessage(s.server)
		if err != nil {
			return
		}
		_, _ = s.client.Write(message)
		ready = kind == 'Z'
	}
	for a := range s.answers {
		forward, err := s.readAnswer(a.statements)
		if err != nil {
			return
		}
		if !a.hidden {
			_, _ = s.client.Write(forward)
		}
	}
}

func (s *metered) readAnswer(statements string) (forward []byte, err error) {
	left := 0 // further messages of the count
	for kind := byte(0); kind != 'Z'; {
		var message []byte
		if kind, message, err = readMessage(s.server); err != nil {
			return nil, err
		}
		switch n, is := bytes.CutPrefix(message[min(11, len(message)):], []byte("locks of this session: ")); {
		case is:
			locks, _ := strconv.Atoi(string(n))
			s.meter.note(locks, statements)
			// Its Parse and Bind were answered right before, and its Execute and Close are right after.
			forward, left = forward[:len(forward)-10], 2
		case left > 0:
			left--
		default:
			forward = append(forward, message...)
		}
		if kind == 'Z' {
			s.inTransaction.Store(message[5] != 'I')
		}
	}
	return forward, nil
}

// readMessage reads one message, and returns its kind and all of it.
func readMessage(from io.Reader) (kind byte, message []byte, err error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(from, head); err != nil {
		return 0, nil, err
	}
	message = make([]byte, 1+binary.BigEndian.Uint32(head[1:]))
	copy(message, head)
	_, err = io.ReadFull(from, message[5:])
	return head[0], message, err
}
