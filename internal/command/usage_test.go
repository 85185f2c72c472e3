package command

import (
	"errors"
	"net"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/internal/process"
	"punctual/internal/server"
)

// apart runs the binary to its end, and returns stdout and stderr separately. Only env can name a database.
func apart(t *testing.T, env []string, args ...string) (code int, out, notes string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), binary(t), args...)
	var stdout, stderr strings.Builder
	command.Stdout, command.Stderr = &stdout, &stderr
	command.Env = append(process.Environment(), env...)
	var exit *exec.ExitError
	if err := command.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// refused checks that a command ends with an exit code, and says why in one line on stderr: scripts read stdout, and
// KEY=$(punctual keys create …) must not get the help instead of a key. It returns the line.
func refused(t *testing.T, exit int, env []string, args ...string) (line string) {
	t.Helper()
	code, out, notes := apart(t, env, args...)
	if code != exit || out != "" || strings.Count(notes, "\n") != 1 || !strings.HasPrefix(notes, "punctual: ") {
		t.Errorf("exit code %d, want %d, stdout %q, stderr:\n%s", code, exit, out, notes)
	}
	for _, never := range []string{"not-the-password", "s3cr3t", "goroutine ", "panic:"} {
		if strings.Contains(notes, never) {
			t.Errorf("it says %q:\n%s", never, notes)
		}
	}
	return notes
}

// wrongUse is a command that is refused, and what must be said then: parts that are separated by " … ".
type wrongUse struct{ name, command, says string }

func (u wrongUse) check(t *testing.T, exit int, env ...string) {
	t.Helper()
	t.Run(u.name, func(t *testing.T) {
		t.Parallel()
		says(t, refused(t, exit, env, strings.Fields(u.command)...), strings.Split(u.says, " … ")...)
	})
}

