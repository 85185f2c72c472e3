// Package server puts one replica together: the database, the scheduler and the HTTP API. `punctual serve` and
// `punctual dev` run it.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"punctual/httpapi"
	"punctual/httpapi/auth"
	"punctual/httpapi/dashboard"
	"punctual/migrations"
	"punctual/scheduler"
	"punctual/scheduler/cron"
	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/freeze"
	"punctual/store/overview"
	"punctual/store/pg"
	"punctual/store/session"
)

// Config says how a replica runs.
type Config struct {
	// Store is the database, and what its rooms are told. Run adds what only a replica knows.
	Store         store.Options
	Listen        string
	MetricsListen string // a separate address for the metrics, without authentication; empty: none
	JobMetrics    store.JobMetricsConfig
	PublicURL     string            // the address at which targets reach the API; empty: where it listens
	TraceRatio    float64           // see domain.Origin
	OnTime        time.Duration     // a first request is on time until then; 0: a second
	WatchdogURL   string            // is called each minute while due work is claimed; empty: none
	NoAuth        bool              // callers of the API need not authenticate
	NoDashboard   bool              // serve the API only, without the pages for people
	SignIn        auth.SignInConfig // the issuer whose tokens are accepted, too; with a ClientID, people sign in there
	Migrate       bool              // migrate the schema first
	Queues        map[string]int    // worker slots by queue; none: the replica serves the API only
	Frozen        bool              // freeze the deployment before anything is claimed
	DrainTimeout  time.Duration
	ShutdownGrace time.Duration   // how long a stopping replica answers, so that load balancers notice; see departure
	Hurry         context.Context // ends when a stop must wait for nothing any more; nil: never
	DatabaseWait  time.Duration   // how long each step of the start waits for a database that cannot be used: see insist
	AllowTargets  []netip.Prefix  // networks that all jobs may call although they are not public
	EgressProxy   *url.URL        // the proxy for callbacks; nil: none
	// TargetCAFile is a PEM file of certificate authorities that targets may use beside the system's.
	TargetCAFile string
	Mail         delivery.MailConfig // how e-mail is sent; without a server: none is
	CallsItself  bool                // jobs may call the address at which the API listens
	// OnlyLocal makes the API answer only requests that name this machine or PublicURL as their host, because callers do
	// not authenticate.
	OnlyLocal bool
	Version   string
	Log       *slog.Logger

	// Wrap puts another handler around the API. Ready is called with the base URL of the API once it is served. Finished
	// is called for every attempt whose outcome has been written, from any goroutine. `punctual dev` uses all three.
	Wrap     func(http.Handler) http.Handler
	Ready    func(url string)
	Finished func([]domain.Outcome)
}

