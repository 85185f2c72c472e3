// Package dashboard is the pages for people: did a job run, and if not, why not. The binary serves them at /.
//
// The pages know nothing but the API. Each page calls it in this process, through package client, with the credentials
// of the visitor's session (inside). So roles, tenants, limits, validation and the audit log exist once, and the pages
// can show and do what the visitor may show and do with curl.
//
// Start with [Pages.Routes], which lists the pages. A visit (visit.go) is one request of a browser. Sessions are in
// session.go; signin.go and renewal.go are about those with a token of an issuer. Each page has a file with its handler
// and a template of the same name.
//
// The pages work without scripts. Scripts refresh them, tell the visitor's zone, and add keys.
package dashboard
