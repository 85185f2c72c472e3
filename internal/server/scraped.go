package server

import (
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"punctual/httpapi"
	"punctual/scheduler"
	"punctual/scheduler/delivery/guard"
)

// mostScrapers is how many connections may be open to the metrics' own address.
const mostScrapers = 64

// scraped serves the metrics at an address of their own. It is nil if they have none.
type scraped struct {
	listener net.Listener
	server   *http.Server
	done     chan struct{} // closed when the server has ended
}

// listenForScrapes listens at the metrics' own address, if one is configured.
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

// guard forbids jobs to call this address: a user who may create jobs must not read the metrics of all tenants.
func (s *scraped) guard(g *guard.Guard) {
	if s != nil {
		protect(g, "the metrics of this replica", s.listener.Addr())
	}
}

// serve answers scrapes until Close. The replica works on even if this fails.
func (s *scraped) serve(from prometheus.Gatherer, log *slog.Logger) {
	if s == nil {
		return
	}
	s.server, s.done = newServer(httpapi.MetricsOnly(from), log), make(chan struct{})
	go func() {
		defer close(s.done)
		_ = s.server.Serve(bounded(s.listener, mostScrapers, log, new(scheduler.Shortages))) // until Close
	}()
	log.Info("metrics ready, without authentication", "url", "http://"+s.listener.Addr().String()+"/metrics")
}

// Close stops listening and cuts off scrapes in progress.
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
