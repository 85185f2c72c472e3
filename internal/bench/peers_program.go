package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/process"
)

// peer is a contender that a program runs. testdata/bench/README.md describes what such programs do.
type peer struct {
	*lab
	description

	path, schema string
	tuned        []string  // the flag that asks for tuned settings
	made         bool      // the schema is ours, and there
	due          time.Time // of the first job that was loaded; zero: at once
	workers      []*process.Process
}

// description is what a program says of its peer.
type description struct {
	version

	Unfinished string `json:"unfinished"` // SQL: whether any job is not finished
}

// version says what was measured.
type version struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Runtime string `json:"runtime,omitempty"`
}

// peerMark is the comment on the schema of a peer.
const peerMark = "Scratch schema of a peer in punctual bench, to be dropped."

func newPeer(l *lab, path, schema string, tuned ...string) *peer {
	return &peer{lab: l, path: path, schema: schema, tuned: tuned}
}

// String returns the name of the peer, and whether it runs as it comes.
func (p *peer) String() string {
	if len(p.tuned) == 0 {
		return p.Name + ", as it comes"
	}
	return p.Name
}

// launch starts the program.
func (p *peer) launch(command, url string, args ...string) *process.Process {
	args = append([]string{command, "--database-url=" + p.db.dsn, "--schema=" + p.schema, "--target=" + url}, args...)
	started, err := process.Launch(p.path, nil, append(args, p.tuned...)...)
	p.must(err)
	p.workers = append(p.workers, started)
	return started
}

// describe asks the program what it runs.
func (p *peer) describe(ctx context.Context) {
	said := p.run(ctx, "describe", "")
	if err := json.Unmarshal([]byte(said), &p.description); err != nil || p.Name == "" || p.Unfinished == "" {
		p.must(fmt.Errorf("%s describe: want JSON with name and unfinished, got: %s", p.path, said))
	}
}

// run runs the program to its end, and returns what it wrote.
func (p *peer) run(ctx context.Context, command, url string, args ...string) string {
	started := p.launch(command, url, args...)
	code, err := started.Wait(ctx)
	p.must(err)
	if code != 0 {
		p.must(fmt.Errorf("%s %s: exit code %d: %s", p.path, command, code, started.Output()))
	}
	return started.Output()
}

func (p *peer) prepare(ctx context.Context, of load) {
	p.make(ctx)
	args := []string{fmt.Sprintf("--jobs=%d", of.jobs)}
	p.due = time.Time{}
	if of.every > 0 {
		p.due = p.nextSecond(2 * p.spare)
		args = append(args, "--due="+p.due.Format(time.RFC3339), fmt.Sprintf("--every=%v", milliseconds(of.every)))
	}
	p.run(ctx, "load", of.url, args...)
	p.settle(ctx)
}

func (p *peer) start(_ context.Context, of load) (workers []*process.Process, due time.Time) {
	var args []string
	if of.slots > 0 {
		args = append(args, fmt.Sprintf("--slots=%d", of.slots))
	}
	if of.crons > 0 {
		args = append(args, fmt.Sprintf("--crons=%d", of.crons))
	}
	for range of.workers {
		workers = append(workers, p.launch("work", of.url, args...))
	}
	return workers, p.due
}

// make makes the schema. One that a former bench left is dropped, and any other left alone. An interrupt does not break
// it off, as with scratch.create.
func (p *peer) make(interrupted context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(interrupted), cleanup)
	defer cancel()
	found, comment, err := lookAt(ctx, p.db.guard, p.schema)
	p.must(err)
	if found && comment != peerMark {
		p.must(&InUseError{p.db.guard.Config().Database, "has a schema " + p.schema + " that no bench has made"})
	}
	p.made = true
	p.must(p.clear(ctx))
	p.made = true
	_, err = p.db.guard.Exec(ctx, `CREATE SCHEMA `+p.schema+`; COMMENT ON SCHEMA `+p.schema+` IS '`+peerMark+`'`,
		pgx.QueryExecModeSimpleProtocol)
	p.must(errors.Join(err, interrupted.Err()))
}

// ready waits until each worker has written a line "ready".
func (p *peer) ready(ctx context.Context, workers []*process.Process) {
	for _, w := range workers {
		p.must(await(ctx, "a worker of "+p.String(), 5*time.Millisecond, func() (bool, error) {
			return strings.Contains("\n"+w.Output(), "\nready\n"), alive("a worker", w)
		}))
	}
}

// alive returns an error if a process has ended.
func alive(what string, p *process.Process) error {
	if p.Ended() {
		return fmt.Errorf("%s has ended: %s", what, p.Output())
	}
	return nil
}

func (p *peer) finished(ctx context.Context) (bool, error) {
	unfinished, err := tryQuery[bool](ctx, p.lab, p.Unfinished)
	return !unfinished, err
}

func (p *peer) clear(ctx context.Context) error {
	for _, w := range p.workers {
		w.Kill()
	}
	p.workers = nil
	if !p.made {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	_, err := p.db.guard.Exec(ctx, `DROP SCHEMA IF EXISTS `+p.schema+` CASCADE`)
	p.made = err != nil
	return err
}
