package command

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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

// drives begins a test of the binary, which `make test` leaves out.
func drives(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the binary: `make prove` does")
	}
}

// dsnFor returns the DSN of a database for the binary.
func dsnFor(t *testing.T) string {
	t.Helper()
	drives(t)
	return pgtest.DSN(t)
}

// binary returns the path of the binary.
func binary(t *testing.T) string {
	t.Helper()
	drives(t)
	path, err := prove.Build(t.Context(), prove.Variant{})
	must(t, err)
	return path
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bounded returns a context that ends when a wait has taken too long.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// serve starts a replica on a database, as process.Serve does.
func serve(t *testing.T, dsn string, flags ...string) *process.Replica {
	t.Helper()
	path := binary(t)
	r, err := process.Serve(bounded(t), path, dsn, flags...)
	must(t, err)
	t.Cleanup(r.Kill)
	return r
}

func stop(t *testing.T, r *process.Replica) {
	t.Helper()
	if err := r.Stop(bounded(t)); err != nil {
		t.Error(err)
	}
}

// calls calls the API of a replica, and fails the test unless it succeeds. The test reads the answer into out, or
// nothing if that is nil.
func calls(t *testing.T, r *process.Replica, method, path string, in, out any) {
	t.Helper()
	if _, err := r.API.Do(t.Context(), method, path, in, out); err != nil {
		t.Fatal(err)
	}
}

// succeeds runs the binary to its end, which is to be a success, and returns its output.
func succeeds(t *testing.T, env []string, args ...string) (output string) {
	t.Helper()
	code, output := punctual(t, env, args...)
	if code != 0 {
		t.Errorf("%q: exit code %d:\n%s", args, code, output)
	}
	return output
}

// punctual runs the binary to its end, and returns its exit code and output.
func punctual(t *testing.T, env []string, args ...string) (code int, output string) {
	t.Helper()
	return wait(t, launch(t, env, args...))
}

func launch(t *testing.T, env []string, args ...string) *process.Process {
	t.Helper()
	p, err := process.Launch(binary(t), env, args...)
	must(t, err)
	t.Cleanup(p.Kill)
	return p
}

func wait(t *testing.T, p *process.Process) (code int, output string) {
	t.Helper()
	code, err := p.Wait(bounded(t))
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
	for command, want := range map[string][]string{
		"": {
			"punctual dev", "punctual migrate --database-url", "punctual serve --database-url", "environment variable",
			"exit status", "version",
		},
		"serve": {
			"--database-url", "DATABASE_URL", "--listen", "127.0.0.1:8080", "--drain-timeout", "--shutdown-grace", "--migrate",
			"--queues", "--auth", "--insecure-no-auth", "--oidc-issuer", "--oidc-client-id", "--allow-targets", "10.0.0.0/8",
			"--egress-proxy", "--target-ca-file", "--metrics-listen", "--job-metrics", "--job-metrics-max", "--master-key-file",
			"openssl rand -base64 32", "PUNCTUAL_MASTER_KEY",
		},
		"jobs":           {"list", "show", "apply", "pause", "resume", "run", "delete"},
		"jobs apply":     {"JSON", "YAML", "--api-url", "127.0.0.1:8080", "--api-key-file", "PUNCTUAL_API_KEY", "--tenant"},
		"keys":           {"create", "list", "revoke"},
		"keys create":    {"--tenant", "--role", "--name", "--expires", "--out", "stdout", "DATABASE_URL"},
		"tenants set":    {"--max-jobs", "--max-requests-per-second", "--min-interval", "--allowed-targets", "none"},
		"secrets rotate": {"--database-url", "--master-key-file", "--new-master-key-file", "both keys"},
		"dev":            {"--dir", "--listen"},
		"migrate":        {"--database-url", "DATABASE_URL", "several"},
		"verify":         {"--from", "--to", "--job", "24 hours", "Read-only"},
		"version":        {"time zone data"},
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			says(t, succeeds(t, nil, strings.Fields(command+" --help")...), want...)
		})
	}
}

