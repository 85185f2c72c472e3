package jobspec

import (
	"encoding/json"

	"punctual/scheduler/placeholder"
)

// MaxBodySecrets bounds the secrets in a body: each may have 64 KiB.
const MaxBodySecrets = 16

// StepMembers are the members of a step's body that the workflow writes. They hold what others say.
var StepMembers = []string{"input", "steps"}

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

// given checks that a step's own body leaves room for what the step is given.
func (c *checker) given(at string, own json.RawMessage) {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(own, &members) // any other body is sent as it is
	for _, name := range StepMembers {
		if _, has := members[name]; has {
			c.add(at+name, "a step is sent its input and the results of other steps in the members input and steps; "+
				"choose another name")
		}
	}
}
