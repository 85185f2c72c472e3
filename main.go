// Punctual is cron as a service on the Postgres you already have.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lmittmann/tint"

	"punctual/httpapi/bench"
	"punctual/httpapi/server"
	"punctual/migrations"
	"punctual/scheduler/cron"
	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/guard"
	"punctual/store"
	"punctual/store/vault"
)

// version is set by the linker.
var version = "dev"

//go:embed testdata/sample-jobs.json
var sampleJobs []byte

const description = `Cron as a service on the Postgres you already have: jobs are HTTP callbacks, replicas need no leader.

Try it:

    punctual dev

In production, once and then as often as you like:

    openssl rand -base64 32 > punctual.key
    punctual migrate --database-url postgres://…
    punctual keys create --tenant default --role operator --name first --database-url postgres://…
    punctual serve --database-url postgres://… --master-key-file punctual.key

Every flag can be given as an environment variable, PUNCTUAL_ and its name: PUNCTUAL_DRAIN_TIMEOUT=10s.`

// cli is the table of subcommands.
type cli struct {
	LogLevel  slog.Level `default:"info" help:"Least level that is logged: debug, info, warn or error."`
	LogFormat string     `default:"text" enum:"text,json" help:"Form of the log: text for people, json for machines."`

	Serve   serveCmd   `cmd:"" help:"Run a replica: scheduler and HTTP API on a Postgres of yours."`
	Dev     devCmd     `cmd:"" help:"Run a scheduler to try things with: private Postgres, sample jobs, an echo target."`
	Migrate migrateCmd `cmd:"" help:"Bring the database's schema up to date. Safe to run from several places at once."`
	Secrets secretsCmd `cmd:"" help:"Change the keys that secrets are encrypted with."`
	Verify  verifyCmd  `cmd:"" help:"Prove from the database that every slot became one run or a recorded skip. Read-only."`
	Bench   benchCmd   `cmd:"" help:"Measure throughput, lateness and cost, on a private Postgres or in an empty database of yours."`
	Keys    keysCmd    `cmd:"" help:"Make, list and revoke API keys, in the database itself: so the first one is made."`
	Tenants tenantsCmd `cmd:"" help:"Make, list, change and delete tenants, in the database itself."`
	Version versionCmd `cmd:"" help:"Show the version of the binary, its schema and its time zone data."`

	BenchTarget benchTargetCmd `cmd:"" hidden:"" help:"The target of punctual bench, in a process of its own."`
	BenchBare   benchBareCmd   `cmd:"" hidden:"" help:"The bare loop of punctual bench, in a process of its own."`
}

// database is how to reach Postgres.
type database struct {
	DatabaseURL string `required:"" env:"PUNCTUAL_DATABASE_URL,DATABASE_URL" placeholder:"postgres://…" help:"Postgres 15 or newer, direct or through PgBouncer: postgres://user:password@host:5432/database."`
}

// masterKey is what the keys of secrets are sealed with. Its value is no flag: others could read it in the list of processes.
type masterKey struct {
	MasterKeyFile string `type:"path" placeholder:"FILE" help:"File with the master key that secrets are encrypted under, the same on every replica: 32 bytes in base64, as 'openssl rand -base64 32' makes them. Further lines may hold earlier keys: any of them opens, the first seals. Or give its text in PUNCTUAL_MASTER_KEY."`
}

