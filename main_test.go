package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/internal/process"
	"punctual/internal/prove"
	"punctual/internal/server"
	"punctual/migrations"
)

func TestMain(m *testing.M) {
	code := m.Run()
	prove.RemoveBinaries()
	os.Exit(code)
}

// patience bounds how long a command may take on a busy machine, without the time to build the binary.
const patience = 2 * time.Minute

func binary(t *testing.T) string {
	t.Helper()
	path, err := prove.Build(t.Context(), prove.Variant{})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// bounded returns a context that ends when a wait has taken too long. It builds the binary first.
func bounded(t *testing.T) context.Context {
	t.Helper()
	binary(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// punctual runs the binary to its end, and returns its exit code and output.
func punctual(t *testing.T, env []string, args ...string) (code int, output string) {
	t.Helper()
	p := launch(t, env, args...)
	return wait(t, p)
}

func launch(t *testing.T, env []string, args ...string) *process.Process {
	t.Helper()
	p, err := process.Launch(binary(t), env, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func wait(t *testing.T, p *process.Process) (code int, output string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	code, err := p.Wait(ctx)
	if err != nil {
		t.Fatalf("%v; it said:\n%s", err, p.Output())
	}
	return code, p.Output()
}

// says checks that an output contains all the fragments.
func says(t *testing.T, output string, fragments ...string) {
	t.Helper()
	for _, f := range fragments {
		if !strings.Contains(output, f) {
			t.Errorf("it does not say %q:\n%s", f, output)
		}
	}
}

func TestHelpTeaches(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want []string
	}{
		{
			[]string{"--help"},
			[]string{
				"punctual dev", "punctual migrate --database-url", "punctual serve --database-url", "environment variable",
				"exit status", "version",
			},
		},
		{
			[]string{"serve", "--help"},
			[]string{
				"--database-url", "DATABASE_URL", "--listen", "127.0.0.1:8080", "--drain-timeout", "--shutdown-grace", "--migrate",
				"--queues", "--auth", "--insecure-no-auth", "--oidc-issuer", "--oidc-client-id", "--allow-targets", "10.0.0.0/8", "--egress-proxy",
				"--target-ca-file", "--metrics-listen", "--job-metrics", "--job-metrics-max", "--master-key-file",
				"openssl rand -base64 32", "PUNCTUAL_MASTER_KEY",
			},
		},
		{[]string{"jobs", "--help"}, []string{"list", "show", "apply", "pause", "resume", "run", "delete"}},
		{
			[]string{"jobs", "apply", "--help"},
			[]string{"JSON", "YAML", "--api-url", "127.0.0.1:8080", "--api-key-file", "PUNCTUAL_API_KEY", "--tenant"},
		},
		{[]string{"keys", "--help"}, []string{"create", "list", "revoke"}},
		{
			[]string{"keys", "create", "--help"},
			[]string{"--tenant", "--role", "--name", "--expires", "stdout", "DATABASE_URL"},
		},
		{
			[]string{"tenants", "set", "--help"},
			[]string{"--max-jobs", "--max-requests-per-second", "--min-interval", "--allowed-targets", "none"},
		},
		{
			[]string{"secrets", "rotate", "--help"},
			[]string{"--database-url", "--master-key-file", "--new-master-key-file", "both keys"},
		},
		{[]string{"dev", "--help"}, []string{"--dir", "--listen"}},
		{[]string{"migrate", "--help"}, []string{"--database-url", "DATABASE_URL", "several"}},
		{[]string{"verify", "--help"}, []string{"--from", "--to", "--job", "24 hours", "Read-only"}},
		{
			[]string{"bench", "--help"},
			[]string{"--database-url", "empty", "private Postgres", "burst, steady", "--json", "--rounds"},
		},
		{[]string{"version", "--help"}, []string{"time zone data"}},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			code, out := punctual(t, nil, test.args...)
			if code != 0 {
				t.Errorf("exit code %d", code)
			}
			says(t, out, test.want...)
		})
	}
}

func TestBenchIsReachableAndNotShown(t *testing.T) {
	t.Parallel()
	if _, out := punctual(t, nil, "--help"); strings.Contains(out, "bench") {
		t.Errorf("bench is listed:\n%s", out)
	}
	code, out := punctual(t, nil, "bench", "--only=burst,speed")
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	says(t, out, `--only: "speed" is none of the benchmarks burst, steady`)
}

func TestEveryFlagHasAnEnvironmentVariable(t *testing.T) {
	t.Parallel()
	// Matches a flag and its help, up to the next flag.
	flag := regexp.MustCompile(`(?s)\n {2,}(?:-\w, +| {4})?--(?:\[no-\])?([a-z-]+)(.*?)` +
		`(?:\n {2,}(?:-\w, +| {4})?--|\n\n|$)`)
	for _, command := range []string{"serve", "dev", "migrate", "verify", "bench"} {
		_, out := punctual(t, nil, command, "--help")
		seen := 0
		for rest := out; ; {
			m := flag.FindStringSubmatchIndex(rest)
			if m == nil {
				break
			}
			name, help := rest[m[2]:m[3]], rest[m[4]:m[5]]
			seen++
			if want := "PUNCTUAL_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")); name != "help" &&
				!strings.Contains(help, want) {
				t.Errorf("%s --%s does not name %s: %s", command, name, want, help)
			}
			rest = rest[m[5]:]
		}
		if seen < 3 {
			t.Errorf("only %d flags were found in:\n%s", seen, out)
		}
	}
	code, out := punctual(t,
		[]string{"PUNCTUAL_LISTEN=0.0.0.0:1", "PUNCTUAL_AUTH=none", "PUNCTUAL_DATABASE_URL=postgres:///x"}, "serve")
	if code == 0 {
		t.Error("PUNCTUAL_LISTEN was not read")
	}
	says(t, out, "--listen 0.0.0.0:1")
}

