package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"punctual/httpapi/auth"
	"punctual/httpapi/client"
	"punctual/httpapi/problem"
)

// api holds the flags that say where the API is and who calls. No flag holds the key itself: other users could read it
// in the list of processes.
type api struct {
	APIURL     string `name:"api-url" default:"http://127.0.0.1:8080" help:"Address of the API: a replica, or a load balancer in front of several."`
	APIKeyFile string `name:"api-key-file" type:"path" placeholder:"FILE" help:"File with the API key, or a token of the issuer. Alternative: the key itself in PUNCTUAL_API_KEY. Not needed with serve --auth=none."`
	Tenant     string `placeholder:"NAME" help:"Tenant to act for, if not the key's own. Needs the role operator."`
}

// Validate is called by the flag parser.
func (a api) Validate() error {
	if u, err := url.Parse(a.APIURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("--api-url: %q is not a URL such as https://punctual.example.com", a.APIURL)
	}
	return nil
}

// keyVariable is the environment variable that may hold the API key.
const keyVariable = "PUNCTUAL_API_KEY"

func (a api) key() (string, error) {
	if a.APIKeyFile == "" {
		return strings.TrimSpace(os.Getenv(keyVariable)), nil
	}
	return secretIn("--api-key-file", a.APIKeyFile, "the file is empty")
}

// secretIn reads the file that a flag names. empty is said of a file without a secret.
func secretIn(flag, file, empty string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	secret := strings.TrimSpace(string(raw))
	if secret == "" {
		return "", fmt.Errorf("%s %s: %s", flag, file, empty)
	}
	return secret, nil
}

// ProvideClient gives commands a client of the API, whose errors say for people what went wrong. The flag parser calls
// it for a Run that takes one.
func (a api) ProvideClient() (*client.Client, error) {
	key, err := a.key()
	if err != nil {
		return nil, err
	}
	// As curl, it goes by the environment's proxy.
	c := client.Through(strings.TrimSuffix(a.APIURL, "/"), &expiryTeller{}).WithErrors(a.explain)
	if key != "" {
		c = c.WithKey(key)
	}
	if a.Tenant != "" {
		c = c.WithHeader(auth.HeaderTenant, a.Tenant)
	}
	return c, nil
}

// expiryTeller says once on stderr that the key expires soon, if an answer tells it.
type expiryTeller struct{ told bool }

// RoundTrip implements http.RoundTripper.
func (e *expiryTeller) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || e.told {
		return answer, err
	}
	if at := answer.Header.Get(auth.HeaderKeyExpires); at != "" {
		e.told = true
		fmt.Fprintf(os.Stderr, "warning: the API key expires at %s\n", at)
	}
	return answer, nil
}

// apiError is what the API answered, or why it did not: one line, and one more for each field at fault.
type apiError struct {
	text string
	err  error
}

func (e *apiError) Error() string { return e.text }
func (e *apiError) Unwrap() error { return e.err }

// explain says for people what went wrong with a call.
func (a api) explain(ctx context.Context, err error) error {
	var answer *client.Error
	var lost *url.Error
	var noJSON *json.SyntaxError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &answer) && answer.Problem != nil:
		return &apiError{a.words(answer.Problem), err}
	case errors.As(err, &answer):
		return &apiError{fmt.Sprintf("--api-url: %s answers %d %s, and is not Punctual's API: %.100q", a.APIURL,
			answer.Status, http.StatusText(answer.Status), answer.Body), err}
	case errors.As(err, &noJSON):
		return &apiError{fmt.Sprintf("--api-url: %s answers no JSON, and is not Punctual's API", a.APIURL), err}
	case errors.As(err, &lost):
		return &apiError{fmt.Sprintf("--api-url: cannot reach %s: %s", a.APIURL, whyUnreachable(lost.Err)), err}
	}
	return err
}

// words is a problem for people.
func (a api) words(p *problem.Problem) string {
	text := fmt.Sprintf("%s: %s", p.Code, strings.TrimSuffix(p.Detail, "."))
	switch {
	case p.Code == problem.CodeUnauthenticated:
		text += "; " + a.whichKey()
	case p.Status >= http.StatusInternalServerError:
		text += "; the request is " + p.RequestID + " in the server's log"
	}
	for _, field := range p.Errors {
		at := strings.TrimPrefix(strings.TrimPrefix(field.Location, "body."), "query.")
		text += fmt.Sprintf("\n  %s: %s", at, field.Message)
	}
	return text
}

// whichKey says where the key came from.
func (a api) whichKey() string {
	switch {
	case a.APIKeyFile != "":
		return "the key is that of --api-key-file " + a.APIKeyFile
	case os.Getenv(keyVariable) != "":
		return "the key is that of " + keyVariable
	}
	return "no key was given: set " + keyVariable + ", or give --api-key-file"
}
