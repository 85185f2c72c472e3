//prove:other

package prove

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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// triesRelease begins a test that builds a release, whose tools take minutes to build: `make try-release` runs it.
func triesRelease(t *testing.T) {
	t.Helper()
	if os.Getenv("TRY_RELEASE") == "" {
		t.Skip("builds a release: `make try-release` does")
	}
}

// machine is this machine once more, with a real init: see testdata/machine.sh. What a test installs there is gone with
// it.
type machine struct {
	dir, pid string
}

func newMachine(t *testing.T) machine {
	t.Helper()
	triesRelease(t)
	if os.Getuid() != 0 {
		t.Skip("only root can mount the files of a machine")
	}
	if _, err := os.Stat("/etc/debian_version"); err != nil {
		t.Skip("installs a package of Debian, and this is another system")
	}
	script, err := filepath.Abs("testdata/machine.sh")
	must(t, err)
	m := machine{dir: t.TempDir()}
	p, err := process.LaunchServer(script, nil, m.dir)
	must(t, err)
	t.Cleanup(func() {
		must(t, p.Signal(syscall.SIGTERM))
		select {
		case <-p.Done():
		case <-time.After(patience):
			t.Errorf("waited in vain for the machine to end: %s", p.Output())
		}
	})
	await(t, "the machine's init", func() bool {
		pid, _ := os.ReadFile(filepath.Join(m.dir, "pid"))
		if m.pid = strings.TrimSpace(string(pid)); m.pid == "" && p.Ended() {
			t.Skipf("this machine cannot be had once more, as in a container that may not mount: %s", p.Output())
		}
		return m.pid != ""
	})
	await(t, "the machine to run", func() bool {
		out, _ := m.run(t, "systemctl is-system-running").Output() // it fails unless all units of the system have started
		state := strings.TrimSpace(string(out))
		return state == "running" || state == "degraded"
	})
	return m
}

// run prepares a script to run in the machine.
func (m machine) run(t *testing.T, script string) *exec.Cmd {
	return exec.CommandContext(t.Context(), "nsenter", "--target", m.pid, "--mount", "--pid", "--ipc", "--uts", "--cgroup",
		"--root", "--wd", "--", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive",
		"sh", "-euc", script)
}

// does runs a script in the machine, which must succeed, and returns its output.
func (m machine) does(t *testing.T, script string) string {
	t.Helper()
	out, err := m.run(t, script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v:\n%s\n%s", script, err, out, m.log(t))
	}
	return string(out)
}

// log returns what systemd says of the service.
func (m machine) log(t *testing.T) string {
	out, _ := m.run(t, "systemctl status --no-pager --full punctual.service").CombinedOutput()
	return string(out)
}

// releases has the directories of the releases that tests have built, by version.
var releases struct {
	sync.Mutex
	dirs map[string]string
}

// release returns the directory of a release for this machine's architecture, which is built once.
func release(t *testing.T, version string) string {
	t.Helper()
	_, err := Build(t.Context(), Variant{}) // it makes the directory of what tests build
	must(t, err)
	releases.Lock()
	defer releases.Unlock()
	if dir := releases.dirs[version]; dir != "" {
		return dir
	}
	dir := filepath.Join(buildDir, "release-"+version)
	buildRelease(t, version, dir)
	if releases.dirs == nil {
		releases.dirs = map[string]string{}
	}
	releases.dirs[version] = dir
	return dir
}

// buildRelease builds a release, and its tools if no test has built them before, which takes minutes.
func buildRelease(t *testing.T, version, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "../../.ci/release", "--rehearse="+version, "--platforms=linux/"+runtime.GOARCH, "--out="+dir)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building release %s: %v: %s", version, err, out)
	}
}

// overTCP returns dsn as those reach it who do not see this machine's files.
func overTCP(t *testing.T, dsn string) string {
	t.Helper()
	server, err := url.Parse(pgtest.Server(t).TCP("postgres"))
	must(t, err)
	return pgtest.Through(t, dsn, server.Host)
}

// freeAddress returns an address of loopback that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close())
	return l.Addr().String()
}

