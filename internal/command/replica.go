package command

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	netmail "net/mail"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"punctual/httpapi"
	"punctual/internal/server"
	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/delivery/wire"
	"punctual/store"
	"punctual/store/audit"
	"punctual/store/pg"
)

// replica holds the flags that serve and dev share.
type replica struct {
	zoneData
	Listen           string         `default:"127.0.0.1:8080" help:"Address the HTTP API listens on."`
	MetricsListen    string         `placeholder:"HOST:PORT" help:"Second address, which serves /metrics and /healthz without a key. Use one on loopback or in a private network. Default: none. On the API's address, /metrics needs a key with the role metrics."`
	JobMetrics       []selector     `sep:"none" placeholder:"LABEL=VALUE,…" help:"Jobs that get their own series in /metrics: a job must have all of these labels. Repeat the flag to select further jobs. Default: none."`
	JobMetricsMax    int            `default:"1000" help:"Most jobs with their own series. The oldest jobs come first; punctual_job_metrics_left_out counts the jobs left out."`
	PublicURL        string         `placeholder:"URL" help:"URL at which targets of jobs with completion async reach the API, and people the pages, such as https://punctual.internal. Default: the address of --listen, which works only on the same machine."`
	Queues           map[string]int `default:"default=500" mapsep:"," help:"Concurrency of this replica by queue, the most requests at a time: default=500,critical=100."`
	DefaultJitter    time.Duration  `default:"1s" help:"Jitter of cron slots a minute or more apart whose job sets none. The same on every replica."`
	Retention        time.Duration  `default:"720h" help:"How long runs are kept, and how far back missed slots may still run. The same on every replica."`
	FailureRetention time.Duration  `placeholder:"2160h" help:"How long runs that did not succeed are kept. Default: three times --retention. The same on every replica."`
	AuditRetention   time.Duration  `default:"8760h" help:"How long entries of the audit log are kept, at least 720h. The same on every replica."`
	EncryptPayloads  bool           `help:"Encrypt the bodies, results, responses and reported errors of jobs and runs in the database, with the master key. Earlier data stays as it is. SQL no longer sees what is encrypted. The same on every replica."`
	MaxKeyAge        time.Duration  `placeholder:"2160h" help:"How long a new API key may work, at least 1h. A tenant may have a lower limit. Earlier keys stay as they are. Default: no limit. The same on every replica."`
	NoDashboard      bool           `help:"Serve the API only, without the pages for people at /."`
	TraceRatio       float64        `default:"1" placeholder:"RATIO" help:"Share of runs, from 0 to 1, whose traces are sampled: their requests carry a traceparent flagged as sampled, and their spans are exported if OTEL_EXPORTER_OTLP_ENDPOINT names a collector. The same on every replica."`
	OnTime           time.Duration  `default:"1s" help:"How long after it was due a run's first request may be sent to count as on time in punctual_on_time_total."`
	WatchdogURL      string         `placeholder:"URL" help:"URL that one of the replicas calls by GET each minute while they claim due work, such as a check of Healthchecks or a heartbeat of Cronitor. That service alerts you when the calls stop. Default: none. The same on every replica."`
	NoticeLabels     []string       `placeholder:"NAME,…" help:"Labels of jobs that notices carry, such as team,service. In Alertmanager they are labels of the alert: name labels that seldom change, as an alert that fires is only resolved with the labels that it had. Default: none. The same on every replica."`
	DrainTimeout     time.Duration  `default:"25s" help:"How long a stop waits for requests in flight before it interrupts them."`
	MaxConns         int32          `default:"16" help:"Most connections to the database, at least 10. Two serve heartbeats. Half of the others (4 to 8) serve claims and outcomes. A quarter of the rest serves chores. The API gets what is left."`
	AllowTargets     []network      `placeholder:"NETWORK,…" help:"Non-public networks that jobs may call, such as 10.0.0.0/8,fd00:7::/64. Public addresses are always allowed; the replica's own API and database never are. A tenant may have further networks. dev also allows loopback and private networks."`
	EgressProxy      string         `placeholder:"URL" help:"HTTP proxy for callbacks: http://user:password@host:3128. It must allow CONNECT, for http targets also to port 80. The variable HTTP_PROXY is ignored."`
	TargetCAFile     string         `type:"path" placeholder:"FILE" help:"PEM file of certificate authorities to trust for targets, in addition to the system's."`
}

