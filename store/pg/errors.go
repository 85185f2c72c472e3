package pg

import "errors"

// Errors that callers of the store act on.
var (
	ErrNotFound = errors.New("not found")
	// ErrState says that the state of what is there does not allow an action. It is wrapped with the reason.
	ErrState = errors.New("the state does not allow it")
)
