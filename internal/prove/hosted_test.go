package prove

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/process"
)

// hosted is a webServer that runs for a test, in a directory and at an address of its own.
type hosted struct {
	webServer
	t            *testing.T
	dir, address string
	generation   int
	process      *process.Process
	behind       *hosted // nil: none
	up           []Span  // when it answered; the last has no end while it runs
}

// host starts a server at port 8080 of an address on loopback, and the one behind it at the next port.
func host(t *testing.T, s webServer, loopback string, port int) *hosted {
	t.Helper()
	dir, err := os.MkdirTemp("", "punctual-"+s.name+"-") // not below t.TempDir, whose path may be too long for a socket
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := &hosted{webServer: s, t: t, dir: dir, address: loopback + ":" + strconv.Itoa(port)}
	if s.behind != nil {
		h.behind = host(t, *s.behind, loopback, port+1)
	}
	h.start()
	return h
}

// start starts the server, and waits until it answers.
func (h *hosted) start() {
	h.t.Helper()
	h.configure()
	// HAProxy turns appending off for its stdout, so each process has a file of its own.
	args := []string{"-c", h.fill(`cd {dir} && exec "$0" "$@" >access.{generation}.log`), h.program(h.t)}
	for _, arg := range h.args {
		args = append(args, h.fill(arg))
	}
	var err error
	h.process, err = process.LaunchServer("/bin/sh", nil, args...)
	must(h.t, err)
	watch(h.t, h.process)
	stranger := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	await(h.t, h.name+" to answer", func() bool {
		if h.process.Ended() {
			h.t.Fatalf("%s has ended by itself", h.name)
		}
		response, err := stranger.Get("http://" + h.address)
		if err == nil {
			_ = response.Body.Close()
		}
		return err == nil
	})
	h.up = append(h.up, Span{From: time.Now()})
}

// configure writes the files of the next generation.
func (h *hosted) configure() {
	h.t.Helper()
	h.generation++
	for name, text := range h.files {
		must(h.t, os.WriteFile(filepath.Join(h.dir, name), []byte(h.fill(text)), 0o600))
	}
}

func (h *hosted) fill(text string) string {
	behind := ""
	if h.behind != nil {
		behind = h.behind.address
	}
	return strings.NewReplacer("{dir}", h.dir, "{address}", h.address, "{behind}", behind,
		"{generation}", strconv.Itoa(h.generation)).Replace(text)
}

// end lets the server answer what it has read, and end. Its log is complete then.
func (h *hosted) end() {
	h.t.Helper()
	h.up[len(h.up)-1].To = time.Now()
	must(h.t, h.process.Signal(h.stop))
	ended(h.t, h.name, h.process)
}

// restart ends the server, and starts it again after a while.
func (h *hosted) restart(after time.Duration) {
	h.t.Helper()
	h.end()
	pass(h.t, after)
	h.start()
	h.goesOn()
}

// reloads has the server read its files anew.
func (h *hosted) reloads() {
	h.t.Helper()
	h.configure()
	must(h.t, h.process.Signal(h.reload))
	h.goesOn()
}

// goesOn waits for further callbacks to be answered as the newest files say.
func (h *hosted) goesOn() {
	h.t.Helper()
	const further = 20
	await(h.t, "further callbacks of "+h.name, func() bool {
		return count(h.log(), func(a answer) bool { return a.generation == h.generation }) >= further
	})
}

// answer is a line of an access log.
type answer struct {
	nth
	status, generation int
}

// nth is an attempt of a run.
type nth struct {
	run     uuid.UUID
	attempt int
}

func (n nth) String() string { return fmt.Sprintf("attempt %d of run %s", n.attempt, n.run) }

func (n nth) compare(other nth) int {
	return cmp.Or(bytes.Compare(n.run[:], other.run[:]), cmp.Compare(n.attempt, other.attempt))
}

// log returns the answers to callbacks so far.
func (h *hosted) log() (all []answer) {
	h.t.Helper()
	files, err := filepath.Glob(filepath.Join(h.dir, "access*.log"))
	must(h.t, err)
	var text strings.Builder
	for _, file := range files {
		text.WriteString(readFile(h.t, file))
	}
	for line := range strings.Lines(text.String()) {
		fields := strings.Fields(line)
		if len(fields) != 4 || fields[0] == "-" || !strings.HasSuffix(line, "\n") {
			continue // no callback, or not yet written to its end
		}
		run, err := uuid.Parse(fields[0])
		must(h.t, err)
		a := answer{nth: nth{run: run}}
		for i, n := range []*int{&a.attempt, &a.status, &a.generation} {
			*n, err = strconv.Atoi(fields[i+1])
			must(h.t, err)
		}
		all = append(all, a)
	}
	return all
}
