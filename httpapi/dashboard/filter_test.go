package dashboard

import (
	"net/http"
	"testing"
)

// A list must not look narrower than it is: a filter that a page does not know is refused, as the API refuses it, and
// nothing can be done to all that the list would have.
func TestAPageRefusesFiltersThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	b := s.as("default", "operator")
	for _, path := range []string{
		"/dead-letters?hst=127.0.0.9", "/dead-letters?each=1&hst=127.0.0.9", "/runs?hst=x", "/jobs?hst=x",
	} {
		b.get(path).want(http.StatusOK).shows("unknown parameter").hides("Replay all of these")
	}
	for _, path := range []string{"/audit?hst=x", "/operations?hst=x"} {
		b.get(path).want(http.StatusUnprocessableEntity).shows("unknown parameter")
	}
	for _, path := range []string{
		"/dead-letters?each=1&job=", "/runs?job=&status=&reason=&from=&to=&zone=UTC", "/jobs?search=", "/audit?actor=",
	} {
		b.get(path).want(http.StatusOK).hides("unknown parameter")
	}
}

// Who looks at a page that has not changed is not sent it again.
func TestAPageThatHasNotChangedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	b := serve(t, false).as("default", "viewer")
	tag := b.get("/settings").want(http.StatusOK).header.Get("ETag")
	b.has = tag
	if again := b.get("/settings").want(http.StatusNotModified); again.body != "" || tag == "" {
		t.Errorf("%q is sent again, with the tag %q", again.body, tag)
	}
	b.get("/runs").want(http.StatusOK)
}
