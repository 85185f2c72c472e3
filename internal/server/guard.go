package server

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/guard"
	"punctual/store"
)

// newGuard returns the guard that decides which addresses callbacks may go to. It always forbids the addresses that
// Punctual itself listens at and connects to. `punctual dev` is the exception: its API listens at the address of the
// sample jobs' target.
func newGuard(c Config, db *store.Store, listens net.Addr) *guard.Guard {
	g := guard.New(c.AllowTargets)
	if !c.CallsItself {
		protect(g, "the API of this replica", listens)
	}
	g.Protect("the database of this replica", db.Endpoints)
	return g
}

// protect forbids jobs to call the address of a listener.
func protect(g *guard.Guard, what string, listens net.Addr) {
	if tcp, ok := listens.(*net.TCPAddr); ok {
		at := []netip.AddrPort{tcp.AddrPort()}
		g.Protect(what, func() []netip.AddrPort { return at })
	}
}

// readCAs returns the system's certificate authorities and those in a file. Without a file it returns nil, which means
// the system's.
func readCAs(file string) (*x509.CertPool, error) {
	if file == "" {
		// The system's are read once. At the first handshake file descriptors might be lacking, and no target be trusted.
		_, _ = x509.SystemCertPool()
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--target-ca-file: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("--target-ca-file: reading the system's authorities: %w", err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--target-ca-file %s: %w", file, errNoCertificates)
	}
	return pool, nil
}

var errNoCertificates = errors.New("holds no certificate; it must be PEM, with lines of -----BEGIN CERTIFICATE-----")

// newMailer returns what sends e-mail; nil if nothing does.
func newMailer(c delivery.MailConfig, authorities *x509.CertPool) *delivery.Mailer {
	if c.Server == nil {
		return nil
	}
	c.RootCAs = authorities
	return delivery.NewMailer(c)
}

// FirstKey is the command that creates the first key of a deployment.
const FirstKey = "punctual keys create --tenant default --role operator --name first"

// CheckExposure returns an error if an API without authentication would listen where other machines can reach it,
// unless insecure allows that.
func CheckExposure(listen string, noAuth, insecure bool) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("--listen %q: write host:port, such as 127.0.0.1:8080", listen)
	}
	ip := net.ParseIP(host)
	if !noAuth || insecure || host == "localhost" || (ip != nil && ip.IsLoopback()) {
		return nil
	}
	return fmt.Errorf("--listen %s: without authentication only loopback addresses such as 127.0.0.1:8080 are allowed; "+
		"leave out --auth=none and create a key with `%s`, on the same database; "+
		"or give --insecure-no-auth: then every caller that can reach the address may do anything", listen, FirstKey)
}

// warn logs what callers and targets cannot do: reach this replica at its public address, and authenticate before there
// is a first key. It also warns of a lock table that is too small.
func (c Config) warn(ctx context.Context, db *store.Store, public string, reachable bool) {
	if !reachable {
		c.Log.Warn("targets of jobs with completion async get a callback URL that they cannot reach; give --public-url",
			"address", public)
	}
	db.WarnOfLocks(ctx)
	if c.NoAuth || c.SignIn.Issuer != "" {
		return
	}
	if found, err := db.Tenants.HasKeys(ctx); err == nil && !found {
		c.Log.Warn("no API key is valid, so no caller can use the API; create one in the same database", "command",
			FirstKey)
	}
}