// Run serves until ctx ends, then drains the scheduler, stops the API and returns. A draining replica is not ready, but
// keeps answering until it stops, and at least for the grace.
func Run(ctx context.Context, c Config) error {
	if c.Hurry == nil {
		c.Hurry = context.WithoutCancel(ctx)
	}
	listener, err := listen("--listen", c.Listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	scraped, err := listenForScrapes(c)
	if err != nil {
		return err
	}
	defer scraped.Close()
	authorities, err := readCAs(c.TargetCAFile)
	if err != nil {
		return err
	}
	defer paceCollections()()
	registry := prometheus.NewRegistry()
	metrics := scheduler.NewMetrics(registry, cmp.Or(c.OnTime, time.Second))
	public, reachable := publicURL(c, listener.Addr())
	if reachable {
		c.Store.PublicURL = public
	}
	origin := domain.Origin{PublicURL: public, TraceRatio: c.TraceRatio}
	tracer, err := newTracer(ctx, c, origin, registry)
	if err != nil {
		return err
	}
	c.Store.Tracer = tracer
	db, err := openStore(ctx, c, metrics)
	if err != nil {
		return err
	}
	defer db.Close()
	defer tracer.Start(db.Runs)()
	register(registry, c, db, metrics)
	guardian := newGuard(c, db, listener.Addr())
	scraped.guard(guardian)
	client := delivery.New(delivery.Config{
		UserAgent: "punctual/" + c.Version, Guard: guardian, RootCAs: authorities, Proxy: c.EgressProxy,
	})
	defer client.Close()
	c.warn(ctx, db, public, reachable)
	most := mostRequests(c.Log, mostDescriptors(), c.Queues, int(c.Store.MaxConns))
	mailer := newMailer(c.Mail, authorities)
	leaving := newDeparture()
	shortages, vitals := new(scheduler.Shortages), new(scheduler.Vitals)
	transport := scheduler.NewTransport(db.Secrets, client, mailer, origin)
	handler, err := newAPI(c, origin, db, registry, guardian, transport, mailer,
		both(leaving.ready, sound(vitals)), shortages)
	if err != nil {
		return err
	}
	api := serveAPI(ctx, c, listener, leaving.closing(handler), shortages)
	defer api.stop()
	scraped.serve(registry, c.Log)
	defer time.AfterFunc(settled, debug.FreeOSMemory).Stop()
	if c.Ready != nil {
		c.Ready(api.url)
	}
	drained := leaving.follow(ctx, c, api)
	host, _ := os.Hostname() // shown to people only
	err = scheduler.Run(api.running, db.Replicas, scheduler.Config{
		Queues: c.Queues, MostRequests: most, DrainTimeout: c.DrainTimeout, Hurry: c.Hurry, Client: client,
		Again:  c.patience(),
		Mailer: mailer, Host: host, Version: c.Version, Log: c.Log, Origin: origin, Metrics: metrics, Finished: c.Finished,
		Credentials: db.Secrets, Chores: append(db.Chores(), watchdog(c, db, claimsSince(metrics, vitals))...),
		Notices: db.Notices, Shortages: shortages, Vitals: vitals, Tracer: tracer,
	})
	api.stop()
	drained()
	return errors.Join(err, api.failure())
}

// register registers what is measured of the process and of the database.
func register(registry *prometheus.Registry, c Config, db *store.Store, metrics *scheduler.Metrics) {
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		store.Collector{Store: db, Punctuality: metrics.Punctuality}, zoneDataGauge())
	if len(c.JobMetrics.Selectors) > 0 {
		registry.MustRegister(store.NewJobMetrics(db, c.JobMetrics))
	}
}

// zoneDataGauge tells the release of the time zone data and its age: time() minus its value.
func zoneDataGauge() prometheus.Collector {
	zones := cron.Zones()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "punctual_zone_data_published_timestamp_seconds",
		Help:        "When the time zone data in use was published, in seconds since 1970.",
		ConstLabels: prometheus.Labels{"release": zones.Release},
	}, func() float64 { return float64(zones.Published.Unix()) })
}

// served is the API of a replica while it is served.
type served struct {
	*http.Server
	url     string
	running context.Context // ends when the context of the replica ends, or when the API has failed
	stop    context.CancelFunc
	failed  chan error
}

// serveAPI begins to serve the API.
func serveAPI(
	ctx context.Context, c Config, listener net.Listener, handler http.Handler, shortages *scheduler.Shortages,
) *served {
	a := &served{
		Server: newServer(handler, c.Log),
		url:    "http://" + listener.Addr().String(),
		failed: make(chan error, 1),
	}
	a.running, a.stop = context.WithCancel(ctx)
	go func() {
		accepting := bounded(listener, apiConnections(mostDescriptors()), c.Log, shortages)
		if err := a.Serve(accepting); !errors.Is(err, http.ErrServerClosed) {
			a.failed <- fmt.Errorf("serving the API: %w", err)
			a.stop()
		}
	}()
	c.Log.Info("API ready", "url", a.url)
	return a
}

// failure returns why the API has failed; nil if it has not.
func (a *served) failure() error {
	select {
	case err := <-a.failed:
		return err
	default:
		return nil
	}
}

