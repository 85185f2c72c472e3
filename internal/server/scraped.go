package server

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"punctual/httpapi"
	"punctual/scheduler/delivery/guard"
)

// mostScrapers is how many connections the address of the metrics may have open.
const mostScrapers = 64

// scraped is the address of the metrics' own. A nil one is none.
type scraped struct {
	listener net.Listener
	server   *http.Server
	done     chan struct{} // closed when server has ended
}

// listenForScrapes takes the address of the metrics, if there is to be one.
func listenForScrapes(c Config) (*scraped, error) {
	if c.MetricsListen == "" {
		return nil, nil
	}
	listener, err := listen("--metrics-listen", c.MetricsListen)
	if err != nil {
		return nil, err
	}
	return &scraped{listener: listener}, nil
}

// guard keeps jobs from calling the address: whoever may make a job may not read what all tenants do.
func (s *scraped) guard(g *guard.Guard) {
	if s == nil {
		return
	}
	if tcp, ok := s.listener.Addr().(*net.TCPAddr); ok {
		at := []netip.AddrPort{tcp.AddrPort()}
		g.Protect("the metrics of this replica", func() []netip.AddrPort { return at })
	}
}

// serve answers scrapes until Close. What the replica does does not depend on them.
func (s *scraped) serve(from prometheus.Gatherer, log *slog.Logger) {
	if s == nil {
		return
	}
	s.server, s.done = newServer(httpapi.MetricsOnly(from), log), make(chan struct{})
	go func() {
		defer close(s.done)
		_ = s.server.Serve(bounded(s.listener, mostScrapers, log)) // until it is closed
	}()
	log.Info("metrics ready, without authentication", "url", "http://"+s.listener.Addr().String()+"/metrics")
}

// Close gives the address up and cuts off what is being answered.
func (s *scraped) Close() error {
	if s == nil {
		return nil
	}
	if s.server == nil {
		return s.listener.Close()
	}
	err := s.server.Close()
	<-s.done
	return err
}