func TestAWrongCommandLineIsOneLineOnStderr(t *testing.T) {
	t.Parallel()
	const oidc = "serve --oidc-issuer=https://login.example.com --oidc-audience=punctual "
	for _, test := range []wrongUse{
		{
			"nothing", "", "no command is given … serve, dev, jobs, runs, events, limits, aside, audit, freeze, unfreeze, migrate, keys, tenants, secrets, verify" +
				" … see punctual --help",
		},
		{"an unknown command", "frobnicate", "frobnicate … serve, dev … see punctual --help"},
		{"no subcommand", "keys", "create, list, revoke … see punctual keys --help"},
		{"an unknown flag", "serve --frobnicate", "--frobnicate … see punctual serve --help"},
		{
			"a flag that is nearly right", "serve --drain-timout=1s",
			`did you mean "--drain-timeout" … see punctual serve --help`,
		},
		{"no role", "keys create --name n", "--role … see punctual keys create --help"},
		{
			"an unknown role", "keys create --role nope --name n",
			"--role … viewer … operator … nope … see punctual keys create --help",
		},
		{"an unknown authentication", "serve --auth=magic", "--auth … none"},
		{"an unknown log level", "serve --log-level=loud", "--log-level … loud"},
		{"an unknown log format", "serve --log-format=xml", "--log-format … text … json"},
		{"an address without a port", "serve --listen=localhost", "--listen … 127.0.0.1:8080"},
		{
			"an exposed API", "serve --auth=none --listen=0.0.0.0:1",
			"--listen … --insecure-no-auth … 127.0.0.1:8080 … " + server.FirstKey,
		},
		{"an API exposed by no host", "serve --auth=none --listen=:0", "--listen … --insecure-no-auth"},
		{"an archive of one file", "serve --archive-command=cat", "--archive-command … %d, the day"},
		{"an exposed dev", "dev --listen=0.0.0.0:1", "--listen … 127.0.0.1:8080"},
		{"an audience of nobody", "serve --oidc-audience=punctual", "--oidc-issuer"},
		{"an issuer for everybody", "serve --oidc-issuer=https://login.example.com", "--oidc-audience"},
		{
			"an issuer over plain HTTP", "serve --oidc-issuer=http://login.example.com --oidc-audience=punctual",
			"--oidc-issuer … https",
		},
		{
			"keys of an issuer over plain HTTP", oidc + "--oidc-jwks-url=http://login.example.com",
			"--oidc-jwks-url … https",
		},
		{"an issuer that nobody asks", oidc + "--auth=none", "--oidc-issuer … --auth=none"},
		{
			"a sign-in at no issuer", "serve --oidc-client-id=pages --public-url=https://punctual.example.com",
			"--oidc-issuer … --oidc-client-id",
		},
		{
			"a sign-in from which nobody comes back", oidc + "--oidc-client-id=pages",
			"--public-url … https://punctual.example.com … /login/callback",
		},
		{"no worker slots", "serve --queues=default=0", "--queues … default=0 … 1 to 100000"},
		{"worker slots that are no number", "serve --queues=default=many", "--queues … many"},
		{"a queue without slots", "serve --queues=default", "--queues"},
		{"a queue of a bad name", "serve --queues=a/b=1", "--queues … a/b"},
		{
			"a duration without a unit", "serve --drain-timeout=10",
			`--drain-timeout … "10" … see punctual serve --help`,
		},
		{"a drain that goes backwards", "serve --drain-timeout=-1s", "--drain-timeout … 0s to 1h"},
		{"a grace without a unit", "serve --shutdown-grace=10", "--shutdown-grace … 10"},
		{"a grace that goes backwards", "serve --shutdown-grace=-1s", "--shutdown-grace … 0s to --drain-timeout (25s)"},
		{
			"a grace longer than the drain", "serve --shutdown-grace=10s --drain-timeout=5s",
			"--shutdown-grace: 10s … --drain-timeout (5s)",
		},
		{"a public URL without a scheme", "serve --public-url=punctual.internal", "--public-url … http"},
		{"a public URL with a query", "serve --public-url=http://punctual.internal/?a=b", "--public-url … query"},
		{"runs kept for less than a day", "serve --retention=23h", "--retention … 24h"},
		{
			"an audit log kept for less than the database keeps it", "serve --audit-retention=100h",
			"--audit-retention … 720h",
		},
		{"keys of a short age", "serve --max-key-age=1m", "--max-key-age … 1m0s … 1h"},
		{"failures kept for less than successes", "serve --failure-retention=48h", "--failure-retention … 720h"},
		{"more than all traces", "serve --trace-ratio=1.5", "--trace-ratio: 1.5 … 0 to 1"},
		{"a share of traces that is no number", "serve --trace-ratio=NaN", "--trace-ratio: NaN … 0 to 1"},
		{"too much jitter", "serve --default-jitter=2h", "--default-jitter … 0s to 1h"},
		{"too few connections", "serve --max-conns=1", "--max-conns … 10 to 1000"},
		{
			"a network that is none", "serve --allow-targets=10.0.0.0/8,internal",
			`--allow-targets … "internal" … 10.0.0.0/8`,
		},
		{
			"a network with bits behind its length", "serve --allow-targets=10.1.2.3/8",
			`--allow-targets … "10.1.2.3/8" … 10.0.0.0/8 … 10.1.2.3/32`,
		},
		{
			"a proxy without a port", "serve --egress-proxy=http://u:not-the-password@proxy",
			"--egress-proxy … http://user:password@host:port",
		},
		{
			"a proxy that is none", "serve --egress-proxy=socks5://u:not-the-password@proxy:1080",
			"--egress-proxy … http://host:port",
		},
		{"metrics at no port", "serve --metrics-listen=localhost", "--metrics-listen … 127.0.0.1:9464"},
		{"metrics of no jobs", "serve --job-metrics-max=0", "--job-metrics-max … 1 to 10000"},
		{"jobs selected by no label", "serve --job-metrics=billing", `--job-metrics … "billing" … team=billing`},
		{"jobs selected by two values", "serve --job-metrics=team=a,team=b", "--job-metrics … team … repeat the flag"},
		{"an API at no URL", "jobs list --api-url=punctual", "--api-url … https://punctual.example.com"},
		{"no job", "jobs show", "<name> … see punctual jobs show --help"},
		{"a list of nothing", "jobs list --limit=0", "--limit … at least 1"},
		{"runs of nothing", "jobs runs daily --limit=0", "--limit … 0 is outside 1 to 500"},
		{"too much of what is pending", "jobs dated daily --limit=501", "--limit … 501 is outside 1 to 500"},
		{"too much of the audit log", "audit --limit=501", "--limit … 501 is outside 1 to 500"},
		{"the audit log at no URL", "audit --api-url=punctual", "--api-url … https://punctual.example.com"},
	} {
		test.check(t, 2, "DATABASE_URL=postgres://127.0.0.1:1/x")
	}
	variable := wrongUse{"a variable that is wrong", "serve", "drain-timeout … see punctual serve --help"}
	variable.check(t, 2, "DATABASE_URL=postgres://127.0.0.1:1/x", "PUNCTUAL_DRAIN_TIMEOUT=10")
}

