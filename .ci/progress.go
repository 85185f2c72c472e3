// Progress runs `go test -json` with the arguments it gets, and shows the progress: packages as they end, tests that
// took long, and at least every quarter of a minute the tests that are running. It shows the output of a failed test
// with its failure and again at the end. With -v among the arguments it shows the output of every test. Exit status 0
// means that all tests passed.
//
//	go run .ci/progress.go -race -timeout 10m ./...
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"
)

const (
	slow    = 5 * time.Second  // a test that took this long is named when it ends
	silence = 15 * time.Second // after this long without output, the running tests are named
	slowest = 15               // how many of the slowest tests are listed at the end
)

// event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

// test is a test or subtest. With an empty name it is the package itself.
type test struct{ pkg, name string }

func (t test) String() string {
	return strings.TrimSpace(strings.TrimPrefix(t.pkg, "punctual/") + " " + t.name)
}

type ended struct {
	test
	took time.Duration
}

func longestFirst(a, b ended) int { return cmp.Compare(b.took, a.took) }

type progress struct {
	verbose                  bool
	began, spoke             time.Time
	running                  map[test]time.Time // with its start
	output                   map[test][]string
	passed, failed, skipped  int
	packages, failedPackages int
	long                     []ended
	failures                 []string
}

func main() {
	args := append([]string{"test", "-json"}, os.Args[1:]...)
	p := &progress{
		verbose: slices.Contains(args, "-v"), began: time.Now(), spoke: time.Now(),
		running: map[test]time.Time{}, output: map[test][]string{},
	}
	run, err := os.MkdirTemp("", "punctual-run-") // test processes share a cluster in it: internal/pgtest/run.go
	if err == nil {
		err = os.Chmod(run, 0o755) // for the user of Postgres
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "PUNCTUAL_TEST_RUN="+run)
	cmd.Stderr = os.Stderr
	lines, err := cmd.StdoutPipe()
	if err == nil {
		signal.Ignore(os.Interrupt) // go test gets the signal too, and ends
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "go test:", err)
		os.Exit(1)
	}
	p.follow(bufio.NewReader(lines))
	err = cmd.Wait()
	_ = os.RemoveAll(run)
	p.summary()
	if err != nil || p.failed+p.failedPackages > 0 {
		os.Exit(1)
	}
}

// follow handles events until there are no more.
func (p *progress) follow(lines *bufio.Reader) {
	read := make(chan string)
	go func() {
		defer close(read)
		for {
			line, err := lines.ReadString('\n')
			if line != "" {
				read <- line
			}
			if err != nil {
				return
			}
		}
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case line, more := <-read:
			if !more {
				return
			}
			var e event
			if json.Unmarshal([]byte(line), &e) != nil {
				p.say(strings.TrimSuffix(line, "\n")) // output of the go command itself
				continue
			}
			p.handle(e)
		case <-tick.C:
			if time.Since(p.spoke) >= silence {
				p.say(p.alive())
			}
		}
	}
}

func (p *progress) handle(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Print(e.Output)
	case "output":
		p.keep(t, e.Output)
	case "run", "cont":
		p.running[t] = time.Now()
	case "pause":
		delete(p.running, t)
	case "pass", "fail", "skip":
		delete(p.running, t)
		p.end(t, e.Action, time.Duration(e.Elapsed*float64(time.Second)))
	}
}

// keep stores a test's output until it is known whether the test failed.
func (p *progress) keep(t test, output string) {
	trimmed := strings.TrimLeft(output, " ")
	if strings.HasPrefix(trimmed, "=== ") ||
		t.name == "" && (output == "PASS\n" || strings.HasPrefix(output, "ok  \t") || strings.HasPrefix(output, "FAIL")) {
		return // the events say this
	}
	if p.verbose {
		fmt.Print(output)
		p.spoke = time.Now()
	}
	p.output[t] = append(p.output[t], output)
}

func (p *progress) end(t test, action string, took time.Duration) {
	output := p.output[t]
	delete(p.output, t)
	if t.name == "" {
		p.endPackage(t, action, took)
	} else if !strings.Contains(t.name, "/") || action == "fail" {
		switch action {
		case "pass":
			p.passed++
		case "skip":
			p.skipped++
		case "fail":
			p.failed++
		}
	}
	if t.name != "" && took >= slow && action == "pass" {
		p.say(fmt.Sprintf("%s  passed in %.1f s: %s", p.clock(), took.Seconds(), t))
	}
	if t.name != "" && !strings.Contains(t.name, "/") {
		p.long = append(p.long, ended{t, took})
	}
	if action == "fail" {
		text := fmt.Sprintf("FAILED after %.1f s: %s\n%s", took.Seconds(), t, strings.Join(output, ""))
		p.say(p.clock() + "  " + text)
		if t.name != "" || len(output) > 0 {
			p.failures = append(p.failures, text)
		}
	}
}

func (p *progress) endPackage(t test, action string, took time.Duration) {
	if action == "skip" {
		return // the package has no tests
	}
	p.packages++
	if action == "pass" {
		p.say(fmt.Sprintf("%s  ok in %.1f s: %s", p.clock(), took.Seconds(), t))
		return
	}
	p.failedPackages++
	// A test that was killed with its process, as -timeout does, has no event of its own.
	for running, since := range p.running {
		if running.pkg == t.pkg {
			text := fmt.Sprintf("NEVER ENDED, after %.1f s: %s\n%s", time.Since(since).Seconds(), running,
				strings.Join(p.output[running], ""))
			p.say(text)
			p.failures = append(p.failures, text)
			delete(p.running, running)
		}
	}
}

// alive describes the progress, and names the tests that have been running longest.
func (p *progress) alive() string {
	var running []ended
	for t, since := range p.running {
		if !p.hasSubtests(t) {
			running = append(running, ended{t, time.Since(since)})
		}
	}
	slices.SortFunc(running, longestFirst)
	var names []string
	for _, r := range running[:min(len(running), 6)] {
		names = append(names, fmt.Sprintf("%s (%.0f s)", r.test, r.took.Seconds()))
	}
	if len(names) == 0 {
		names = []string{"the compiler"}
	}
	if more := len(running) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%s  %d passed so far; running: %s", p.clock(), p.passed, strings.Join(names, ", "))
}

// hasSubtests reports whether subtests of a test are running.
func (p *progress) hasSubtests(t test) bool {
	for sub := range p.running {
		if sub.pkg == t.pkg && strings.HasPrefix(sub.name, t.name+"/") {
			return true
		}
	}
	return false
}

func (p *progress) clock() string { return fmt.Sprintf("%4.0f s", time.Since(p.began).Seconds()) }

func (p *progress) say(line string) {
	fmt.Println(line)
	p.spoke = time.Now()
}

func (p *progress) summary() {
	slices.SortStableFunc(p.long, longestFirst)
	fmt.Println("\nthe slowest tests:")
	for _, l := range p.long[:min(len(p.long), slowest)] {
		fmt.Printf("%8.1f s  %s\n", l.took.Seconds(), l.test)
	}
	if len(p.failures) > 0 {
		fmt.Println("\nwhat failed:")
		for _, f := range p.failures {
			fmt.Println(f)
		}
	}
	fmt.Printf("\n%d tests of %d packages passed, %d failed, %d were skipped, in %.0f s\n", p.passed, p.packages, p.failed,
		p.skipped, time.Since(p.began).Seconds())
}
