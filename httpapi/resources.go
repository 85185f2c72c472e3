package httpapi

import "strings"

// notFound returns what is said of a resource that does not exist, by the pattern of its path.
func notFound(route string) string {
	switch resource := resourceAt(route); resource {
	case "job":
		return "There is no job with that id or name."
	case "event":
		return "There is no event with that name and id."
	case "tenant":
		return "There is no tenant with that name."
	case "secret", "limit":
		return "There is no " + resource + " with that name."
	case "grant":
		return "There is no tenant with that name, or it has no grant of that schema."
	case "version":
		return "There is no job with that id or name, or it has no such version; old versions are kept as long as runs."
	case "pending run":
		return "There is no job with that id or name, or no run with that key is pending; it may have been claimed."
	default:
		return "There is no " + resource + " with that id."
	}
}

// resourceAt names the kind of resource of a path pattern.
func resourceAt(pattern string) string {
	for _, r := range resources {
		if strings.HasPrefix(pattern, r.prefix) {
			return r.name
		}
	}
	return "job"
}

// resources are the kinds by path prefix; other paths are about jobs.
var resources = []struct{ prefix, name string }{
	{"/v1/runs/", "run"},
	{"/v1/approvals/", "run"},
	{"/v1/jobs/{job}/versions/{version}", "version"},
	{"/v1/jobs/{job}/dated/{key}", "pending run"},
	{"/v1/dead-letters/{run}", "dead letter"},
	{"/v1/operations", "operation"},
	{"/v1/events", "event"},
	{"/v1/api-keys", "API key"},
	{"/v1/tenants/{tenant}/grants/{schema}", "grant"},
	{"/v1/tenant", "tenant"},
	{"/v1/secrets", "secret"},
	{"/v1/limits", "limit"},
	{"/v1/signing-secrets", "signing secret"},
	{"/v1/freeze", "tenant"},
	{"/v1/unfreeze", "tenant"},
}