func TestVersionNamesAllThatMatters(t *testing.T) {
	t.Parallel()
	code, out := punctual(t, nil, "version")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	says(t, out, "punctual "+prove.BinaryVersion, fmt.Sprintf("schema   %d", migrations.Latest()), "tzdata   20")
}

func TestWrongUseIsAnErrorThatSaysWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	dsn := pgtest.DSN(t)
	postgres := pgtest.Server(t)
	wrongPassword, err := url.Parse(postgres.TCP("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	wrongPassword.User = url.UserPassword(wrongPassword.User.Username(), "not-the-password")
	noDatabase := postgres.DSN("nowhere")

	const example = "postgres://"
	for _, test := range []struct {
		name string
		dsn  string // for DATABASE_URL, unless empty
		args []string
		want []string
	}{
		{"no command", "", nil, []string{"serve", "dev", "migrate"}},
		{"an unknown command", "", []string{"frobnicate"}, []string{"frobnicate", "serve"}},
		{"an unknown flag", dsn, []string{"serve", "--frobnicate"}, []string{"--frobnicate"}},
		{"no database", "", []string{"serve"}, []string{"--database-url", example}},
		{"no database to migrate", "", []string{"migrate"}, []string{"--database-url", example}},
		{"a malformed database URL", "postgres://u:p@host:port/db", []string{"serve"}, []string{"--database-url", example}},
		{
			"a malformed database URL to migrate", "postgres://u:p@host:port/db",
			[]string{"migrate"},
			[]string{"--database-url"},
		},
		{"no URL at all", "not a url", []string{"serve"}, []string{"--database-url", example}},
		{"a wrong password", wrongPassword.String(), []string{"serve"}, []string{"--database-url", "password"}},
		{"a wrong password to migrate", wrongPassword.String(), []string{"migrate"}, []string{"--database-url", "password"}},
		{"a database that is not there", noDatabase, []string{"serve"}, []string{"--database-url", "nowhere"}},
		{
			"an unreachable database", "postgres://127.0.0.1:1/x",
			[]string{"serve", "--database-wait=100ms"},
			[]string{"--database-url", "127.0.0.1:1", "refused"},
		},
		{
			"an unreachable database to migrate", "postgres://127.0.0.1:1/x",
			[]string{"migrate"},
			[]string{"--database-url", "127.0.0.1:1", "refused"},
		},
		{"no schema", pgtest.EmptyDSN(t), []string{"serve"}, []string{"punctual migrate", "--migrate", "schema"}},
		{
			"a taken port", dsn,
			[]string{"serve", "--listen=" + taken.Addr().String()},
			[]string{"--listen", taken.Addr().String(), "taken"},
		},
		{"an address without a port", dsn, []string{"serve", "--listen=localhost"}, []string{"--listen", "127.0.0.1:8080"}},
		{
			"an address of another machine", dsn,
			[]string{"serve", "--listen=192.0.2.1:80", "--insecure-no-auth"},
			[]string{"--listen", "192.0.2.1:80"},
		},
		{
			"all addresses", dsn,
			[]string{"serve", "--listen=0.0.0.0:0", "--auth=none"},
			[]string{"--listen", "--insecure-no-auth", "127.0.0.1:8080", server.FirstKey},
		},
		{"no host", dsn, []string{"serve", "--listen=:0", "--auth=none"}, []string{"--listen", "--insecure-no-auth"}},
		{"an audience of nobody", dsn, []string{"serve", "--oidc-audience=punctual"}, []string{"--oidc-issuer"}},
		{
			"an issuer for everybody", dsn,
			[]string{"serve", "--oidc-issuer=https://login.example.com"},
			[]string{"--oidc-audience"},
		},
		{
			"an issuer over plain HTTP", dsn,
			[]string{"serve", "--oidc-issuer=http://login.example.com", "--oidc-audience=punctual"},
			[]string{"--oidc-issuer", "https"},
		},
		{
			"keys of an issuer over plain HTTP", dsn,
			[]string{
				"serve", "--oidc-issuer=https://login.example.com", "--oidc-audience=punctual",
				"--oidc-jwks-url=http://login.example.com",
			},
			[]string{"--oidc-jwks-url", "https"},
		},
		{
			"an issuer that nobody asks", dsn,
			[]string{"serve", "--oidc-issuer=https://login.example.com", "--oidc-audience=punctual", "--auth=none"},
			[]string{"--oidc-issuer", "--auth=none"},
		},
		{
			"a sign-in at no issuer", dsn,
			[]string{"serve", "--oidc-client-id=pages", "--public-url=https://punctual.example.com"},
			[]string{"--oidc-issuer", "--oidc-client-id"},
		},
		{
			"a sign-in from which nobody comes back", dsn,
			[]string{
				"serve", "--oidc-issuer=https://login.example.com", "--oidc-audience=punctual", "--oidc-client-id=pages",
			},
			[]string{"--public-url", "https://punctual.example.com", "/login/callback"},
		},
		{
			"a client without its secret", dsn,
			[]string{
				"serve", "--oidc-issuer=https://login.example.com", "--oidc-audience=punctual", "--oidc-client-id=pages",
				"--public-url=https://punctual.example.com", "--oidc-client-secret-file=/nowhere/secret",
			},
			[]string{"--oidc-client-secret-file", "/nowhere/secret"},
		},
		{"a key of no role", dsn, []string{"keys", "create", "--name=n"}, []string{"--role"}},
		{
			"a key of an unknown role", dsn,
			[]string{"keys", "create", "--name=n", "--role=root"},
			[]string{"--role", "operator"},
		},
		{"a key of no name", dsn, []string{"keys", "create", "--name=", "--role=viewer"}, []string{"--name"}},
		{
			"a key that has expired", dsn,
			[]string{"keys", "create", "--name=n", "--role=viewer", "--expires=-1h"},
			[]string{"--expires", "-1h"},
		},
		{
			"a key of nobody", dsn,
			[]string{"keys", "create", "--name=n", "--role=viewer", "--tenant=nobody"},
			[]string{"--tenant", "nobody"},
		},
		{"no such key", dsn, []string{"keys", "revoke", "0123456789abcdef"}, []string{"punctual keys list"}},
		{"a tenant that is there", dsn, []string{"tenants", "create", "default"}, []string{"default", "taken"}},
		{"a tenant of a bad name", dsn, []string{"tenants", "create", "a b"}, []string{"a b", "letters"}},
		{"a limit of nothing", dsn, []string{"tenants", "set", "default", "--max-jobs=0"}, []string{"--max-jobs", "1 to"}},
		{
			"a limit that is no number", dsn,
			[]string{"tenants", "set", "default", "--max-jobs=many"},
			[]string{"--max-jobs", "many"},
		},
		{
			"a network that is none", dsn,
			[]string{"tenants", "set", "default", "--allowed-targets=10.0.0.1"},
			[]string{"--allowed-targets", "10.0.0.1"},
		},
		{"no such tenant", dsn, []string{"tenants", "delete", "nobody"}, []string{"nobody"}},
		{
			"the tenant that always is", dsn, []string{"tenants", "delete", "default"}, []string{"default", "cannot be deleted"},
		},
		{"all addresses in dev", "", []string{"dev", "--listen=0.0.0.0:0"}, []string{"--listen", "127.0.0.1:8080"}},
		{"a port out of range", dsn, []string{"serve", "--listen=127.0.0.1:99999"}, []string{"--listen"}},
		{"no worker slots", dsn, []string{"serve", "--queues=default=0"}, []string{"--queues", "default=0", "1 to 100000"}},
		{"worker slots that are no number", dsn, []string{"serve", "--queues=default=many"}, []string{"--queues", "many"}},
		{"a queue without slots", dsn, []string{"serve", "--queues=default"}, []string{"--queues"}},
		{"a queue of a bad name", dsn, []string{"serve", "--queues=a b=1"}, []string{"--queues", "a b"}},
		{"a duration without a unit", dsn, []string{"serve", "--drain-timeout=10"}, []string{"--drain-timeout", "10"}},
		{
			"a public URL without a scheme", dsn,
			[]string{"serve", "--public-url=punctual.internal"},
			[]string{"--public-url", "http"},
		},
		{
			"a public URL with a query", dsn,
			[]string{"serve", "--public-url=http://punctual.internal/?a=b"},
			[]string{"--public-url", "query"},
		},
		{
			"a drain that goes backwards", dsn,
			[]string{"serve", "--drain-timeout=-1s"},
			[]string{"--drain-timeout", "0s to 1h"},
		},
		{
			"a grace that goes backwards", dsn,
			[]string{"serve", "--shutdown-grace=-1s"},
			[]string{"--shutdown-grace", "0s to --drain-timeout (25s)"},
		},
		{
			"a grace longer than the drain", dsn,
			[]string{"serve", "--shutdown-grace=10s", "--drain-timeout=5s"},
			[]string{"--shutdown-grace: 10s", "--drain-timeout (5s)"},
		},
		{"a grace without a unit", dsn, []string{"serve", "--shutdown-grace=10"}, []string{"--shutdown-grace", "10"}},
		{"runs kept for less than a day", dsn, []string{"serve", "--retention=23h"}, []string{"--retention", "24h"}},
		{
			"an audit log kept for less than the database keeps it", dsn,
			[]string{"serve", "--audit-retention=100h"},
			[]string{"--audit-retention", "720h"},
		},
		{
			"failures kept for less than successes", dsn,
			[]string{"serve", "--failure-retention=48h"},
			[]string{"--failure-retention", "720h"},
		},
		{"too much jitter", dsn, []string{"serve", "--default-jitter=2h"}, []string{"--default-jitter", "0s to 1h"}},
		{"too few connections", dsn, []string{"serve", "--max-conns=1"}, []string{"--max-conns", "10 to 1000"}},
		{
			"a network that is none", dsn,
			[]string{"serve", "--allow-targets=10.0.0.0/8,internal"},
			[]string{"--allow-targets", `"internal"`, "10.0.0.0/8"},
		},
		{
			"a network with bits behind its length", dsn,
			[]string{"serve", "--allow-targets=10.1.2.3/8"},
			[]string{"--allow-targets", `"10.1.2.3/8"`, "10.0.0.0/8", "10.1.2.3/32"},
		},
		{
			"a proxy without a port", dsn,
			[]string{"serve", "--egress-proxy=http://u:not-the-password@proxy"},
			[]string{"--egress-proxy", "http://user:password@host:port"},
		},
		{
			"a proxy that is none", dsn,
			[]string{"serve", "--egress-proxy=socks5://u:not-the-password@proxy:1080"},
			[]string{"--egress-proxy", "http://host:port"},
		},
		{
			"authorities that are not there", dsn,
			[]string{"serve", "--target-ca-file=nowhere.pem"},
			[]string{"--target-ca-file", "nowhere.pem"},
		},
		{
			"authorities that are none", dsn,
			[]string{"serve", "--target-ca-file=main.go"},
			[]string{"--target-ca-file", "main.go", "BEGIN CERTIFICATE"},
		},
		{
			"metrics on a taken port", dsn,
			[]string{"serve", "--metrics-listen=" + taken.Addr().String()},
			[]string{"--metrics-listen", taken.Addr().String(), "taken"},
		},
		{
			"metrics at no port", dsn,
			[]string{"serve", "--metrics-listen=localhost"},
			[]string{"--metrics-listen", "127.0.0.1:9464"},
		},
		{
			"jobs selected by no label", dsn,
			[]string{"serve", "--job-metrics=billing"},
			[]string{"--job-metrics", `"billing"`, "team=billing"},
		},
		{
			"jobs selected by two values", dsn,
			[]string{"serve", "--job-metrics=team=a,team=b"},
			[]string{"--job-metrics", "team", "repeat the flag"},
		},
		{"metrics of no jobs", dsn, []string{"serve", "--job-metrics-max=0"}, []string{"--job-metrics-max", "1 to 10000"}},
		{"an unknown authentication", dsn, []string{"serve", "--auth=magic"}, []string{"--auth", "none"}},
		{"an unknown log level", dsn, []string{"serve", "--log-level=loud"}, []string{"--log-level", "loud"}},
		{"an unknown log format", dsn, []string{"serve", "--log-format=xml"}, []string{"--log-format", "text", "json"}},
		{
			"a data directory that is a file", "", []string{"dev", "--listen=127.0.0.1:0", "--dir=main.go"}, []string{"main.go"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			env := []string{"PUNCTUAL_LISTEN=127.0.0.1:0"} // any free port: the cases run in parallel
			if test.dsn != "" {
				env = append(env, "DATABASE_URL="+test.dsn)
			}
			code, out := punctual(t, env, test.args...)
			if code == 0 {
				t.Errorf("exit code 0:\n%s", out)
			}
			says(t, out, test.want...)
			for _, never := range []string{"not-the-password", "goroutine ", "panic:"} {
				if strings.Contains(out, never) {
					t.Errorf("it says %q:\n%s", never, out)
				}
			}
		})
	}
}

func TestServeMayListenElsewhereWhenToldSo(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	r, err := process.Serve(ctx, binary(t), pgtest.DSN(t), "--listen=0.0.0.0:0", "--insecure-no-auth")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Kill)
	if err := r.Stop(ctx); err != nil {
		t.Error(err)
	}
	says(t, r.Output(), "--public-url") // no client can connect to 0.0.0.0
}

