package domain

import (
	"slices"

	"punctual/scheduler/jobspec"
	"punctual/scheduler/placeholder"
)

// BodySecrets returns the secrets whose values are to stand in the body of an attempt's request, with placeholders
// filled in. Only a definition asks for secrets. The body of a trigger or an event is data, and so is what a workflow
// or a chain adds to the job's own body.
func (a Assignment) BodySecrets(body []byte) []placeholder.Secret {
	var data []string
	switch {
	case !a.Job.asksInBody:
		return nil
	case a.Step != "":
		data = jobspec.StepMembers
	case a.Body != nil && a.Template:
		data = ofChains
	case a.Body != nil:
		return nil
	}
	return slices.DeleteFunc(placeholder.Secrets(body), func(s placeholder.Secret) bool {
		return slices.Contains(data, s.Member)
	})
}

// ofChains are the members of a chained run's body that the chain writes. They hold what others say.
var ofChains = []string{"upstream"}