func TestEveryFlagHasAnEnvironmentVariable(t *testing.T) {
	t.Parallel()
	// Matches a flag and its help, up to the next flag.
	flag := regexp.MustCompile(`(?s)\n {2,}(?:-\w, +| {4})?--(?:\[no-\])?([a-z-]+)(.*?)` +
		`(?:\n {2,}(?:-\w, +| {4})?--|\n\n|$)`)
	for _, command := range []string{"serve", "dev", "migrate", "verify"} {
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
	env := []string{"PUNCTUAL_LISTEN=0.0.0.0:1", "PUNCTUAL_AUTH=none", "PUNCTUAL_DATABASE_URL=postgres:///x"}
	says(t, refused(t, 2, env, "serve"), "--listen 0.0.0.0:1")
}

func TestVersionNamesAllThatMatters(t *testing.T) {
	t.Parallel()
	says(t, succeeds(t, nil, "version"),
		"punctual "+prove.BinaryVersion, fmt.Sprintf("schema   %d", migrations.Latest()), "tzdata   20")
}

func TestServeMayListenElsewhereWhenToldSo(t *testing.T) {
	t.Parallel()
	r := serve(t, dsnFor(t), "--listen=0.0.0.0:0", "--insecure-no-auth")
	stop(t, r)
	says(t, r.Output(), "--public-url") // no client can connect to 0.0.0.0
}

// keysOf runs `punctual keys create`, and returns its stdout.
func keysOf(t *testing.T, dsn string, args ...string) string {
	t.Helper()
	code, out, notes := apart(t, []string{"DATABASE_URL=" + dsn}, append([]string{"keys", "create"}, args...)...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, notes)
	}
	says(t, notes, "not shown again")
	if strings.Contains(notes, strings.TrimSpace(out)) {
		t.Errorf("stderr shows the key: %s", notes)
	}
	return strings.TrimSuffix(out, "\n")
}

func TestServeAsksForKeys(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dsn := dsnFor(t)
	r := serve(t, dsn, "--auth=keys", "--listen=0.0.0.0:0", "--public-url=http://127.0.0.1")
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
	list := succeeds(t, []string{"DATABASE_URL=" + dsn}, "keys", "list")
	says(t, list, prefix, "operator", "first", "command:")
	out := succeeds(t, []string{"DATABASE_URL=" + dsn}, "keys", "revoke", prefix)
	await(t, "the key to cease to work", func() bool {
		status, _ := r.API.WithKey(key).Do(ctx, "GET", "/v1/jobs", nil, nil)
		return status == 401
	})
	stop(t, r)
	if secret := strings.SplitN(key, "_", 3)[2]; strings.Contains(r.Output()+list+out, secret) {
		t.Error("the key is shown or logged")
	}
	// The issuer is away.
	again := serve(t, dsnFor(t), "--auth=keys", "--oidc-issuer=https://127.0.0.1:1", "--oidc-audience=punctual")
	if strings.Contains(again.Output(), server.FirstKey) {
		t.Error("asks for a key although there are tokens")
	}
	if status, err := again.API.WithKey("a.b.c").Do(ctx, "GET", "/v1/jobs", nil, nil); status != 503 {
		t.Errorf("status %d, error %v", status, err)
	}
	stop(t, again)
}

// A key in a file is for its owner's eyes only, and no file is overwritten.
func TestAKeyIsWrittenToAFile(t *testing.T) {
	t.Parallel()
	env := []string{"DATABASE_URL=" + dsnFor(t)}
	file := filepath.Join(t.TempDir(), "key")
	create := []string{"keys", "create", "--role=viewer", "--name=ci", "--out=" + file}
	code, out, notes := apart(t, env, create...)
	if code != 0 || out != "ci\n" || !strings.Contains(notes, file) {
		t.Fatalf("exit code %d: %q, %q", code, out, notes)
	}
	key, err := os.ReadFile(file)
	must(t, err)
	state, err := os.Stat(file)
	must(t, err)
	if state.Mode().Perm() != 0o600 || !regexp.MustCompile(`^punctual_\w{16}_[\w-]{43}\n$`).Match(key) ||
		strings.Contains(notes, strings.TrimSpace(string(key))) {
		t.Errorf("%s: %q, told %q", state.Mode(), key, notes)
	}
	if code, out, notes = apart(t, env, create...); code != 1 || out != "" || !strings.Contains(notes, "not overwritten") {
		t.Errorf("exit code %d: %q, %q", code, out, notes)
	}
	if now, err := os.ReadFile(file); err != nil || string(now) != string(key) {
		t.Errorf("the file is now %q, %v", now, err)
	}
	succeeds(t, env, "tenants", "set", "default", "--max-key-age=720h")
	other := filepath.Join(filepath.Dir(file), "other")
	code, _, notes = apart(t, env, "keys", "create", "--role=viewer", "--name=long", "--expires=721h", "--out="+other)
	if _, err := os.Stat(other); code != 1 || !strings.Contains(notes, "--expires: is more than 720h") || err == nil {
		t.Errorf("exit code %d: %q, and the file: %v", code, notes, err)
	}
	if list := succeeds(t, env, "keys", "list"); strings.Count(list, "\n") != 2 {
		t.Errorf("there are %s", list)
	}
}

