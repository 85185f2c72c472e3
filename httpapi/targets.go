package httpapi

import (
	"fmt"
	"net/url"

	"punctual/httpapi/problem"
	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/jobspec"
)

// forbidden returns an error for each URL of a definition that names an address which jobs may not call. So the
// author knows at once, not only with the first run. The guard checks every connection again when it is made.
func (s *server) forbidden(tenant int32, at string, d jobspec.Definition) []problem.FieldError {
	var fields []problem.FieldError
	d.EachTarget(func(field string, t *jobspec.Target) {
		target, err := jobspec.ParseAddress(t.URL)
		fields = append(fields, s.refused(tenant, at+"."+d.Path(field)+".url", target.URL, err)...)
	})
	for i, step := range d.Steps {
		if step.Approval != nil {
			fields = append(fields,
				s.forbiddenNotify(tenant, fmt.Sprintf("%s.steps[%d].approval", at, i), step.Approval.Entries())...)
		}
	}
	return append(fields, s.forbiddenNotify(tenant, at, d.Notify)...)
}

// forbiddenNotify is forbidden for the recipients of notices.
func (s *server) forbiddenNotify(tenant int32, at string, list []jobspec.Notify) (fields []problem.FieldError) {
	for i, n := range list {
		if n.Format == jobspec.FormatEmail && wire.CheckMailbox(n.To) == nil {
			if err := s.Mailer.Check(n.To); err != nil {
				fields = append(fields, problem.At(fmt.Sprintf("%s.notify[%d].to", at, i), err.Error()))
			}
			continue
		}
		recipient, err := wire.CheckURL(n.URL)
		fields = append(fields, s.refused(tenant, fmt.Sprintf("%s.notify[%d].url", at, i), recipient, err)...)
	}
	return fields
}

// refused returns why the guard refuses a URL. A malformed one is left to the definition's own validation.
func (s *server) refused(tenant int32, at string, u *url.URL, malformed error) []problem.FieldError {
	if s.Guard == nil || malformed != nil {
		return nil
	}
	if err := s.Guard.For(tenant).CheckTarget(u); err != nil {
		return []problem.FieldError{problem.At(at, err.Error())}
	}
	return nil
}
