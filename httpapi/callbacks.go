package httpapi

import (
	"cmp"
	"context"
	"encoding/json"

	"punctual/httpapi/api"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/claim"
	"punctual/store/runs"
)

// Bounds on what targets report, in bytes.
const (
	maxProgress     = 64 << 10
	maxCallbackBody = max(maxProgress, domain.MaxResult) + 1<<10
	maxFailure      = 4096
)

// callbackRoutes adds the operations for targets of jobs with completion async. They are authenticated by the run
// token of the request that the target answered, and by nothing else.
func (s *server) callbackRoutes() {
	superseded := &runs.SupersededError{Run: exampleRunID, Status: domain.StatusRetrying}
	api.RegisterBody[HeartbeatInput](s.api, api.Operation{
		ID: "heartbeat-run", Route: "POST /v1/runs/{run}/heartbeat", Open: true, Tag: tagCallbacks,
		Summary: "Send a heartbeat", MaxBody: maxCallbackBody, Errors: []int{401, 404},
		Conflict: superseded,
		Asks:     `{"progress":{"rows":41200}}`,
		Description: "Postpones the deadline by the job's heartbeat_timeout, and keeps the progress, if any is sent, for " +
			"the next attempt. The response says whether a cancel was requested. From then on, heartbeats do not move the " +
			"deadline.",
	}, api.Optional, s.heartbeatRun)
	api.RegisterBody[CompletionInput](s.api, api.Operation{
		ID: "complete-run", Route: "POST /v1/runs/{run}/complete", Open: true, Tag: tagCallbacks, Summary: "Complete a run",
		MaxBody: maxCallbackBody, Errors: []int{401, 404},
		Conflict: superseded,
		Asks:     `{"result":{"documents":41877}}`,
		Answers:  []string{exampleCompleted},
		Description: "The run succeeds, or ends as cancelled if a cancel was requested. The result is kept with the run " +
			"and shown with it. This request may come before the response to the attempt's request has arrived. Repeating it " +
			"changes nothing, not even the result.",
	}, api.Optional, s.completeRun)
	api.RegisterBody[FailureInput](s.api, api.Operation{
		ID: "fail-run", Route: "POST /v1/runs/{run}/fail", Open: true, Tag: tagCallbacks, Summary: "Fail a run",
		MaxBody: maxCallbackBody, Errors: []int{401, 404},
		Conflict: superseded,
		Answers:  []string{exampleFailed},
		Description: "The attempt fails with the reason failed, and the run is retried under the job's retry policy. " +
			"Repeating the request changes nothing.",
	}, api.Optional, s.failRun)
	api.Register(s.api, api.Operation{
		ID: "get-run-progress", Route: "GET /v1/runs/{run}/progress", Open: true, Tag: tagCallbacks,
		Summary: "Get the last progress", Errors: []int{401, 404},
		Conflict:    superseded,
		Description: "The progress that an attempt of the run reported last. The current attempt can continue from it.",
	}, s.getProgress)
	api.Register(s.api, api.Operation{
		ID: "get-step-result", Route: "GET /v1/runs/{run}/results/{step}", Open: true, Tag: tagCallbacks,
		Summary: "Get the result of another step", Errors: []int{401, 404},
		Conflict: superseded,
		Description: "The result of a step of the same workflow's run. A step is sent a path to this operation in place of " +
			"a result that is too large for its body. The token works until the attempt of this run has ended.",
	}, s.getStepResult)
}

// CallbackRef is the input of every report of a target: the run, and the token of an attempt.
type CallbackRef struct {
	RunRef
	Token string `header:"Punctual-Run-Token" doc:"The token that came with the request of the attempt." example:"prt_AAAAAAAAAAc0kqJ7o3tZ8Vn3mWv9yQpEwq1c1yq3iUO0m2l9Yg4D5Q"`
}

// Exists returns ErrRunToken for a malformed id: no token belongs to it either.
func (c *CallbackRef) Exists() error {
	if c.RunRef.Exists() != nil {
		return domain.ErrRunToken
	}
	return nil
}

// HeartbeatInput is the optional body of a heartbeat.
type HeartbeatInput struct {
	Progress json.RawMessage `json:"progress,omitempty" doc:"Any JSON, up to 64 KiB: what the next attempt needs to continue from here. Absent: the progress reported before stays."`
}

// reportInput is a report of a target.
type reportInput[T any] struct {
	CallbackRef
	Request body.Body[T]
}

func (s *server) heartbeatRun(
	ctx context.Context, _ int32, in *reportInput[HeartbeatInput],
) (*answer[claim.Heartbeat], error) {
	var problems []problem.FieldError
	if n := len(in.Request.Value.Progress); n > maxProgress {
		problems = append(problems, problem.Atf("body.progress", "%d bytes; at most %d (64 KiB)", n, maxProgress))
	}
	if !jobspec.MeasuredJSON(in.Request.Value.Progress) {
		problems = append(problems, problem.At("body.progress",
			"has a number that is larger than 1.7e308 or smaller than 5e-324; write it as a string"))
	}
	if err := in.Request.Check(problems...); err != nil {
		return nil, err
	}
	return show(s.Store.Claims.HeartbeatRun(ctx, in.Run.id, in.Token, in.Request.Value.Progress))
}

// CompletionInput is the optional body that reports completion.
type CompletionInput struct {
	Result json.RawMessage `json:"result,omitempty" doc:"The result of the work: any JSON, up to 64 KiB, shown with the run. Absent or null: no result."`
}

func (s *server) completeRun(
	ctx context.Context, _ int32, in *reportInput[CompletionInput],
) (*answer[runs.Run], error) {
	var problems []problem.FieldError
	result, wrong := domain.CheckResult(in.Request.Value.Result)
	if wrong != "" {
		problems = append(problems, problem.At("body.result", wrong))
	}
	if err := in.Request.Check(problems...); err != nil {
		return nil, err
	}
	return show(s.Store.Runs.CompleteRun(ctx, in.Run.id, in.Token, result))
}

// FailureInput is the optional body that reports a failure.
type FailureInput struct {
	Error string `json:"error,omitempty" minLength:"1" maxLength:"4096" doc:"The error, for people. Absent: none." example:"the ledger is locked"`
	Retry *bool  `json:"retry,omitempty" doc:"false: another attempt would fail too, so the run is dead at once. Absent: the run is retried under the job's retry policy." example:"true"`
}

func (s *server) failRun(ctx context.Context, _ int32, in *reportInput[FailureInput]) (*answer[runs.Run], error) {
	failure := in.Request.Value
	if err := in.Request.Check(prose("body.error", failure.Error, maxFailure)...); err != nil {
		return nil, err
	}
	why := cmp.Or(failure.Error, "the target reported that it failed")
	return show(s.Store.Runs.FailRun(ctx, in.Run.id, in.Token, why, or(failure.Retry, true)))
}

func (s *server) getProgress(ctx context.Context, _ int32, in *CallbackRef) (*answer[claim.Progress], error) {
	return show(s.Store.Claims.RunProgress(ctx, in.Run.id, in.Token))
}

// StepResult is the result of a step.
type StepResult struct {
	Result json.RawMessage `json:"result" doc:"The result of the step. Null: it has none."`
}

type stepResultInput struct {
	CallbackRef
	Step string `path:"step" doc:"Name of the step." example:"extract"`
}

func (s *server) getStepResult(ctx context.Context, _ int32, in *stepResultInput) (*answer[StepResult], error) {
	result, err := s.Store.Claims.StepResult(ctx, in.Run.id, in.Token, in.Step)
	return show(StepResult{Result: result}, err)
}
