package dashboard

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"punctual/internal/oidctest"
)

func TestASessionEndsWithItsToken(t *testing.T) {
	t.Parallel()
	h := welcoming(t, oidctest.SignIn{})
	b := h.welcomed()
	b.get("/jobs").want(200)
	b.ends(-time.Second)
	if at := b.get("/jobs?search=x").want(303).to(); at != "/login?next=%2Fjobs%3Fsearch%3Dx" {
		t.Errorf("sent to %s", at)
	}
}

func TestATokenIsRenewed(t *testing.T) {
	t.Parallel()
	h := welcoming(t, oidctest.SignIn{
		Refresh: true, Access: map[string]any{"punctual_role": "operator"},
	})
	b := h.welcomed()
	b.get("/jobs").want(200)
	if h.issuer.Renewed() != 0 {
		t.Error("a fresh token was renewed")
	}
	var until time.Time
	b.post("/tenant", "tenant", "default").want(303)
	for n, left := range []time.Duration{29 * time.Second, -time.Hour} { // ends soon, has ended
		alter(b, sessionCookie, "/", func(s *session) { s.Expires, until = time.Now().Add(left), s.Until })
		b.get("/jobs").want(200).shows("alice · default")
		b.get("/jobs").want(200)
		if got := h.issuer.Renewed(); got != n+1 {
			t.Errorf("renewed %d times, want %d", got, n+1)
		}
	}
	alter(b, sessionCookie, "/", func(s *session) {
		if !s.Until.Equal(until) || time.Until(s.Expires) < 50*time.Minute {
			t.Errorf("the session ends %s, its token %s", s.Until, s.Expires)
		}
		s.Until = time.Now().Add(-time.Second) // twelve hours are over
	})
	b.get("/jobs").want(303)
}

// The issuer takes a refresh token once. Requests that come together still all succeed.
func TestRequestsAtOnceRenewOnce(t *testing.T) {
	t.Parallel()
	h := welcoming(t, oidctest.SignIn{Refresh: true})
	b := h.welcomed()
	b.ends(-time.Hour)
	old := b.jar(sessionCookie, "/")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/jobs", nil)
			if err != nil {
				t.Error(err)
				return
			}
			request.AddCookie(&http.Cookie{Name: sessionCookie, Value: old})
			response, err := http.DefaultTransport.RoundTrip(request)
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close()
			if response.StatusCode != 200 || !strings.Contains(response.Header.Get("Set-Cookie"), sessionCookie) {
				t.Errorf("status %d, cookie %s", response.StatusCode, response.Header.Get("Set-Cookie"))
			}
		})
	}
	all.Wait()
	if got := h.issuer.Renewed(); got != 1 {
		t.Errorf("renewed %d times", got)
	}
}

func TestARefusedRenewalLeadsToTheSignIn(t *testing.T) {
	t.Parallel()
	h := welcoming(t, oidctest.SignIn{Refresh: true})
	b := h.welcomed()
	h.issuer.Revoke()
	b.ends(29 * time.Second)
	b.get("/jobs").want(200) // the token is good for a while yet
	b.ends(-time.Second)
	if at := b.get("/jobs?search=x").want(303).to(); at != "/login?next=%2Fjobs%3Fsearch%3Dx" {
		t.Errorf("sent to %s", at)
	}
	b.get("/jobs").want(303)
	if got := h.issuer.Renewed(); got != 1 {
		t.Errorf("the issuer was asked %d times for what it has refused", got)
	}
	b.get(b.leave("/jobs")).want(200)
	b.get("/jobs").want(200)
}

func TestARenewedTokenIsAnotherPersons(t *testing.T) {
	t.Parallel()
	h := welcoming(t, oidctest.SignIn{Refresh: true})
	b := h.welcomed()
	h.signsIn(func(how *oidctest.SignIn) {
		how.Access, how.ID = map[string]any{"sub": "mallory"}, map[string]any{"sub": "mallory"}
	})
	b.ends(-time.Second)
	b.get("/jobs").want(303)
}

func TestARenewedTokenHasLostItsRole(t *testing.T) {
	t.Parallel()
	h := welcoming(t, oidctest.SignIn{Refresh: true})
	b := h.welcomed()
	h.signsIn(func(how *oidctest.SignIn) { how.Access = map[string]any{"punctual_role": nil} })
	b.ends(-time.Second)
	b.get("/jobs").want(403).shows("The claim punctual_role")
}

func TestTheIssuerIsAwayWhenATokenEnds(t *testing.T) {
	t.Parallel()
	h := welcoming(t, oidctest.SignIn{Refresh: true})
	b := h.welcomed()
	h.issuer.Away.Store(true)
	b.ends(29 * time.Second)
	b.get("/jobs").want(200)
	b.ends(-time.Second)
	b.get("/jobs").want(503).shows("cannot be reached right now")
	h.issuer.Away.Store(false)
	await(t, "the issuer to be asked again", func() bool { return b.get("/jobs").status == 200 })
}

// Browsers drop large cookies without a word. The refresh token goes first, and the session then ends with its token.
func TestALargeSessionGoesWithoutItsRefreshToken(t *testing.T) {
	t.Parallel()
	h := welcoming(t, oidctest.SignIn{
		Refresh: true, Access: map[string]any{"groups": strings.Repeat("g", 1800)},
	})
	b := h.welcomed()
	b.get("/jobs").want(200)
	if size := len(b.jar(sessionCookie, "/")); size > mostCookie || size < mostCookie-300 {
		t.Errorf("the cookie has %d bytes", size)
	}
	alter(b, sessionCookie, "/", func(s *session) {
		if s.Refresh != "" {
			t.Error("the refresh token was kept")
		}
	})
	b.ends(-time.Second)
	b.get("/jobs").want(303)
	b.post("/login", "key", h.issuer.Token(map[string]any{"groups": strings.Repeat("g", 3000)})).want(422).
		shows("too large for a browser")
}
