package httpapi

import (
	"fmt"

	"punctual/httpapi/problem"
	"punctual/scheduler/delivery"
	"punctual/scheduler/domain"
)

// forbidden returns an error for each URL of a definition that names an address which jobs may not call. So the
// author knows at once, not only with the first run. The guard checks every connection again when it is made.
// Malformed URLs are left to the definition's own validation.
func (s *server) forbidden(tenant int32, at string, d domain.Definition) []problem.FieldError {
	if s.Guard == nil {
		return nil
	}
	var fields []problem.FieldError
	judge := func(field, raw string) {
		u, err := domain.ParseTarget(raw)
		if err != nil {
			return
		}
		if err := s.Guard.For(tenant).CheckTarget(u); err != nil {
			fields = append(fields, problem.At(at+"."+field, err.Error()))
		}
	}
	judge("target.url", d.Target.URL)
	return append(fields, s.forbiddenNotify(tenant, at, d.Notify)...)
}

// forbiddenNotify is forbidden for the recipients of notices.
func (s *server) forbiddenNotify(tenant int32, at string, list []domain.Notify) []problem.FieldError {
	if s.Guard == nil {
		return nil
	}
	var fields []problem.FieldError
	for i, n := range list {
		u, err := delivery.CheckURL(n.URL)
		if err != nil {
			continue
		}
		if err := s.Guard.For(tenant).CheckTarget(u); err != nil {
			fields = append(fields, problem.At(fmt.Sprintf("%s.notify[%d].url", at, i), err.Error()))
		}
	}
	return fields
}
