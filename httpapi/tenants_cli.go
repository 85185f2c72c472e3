package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/store/pg"
	"punctual/store/tenants"
)

// SetTenant applies the flags of a command to a tenant's settings. An empty flag changes nothing, and none lifts a
// limit. The settings are validated like those of a request.
func SetTenant(t *tenants.Tenant, given map[string]string) error {
	patch := map[string]any{}
	for name, text := range given {
		switch {
		case text == "":
		case text == "none":
			patch[name] = nil
		case name == "allowed_targets":
			patch[name] = strings.Split(text, ",")
		case json.Valid([]byte(text)): // a number, or a list of recipients
			patch[name] = json.RawMessage(text)
		case name == "notify":
			return fmt.Errorf(`--notify: %q is not JSON; write a list such as `+
				`'[{"on":["failing","recovered"],"url":"https://pager.internal/hook"}]', or none`, problem.Clip(text))
		default:
			patch[name] = text
		}
	}
	raw, err := body.Render(patch)
	if err != nil {
		return err
	}
	asked, unread := body.Read[TenantSettings](raw, true)
	if unread != nil {
		return unread
	}
	err = patchSettings(&asked, t)
	if p, is := errors.AsType[*problem.Problem](err); is {
		return flagErrors(p, given)
	}
	return err
}

// flagErrors reports the errors by flag instead of by field: with the flag's value, or where in a list it is wrong.
func flagErrors(p *problem.Problem, given map[string]string) error {
	return errors.New(strings.Join(pg.Column(p.Errors, func(e problem.FieldError) string {
		name := strings.TrimPrefix(e.Location, "body.")
		flag := "--" + strings.ReplaceAll(name, "_", "-")
		if value, whole := given[name]; whole {
			flag += "=" + problem.Clip(value)
		}
		return flag + ": " + e.Message
	}), "; "))
}

// CheckTenantName returns an error for an invalid name of a tenant.
func CheckTenantName(name string) error {
	for _, e := range (TenantInput{Name: name}).validate() {
		return fmt.Errorf("name: %s", e.Message)
	}
	return nil
}

// NewKeyOf returns the key that a command describes, or what is wrong with its flags. expires is a duration, never or
// empty.
func NewKeyOf(name string, role auth.Role, expires string) (tenants.NewKey, error) {
	asked := KeyInput{Name: name, Role: role}
	if expires != "" {
		_ = asked.ExpiresIn.UnmarshalText([]byte(expires)) // never fails: validate judges it
	}
	for _, e := range asked.validate() {
		return tenants.NewKey{}, fmt.Errorf("--%s: %s",
			strings.TrimPrefix(strings.ReplaceAll(e.Location, "expires_in", "expires"), "body."), e.Message)
	}
	return asked.newKey(), nil
}
