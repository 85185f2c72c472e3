package pg

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// endpoints are the present and past addresses of the database, as far as this replica has learned them.
type endpoints struct {
	mu    sync.Mutex
	known []netip.AddrPort
}

// mostEndpoints bounds the addresses remembered of a host that moves all the time. The oldest go first.
const mostEndpoints = 256

func (e *endpoints) add(addr netip.Addr, port uint16) {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := netip.AddrPortFrom(addr.Unmap().WithZone(""), port)
	if slices.Contains(e.known, at) {
		return
	}
	if len(e.known) == mostEndpoints {
		e.known = e.known[1:]
	}
	e.known = append(slices.Clip(e.known), at) // a new array: callers may still hold the old list
}

// Endpoints returns the addresses of the database: the addresses that the URL's hosts resolved to whenever a connection
// was made, and the address that the server reports of itself, which differs behind a pooler. A Unix socket counts as
// this machine's loopback. The caller must not change the list.
func (db *DB) Endpoints() []netip.AddrPort {
	db.endpoints.mu.Lock()
	defer db.endpoints.mu.Unlock()
	return db.endpoints.known
}

// observe records the addresses of a configuration's hosts: of sockets now, of names whenever pgx looks them up.
func (e *endpoints) observe(c *pgconn.Config) {
	ports := map[string][]uint16{c.Host: {c.Port}}
	for _, f := range c.Fallbacks {
		ports[f.Host] = append(ports[f.Host], f.Port)
	}
	for host, list := range ports {
		if filepath.IsAbs(host) {
			e.addAll([]string{"127.0.0.1"}, list)
		}
	}
	lookup := c.LookupFunc
	c.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
		addresses, err := lookup(ctx, host)
		e.addAll(addresses, ports[host])
		return addresses, err
	}
}

func (e *endpoints) addAll(addresses []string, ports []uint16) {
	for _, text := range addresses {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		for _, port := range ports {
			e.add(addr, port)
		}
	}
}

// ask records a server's address, as the connection has it and as the server reports it.
func (e *endpoints) ask(ctx context.Context, conn *pgx.Conn) error {
	if remote, ok := conn.PgConn().Conn().RemoteAddr().(*net.TCPAddr); ok {
		at := remote.AddrPort()
		e.add(at.Addr(), at.Port())
	}
	var host *netip.Addr
	var port *int32
	if err := conn.QueryRow(ctx, `SELECT inet_server_addr(), inet_server_port()`, pgx.QueryExecModeSimpleProtocol).
		Scan(&host, &port); err != nil {
		return fmt.Errorf("asking for the server's address: %w", err)
	}
	if host != nil && port != nil {
		e.add(*host, uint16(*port))
	}
	return nil
}