func TestACommandWithoutADatabaseSaysHowToNameOne(t *testing.T) {
	t.Parallel()
	for _, command := range []string{
		"serve", "keys create --role viewer --name n", "migrate", "verify", "secrets rotate", "tenants list", "freeze",
		"unfreeze",
	} {
		use := wrongUse{command, command, "DATABASE_URL … --database-url=postgres:// … --help"}
		use.check(t, 2)
	}
	empty := wrongUse{"an empty name", "serve", "DATABASE_URL"}
	empty.check(t, 2, "DATABASE_URL=")
}

func TestWhatCannotBeDoneIsOneLineOnStderr(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	address := taken.Addr().String()
	dsn := dsnFor(t)
	for _, test := range []wrongUse{
		{"a taken port", "serve --listen=" + address, "--listen … " + address + " … taken"},
		{"a port out of range", "serve --listen=127.0.0.1:99999", "--listen"},
		{
			"an address of another machine", "serve --listen=192.0.2.1:80 --insecure-no-auth",
			"--listen … 192.0.2.1:80",
		},
		{
			"metrics on a taken port", "serve --metrics-listen=" + address,
			"--metrics-listen … " + address + " … taken",
		},
		{
			"a client without its secret", "serve --oidc-issuer=https://login.example.com --oidc-audience=punctual" +
				" --oidc-client-id=pages --public-url=https://punctual.example.com --oidc-client-secret-file=/nowhere/secret",
			"--oidc-client-secret-file … /nowhere/secret",
		},
		{"authorities that are not there", "serve --target-ca-file=nowhere.pem", "--target-ca-file … nowhere.pem"},
		{
			"authorities that are none", "serve --target-ca-file=usage_test.go",
			"--target-ca-file … usage_test.go … BEGIN CERTIFICATE",
		},
		{"a data directory that is a file", "dev --dir=usage_test.go", "usage_test.go"},
		{"a key of no name", "keys create --name= --role=viewer", "--name"},
		{"a key of another length", "keys create --name=n --role=viewer --expires=1y", "--expires … 1y"},
		{"a key that has expired", "keys create --name=n --role=viewer --expires=-1h", "--expires … -1h"},
		{"a key of nobody", "keys create --name=n --role=viewer --tenant=nobody", "--tenant … nobody"},
		{"no such key", "keys revoke 0123456789abcdef", "punctual keys list"},
		{"a tenant that is there", "tenants create default", "default … taken"},
		{"a tenant of a bad name", "tenants create a/b", "a/b … letters"},
		{"a limit of nothing", "tenants set default --max-jobs=0", "--max-jobs … 1 to"},
		{"a limit that is no number", "tenants set default --max-jobs=many", "--max-jobs … many"},
		{
			"a network that is none", "tenants set default --allowed-targets=10.0.0.1",
			"--allowed-targets … 10.0.0.1",
		},
		{"no such tenant", "tenants delete nobody", "nobody"},
		{"the tenant that always is", "tenants delete default", "default … cannot be deleted"},
	} {
		test.check(t, 1, "DATABASE_URL="+dsn, "PUNCTUAL_LISTEN=127.0.0.1:0", "PUNCTUAL_MASTER_KEY="+process.MasterKey)
	}
}

func TestAnUnfitDatabaseIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	drives(t)
	postgres := pgtest.Server(t)
	env := []string{
		"DATABASE_URL=" + postgres.DSN("latin"), "PUNCTUAL_LISTEN=127.0.0.1:0", "PUNCTUAL_MASTER_KEY=" + process.MasterKey,
	}
	conn, err := pgx.Connect(t.Context(), postgres.DSN("postgres"))
	must(t, err)
	_, err = conn.Exec(t.Context(), `CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0`)
	must(t, errors.Join(err, conn.Close(t.Context())))
	for command, exit := range map[string]int{
		"verify": 2, "migrate": 1, "keys list": 1, "serve --database-wait=10m": 1, "serve --migrate --database-wait=10m": 1,
	} {
		line := refused(t, exit, env, strings.Fields(command)...)
		if !strings.Contains(line, `--database-url: the encoding of database "latin" is LATIN1, and must be UTF8`) {
			t.Errorf("%s says %q", command, line)
		}
		line = refused(t, exit, append(slices.Clip(env), "PUNCTUAL_DATABASE_PASSWORD_FILE=/nowhere"),
			strings.Fields(strings.ReplaceAll(command, "10m", "0s"))...)
		if !strings.Contains(line, "--database-password-file: reading the database's password: open /nowhere") {
			t.Errorf("%s without its password says %q", command, line)
		}
	}
}

