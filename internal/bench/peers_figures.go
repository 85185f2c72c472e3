package bench

import (
	"fmt"
	"time"
)

// peerFigures are the figures of the benchmark peers, in the order of the report. Each has rounds of a contender, whose
// name follows after a colon.
var peerFigures = []struct {
	name, unit string
	cap        func(Sizes) time.Duration // no longer was waited
}{
	{name: "burst", unit: "jobs/s"},
	{name: "burst, ratio to the bare loop", unit: "×"},
	{name: "burst, Punctual's ratio to it", unit: "×"},
	{name: "burst, CPU of Postgres", unit: "µs/job"},
	{name: "burst, CPU of the worker", unit: "µs/job"},
	{name: "burst, WAL", unit: "bytes/job"},
	{name: "burst, memory of the worker after it", unit: "MB"},
	{name: "lateness, p50", unit: "ms"},
	{name: "lateness, p99", unit: "ms"},
	{name: "lateness, earliest", unit: "ms"},
	{name: "kill, last lost job tried again", unit: "s", cap: func(s Sizes) time.Duration { return s.PeerKillFor }},
	{name: "kill, lost jobs", unit: "jobs"},
	{name: "kill, not answered by then", unit: "jobs"},
	{name: "kill, answered twice", unit: "jobs"},
	{name: "herd, last arrival", unit: "s", cap: func(Sizes) time.Duration { return herdFor }},
	{name: "herd, arrived in the minute", unit: "jobs"},
}

// goals are what the ratio of Punctual's burst to that of a peer is to reach.
var goals = map[string]*Goal{"River": atLeast(1.5), "graphile-worker": atLeast(1), "pg-boss": atLeast(1.4)}

// note notes, and says, what a round measured of a contender.
func (p *peers) note(name string, of fmt.Stringer, value float64) {
	name = name + ": " + of.String()
	p.rounds[name] = append(p.rounds[name], value)
	p.say("%s: %s", name, number(value))
}

// figures reports what was noted.
func (p *peers) figures() {
	measured := []fmt.Stringer{bareLoop, ownLoop}
	for _, c := range p.all() {
		measured = append(measured, c)
	}
	for _, f := range peerFigures {
		for _, c := range measured {
			name := f.name + ": " + c.String()
			if len(p.rounds[name]) == 0 {
				continue
			}
			figure := Figure{Benchmark: p.name, Name: name, Unit: f.unit, Rounds: p.rounds[name], Absent: p.db.noCPU}
			if f.cap != nil {
				figure.Cap = f.cap(p.Sizes).Seconds()
			}
			if f.name == "burst, Punctual's ratio to it" {
				figure.Target = goals[c.String()]
			}
			p.report.add(figure)
		}
	}
}

// A loop is one of the bare loops, beside contenders.
type loop string

const (
	bareLoop loop = "bare loop"
	ownLoop  loop = "bare loop, own client"
)

func (l loop) String() string { return string(l) }