// newAPI returns the handler of the API. It is not ready while ready says why.
func newAPI(
	c Config, origin domain.Origin, db *store.Store, registry *prometheus.Registry, guardian *guard.Guard,
	transport *scheduler.Transport, mailer *delivery.Mailer, ready func(context.Context) error,
	shortages *scheduler.Shortages,
) (http.Handler, error) {
	pages, err := newPages(c, db)
	if err != nil {
		return nil, err
	}
	api, err := httpapi.NewHandler(httpapi.Config{
		Store: db, Log: c.Log, Version: c.Version, Gatherer: registry, Registerer: registry,
		DefaultJitter: c.Store.DefaultJitter, NoAuth: c.NoAuth, OIDC: c.SignIn.OIDC, Guard: guardian,
		OnlyLocal: c.OnlyLocal, PublicHost: publicHost(c.PublicURL), Origin: origin, Transport: transport, Mailer: mailer,
		Ready: ready, Lacks: shortages.Lacks, Pages: pages,
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the API: %w", err)
	}
	if c.Wrap != nil {
		return c.Wrap(api), nil
	}
	return api, nil
}

// newPages returns the pages for people; nil if there are none.
func newPages(c Config, db *store.Store) (httpapi.Pages, error) {
	if c.NoDashboard {
		return nil, nil
	}
	pages, err := dashboard.New(dashboard.Config{
		Log: c.Log, Version: c.Version, NoAuth: c.NoAuth, Sessions: db.Secrets,
		Secure: strings.HasPrefix(c.PublicURL, "https://"),
		SignIn: newSignIn(c),
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the pages: %w", err)
	}
	return pages, nil
}

// newSignIn returns what signs people in at the issuer; nil if that is off.
func newSignIn(c Config) *auth.SignIn {
	if c.SignIn.ClientID == "" {
		return nil
	}
	c.SignIn.Log = c.Log
	c.SignIn.RedirectURL = strings.TrimRight(c.PublicURL, "/") + auth.RedirectPath
	return auth.NewSignIn(c.SignIn)
}

// publicURL returns the address to which targets are told to call back, and to which notices link. A replica that
// listens on all addresses cannot know at which of them it is reached, so --public-url must say so.
func publicURL(c Config, listens net.Addr) (address string, reachable bool) {
	if c.PublicURL != "" {
		return strings.TrimRight(c.PublicURL, "/"), true
	}
	tcp, ok := listens.(*net.TCPAddr)
	return "http://" + listens.String(), !ok || !tcp.IP.IsUnspecified()
}

// publicHost returns the host of a public URL; empty without one.
func publicHost(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

func listen(flag, address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s %s: the port is taken by another process; stop it or choose another port", flag, address)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, address, err)
	}
	return listener, nil
}

// openStore connects, migrates if asked to, and checks that the schema fits.
func openStore(ctx context.Context, c Config, metrics *scheduler.Metrics) (*store.Store, error) {
	c.Store.Replica, c.Store.Log, c.Store.Pages, c.Store.Version = true, c.Log, !c.NoDashboard, c.Version
	c.Store.Ended = func(outcomes []domain.Outcome) {
		metrics.Ended(outcomes)
		if c.Finished != nil {
			c.Finished(outcomes)
		}
	}
	var db *store.Store
	if err := c.insist(ctx, func() (err error) {
		db, err = store.Open(ctx, c.Store)
		return err
	}); err != nil {
		return nil, err
	}
	db.Overview.SetAge(overview.BoardAge)
	for _, step := range []func(context.Context, Config, *store.Store) error{migrate, prepare} {
		if err := c.insist(ctx, func() error { return step(ctx, c, db) }); err != nil {
			db.Close()
			return nil, err
		}
	}
	return db, nil
}

func migrate(ctx context.Context, c Config, _ *store.Store) error {
	if !c.Migrate {
		return nil
	}
	applied, err := migrations.UpOn(ctx, session.Database{URL: c.Store.DatabaseURL, PasswordFile: c.Store.PasswordFile})
	for _, m := range applied {
		c.Log.Info("schema migrated", "version", m.Version, "took", m.Duration)
	}
	return err
}

// prepare checks that the schema and the database fit, and writes what a replica needs.
func prepare(ctx context.Context, c Config, db *store.Store) error {
	if err := db.CheckSchema(ctx); err != nil {
		return err
	}
	if _, err := db.Backstop(ctx); err != nil {
		return err
	}
	if err := db.CheckTenants(ctx); err != nil {
		return err
	}
	if err := db.Secrets.OpenVault(ctx); err != nil {
		return err
	}
	if err := db.Secrets.OpenPayloads(ctx, c.Store.Sealed); err != nil {
		return err
	}
	if _, err := db.Days.Ensure(ctx, db.Pool()); err != nil {
		if _, locked := pg.LockedOut(err); !locked {
			return err
		}
		// Most days are there, as they are made ahead.
		c.Log.Warn("partitions cannot be made, because another session has locked their tables; trying again each minute",
			"error", err)
	}
	if err := db.Archives.Begin(ctx); err != nil {
		return err
	}
	return db.Freezes.Begin(ctx, freeze.Start{Dispatches: len(c.Queues) > 0, Freeze: c.Frozen})
}