// keysOf runs `punctual keys create`, and returns its stdout.
func keysOf(t *testing.T, dsn string, args ...string) string {
	t.Helper()
	command := exec.Command(binary(t), append([]string{"keys", "create"}, args...)...)
	command.Env = append(os.Environ(), "DATABASE_URL="+dsn)
	var notes strings.Builder
	command.Stderr = &notes
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, notes.String())
	}
	says(t, notes.String(), "not shown again")
	if strings.Contains(notes.String(), strings.TrimSpace(string(out))) {
		t.Errorf("stderr shows the key: %s", notes.String())
	}
	return strings.TrimSuffix(string(out), "\n")
}

func TestServeAsksForKeys(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	dsn := pgtest.DSN(t)
	r, err := process.Serve(ctx, binary(t), dsn, "--auth=keys", "--listen=0.0.0.0:0", "--public-url=http://127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Kill)
	says(t, r.Output(), server.FirstKey)
	if status, err := r.API.Do(ctx, "GET", "/v1/jobs", nil, nil); status != 401 {
		t.Errorf("status %d, error %v", status, err)
	}
	key := keysOf(t, dsn, "--tenant=default", "--role=operator", "--name=first", "--expires=1h")
	if !regexp.MustCompile(`^punctual_[0-9a-f]{16}_[A-Za-z0-9_-]{43}$`).MatchString(key) {
		t.Fatalf("stdout is %q", key)
	}
	var made struct{ Tenant string }
	if _, err := r.API.WithKey(key).Do(ctx, "POST", "/v1/jobs",
		map[string]any{
			"name":   "n",
			"target": map[string]any{"url": "http://example.com"},
		}, &made); err != nil || made.Tenant != "default" {
		t.Errorf("made a job of %q, error %v", made.Tenant, err)
	}
	prefix := strings.Join(strings.Split(key, "_")[:2], "_")
	_, list := punctual(t, []string{"DATABASE_URL=" + dsn}, "keys", "list")
	says(t, list, prefix, "operator", "first", "command:")
	code, out := punctual(t, []string{"DATABASE_URL=" + dsn}, "keys", "revoke", prefix)
	if code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
	await(ctx, t, "the key to cease to work", func() bool {
		status, _ := r.API.WithKey(key).Do(ctx, "GET", "/v1/jobs", nil, nil)
		return status == 401
	})
	if err := r.Stop(ctx); err != nil {
		t.Error(err)
	}
	if secret := strings.SplitN(key, "_", 3)[2]; strings.Contains(r.Output()+list+out, secret) {
		t.Error("the key is shown or logged")
	}
	again, err := process.Serve(ctx, binary(t), pgtest.DSN(t), "--auth=keys", "--oidc-issuer=https://127.0.0.1:1",
		"--oidc-audience=punctual")
	if err != nil {
		t.Fatal(err) // the issuer is away
	}
	t.Cleanup(again.Kill)
	if strings.Contains(again.Output(), server.FirstKey) {
		t.Error("asks for a key although there are tokens")
	}
	if status, err := again.API.WithKey("a.b.c").Do(ctx, "GET", "/v1/jobs", nil, nil); status != 503 {
		t.Errorf("status %d, error %v", status, err)
	}
	if err := again.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func TestTenantsByCommands(t *testing.T) {
	t.Parallel()
	env := []string{"DATABASE_URL=" + pgtest.DSN(t)}
	for _, step := range []struct {
		args string
		want []string
	}{
		{
			"create billing --max-jobs=10 --min-interval=1m --allowed-targets=10.0.0.0/8,fd00::/8 --max-requests-per-second=5",
			[]string{"billing  1       10", "1m0s", "10.0.0.0/8,fd00::/8"},
		},
		{"set billing --max-jobs=none --weight=3 --allowed-targets=none", []string{"billing  3       -", "1m0s", " 5 "}},
		{"list", []string{"default  1", "billing  3"}},
		{"delete billing", []string{"tenant billing is deleted"}},
		{"create billing", []string{"billing  1"}},
	} {
		code, out := punctual(t, env, append([]string{"tenants"}, strings.Fields(step.args)...)...)
		if code != 0 {
			t.Fatalf("%s: exit code %d: %s", step.args, code, out)
		}
		says(t, out, step.want...)
	}
}

func TestMigrateFromSeveralProcessesAtOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.EmptyDSN(t)
	var migrating []*process.Process
	for range 4 {
		migrating = append(migrating, launch(t, []string{"DATABASE_URL=" + dsn}, "migrate"))
	}
	worked := 0
	for _, p := range migrating {
		code, out := wait(t, p)
		if code != 0 {
			t.Errorf("exit code %d:\n%s", code, out)
		}
		says(t, out, "the schema is up to date")
		worked += strings.Count(out, "migrated version=")
	}
	if want := int(migrations.Latest()); worked != want {
		t.Errorf("%d migrations were applied by all together, want %d", worked, want)
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if have, err := migrations.Current(t.Context(), conn); err != nil || have != migrations.Latest() {
		t.Errorf("the schema is version %d, %v", have, err)
	}
}

func TestReplicasThatMigrateAtOnceAllServe(t *testing.T) {
	t.Parallel()
	dsn := pgtest.EmptyDSN(t)
	ctx := bounded(t)
	errs := make(chan error, 3)
	for range cap(errs) {
		go func() {
			r, err := process.Serve(ctx, binary(t), dsn, "--migrate")
			if err == nil {
				err = r.Stop(ctx)
				r.Kill()
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestDevRunsTheSampleJobsAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "punctual-dev-test-") // not below t.TempDir, which another user may not enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx := bounded(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String() // the same for both starts, because the sample jobs call it
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	start := func() *process.Replica {
		t.Helper()
		r, err := process.Dev(ctx, binary(t), dir, "--listen="+address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Kill)
		await(ctx, t, "a run of a sample job", func() bool {
			out := r.Output()
			return strings.Contains(out, "succeeded") && strings.Contains(out, "hello-every-5s           attempt 1")
		})
		says(t, r.Output(), "Punctual is running", r.API.URL, dir, "psql 'postgres://", "only-when-triggered")
		if n := len(living(dir)); n < 2 && runtime.GOOS == "linux" { // where /proc exists
			t.Errorf("%d processes of the private Postgres were found", n)
		}
		return r
	}
	gone := func() bool { return len(living(dir)) == 0 }

	first := start()
	if err := first.Signal(9); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, "Postgres to follow its killed owner", gone)

	second := start()
	if _, err := second.API.Do(ctx, "POST", "/v1/jobs/only-when-triggered/trigger", nil, nil); err != nil {
		t.Error(err)
	}
	silent := process.JobSpec{
		"name": "silent", "schedule": map[string]any{"delay": "0s"},
		"target":     map[string]any{"url": second.API.URL + "/echo?status=202"},
		"completion": "async", "heartbeat_timeout": "1s", "retry": map[string]any{"max_attempts": 1},
	}
	if err := process.Create(ctx, second.API, []process.JobSpec{silent}); err != nil {
		t.Error(err)
	}
	await(ctx, t, "the end of work that no replica held", func() bool {
		out := second.Output()
		return strings.Contains(out, "accepted  silent") && strings.Contains(out, "dead      silent")
	})
	await(ctx, t, "the triggered run", func() bool {
		return strings.Contains(second.Output(), "only-when-triggered      attempt 1")
	})
	if err := second.Stop(ctx); err != nil {
		t.Error(err)
	}
	await(ctx, t, "Postgres to end with its owner", gone)
}

// living returns the processes whose working directory is dir or below it.
func living(dir string) (pids []string) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd") // the pattern is valid
	for _, link := range links {
		if cwd, err := os.Readlink(link); err == nil && (cwd == dir || strings.HasPrefix(cwd, dir+"/")) {
			pids = append(pids, filepath.Base(filepath.Dir(link)))
		}
	}
	slices.Sort(pids)
	return pids
}

func await(ctx context.Context, t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
