package domain

import (
	"slices"

	"punctual/scheduler/placeholder"
)

// MaxBodySecrets bounds the secrets in a body: each may have 64 KiB.
const MaxBodySecrets = 16

// ofSteps are the members of a step's body that the workflow writes, and ofChains those of a chained run's body that
// the chain does. They hold what others say.
var ofSteps, ofChains = []string{"input", "steps"}, []string{"upstream"}

// BodySecrets returns the secrets whose values are to stand in the body of an attempt's request, with placeholders
// filled in. Only a definition asks for secrets. The body of a trigger or an event is data, and so is what a workflow
// or a chain adds to the job's own body.
func (a Assignment) BodySecrets(body []byte) []placeholder.Secret {
	var data []string
	switch {
	case !a.Job.asksInBody:
		return nil
	case a.Step != "":
		data = ofSteps
	case a.Body != nil && a.Template:
		data = ofChains
	case a.Body != nil:
		return nil
	}
	return slices.DeleteFunc(placeholder.Secrets(body), func(s placeholder.Secret) bool {
		return slices.Contains(data, s.Member)
	})
}

// bodyField is the path of a secret in the body at a field.
func bodyField(body string, s placeholder.Secret) string {
	if s.Field == "" || s.Field[0] == '[' {
		return body + s.Field
	}
	return body + "." + s.Field
}

// bodySecrets checks the secrets that the body of a definition asks for.
func (c *checker) bodySecrets(body []byte) {
	all := placeholder.Secrets(body)
	for _, s := range all {
		switch {
		case s.Fault != "":
			c.add(bodyField("target.body", s), "%s", s.Fault)
		case !NameForm.MatchString(s.Name):
			c.add(bodyField("target.body", s), "%q is not the name of a secret: %s", clip(s.Name), NameRule)
		}
	}
	c.atMost("target.body", len(all), "secrets", MaxBodySecrets)
}

// stepSecrets refuses a secret in place of a step's body, which has members that the workflow writes.
func (c *checker) stepSecrets(at string, s Step) {
	for _, secret := range placeholder.Secrets(s.Target.Body) {
		if secret.Field == "" {
			c.add(bodyField(at+".target.body", secret), "a step is sent more than its own body, so that cannot be a secret "+
				`as a whole; name the secret in a member, as in {"token": {"$secret": "billing-token"}}`)
		}
	}
}