// The Debian package is installed, started by systemd, upgraded under load, removed and purged.
func TestThePackageIsInstalledUpgradedAndRemoved(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for _, version := range []string{"0.0.1", "0.0.2"} {
		name := fmt.Sprintf("punctual_%s_%s.deb", version, runtime.GOARCH)
		must(t, os.WriteFile(filepath.Join(m.dir, version+".deb"), []byte(readFile(t, filepath.Join(release(t, version), name))), 0o600))
	}

	m.does(t, "dpkg --install /mnt/0.0.1.deb")
	m.does(t, "man --where punctual; bash -n /usr/share/bash-completion/completions/punctual; id punctual")
	if said := m.does(t, "systemd-analyze verify punctual.service"); strings.Contains(said, "punctual") {
		t.Errorf("systemd says of the unit: %s", said)
	}
	m.does(t, "systemd-analyze security --no-pager --threshold=15 punctual.service") // 1.5 of 10
	if modes := m.does(t, "stat --format=%a:%U /etc/punctual /etc/punctual/punctual.env"); modes != "700:root\n600:root\n" {
		t.Errorf("the settings are for %q", modes)
	}
	if m.run(t, "systemctl is-active punctual.service").Run() == nil {
		t.Error("the service runs before it has a database")
	}

	dsn, w, address := pgtest.DSN(t), newWitness(t), freeAddress(t)
	settings := "DATABASE_URL='" + overTCP(t, dsn) + "'\nPUNCTUAL_LISTEN=" + address + "\nPUNCTUAL_AUTH=none\n" + process.CallLoopback + "\n"
	must(t, os.WriteFile(filepath.Join(m.dir, "settings"), []byte(settings), 0o600))
	m.does(t, "cat /mnt/settings >>/etc/punctual/punctual.env; echo "+process.MasterKey+" >/etc/punctual/master.key")
	m.does(t, "systemctl enable --now punctual.service")
	api := client.New("http://" + address)
	versions := func() string {
		var fleet struct{ Data []struct{ Version string } }
		if status, err := api.Do(t.Context(), "GET", "/readyz", nil, nil); err != nil || status != 200 {
			return ""
		}
		_, _ = api.Do(t.Context(), "GET", "/v1/replicas", nil, &fleet)
		return fmt.Sprint(fleet.Data)
	}
	awaitService := func(version string) {
		t.Helper()
		t.Cleanup(func() {
			if t.Failed() {
				t.Log(m.log(t))
			}
		})
		await(t, "the service of "+version, func() bool { return versions() == "[{v"+version+"}]" })
	}
	awaitService("0.0.1")
	if user := m.does(t, "ps -C punctual -o user="); strings.TrimSpace(user) != "punctual" {
		t.Errorf("it runs as %q", user)
	}

	// An upgrade under load: the replica that stops lets its requests end, and the next one makes up for what is due.
	h := herd{start: nextSecond(2 * time.Second), oneShots: 300, within: 8 * time.Second, cronJobs: 20, seconds: 8}
	create(t, api, h.jobs(w.URL)...)
	await(t, "the load", func() bool { return w.Len() > h.runs()/4 })
	m.does(t, "dpkg --install /mnt/0.0.2.deb")
	awaitService("0.0.2")
	h.outlast(t)
	verify(t, atRest(t, dsn, w), Conditions{SentOnce: true, AllSucceed: true})

	m.does(t, "dpkg --remove punctual; grep --quiet DATABASE_URL /etc/punctual/punctual.env")
	if m.run(t, "pgrep -x punctual || systemctl cat punctual.service").Run() == nil {
		t.Error("the package is removed, and the service is there")
	}
	m.does(t, "dpkg --purge punctual; test ! -e /etc/punctual/punctual.env; ! id punctual; cat /etc/punctual/master.key")
	var runs int
	must(t, connect(t, dsn).QueryRow(t.Context(), "SELECT count(*) FROM punctual.runs").Scan(&runs))
	if runs < h.runs()/2 {
		t.Errorf("%d runs are left in the database", runs)
	}
}

var released = regexp.MustCompile(`(?m)^[0-9a-f]{64}  punctual[-_]0\.0\.2\S+$`)

// Two builds of the same commit are equal.
func TestTwoBuildsOfAReleaseAreEqual(t *testing.T) {
	triesRelease(t)
	t.Parallel()
	again := t.TempDir()
	buildRelease(t, "0.0.2", again)
	one, other := readFile(t, filepath.Join(release(t, "0.0.2"), "SHA256SUMS")), readFile(t, filepath.Join(again, "SHA256SUMS"))
	if one != other {
		t.Errorf("the first build gave\n%s\nand the second\n%s", one, other)
	}
	if found := released.FindAllString(one, -1); len(found) != 5 { // archive, two packages, image, list of modules
		t.Errorf("there are %q", found)
	}
}
