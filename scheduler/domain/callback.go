package domain

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
)

// RunToken returns the token that lets a target speak for one attempt of a run: the attempt's fencing token, and an
// HMAC that binds it to the run. So no token is stored, and a token dies with its attempt.
func RunToken(key []byte, run uuid.UUID, fence int64) string {
	return runTokens.make(key, run, binary.BigEndian.AppendUint64(nil, uint64(fence)))
}

// ErrRunToken means that a token was not made for the run.
var ErrRunToken error = &jobspec.Refusal{
	Code: "run_token", Reason: "send back the Punctual-Run-Token that came with the request of this run",
}

// ReadRunToken returns the fencing token of the attempt that a run token was made for. It returns ErrRunToken when
// the token was not made for this run with this key.
func ReadRunToken(key []byte, run uuid.UUID, token string) (fence int64, err error) {
	raw, ok := runTokens.read(key, run, token)
	if !ok {
		return 0, ErrRunToken
	}
	return int64(binary.BigEndian.Uint64(raw)), nil
}

// tokens are the tokens of one use.
type tokens struct {
	prefix string // tells people, and scanners for leaked secrets, what it is
	use    string // keeps a token from being taken for one of another use
	size   int    // of what it says, in bytes
}

var (
	runTokens      = tokens{"prt_", "punctual run token\n", 8}
	approvalTokens = tokens{"pat_", "punctual approval link\n", 1}
)

// make returns what a token says, and an HMAC that binds it to a run.
func (t tokens) make(key []byte, run uuid.UUID, says []byte) string {
	return t.prefix + base64.RawURLEncoding.EncodeToString(append(says, t.mac(key, run, says)...))
}

// read returns what a token says. ok is false if it was not made for the run with the key.
func (t tokens) read(key []byte, run uuid.UUID, token string) (says []byte, ok bool) {
	text, ok := strings.CutPrefix(token, t.prefix)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if !ok || err != nil || len(raw) != t.size+sha256.Size {
		return nil, false
	}
	return raw[:t.size], hmac.Equal(raw[t.size:], t.mac(key, run, raw[:t.size]))
}

func (t tokens) mac(key []byte, run uuid.UUID, says []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(t.use)) // never fails
	mac.Write(run[:])
	mac.Write(says)
	return mac.Sum(nil)
}

// CallbackDeadline is when an attempt ends unless its target reports again: a heartbeat timeout from now, but never
// later than max_duration after its start.
func (j *Job) CallbackDeadline(started, now time.Time) time.Time {
	return started.Add(min(now.Sub(started)+j.HeartbeatTimeout.Value(), j.MaxDuration.Value()))
}

// JudgeSilent decides what a passed deadline of the target means for its run. Beyond max_duration the attempt has
// timed out; before that the target was silent for too long, and the attempt is lost. losses is how many attempts in
// a row the run had lost to silence just before.
func JudgeSilent(a Assignment, losses int, started, now time.Time) Outcome {
	if a.Job.Approval != nil {
		return judgeUnapproved(a, started, now)
	}
	if longest := a.Job.MaxDuration; !now.Before(started.Add(longest.Value())) {
		o := Outcome{
			Assignment: a, StartedAt: started, FinishedAt: now, Reason: ReasonTimeout,
			Error: fmt.Sprintf("the target has not completed the attempt within its max_duration of %s", longest),
		}
		if a.Job.IsWorkflow() {
			o.Error = fmt.Sprintf("its steps have not ended within its max_duration of %s", longest)
		}
		o.fail(true, 0)
		return o
	}
	o := lose(a, losses, started, now,
		fmt.Sprintf("the target was silent for longer than its heartbeat_timeout of %s", a.Job.HeartbeatTimeout))
	o.Reason = ReasonSilent // also after the last loss: no replica is to blame
	return o
}

// JudgeReported decides what it means for a run that its target reports that the attempt failed.
func JudgeReported(a Assignment, message string, retry bool, started, now time.Time) Outcome {
	o := Outcome{Assignment: a, StartedAt: started, FinishedAt: now, Reason: ReasonFailed, Error: message}
	if !retry {
		o.Verdict = Bury
		return o
	}
	o.fail(true, 0)
	return o
}
