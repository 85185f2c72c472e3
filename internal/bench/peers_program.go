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

// peer is a contender that a program runs. docs/performance.md describes what such programs do.
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
func (p *peer) launch(command, url string, args ...string) (*process.Process, error) {
	args = append([]string{command, "--database-url=" + p.db.dsn, "--schema=" + p.schema, "--target=" + url}, args...)
	started, err := process.Launch(p.path, nil, append(args, p.tuned...)...)
	if err == nil {
		p.workers = append(p.workers, started)
	}
	return started, err
}

// describe asks the program what it runs.
func (p *peer) describe(ctx context.Context) error {
	said, err := p.run(ctx, "describe", "")
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(said), &p.description); err != nil || p.Name == "" || p.Unfinished == "" {
		return fmt.Errorf("%s describe: want JSON with name and unfinished, got: %s", p.path, said)
	}
	return nil
}

// run runs the program to its end, and returns what it wrote.
func (p *peer) run(ctx context.Context, command, url string, args ...string) (output string, err error) {
	started, err := p.launch(command, url, args...)
	if err != nil {
		return "", err
	}
	code, err := started.Wait(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("%s %s: exit code %d: %s", p.path, command, code, started.Output())
	}
	return started.Output(), err
}

func (p *peer) prepare(ctx context.Context, of load) error {
	if err := p.make(ctx); err != nil {
		return err
	}
	args := []string{fmt.Sprintf("--jobs=%d", of.jobs)}
	p.due = time.Time{}
	if of.every > 0 {
		p.due = p.nextSecond(2 * p.spare)
		args = append(args, "--due="+p.due.Format(time.RFC3339), fmt.Sprintf("--every=%v", milliseconds(of.every)))
	}
	if _, err := p.run(ctx, "load", of.url, args...); err != nil {
		return err
	}
	return p.settle(ctx)
}

func (p *peer) start(_ context.Context, of load) (workers []*process.Process, due time.Time, err error) {
	var args []string
	if of.slots > 0 {
		args = append(args, fmt.Sprintf("--slots=%d", of.slots))
	}
	if of.crons > 0 {
		args = append(args, fmt.Sprintf("--crons=%d", of.crons))
	}
	for range of.workers {
		worker, err := p.launch("work", of.url, args...)
		if err != nil {
			return nil, due, err
		}
		workers = append(workers, worker)
	}
	return workers, p.due, nil
}

// make makes the schema. One that a former bench left is dropped, and any other left alone. An interrupt does not break
// it off, as with scratch.create.
func (p *peer) make(interrupted context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(interrupted), cleanup)
	defer cancel()
	found, comment, err := lookAt(ctx, p.db.guard, p.schema)
	if err != nil {
		return err
	}
	if found && comment != peerMark {
		return &InUseError{p.db.guard.Config().Database, "has a schema " + p.schema + " that no bench has made"}
	}
	p.made = true
	if err := p.clear(ctx); err != nil {
		return err
	}
	p.made = true
	_, err = p.db.guard.Exec(ctx, `CREATE SCHEMA `+p.schema+`; COMMENT ON SCHEMA `+p.schema+` IS '`+peerMark+`'`,
		pgx.QueryExecModeSimpleProtocol)
	return errors.Join(err, interrupted.Err())
}

// ready waits until each worker has written a line "ready".
func (p *peer) ready(ctx context.Context, workers []*process.Process) error {
	for _, w := range workers {
		err := await(ctx, "a worker of "+p.String(), 5*time.Millisecond, func() (bool, error) {
			return strings.Contains("\n"+w.Output(), "\nready\n"), alive("a worker", w)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// alive returns an error if a process has ended.
func alive(what string, p *process.Process) error {
	select {
	case <-p.Done():
		return fmt.Errorf("%s has ended: %s", what, p.Output())
	default:
		return nil
	}
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
