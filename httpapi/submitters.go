package httpapi

import (
	"context"
	"fmt"

	"punctual/scheduler/domain"

	"punctual/store/jobs"
)

// isSubmitter reports whether the caller may do no more than submitters may.
func isSubmitter(ctx context.Context) bool { return !callerOf(ctx).role.includes(RoleEditor) }

// submitted lets submitters trigger a job that a submitter creates, unless the job says whether they may.
func submitted(ctx context.Context, job JobInput) JobInput {
	if isSubmitter(ctx) && job.SubmittersMayTrigger == nil {
		job.SubmittersMayTrigger = new(true)
	}
	return job
}

// mayCreate refuses jobs that a submitter may not create: all but one-shots.
func mayCreate(ctx context.Context, job JobInput) error {
	return oneShots(callerOf(ctx).role, []JobInput{job}, func(int) string { return "body.schedule" })
}

// mayWrite refuses batches that a submitter may not write.
func mayWrite(ctx context.Context, batch BatchInput) error {
	if c := callerOf(ctx); batch.OnConflict == jobs.ConflictReplace && !c.role.includes(RoleEditor) {
		return newProblem(CodeForbidden,
			fmt.Sprintf("Replacing jobs needs the role %s; the caller's role is %s.", RoleEditor, c.role),
			FieldError{"body.on_conflict", "must be error or skip"})
	}
	return oneShots(callerOf(ctx).role, batch.Jobs, func(i int) string { return fmt.Sprintf("body.jobs[%d].schedule", i) })
}

// oneShots refuses jobs that are not one-shots, from callers below editor.
func oneShots(role Role, jobs []JobInput, at func(i int) string) error {
	if role.includes(RoleEditor) {
		return nil
	}
	var fields []FieldError
	for i, job := range jobs {
		if kind := job.Schedule.Kind(); kind != domain.KindAt && kind != domain.KindDelay {
			fields = append(fields, FieldError{at(i), "must have at or delay"})
		}
	}
	if len(fields) == 0 {
		return nil
	}
	detail := fmt.Sprintf("The role %s creates one-shots only; "+
		"a job with another schedule, or with none, needs the role %s.", role, RoleEditor)
	return newProblem(CodeForbidden, detail, capped(fields)...)
}
