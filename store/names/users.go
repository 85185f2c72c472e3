package names

import (
	"fmt"
	"strings"

	"punctual/scheduler/jobspec"
)

// MostUsers is how many jobs an InUseError names. To know whether there are more, read one more.
const MostUsers = 10

// InUseError says that a thing cannot be deleted because active or paused jobs name it.
type InUseError struct {
	What string   // the kind of thing, such as secret
	Name string   // its name
	Jobs []string // up to MostUsers, by name
	More bool     // there are more such jobs
}

// Unused returns an *InUseError if there are jobs that use a thing.
func Unused(what, name string, jobs []string) error {
	if len(jobs) == 0 {
		return nil
	}
	return &InUseError{What: what, Name: name, Jobs: jobs[:min(len(jobs), MostUsers)], More: len(jobs) > MostUsers}
}

func (e *InUseError) Error() string {
	others := ""
	if e.More {
		others = " and others"
	}
	return fmt.Sprintf("%s %q is used by active or paused jobs: %s%s", e.What, e.Name, strings.Join(e.Jobs, ", "), others)
}

// Unwrap returns how a caller is refused.
func (e *InUseError) Unwrap() error { return &jobspec.Refusal{Code: "state", Reason: e.Error()} }