// read returns the master key; an error that says how to make one when none was given.
func (m masterKey) read() (*vault.Master, error) {
	from, text := "PUNCTUAL_MASTER_KEY", os.Getenv("PUNCTUAL_MASTER_KEY")
	if m.MasterKeyFile != "" {
		raw, err := os.ReadFile(m.MasterKeyFile)
		if err != nil {
			return nil, fmt.Errorf("--master-key-file: %w", err)
		}
		from, text = "--master-key-file "+m.MasterKeyFile, string(raw)
	}
	if text == "" && m.MasterKeyFile == "" {
		return nil, fmt.Errorf("--master-key-file: secrets are encrypted with a key that is not in the database, and none was given. "+
			"Make one with `%s > punctual.key`, keep it as you keep backups, and give it to every replica: --master-key-file punctual.key", vault.MakeMasterKey)
	}
	master, err := vault.ParseMaster(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return master, nil
}

// replica is what serve and dev have in common.
type replica struct {
	Listen           string         `default:"127.0.0.1:8080" help:"Address the HTTP API listens on."`
	PublicURL        string         `placeholder:"URL" help:"Where the targets of jobs with completion callback reach the API, such as https://punctual.internal. Default: where it listens, which is of use on one machine only."`
	Queues           map[string]int `default:"default=500" mapsep:"," help:"Worker slots of this replica by queue: default=500,critical=100."`
	DefaultJitter    time.Duration  `default:"10s" help:"Jitter of cron slots a minute or more apart whose job sets none. The same on every replica."`
	Retention        time.Duration  `default:"720h" help:"How long runs are kept, and how far back missed slots may still run. The same on every replica."`
	FailureRetention time.Duration  `placeholder:"2160h" help:"How long runs that did not succeed are kept. Default: three times --retention. The same on every replica."`
	AuditRetention   time.Duration  `default:"8760h" help:"How long entries of the audit log are kept, at least 720h. The same on every replica."`
	DrainTimeout     time.Duration  `default:"25s" help:"How long a stop waits for requests in flight before it interrupts them."`
	MaxConns         int32          `default:"16" help:"Most connections to the database."`
	AllowTargets     []network      `placeholder:"NETWORK,…" help:"Networks that jobs may call although they are not public, such as 10.0.0.0/8,fd00:7::/64. Public addresses need no permission; the API and the database of the replica itself get none. Single tenants may be allowed more. dev allows loopback and private networks besides."`
	EgressProxy      string         `placeholder:"URL" help:"Proxy that callbacks go through: http://user:password@host:3128. It must let CONNECT pass, also to port 80 for targets of http. The environment's HTTP_PROXY is not looked at."`
	TargetCAFile     string         `type:"path" placeholder:"FILE" help:"Certificate authorities, in PEM, that targets may have their certificates from, in addition to the system's."`
}

// network is a flag's network. Its zero value is none.
type network netip.Prefix

// UnmarshalText implements encoding.TextUnmarshaler for the flag parser.
func (n *network) UnmarshalText(text []byte) error {
	prefix, err := guard.ParseNetwork(string(text))
	*n = network(prefix)
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (n network) MarshalText() ([]byte, error) { return netip.Prefix(n).MarshalText() }

func (r replica) config(log *slog.Logger) server.Config {
	allowed := make([]netip.Prefix, len(r.AllowTargets))
	for i, n := range r.AllowTargets {
		allowed[i] = netip.Prefix(n)
	}
	var proxy *url.URL
	if r.EgressProxy != "" {
		proxy, _ = delivery.CheckProxy(r.EgressProxy) // Validate has seen to it
	}
	return server.Config{
		Listen: r.Listen, PublicURL: r.PublicURL, Queues: r.Queues, DefaultJitter: r.DefaultJitter, DrainTimeout: r.DrainTimeout, MaxConns: r.MaxConns, Version: version, Log: log,
		Retention: r.Retention, FailureRetention: r.FailureRetention, AuditRetention: r.AuditRetention,
		AllowTargets: allowed, EgressProxy: proxy, TargetCAFile: r.TargetCAFile,
	}
}

// queueName is as the database's constraint has it.
var queueName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// maxRetention is 100 years: more would be a slip of the pen.
const maxRetention = 100 * 366 * 24 * time.Hour

// Validate is called by the flag parser.
func (r replica) Validate() error {
	for _, name := range slices.Sorted(maps.Keys(r.Queues)) {
		if !queueName.MatchString(name) {
			return fmt.Errorf("--queues: %q: a queue's name is 1 to 64 letters, digits, dots, underscores and dashes", name)
		}
		if slots := r.Queues[name]; slots < 1 || slots > 100_000 {
			return fmt.Errorf("--queues: %s=%d: worker slots are 1 to 100000", name, slots)
		}
	}
	if r.PublicURL != "" {
		u, err := delivery.CheckURL(r.PublicURL)
		if err == nil && (u.RawQuery != "" || u.ForceQuery) {
			err = errors.New("must not have a query (?…), as paths are added to it")
		}
		if err != nil {
			return fmt.Errorf("--public-url: %w", err)
		}
	}
	if r.EgressProxy != "" {
		if _, err := delivery.CheckProxy(r.EgressProxy); err != nil {
			return fmt.Errorf("--egress-proxy: %w", err)
		}
	}
	switch {
	case len(r.Queues) == 0:
		return errors.New("--queues: name at least one queue, such as default=500")
	case r.DefaultJitter < 0 || r.DefaultJitter > time.Hour:
		return fmt.Errorf("--default-jitter: %s is outside 0s to 1h", r.DefaultJitter)
	case r.Retention < 24*time.Hour || r.Retention > maxRetention:
		return fmt.Errorf("--retention: %s is outside 24h to %s", r.Retention, maxRetention)
	case r.FailureRetention != 0 && (r.FailureRetention < r.Retention || r.FailureRetention > maxRetention):
		return fmt.Errorf("--failure-retention: %s is outside --retention (%s) to %s", r.FailureRetention, r.Retention, maxRetention)
	case r.AuditRetention < store.LeastAuditRetention || r.AuditRetention > maxRetention:
		return fmt.Errorf("--audit-retention: %s is outside %s to %s", r.AuditRetention, store.LeastAuditRetention, maxRetention)
	case r.DrainTimeout < 0 || r.DrainTimeout > time.Hour:
		return fmt.Errorf("--drain-timeout: %s is outside 0s to 1h", r.DrainTimeout)
	case r.MaxConns < 4 || r.MaxConns > 1000:
		return fmt.Errorf("--max-conns: %d is outside 4 to 1000", r.MaxConns)
	}
	return nil
}

type serveCmd struct {
	database
	masterKey
	replica
	authentication
	Migrate      bool          `help:"Bring the schema up to date first."`
	DatabaseWait time.Duration `default:"30s" help:"How long to wait at the start for a database that does not answer."`
}

// Validate is called by the flag parser.
func (c *serveCmd) Validate() error {
	if err := c.replica.Validate(); err != nil {
		return err
	}
	return c.authentication.Validate()
}

func (c *serveCmd) Run(ctx context.Context, log *slog.Logger) error {
	if err := server.CheckExposure(c.Listen, c.noAuth(), c.InsecureNoAuth); err != nil {
		return err
	}
	master, err := c.read()
	if err != nil {
		return err
	}
	config := c.config(log)
	config.NoAuth, config.OIDC = c.noAuth(), c.oidc()
	config.Master = master
	config.DatabaseURL, config.Migrate, config.DatabaseWait = c.DatabaseURL, c.Migrate, c.DatabaseWait
	config.OnlyLocal = c.Auth == "none" && !c.InsecureNoAuth
	return naming(server.Run(ctx, config))
}

// naming adds the flag to errors that its value is behind.
func naming(err error) error {
	var malformed *pgconn.ParseConfigError
	var unreachable *pgconn.ConnectError
	if errors.As(err, &malformed) || errors.As(err, &unreachable) {
		return fmt.Errorf("--database-url: %w", err)
	}
	if errors.Is(err, vault.ErrMaster) {
		return fmt.Errorf("--master-key-file: it is not the key that the secrets in this database are encrypted under, nor is any line of it: %w", err)
	}
	return err
}

type devCmd struct {
	replica
	Dir string `type:"path" placeholder:"DIR" help:"Data directory of the private Postgres. Default: punctual-dev in the user's cache directory, for root in /var/lib."`
}

func (c *devCmd) Run(ctx context.Context, log *slog.Logger) error {
	if err := server.CheckExposure(c.Listen, true, false); err != nil {
		return err
	}
	if c.Dir == "" {
		var err error
		if c.Dir, err = devDir(os.Geteuid()); err != nil {
			return err
		}
	}
	return server.RunDev(ctx, server.DevConfig{Config: c.config(log), Dir: c.Dir, Sample: sampleJobs, Out: os.Stdout})
}

// devDir is where the private Postgres of a user keeps its data. Root's runs as another user, who cannot
// enter root's home.
func devDir(uid int) (string, error) {
	if uid == 0 {
		return "/var/lib/punctual-dev", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("--dir: there is no cache directory to default to: %w", err)
	}
	return filepath.Join(cache, "punctual-dev"), nil
}

type migrateCmd struct{ database }

func (c *migrateCmd) Run(ctx context.Context, log *slog.Logger) error {
	applied, err := migrations.Up(ctx, c.DatabaseURL)
	for _, m := range applied {
		log.Info("migrated", "version", m.Version, "took", m.Duration.Round(time.Millisecond))
	}
	if err != nil {
		return naming(err)
	}
	log.Info("the schema is up to date", "version", migrations.Latest())
	return nil
}

type secretsCmd struct {
	Rotate rotateCmd `cmd:"" help:"Encrypt all secrets with a new data key, and drop the old one. Replicas go on meanwhile; may be interrupted and begun anew."`
}

type rotateCmd struct {
	database
	masterKey
	NewMasterKeyFile string `type:"path" placeholder:"FILE" help:"Seal the data keys with the first key of this file from now on. Give every replica a file with both keys before, and one with the new key alone after."`
}

func (c *rotateCmd) Run(ctx context.Context, log *slog.Logger) error {
	config := server.RotateConfig{DatabaseURL: c.DatabaseURL, Log: log}
	var err error
	if config.Master, err = c.read(); err != nil {
		return err
	}
	if c.NewMasterKeyFile != "" {
		if config.NewMaster, err = (masterKey{c.NewMasterKeyFile}).read(); err != nil {
			return fmt.Errorf("--new-master-key-file: %w", err)
		}
	}
	return naming(server.Rotate(ctx, config))
}

type verifyCmd struct {
	database
	From          string        `placeholder:"INSTANT" help:"First slot to look at, such as 2026-12-01T09:00:00Z. Default: 24 hours before the last one."`
	To            string        `placeholder:"INSTANT" help:"Last slot to look at. Default: now."`
	Job           string        `placeholder:"NAME|ID" help:"Only this job, deleted or not."`
	Tenant        string        `placeholder:"NAME" help:"Only this tenant's jobs."`
	Format        string        `default:"text" enum:"text,json" help:"Form of the report: text for people, json for machines, an object per line."`
	Grace         time.Duration `default:"1m" help:"How long a due slot may wait for its claim without being reported."`
	DefaultJitter time.Duration `default:"10s" help:"What the replicas have as their default jitter."`
}

// Run exits with 0 when all is well, 1 when it found violations and 2 when it could not look.
func (c *verifyCmd) Run(ctx context.Context, log *slog.Logger) error {
	if c.Grace < 0 || c.Grace > 24*time.Hour {
		return &server.VerifyError{Err: fmt.Errorf("--grace: %s is outside 0s to 24h", c.Grace)}
	}
	if c.DefaultJitter < 0 || c.DefaultJitter > time.Hour {
		return &server.VerifyError{Err: fmt.Errorf("--default-jitter: %s is outside 0s to 1h", c.DefaultJitter)}
	}
	config := server.VerifyConfig{
		DatabaseURL: c.DatabaseURL, From: c.From, To: c.To, Tenant: c.Tenant, Job: c.Job, Grace: max(c.Grace, 1), DefaultJitter: c.DefaultJitter,
		JSON: c.Format == "json", Out: os.Stdout, Log: log,
	}
	if terminal, err := os.Stderr.Stat(); err == nil && terminal.Mode()&os.ModeCharDevice != 0 {
		config.Progress = os.Stderr
	}
	return naming(server.Verify(ctx, config))
}

type benchCmd struct {
	DatabaseURL string        `placeholder:"postgres://…" help:"An empty database, reached directly; the schema punctual is made and removed again. Default: a private Postgres, which goes with the command."`
	Only        []string      `placeholder:"NAME,…" help:"Only these: ${benchmarks}."`
	Full        bool          `help:"The large sizes, up to 10 million jobs and 20 million runs: half an hour."`
	Rounds      int           `default:"3" help:"How often what is compared is measured; the median counts."`
	For         time.Duration `default:"1h" help:"How long the benchmark flat goes on, which runs only when named."`
	JSON        string        `name:"json" type:"path" placeholder:"FILE" help:"Also write all figures to a file, with every round and the surroundings."`
	Plots       string        `type:"path" placeholder:"DIR" help:"Also write plots to a directory."`
	River       string        `type:"path" placeholder:"PROGRAM" help:"Compare with River: a program that works as many jobs with it, such as make bench-river builds."`
}

// Run exits with 0 when it has measured, whether or not the figures reach their targets.
func (c *benchCmd) Run(ctx context.Context) error {
	if c.Rounds < 1 || c.Rounds > 100 {
		return fmt.Errorf("--rounds: %d is outside 1 to 100", c.Rounds)
	}
	if c.For < time.Minute || c.For > 30*24*time.Hour {
		return fmt.Errorf("--for: %s is outside 1m to 720h", c.For)
	}
	return bench.Run(ctx, bench.Config{
		DatabaseURL: c.DatabaseURL, Only: c.Only, Full: c.Full, Rounds: c.Rounds, For: c.For, JSON: c.JSON, Plots: c.Plots, River: c.River,
		Version: version, Out: os.Stdout, Notes: os.Stderr,
	})
}

type benchTargetCmd struct{}

func (benchTargetCmd) Run(ctx context.Context) error { return bench.Target(ctx) }

type benchBareCmd struct{ bench.BareConfig }

func (c *benchBareCmd) Run(ctx context.Context) error {
	c.Version = version
	return bench.Bare(ctx, c.BareConfig)
}

type versionCmd struct{}

func (versionCmd) Run() error {
	goVersion := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
	}
	_, err := fmt.Printf("punctual %s\nschema   %d\ntzdata   %s\ngo       %s\n", version, migrations.Latest(), cron.ZoneDataVersion(), strings.TrimPrefix(goVersion, "go"))
	return err
}

func main() {
	var c cli
	parsed := kong.Parse(&c, kong.Name("punctual"), kong.Description(description), kong.DefaultEnvars("PUNCTUAL"), kong.UsageOnError(),
		kong.Vars{"benchmarks": strings.Join(bench.Names(), ", ")},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}))
	log := newLog(c.LogLevel, c.LogFormat)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	parsed.BindTo(ctx, (*context.Context)(nil))
	if err := parsed.Run(log); err != nil {
		fmt.Fprintf(os.Stderr, "punctual: %v\n", err)
		stop()
		os.Exit(exitCode(err))
	}
}

// exitCode is 1 unless the error has one of its own.
func exitCode(err error) int {
	var coded kong.ExitCoder
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return 1
}

func newLog(level slog.Level, format string) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	}
	terminal, err := os.Stderr.Stat()
	plain := err != nil || terminal.Mode()&os.ModeCharDevice == 0 || os.Getenv("NO_COLOR") != ""
	return slog.New(tint.NewTextHandler(os.Stderr, &tint.Options{Level: level, TimeFormat: time.DateTime, NoColor: plain}))
}