// What time does not mend is not waited for.
func TestADatabaseThatStaysUnfitIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	drives(t)
	postgres := pgtest.Server(t)
	wrongPassword, err := url.Parse(postgres.TCP("postgres"))
	must(t, err)
	wrongPassword.User = url.UserPassword(wrongPassword.User.Username(), "not-the-password")
	for dsn, want := range map[string]string{
		wrongPassword.String():   "password",
		postgres.DSN("nowhere"):  "does not exist",
		pgtest.EmptyDSN(t):       "run `punctual migrate`",
		"postgres://u:p@h:port/": "write postgres://",
	} {
		line := refused(t, 1, []string{
			"DATABASE_URL=" + dsn, "PUNCTUAL_LISTEN=127.0.0.1:0", "PUNCTUAL_MASTER_KEY=" + process.MasterKey,
		}, "serve", "--database-wait=10m")
		says(t, line, want)
	}
}

func TestADatabaseThatCannotBeUsedIsOneLineOnStderr(t *testing.T) {
	t.Parallel()
	drives(t)
	postgres := pgtest.Server(t)
	wrongPassword, err := url.Parse(postgres.TCP("postgres"))
	must(t, err)
	wrongPassword.User = url.UserPassword(wrongPassword.User.Username(), "not-the-password")
	env := func(dsn string) []string {
		return []string{"DATABASE_URL=" + dsn, "PUNCTUAL_LISTEN=127.0.0.1:0", "PUNCTUAL_MASTER_KEY=" + process.MasterKey}
	}
	for _, test := range []struct {
		name string
		dsn  string
		want string
	}{
		{
			"one that refuses", "postgres://alice:not-the-password@127.0.0.1:1/x",
			`^punctual: --database-url: cannot connect to database "x" at 127\.0\.0\.1:1 as user "alice": connection refused\n$`,
		},
		{
			"two that refuse", "postgres://alice@127.0.0.1:1,127.0.0.1:2/x",
			`at 127\.0\.0\.1:1, 127\.0\.0\.1:2 as user "alice": connection refused\n$`,
		},
		{
			"a host that is none", "postgres://alice@nowhere.invalid/x",
			`at nowhere\.invalid:5432 as user "alice": (no such host|the host name cannot be resolved right now)\n$`,
		},
		{
			"a socket that is not there", "host=/nowhere user=alice dbname=x",
			`at /nowhere/\.s\.PGSQL\.5432 as user "alice": no such file or directory\n$`,
		},
		{"no URL", "not a url", `^punctual: --database-url: .*write postgres://user:password@host:5432/database\n$`},
		{
			"a malformed URL", "postgres://u:not-the-password@host:port/db",
			`^punctual: --database-url: .*write postgres://user:password@host:5432/database\n$`,
		},
		{"a wrong password", wrongPassword.String(), `^punctual: --database-url: .*password`},
		{
			"a database that is not there", postgres.DSN("nowhere"),
			`^punctual: --database-url: .*database "nowhere" does not exist\n$`,
		},
		{"no schema", pgtest.EmptyDSN(t), "schema.*run `punctual migrate`, or start with --migrate"},
	} {
		for _, command := range []string{"keys list", "migrate", "serve --database-wait=0s"} {
			if test.name == "no schema" && command == "migrate" {
				continue // migrate creates the schema
			}
			t.Run(command+" in "+test.name, func(t *testing.T) {
				t.Parallel()
				line := refused(t, 1, env(test.dsn), strings.Fields(command)...)
				if !regexp.MustCompile(test.want).MatchString(line) {
					t.Errorf("it says %q", line)
				}
			})
		}
	}
	code, _, notes := apart(t, env("postgres://127.0.0.1:1/x"), "serve", "--database-wait=100ms")
	if code != 1 {
		t.Errorf("exit code %d after a wait, want 1", code)
	}
	says(t, notes, "trying again", "--database-url", "127.0.0.1:1", "refused")
}