// mail holds the flags that say how notices go out by e-mail.
type mail struct {
	SMTPURL          string   `name:"smtp-url" placeholder:"URL" help:"Mail server for notices of format email: smtp://user@host:587 (STARTTLS is required, unless the host is localhost or the URL ends with ?starttls=off) or smtps://user@host:465. Its certificate may be of an authority in the CA file of targets. Default: none; no e-mail is sent."`
	SMTPPasswordFile string   `name:"smtp-password-file" type:"path" placeholder:"FILE" help:"File with the password of the user in the URL of the mail server."`
	SMTPFrom         string   `name:"smtp-from" placeholder:"ADDRESS" help:"Sender of e-mail, such as 'Punctual <punctual@example.com>'. Required with a mail server."`
	SMTPHello        string   `name:"smtp-hello" placeholder:"NAME" help:"Name by which the mail server is greeted (EHLO): a full host name, or an address in brackets. Default: the sender's domain."`
	SMTPAllowDomains []string `name:"smtp-allow-domains" placeholder:"DOMAIN,…" help:"Domains that tenants may have e-mail sent to; * for any. Default: the sender's domain."`
}

// config returns how e-mail is sent. It reads the password.
func (m mail) config() (c delivery.MailConfig, err error) {
	if m.SMTPURL == "" {
		if m.SMTPFrom+m.SMTPPasswordFile+m.SMTPHello != "" || len(m.SMTPAllowDomains) > 0 {
			return c, errors.New("--smtp-from, --smtp-password-file, --smtp-hello and --smtp-allow-domains need --smtp-url")
		}
		return c, nil
	}
	if c.Server, err = wire.CheckMailServer(m.SMTPURL); err != nil {
		return c, fmt.Errorf("--smtp-url: %w", err)
	}
	c.From, err = netmail.ParseAddress(m.SMTPFrom)
	if err == nil {
		err = wire.CheckMailbox(c.From.Address)
	}
	if err != nil {
		return c, fmt.Errorf("--smtp-from %q: must be an address, such as punctual@example.com, or a name and an address "+
			"in angle brackets", m.SMTPFrom)
	}
	for _, d := range m.SMTPAllowDomains {
		if d != "*" && wire.CheckMailbox("a@"+d) != nil {
			return c, fmt.Errorf("--smtp-allow-domains: %q is neither a domain, such as example.com, nor *", d)
		}
	}
	c.Domains, c.Hello = m.SMTPAllowDomains, m.SMTPHello
	if !isHello(c.Hello) {
		return c, fmt.Errorf("--smtp-hello: %q is neither a full host name, such as jobs.example.com, nor an address in "+
			"brackets, such as [192.0.2.1]", c.Hello)
	}
	if m.SMTPPasswordFile == "" {
		return c, nil
	}
	raw, err := os.ReadFile(m.SMTPPasswordFile)
	if err != nil {
		return c, fmt.Errorf("--smtp-password-file: %w", err)
	}
	if c.Password = strings.TrimRight(string(raw), "\r\n"); c.Password == "" || c.Server.User.Username() == "" {
		return c, fmt.Errorf("--smtp-password-file %s: write the password into it, and the user into --smtp-url",
			m.SMTPPasswordFile)
	}
	return c, nil
}

// isHello reports whether a mail server may be greeted by a name; the empty one stands for the default.
func isHello(name string) bool {
	if literal, is := strings.CutPrefix(name, "["); is {
		_, err := netip.ParseAddr(strings.TrimPrefix(strings.TrimSuffix(literal, "]"), "IPv6:"))
		return err == nil && strings.HasSuffix(literal, "]")
	}
	return name == "" || wire.CheckMailbox("a@"+name) == nil
}

// network is a network that a flag names. Its zero value is no network.
type network netip.Prefix

// UnmarshalText implements encoding.TextUnmarshaler for the flag parser.
func (n *network) UnmarshalText(text []byte) error {
	prefix, err := guard.ParseNetwork(string(text))
	*n = network(prefix)
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (n network) MarshalText() ([]byte, error) { return netip.Prefix(n).MarshalText() }

// mostJobMetrics limits what one refresh may cost the database, and how long a scrape may get: each job has three
// series.
const mostJobMetrics = 10_000

// selector is a flag's set of labels. A job must have all of them.
type selector map[string]string

// UnmarshalText implements encoding.TextUnmarshaler for the flag parser.
func (s *selector) UnmarshalText(text []byte) error {
	*s = selector{}
	for pair := range strings.SplitSeq(string(text), ",") {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return fmt.Errorf("%q: write a label as name=value, such as team=billing; "+
				"separate several labels, all of which a job must have, with commas", pair)
		}
		if other, twice := (*s)[name]; twice && other != value {
			return fmt.Errorf("%q asks for two values of the label %s, a job has only one; repeat the flag for either", text,
				name)
		}
		(*s)[name] = value
	}
	return nil
}