func TestTenantsByCommands(t *testing.T) {
	t.Parallel()
	env := []string{"DATABASE_URL=" + dsnFor(t)}
	for _, step := range []struct {
		args string
		want []string
	}{
		{
			"create billing --max-jobs=10 --min-interval=1m --allowed-targets=10.0.0.0/8,fd00::/8 --max-requests-per-second=5",
			[]string{"billing  1       10", "1m0s", "10.0.0.0/8,fd00::/8"},
		},
		{"set billing --max-jobs=none --weight=3 --allowed-targets=none", []string{"billing  3       -", "1m0s", " 5 "}},
		{"set billing --max-key-age=720h", []string{"MAX KEY AGE", "1m0s          720h0m0s "}},
		{"set billing --max-key-age=none", []string{"1m0s          - "}},
		{"list", []string{"default  1", "billing  3"}},
		{"delete billing", []string{"tenant billing is deleted"}},
		{"create billing", []string{"billing  1"}},
	} {
		says(t, succeeds(t, env, strings.Fields("tenants "+step.args)...), step.want...)
	}
}

func TestMigrateFromSeveralProcessesAtOnce(t *testing.T) {
	t.Parallel()
	drives(t)
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
	conn, err := pgtest.Connect(t.Context(), dsn)
	must(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if have, err := migrations.Current(t.Context(), conn); err != nil || have != migrations.Latest() {
		t.Errorf("the schema is version %d, %v", have, err)
	}
}

func TestReplicasThatMigrateAtOnceAllServe(t *testing.T) {
	t.Parallel()
	path, ctx := binary(t), bounded(t)
	dsn := pgtest.EmptyDSN(t)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			r, err := process.Serve(ctx, path, dsn, "--migrate")
			if err == nil {
				err = r.Stop(ctx)
				r.Kill()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestDevRunsTheSampleJobsAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "punctual-dev-test-") // not below t.TempDir, which another user may not enter
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := binary(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String() // the same for both starts, because the sample jobs call it
	must(t, listener.Close())
	start := func() *process.Replica {
		t.Helper()
		r, err := process.Dev(bounded(t), path, dir, "--listen="+address)
		must(t, err)
		t.Cleanup(r.Kill)
		await(t, "a run of a sample job", func() bool {
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
	kill(t, first.Process, syscall.SIGKILL)
	await(t, "Postgres to follow its killed owner", gone)

	second := start()
	calls(t, second, "POST", "/v1/jobs/only-when-triggered/trigger", nil, nil)
	silent := process.JobSpec{
		"name": "silent", "schedule": map[string]any{"delay": "0s"},
		"target":     map[string]any{"url": second.API.URL + "/echo?status=202"},
		"completion": "async", "heartbeat_timeout": "1s", "retry": map[string]any{"max_attempts": 1},
	}
	calls(t, second, "POST", "/v1/jobs", silent, nil)
	await(t, "the end of work that no replica held", func() bool {
		out := second.Output()
		return strings.Contains(out, "accepted  silent") && strings.Contains(out, "dead      silent")
	})
	await(t, "the triggered run", func() bool {
		return strings.Contains(second.Output(), "only-when-triggered      attempt 1")
	})
	stop(t, second)
	await(t, "Postgres to end with its owner", gone)
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

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx := bounded(t)
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
