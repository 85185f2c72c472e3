package jobspec

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// Refusal is an error of a caller: what was asked for cannot be done. An error that says more about it unwraps to one.
type Refusal struct {
	Code   string // why, in the words of the API's problems
	Reason string
	Around bool       // the errors around it belong to the reason: they say of what
	Blames []Problem  // the fields of the request that are at fault
	Run    *uuid.UUID // the run that is in the way; nil: none is
}

func (r *Refusal) Error() string { return r.Reason }

// Invalid refuses a request with fields at fault; nil: there are none.
func Invalid(blames []Problem) error {
	if len(blames) == 0 {
		return nil
	}
	return &Refusal{Code: "invalid", Reason: "the request is not valid", Blames: blames}
}

// Blame is the error of one field of a request.
func Blame(field, format string, args ...any) Problem {
	return Problem{Field: field, Message: fmt.Sprintf(format, args...)}
}

// BlamesOf returns the fields of a request that an error blames.
func BlamesOf(err error) []Problem {
	var one Problem
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		return refusal.Blames
	case errors.As(err, &one):
		return []Problem{one}
	}
	return nil
}
