package dashboard

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"punctual/httpapi/client"
	"punctual/httpapi/problem"
)

const (
	// sessionLife is how long a visitor stays signed in. The credential may end earlier: the API checks it each time.
	sessionLife = 12 * time.Hour

	// mostCookie bounds the value of a cookie. Browsers drop cookies of more than 4,096 bytes, name included, silently.
	mostCookie = 4000

	sessionCookie = "punctual-session"
	saidCookie    = "punctual-said" // what was done just now, to say it on the next page
)

// session is what the cookie of a visitor holds, encrypted. No replica keeps anything of it.
type session struct {
	Credential string    `json:"credential"`        // API key or token
	Expires    time.Time `json:"expires,omitzero"`  // end of a token that the issuer gave; zero: only the API knows
	Refresh    string    `json:"refresh,omitempty"` // gets the next token of the issuer
	Tenant     string    `json:"tenant,omitempty"`  // tenant that an operator acts for; empty: its own
	Until      time.Time `json:"until"`
}

// end returns when a session ends: with its token, if that cannot be renewed.
func (s session) end() time.Time {
	if s.Refresh == "" && !s.Expires.IsZero() && s.Expires.Before(s.Until) {
		return s.Expires
	}
	return s.Until
}

// kept returns the session that the browser has kept.
func (v *visit) kept() (s session, ok bool) {
	switch {
	case !v.unsealed(sessionCookie, &s):
		return session{}, false
	case v.NoAuth:
		s.Credential = ""
		return s, true
	case s.Credential == "" || time.Now().After(s.end()):
		return session{}, false
	}
	return s, true
}

// unsealed reads what a cookie of the request holds into a value. It returns false if none was sealed here.
func (v *visit) unsealed(cookie string, into any) bool {
	c, err := v.r.Cookie(cookie)
	if err != nil {
		return false
	}
	var plain []byte
	if v.NoAuth {
		text, _ := url.QueryUnescape(c.Value)
		plain = []byte(text)
	} else if plain, err = v.Sessions.OpenSession(v.ctx(), c.Value); err != nil {
		return false
	}
	return json.Unmarshal(plain, into) == nil
}

// errTooLarge says that no browser would keep a session.
var errTooLarge = errors.New("the key or token is too large for a cookie")

// remember makes the browser keep a session. One that is too large goes without its refresh token, and then ends with
// its token.
func (v *visit) remember(s session) error {
	value, err := v.sealed(s)
	if err == nil && len(value) > mostCookie && s.Refresh != "" {
		s.Refresh = ""
		value, err = v.sealed(s)
	}
	if err == nil && len(value) > mostCookie {
		err = errTooLarge
	}
	if err == nil {
		http.SetCookie(v.w, v.cookie(sessionCookie, value, int(time.Until(s.end()).Seconds())))
	}
	return err
}

// sealed returns a value as a cookie holds it: encrypted, unless visitors need not sign in. It holds no secret then.
func (v *visit) sealed(value any) (string, error) {
	plain, err := json.Marshal(value)
	switch {
	case err != nil:
		return "", err
	case v.NoAuth:
		return url.QueryEscape(string(plain)), nil
	}
	return v.Sessions.SealSession(v.ctx(), plain)
}

func (v *visit) forget() { http.SetCookie(v.w, v.cookie(sessionCookie, "", -1)) }

// cookie returns a cookie that no script reads and no other site's page can make a browser send.
func (p *Pages) cookie(name, value string, maxAge int) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // Secure where the deployment is reached over HTTPS
		Name: name, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, Secure: p.Secure,
		SameSite: http.SameSiteStrictMode,
	}
}

// toSignIn sends a visitor to the page that signs in, and from there back.
func (v *visit) toSignIn() error {
	if v.r.Header.Get("HX-Request") != "" { // a part of a page would be replaced by a page that lacks it
		http.Error(v.w, "You are signed out.", http.StatusUnauthorized)
		return nil
	}
	path := "/login"
	if v.r.Method == http.MethodGet && v.r.URL.RequestURI() != "/" {
		path += "?" + url.Values{"next": {v.r.URL.RequestURI()}}.Encode()
	}
	return v.to(path, "")
}

// signInForm is what the page that signs in shows.
type signInForm struct {
	Next     string
	Error    string // what is wrong with the key
	Issuer   string // host of the issuer at which visitors may sign in; empty: none
	AtIssuer string // why they could not
}

func (v *visit) askToSignIn() error {
	if v.NoAuth {
		return v.to("/", "")
	}
	return v.showSignIn(http.StatusOK, signInForm{Next: local(v.param("next"))})
}

func (v *visit) showSignIn(status int, form signInForm) error {
	if v.SignIn != nil {
		form.Issuer = v.SignIn.Host()
	}
	return v.render(status, "login", "Sign in", form)
}

// signIn checks an API key or token with the API, and remembers it for the session.
func (v *visit) signIn() error {
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, mostForm)
	form := signInForm{Next: local(v.r.PostFormValue("next"))}
	s := session{Credential: v.field("key"), Until: time.Now().Add(sessionLife)}
	_, err := client.Caller.Do(v.ctx(), v.calls(s), nil)
	if err == nil {
		err = v.remember(s)
	}
	switch {
	case client.Is(err, problem.CodeUnauthenticated):
		form.Error = "This key is not valid. It may be mistyped, revoked or expired."
		return v.showSignIn(http.StatusUnauthorized, form)
	case client.Is(err, problem.CodeForbidden):
		form.Error = problemOf(err).Detail
		return v.showSignIn(http.StatusForbidden, form)
	case errors.Is(err, errTooLarge):
		form.Error = "This token is too large for a browser's cookie."
		return v.showSignIn(http.StatusUnprocessableEntity, form)
	case err != nil:
		return err
	}
	return v.to(form.Next, "")
}

func (v *visit) signOut() error {
	v.forget()
	return v.to("/login", "")
}

// actFor makes an operator's session act for a tenant.
func (v *visit) actFor() error {
	s := v.session
	s.Tenant = v.field("tenant")
	if s.Until.IsZero() {
		s.Until = time.Now().Add(sessionLife)
	}
	if _, err := client.Caller.Do(v.ctx(), v.calls(s), nil); err != nil {
		return err
	}
	return v.done(v.remember(s), "/", "")
}

// positionCookie has the position of the visitor's last write, if the deployment has a read database. It is no secret,
// and goes with the browser's session.
const positionCookie = "punctual-position"

// recall finds the position of the visitor's last write.
func (v *visit) recall() {
	c, err := v.r.Cookie(positionCookie)
	if err != nil {
		return
	}
	v.position, _ = url.QueryUnescape(c.Value)
}

// wrote remembers the position of a write, for the rest of the visit and for the pages that follow.
func (v *visit) wrote(position string) {
	v.position = position
	http.SetCookie(v.w, v.cookie(positionCookie, url.QueryEscape(position), 0))
}
