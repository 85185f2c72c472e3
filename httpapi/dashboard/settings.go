package dashboard

import (
	"net/url"

	"punctual/httpapi"
	"punctual/httpapi/auth"
	"punctual/httpapi/client"
	"punctual/store/secrets"
	"punctual/store/tenants"
)

// settingsView is the page of a tenant's settings.
type settingsView struct {
	Tenant  httpapi.TenantWithUsage
	Keys    []tenants.Key
	Secrets []secrets.Secret
	Signing []secrets.SigningSecret
	Roles   []auth.Role // those a new key may have
	NewKey  *httpapi.NewKey
	Tests   []httpapi.NotifyResult
	Tested  bool
	mistakes

	Expiring []tenants.Key // that expire soon
}

func (v *visit) settings() error {
	view, err := v.readSettings()
	return v.shows(err, "settings", "Settings", view)
}

func (v *visit) readSettings() (view settingsView, err error) {
	if view.Tenant, err = call(v, client.OwnTenant, nil); err != nil || !v.may(auth.RoleAdmin) {
		return view, err
	}
	for _, role := range auth.Roles {
		if v.may(role) {
			view.Roles = append(view.Roles, role)
		}
	}
	if view.Expiring, err = v.expiringKeys(); err != nil {
		return view, err
	}
	keys, err := call(v, client.APIKeys, url.Values{"limit": {"100"}})
	if err != nil {
		return view, err
	}
	named, err := call(v, client.Secrets, url.Values{"limit": {"100"}})
	if err != nil {
		return view, err
	}
	signing, err := call(v, client.SigningSecrets, nil)
	view.Keys, view.Secrets, view.Signing = keys.Data, named.Data, signing.Data
	return view, err
}

// expiringKeys returns the keys that expire soon, if the visitor may know of keys.
func (v *visit) expiringKeys() ([]tenants.Key, error) {
	if !v.may(auth.RoleAdmin) {
		return nil, nil
	}
	list, err := call(v, client.APIKeys, url.Values{"expiring": {"true"}, "limit": {"20"}})
	return list.Data, err
}

// createKey shows the new key's secret on the page itself: it is never shown again.
func (v *visit) createKey() error {
	in := httpapi.KeyInput{
		Name: v.field("name"), Role: auth.Role(v.field("role")), ExpiresAt: v.instant("expires_at"),
	}
	if v.field("never") != "" {
		in.ExpiresIn = httpapi.NeverExpires()
	}
	made, failed := call(v, client.CreateAPIKey, in)
	said, err := refused(failed)
	if err != nil {
		return err
	}
	view, err := v.readSettings()
	if err != nil {
		return err
	}
	if view.Problem = said; said != nil {
		return v.render(view.Problem.Status, "settings", "Settings", view)
	}
	view.NewKey = &made
	return v.show("settings", "Settings", view)
}

func (v *visit) revokeKey() error {
	_, err := call(v, client.RevokeAPIKey, nil, v.part("key"))
	return v.done(err, "/settings", "The key is revoked.")
}

// testNotify sends a test to the recipients of the tenant's default, and shows how each answered.
func (v *visit) testNotify() error {
	results, err := call(v, client.TestNotify, httpapi.NotifyTest{})
	if err != nil {
		return err
	}
	view, err := v.readSettings()
	view.Tests, view.Tested = results.Data, true
	return v.shows(err, "settings", "Settings", view)
}

// freeze stops or goes on with the claims of the tenant or of the deployment.
func (v *visit) freeze() error {
	in := httpapi.FreezeInput{Scope: httpapi.FreezeScope(v.field("scope")), Note: v.field("note")}
	if v.field("unfreeze") != "" {
		_, err := call(v, client.Unfreeze, in)
		return v.done(err, "/settings", "Claims are resumed.")
	}
	_, err := call(v, client.Freeze, in)
	return v.done(err, "/settings", "Nothing is claimed any more. Runs in flight end by themselves.")
}