func (r replica) config(log *slog.Logger, version Version) server.Config {
	allowed := pg.Column(r.AllowTargets, func(n network) netip.Prefix { return netip.Prefix(n) })
	selectors := pg.Column(r.JobMetrics, func(s selector) map[string]string { return s })
	var proxy *url.URL
	if r.EgressProxy != "" {
		proxy, _ = delivery.CheckProxy(r.EgressProxy) // Validate has checked it
	}
	return server.Config{
		Store: store.Options{
			DefaultJitter: r.DefaultJitter, MaxConns: r.MaxConns,
			Retention: r.Retention, FailureRetention: r.FailureRetention, AuditRetention: r.AuditRetention,
			NoticeLabels: r.NoticeLabels, MaxKeyAge: r.MaxKeyAge, Sealed: r.EncryptPayloads,
		},
		Listen: r.Listen, PublicURL: r.PublicURL, TraceRatio: r.TraceRatio, NoDashboard: r.NoDashboard,
		Queues: r.Queues, WatchdogURL: r.WatchdogURL, OnTime: r.OnTime,
		DrainTimeout: r.DrainTimeout, Version: string(version), Log: log,
		AllowTargets: allowed, EgressProxy: proxy, TargetCAFile: r.TargetCAFile,
		MetricsListen: r.MetricsListen, JobMetrics: store.JobMetricsConfig{Selectors: selectors, Max: r.JobMetricsMax},
	}
}

// queueName is the same pattern as in the database's constraint.
var queueName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// maxRetention is 100 years: anything longer is a typing error.
const maxRetention = 100 * 366 * 24 * time.Hour

// Validate is called by the flag parser.
func (r replica) Validate() error {
	for _, name := range slices.Sorted(maps.Keys(r.Queues)) {
		if !queueName.MatchString(name) {
			return fmt.Errorf("--queues: %q: a queue's name is 1 to 64 letters, digits, dots, underscores and dashes", name)
		}
		if slots := r.Queues[name]; slots < 1 || slots > 100_000 {
			return fmt.Errorf("--queues: %s=%d: a concurrency is 1 to 100000", name, slots)
		}
	}
	if r.PublicURL != "" {
		u, err := wire.CheckURL(r.PublicURL)
		if err == nil && (u.RawQuery != "" || u.ForceQuery) {
			err = errors.New("must not have a query (?…), as paths are added to it")
		}
		if err != nil {
			return fmt.Errorf("--public-url: %w", err)
		}
	}
	if r.WatchdogURL != "" {
		if _, err := wire.CheckURL(r.WatchdogURL); err != nil {
			return fmt.Errorf("--watchdog-url: %w", err)
		}
	}
	if r.EgressProxy != "" {
		if _, err := delivery.CheckProxy(r.EgressProxy); err != nil {
			return fmt.Errorf("--egress-proxy: %w", err)
		}
	}
	if r.MetricsListen != "" {
		if _, _, err := net.SplitHostPort(r.MetricsListen); err != nil {
			return fmt.Errorf("--metrics-listen %q: write host:port, such as 127.0.0.1:9464", r.MetricsListen)
		}
	}
	if len(r.Queues) == 0 {
		return errors.New("--queues: name at least one queue, such as default=500")
	}
	metrics, age := r.JobMetricsMax, r.MaxKeyAge
	return cmp.Or(
		within(metrics >= 1 && metrics <= mostJobMetrics, "--job-metrics-max", metrics, "1 to %d", mostJobMetrics),
		within(r.TraceRatio >= 0 && r.TraceRatio <= 1, "--trace-ratio", r.TraceRatio, "0 to 1"), // NaN is not
		within(r.OnTime >= time.Millisecond && r.OnTime <= time.Hour, "--on-time", r.OnTime, "1ms to 1h"),
		within(r.DefaultJitter >= 0 && r.DefaultJitter <= time.Hour, "--default-jitter", r.DefaultJitter, "0s to 1h"),
		within(r.Retention >= 24*time.Hour && r.Retention <= maxRetention, "--retention", r.Retention, "24h to %s",
			maxRetention),
		within(r.FailureRetention == 0 || r.FailureRetention >= r.Retention && r.FailureRetention <= maxRetention,
			"--failure-retention", r.FailureRetention, "--retention (%s) to %s", r.Retention, maxRetention),
		within(r.AuditRetention >= audit.LeastRetention && r.AuditRetention <= maxRetention, "--audit-retention",
			r.AuditRetention, "%s to %s", audit.LeastRetention, maxRetention),
		within(age == 0 || age >= httpapi.LeastKeyAge && age <= maxRetention, "--max-key-age", age, "%s to %s",
			httpapi.LeastKeyAge, maxRetention),
		within(r.DrainTimeout >= 0 && r.DrainTimeout <= time.Hour, "--drain-timeout", r.DrainTimeout, "0s to 1h"),
		within(r.MaxConns >= pg.LeastConns && r.MaxConns <= 1000, "--max-conns", r.MaxConns, "%d to 1000", pg.LeastConns),
	)
}
