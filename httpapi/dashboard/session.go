package dashboard

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
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

// sessionOf returns the session of a request.
func (p *Pages) sessionOf(r *http.Request) (s session, ok bool) {
	switch {
	case !p.unsealed(r, sessionCookie, &s):
		return session{}, false
	case p.NoAuth:
		s.Credential = ""
		return s, true
	case s.Credential == "" || time.Now().After(s.end()):
		return session{}, false
	}
	return s, true
}

// unsealed reads what a cookie of a request holds into a value. It returns false if there is none that was sealed here.
func (p *Pages) unsealed(r *http.Request, cookie string, into any) bool {
	c, err := r.Cookie(cookie)
	if err != nil {
		return false
	}
	var plain []byte
	if p.NoAuth {
		text, _ := url.QueryUnescape(c.Value)
		plain = []byte(text)
	} else if plain, err = p.Sessions.OpenSession(r.Context(), c.Value); err != nil {
		return false
	}
	return json.Unmarshal(plain, into) == nil
}

// errTooLarge says that no browser would keep a session.
var errTooLarge = errors.New("the key or token is too large for a cookie")

// remember makes the browser keep a session. One that is too large goes without its refresh token, and then ends with
// its token.
func (p *Pages) remember(w http.ResponseWriter, r *http.Request, s session) error {
	value, err := p.sealed(r, s)
	if err == nil && len(value) > mostCookie && s.Refresh != "" {
		s.Refresh = ""
		value, err = p.sealed(r, s)
	}
	if err == nil && len(value) > mostCookie {
		err = errTooLarge
	}
	if err == nil {
		http.SetCookie(w, p.cookie(sessionCookie, value, int(time.Until(s.end()).Seconds())))
	}
	return err
}

// sealed returns a value as a cookie holds it: encrypted, unless visitors need not sign in. It holds no secret then.
func (p *Pages) sealed(r *http.Request, v any) (string, error) {
	plain, err := json.Marshal(v)
	switch {
	case err != nil:
		return "", err
	case p.NoAuth:
		return url.QueryEscape(string(plain)), nil
	}
	return p.Sessions.SealSession(r.Context(), plain)
}

func (p *Pages) forget(w http.ResponseWriter) { http.SetCookie(w, p.cookie(sessionCookie, "", -1)) }

// cookie returns a cookie that no script reads and no other site's page can make a browser send.
func (p *Pages) cookie(name, value string, maxAge int) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // Secure where the deployment is reached over HTTPS
		Name: name, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, Secure: p.Secure,
		SameSite: http.SameSiteStrictMode,
	}
}

// toSignIn sends a visitor to the page that signs in, and from there back.
func (p *Pages) toSignIn(w http.ResponseWriter, r *http.Request) {
	path := "/login"
	if r.Method == http.MethodGet && r.URL.RequestURI() != "/" {
		path += "?" + url.Values{"next": {r.URL.RequestURI()}}.Encode()
	}
	http.Redirect(w, r, path, http.StatusSeeOther)
}

// signInForm is what the page that signs in shows.
type signInForm struct {
	Next     string
	Error    string // what is wrong with the key
	Issuer   string // host of the issuer at which visitors may sign in; empty: none
	AtIssuer string // why they could not
}

func (p *Pages) askToSignIn(w http.ResponseWriter, r *http.Request) {
	if p.NoAuth {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	v := &visit{Pages: p, w: w, r: r}
	p.showSignIn(v, http.StatusOK, signInForm{Next: local(r.URL.Query().Get("next"))})
}

func (p *Pages) showSignIn(v *visit, status int, form signInForm) {
	if p.SignIn != nil {
		form.Issuer = p.SignIn.Host()
	}
	if err := v.render(status, "login", "Sign in", form); err != nil {
		v.fail(err)
	}
}

// signIn checks an API key or token with the API, and remembers it for the session.
func (p *Pages) signIn(w http.ResponseWriter, r *http.Request) {
	v := &visit{Pages: p, w: w, r: r}
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	form := signInForm{Next: local(r.PostFormValue("next"))}
	s := session{Credential: strings.TrimSpace(r.PostFormValue("key")), Until: time.Now().Add(sessionLife)}
	_, err := p.calls(w, r, s).Caller(r.Context())
	if err == nil {
		err = p.remember(w, r, s)
	}
	switch {
	case client.Is(err, problem.CodeUnauthenticated):
		form.Error = "This key is not valid. It may be mistyped, revoked or expired."
		p.showSignIn(v, http.StatusUnauthorized, form)
	case client.Is(err, problem.CodeForbidden):
		form.Error = problemOf(err).Detail
		p.showSignIn(v, http.StatusForbidden, form)
	case errors.Is(err, errTooLarge):
		form.Error = "This token is too large for a browser's cookie."
		p.showSignIn(v, http.StatusUnprocessableEntity, form)
	case err != nil:
		v.fail(err)
	default:
		http.Redirect(w, r, form.Next, http.StatusSeeOther)
	}
}

func (p *Pages) signOut(w http.ResponseWriter, r *http.Request) {
	p.forget(w)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// actFor makes an operator's session act for a tenant.
func (v *visit) actFor() error {
	s := v.session
	s.Tenant = v.field("tenant")
	if s.Until.IsZero() {
		s.Until = time.Now().Add(sessionLife)
	}
	if _, err := v.calls(v.w, v.r, s).Caller(v.ctx()); err != nil {
		return err
	}
	if err := v.remember(v.w, v.r, s); err != nil {
		return err
	}
	return v.to("/", "")
}
