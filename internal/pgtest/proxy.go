package pgtest

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"punctual/internal/privatepg"
)

// Proxy is a network between clients and a server. Tests can slow it down, cut it and heal it. Safe for concurrent use.
type Proxy struct {
	t        testing.TB
	listener net.Listener
	toxic    *toxiproxy.Proxy // between the listener and the server

	accepted, packets, cuts atomic.Int64

	mu       sync.Mutex
	refusing bool
	cutAfter []string
	stall    string // see StallAfter
	open     map[net.Conn]bool
}

// NewProxy starts a proxy for this test in front of the TCP address in dsn, and returns it with dsn as seen through it.
func NewProxy(t testing.TB, dsn string) (p *Proxy, through string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("start a proxy: %v", err)
	}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p = &Proxy{
		t:        t,
		listener: listener,
		open:     map[net.Conn]bool{},
		toxic:    toxiproxy.NewProxy(server, "database", "127.0.0.1:0", parse(t, dsn).Host),
	}
	if err := p.toxic.Start(); err != nil {
		t.Fatalf("start a proxy: %v", err)
	}
	go p.accept()
	t.Cleanup(p.close)
	return p, Through(t, dsn, listener.Addr().String())
}

// TCP returns a DSN of Database or DSN with the server's TCP address in place of its socket.
func TCP(t testing.TB, server *privatepg.Server, dsn string) string {
	t.Helper()
	return Through(t, dsn, parse(t, server.TCP("postgres")).Host)
}

// Slow delays all data, so that a round trip takes as long as given, plus or minus the jitter.
func (p *Proxy) Slow(roundTrip, jitter time.Duration) {
	p.t.Helper()
	attributes := map[string]int64{"latency": (roundTrip / 2).Milliseconds(), "jitter": (jitter / 2).Milliseconds()}
	p.poison("latency", attributes)
}

// Cut stops all data without closing anything: whatever is sent vanishes, and connections stay open.
func (p *Proxy) Cut() {
	p.t.Helper()
	p.poison("timeout", map[string]int64{"timeout": 0})
}

// Refuse closes all connections, and closes new ones as soon as they are made.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = true
	for conn := range p.open {
		_ = conn.Close() // it may be closed already
	}
}

// CutAfter closes a connection right after the client has sent a packet that contains one of the texts. The server gets
// the packet, but the client never learns the result. This happens once per text, in the order of the list. The same
// text may occur several times in it.
func (p *Proxy) CutAfter(texts ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAfter = append(p.cutAfter, texts...)
}

// StallAfter holds a connection up after the client has sent a packet that contains a text: the server gets the packet,
// and nothing that the client sends after it. This happens to one connection.
func (p *Proxy) StallAfter(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stall = text
}

// Heal ends Slow, Cut, Refuse and CutAfter, and closes connections that were cut.
func (p *Proxy) Heal() {
	p.mu.Lock()
	p.refusing, p.cutAfter = false, nil
	p.mu.Unlock()
	p.toxic.Toxics.ResetToxics(p.t.Context())
}

// Accepted returns how many connections clients have made so far, refused ones included.
func (p *Proxy) Accepted() int { return int(p.accepted.Load()) }

// Packets returns how many packets clients have sent so far.
func (p *Proxy) Packets() int { return int(p.packets.Load()) }

// Cuts returns how often CutAfter has closed a connection.
func (p *Proxy) Cuts() int { return int(p.cuts.Load()) }

func (p *Proxy) poison(kind string, attributes map[string]int64) {
	p.t.Helper()
	for _, direction := range []string{"upstream", "downstream"} {
		spec, err := json.Marshal(map[string]any{"type": kind, "stream": direction, "attributes": attributes})
		if err == nil {
			_, err = p.toxic.Toxics.AddToxicJson(bytes.NewReader(spec))
		}
		if err != nil {
			p.t.Fatalf("make the network worse: %v", err)
		}
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		if !p.admit(client) {
			_ = client.Close()
			continue
		}
		go p.serve(client)
	}
}

// admit counts a connection. It returns false if the connection must be closed at once.
func (p *Proxy) admit(client net.Conn) bool {
	p.accepted.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusing {
		return false
	}
	p.open[client] = true
	return true
}

func (p *Proxy) serve(client net.Conn) {
	defer p.leave(client)
	server, err := net.Dial("tcp", p.toxic.Listen)
	if err != nil {
		return // the client sees its connection closed
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	p.forward(server, client)
	_ = server.(*net.TCPConn).CloseWrite() // the server still works on what was sent
	<-answered
	_ = server.Close()
}

// forward copies the client's data to the server, until the client closes or the connection is to be cut.
func (p *Proxy) forward(server io.Writer, client net.Conn) {
	packet := make([]byte, 64<<10)
	for {
		n, err := client.Read(packet)
		cut := p.cutsNow(packet[:n])
		if cut {
			_ = client.Close() // before the server can answer
		}
		stalls := p.stallsNow(packet[:n])
		if _, failed := server.Write(packet[:n]); err != nil || failed != nil || cut {
			return
		}
		if stalls {
			_, _ = io.Copy(io.Discard, client) // until the server has ended the connection
			return
		}
	}
}

func (p *Proxy) cutsNow(packet []byte) bool {
	p.packets.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.cutAfter) == 0 || !bytes.Contains(packet, []byte(p.cutAfter[0])) {
		return false
	}
	p.cutAfter = p.cutAfter[1:]
	p.cuts.Add(1)
	return true
}

func (p *Proxy) stallsNow(packet []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stall == "" || !bytes.Contains(packet, []byte(p.stall)) {
		return false
	}
	p.stall = ""
	return true
}

func (p *Proxy) leave(client net.Conn) {
	_ = client.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, client)
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.Refuse()
	p.toxic.Stop()
}
