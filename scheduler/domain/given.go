package domain

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net/textproto"
	"net/url"
	"slices"

	"github.com/google/uuid"

	"punctual/scheduler/delivery/wire"
)

// MaxStepResults bounds the results that a step is sent, together, in bytes. The largest beyond it are named only.
const MaxStepResults = 256 << 10

// Given is what a step is sent besides its own body. It is read when the step is sent, and not stored with its run:
// the steps of a workflow may be many, and its input large. All of it is data: nothing in it is filled in.
type Given struct {
	Input []byte // JSON: the body of the workflow's run. Nil: none
	Steps []Told // the steps that it depends on
}

// Told is what a step is told of one that it depends on.
type Told struct {
	Step   string
	Run    uuid.UUID
	Status Status
	Reason Reason
	Result []byte // JSON. Nil: none, or it is not read
	Bytes  int    // how large the result is
	Note   string // why there is no result
}

// TakesGiven reports whether the attempt is of a step whose body can have what it is given: it is an object, or absent.
func (a Assignment) TakesGiven() bool {
	own := a.Job.body
	return a.Step != "" && a.Body == nil && !a.Job.SendsNothing() &&
		a.Job.Target.Method != "GET" && a.Job.Target.Method != "HEAD" && (len(own) == 0 || own[0] == '{')
}

// DependsOn returns the steps that the attempt's step depends on.
func (a Assignment) DependsOn() []string { return find(a.Job.Whole.Steps, a.Step).DependsOn }

// leaveOut returns the steps with the largest results, without which the others fit into MaxStepResults.
func (g *Given) leaveOut() (largest map[string]bool) {
	largest, sum := map[string]bool{}, 0
	for _, t := range slices.SortedFunc(slices.Values(g.Steps), func(a, b Told) int {
		return cmp.Or(cmp.Compare(a.Bytes, b.Bytes), bytes.Compare(a.Run[:], b.Run[:]))
	}) {
		if sum += t.Bytes; sum > MaxStepResults {
			largest[t.Step] = true
		}
	}
	return largest
}

// Whole reports whether all results are read that are to be sent.
func (g *Given) Whole() bool {
	largest := g.leaveOut()
	return !slices.ContainsFunc(g.Steps, func(t Told) bool { return t.Bytes > 0 && t.Result == nil && !largest[t.Step] })
}

// addGiven adds to a request what its step is given: input, which is the body of the workflow's run, and steps, which
// are those that it depends on. The request's own placeholders are filled in before.
func (a Assignment) addGiven(r *wire.Request) {
	g := a.Given
	if g == nil || !a.TakesGiven() || g.Input == nil && len(g.Steps) == 0 {
		return
	}
	size := len(r.Body) + len(g.Input) + len(`,"input":,"steps":{}}`)
	for _, t := range g.Steps {
		size += min(t.Bytes, MaxResult) + len(t.Step) + len(t.Note) + 100
	}
	own := bytes.TrimSuffix(bytes.TrimRight(r.Body, " \t\r\n"), []byte("}"))
	body := append(make([]byte, 0, min(size, len(r.Body)+len(g.Input)+2*MaxStepResults)), own...)
	if len(own) == 0 {
		body = append(body, '{')
	}
	if g.Input != nil {
		body = append(member(body, "input"), g.Input...)
	}
	if len(g.Steps) > 0 {
		body = append(g.addSteps(append(member(body, "steps"), '{'), a.RunID), '}')
	}
	r.Body = append(body, '}')
	if r.Header == nil {
		r.Header = jsonHeader
	} else if textproto.MIMEHeader(r.Header).Get("Content-Type") == "" {
		r.Header = maps.Clone(r.Header)
		r.Header["Content-Type"] = jsonHeader["Content-Type"]
	}
}

// addSteps writes what a step is told of others. The largest results beyond MaxStepResults are named only: the token of
// the step's own run reads them.
func (g *Given) addSteps(b []byte, run uuid.UUID) []byte {
	largest := g.leaveOut()
	byName := func(a, b Told) int { return cmp.Compare(a.Step, b.Step) }
	for _, t := range slices.SortedFunc(slices.Values(g.Steps), byName) {
		head, _ := json.Marshal(struct { // never fails
			Status Status `json:"status"`
			Reason Reason `json:"reason,omitempty"`
		}{t.Status, t.Reason})
		b = append(member(b, t.Step), head[:len(head)-1]...)
		result := cmp.Or(string(t.Result), "null")
		if largest[t.Step] {
			href := "/v1/runs/" + run.String() + "/results/" + url.PathEscape(t.Step)
			left, _ := json.Marshal(leftOut{t.Bytes, href}) // never fails
			result = string(left)
		}
		b = append(member(b, "result"), result...)
		if t.Note != "" {
			note, _ := json.Marshal(t.Note) // never fails
			b = append(member(b, "result_note"), note...)
		}
		b = append(b, '}')
	}
	return b
}

// leftOut stands for a result that is too large.
type leftOut struct {
	Bytes int    `json:"bytes"`
	Href  string `json:"href"`
}

// member begins a member of the JSON object that b ends in.
func member(b []byte, name string) []byte {
	if b = bytes.TrimRight(b, " \t\r\n"); b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	quoted, _ := json.Marshal(name) // never fails
	return append(append(b, quoted...), ':')
}
